//! What tenants may keep, which versions are kept no more, and purges.
//!
//! Beside what permits open, this has what the server does by itself for every store: it names stores, and gets to see
//! no content.

use bailey_policy::{OperatorPermit, Principal, PurgePermit};
use bailey_protocol::id::{TenantId, VersionId};
use bailey_protocol::path::{BranchName, RepoId};
use bailey_protocol::purge::{PurgeId, PurgeReceipt};
use bailey_protocol::quota::TenantQuota;

use super::{AuditEntry, DbError, DbFuture};

/// Most versions that a receipt names.
pub(super) const MAX_BECAME: usize = 1000;

/// Why a version is kept no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// The purge that it fell to; without one it was too old.
    pub purge: Option<PurgeId>,
    /// What the purge made of it.
    pub became: Option<VersionId>,
}

/// A purge to be recorded.
#[derive(Debug, Clone)]
pub struct NewPurge {
    /// Which.
    pub id: PurgeId,
    /// Hash of the path, as in the receipt.
    pub path_sha256: String,
    /// Hash of the user, as in the receipt.
    pub asked_by_sha256: String,
    /// Now.
    pub asked_ms: u64,
    /// Where each branch is, and where it goes. All of them, or nothing happens.
    pub moves: Vec<(BranchName, VersionId, VersionId)>,
    /// How many versions became others: those of [`UsageDb::stage_purge`].
    pub versions: usize,
    /// Rows of the audit that are known to be about the path.
    pub audited: Audited,
    /// For the audit, which forgets the path as it is recorded.
    pub receipt: AuditEntry,
}

/// Rows of the audit that are about a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// Their numbers.
    pub rows: Vec<u64>,
    /// Rows from here on were not looked at.
    pub from: u64,
    /// Whether there are such.
    pub more: bool,
}

/// A purge whose bytes may still lie on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPurge {
    /// Which.
    pub id: PurgeId,
    /// Of which store.
    pub repo: RepoId,
    /// The versions that have to be gone.
    pub versions: Vec<VersionId>,
}

/// The part of [`super::Db`] about storage.
pub trait UsageDb {
    /// What single tenants may keep, for those for which something else than the usual is set.
    fn quotas(&self) -> DbFuture<'_, Vec<(TenantId, TenantQuota)>>;

    /// Sets what the permit's tenant may keep; `None` for the usual.
    fn set_quota<'a>(&'a self, permit: &'a OperatorPermit, quota: Option<TenantQuota>) -> DbFuture<'a, ()>;

    /// Every branch of a store, for upkeep.
    fn branches_of<'a>(&'a self, repo: &'a RepoId) -> DbFuture<'a, Vec<(BranchName, VersionId)>>;

    /// Removes a side branch that is at `head`; `false` when it is elsewhere by now.
    fn drop_side_branch<'a>(
        &'a self,
        repo: &'a RepoId,
        branch: &'a BranchName,
        head: &'a VersionId,
    ) -> DbFuture<'a, bool>;

    /// Remembers versions that are too old to be kept.
    fn expire_versions<'a>(&'a self, repo: &'a RepoId, versions: Vec<VersionId>) -> DbFuture<'a, ()>;

    /// Why a version is kept no more, if it was kept once.
    fn gone<'a>(&'a self, repo: &'a RepoId, version: &'a VersionId) -> DbFuture<'a, Option<Gone>>;

    /// Notes what versions became, for a purge that begins afterwards: before, it says nothing to anybody.
    fn stage_purge<'a>(
        &'a self,
        permit: &'a PurgePermit,
        id: &'a PurgeId,
        became: Vec<(VersionId, VersionId)>,
    ) -> DbFuture<'a, ()>;

    /// Forgets what was noted for purges that never began.
    fn forget_staged(&self) -> DbFuture<'_, ()>;

    /// Some rows of the audit, from number `from` on, that are about the permit's path or what is below it.
    fn audited<'a>(&'a self, permit: &'a PurgePermit, from: u64) -> DbFuture<'a, Audited>;

    /// Moves all branches of the permit's store, records the purge, and forgets the path and what is below it: its
    /// labels, what rows of the audit say about it, requests kept for dry runs that name it. All of it, or nothing.
    /// [`DbError::RefMoved`] when a branch is not where it is said to be, or there is another.
    fn begin_purge<'a>(&'a self, permit: &'a PurgePermit, purge: NewPurge) -> DbFuture<'a, ()>;

    /// Purges that are not done.
    fn pending_purges(&self) -> DbFuture<'_, Vec<PendingPurge>>;

    /// Rids the files of what was deleted or overwritten before. [`DbError::Busy`] while somebody still reads it.
    fn scrub(&self) -> DbFuture<'_, ()>;

    /// The bytes are off the disk.
    fn finish_purge<'a>(&'a self, id: &'a PurgeId, now_ms: u64) -> DbFuture<'a, ()>;

    /// A purge of the principal's tenant; `None` for another tenant's exactly as for none.
    fn purge<'a>(&'a self, principal: &'a Principal, id: &'a PurgeId) -> DbFuture<'a, Option<PurgeReceipt>>;
}

impl NewPurge {
    /// Which store, as the permit says.
    pub(crate) fn repo(permit: &PurgePermit) -> Result<RepoId, DbError> {
        let scope = permit
            .scope()
            .map_err(|foreign| DbError::Storage { operation: "purge a path", source: std::sync::Arc::new(foreign) })?;
        Ok(scope.repo().clone())
    }
}
