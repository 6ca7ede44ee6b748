//! What control remembers: runs, idempotency keys, refs, the audit.
//!
//! What a method has answered is on disk. Tenant-scoped methods take a permit (or a scope opened from one), so a
//! missing check does not compile, and no method can name another tenant. To support another database, write
//! `db/NAME.rs` and run the suite in `db/contract.rs` on it.
//!
//! CANCEL: a dropped future may still have its effect; nothing is ever half done.

mod audit;
mod identity;
mod policy;
mod refs;
mod runs;
mod sqlite;
mod tenants;
mod tree_meta;
mod usage;

#[cfg(test)]
mod contract;

use std::fmt;
use std::pin::Pin;

use bailey_policy::{Principal, RunCreatePermit, RunFacts, RunListPermit, RunReadPermit, StoreScope};
use bailey_protocol::id::{RunId, TenantId, VersionId};
use bailey_protocol::path::BranchName;

pub use crate::standing::Rights;
pub use audit::{
    AuditAsk, AuditDb, AuditDecision, AuditEntry, AuditFilter, AuditFrom, AuditHead, AuditPiece, AuditScope,
    AuditWindow,
};
pub use identity::{
    Disabled, FORGOTTEN, ForgetScope, ForgottenNames, IdentityDb, KeyGrants, KeyHash, KeyRecord, MAX_IDENTITY_PAGE,
    MAX_KEYS_PER_TENANT, MAX_UNSEEN_DISABLED, NewKey, StandingRows, SubjectKnown, SubjectRecord, SubjectSeen,
    TenantRecord, UserForgotten,
};
pub use policy::{DECISION_MS, DecisionSeen, MAX_DECISIONS, MAX_DECISIONS_PER_TENANT, PolicyDb};
pub use refs::RefMove;
pub use runs::{
    Idempotency, IdempotencyKey, IdempotencyKeyError, NewRun, RunCreated, RunEnd, RunFailure, RunRecord, SpecSummary,
};
pub use sqlite::{Sqlite, tenant_policies, verify_audit};
pub use tenants::TenantDb;
pub(crate) use tree_meta::MAX_LABELLED;
pub use tree_meta::{
    BaselineRow, LabelRow, ProtectionRow, ShareGrants, TokenScope, TreeDb, TreeMetaRows, TreeTokenRow, TreeTokensHeld,
};
pub use usage::{Audited, Gone, NewPurge, PendingPurge, UsageDb};

/// What every method gives.
pub type DbFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, DbError>> + Send + 'a>>;

/// How long an idempotency key is remembered, in milliseconds.
pub const IDEMPOTENCY_MS: u64 = 24 * 3600 * 1000;
/// Most runs of one page.
pub const MAX_PAGE: u32 = 200;

/// A database.
pub trait Db: AuditDb + IdentityDb + PolicyDb + TenantDb + TreeDb + UsageDb + fmt::Debug + Send + Sync {
    /// Records a run as running, and what was decided about it. With an idempotency key that was used before by this user: answers the first run,
    /// or [`DbError::IdempotencyConflict`] when the request was another.
    fn create_run<'a>(&'a self, permit: &'a RunCreatePermit, run: NewRun) -> DbFuture<'a, RunCreated>;

    /// The run that the same request of this user made before, as [`Db::create_run`] would find it.
    fn earlier_run<'a>(
        &'a self,
        permit: &'a RunCreatePermit,
        idempotency: &'a Idempotency,
        now_ms: u64,
    ) -> DbFuture<'a, Option<RunId>>;

    /// Records how a running run of the permit's user ended, on the audit as well, and moves refs as [`Db::move_refs`] does:
    /// all of it or none.
    /// [`DbError::RunOver`] when it is over already.
    fn end_run<'a>(
        &'a self,
        permit: &'a RunCreatePermit,
        run: &'a RunId,
        end: RunEnd,
        moves: Vec<RefMove>,
        now_ms: u64,
    ) -> DbFuture<'a, ()>;

    /// What a decision about a run needs to know. `None` for another tenant's run exactly as for no run.
    fn run_facts<'a>(&'a self, principal: &'a Principal, run: &'a RunId) -> DbFuture<'a, Option<RunFacts>>;

    /// The run that was decided on.
    fn run<'a>(&'a self, permit: &'a RunReadPermit) -> DbFuture<'a, Option<RunRecord>>;

    /// The user's runs, newest first, at most `limit` (and [`MAX_PAGE`]), older than `after`.
    fn runs<'a>(
        &'a self,
        permit: &'a RunListPermit,
        limit: u32,
        after: Option<&'a RunId>,
    ) -> DbFuture<'a, Vec<RunRecord>>;

    /// At start: ends every run that an earlier life of this server left running with `node_restarted`, and says
    /// which they were, so that their events get their ending too.
    fn abandon_running(&self, now_ms: u64) -> DbFuture<'_, Vec<(TenantId, RunId)>>;

    /// The version that the scope's revision names: a branch's head (`None` while it has none), or the version itself,
    /// of which the store has to say whether it holds it.
    fn resolve<'a>(&'a self, scope: &'a StoreScope) -> DbFuture<'a, Option<VersionId>>;

    /// Every branch of the scope's store, in name order.
    fn heads<'a>(&'a self, scope: &'a StoreScope) -> DbFuture<'a, Vec<(BranchName, VersionId)>>;

    /// Moves refs by compare-and-swap: all of them, in order, or none ([`DbError::RefMoved`] names the first that was
    /// not where expected).
    fn move_refs(&self, moves: Vec<RefMove>) -> DbFuture<'_, ()>;
}

/// Why the database did not do it. Nothing changed, unless the variant says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DbError {
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyConflict,
    /// A ref is not where the caller expected it.
    #[error("branch `{branch}` has moved")]
    RefMoved {
        /// The branch.
        branch: BranchName,
        /// Where it is now.
        head: Option<VersionId>,
    },
    /// The branch is protected, and the move no promotion.
    #[error("branch `{branch}` is protected")]
    Protected {
        /// The branch.
        branch: BranchName,
    },
    /// Of two branches one would be a folder of the other, for git.
    #[error("branch `{branch}` cannot be beside `{by}`")]
    BranchTaken {
        /// The one that was to be made.
        branch: BranchName,
        /// The one that is there.
        by: BranchName,
    },
    /// There are as many as there may be.
    #[error("there are {most} {what} already")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: u32,
    },
    /// A permit's path lies in a store that is not the principal's.
    #[error("`{path}` is in a store of somebody else")]
    Foreign {
        /// The path.
        path: String,
    },
    /// The version was taken out of history.
    #[error("version `{version}` was purged")]
    Purged {
        /// The version.
        version: VersionId,
    },
    /// The run is not running.
    #[error("run `{run}` is not running")]
    RunOver {
        /// The run.
        run: RunId,
    },
    /// The user is forgotten, and disabled.
    #[error("the user is forgotten")]
    Forgotten,
    /// The tenant has as many keys as it may.
    #[error("the tenant has {limit} keys, its limit")]
    TooManyKeys {
        /// Keys that one tenant may have at once.
        limit: u32,
    },
    /// The tenant has disabled as many users that nobody has seen as it may.
    #[error("{limit} users who never came here are disabled already")]
    TooManyDisabled {
        /// Of them at once.
        limit: u32,
    },
    /// Too many writes are waiting.
    #[error("the database is too busy to {operation}")]
    Busy {
        /// What was tried.
        operation: &'static str,
    },
    /// The disk is full.
    #[error("no space to {operation}")]
    Full {
        /// What was tried.
        operation: &'static str,
    },
    /// The database is shut down. A write may or may not have happened.
    #[error("the database is closed: cannot {operation}")]
    Closed {
        /// What was tried.
        operation: &'static str,
    },
    /// The file was written by a newer Bailey.
    #[error("the database has schema {found}, this version knows {known}: use a newer bailey")]
    TooNew {
        /// In the file.
        found: i64,
        /// Here.
        known: i64,
    },
    /// What is stored cannot be read back.
    #[error("cannot {operation}: what is stored is damaged")]
    Corrupt {
        /// What was tried.
        operation: &'static str,
        /// Why, for the log.
        detail: String,
    },
    /// The storage failed.
    #[error("cannot {operation}")]
    Storage {
        /// What was tried.
        operation: &'static str,
        /// Why.
        source: std::sync::Arc<dyn std::error::Error + Send + Sync>,
    },
}
