//! How much a tenant may keep, and how much it does.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::TenantId;

/// What a tenant may keep, all its stores together, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantQuota {
    /// Bytes on disk, over all versions; equal content of one store counts once.
    pub bytes: u64,
    /// Files, folders and versions that are stored; those with equal content in one store count once.
    pub files: u64,
    /// Bytes of the largest file.
    pub file_bytes: u64,
    /// Versions of each branch that are kept, newest first.
    pub versions: u64,
    /// Days after which a version is not kept any more unless it is the newest of a branch; zero for no limit.
    pub version_days: u64,
    /// Days after which a branch below `runs/` is removed.
    pub side_branch_days: u64,
}

impl Default for TenantQuota {
    fn default() -> Self {
        Self {
            bytes: 100 << 30,
            files: 10_000_000,
            file_bytes: 16 << 30,
            versions: 100_000,
            version_days: 0,
            side_branch_days: 30,
        }
    }
}

impl TenantQuota {
    /// No limit but those of numbers.
    pub const UNLIMITED: Self = Self {
        bytes: u64::MAX,
        files: u64::MAX,
        file_bytes: u64::MAX,
        versions: u64::MAX,
        version_days: 0,
        side_branch_days: 30,
    };

    /// That a tenant with this quota can have a tree at all: no version could be kept below one, and no side branch
    /// could be looked at below a day.
    ///
    /// # Errors
    /// What is wrong, for a person.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Self { versions: 0, .. } => Err("`versions` must be at least 1"),
            Self { side_branch_days: 0, .. } => Err("`side_branch_days` must be at least 1"),
            Self { .. } => Ok(()),
        }
    }
}

/// What a tenant keeps, all its stores together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantUsage {
    /// Bytes on disk, those that are being written included.
    pub bytes: u64,
    /// Files, folders and versions.
    pub files: u64,
}

/// Which quota was in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaKind {
    /// [`TenantQuota::bytes`].
    Bytes,
    /// [`TenantQuota::files`].
    Files,
    /// [`TenantQuota::file_bytes`].
    FileBytes,
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Files => "files",
            Self::FileBytes => "file_bytes",
        })
    }
}

/// Answer of `GET /v1/tenant` and of the operator's `GET /v1/operator/tenants/{tenant}/quota`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantStorage {
    /// Whose.
    pub tenant: TenantId,
    /// What it may keep.
    pub quota: TenantQuota,
    /// What it keeps now.
    pub usage: TenantUsage,
    /// Whether anybody of it was ever seen. A quota can be set before; of a name that is misspelt nobody will be.
    pub known: bool,
}

/// Answer of `POST /v1/operator/tenants/{tenant}/gc`: what one cycle over all stores of the tenant did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GcSummary {
    /// Stores that were looked at.
    pub stores: u64,
    /// Objects that something leads to.
    pub live: u64,
    /// Objects that the next cycle may remove.
    pub condemned: u64,
    /// Objects that were removed.
    pub removed: u64,
    /// Bytes that became free.
    pub freed_bytes: u64,
    /// Versions that went beyond what is kept.
    pub expired: u64,
    /// Stores in which somebody is still at work with what an earlier cycle condemned.
    pub held: u64,
}
