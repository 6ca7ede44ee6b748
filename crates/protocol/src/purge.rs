//! Taking a path out of all history, and the receipt for it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{IdError, VersionId, is_sortable, sortable, string_newtype};
use crate::path::TreePath;

string_newtype!(
    /// One purge: `purge_` and 26 Crockford base-32 digits, sortable by creation.
    PurgeId, "purge id", "use `purge_` followed by 26 lower-case base-32 digits",
    |s| s.strip_prefix("purge_").is_some_and(is_sortable)
);

impl PurgeId {
    /// Makes an id from a time in milliseconds since 1970 and 80 fresh random bits.
    #[must_use]
    pub fn mint(now_ms: u64, random: [u8; 10]) -> Self {
        Self(format!("purge_{}", sortable(now_ms, random)))
    }
}

/// Body of `POST /v1/purges`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeRequest {
    /// A file or folder below the root of a store.
    pub path: TreePath,
}

/// How far a purge is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PurgeState {
    /// No branch leads to it any more and its versions are refused; its bytes go once those at work with them are done.
    Removing,
    /// Its bytes are off the disk.
    Done,
}

/// What was purged, when and by whom. It names neither the path nor the user: both are hashed with a salt that nobody can
/// guess. It is told once, to who asked for the purge, and kept nowhere: with it one can show what the receipt is about,
/// without it nobody can find that out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PurgeReceipt {
    /// Which.
    pub id: PurgeId,
    /// The root of its store.
    pub store: TreePath,
    /// SHA-256 of the salt as it is told, a line end, and the path.
    pub path_sha256: String,
    /// SHA-256 of the salt as it is told, a line end, and the user's id.
    pub asked_by_sha256: String,
    /// 16 random bytes in hexadecimal; in the answer to the request for the purge alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    /// Milliseconds since 1970.
    pub asked_ms: u64,
    /// When the bytes were gone; milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_ms: Option<u64>,
    /// How far it is.
    pub state: PurgeState,
    /// How many versions changed their id.
    pub versions: u64,
    /// Which became which; at most 1,000.
    pub became: Vec<Became>,
}

/// A version that had the path, or grew from one that did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Became {
    /// Answers 410 from then on.
    pub old: VersionId,
    /// The same without the path.
    pub new: VersionId,
}
