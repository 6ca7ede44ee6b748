//! The runs and idempotency tables.

use bailey_policy::{RunFacts, RunOrigin};
use bailey_protocol::id::{RunId, TenantId, UserId};
use bailey_protocol::path::TreePath;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;

use super::forget;
use super::worker::{DbFault, loaded, parse, stored};
use crate::db::runs::MAX_COMMAND_BYTES;
use crate::db::{DbError, IDEMPOTENCY_MS, Idempotency, NewRun, RunCreated, RunEnd, RunRecord, SpecSummary};

const COLUMNS: &str = "id, tenant, user, origin, spec, created_ms, ended_ms, outcome";

pub(super) fn create(
    db: &Connection,
    facts: &RunFacts,
    spec: &SpecSummary,
    new: &NewRun,
) -> Result<RunCreated, DbFault> {
    forget::refuse(db, &facts.tenant, &facts.user)?;
    if let Some(idempotency) = &new.idempotency {
        forget_old_keys(db, new.created_ms)?;
        if let Some(first) = earlier(db, &facts.tenant, &facts.user, idempotency, new.created_ms)? {
            return Ok(RunCreated::Replayed(first));
        }
        db.prepare_cached(
            "INSERT INTO idempotency (tenant, user, key, request, run, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            facts.tenant.as_str(),
            facts.user.as_str(),
            idempotency.key.as_str(),
            idempotency.request.as_slice(),
            facts.run.as_str(),
            stored(new.created_ms),
        ])?;
    }
    db.prepare_cached("INSERT INTO runs (id, tenant, user, origin, spec, created_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![
            facts.run.as_str(),
            facts.tenant.as_str(),
            facts.user.as_str(),
            facts.origin.as_ref().map(json).transpose()?,
            json(spec)?,
            stored(new.created_ms)
        ])?;
    Ok(RunCreated::New)
}

/// The run that the same request made before.
pub(super) fn earlier(
    db: &Connection,
    tenant: &TenantId,
    user: &UserId,
    idempotency: &Idempotency,
    now_ms: u64,
) -> Result<Option<RunId>, DbFault> {
    let found: Option<(Vec<u8>, String)> = db
        .prepare_cached(
            "SELECT request, run FROM idempotency WHERE tenant = ?1 AND user = ?2 AND key = ?3 AND created_ms >= ?4",
        )?
        .query_row(params![tenant.as_str(), user.as_str(), idempotency.key.as_str(), oldest_key(now_ms)], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    match found {
        None => Ok(None),
        Some((request, run)) if request == idempotency.request => parse(&run).map(Some),
        Some(_) => Err(DbError::IdempotencyConflict.into()),
    }
}

fn forget_old_keys(db: &Connection, now_ms: u64) -> Result<(), DbFault> {
    db.prepare_cached("DELETE FROM idempotency WHERE created_ms < ?1")?.execute([oldest_key(now_ms)])?;
    Ok(())
}

/// When the oldest key was used that is still remembered.
fn oldest_key(now_ms: u64) -> i64 {
    stored(now_ms.saturating_sub(IDEMPOTENCY_MS))
}

pub(super) fn end(db: &Connection, facts: &RunFacts, end: &RunEnd, now_ms: u64) -> Result<(), DbFault> {
    let changed = db
        .prepare_cached(
            "UPDATE runs SET ended_ms = ?4, outcome = ?5
             WHERE id = ?1 AND tenant = ?2 AND user = ?3 AND outcome IS NULL",
        )?
        .execute(params![facts.run.as_str(), facts.tenant.as_str(), facts.user.as_str(), stored(now_ms), json(end)?])?;
    if changed == 1 { Ok(()) } else { Err(DbError::RunOver { run: facts.run.clone() }.into()) }
}

pub(super) fn facts(db: &Connection, tenant: &TenantId, run: &RunId) -> Result<Option<RunFacts>, DbFault> {
    let found: Option<(String, Option<String>)> = db
        .prepare_cached("SELECT user, origin FROM runs WHERE id = ?1 AND tenant = ?2")?
        .query_row(params![run.as_str(), tenant.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let facts = |(user, found): (String, Option<String>)| {
        let facts = RunFacts::plain(run.clone(), tenant.clone(), parse(&user)?);
        Ok(RunFacts { origin: origin(found)?, ..facts })
    };
    found.map(facts).transpose()
}

pub(super) fn read(db: &Connection, tenant: &TenantId, run: &RunId) -> Result<Option<RunRecord>, DbFault> {
    db.prepare_cached(&format!("SELECT {COLUMNS} FROM runs WHERE id = ?1 AND tenant = ?2"))?
        .query_row(params![run.as_str(), tenant.as_str()], columns)
        .optional()?
        .map(record)
        .transpose()
}

pub(super) fn list(
    db: &Connection,
    tenant: &TenantId,
    user: &UserId,
    limit: u32,
    after: Option<&RunId>,
) -> Result<Vec<RunRecord>, DbFault> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM runs WHERE tenant = ?1 AND user = ?2 AND (?3 IS NULL OR id < ?3)
         ORDER BY id DESC LIMIT ?4"
    ))?;
    let rows = query.query_map(params![tenant.as_str(), user.as_str(), after.map(RunId::as_str), limit], columns)?;
    rows.map(|row| record(row?)).collect()
}

pub(super) fn abandon(db: &Connection, now_ms: u64) -> Result<Vec<(TenantId, RunId)>, DbFault> {
    let mut change =
        db.prepare_cached("UPDATE runs SET ended_ms = ?1, outcome = ?2 WHERE outcome IS NULL RETURNING tenant, id")?;
    let both = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let rows = change.query_map(params![stored(now_ms), json(&RunEnd::node_restarted())?], both)?;
    let parsed = rows.map(|row| row.map_err(DbFault::from).and_then(|(tenant, id)| Ok((parse(&tenant)?, parse(&id)?))));
    let mut runs: Vec<(TenantId, RunId)> = parsed.collect::<Result<_, DbFault>>()?;
    runs.sort_unstable();
    Ok(runs)
}

/// At most 200 bytes of a command line, whole characters only.
pub(super) fn cut(command: &str) -> &str {
    let end = (0..=MAX_COMMAND_BYTES.min(command.len())).rev().find(|end| command.is_char_boundary(*end));
    command.get(..end.unwrap_or(0)).unwrap_or("")
}

/// Forgets that runs were given `path`, or what is below it. Who asked for them stays.
pub(super) fn forget_mounts(db: &Connection, tenant: &TenantId, path: &TreePath) -> Result<(), DbFault> {
    db.prepare_cached(
        "UPDATE runs SET origin = json_set(origin, '$.mounts', json('[]')) WHERE tenant = ?1 AND EXISTS (
             SELECT 1 FROM json_each(origin, '$.mounts')
             WHERE value = ?2 OR substr(value, 1, length(?2) + 1) = ?2 || '/')",
    )?
    .execute(params![tenant.as_str(), path.as_str()])?;
    Ok(())
}

fn origin(stored: Option<String>) -> Result<Option<RunOrigin>, DbFault> {
    let origin = stored.map(|text| serde_json::from_str(&text)).transpose();
    origin.map_err(|error| DbFault::Corrupt(error.to_string()))
}

type Columns = (String, String, String, Option<String>, String, i64, Option<i64>, Option<String>);

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?))
}

fn record((id, tenant, user, from, spec, created_ms, ended_ms, outcome): Columns) -> Result<RunRecord, DbFault> {
    let wrong = |error: serde_json::Error| DbFault::Corrupt(error.to_string());
    Ok(RunRecord {
        facts: RunFacts { origin: origin(from)?, ..RunFacts::plain(parse(&id)?, parse(&tenant)?, parse(&user)?) },
        spec: serde_json::from_str(&spec).map_err(wrong)?,
        created_ms: loaded(created_ms),
        ended_ms: ended_ms.map(loaded),
        end: outcome.map(|text| serde_json::from_str(&text)).transpose().map_err(wrong)?,
    })
}

fn json(value: &impl Serialize) -> Result<String, DbFault> {
    serde_json::to_string(value).map_err(|error| DbFault::Corrupt(error.to_string()))
}
