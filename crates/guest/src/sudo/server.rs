//! PID 1's side of `sudo`: any program of the sandbox may connect, so sizes, counts and times are limited.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bailey_protocol::guest::SUDO_SOCKET;
use bailey_sys::child::{Folder, Step};
use rustix::fs::Mode;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::message::{MAX_REQUEST, Reply, Request};
use crate::agent::Agent;
use crate::agent::connect::{Code, RpcError, invalid};
use crate::exec::cgroup::Group;
use crate::exec::environment;
use crate::exec::registry::Exit;
use crate::exec::start::{Launch, launch, read_report};

/// Most connections at once.
const MAX_CONNECTIONS: usize = 64;
/// Longest time until a request is there.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Standard input, output, error, and the working folder.
const DESCRIPTORS: usize = 4;

/// Opens the socket, also where there is no root: the shim then hears so. A template without a place for it has no
/// `sudo`, which only matters if there is to be a root.
///
/// # Errors
/// When the socket cannot be made and root was asked for.
pub fn listen(agent: &Rc<Agent>, root: bool) -> Result<(), RpcError> {
    let bound = UnixListener::bind(SUDO_SOCKET).and_then(|listener| {
        rustix::fs::chmod(SUDO_SOCKET, Mode::from_raw_mode(0o666))?;
        Ok(listener)
    });
    match bound {
        Ok(listener) => {
            tokio::task::spawn_local(accept(Rc::clone(agent), listener));
            Ok(())
        }
        Err(error) if root => Err(RpcError::new(Code::Internal, format!("listen for `sudo`: {error}"))),
        Err(_no_place) => Ok(()),
    }
}

async fn accept(agent: Rc<Agent>, listener: UnixListener) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // A crowd waits in the listener's backlog, where it costs nothing, and nobody in it is turned away.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let Ok((stream, _address)) = listener.accept().await else {
            // No descriptor left, most likely; the backlog waits meanwhile.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let agent = Rc::clone(&agent);
        tokio::task::spawn_local(async move {
            serve(&agent, stream).await;
            drop(slot);
        });
    }
}

async fn serve(agent: &Rc<Agent>, mut stream: UnixStream) {
    let Ok(Some((request, descriptors))) = tokio::time::timeout(REQUEST_TIME, receive(&mut stream)).await else {
        return;
    };
    let reply = match run(agent, &mut stream, request, descriptors).await {
        Ok(Exit::Code(code)) => Reply::Exited(code).encode().to_vec(),
        Ok(Exit::Signal(signal)) => Reply::Signaled(signal).encode().to_vec(),
        Err(error) => {
            let text: String = error.message.chars().take(500).collect();
            let length = i32::try_from(text.len()).unwrap_or(0);
            [&Reply::Refused(length).encode()[..], text.as_bytes()].concat()
        }
    };
    // The shim may be gone.
    let _unheard = stream.write_all(&reply).await;
}

/// Reads a request and its descriptors; `None` if it is none.
async fn receive(stream: &mut UnixStream) -> Option<(Request, [OwnedFd; DESCRIPTORS])> {
    let mut header = [0_u8; 4];
    let descriptors = loop {
        stream.readable().await.ok()?;
        match stream.try_io(Interest::READABLE, || Ok(receive_header(stream, &mut header)?)) {
            Ok(descriptors) => break descriptors?,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_broken) => return None,
        }
    };
    let length = usize::try_from(u32::from_be_bytes(header)).ok().filter(|length| *length <= MAX_REQUEST)?;
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.ok()?;
    Some((Request::parse(&bytes)?, descriptors))
}

/// The header and what came with it; the inner `None` if that is not what a shim sends. Descriptors beyond the
/// buffer's room are closed by the kernel, all others here if they are too many or too few.
fn receive_header(stream: &UnixStream, header: &mut [u8; 4]) -> rustix::io::Result<Option<[OwnedFd; DESCRIPTORS]>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(header)];
    let received = rustix::net::recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok(descriptors.try_into().ok().filter(|_| received.bytes == 4))
}

async fn run(
    agent: &Rc<Agent>,
    stream: &mut UnixStream,
    request: Request,
    descriptors: [OwnedFd; DESCRIPTORS],
) -> Result<Exit, RpcError> {
    let settings = agent.settings.get().ok_or_else(|| invalid("the sandbox is not initialised"))?;
    if !settings.root {
        return Err(RpcError::new(Code::PermissionDenied, "this sandbox has no root user"));
    }
    let mut env = environment::build(request.user, false, &settings.env, &BTreeMap::new())
        .into_iter()
        .map(|(name, value)| (name.into_bytes(), value.into_bytes()))
        .collect::<BTreeMap<_, _>>();
    for pair in &request.environment {
        let at = pair.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
        let (name, value) = pair.split_at(at.ok_or_else(|| invalid("an environment variable has no name"))?);
        env.insert(name.to_vec(), value.get(1..).unwrap_or_default().to_vec());
    }
    let program = request.arguments.first().and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    let programs: Vec<CString> = environment::candidates(program, None)?;
    let settings = agent.settings.get().ok_or_else(|| invalid("the sandbox is not initialised"))?;
    let group = make_group(agent, stream)?;
    let [stdin, stdout, stderr, folder] = &descriptors;
    let child = launch(
        agent,
        settings,
        &Launch {
            programs: &programs,
            arguments: request.arguments.clone(),
            environment: env.into_iter().map(|(name, value)| [name, value].join(&b'=')).collect(),
            folder: Folder::Open(folder.as_fd()),
            stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            terminal: false,
            user: request.user,
            group: &group,
        },
    );
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            agent.cgroups.retire(group);
            return Err(error);
        }
    };
    let ended = agent.registry.borrow_mut().wait_for(child.pid);
    drop(descriptors);
    let result = match read_report(child.report).await {
        Some(failure) if failure.step == Step::Exec => Err(invalid(format!("{program}: {}", failure.errno))),
        Some(failure) => Err(RpcError::new(Code::Internal, failure.to_string())),
        None => Ok(follow(stream, child.pid, &group, ended).await),
    };
    agent.cgroups.retire(group);
    result
}

/// A group inside that of the exec that asks, so that its deadline reaches what `sudo` started.
fn make_group(agent: &Agent, stream: &UnixStream) -> Result<Group, RpcError> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok();
    let line =
        peer.and_then(|peer| std::fs::read_to_string(format!("/proc/{}/cgroup", peer.pid.as_raw_nonzero())).ok());
    let line = line.unwrap_or_default();
    for exec in agent.registry.borrow().running() {
        if let Some(group) = exec.group.borrow().as_ref().filter(|group| line.lines().any(|line| group.holds(line))) {
            return agent.cgroups.take_inside(group).map_err(no_group);
        }
    }
    agent.cgroups.take().map_err(no_group)
}

fn no_group(errno: rustix::io::Errno) -> RpcError {
    RpcError::new(Code::ResourceExhausted, format!("make a cgroup: {errno}"))
}

/// Forwards signals until the command ends; kills it when the shim is gone.
async fn follow(
    stream: &mut UnixStream,
    pid: Pid,
    group: &Group,
    mut ended: tokio::sync::oneshot::Receiver<Exit>,
) -> Exit {
    let mut gone = false;
    loop {
        let mut byte = [0_u8; 1];
        tokio::select! {
            biased;
            exit = &mut ended => return exit.unwrap_or(Exit::Signal(libc::SIGKILL)),
            read = stream.read(&mut byte), if !gone => match read {
                Ok(1) => {
                    if let Some(signal) = forwarded(i32::from(byte[0])) {
                        // Not reaped yet, so the id is still the command's.
                        let _just_ended = rustix::process::kill_process_group(pid, signal);
                    }
                }
                _ => {
                    gone = true;
                    // Nothing to be done if it fails: the group dies with the sandbox.
                    let _late = group.kill();
                }
            },
        }
    }
}

/// The signals that a shim passes on.
#[must_use]
pub fn forwarded(number: i32) -> Option<Signal> {
    let all = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::CONT];
    all.into_iter().find(|signal| signal.as_raw() == number)
}
