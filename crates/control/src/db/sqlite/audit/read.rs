//! Rows as they were written.

use bailey_protocol::audit::{AuditCheckpoint, AuditDetail, AuditRow, AuditSubject, Digest, HexBytes};
use rusqlite::{Connection, Row, params};

use crate::db::sqlite::worker::{DbFault, loaded, stored};

/// A row with what lies beside it.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) row: AuditRow,
    pub(super) detail: Option<AuditDetail>,
    pub(super) erased_by: Option<u64>,
}

pub(super) const COLUMNS: &str = "r.seq, r.time_ms, r.request, r.subject, r.actor, r.credential, r.run, r.action,
    r.decision, r.policies, r.outcome, r.detail, r.prev, r.hash, d.salt, d.resource, d.reason, d.credential_id,
    d.erased_by";

/// Rows after `after`, in order.
pub(super) fn after(db: &Connection, chain: i64, name: &str, after: u64, limit: u32) -> Result<Vec<Stored>, DbFault> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM audit_rows r LEFT JOIN audit_details d ON d.chain = r.chain AND d.seq = r.seq
         WHERE r.chain = ?1 AND r.seq > ?2 ORDER BY r.seq LIMIT ?3"
    ))?;
    let mut rows = query.query(params![chain, stored(after), limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(stored_row(row, name)?);
    }
    Ok(found)
}

/// One row of a query for [`COLUMNS`].
pub(super) fn stored_row(row: &Row<'_>, chain: &str) -> Result<Stored, DbFault> {
    let policies: String = row.get(9)?;
    let salt: Option<Vec<u8>> = row.get(14)?;
    let detail = match salt {
        Some(salt) => Some(AuditDetail {
            salt: HexBytes::new(salt),
            resource: row.get::<_, Option<String>>(15)?.unwrap_or_default(),
            reason: row.get::<_, Option<String>>(16)?.unwrap_or_default(),
            credential_id: row.get::<_, Option<String>>(17)?.unwrap_or_default(),
        }),
        None => None,
    };
    let parsed = AuditRow {
        chain: chain.to_owned(),
        seq: loaded(row.get(0)?),
        time_ms: loaded(row.get(1)?),
        request: row.get(2)?,
        subject: digest(row.get(3)?)?,
        actor: row.get::<_, Option<Vec<u8>>>(4)?.map(digest).transpose()?,
        credential: row.get(5)?,
        run: row.get(6)?,
        action: row.get(7)?,
        decision: row.get(8)?,
        policies: serde_json::from_str(&policies).map_err(|error| DbFault::Corrupt(error.to_string()))?,
        outcome: row.get(10)?,
        detail: digest(row.get(11)?)?,
        prev: digest(row.get(12)?)?,
        hash: digest(row.get(13)?)?,
    };
    Ok(Stored { row: parsed, detail, erased_by: row.get::<_, Option<i64>>(18)?.map(loaded) })
}

/// Every name behind the chain's pseudonyms.
pub(super) fn subjects(db: &Connection, chain: i64, each: &mut dyn FnMut(AuditSubject)) -> Result<(), DbFault> {
    let mut query = db.prepare_cached("SELECT id, salt, kind, name FROM audit_subjects WHERE chain = ?1")?;
    let mut rows = query.query([chain])?;
    while let Some(row) = rows.next()? {
        each(AuditSubject {
            id: digest(row.get(0)?)?,
            salt: HexBytes::new(row.get::<_, Vec<u8>>(1)?),
            kind: row.get(2)?,
            name: row.get(3)?,
        });
    }
    Ok(())
}

/// Checkpoints of a chain of rows after `after`, up to `to`, in order.
pub(super) fn checkpoints(db: &Connection, chain: &str, after: u64, to: u64) -> Result<Vec<AuditCheckpoint>, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT chain, seq, hash, time_ms, round, key, signature FROM audit_checkpoints
         WHERE chain = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq",
    )?;
    collect(&mut query.query(params![chain, stored(after), stored(to)])?)
}

/// The checkpoints that a row of the operator's chain seals, in the order of their chains' names.
pub(super) fn round(db: &Connection, round: u64) -> Result<Vec<AuditCheckpoint>, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT chain, seq, hash, time_ms, round, key, signature FROM audit_checkpoints
         WHERE round = ?1 AND round > 0 ORDER BY chain, seq",
    )?;
    collect(&mut query.query([stored(round)])?)
}

fn collect(rows: &mut rusqlite::Rows<'_>) -> Result<Vec<AuditCheckpoint>, DbFault> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(AuditCheckpoint {
            chain: row.get(0)?,
            seq: loaded(row.get(1)?),
            hash: digest(row.get(2)?)?,
            time_ms: loaded(row.get(3)?),
            round: loaded(row.get(4)?),
            key: row.get(5)?,
            signature: HexBytes::new(row.get::<_, Vec<u8>>(6)?),
        });
    }
    Ok(found)
}

/// A stored hash.
pub(super) fn digest(bytes: Vec<u8>) -> Result<Digest, DbFault> {
    let bytes = bytes.try_into().map_err(|_other| DbFault::Corrupt("a hash has not 32 bytes".to_owned()))?;
    Ok(Digest::new(bytes))
}
