//! The first program of a machine of its own: what a jail does from outside for a cage, done from inside.
//!
//! ```text
//!        POST /claim          slice:N, each        POST /init         POST /stop
//! parked ───────────▶ claimed ───────────▶ claimed ──────────▶ ready ───────────▶ stopped ⟲ collect:N
//!    └── a step fails ──▶ failed ◀── a step fails ──┘
//! ```
//!
//! A parked machine knows no tenant and may be saved, and started any number of times as a copy. Its root is the
//! template under a writable layer that the claim throws away, with whatever was done to warm the machine up
//! (`POST /warm`, as often as wanted while it is parked). The
//! claim makes the copy a machine of its own, and gives it limits and a fresh root over the scratch space; slices come
//! over the stream and go back as changes. No way leads back: a failed machine can only be ended.
//!
//! What is beneath the machine, a kernel of its own with virtual devices or one in user space that shows a finished
//! system, makes a difference in [`ground`] only.

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::agent::connect::{Code, RpcError};

mod boot;
pub mod claim;
pub mod collect;
mod given;
mod ground;
mod mounts;
mod root;
mod scratch;
pub mod slice;
pub mod stop;
pub mod warm;

/// A step of what the machine does by itself failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{step}: {errno}")]
pub struct MachineError {
    step: &'static str,
    errno: Errno,
}

impl From<MachineError> for RpcError {
    fn from(error: MachineError) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

/// Names the step that a system call belongs to.
trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, MachineError>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, step: &'static str) -> Result<T, MachineError> {
        self.map_err(|errno| MachineError { step, errno })
    }
}

/// Where the machine is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Parked,
    /// For as long as commands warm it up; parked again after that.
    Warming,
    Claimed,
    Ready,
    Stopped,
    Failed,
}

/// The machine around PID 1.
#[derive(Debug)]
pub struct Machine {
    ground: ground::Ground,
    phase: Cell<Phase>,
    /// Set by the claim.
    claimed: OnceCell<claim::Claimed>,
}

/// Runs as the machine's first program until the node's stream ends, and the machine with it.
///
/// # Errors
/// Names the step of the start that failed.
pub fn main(stdio: bool) -> anyhow::Result<()> {
    let started = if stdio { given::start() } else { boot::boot() };
    let ended = started.and_then(|(ground, cgroups, connect)| {
        let machine = Machine { ground, phase: Cell::new(Phase::Parked), claimed: OnceCell::new() };
        crate::agent::serve(cgroups, Some(machine), connect)
    });
    if !stdio {
        if let Err(error) = &ended {
            // On the console: nobody else is there any more.
            eprintln!("bailey-guest: {error:#}");
        }
        // A kernel without its first program panics, which takes longer.
        rustix::system::reboot(rustix::system::RebootCommand::Restart)?;
    }
    ended
}

impl Machine {
    /// Whether the node may go and come back.
    pub(crate) fn waits_for_the_node(&self) -> bool {
        self.phase.get() == Phase::Parked && self.ground.outlives_the_stream()
    }

    /// Whether nothing may be started any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.phase.get() == Phase::Stopped
    }

    /// Whether its kernel is a program: one that lacks parts of Linux.
    pub(crate) fn is_in_user_space(&self) -> bool {
        matches!(self.ground, ground::Ground::Given(_))
    }

    /// Descriptors that PID 1 needs beneath its Landlock fence. No path leads to them.
    pub(crate) fn layers(&self) -> Vec<BorrowedFd<'_>> {
        self.claimed.get().map_or(Vec::new(), |claimed| {
            let slices = claimed.slices.iter().filter_map(|slice| slice.layers());
            slices.flatten().chain([claimed.scratch.as_fd()]).collect()
        })
    }

    /// Takes the step from one phase to the next; a step that fails leads nowhere.
    fn advance<T>(
        &self,
        (from, to): (Phase, Phase),
        refusal: RpcError,
        act: impl FnOnce() -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        if self.phase.get() != from {
            return Err(refusal);
        }
        self.phase.set(Phase::Failed);
        let done = act()?;
        self.phase.set(to);
        Ok(done)
    }
}
