//! One row more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bailey_protocol::audit::{AuditDetail, AuditRow, Digest, HexBytes};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::read::digest;
use crate::audit::Chain;
use crate::audit::chain::{SALT_BYTES, detail_commitment, genesis, pseudonym, row_hash};
use crate::clock::Rng;
use crate::db::audit::{AuditDecision, AuditEntry, Named};
use crate::db::sqlite::forget;
use crate::db::sqlite::worker::{DbFault, parse, stored};
use crate::db::{AuditHead, DbError};

/// Chains that one job appends to: others wait for it.
const TOLD_AT_ONCE: u32 = 200;

/// Rows that this process appended.
#[derive(Debug, Default)]
pub(in crate::db::sqlite) struct Appended {
    pub(super) rows: AtomicU64,
    pub(super) denials: AtomicU64,
}

/// Draws salts, and counts the rows that they are for.
#[derive(Debug, Clone)]
pub(in crate::db::sqlite) struct Salts {
    rng: Rng,
    appended: Option<Arc<Appended>>,
}

impl Salts {
    pub(in crate::db::sqlite) fn counted(rng: Rng, appended: Arc<Appended>) -> Self {
        Self { rng, appended: Some(appended) }
    }

    pub(super) fn uncounted(rng: Rng) -> Self {
        Self { rng, appended: None }
    }

    pub(in crate::db::sqlite) fn draw(&self) -> Result<[u8; SALT_BYTES], DbFault> {
        self.rng.bytes().map_err(|error| {
            let operation = "draw a salt for the audit";
            DbFault::Plain(DbError::Storage { operation, source: Arc::new(error) })
        })
    }
}

/// Appends, and says where the chain is now.
pub(in crate::db::sqlite) fn append(db: &Connection, salts: &Salts, entry: &AuditEntry) -> Result<AuditHead, DbFault> {
    // What a user began who is forgotten by now is on the audit without the name, and without what it was about.
    let nameless = match (&entry.chain, entry.subject.kind) {
        (Chain::Tenant(tenant), "user") => {
            let user = entry.subject.name.parse().ok();
            let hash = user.map(|user| forget::hash(db, tenant, &user)).transpose()?.flatten();
            hash.map(|_| entry.clone().nameless())
        }
        (Chain::Tenant(_) | Chain::Operator, _) => None,
    };
    let entry = nameless.as_ref().unwrap_or(entry);
    let name = entry.chain.to_string();
    let chain = chain_id(db, &name)?;
    let subject = subject_id(db, salts, chain, &name, &entry.subject)?;
    let actor = entry.actor.as_ref().map(|actor| subject_id(db, salts, chain, &name, actor)).transpose()?;
    let (last, prev) = head(db, chain)?.unwrap_or_else(|| (0, genesis(&name)));
    let salt = salts.draw()?;
    let detail = AuditDetail {
        salt: HexBytes::new(salt),
        resource: entry.resource.clone(),
        reason: entry.reason.clone(),
        credential_id: entry.credential_id.clone(),
    };
    let mut row = AuditRow {
        chain: name,
        seq: last + 1,
        // As it is stored, so that the hash is of what will be read.
        time_ms: entry.time_ms.min(i64::MAX.unsigned_abs()),
        request: entry.request.as_ref().map(ToString::to_string),
        subject,
        actor,
        credential: entry.credential.to_owned(),
        run: entry.acting_run.as_ref().map(ToString::to_string),
        action: entry.action.to_owned(),
        decision: entry.decision.as_str().to_owned(),
        policies: entry.policies.clone(),
        outcome: entry.outcome.clone(),
        detail: detail_commitment(&detail),
        prev,
        hash: prev,
    };
    row.hash = row_hash(&row);
    insert(db, chain, &row, &detail)?;
    if let Some(appended) = &salts.appended {
        appended.rows.fetch_add(1, Ordering::Relaxed);
        appended.denials.fetch_add(u64::from(entry.decision == AuditDecision::Denied), Ordering::Relaxed);
    }
    Ok(AuditHead { chain: row.chain, seq: row.seq, hash: row.hash })
}

/// Appends to the next [`TOLD_AT_ONCE`] chains of tenants.
pub(super) fn to_tenants(
    db: &Connection,
    salts: &Salts,
    entry: &AuditEntry,
    after: i64,
) -> Result<Option<i64>, DbFault> {
    let mut next = db.prepare_cached(
        "SELECT id, substr(name, 8) FROM audit_chains WHERE id > ?1 AND substr(name, 1, 7) = 'tenant/' ORDER BY id LIMIT ?2",
    )?;
    let chains = next.query_map(params![after, TOLD_AT_ONCE], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let chains: Vec<(i64, String)> = chains.collect::<Result<_, _>>()?;
    for (_, tenant) in &chains {
        append(db, salts, &entry.clone().on(&parse(tenant)?))?;
    }
    let all = u32::try_from(chains.len()).is_ok_and(|count| count < TOLD_AT_ONCE);
    Ok(chains.last().filter(|_| !all).map(|(id, _)| *id))
}

fn insert(db: &Connection, chain: i64, row: &AuditRow, detail: &AuditDetail) -> Result<(), DbFault> {
    let policies = serde_json::to_string(&row.policies).map_err(|error| DbFault::Corrupt(error.to_string()))?;
    db.prepare_cached(
        "INSERT INTO audit_rows (chain, seq, time_ms, request, subject, actor, credential, run, action, decision,
                                 policies, outcome, detail, prev, hash)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?
    .execute(params![
        chain,
        stored(row.seq),
        stored(row.time_ms),
        row.request,
        row.subject.as_bytes(),
        row.actor.as_ref().map(Digest::as_bytes),
        row.credential,
        row.run,
        row.action,
        row.decision,
        policies,
        row.outcome,
        row.detail.as_bytes(),
        row.prev.as_bytes(),
        row.hash.as_bytes(),
    ])?;
    db.prepare_cached(
        "INSERT INTO audit_details (chain, seq, salt, resource, reason, credential_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        chain,
        stored(row.seq),
        detail.salt.as_bytes(),
        detail.resource,
        detail.reason,
        detail.credential_id
    ])?;
    Ok(())
}

/// The chain's number; a new one for its first row.
pub(super) fn chain_id(db: &Connection, name: &str) -> Result<i64, DbFault> {
    if let Some(id) = known_chain(db, name)? {
        return Ok(id);
    }
    db.execute("INSERT INTO audit_chains (name) VALUES (?1)", [name])?;
    Ok(db.last_insert_rowid())
}

/// The chain's number, if it has a row.
pub(super) fn known_chain(db: &Connection, name: &str) -> Result<Option<i64>, DbFault> {
    let mut find = db.prepare_cached("SELECT id FROM audit_chains WHERE name = ?1")?;
    Ok(find.query_row([name], |row| row.get(0)).optional()?)
}

/// The last row's number and hash.
pub(super) fn head(db: &Connection, chain: i64) -> Result<Option<(u64, Digest)>, DbFault> {
    let mut last = db.prepare_cached("SELECT seq, hash FROM audit_rows WHERE chain = ?1 ORDER BY seq DESC LIMIT 1")?;
    let found = last.query_row([chain], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))).optional()?;
    found.map(|(seq, hash)| Ok((seq.unsigned_abs(), digest(hash)?))).transpose()
}

/// The pseudonym; a new one for somebody who is new or was forgotten.
fn subject_id(db: &Connection, salts: &Salts, chain: i64, chain_name: &str, who: &Named) -> Result<Digest, DbFault> {
    let mut find = db.prepare_cached("SELECT id FROM audit_subjects WHERE chain = ?1 AND kind = ?2 AND name = ?3")?;
    let found = find.query_row(params![chain, who.kind, who.name], |row| row.get::<_, Vec<u8>>(0)).optional()?;
    if let Some(id) = found {
        return digest(id);
    }
    let salt = salts.draw()?;
    let id = pseudonym(chain_name, &salt, who.kind, &who.name);
    db.prepare_cached("INSERT INTO audit_subjects (chain, kind, name, salt, id) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![chain, who.kind, who.name, salt, id.as_bytes()])?;
    Ok(id)
}
