//! PID 1: one thread that serves the node's streams, reaps every process, and ends with the stream.
//!
//! ```text
//! parked ──POST /init──▶ ready ──stream ends──▶ gone (and with PID 1 the whole sandbox)
//! ```
//!
//! A parked agent answers `/health` and `/init` only. What `/init` sets up is for good. In a machine of its own there is
//! more before and after: see [`crate::machine`].

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::Context;
use bailey_protocol::guest::{CGROUP_FD, STREAM_FD};
use bailey_sys::descriptors;
use bailey_sys::seccomp::Program;
use rustix::process::{DumpableBehavior, Signal};

use crate::descriptor::Duplex;
use crate::exec::{cgroup::Cgroups, filter, reaper, registry::Registry};
use crate::files::watch::Watchers;
use crate::machine::Machine;

pub mod connect;
mod facts;
pub mod http;
mod init;
pub(crate) mod stream;

/// Everything that PID 1 knows. One thread, so shared without locks; no borrow is held across an await.
#[derive(Debug)]
pub struct Agent {
    /// What `/init` set; unset while parked.
    pub settings: OnceCell<Settings>,
    /// Groups that execs are started in.
    pub cgroups: Cgroups,
    /// Execs that run, and those that ended a moment ago.
    pub registry: RefCell<Registry>,
    /// Installed in every exec.
    pub filters: Vec<Program>,
    /// Folders being watched for callers that poll.
    pub watchers: RefCell<Watchers>,
    /// The machine, where this is the first program of one.
    pub machine: Option<Machine>,
    /// Bytes of `/proc/stat` at the last `/metrics`: (busy, all).
    cpu_before: Cell<(u64, u64)>,
}

/// What `/init` fixes for the sandbox's life.
#[derive(Debug)]
pub struct Settings {
    /// Added to the environment of every exec.
    pub env: BTreeMap<String, String>,
    /// Whether execs may run as the sandbox's uid 0.
    pub root: bool,
    /// Open files per process of an exec.
    pub open_files: u64,
}

/// Runs as PID 1 until the node's stream ends.
///
/// # Errors
/// When the inherited descriptors are missing, or the filters do not compile.
pub fn main() -> anyhow::Result<()> {
    let stream = descriptors::inherit(STREAM_FD).context("take over the stream")?;
    let cgroup = descriptors::inherit(CGROUP_FD).context("take over the cgroup folder")?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).context("die with the parent")?;
    serve(Cgroups::new(Some(cgroup)), None, || Duplex::socket(stream))
}

/// Serves the stream that `connect` makes once there is something to watch it with.
pub(crate) fn serve(
    cgroups: Cgroups,
    machine: Option<Machine>,
    connect: impl FnOnce() -> std::io::Result<Duplex>,
) -> anyhow::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).context("forbid reading this process")?;
    // Orphans come here even where this is not PID 1 (in tests).
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("adopt orphans")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let stream = connect().context("watch the stream")?;
        run(cgroups, machine, stream).await
    })
}

async fn run(cgroups: Cgroups, machine: Option<Machine>, stream: Duplex) -> anyhow::Result<()> {
    let filters = filter::compile().context("compile the filters")?;
    let agent = Rc::new(Agent {
        settings: OnceCell::new(),
        cgroups,
        registry: RefCell::default(),
        filters,
        watchers: RefCell::default(),
        machine,
        cpu_before: Cell::new((0, 0)),
    });
    agent.cgroups.prepare_spare();
    let children = reaper::children().context("listen for ended children")?;
    tokio::select! {
        result = reaper::run(&agent, &children) => result.context("reap ended children"),
        result = stream::serve_all(&agent, stream) => result.context("serve the node's stream"),
    }
}
