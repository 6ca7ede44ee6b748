//! What node and jail say to each other, and what the supervisor is told at its start.
//!
//! Transport: one `SOCK_SEQPACKET` pair, one JSON message per datagram of at most
//! [`MAX_JAIL_MESSAGE`](crate::limits::MAX_JAIL_MESSAGE) bytes, descriptors attached with `SCM_RIGHTS` in the order
//! that each variant documents. The node sends [`JailRequest`]s, the jail answers each with one [`JailReply`] of
//! the same `id`, in any order. The jail trusts no field: the server that sends them may have been taken over.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::{SandboxId, ShareTag, TemplateDigest};
use crate::limits::{LargeDisks, Limits};
use crate::path::SandboxPath;

/// Descriptors that the jail hands to the supervised server, by number.
pub mod server_fd {
    /// The `SOCK_SEQPACKET` to the jail.
    pub const JAIL: i32 = 3;
    /// The listening TCP socket, already bound.
    pub const LISTENER: i32 = 4;
    /// A sealed memfd with the server's own configuration (JSON, opaque to the jail).
    pub const CONFIG: i32 = 5;
}

/// Host uid and gid of the supervised server.
pub const SERVER_UID: u32 = 0x3fff_0001;
/// First host uid of the ranges for cages; each cage has 65,536 of them.
pub const CAGE_UID_BASE: u32 = 0x4000_0000;

/// Places in the root that the jail builds for the supervised server.
pub mod server_path {
    /// The data folder, owned by the server's uid.
    pub const DATA: &str = "/data";
    /// The server's binary.
    pub const BINARY: &str = "/bailey/bailey";
    /// The operator's folder of policies, if there is one.
    pub const POLICIES: &str = "/policies";
}

/// What `bailey-jail` is told at its start (JSON in an inherited, sealed memfd; its number is the only argument).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SupervisorConfig {
    /// Absolute path of the data folder; made if missing. The jail keeps `jail/` in it for itself (root only) and
    /// gives `serve/` to the server.
    pub data: PathBuf,
    /// Absolute path of the static guest binary.
    pub guest_binary: PathBuf,
    /// SHA-256 of the guest binary, hex, as the server was built with.
    pub guest_sha256: String,
    /// Templates that cages may start from.
    pub templates: Vec<TemplateImage>,
    /// Images with programs that isolate by themselves, and all that these need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<TemplateImage>,
    /// Room for sandboxes that write more than their memory holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_disks: Option<LargeDisks>,
    /// The server to run. `None`: attached to a caller that is root itself (`bailey doctor`, test suites), which
    /// holds the other end of descriptor [`server_fd::JAIL`]; the jail ends when that end closes.
    pub server: Option<ServerLaunch>,
}

/// How to start the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerLaunch {
    /// Address that the server listens on; the jail binds it.
    pub listen: SocketAddr,
    /// Absolute path of the server's binary.
    pub binary: PathBuf,
    /// Absolute path of the operator's folder of policies, which the server may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<PathBuf>,
    /// Arguments, without the binary's name.
    pub args: Vec<String>,
    /// Environment, complete.
    pub env: Vec<(String, String)>,
    /// The server's own configuration, handed on unread.
    pub config: serde_json::Value,
    /// Milliseconds that the server has to drain on shutdown before it is killed.
    pub drain_ms: u64,
}

/// A root file system on disk, of a template or of a program: an erofs image, root-owned, named by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateImage {
    /// SHA-256 of the image.
    pub digest: TemplateDigest,
    /// Absolute path of the image.
    pub image: PathBuf,
}

/// A message from node to jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailRequest {
    /// Chosen by the node, unique among its open requests.
    pub id: u64,
    /// What to do.
    pub op: JailOp,
}

/// The jail's whole interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum JailOp {
    /// Build a cage and start its agent; it knows no tenant. Answer: [`JailAnswer::Parked`] with two descriptors:
    /// the host's end of the agent's stream, and a pidfd of the cage's PID 1. A large disk ([`Limits::wants_large_disk`])
    /// has its size from here on: a claim may not change it.
    Park { sandbox: SandboxId, template: TemplateDigest, limits: Limits },
    /// Build a cage around a program that isolates by itself (a virtual machine monitor, a kernel in user space).
    /// Attached: the descriptors that the program finds from number 3 on, in order, at most
    /// [`MAX_PROGRAM_FDS`](crate::limits::MAX_PROGRAM_FDS); regular files, pipes and sockets of `AF_UNIX`. `command` is
    /// the program's absolute path in the image and its arguments. Answer: [`JailAnswer::Parked`] with one descriptor:
    /// a pidfd of the program. From then on the cage is like any other: a claim (without mounts) gives it its limits and
    /// its share, `Stop` kills it, `Destroy` removes it; `Collect` is refused.
    Launch { sandbox: SandboxId, image: TemplateDigest, profile: Profile, command: Vec<String>, limits: Limits },
    /// Give a parked cage its limits and its slices. All cages of one `share` have as much CPU time together as one of
    /// another, where there is not enough. Attached: for each mount, in order, a directory descriptor of its lower layer
    /// (`O_PATH`), owned by the server's uid (by root when attached). Answer: [`JailAnswer::Claimed`].
    Claim { sandbox: SandboxId, share: ShareTag, limits: Limits, mounts: Vec<CageMount> },
    /// Kill every process in the cage, PID 1 included, and wait until none is left. Answer: [`JailAnswer::Stopped`].
    Stop { sandbox: SandboxId },
    /// Tell what the kernel has counted for a claimed cage that goes on: what a machine's own guest cannot. Answer:
    /// [`JailAnswer::Counted`].
    Count { sandbox: SandboxId },
    /// After `Stop`: start a collector over one writable mount. Answer: [`JailAnswer::Collecting`] with one
    /// descriptor: the read end of the change stream ([`crate::change`]). [`JailAnswer::Unchanged`] without one where
    /// nothing was written.
    Collect { sandbox: SandboxId, mount: u32 },
    /// Remove everything left of the cage (kills it first if needed). Answer: [`JailAnswer::Destroyed`].
    Destroy { sandbox: SandboxId },
}

/// What a program that isolates by itself may do; see the jail's `cage::program`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// A virtual machine monitor: one process with threads.
    Vmm,
    /// A kernel in user space, which makes processes and namespaces of its own. Its standard input and output, which it
    /// hands on to what it runs, are the first descriptor.
    Sentry,
}

/// One slice to be mounted into a cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CageMount {
    /// Where it appears inside; made (in the cage's own writable layer) if missing.
    pub at: SandboxPath,
    /// Whether the code may write; writes go to the cage's own layer, never to the lower one.
    pub writable: bool,
}

/// A message from jail to node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailReply {
    /// The request's id.
    pub id: u64,
    /// What came of it.
    pub result: Result<JailAnswer, JailFault>,
}

/// A request that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum JailAnswer {
    /// The fences in effect, verified from outside.
    Parked { fences: Vec<String> },
    /// The mounts are in place and the limits in force.
    Claimed {},
    /// What the kernel counted.
    Stopped { facts: StopFacts },
    /// The same, while it goes on. Of its disk nothing is told.
    Counted { facts: StopFacts },
    /// The collector runs.
    Collecting {},
    /// There is nothing to collect.
    Unchanged {},
    /// Nothing is left.
    Destroyed {},
}

/// What the kernel counted over a cage's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopFacts {
    /// Processes that the kernel killed for memory.
    pub oom_kills: u64,
    /// Forks refused for the pids limit.
    pub pids_refused: u64,
    /// Whether the writable layer had no block left.
    pub disk_full: bool,
    /// Whether the writable layer had no inode left.
    pub files_full: bool,
    /// CPU time used, in microseconds.
    pub cpu_us: u64,
    /// Highest memory use, in bytes.
    pub memory_peak_bytes: u64,
}

/// A request that was refused or failed. Nothing of it is left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{step}: {message}")]
pub struct JailFault {
    /// What kind of failure it is.
    pub kind: JailFaultKind,
    /// The step that failed, such as `mount the root`.
    pub step: String,
    /// Details for the log; never shown to a tenant.
    pub message: String,
}

/// What the node can do about a [`JailFault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JailFaultKind {
    /// The request makes no sense (unknown sandbox, wrong state, bad mount point). Do not retry.
    Invalid,
    /// The host has no room (uid ranges, cgroups, memory). Retry later.
    Exhausted,
    /// A fence could not be built or was not as it should be. The cage is gone.
    Fence,
    /// Anything else. The cage is gone.
    Internal,
}
