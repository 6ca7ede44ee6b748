//! What control and node say to each other: channels in one process, the same messages between machines.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{RunId, SandboxId, TemplateName, TenantId, TreeId};
use crate::jail::StopFacts;
use crate::limits::Limits;
use crate::path::{RepoId, SandboxPath};
use crate::wall::WallKind;

/// One run, as control orders it: every value in it came from a permit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The run.
    pub run: RunId,
    /// Whose run it is.
    pub tenant: TenantId,
    /// What isolates it.
    pub wall: WallKind,
    /// What it starts from.
    pub template: TemplateName,
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// Working folder; the user's home when absent.
    pub cwd: Option<SandboxPath>,
    /// Bytes of standard input, which is closed after them.
    pub stdin: Vec<u8>,
    /// Files that are there when the program starts, as its user's own. They are no part of a mount.
    #[serde(default)]
    pub files: Vec<SessionFile>,
    /// Whether `sudo` works inside.
    pub root: bool,
    /// Slices of the tree.
    pub mounts: Vec<SliceMount>,
    /// What it may use.
    pub limits: Limits,
}

/// A file that one run brings along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionFile {
    /// Where it is inside.
    pub at: SandboxPath,
    /// Its content.
    pub content: Bytes,
}

/// A subtree at a version, at a place inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceMount {
    /// The store.
    pub repo: RepoId,
    /// The folder's content.
    pub tree: TreeId,
    /// Where it appears.
    pub at: SandboxPath,
    /// Whether the code may change it; the changes come back as [`RunUpdate::Changes`].
    pub writable: bool,
}

/// What the node reports of a run, in this order: `Started`, any `Output`, one `Stopped`, then per writable mount in
/// order any `Changes` and one `ChangesEnd`, then `Done`. A run that was stopped before its program ran has no
/// `Started`. `Failed` may come instead of anything and is the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunUpdate {
    /// The sandbox is claimed and the program started.
    Started { started: RunStarted },
    /// Bytes that the program wrote, at most 32 KiB.
    Output { stream: OutputStream, data: Bytes },
    /// Everything in the sandbox is dead.
    Stopped { stopped: RunStopped },
    /// Bytes of the change stream of the mount with this index in [`RunSpec::mounts`].
    Changes { mount: u32, data: Bytes },
    /// The change stream of that mount is over (its own end record says whether it is whole).
    ChangesEnd { mount: u32 },
    /// Nothing more comes; tear-down goes on behind.
    Done,
    /// The run could not be carried out.
    Failed { fault: NodeFault },
}

/// Facts about a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStarted {
    /// The sandbox that serves the run, and no other ever.
    pub sandbox: SandboxId,
    /// What isolates it.
    pub wall: WallKind,
    /// Whether the hardware helps; `None` where the wall has no machine to accelerate.
    pub accelerated: Option<bool>,
    /// Whether a parked sandbox was claimed.
    pub parked: bool,
    /// Fences in effect.
    pub fences: Vec<String>,
}

/// Which of a program's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStopped {
    /// The one reason.
    pub ending: Ending,
    /// Limits that the code ran into, ended by them or not.
    pub limits_hit: Vec<LimitHit>,
    /// Bytes of stdout and stderr that the code wrote and nobody kept.
    pub output_dropped: u64,
    /// What the kernel counted.
    pub facts: StopFacts,
    /// From claim to the last process's death, in milliseconds.
    pub wall_ms: u64,
}

/// Why a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Ending {
    /// The program ended by itself.
    Exited { code: i32 },
    /// A signal ended the program.
    Signaled { signal: i32 },
    /// The wall time was up.
    Timeout,
    /// The memory limit was reached; everything was killed.
    Oom,
    /// The output limit was reached; everything was killed.
    OutputLimit,
    /// The caller asked for it.
    Cancelled,
    /// The guest agent died or broke the protocol.
    GuestLost,
    /// The server or the node went away while the run was going.
    NodeRestarted,
}

/// A limit that the kernel answered with an error number, or that ended the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitHit {
    /// The writable layer had no room for another byte.
    Disk,
    /// The writable layer had no room for another file, folder or link.
    Files,
    /// A fork was refused.
    Pids,
    /// The kernel killed a process for memory.
    Memory,
    /// The output limit.
    Output,
    /// The wall time.
    Timeout,
}

/// Why a run could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{message}")]
pub struct NodeFault {
    /// What the caller can do.
    pub kind: NodeFaultKind,
    /// For the caller: no host path, no cause.
    pub message: String,
}

/// Kinds of [`NodeFault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeFaultKind {
    /// The spec cannot be carried out here (unknown wall or template, program not found, bad mount point).
    Invalid,
    /// No room now; retry later.
    Exhausted,
    /// The node is shutting down or has lost its jail.
    Unavailable,
    /// A fence could not be built, or something broke.
    Internal,
}
