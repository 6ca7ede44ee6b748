//! Verifies every chain of a database file, with or without a server on it.

use std::collections::BTreeSet;
use std::path::Path;

use bailey_protocol::audit::{AuditSubject, Digest};
use rusqlite::Connection;

use super::append::known_chain;
use super::read::{self, Stored};
use crate::audit::chain::round_digest;
use crate::audit::{AuditKeys, Chain, Fault, Report, SEALED, Verifier};
use crate::db::DbError;
use crate::db::sqlite::schema;
use crate::db::sqlite::worker::DbFault;

/// Rows read at once.
const PIECE: u32 = 2000;
const VERIFY: &str = "verify the audit";

/// Verifies all chains of `file`; or that of one tenant or the operator. The operator's has to hold `anchor`, a row and
/// its hash that somebody kept elsewhere.
///
/// # Errors
/// When the file cannot be read at all.
pub fn verify_audit(
    file: &Path,
    keys: &AuditKeys,
    only: Option<&Chain>,
    anchor: Option<(u64, Digest)>,
) -> Result<Vec<Report>, DbError> {
    let db = schema::open_reader(file)?;
    let name = only.map(ToString::to_string);
    let verify = || {
        // One moment of all tables, whatever a server does meanwhile.
        let moment = db.unchecked_transaction()?;
        let chains = chains(&moment)?;
        let wanted = chains.into_iter().filter(|chain| name.as_ref().is_none_or(|name| name == chain));
        let anchor = |chain: &str| anchor.filter(|_| chain == Chain::Operator.to_string());
        wanted.map(|chain| verify_chain(&moment, &chain, keys, anchor(&chain))).collect::<Result<Vec<_>, DbFault>>()
    };
    verify().map_err(|fault| fault.at(VERIFY))
}

/// Every chain that has rows or that a checkpoint is about.
fn chains(db: &Connection) -> Result<BTreeSet<String>, DbFault> {
    let mut query = db.prepare("SELECT name FROM audit_chains UNION SELECT chain FROM audit_checkpoints")?;
    let names = query.query_map([], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

fn verify_chain(
    db: &Connection,
    name: &str,
    keys: &AuditKeys,
    anchor: Option<(u64, Digest)>,
) -> Result<Report, DbFault> {
    let mut verifier = Verifier::new(name, 0, keys.clone());
    if let Some(chain) = known_chain(db, name)? {
        read::subjects(db, chain, &mut |subject: AuditSubject| verifier.subject(&subject))?;
        loop {
            let rows = match read::after(db, chain, name, verifier.last(), PIECE) {
                Ok(rows) => rows,
                Err(DbFault::Corrupt(why)) => {
                    let at = verifier.last() + 1;
                    verifier.fault(Fault::Unreadable { at, why });
                    return Ok(verifier.finish());
                }
                Err(fault) => return Err(fault),
            };
            let Some(last) = rows.last().map(|stored| stored.row.seq) else { break };
            let sealed = read::checkpoints(db, name, verifier.last(), last)?;
            let mut sealed = sealed.iter().peekable();
            for Stored { row, detail, erased_by } in &rows {
                verifier.row(row, detail.as_ref(), *erased_by);
                if anchor.is_some_and(|(seq, hash)| seq == row.seq && hash != row.hash) {
                    verifier.fault(Fault::Rewritten { seq: row.seq });
                }
                while let Some(checkpoint) = sealed.next_if(|one| one.seq <= row.seq) {
                    verifier.checkpoint(checkpoint);
                }
                if row.action == SEALED && name == Chain::Operator.to_string() {
                    let round = read::round(db, row.seq)?;
                    let found = round_digest(round.iter().map(|one| (one.chain.as_str(), one.seq, &one.hash)));
                    if found.to_string() != row.outcome {
                        verifier.fault(Fault::RoundBroken { seq: row.seq });
                    }
                }
            }
        }
    }
    let last = verifier.last();
    if let Some((signed, _)) = anchor.filter(|(seq, _)| *seq > last) {
        verifier.fault(Fault::Truncated { last, signed });
    }
    for checkpoint in read::checkpoints(db, name, last, u64::MAX)? {
        verifier.checkpoint(&checkpoint);
    }
    Ok(verifier.finish())
}
