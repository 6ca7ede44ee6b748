//! The database, which fails when fate says so. What is committed is durable: SQLite has tests of that of its own.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bailey_control::audit::AuditSigner;
use bailey_control::clock::Rng;
use bailey_control::db::{
    AuditAsk, AuditDb, AuditEntry, AuditHead, AuditPiece, AuditScope, AuditWindow, Audited, BaselineRow, Db, DbError,
    DbFuture, DecisionSeen, Disabled, ForgetScope, Gone, Idempotency, IdentityDb, KeyRecord, NewKey, NewPurge, NewRun,
    PendingPurge, PolicyDb, ProtectionRow, RefMove, Rights, RunCreated, RunEnd, RunRecord, Sqlite, StandingRows,
    SubjectKnown, SubjectRecord, SubjectSeen, TenantDb, TenantRecord, TokenScope, TreeDb, TreeMetaRows, TreeTokenRow,
    TreeTokensHeld, UsageDb, UserForgotten,
};
use bailey_policy::{
    AdminPermit, ExchangePermit, ExplainPermit, LabelPermit, OperatorPermit, Principal, ProtectPermit, PurgePermit,
    RunCreatePermit, RunFacts, RunListPermit, RunReadPermit, SharePermit, StoreScope, TenantFacts,
};
use bailey_protocol::api::BaselineInfo;
use bailey_protocol::api::identity::{AccountKind, DisabledAccount};
use bailey_protocol::audit::AuditCheckpoint;
use bailey_protocol::id::{BaselineName, KeyId, RunId, TenantId, TokenId, UserId, VersionId};
use bailey_protocol::label::Label;
use bailey_protocol::path::{BranchName, RepoId, TreePath};
use bailey_protocol::purge::{PurgeId, PurgeReceipt};
use bailey_protocol::quota::TenantQuota;

use crate::fate::{Fate, Turn};

pub struct FaultyDb {
    inner: Sqlite,
    fate: Arc<Fate>,
}

impl FaultyDb {
    pub fn open(file: &Path, rng: Rng, fate: Arc<Fate>) -> Self {
        Self { inner: Sqlite::open_here(file, rng).unwrap(), fate }
    }

    fn error(&self, operation: &'static str) -> DbError {
        match self.fate.dice(|dice| dice.below(3)) {
            0 => DbError::Full { operation },
            1 => DbError::Busy { operation },
            _ => DbError::Storage { operation, source: Arc::new(io::Error::from_raw_os_error(5)) },
        }
    }

    /// Whether the call has an effect, and what it is answered if that is not the result.
    fn turn(&self, operation: &'static str) -> (bool, Option<DbError>) {
        match self.fate.turn(|| format!("db {operation}")) {
            Turn::Fine => (true, None),
            Turn::Fault => (false, Some(self.error(operation))),
            Turn::DiesBefore | Turn::Dead => (false, Some(DbError::Closed { operation })),
            Turn::DiesAfter => (true, Some(DbError::Closed { operation })),
        }
    }
}

impl fmt::Debug for FaultyDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyDb")
    }
}

/// Passes each method on, unless it fails.
macro_rules! pass {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name<'a>(&'a self, $($arg: $type),*) -> DbFuture<'a, $out> {
            Box::pin(async move {
                let (done, error) = self.turn(stringify!($name));
                let outcome = if done { Some(self.inner.$name($($arg),*).await) } else { None };
                match (outcome, error) {
                    (_, Some(error)) => Err(error),
                    (Some(outcome), None) => {
                        if let Err(error) = &outcome {
                            self.fate.note(|| format!("db {} gives {error}", stringify!($name)));
                        }
                        outcome
                    }
                    (None, None) => unreachable!("it was done"),
                }
            })
        })*
    };
}

impl Db for FaultyDb {
    pass! {
        create_run(permit: &'a RunCreatePermit, run: NewRun) -> RunCreated;
        earlier_run(permit: &'a RunCreatePermit, idempotency: &'a Idempotency, now_ms: u64) -> Option<RunId>;
        end_run(permit: &'a RunCreatePermit, run: &'a RunId, end: RunEnd, moves: Vec<RefMove>, now_ms: u64) -> ();
        run_facts(principal: &'a Principal, run: &'a RunId) -> Option<RunFacts>;
        run(permit: &'a RunReadPermit) -> Option<RunRecord>;
        runs(permit: &'a RunListPermit, limit: u32, after: Option<&'a RunId>) -> Vec<RunRecord>;
        abandon_running(now_ms: u64) -> Vec<(TenantId, RunId)>;
        resolve(scope: &'a StoreScope) -> Option<VersionId>;
        heads(scope: &'a StoreScope) -> Vec<(BranchName, VersionId)>;
        move_refs(moves: Vec<RefMove>) -> ();
    }
}

impl AuditDb for FaultyDb {
    pass! {
        audit(entry: AuditEntry) -> ();
        audit_tenants(entry: AuditEntry, after: i64) -> Option<i64>;
        audit_window(scope: &'a AuditScope, ask: AuditAsk) -> AuditWindow;
        audit_piece(scope: &'a AuditScope, after: u64, to: u64) -> AuditPiece;
        audit_head(scope: &'a AuditScope) -> Option<AuditHead>;
        audit_unsealed() -> Vec<AuditHead>;
        audit_seal(checkpoints: Vec<AuditCheckpoint>, signer: AuditSigner, now_ms: u64) -> AuditCheckpoint;
        forget_path_details(receipt: AuditEntry, path: &'a TreePath) -> u64;
    }

    fn audit_appended(&self) -> u64 {
        self.inner.audit_appended()
    }

    fn audit_denials(&self) -> u64 {
        self.inner.audit_denials()
    }
}

impl IdentityDb for FaultyDb {
    pass! {
        standing(now_ms: u64) -> StandingRows;
        note_subjects(seen: Vec<SubjectSeen>) -> ();
        note_key_use(used: Vec<(KeyId, u64)>) -> ();
        users(permit: &'a AdminPermit, limit: u32, after: Option<&'a UserId>) -> Vec<SubjectRecord>;
        explained(permit: &'a ExplainPermit) -> Option<SubjectKnown>;
        subject(permit: &'a ExchangePermit, user: &'a UserId) -> Option<SubjectKnown>;
        knows_tenant(permit: &'a OperatorPermit) -> bool;
        users_of(permit: &'a OperatorPermit, limit: u32, after: Option<&'a UserId>) -> Vec<SubjectRecord>;
        set_user_disabled(permit: &'a AdminPermit, user: &'a UserId, disabled: bool, now_ms: u64) -> Disabled;
        set_disabled(permit: &'a OperatorPermit, user: Option<&'a UserId>, disabled: bool, now_ms: u64) -> Disabled;
        disabled_accounts(permit: &'a OperatorPermit) -> Vec<DisabledAccount>;
        set_account_disabled(
            permit: &'a OperatorPermit,
            kind: AccountKind,
            name: &'a UserId,
            disabled: bool,
            now_ms: u64
        ) -> bool;
        tenants(permit: &'a OperatorPermit, limit: u32, after: Option<&'a TenantId>) -> Vec<TenantRecord>;
        create_key(permit: &'a AdminPermit, key: NewKey) -> Option<Rights>;
        keys(permit: &'a AdminPermit, limit: u32, after: Option<&'a KeyId>) -> Vec<KeyRecord>;
        runs_of(scope: &'a ForgetScope) -> Vec<RunId>;
        forget_user(scope: &'a ForgetScope, receipt: AuditEntry) -> UserForgotten;
        revoke_key(permit: &'a AdminPermit, key: &'a KeyId, now_ms: u64) -> bool;
    }
}

impl PolicyDb for FaultyDb {
    pass! {
        policies_of(tenant: &'a TenantId) -> Vec<(String, String)>;
        put_policy(permit: &'a AdminPermit, name: &'a str, text: &'a str) -> ();
        delete_policy(permit: &'a AdminPermit, name: &'a str) -> bool;
        told_policies() -> Option<String>;
        note_told_policies(hash: &'a str) -> ();
        note_decisions(seen: Vec<DecisionSeen>, now_ms: u64) -> ();
        decisions(permit: &'a OperatorPermit, since_ms: u64) -> Vec<DecisionSeen>;
    }
}

impl TenantDb for FaultyDb {
    pass! {
        tenant_facts() -> Vec<(TenantId, TenantFacts)>;
        set_tenant_facts(permit: &'a OperatorPermit, facts: TenantFacts) -> ();
    }
}

impl TreeDb for FaultyDb {
    pass! {
        tree_meta() -> TreeMetaRows;
        protect(permit: &'a ProtectPermit, review: bool, now_ms: u64) -> Option<ProtectionRow>;
        unprotect(permit: &'a ProtectPermit) -> bool;
        movers(scope: &'a StoreScope, branch: &'a BranchName) -> Vec<UserId>;
        set_labels(permit: &'a LabelPermit, labels: &'a BTreeSet<Label>) -> ();
        publish_baseline(
            permit: &'a OperatorPermit,
            name: &'a BaselineName,
            version: &'a VersionId,
            now_ms: u64
        ) -> BaselineInfo;
        create_tree_token(permit: &'a SharePermit, hash: [u8; 32], token: TreeTokenRow) -> Option<Rights>;
        revoke_tree_token(scope: &'a TokenScope, id: &'a TokenId) -> bool;
        tree_tokens(now_ms: u64) -> TreeTokensHeld;
        baselines() -> Vec<BaselineRow>;
    }
}

impl UsageDb for FaultyDb {
    pass! {
        quotas() -> Vec<(TenantId, TenantQuota)>;
        set_quota(permit: &'a OperatorPermit, quota: Option<TenantQuota>) -> ();
        branches_of(repo: &'a RepoId) -> Vec<(BranchName, VersionId)>;
        drop_side_branch(repo: &'a RepoId, branch: &'a BranchName, head: &'a VersionId) -> bool;
        expire_versions(repo: &'a RepoId, versions: Vec<VersionId>) -> ();
        gone(repo: &'a RepoId, version: &'a VersionId) -> Option<Gone>;
        stage_purge(permit: &'a PurgePermit, id: &'a PurgeId, became: Vec<(VersionId, VersionId)>) -> ();
        forget_staged() -> ();
        audited(permit: &'a PurgePermit, from: u64) -> Audited;
        begin_purge(permit: &'a PurgePermit, purge: NewPurge) -> ();
        pending_purges() -> Vec<PendingPurge>;
        scrub() -> ();
        finish_purge(id: &'a PurgeId, now_ms: u64) -> ();
        purge(principal: &'a Principal, id: &'a PurgeId) -> Option<PurgeReceipt>;
    }
}
