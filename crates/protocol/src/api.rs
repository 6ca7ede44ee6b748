//! Bodies of the native HTTP API, as they cross the wire.
//!
//! Requests refuse unknown fields: a mis-spelled safety field must never be ignored.

mod branches;
pub mod identity;
pub mod policy;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::NoticeReason;
use crate::id::{RequestId, RunId, SandboxId, TemplateName, VersionId};
use crate::label::Label;
use crate::node::{Ending, LimitHit};
use crate::path::{BranchName, SandboxPath, TreePath};
use crate::purge::PurgeId;
use crate::wall::{CodeFacts, WallChoice, WallKind, WallReason};

pub use branches::{
    BaselineInfo, BaselineList, BranchInfo, BranchList, ForkRequest, ForkSource, LabelRequest, LabelledPath,
    PathLabels, Promoted, PromotionOutcome, PromotionRequest, Protection, ProtectionList, ShareMode, TreeToken,
    TreeTokenList, TreeTokenMade, TreeTokenRequest,
};
pub use tree::{Blame, BlameSpan, CopyRequest, ExtractAnswer, RestoreRequest, RevertRequest, TreeEdit, TreePatch};

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The HTTP status as a number.
    pub code: u16,
    /// Stable, for programs.
    pub error: String,
    /// What happened, for people.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// For the operator's log.
    pub request_id: RequestId,
    /// The operation that was asked for, by its id in the API's document; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Operations that the hint names, by their ids in the API's document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub see: Vec<String>,
    /// For a version that was purged: what it went with. Its receipt says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge: Option<PurgeId>,
    /// For a denial: the policies that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// For a conflict: the paths that both sides changed, each as a whole; at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// The last line of a stream that breaks off because the right to it is over. As a server-sent event it is the data of
/// one named `cut_off`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CutOff {
    /// Why.
    pub cut_off: ErrorBody,
}

/// Body of `POST /v1/runs`. Exactly one of `command` and `code`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunRequest {
    /// What isolates it; `auto` when absent.
    pub wall: WallChoice,
    /// What is known about the code, for `auto` to choose by. Its language and size are the request's where they are not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<CodeFacts>,
    /// What it starts from; `base` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateName>,
    /// Program and arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// A program's text, at most 100 KiB, with `language`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What `code` is written in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// Slices of the tree.
    pub mounts: Vec<MountRequest>,
    /// What it may use; each absent field is the server's default.
    pub limits: LimitsRequest,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// Working folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<SandboxPath>,
    /// Standard input as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Files for this run alone, by where they are inside: below `/home/user`, `/tmp`, `/var/tmp`, `/opt`, `/srv` or
    /// `/mnt`, and not in a mount. They never enter the tree. At most 64, and 1 MiB together.
    pub files: BTreeMap<SandboxPath, FileInput>,
    /// Whether the code may use `sudo` inside its sandbox.
    pub root: bool,
    /// Answer at once with the run's id instead of its events.
    pub detach: bool,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileInput {
    /// As text.
    Text(String),
    /// As standard base64.
    Base64(String),
}

/// Languages of `code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// `python3 -c`.
    Python,
    /// `node -e`.
    Javascript,
    /// `bash -c`.
    Bash,
}

/// One slice that a run asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MountRequest {
    /// The folder in the tree.
    pub path: TreePath,
    /// Where it appears inside: such as `/data`, `/work`, `/mnt/NAME` or `/home/user/NAME`; not over the system's folders.
    pub at: SandboxPath,
    /// Whether changes are refused instead of becoming a version.
    #[serde(default)]
    pub read_only: bool,
    /// Branch to read and to commit to; `main` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchName>,
}

/// Limits that a run asks for. Units as in [`crate::limits::Limits`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsRequest {
    /// Thousandths of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Bytes. More than three quarters of the memory take a disk that the operator has set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Files, folders and links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_inodes: Option<u64>,
    /// Per process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
}

/// One line of a run's event stream (NDJSON), or the `data` of one server-sent event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunEvent {
    /// 1, 2, 3…: where to go on after a lost connection.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: RunEventKind,
}

/// What happened in a run. `ended` or `failed` is the last; a stream without one is broken, never a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum RunEventKind {
    /// The program runs.
    Started {
        /// The run.
        run: RunId,
        /// The sandbox that serves it.
        sandbox: SandboxId,
        /// What isolates it.
        wall: WallKind,
        /// Who chose that wall.
        reason: WallReason,
        /// Why that one, for people.
        #[serde(default)]
        why: String,
        /// Whether hardware helps, where that means something.
        accelerated: Option<bool>,
        /// Whether a parked sandbox was claimed.
        parked: bool,
        /// Fences in effect.
        fences: Vec<String>,
    },
    /// The program wrote to standard output.
    Stdout(OutputData),
    /// The program wrote to standard error.
    Stderr(OutputData),
    /// Everything is dead and committed.
    Ended(RunResult),
    /// The run could not be carried out.
    Failed {
        /// Stable, for programs.
        error: String,
        /// For people.
        message: String,
        /// What to do next.
        hint: String,
    },
}

impl RunEventKind {
    /// Whether nothing comes after it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        match self {
            Self::Ended(_) | Self::Failed { .. } => true,
            Self::Started { .. } | Self::Stdout(_) | Self::Stderr(_) => false,
        }
    }
}

/// Bytes of output: as text where they are valid UTF-8 of few control characters, else as base64. Exactly one is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputData {
    /// The bytes as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes as standard base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// How a run ended and what it left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// The one reason.
    pub ending: Ending,
    /// Why it was cancelled, where policy did that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// Limits that the code ran into.
    pub limits_hit: Vec<LimitHit>,
    /// Bytes of output that the code wrote and nobody kept.
    pub output_dropped: u64,
    /// One per writable mount that changed.
    pub versions: Vec<NewVersion>,
    /// What a tree cannot hold and therefore dropped.
    pub notices: Vec<Notice>,
    /// Notices beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_notices: u64,
    /// What it used.
    pub usage: Usage,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A version that a run made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewVersion {
    /// The mounted folder.
    pub path: TreePath,
    /// Where the version is.
    pub branch: BranchName,
    /// Its id.
    pub version: VersionId,
    /// `committed`, `merged` (the branch had moved, no path overlapped), or `side_branch` (kept apart, with the reason).
    pub outcome: CommitOutcome,
    /// For a side branch: why the work is not on the branch that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Paths that overlapped, or that policy denies: at most 100 of them and 16 KiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Labels of what the run could read, which what it changed has now, too.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Label>,
}

/// How a commit landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommitOutcome {
    /// On the branch, which had not moved.
    Committed,
    /// On the branch, which had moved without touching the same paths.
    Merged,
    /// On `runs/{run}`.
    SideBranch,
}

/// Something that is not in the new version as the code left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notice {
    /// Path below the mount's tree path, as it is written in listings.
    pub path: String,
    /// Why.
    pub reason: NoticeReason,
    /// What else is to be said, such as which rule found it and where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What a run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// From claim to the last process's death.
    pub wall_ms: u64,
    /// CPU time.
    pub cpu_us: u64,
    /// Highest memory use.
    pub memory_peak_bytes: u64,
}

/// A run as listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// Who asked for it.
    pub user: String,
    /// Program and arguments, cut to 200 bytes.
    pub command: String,
    /// `running`, `ended` or `failed`.
    pub status: RunStatus,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// When ended: how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
}

/// Where a run is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Accepted; not over.
    Running,
    /// Over, with an ending.
    Ended,
    /// Could not be carried out.
    Failed,
}

/// Answer to `POST /v1/runs` with `detach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunAccepted {
    /// The run.
    pub run: RunId,
}

/// Answer to `GET /v1/runs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunList {
    /// Newest first.
    pub runs: Vec<RunSummary>,
    /// Send as `after` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RunId>,
}

/// What an entry of a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A regular file that may be executed.
    Executable,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeEntry {
    /// Its name. A byte that is no UTF-8 is the character U+10FF00 plus that byte, which a path takes back as it is.
    pub name: String,
    /// Present where `name` has such a character: the name's bytes as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<String>,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes, for files and links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Git object id: equal content, equal id. Left out of a folder where policy may hide something of what is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Answer to `GET /v1/tree/{path}` on a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeListing {
    /// The folder.
    pub path: TreePath,
    /// The version that was read; absent while the tree has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionId>,
    /// In git's order, each folder before what is in it. Names are paths below the folder.
    pub entries: Vec<TreeEntry>,
    /// Send as `after` to go on: there may be more. A page may be empty and not the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Answer to a write or delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WriteAnswer {
    /// The path that changed.
    pub path: TreePath,
    /// Where.
    pub branch: BranchName,
    /// The new version.
    pub version: VersionId,
    /// What the content is shaped like: a credential of which kind, and where. Never the content itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One version in a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionInfo {
    /// Its id.
    pub version: VersionId,
    /// What it grew from.
    pub parents: Vec<VersionId>,
    /// Who made it (user id).
    pub author: String,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Why, in one line.
    pub message: String,
    /// The run that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

/// Answer to `GET /v1/tree-history/{path}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Newest first.
    pub versions: Vec<VersionInfo>,
    /// Send as `after` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<VersionId>,
}

/// Answer to `GET /v1/tree-diff/{path}?from=&to=`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// The older side; absent for the empty tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<VersionId>,
    /// The newer side.
    pub to: VersionId,
    /// In path order.
    pub changes: Vec<DiffEntry>,
    /// Whether more changes exist than are listed.
    pub truncated: bool,
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffEntry {
    /// Path below the one asked for, as it is written in listings.
    pub path: String,
    /// What happened to it.
    pub change: DiffChange,
    /// Bytes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_size: Option<u64>,
    /// Bytes after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_size: Option<u64>,
    /// For text of at most 256 KiB: a unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unified: Option<String>,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffChange {
    /// New.
    Added,
    /// Other content, kind or executable bit.
    Modified,
    /// Gone.
    Deleted,
}
