//! The audit's tables. Triggers refuse to change or delete a row of a chain; only what rows commit to can be erased.

mod append;
mod erase;
mod read;
mod seal;
mod verify;
mod window;

#[cfg(test)]
mod tests;

pub use verify::verify_audit;

use std::sync::atomic::Ordering;

use bailey_protocol::audit::AuditCheckpoint;
use bailey_protocol::id::UserId;
use bailey_protocol::path::TreePath;
use rusqlite::Connection;

use super::Sqlite;
use super::worker::DbFault;
use crate::audit::{AuditSigner, Chain};
use crate::db::DbFuture;
use crate::db::audit::{AuditAsk, AuditDb, AuditEntry, AuditHead, AuditPiece, AuditScope, AuditWindow};
use crate::db::usage::Audited;

pub(super) use append::{Appended, Salts, append};

/// Added to the schema as its second step. Rows of before belonged to no chain; no version with them was released.
pub(super) const TABLES: &str = "
DROP TABLE audit;

CREATE TABLE audit_chains (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE audit_subjects (
    chain INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    salt BLOB NOT NULL,
    id BLOB NOT NULL,
    PRIMARY KEY (chain, kind, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX audit_subjects_by_id ON audit_subjects (chain, id);

CREATE TABLE audit_rows (
    chain INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    request TEXT,
    subject BLOB NOT NULL,
    actor BLOB,
    credential TEXT NOT NULL,
    run TEXT,
    action TEXT NOT NULL,
    decision TEXT NOT NULL,
    policies TEXT NOT NULL,
    outcome TEXT NOT NULL,
    detail BLOB NOT NULL,
    prev BLOB NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (chain, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER audit_rows_stay BEFORE UPDATE ON audit_rows
BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_rows_are_kept BEFORE DELETE ON audit_rows
BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;

-- What a row commits to, until it is erased; then only which row said so.
CREATE TABLE audit_details (
    chain INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    salt BLOB,
    resource TEXT,
    reason TEXT,
    credential_id TEXT,
    erased_by INTEGER,
    PRIMARY KEY (chain, seq),
    CHECK ((salt IS NULL) = (erased_by IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_checkpoints (
    chain TEXT NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    time_ms INTEGER NOT NULL,
    round INTEGER NOT NULL,
    key TEXT NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (chain, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_checkpoints_by_round ON audit_checkpoints (round, chain) WHERE round > 0;

-- For people.
CREATE VIEW audit AS
SELECT c.name AS chain, r.seq, r.time_ms, r.request, s.name AS user, r.credential, r.run, r.action, d.resource,
       r.decision, r.policies, d.reason, r.outcome
FROM audit_rows r
JOIN audit_chains c ON c.id = r.chain
LEFT JOIN audit_subjects s ON s.chain = r.chain AND s.id = r.subject
LEFT JOIN audit_details d ON d.chain = r.chain AND d.seq = r.seq;
";

/// Forgets a path in the chain of `receipt`, which is appended.
/// Forgets a user in its tenant's chain.
pub(super) fn forget_user(db: &Connection, salts: &Salts, receipt: AuditEntry, user: &UserId) -> Result<u64, DbFault> {
    erase::subject(db, salts, receipt, user)
}

pub(super) fn forget_path(
    db: &Connection,
    salts: &Salts,
    receipt: AuditEntry,
    path: &TreePath,
    known: &Audited,
) -> Result<u64, DbFault> {
    erase::path(db, salts, receipt, path, known)
}

/// Some rows of a chain, from number `from` on, that are about a path or what is below it.
pub(super) fn find_path(db: &Connection, chain: &Chain, path: &TreePath, from: u64) -> Result<Audited, DbFault> {
    erase::find_path(db, chain, path, from)
}

impl AuditDb for Sqlite {
    fn audit(&self, entry: AuditEntry) -> DbFuture<'_, ()> {
        let salts = self.salts();
        self.writer.call("write the audit", move |db| append(db, &salts, &entry).map(drop))
    }

    fn audit_tenants(&self, entry: AuditEntry, after: i64) -> DbFuture<'_, Option<i64>> {
        let salts = self.salts();
        self.writer.call("tell tenants in their audits", move |db| append::to_tenants(db, &salts, &entry, after))
    }

    fn audit_window<'a>(&'a self, scope: &'a AuditScope, ask: AuditAsk) -> DbFuture<'a, AuditWindow> {
        let scope = scope.clone();
        self.reader.call("read the audit", move |db| window::window(db, &scope, &ask))
    }

    fn audit_piece<'a>(&'a self, scope: &'a AuditScope, after: u64, to: u64) -> DbFuture<'a, AuditPiece> {
        let scope = scope.clone();
        self.reader.call("export the audit", move |db| window::piece(db, &scope, after, to))
    }

    fn audit_head<'a>(&'a self, scope: &'a AuditScope) -> DbFuture<'a, Option<AuditHead>> {
        let name = scope.chain().to_string();
        self.reader.call("find the audit's head", move |db| {
            let Some(chain) = append::known_chain(db, &name)? else { return Ok(None) };
            Ok(append::head(db, chain)?.map(|(seq, hash)| AuditHead { chain: name, seq, hash }))
        })
    }

    fn audit_appended(&self) -> u64 {
        self.appended.rows.load(Ordering::Relaxed)
    }

    fn audit_denials(&self) -> u64 {
        self.appended.denials.load(Ordering::Relaxed)
    }

    fn audit_unsealed(&self) -> DbFuture<'_, Vec<AuditHead>> {
        self.reader.call("find unsealed heads of the audit", seal::unsealed)
    }

    fn audit_seal(
        &self,
        checkpoints: Vec<AuditCheckpoint>,
        signer: AuditSigner,
        now_ms: u64,
    ) -> DbFuture<'_, AuditCheckpoint> {
        let rng = self.rng.clone();
        self.writer
            .call("seal the audit", move |db| seal::seal(db, &Salts::uncounted(rng), checkpoints, &signer, now_ms))
    }

    fn forget_path_details<'a>(&'a self, receipt: AuditEntry, path: &'a TreePath) -> DbFuture<'a, u64> {
        let (salts, path) = (self.salts(), path.clone());
        self.writer
            .call("forget a path in the audit", move |db| forget_path(db, &salts, receipt, &path, &Audited::default()))
    }
}
