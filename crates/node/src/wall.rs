//! What can stand between the code and the host.
//!
//! A wall parks a sandbox that knows no tenant, gives it to one run, stops it, hands out what the run changed, and
//! destroys it. To add one: `wall/NAME.rs`, one line in [`crate::node`] where walls are made, and run the contract
//! suite in `tests/it/wall_contract.rs` on it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use bailey_protocol::id::{SandboxId, ShareTag, TemplateDigest};
use bailey_protocol::jail::StopFacts;
use bailey_protocol::limits::Limits;
use bailey_protocol::path::SandboxPath;
use bailey_protocol::wall::WallKind;
use tokio::io::AsyncRead;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, error};

use crate::agent::AgentError;
use crate::checkout::Slice;
use crate::jail::JailError;
use crate::tasks::Tasks;
use crate::transport::Transport;

pub mod container;
pub mod gvisor;
pub mod jailed;
pub mod microvm;
pub mod streamed;

/// A future behind the seam.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The bytes of one mount's change stream.
pub type Changes = Pin<Box<dyn AsyncRead + Send>>;

/// One way to isolate a sandbox. Calls on one sandbox come one at a time.
pub trait Wall: fmt::Debug + Send + Sync {
    /// What this wall is and can do.
    fn capabilities(&self) -> Capabilities;

    /// Starts a sandbox that knows no tenant, under the given id.
    ///
    /// CANCEL: a sandbox that is already being made is destroyed as soon as it exists.
    fn park(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
    ) -> BoxFuture<'static, Result<Parked, WallError>>;

    /// Gives a parked sandbox its limits and its slices; the fences that this put up. On an error it is good for nothing
    /// but `destroy`.
    fn claim<'a>(&'a self, live: &'a Live, order: ClaimOrder) -> BoxFuture<'a, Result<Vec<String>, WallError>>;

    /// Ends the code. Where a jail collects, every process in the sandbox is killed and none is left. Where the guest
    /// does ([`streamed`]), it says that it has killed the code, and is not believed in more than that: the machine
    /// serves nothing but `collect` any more and dies with `destroy`. A guest that says nothing in time is killed here.
    fn stop<'a>(&'a self, live: &'a Live) -> BoxFuture<'a, Result<StopFacts, WallError>>;

    /// After `stop`: what changed below the mount with this index, as whoever collects tells it, hostile or not; `None`
    /// if nothing did.
    fn collect<'a>(&'a self, live: &'a Live, mount: u32) -> BoxFuture<'a, Result<Option<Changes>, WallError>>;

    /// Kills whatever still lives of the sandbox and removes everything that is left of it.
    fn destroy<'a>(&'a self, sandbox: &'a SandboxId) -> BoxFuture<'a, Result<(), WallError>>;

    /// Resolves when the wall can no longer serve anything.
    fn lost(&self) -> BoxFuture<'_, ()>;
}

/// What a wall is and can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name.
    pub kind: WallKind,
    /// Whether the hardware helps; `None` where there is no machine to accelerate.
    pub accelerated: Option<bool>,
}

/// A started sandbox that waits to be claimed.
#[derive(Debug)]
pub struct Parked {
    /// Its existence.
    pub hold: Hold,
    /// What it was made from.
    pub template: TemplateDigest,
    /// Fences verified from outside.
    pub fences: Vec<String>,
    /// The host's end of the stream to the guest agent.
    pub stream: UnixStream,
    /// Becomes readable when the sandbox is dead.
    pub death: OwnedFd,
    /// What its guest has to run before it counts: the first program of a machine is slow.
    pub warm: Vec<Vec<String>>,
}

/// A sandbox in use, as its wall gets at it.
#[derive(Debug, Clone)]
pub struct Live {
    /// Its id.
    pub sandbox: SandboxId,
    /// The streams to its guest.
    pub transport: Arc<Transport>,
}

/// What a claim gives to a parked sandbox.
#[derive(Debug, Clone)]
pub struct ClaimOrder {
    /// Whose CPU time it takes.
    pub share: ShareTag,
    /// What it may use from now on.
    pub limits: Limits,
    /// Its slices, in the order of the spec.
    pub mounts: Vec<ClaimMount>,
}

/// One slice for a sandbox.
#[derive(Debug, Clone)]
pub struct ClaimMount {
    /// Where it appears inside.
    pub at: SandboxPath,
    /// Whether the code may change what it sees.
    pub writable: bool,
    /// The folder with the content (`O_PATH`); never written to.
    pub lower: Arc<OwnedFd>,
}

/// Why a wall could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum WallError {
    /// The jail did not carry it out.
    #[error("jail request failed")]
    Jail(#[source] JailError),
    /// A descriptor that the jail handed out could not be used.
    #[error("descriptor of a sandbox could not be used")]
    Descriptor(#[source] std::io::Error),
    /// It took too long.
    #[error("no answer to `{op}` in time")]
    Overdue {
        /// What was asked.
        op: &'static str,
    },
    /// The guest of a machine did not do its part of it.
    #[error("the guest failed to {op}")]
    Guest {
        /// What was asked.
        op: &'static str,
        /// What came of it.
        #[source]
        cause: AgentError,
    },
    /// The guest did not take a slice.
    #[error("the guest refused slice {number}: `{said}`")]
    Slice {
        /// Its number.
        number: usize,
        /// In its own words, for the log.
        said: String,
    },
    /// A slice on disk could not be read.
    #[error("slice {number} could not be read")]
    Unreadable {
        /// Its number.
        number: usize,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A machine's monitor did not do its part.
    #[error("the monitor of a machine failed")]
    Monitor(#[source] microvm::QmpError),
    /// The limits cannot be had behind this wall.
    #[error("this wall cannot: {0}")]
    Unable(&'static str),
    /// There is nothing to tell a machine from its copies by.
    #[error("no random bytes for a new machine")]
    Chance(#[source] std::io::Error),
}

/// The existence of one sandbox: when it is dropped, the sandbox is destroyed behind.
pub struct Hold {
    sandbox: SandboxId,
    wall: Arc<dyn Wall>,
    tasks: Tasks,
    /// What its code may look at as long as it lives.
    slices: Vec<Slice>,
    /// Its right to a large disk.
    large: Option<OwnedSemaphorePermit>,
}

impl Hold {
    /// Takes responsibility for a sandbox.
    #[must_use]
    pub fn new(sandbox: SandboxId, wall: Arc<dyn Wall>, tasks: Tasks) -> Self {
        Self { sandbox, wall, tasks, slices: Vec::new(), large: None }
    }

    /// The sandbox's id.
    #[must_use]
    pub fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }

    /// Has slices stay where they are until the sandbox is destroyed, or known to be dead.
    pub fn keep(&mut self, slices: Vec<Slice>) {
        self.slices = slices;
    }

    /// Has its right to a large disk end with it.
    pub fn keep_large(&mut self, right: Option<OwnedSemaphorePermit>) {
        self.large = right;
    }

    /// Lets go of its slices: all of its processes are dead.
    pub fn is_dead(&mut self) {
        self.slices.clear();
    }

    /// The wall that made it.
    #[must_use]
    pub fn wall(&self) -> &Arc<dyn Wall> {
        &self.wall
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold({})", self.sandbox)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let wall = Arc::clone(&self.wall);
        let (sandbox, slices) = (self.sandbox.clone(), std::mem::take(&mut self.slices));
        let large = self.large.take();
        self.tasks.spawn(async move {
            match wall.destroy(&sandbox).await {
                Ok(()) => debug!(%sandbox, "sandbox destroyed"),
                Err(WallError::Jail(JailError::Lost)) => debug!(%sandbox, "sandbox gone with its jail"),
                Err(cause) => error!(%sandbox, cause = &cause as &dyn std::error::Error, "sandbox not destroyed"),
            }
            drop((slices, large));
        });
    }
}
