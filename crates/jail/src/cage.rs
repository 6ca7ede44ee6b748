//! A cage and its life.
//!
//! ```text
//!              Park                 Claim              Stop                 Collect
//!  (none) ──────────▶ Building ─▶ Parked ──▶ Claimed ──────▶ Stopping ─▶ Stopped ─┐
//!                        │           │          │               │           ▲ └───┘
//!                        │           └──────────┴── PID 1 died ─┘           │
//!                        │                      └─────────────▶ Stopping ───┘
//!                        ▼ failed, or Destroy at any time
//!                     Removing ──▶ (none)
//! ```
//!
//! The supervisor's loop owns all cages; everything here is synchronous and short. What takes time (a process that
//! builds its root or dies) is waited for by the loop, through descriptors.

pub(crate) mod claim;
pub(crate) mod collect;
pub(crate) mod disk;
pub(crate) mod enter;
pub(crate) mod facts;
pub(crate) mod filter;
pub(crate) mod layers;
pub(crate) mod park;
pub(crate) mod posture;
pub(crate) mod program;
pub(crate) mod timens;
pub(crate) mod userns;

use std::os::fd::OwnedFd;

use bailey_protocol::id::{SandboxId, ShareTag};
use bailey_protocol::jail::StopFacts;
use bailey_sys::process::Child;

use crate::cgroup::group::Group;
use crate::uids::Base;
use claim::Slice;
use disk::Disk;
use facts::Facts;
use program::Running;

/// Where a cage is in its life.
#[derive(Debug)]
pub(crate) enum Phase {
    /// PID 1 builds its root. Holds the `Park` or `Launch` request, the jail's end of the pair, the host's end of the
    /// guest's stream if it becomes one.
    Building { request: u64, report: OwnedFd, stream: Option<OwnedFd> },
    /// Waiting for a tenant.
    Parked,
    /// Runs a tenant's code.
    Claimed,
    /// Being killed. Holds the `Stop` requests to answer.
    Stopping { requests: Vec<u64> },
    /// Dead, and what the kernel counted.
    Stopped { facts: StopFacts },
    /// Being killed and removed. Holds the `Destroy` requests to answer.
    Removing { requests: Vec<u64> },
}

/// A cage.
#[derive(Debug)]
pub(crate) struct Cage {
    /// Its name.
    pub(crate) sandbox: SandboxId,
    /// Where it is in its life.
    pub(crate) phase: Phase,
    /// What is in it, unless that is the guest.
    pub(crate) program: Option<Running>,
    /// Whose CPU time it takes, once it was claimed.
    pub(crate) share: Option<ShareTag>,
    /// Its host uids.
    pub(crate) base: Base,
    /// Its cgroups and the limits in force.
    pub(crate) group: Group,
    /// PID 1, until it has been waited for.
    pub(crate) init: Option<Child>,
    /// Collectors that have not been waited for, by mount.
    pub(crate) collectors: Vec<(usize, Child)>,
    /// Told by a v1 kernel when the cage ran out of memory.
    pub(crate) oom: Option<OwnedFd>,
    /// Whether it did.
    pub(crate) ran_out_of_memory: bool,
    /// Processors that it was given; none for all.
    pub(crate) processors: Vec<usize>,
    /// Descriptors that keep its file systems and namespaces.
    pub(crate) parts: Parts,
}

/// What keeps a cage's file systems and namespaces alive on the jail's side.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The disk of all writable layers.
    pub(crate) disk: Disk,
    /// What its `/proc` says of the machine.
    pub(crate) facts: Facts,
    /// An empty folder of it.
    pub(crate) empty: OwnedFd,
    /// Its root, to resolve mount points in.
    pub(crate) root: OwnedFd,
    /// Its user namespace.
    pub(crate) userns: OwnedFd,
    /// Maps owners on disk to the cage's user; nothing where no slice can be.
    pub(crate) slice_userns: Option<OwnedFd>,
    /// Its mount namespace, while PID 1 lives.
    pub(crate) mounts: Option<OwnedFd>,
    /// Its slices, in the order of the claim.
    pub(crate) slices: Vec<Slice>,
}

impl Cage {
    /// Whether a process of the cage has not been waited for.
    pub(crate) fn has_children(&self) -> bool {
        self.init.is_some() || !self.collectors.is_empty()
    }
}
