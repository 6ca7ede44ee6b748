//! Signed heads.

use bailey_protocol::audit::AuditCheckpoint;
use rusqlite::{Connection, params};

use super::append::{Salts, append};
use super::read::digest;
use crate::audit::chain::round_digest;
use crate::audit::{AuditSigner, SEALED};
use crate::db::audit::{AuditEntry, AuditHead};
use crate::db::sqlite::worker::{DbFault, loaded, stored};

/// Heads that no checkpoint is about.
pub(super) fn unsealed(db: &Connection) -> Result<Vec<AuditHead>, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT c.name, r.seq, r.hash FROM audit_chains c JOIN audit_rows r ON r.chain = c.id
         WHERE r.seq = (SELECT max(seq) FROM audit_rows WHERE chain = c.id)
         AND r.seq > coalesce((SELECT max(seq) FROM audit_checkpoints WHERE chain = c.name), 0)
         ORDER BY c.name",
    )?;
    let mut rows = query.query([])?;
    let mut heads = Vec::new();
    while let Some(row) = rows.next()? {
        heads.push(AuditHead { chain: row.get(0)?, seq: loaded(row.get(1)?), hash: digest(row.get(2)?)? });
    }
    Ok(heads)
}

/// Keeps one round, and gives the checkpoint over it.
pub(super) fn seal(
    db: &Connection,
    salts: &Salts,
    mut checkpoints: Vec<AuditCheckpoint>,
    signer: &AuditSigner,
    now_ms: u64,
) -> Result<AuditCheckpoint, DbFault> {
    checkpoints.sort_unstable_by(|a, b| (&a.chain, a.seq).cmp(&(&b.chain, b.seq)));
    let over = round_digest(checkpoints.iter().map(|one| (one.chain.as_str(), one.seq, &one.hash)));
    let head = append(db, salts, &AuditEntry::by_server(SEALED, over.to_string(), now_ms))?;
    for checkpoint in checkpoints {
        insert(db, &AuditCheckpoint { round: head.seq, ..checkpoint })?;
    }
    let sealed = signer.checkpoint(&head.chain, head.seq, head.hash, now_ms);
    insert(db, &sealed)?;
    Ok(sealed)
}

fn insert(db: &Connection, checkpoint: &AuditCheckpoint) -> Result<(), DbFault> {
    db.prepare_cached(
        "INSERT INTO audit_checkpoints (chain, seq, hash, time_ms, round, key, signature)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        checkpoint.chain,
        stored(checkpoint.seq),
        checkpoint.hash.as_bytes(),
        stored(checkpoint.time_ms),
        stored(checkpoint.round),
        checkpoint.key,
        checkpoint.signature.as_bytes(),
    ])?;
    Ok(())
}
