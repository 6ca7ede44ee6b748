//! Forgetting a user: everything that names it goes, but a salted hash by which it stays disabled.

use bailey_protocol::id::{KeyId, RunId, TenantId, UserId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::audit::{self, Salts};
use super::worker::{DbFault, parse};
use crate::db::identity::{FORGOTTEN, ForgetScope, ForgottenNames, UserForgotten};
use crate::db::{AuditEntry, DbError};

pub(super) const TABLES: &str = "
-- What the names of a tenant's forgotten users are hashed with; the hashes are in `disabled`.
CREATE TABLE forget_salts (
    tenant TEXT PRIMARY KEY,
    salt BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

/// What names the user and goes; `?1` is the tenant, `?2` the user.
const GO: [&str; 13] = [
    "DELETE FROM subjects WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM api_keys WHERE tenant = ?1 AND (user = ?2 OR creator = ?2)",
    "DELETE FROM tree_tokens WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM idempotency WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM ref_movers WHERE tenant = ?1 AND (user = ?2 OR mover = ?2)",
    "DELETE FROM refs WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM labels WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM gone_versions WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM purged_versions WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM purges WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM protections WHERE tenant = ?1 AND user = ?2",
    "DELETE FROM decisions WHERE tenant = ?1 AND instr(request, ?2) > 0",
    "DELETE FROM disabled WHERE tenant = ?1 AND user = ?2",
];

/// Forgets a user. Where it is disabled it stays so.
pub(super) fn user(
    db: &Connection,
    salts: &Salts,
    scope: &ForgetScope,
    receipt: AuditEntry,
) -> Result<UserForgotten, DbFault> {
    let (tenant, user) = (scope.tenant().as_str(), scope.user().as_str());
    let salt = match salt(db, scope.tenant())? {
        Some(salt) => salt,
        None => {
            let salt = salts.draw()?.to_vec();
            db.execute("INSERT INTO forget_salts (tenant, salt) VALUES (?1, ?2)", params![tenant, salt])?;
            salt
        }
    };
    db.execute(
        "INSERT INTO disabled (tenant, user, authority, since_ms)
         SELECT tenant, ?3, authority, since_ms FROM disabled WHERE tenant = ?1 AND user = ?2
         ON CONFLICT DO NOTHING",
        params![tenant, user, ForgottenNames::hash(&salt, scope.user())],
    )?;
    let mut ids = db.prepare("SELECT id FROM api_keys WHERE tenant = ?1 AND (user = ?2 OR creator = ?2)")?;
    let ids = ids.query_map(params![tenant, user], |row| row.get::<_, String>(0))?;
    let keys: Vec<KeyId> = ids.map(|id| parse(&id?)).collect::<Result<_, DbFault>>()?;
    for statement in GO {
        db.execute(statement, params![tenant, user])?;
    }
    db.execute(
        "UPDATE protections SET by_user = ?3 WHERE tenant = ?1 AND by_user = ?2",
        params![tenant, user, FORGOTTEN],
    )?;
    let runs = db.execute("DELETE FROM runs WHERE tenant = ?1 AND user = ?2", params![tenant, user])?;
    let audit_rows = audit::forget_user(db, salts, receipt, scope.user())?;
    let names = names(db, scope.tenant())?.ok_or_else(|| DbFault::Corrupt("a salt that was just there".to_owned()))?;
    Ok(UserForgotten { names, keys, runs: u64::try_from(runs).unwrap_or(u64::MAX), audit_rows })
}

pub(super) fn runs(db: &Connection, scope: &ForgetScope) -> Result<Vec<RunId>, DbFault> {
    let mut query = db.prepare_cached("SELECT id FROM runs WHERE tenant = ?1 AND user = ?2 ORDER BY id DESC")?;
    let ids =
        query.query_map(params![scope.tenant().as_str(), scope.user().as_str()], |row| row.get::<_, String>(0))?;
    ids.map(|id| parse(&id?)).collect()
}

fn salt(db: &Connection, tenant: &TenantId) -> Result<Option<Vec<u8>>, DbFault> {
    let mut find = db.prepare_cached("SELECT salt FROM forget_salts WHERE tenant = ?1")?;
    Ok(find.query_row([tenant.as_str()], |row| row.get(0)).optional()?)
}

/// The hash under which a forgotten user is disabled; `None` for everybody else.
pub(super) fn hash(db: &Connection, tenant: &TenantId, user: &UserId) -> Result<Option<String>, DbFault> {
    // Most tenants have forgotten nobody.
    let Some(salt) = salt(db, tenant)? else { return Ok(None) };
    let hash = ForgottenNames::hash(&salt, user);
    let mut find = db.prepare_cached("SELECT 1 FROM disabled WHERE tenant = ?1 AND user = ?2 LIMIT 1")?;
    let found = find.query_row(params![tenant.as_str(), hash], |_row| Ok(())).optional()?;
    Ok(found.map(|()| hash))
}

/// Refuses what would write down the name of a forgotten user.
pub(super) fn refuse(db: &Connection, tenant: &TenantId, user: &UserId) -> Result<(), DbFault> {
    if hash(db, tenant, user)?.is_some() { Err(DbError::Forgotten.into()) } else { Ok(()) }
}

/// The tenant's forgotten users; `None` where it never forgot any.
fn names(db: &Connection, tenant: &TenantId) -> Result<Option<ForgottenNames>, DbFault> {
    let Some(salt) = salt(db, tenant)? else { return Ok(None) };
    let mut query = db.prepare_cached("SELECT DISTINCT user FROM disabled WHERE tenant = ?1 AND user LIKE '#%'")?;
    let hashes = query.query_map([tenant.as_str()], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(Some(ForgottenNames { tenant: tenant.clone(), salt, hashes }))
}

/// Every tenant's forgotten users.
pub(super) fn all(db: &Connection) -> Result<Vec<ForgottenNames>, DbFault> {
    let mut query = db.prepare_cached("SELECT tenant FROM forget_salts ORDER BY tenant")?;
    let tenants = query.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let found = tenants.iter().map(|tenant| names(db, &parse(tenant)?));
    Ok(found.collect::<Result<Vec<_>, DbFault>>()?.into_iter().flatten().collect())
}
