//! From a request to a running exec, and on to its end.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use bailey_protocol::limits::{MAX_ARGS, MAX_ARGS_BYTES};
use bailey_sys::child::{self, CStrings, Child, Command, Folder, StartFailure, Step};
use bailey_sys::pty;
use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Resource;
use serde_json::json;
use tokio::io::Interest;
use tokio::sync::{mpsc, oneshot, watch};

use super::cgroup::Group;
use super::environment;
use super::identity::User;
use super::input::Input;
use super::output::{Channel, Feed, Source, Terminal, pump};
use super::registry::{Exec, Exit};
use super::service::{ProcessConfig, PtySize};
use crate::agent::connect::{Code, RpcError, end_of_stream, envelope, invalid};
use crate::agent::{Agent, Settings};
use crate::descriptor::watch;
use crate::machine::Machine;

/// What to start.
#[derive(Debug)]
pub struct StartSpec {
    /// Program, arguments, environment, folder.
    pub config: ProcessConfig,
    /// The terminal's size, if it is to have one.
    pub pty: Option<PtySize>,
    /// The caller's name for it.
    pub tag: Option<String>,
    /// Whether standard input is a pipe; `/dev/null` otherwise.
    pub stdin: bool,
    /// Whom it runs as.
    pub user: User,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// Descriptors of one exec: the program's three, and what is on the other side of them.
struct Plumbing {
    stdio: [OwnedFd; 3],
    input: Input,
    terminal: Option<Rc<Terminal>>,
    outputs: Vec<(Channel, Source)>,
}

/// Starts an exec and returns its first reader. It goes on, and is cleaned up, even if this future is dropped.
///
/// # Errors
/// When the request makes no sense, the program cannot be started, or there is no room.
pub async fn start(agent: &Rc<Agent>, spec: StartSpec) -> Result<mpsc::Receiver<Bytes>, RpcError> {
    if !agent.registry.borrow().has_room() {
        return Err(RpcError::new(Code::ResourceExhausted, "too many execs are running"));
    }
    let can_give = !agent.machine.as_ref().is_some_and(Machine::is_in_user_space);
    let plumbing = plumb(&spec, can_give).map_err(|error| no_room("make pipes for the program", &error))?;
    let group = agent.cgroups.take().map_err(|error| no_room("make a cgroup", &error.into()))?;
    let child = match fork(agent, &spec, &plumbing, &group) {
        Ok(child) => child,
        Err(error) => {
            agent.cgroups.retire(group);
            return Err(error);
        }
    };
    let Plumbing { stdio, input, terminal, outputs } = plumbing;
    // The program's ends: as long as they are open here, its outputs never end.
    drop(stdio);
    let exec = Rc::new(Exec {
        pid: child.pid,
        tag: spec.tag,
        config: spec.config,
        input,
        terminal: RefCell::new(terminal),
        feed: Feed::default(),
        exit: watch::Sender::new(None),
        end: OnceCell::new(),
        timed_out: Cell::new(false),
        group: RefCell::new(Some(group)),
    });
    agent.registry.borrow_mut().add(Rc::clone(&exec));
    let (started, answer) = oneshot::channel();
    tokio::task::spawn_local(follow(Rc::clone(agent), exec, child.report, outputs, spec.timeout, started));
    answer.await.unwrap_or_else(|_gone| Err(RpcError::new(Code::Internal, "the exec was lost")))
}

fn no_room(doing: &str, error: &io::Error) -> RpcError {
    RpcError::new(Code::ResourceExhausted, format!("{doing}: {error}"))
}

/// `can_give`: whether this kernel lets a pipe be given away.
fn plumb(spec: &StartSpec, can_give: bool) -> io::Result<Plumbing> {
    let give = |pipe: &OwnedFd| if can_give { give(pipe, spec.user) } else { Ok(()) };
    if let Some(size) = spec.pty {
        let (uid, gid) = spec.user.ids();
        let pty = pty::open(uid, gid)?;
        pty::resize(&pty.master, size.cols, size.rows)?;
        let terminal = Rc::new(Terminal::new(pty.master)?);
        let stdio = [pty.terminal.try_clone()?, pty.terminal.try_clone()?, pty.terminal];
        let input = Input::keyboard(Rc::clone(&terminal));
        let outputs = vec![(Channel::Pty, Source::Terminal(Rc::clone(&terminal)))];
        return Ok(Plumbing { stdio, input, terminal: Some(terminal), outputs });
    }
    let (from_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdin, input) = if spec.stdin {
        let (stdin, to_stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        give(&stdin)?;
        (stdin, Input::pipe(to_stdin)?)
    } else {
        (null()?, Input::closed())
    };
    give(&stdout)?;
    give(&stderr)?;
    let outputs = vec![(Channel::Stdout, Source::pipe(from_stdout)?), (Channel::Stderr, Source::pipe(from_stderr)?)];
    Ok(Plumbing { stdio: [stdin, stdout, stderr], input, terminal: None, outputs })
}

/// Makes a pipe the user's: programs that open `/dev/stdin` or `/proc/self/fd/1` again need that.
fn give(pipe: &OwnedFd, user: User) -> io::Result<()> {
    let (uid, gid) = user.ids();
    Ok(rustix::fs::fchown(pipe, Some(uid), Some(gid))?)
}

/// `/dev/null`, for reading.
///
/// # Errors
/// When the sandbox's `/dev` is broken.
fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, "/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn fork(agent: &Agent, spec: &StartSpec, plumbing: &Plumbing, group: &Group) -> Result<Child, RpcError> {
    let settings = agent.settings.get().ok_or_else(|| invalid("the sandbox is not initialised"))?;
    let config = &spec.config;
    environment::check(&config.envs)?;
    let env = environment::build(spec.user, spec.pty.is_some(), &settings.env, &config.envs);
    environment::check(&env)?;
    let programs = environment::candidates(&config.cmd, env.get("PATH"))?;
    let arguments = std::iter::once(&config.cmd).chain(&config.args).map(|text| text.clone().into_bytes());
    let folder = config.cwd.as_deref().filter(|path| !path.is_empty());
    let folder = crate::files::path::resolve(folder.unwrap_or("~"), spec.user)?;
    launch(
        agent,
        settings,
        &Launch {
            programs: &programs,
            arguments: arguments.collect(),
            environment: env.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
            folder: Folder::Path(&CString::new(folder).map_err(|_nul| invalid("the working folder has a NUL byte"))?),
            stdio: plumbing.stdio.each_ref().map(AsFd::as_fd),
            terminal: plumbing.terminal.is_some(),
            user: spec.user,
            group,
        },
    )
}

/// What a fork takes, checked but not yet in the kernel's form.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Where the program may be.
    pub programs: &'a [CString],
    /// Arguments, the program's name first.
    pub arguments: Vec<Vec<u8>>,
    /// `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// Where it starts.
    pub folder: Folder<'a>,
    /// Standard descriptors.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Whether standard input becomes the controlling terminal.
    pub terminal: bool,
    /// Whom it runs as.
    pub user: User,
    /// The cgroup that it is born in.
    pub group: &'a Group,
}

/// Forks a child that gives up what this user may not have, and executes the program.
///
/// # Errors
/// When sizes are over their limits, the user may not start anything, or the fork fails.
pub fn launch(agent: &Agent, settings: &Settings, launch: &Launch<'_>) -> Result<Child, RpcError> {
    if agent.machine.as_ref().is_some_and(Machine::is_stopped) {
        return Err(RpcError::new(Code::FailedPrecondition, "the sandbox is stopped"));
    }
    let bytes: usize = launch.arguments.iter().chain(&launch.environment).map(|text| text.len() + 1).sum();
    if launch.arguments.len() > MAX_ARGS || bytes > 2 * MAX_ARGS_BYTES {
        let message = format!("a command may have {MAX_ARGS} arguments and {MAX_ARGS_BYTES} bytes");
        return Err(invalid(message));
    }
    let strings = |texts: &[Vec<u8>]| -> Result<CStrings, RpcError> {
        let texts = texts.iter().map(|text| CString::new(text.clone()));
        Ok(CStrings::new(texts.collect::<Result<_, _>>().map_err(|_nul| invalid("an argument has a NUL byte"))?))
    };
    let mut identity = launch.user.identity(settings)?;
    let mut limits: Vec<(Resource, u64)> = limits(settings.open_files).into();
    if agent.machine.as_ref().is_some_and(Machine::is_in_user_space) {
        identity.secure_bits = None;
        limits.retain(|(resource, _)| matches!(resource, Resource::Core | Resource::Nofile));
    }
    let child = child::start(&Command {
        programs: launch.programs,
        arguments: &strings(&launch.arguments)?,
        environment: &strings(&launch.environment)?,
        folder: launch.folder,
        stdio: launch.stdio,
        terminal: launch.terminal,
        cgroup: launch.group.folder(),
        identity,
        limits: &limits,
        filters: &agent.filters,
    });
    child.map_err(|errno| no_room("fork the program", &errno.into()))
}

/// Belts for what cgroups do not count. A limit is never above what this process has itself.
fn limits(open_files: u64) -> [(Resource, u64); 7] {
    const KIB: u64 = 1024;
    let wanted = [
        // 1 and not 0: a core pattern that is a pipe runs on the host unless the limit is exactly 1.
        (Resource::Core, 1),
        (Resource::Nofile, open_files),
        (Resource::Memlock, 1024 * KIB),
        (Resource::Msgqueue, 0),
        (Resource::Sigpending, 1024),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
    ];
    wanted.map(|(resource, value)| {
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        (resource, value.min(most))
    })
}

/// Accompanies an exec from its fork to its end.
async fn follow(
    agent: Rc<Agent>,
    exec: Rc<Exec>,
    report: OwnedFd,
    outputs: Vec<(Channel, Source)>,
    timeout: Option<Duration>,
    started: oneshot::Sender<Result<mpsc::Receiver<Bytes>, RpcError>>,
) {
    if let Some(failure) = read_report(report).await {
        agent.registry.borrow_mut().remove(&exec, false);
        retire(&agent, &exec);
        // Nobody may be waiting any more; then nobody misses the answer.
        let _unheard = started.send(Err(start_error(failure, &exec.config)));
        return;
    }
    // Nobody waiting: the exec runs on without a reader, as after any disconnect.
    let _unheard = started.send(Ok(exec.feed.subscribe(start_event(exec.pid))));
    agent.cgroups.prepare_spare();
    let outputs = outputs.into_iter().map(|(channel, source)| pump(source, channel, &exec.feed, exec.exit.subscribe()));
    let work = async {
        futures_util::future::join_all(outputs).await;
        let mut exit = exec.exit.subscribe();
        let exit = exit.wait_for(Option::is_some).await;
        exit.ok().and_then(|exit| *exit).unwrap_or(Exit::Signal(libc::SIGKILL))
    };
    let exit = {
        tokio::pin!(work);
        let deadline = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            exit = &mut work => exit,
            () = deadline => {
                exec.timed_out.set(true);
                exec.kill_all();
                work.await
            }
        }
    };
    exec.input.close();
    exec.terminal.borrow_mut().take();
    let last = if exec.timed_out.get() {
        vec![end_of_stream(Err(RpcError::new(Code::DeadlineExceeded, "the exec took longer than its timeout")))]
    } else {
        vec![end_event(exit), end_of_stream(Ok(()))]
    };
    // Set once, here.
    let _first = exec.end.set(Bytes::from(last.concat()));
    retire(&agent, &exec);
    agent.registry.borrow_mut().remove(&exec, true);
    exec.feed.finish(&last).await;
}

fn retire(agent: &Agent, exec: &Exec) {
    if let Some(group) = exec.group.borrow_mut().take() {
        agent.cgroups.retire(group);
    }
}

/// Waits until the child became its program; `Some` if it did not.
pub async fn read_report(report: OwnedFd) -> Option<StartFailure> {
    let mut bytes = [0_u8; 8];
    let report = watch(report, Interest::READABLE).ok()?;
    loop {
        let mut ready = report.readable().await.ok()?;
        match rustix::io::read(report.get_ref(), &mut bytes) {
            Ok(read) => return StartFailure::from_report(bytes.get(..read).unwrap_or_default()),
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(_broken) => return None,
        }
    }
}

fn start_error(failure: StartFailure, config: &ProcessConfig) -> RpcError {
    match failure.step {
        Step::Exec => {
            // The node tells its caller by the code alone whether the program or its folder is at fault.
            let code = match failure.errno {
                Errno::NOENT | Errno::NOTDIR => Code::NotFound,
                Errno::ACCESS | Errno::PERM | Errno::ISDIR | Errno::NOEXEC => Code::PermissionDenied,
                _ => Code::InvalidArgument,
            };
            RpcError::new(code, format!("start `{}`: {}", config.cmd, failure.errno))
        }
        Step::Folder => {
            let folder = config.cwd.as_deref().unwrap_or("~");
            invalid(format!("cwd `{folder}`: {}", failure.errno))
        }
        _ => RpcError::new(Code::Internal, failure.to_string()),
    }
}

/// The first event.
#[must_use]
pub fn start_event(pid: rustix::process::Pid) -> Bytes {
    envelope(&json!({ "event": { "start": { "pid": pid.as_raw_nonzero() } } }))
}

fn end_event(exit: Exit) -> Bytes {
    let end = match exit {
        Exit::Code(0) => json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }),
        Exit::Code(code) => {
            let status = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": status, "error": status })
        }
        Exit::Signal(signal) => {
            let status = format!("signal: {}", signal_name(signal));
            json!({ "exitCode": -1, "exited": false, "status": status, "error": status, "signal": signal })
        }
    };
    envelope(&json!({ "event": { "end": end } }))
}

/// What the signal is called in end events.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "hangup",
        libc::SIGINT => "interrupt",
        libc::SIGQUIT => "quit",
        libc::SIGILL => "illegal instruction",
        libc::SIGTRAP => "trace/breakpoint trap",
        libc::SIGABRT => "aborted",
        libc::SIGBUS => "bus error",
        libc::SIGFPE => "floating point exception",
        libc::SIGKILL => "killed",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGPIPE => "broken pipe",
        libc::SIGALRM => "alarm clock",
        libc::SIGTERM => "terminated",
        libc::SIGSYS => "bad system call",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
