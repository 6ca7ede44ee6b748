//! The audit table: append only.

use rusqlite::{Connection, params};

use super::worker::{DbFault, stored};
use crate::db::AuditEntry;

pub(super) fn append(db: &Connection, entry: &AuditEntry) -> Result<(), DbFault> {
    db.prepare_cached(
        "INSERT INTO audit (time_ms, request, tenant, user, acting_run, action, resource, decision, policies, outcome)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        stored(entry.time_ms),
        entry.request.as_ref().map(|request| request.as_str()),
        entry.tenant.as_str(),
        entry.user.as_str(),
        entry.acting_run.as_ref().map(|run| run.as_str()),
        entry.action,
        entry.resource,
        entry.decision.as_str(),
        entry.policies.join(" "),
        entry.outcome,
    ])?;
    Ok(())
}
