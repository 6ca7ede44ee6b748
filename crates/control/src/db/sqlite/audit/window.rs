//! Rows for people and programs: filtered pages, and the pieces of an export.

use std::collections::BTreeSet;

use bailey_protocol::audit::{AuditRecord, AuditSubject, Digest, HexBytes};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::append::{head, known_chain};
use super::read::{self, COLUMNS, Stored};
use crate::db::audit::{AuditAsk, AuditDecision, AuditFrom, AuditPiece, AuditScope, AuditWindow, OPERATOR};
use crate::db::sqlite::worker::{DbFault, stored};

/// Rows that one window looks at, however few the filter lets through: other readers wait for it.
const SPAN: u64 = 5_000;
/// Rows of one piece of an export.
const PIECE: u32 = 500;

/// Rows that the filter lets through within the next [`SPAN`].
pub(super) fn window(db: &Connection, scope: &AuditScope, ask: &AuditAsk) -> Result<AuditWindow, DbFault> {
    let name = scope.chain().to_string();
    let none = AuditWindow { records: Vec::new(), next: None };
    let Some(chain) = known_chain(db, &name)? else { return Ok(none) };
    let last = head(db, chain)?.map_or(0, |(seq, _)| seq);
    // The stretch is (low, high].
    let (low, high, order) = match ask.from {
        AuditFrom::Before(before) => {
            let high = before.map_or(last, |before| before.saturating_sub(1).min(last));
            (high.saturating_sub(SPAN), high, "DESC")
        }
        AuditFrom::After(after) => (after, after.saturating_add(SPAN).min(last), "ASC"),
    };
    if low >= high {
        return Ok(none);
    }
    let filter = &ask.filter;
    let mut query = db.prepare_cached(&format!(
        "SELECT {COLUMNS}, s.kind, s.name, a.kind, a.name
         FROM audit_rows r
         LEFT JOIN audit_details d ON d.chain = r.chain AND d.seq = r.seq
         LEFT JOIN audit_subjects s ON s.chain = r.chain AND s.id = r.subject
         LEFT JOIN audit_subjects a ON a.chain = r.chain AND a.id = r.actor
         WHERE r.chain = ?1 AND r.seq > ?2 AND r.seq <= ?3
         AND (?4 IS NULL OR s.name = ?4 AND s.kind <> ?12 OR a.name = ?4)
         AND (?5 IS NULL OR r.action = ?5)
         AND (?6 IS NULL OR r.decision = ?6)
         AND (?7 IS NULL OR r.run = ?7 OR r.outcome = ?7 OR d.resource = ?7)
         AND (?8 IS NULL OR substr(d.resource, 1, length(?8)) = ?8)
         AND (?9 IS NULL OR r.time_ms >= ?9)
         AND (?10 IS NULL OR r.time_ms < ?10)
         ORDER BY r.seq {order} LIMIT ?11"
    ))?;
    let mut rows = query.query(params![
        chain,
        stored(low),
        stored(high),
        filter.user,
        filter.action,
        filter.decision.map(AuditDecision::as_str),
        filter.run,
        filter.resource,
        filter.since_ms.map(stored),
        filter.until_ms.map(stored),
        ask.limit,
        // Whoever is not told a name does not find it out by asking for it either.
        if scope.tells(OPERATOR) { "" } else { OPERATOR },
    ])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let (user, actor) = (told(row, 19, scope)?, told(row, 21, scope)?);
        records.push(record(read::stored_row(row, &name)?, user, actor, scope));
    }
    let is_full = u32::try_from(records.len()).is_ok_and(|count| count >= ask.limit);
    let next = match ask.from {
        AuditFrom::Before(_) if is_full => records.last().map(|record| record.row.seq).filter(|seq| *seq > 1),
        AuditFrom::Before(_) => (low > 0).then_some(low + 1),
        AuditFrom::After(_) if is_full => records.last().map(|record| record.row.seq).filter(|seq| *seq < last),
        AuditFrom::After(_) => (high < last).then_some(high),
    };
    Ok(AuditWindow { records, next })
}

/// The next rows of an export.
pub(super) fn piece(db: &Connection, scope: &AuditScope, after: u64, to: u64) -> Result<AuditPiece, DbFault> {
    let name = scope.chain().to_string();
    let Some(chain) = known_chain(db, &name)? else { return Ok(AuditPiece::default()) };
    let rows = read::after(db, chain, &name, after, PIECE)?;
    let rows: Vec<Stored> = rows.into_iter().filter(|stored| stored.row.seq <= to).collect();
    let last = rows.last().map_or(after, |stored| stored.row.seq);
    let checkpoints = read::checkpoints(db, &name, after, last)?;
    let mut subjects = Vec::new();
    let named: BTreeSet<Digest> =
        rows.iter().flat_map(|stored| [stored.row.actor, Some(stored.row.subject)]).flatten().collect();
    for id in named {
        subjects.extend(subject(db, chain, id)?.filter(|subject| scope.tells(&subject.kind)));
    }
    let records = rows.into_iter().map(|stored| record(stored, None, None, scope)).collect();
    Ok(AuditPiece { subjects, records, checkpoints })
}

/// The name in column `at + 1`, where one of the kind in column `at` is told.
fn told(row: &Row<'_>, at: usize, scope: &AuditScope) -> Result<Option<String>, DbFault> {
    let kind: Option<String> = row.get(at)?;
    Ok(if kind.is_some_and(|kind| scope.tells(&kind)) { row.get(at + 1)? } else { None })
}

fn subject(db: &Connection, chain: i64, id: Digest) -> Result<Option<AuditSubject>, DbFault> {
    let mut find = db.prepare_cached("SELECT salt, kind, name FROM audit_subjects WHERE chain = ?1 AND id = ?2")?;
    let found = find.query_row(params![chain, id.as_bytes()], |row| {
        Ok(AuditSubject { id, salt: HexBytes::new(row.get::<_, Vec<u8>>(0)?), kind: row.get(1)?, name: row.get(2)? })
    });
    Ok(found.optional()?)
}

fn record(stored: Stored, user: Option<String>, actor: Option<String>, scope: &AuditScope) -> AuditRecord {
    let Stored { row, detail, erased_by } = stored;
    AuditRecord { row, user, actor, detail: detail.filter(|_| scope.is_named()), erased_by }
}
