//! `POST /init`: the claim. Environment, Landlock, the `sudo` socket; once, and for good.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use bailey_protocol::guest::{GENERATION, InitRequest, InitResponse};
use bailey_sys::landlock::{self, Grant, Rights};
use hyper::body::Incoming;
use rustix::fs::{CWD, Mode, OFlags};

use super::connect::{Answer, Code, RpcError, json_answer, read_unary};
use super::{Agent, Settings};
use crate::exec::filter;
use crate::machine::Machine;
use crate::sudo;

pub(super) async fn init(agent: &Rc<Agent>, body: Incoming) -> Result<Answer, RpcError> {
    let request: InitRequest = read_unary(body).await?;
    if request.generation != GENERATION {
        let message = format!("this guest speaks generation {GENERATION}, not {}", request.generation);
        return Err(RpcError::new(Code::FailedPrecondition, message));
    }
    if agent.settings.get().is_some() {
        return Err(RpcError::new(Code::AlreadyExists, "the sandbox is initialised already"));
    }
    crate::exec::environment::check(&request.env)?;
    if let Some(machine) = &agent.machine {
        machine.mount_slices()?;
    }
    let abi = restrict(agent, &request)?;
    sudo::server::listen(agent, request.root)?;
    let settings = Settings { env: request.env, root: request.root, open_files: u64::from(request.open_files) };
    if agent.settings.set(settings).is_err() {
        return Err(RpcError::new(Code::AlreadyExists, "the sandbox is initialised already"));
    }
    let mut fences = vec![filter::fence(&agent.filters)];
    if let Some(abi) = abi {
        fences.insert(0, format!("landlock:{abi}"));
    }
    Ok(json_answer(&InitResponse { fences }))
}

/// Gives up every path but the folders that are in `/` now and the mounts; `/` itself can be listed.
fn restrict(agent: &Agent, request: &InitRequest) -> Result<Option<i32>, RpcError> {
    if agent.machine.as_ref().is_some_and(Machine::is_in_user_space) {
        // That kernel has no Landlock. It is the fence itself: nothing of another sandbox is in it.
        return Ok(None);
    }
    let fail = |what: &str, error: &dyn std::fmt::Display| {
        RpcError::new(Code::Internal, format!("put up the Landlock fence: {what}: {error}"))
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |path: &[u8]| rustix::fs::openat(CWD, path, flags, Mode::empty());
    let root = open(b"/").map_err(|e| fail("open /", &e))?;
    let mut granted: Vec<(OwnedFd, Rights)> = Vec::new();
    let entries = rustix::fs::Dir::read_from(&open_listing(b"/").map_err(|e| fail("list /", &e))?);
    for entry in entries.map_err(|e| fail("list /", &e))? {
        let entry = entry.map_err(|e| fail("list /", &e))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        // Links and files in `/` are no folders: what links lead to is granted by itself.
        if let Ok(folder) = open(&[b"/", name].concat()) {
            granted.push((folder, if name == b"dev" { Rights::AllAndDevices } else { Rights::All }));
        }
    }
    for mount in &request.mounts {
        let folder = open(mount.as_str().as_bytes()).map_err(|e| fail(mount.as_str(), &e))?;
        granted.push((folder, Rights::All));
    }
    let mut grants = vec![Grant { beneath: root.as_fd(), rights: Rights::List }];
    // Not in any path of the sandbox, so PID 1's alone.
    grants.extend(agent.cgroups.folder().map(|beneath| Grant { beneath, rights: Rights::All }));
    // As unreachable by path.
    let layers = agent.machine.iter().flat_map(Machine::layers);
    grants.extend(layers.map(|beneath| Grant { beneath, rights: Rights::All }));
    grants.extend(granted.iter().map(|(folder, rights)| Grant { beneath: folder.as_fd(), rights: *rights }));
    landlock::restrict(&grants).map(Some).map_err(|e| fail("restrict", &e))
}

fn open_listing(path: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
