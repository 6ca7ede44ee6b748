//! What control asks of a node for the git protocol: stock git over one bare repository, in a cage of its own.
//!
//! Bytes go in and out as they come; neither side keeps more than a few pieces. What comes out was made next to a
//! client's bytes and is as hostile as those.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{TemplateName, TenantId, VersionId};
use crate::limits::Limits;
use crate::node::{Ending, NodeFault};
use crate::path::RepoId;
use crate::wall::WallKind;

/// Where the repository appears inside the cage, read-only.
pub const REPO_PATH: &str = "/repo";

/// One exchange, as control orders it: every value in it came from a permit or was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitSpec {
    /// Whose it is.
    pub tenant: TenantId,
    /// The repository.
    pub repo: RepoId,
    /// What isolates git.
    pub wall: WallKind,
    /// What has git in it.
    pub template: TemplateName,
    /// What git does.
    pub job: GitJob,
    /// What it may use.
    pub limits: Limits,
}

/// What git does with its input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GitJob {
    /// Input: the body of a `git-upload-pack` request. Output: the body of the answer.
    UploadPack {
        /// As the client's `Git-Protocol` header asks.
        protocol: GitProtocol,
    },
    /// Input: a pack as a client sends it. Output: a pack without deltas of the objects that `tips` need and no branch
    /// of the repository has.
    Unpack {
        /// What the branches are to become.
        tips: Vec<VersionId>,
        /// Largest input.
        max_bytes: u64,
    },
}

/// Versions of the protocol's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitProtocol {
    /// The first.
    V0,
    /// The first, with a line that says so.
    V1,
    /// Commands.
    V2,
}

/// What the node reports: any `Output`, then `Ended`. `Failed` may come instead of anything and is the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitUpdate {
    /// Bytes for the client or for the tree, at most 32 KiB.
    Output { data: Bytes },
    /// Git is over; its sandbox is being destroyed.
    Ended {
        /// How.
        ending: Ending,
        /// The last that it said on its standard error, at most [`MAX_SAID`] bytes.
        said: Bytes,
    },
    /// It could not be carried out.
    Failed { fault: NodeFault },
}

/// Most bytes of git's own words.
pub const MAX_SAID: usize = 4096;
