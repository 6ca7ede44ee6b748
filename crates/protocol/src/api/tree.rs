//! Bodies of what changes a tree, and of what is told of a file's lines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Notice, VersionInfo};
use crate::id::VersionId;
use crate::path::{BranchName, Revision, TreePath};

/// Body of `PATCH /v1/tree/{path}`: changes within one file, all about the file as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreePatch {
    /// At most 16, none of which overlaps another.
    #[serde(default)]
    pub edits: Vec<TreeEdit>,
    /// Whether the file may be executed from now on; as it was without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<bool>,
}

/// One change within a file: what goes is told by its text or by its place, what comes by its text. Exactly one of
/// `old`, `old_base64` and `start`, and exactly one of `new` and `new_base64`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeEdit {
    /// Text that is in the file exactly once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The same as base64, for bytes that are no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_base64: Option<String>,
    /// The first byte that goes, counted from zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// With `start`: bytes that go; none without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// What comes instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// The same as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_base64: Option<String>,
}

/// Body of `POST /v1/tree-copy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyRequest {
    /// What is copied.
    pub from: TreePath,
    /// Where it goes, name included.
    pub to: TreePath,
    /// Branch that is written to; `main` without it.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<BranchName>,
    /// Branch or version that is read; the one that is written to without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ref: Option<Revision>,
    /// Takes it away where it was, in the same change.
    #[serde(default, rename = "move", skip_serializing_if = "std::ops::Not::not")]
    pub moves: bool,
}

/// Body of `POST /v1/tree-restore`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// What becomes again what it was.
    pub path: TreePath,
    /// When it was that.
    pub from_version: VersionId,
    /// Branch; `main` without it.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<BranchName>,
}

/// Body of `POST /v1/tree-revert`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertRequest {
    /// Below which the version's changes are taken back.
    pub path: TreePath,
    /// The version.
    pub version: VersionId,
    /// Branch; `main` without it.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<BranchName>,
}

/// Answer to `PUT /v1/tree/{path}?extract=`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExtractAnswer {
    /// The folder that the archive went to.
    pub path: TreePath,
    /// Where.
    pub branch: BranchName,
    /// The new version; the one before where nothing changed.
    pub version: VersionId,
    /// Files, links and folders of the archive.
    pub members: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// What is not in the version as it was in the archive. Paths are below the folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// Notices beyond those listed.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub more_notices: u64,
    /// What files are shaped like: a credential of which kind, and where. Never the content itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Answer to `GET /v1/tree-blame/{path}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blame {
    /// The file, below its store's root.
    pub path: String,
    /// The version that was read.
    pub version: VersionId,
    /// Lines in all.
    pub lines: u64,
    /// All lines in order, neighbours of one version together.
    pub spans: Vec<BlameSpan>,
    /// The versions that spans name.
    pub versions: Vec<VersionInfo>,
}

/// Lines that come from one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlameSpan {
    /// The first line, counted from one.
    pub first: u64,
    /// How many.
    pub lines: u64,
    /// Where they come from; absent where that is further back than one answer looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionId>,
}
