//! What a purge takes away: names behind pseudonyms, and what rows were about. The rows stay, and the chain verifies.

use bailey_protocol::id::UserId;
use bailey_protocol::path::TreePath;
use rusqlite::{Connection, params};

use super::append::{self, Salts, append};
use crate::audit::Chain;
use crate::audit::verify::ERASED;
use crate::db::audit::AuditEntry;
use crate::db::sqlite::worker::{DbFault, loaded, stored};
use crate::db::usage::Audited;

/// What is written over what is erased, so that the salt and the text are gone.
const ERASE: &str = "UPDATE audit_details SET salt = NULL, resource = NULL, reason = NULL, credential_id = NULL,
                     erased_by = ?2 WHERE chain = ?1 AND erased_by IS NULL";

/// Rows that one look for a path reads, so that nobody waits for long behind it.
const SPAN: u64 = 20_000;

/// Whether a resource is `?3` or lies below it.
const BELOW: &str = "(resource = ?3 OR substr(resource, 1, length(?3) + 1) = ?3 || '/')";

/// Forgets a user: who the pseudonym is, and every detail by or about that user.
pub(super) fn subject(db: &Connection, salts: &Salts, receipt: AuditEntry, user: &UserId) -> Result<u64, DbFault> {
    let folder = match &receipt.chain {
        Chain::Tenant(tenant) => format!("/tenants/{tenant}/users/{user}"),
        Chain::Operator => String::new(),
    };
    erase(db, salts, receipt, |chain, by| {
        let whose = "seq IN (SELECT r.seq FROM audit_rows r JOIN audit_subjects s ON s.chain = r.chain
                             AND (s.id = r.subject OR s.id = r.actor)
                             WHERE r.chain = ?1 AND s.kind = 'user' AND s.name = ?4)";
        // Where the resource is a user itself, that is its name.
        let sql = format!("{ERASE} AND (resource = ?4 OR {BELOW} OR {whose})");
        let count = db.execute(&sql, params![chain, stored(by), folder, user.as_str()])?;
        db.execute(
            "DELETE FROM audit_subjects WHERE chain = ?1 AND kind = 'user' AND name = ?2",
            params![chain, user.as_str()],
        )?;
        Ok(count)
    })
}

/// Forgets a path: every detail about it or what is below it. Of rows before `known.from`, those that are known.
pub(super) fn path(
    db: &Connection,
    salts: &Salts,
    receipt: AuditEntry,
    path: &TreePath,
    known: &Audited,
) -> Result<u64, DbFault> {
    erase(db, salts, receipt, |chain, by| {
        let mut one = db.prepare_cached(&format!("{ERASE} AND seq = ?3"))?;
        let mut count = 0;
        for row in &known.rows {
            count += one.execute(params![chain, stored(by), stored(*row)])?;
        }
        let sql = format!("{ERASE} AND seq >= ?4 AND {BELOW}");
        count += db.execute(&sql, params![chain, stored(by), path.as_str(), stored(known.from)])?;
        Ok(count)
    })
}

/// Looks at no more than [`SPAN`] rows, from number `from` on, for those that [`path`] erases.
pub(super) fn find_path(db: &Connection, chain: &Chain, path: &TreePath, from: u64) -> Result<Audited, DbFault> {
    let Some(chain) = append::known_chain(db, &chain.to_string())? else { return Ok(Audited::default()) };
    let end = append::head(db, chain)?.map_or(0, |(seq, _)| seq).saturating_add(1);
    let to = from.saturating_add(SPAN).min(end);
    let mut query = db.prepare_cached(&format!(
        "SELECT seq FROM audit_details WHERE chain = ?1 AND erased_by IS NULL AND seq >= ?2 AND seq < ?4 AND {BELOW}"
    ))?;
    let rows = query.query_map(params![chain, stored(from), path.as_str(), stored(to)], |row| row.get::<_, i64>(0))?;
    Ok(Audited { rows: rows.map(|row| Ok(loaded(row?))).collect::<Result<_, DbFault>>()?, from: to, more: to < end })
}

/// Erases, and appends the receipt: without a resource, and with the number of details that are gone.
fn erase(
    db: &Connection,
    salts: &Salts,
    receipt: AuditEntry,
    work: impl FnOnce(i64, u64) -> Result<usize, DbFault>,
) -> Result<u64, DbFault> {
    let chain = append::chain_id(db, &receipt.chain.to_string())?;
    let by = append::head(db, chain)?.map_or(0, |(seq, _)| seq) + 1;
    let count = u64::try_from(work(chain, by)?).unwrap_or(u64::MAX);
    append(db, salts, &AuditEntry { resource: String::new(), outcome: format!("{ERASED}{count}"), ..receipt })?;
    Ok(count)
}
