//! The subjects, disabled and api_keys tables.

use bailey_policy::{Action, AdminPermit, ExchangePermit, ExplainPermit, OperatorPermit};
use bailey_protocol::api::identity::{AccountKind, DisabledAccount};
use bailey_protocol::id::{KeyId, RunId, TenantId, UserId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::worker::{DbFault, loaded, parse, stored};
use super::{Sqlite, forget};
use crate::db::identity::{
    Disabled, ForgetScope, IdentityDb, KeyHash, KeyRecord, MAX_IDENTITY_PAGE, MAX_KEYS_PER_TENANT, MAX_UNSEEN_DISABLED,
    NewKey, StandingRows, SubjectKnown, SubjectRecord, SubjectSeen, TenantRecord, UserForgotten,
};
use crate::db::{AuditEntry, DbError, DbFuture};
use crate::standing::Rights;

/// Who disabled somebody. An admin cannot undo what an operator did.
const ADMIN: &str = "admin";
const OPERATOR: &str = "operator";

impl IdentityDb for Sqlite {
    fn standing(&self, now_ms: u64) -> DbFuture<'_, StandingRows> {
        self.reader.call("read who may ask", move |db| standing(db, now_ms))
    }

    fn note_subjects(&self, seen: Vec<SubjectSeen>) -> DbFuture<'_, ()> {
        self.writer.call("note who was seen", move |db| seen.iter().try_for_each(|subject| note(db, subject)))
    }

    fn note_key_use(&self, used: Vec<(KeyId, u64)>) -> DbFuture<'_, ()> {
        self.writer.call("note the use of keys", move |db| {
            let mut change = db.prepare_cached("UPDATE api_keys SET last_used_ms = ?2 WHERE id = ?1")?;
            for (id, used_ms) in &used {
                change.execute(params![id.as_str(), stored(*used_ms)])?;
            }
            Ok(())
        })
    }

    fn users<'a>(
        &'a self,
        permit: &'a AdminPermit,
        limit: u32,
        after: Option<&'a UserId>,
    ) -> DbFuture<'a, Vec<SubjectRecord>> {
        let (tenant, after) = (permit.tenant().clone(), after.cloned());
        self.reader.call("list users", move |db| users(db, &tenant, limit.min(MAX_IDENTITY_PAGE), after.as_ref()))
    }

    fn explained<'a>(&'a self, permit: &'a ExplainPermit) -> DbFuture<'a, Option<SubjectKnown>> {
        let (tenant, user) = (permit.tenant().clone(), permit.subject().clone());
        self.reader.call("look up a user", move |db| subject(db, &tenant, &user))
    }

    fn subject<'a>(&'a self, permit: &'a ExchangePermit, user: &'a UserId) -> DbFuture<'a, Option<SubjectKnown>> {
        let (tenant, user) = (permit.tenant().clone(), user.clone());
        self.reader.call("look up a user", move |db| subject(db, &tenant, &user))
    }

    fn knows_tenant<'a>(&'a self, permit: &'a OperatorPermit) -> DbFuture<'a, bool> {
        let tenant = permit.tenant().cloned();
        self.reader.call("look up a tenant", move |db| match tenant {
            Some(tenant) => is_known(db, &tenant, None),
            None => Ok(false),
        })
    }

    fn users_of<'a>(
        &'a self,
        permit: &'a OperatorPermit,
        limit: u32,
        after: Option<&'a UserId>,
    ) -> DbFuture<'a, Vec<SubjectRecord>> {
        let listed = permit.tenant().filter(|_| permit.action() == Action::TenantUserList).cloned();
        let after = after.cloned();
        self.reader.call("list a tenant's users", move |db| {
            let tenant = listed.ok_or_else(|| DbFault::Corrupt("a permit of something else".to_owned()))?;
            users(db, &tenant, limit.min(MAX_IDENTITY_PAGE), after.as_ref())
        })
    }

    fn set_user_disabled<'a>(
        &'a self,
        permit: &'a AdminPermit,
        user: &'a UserId,
        disabled: bool,
        now_ms: u64,
    ) -> DbFuture<'a, Disabled> {
        let (tenant, user) = (permit.tenant().clone(), user.clone());
        self.writer.call("disable or enable a user", move |db| {
            let known = is_known(db, &tenant, Some(&user))?;
            let changed = if disabled {
                if !known {
                    refuse_too_many(db, &tenant, &user)?;
                }
                disable(db, &tenant, Some(&user), ADMIN, now_ms)?
            } else if is_disabled(db, &tenant, Some(&user), Some(OPERATOR))? {
                false
            } else {
                enable(db, &tenant, Some(&user))?
            };
            Ok(Disabled { changed, now: is_disabled(db, &tenant, Some(&user), None)?, known })
        })
    }

    fn set_disabled<'a>(
        &'a self,
        permit: &'a OperatorPermit,
        user: Option<&'a UserId>,
        disabled: bool,
        now_ms: u64,
    ) -> DbFuture<'a, Disabled> {
        let (tenant, user) = (permit.tenant().cloned(), user.cloned());
        self.writer.call("disable or enable a tenant or a user", move |db| {
            let Some(tenant) = tenant else { return Ok(Disabled { changed: false, now: false, known: false }) };
            let known = is_known(db, &tenant, user.as_ref())?;
            let changed = if disabled {
                disable(db, &tenant, user.as_ref(), OPERATOR, now_ms)?
            } else {
                enable(db, &tenant, user.as_ref())?
            };
            Ok(Disabled { changed, now: is_disabled(db, &tenant, user.as_ref(), None)?, known })
        })
    }

    fn disabled_accounts<'a>(&'a self, _permit: &'a OperatorPermit) -> DbFuture<'a, Vec<DisabledAccount>> {
        self.reader.call("list disabled accounts", accounts)
    }

    fn set_account_disabled<'a>(
        &'a self,
        _permit: &'a OperatorPermit,
        kind: AccountKind,
        name: &'a UserId,
        disabled: bool,
        now_ms: u64,
    ) -> DbFuture<'a, bool> {
        let name = name.clone();
        self.writer.call("disable or enable an account", move |db| {
            let changed = if disabled {
                db.prepare_cached(
                    "INSERT INTO disabled_accounts (kind, name, since_ms) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                )?
                .execute(params![kind.as_str(), name.as_str(), stored(now_ms)])?
            } else {
                db.prepare_cached("DELETE FROM disabled_accounts WHERE kind = ?1 AND name = ?2")?
                    .execute(params![kind.as_str(), name.as_str()])?
            };
            Ok(changed > 0)
        })
    }

    fn tenants<'a>(
        &'a self,
        _permit: &'a OperatorPermit,
        limit: u32,
        after: Option<&'a TenantId>,
    ) -> DbFuture<'a, Vec<TenantRecord>> {
        let after = after.cloned();
        self.reader.call("list tenants", move |db| tenants(db, limit.min(MAX_IDENTITY_PAGE), after.as_ref()))
    }

    fn create_key<'a>(&'a self, permit: &'a AdminPermit, key: NewKey) -> DbFuture<'a, Option<Rights>> {
        let (tenant, creator) = (permit.tenant().clone(), permit.user().clone());
        self.writer.call("make a key", move |db| {
            create_key(db, &tenant, &creator, &key)?;
            rights(db, &tenant, &creator)
        })
    }

    fn keys<'a>(
        &'a self,
        permit: &'a AdminPermit,
        limit: u32,
        after: Option<&'a KeyId>,
    ) -> DbFuture<'a, Vec<KeyRecord>> {
        let (tenant, after) = (permit.tenant().clone(), after.cloned());
        self.reader.call("list keys", move |db| keys(db, &tenant, limit.min(MAX_IDENTITY_PAGE), after.as_ref()))
    }

    fn runs_of<'a>(&'a self, scope: &'a ForgetScope) -> DbFuture<'a, Vec<RunId>> {
        let scope = scope.clone();
        self.reader.call("list a user's runs", move |db| forget::runs(db, &scope))
    }

    fn forget_user<'a>(&'a self, scope: &'a ForgetScope, receipt: AuditEntry) -> DbFuture<'a, UserForgotten> {
        let (salts, scope) = (self.salts(), scope.clone());
        self.writer.call("forget a user", move |db| forget::user(db, &salts, &scope, receipt))
    }

    fn revoke_key<'a>(&'a self, permit: &'a AdminPermit, key: &'a KeyId, now_ms: u64) -> DbFuture<'a, bool> {
        let (tenant, key) = (permit.tenant().clone(), key.clone());
        self.writer.call("revoke a key", move |db| {
            let changed = db
                .prepare_cached(
                    "UPDATE api_keys SET revoked_ms = coalesce(revoked_ms, ?3) WHERE id = ?1 AND tenant = ?2",
                )?
                .execute(params![key.as_str(), tenant.as_str(), stored(now_ms)])?;
            Ok(changed == 1)
        })
    }
}

fn standing(db: &Connection, now_ms: u64) -> Result<StandingRows, DbFault> {
    let mut rows = StandingRows::default();
    let mut query = db.prepare_cached("SELECT DISTINCT tenant, user FROM disabled ORDER BY tenant, user")?;
    let found = query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for row in found {
        let (tenant, user) = row?;
        if user.is_empty() {
            rows.tenants.push(parse(&tenant)?);
        } else if !user.starts_with('#') {
            rows.users.push((parse(&tenant)?, parse(&user)?));
        }
    }
    rows.forgotten = forget::all(db)?;
    rows.accounts = accounts(db)?;
    let mut query = db.prepare_cached(&format!(
        "SELECT {KEY_COLUMNS}, hash FROM api_keys WHERE revoked_ms IS NULL AND expires_ms > ?1"
    ))?;
    let found = query.query_map([stored(now_ms)], |row| Ok((key_columns(row)?, row.get::<_, Vec<u8>>(10)?)))?;
    for row in found {
        let (columns, hash) = row?;
        let hash: KeyHash = hash.try_into().map_err(|_other| DbFault::Corrupt("a key's hash".to_owned()))?;
        rows.keys.push((hash, key(columns)?));
    }
    let mut query = db.prepare_cached(
        "SELECT tenant, creator FROM api_keys WHERE revoked_ms IS NULL AND expires_ms > ?1
         UNION SELECT tenant, user FROM tree_tokens WHERE expires_ms > ?1",
    )?;
    let found = query.query_map([stored(now_ms)], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    for row in found {
        let (tenant, user) = row?;
        let (tenant, user) = (parse(&tenant)?, parse(&user)?);
        let known = rights(db, &tenant, &user)?;
        rows.makers.push(((tenant, user), known));
    }
    Ok(rows)
}

fn accounts(db: &Connection) -> Result<Vec<DisabledAccount>, DbFault> {
    let mut query = db.prepare_cached("SELECT kind, name, since_ms FROM disabled_accounts ORDER BY kind DESC, name")?;
    let rows =
        query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?)))?;
    rows.map(|row| {
        let (kind, name, since) = row?;
        let kind = kind.parse().map_err(|_other| DbFault::Corrupt("an account's kind".to_owned()))?;
        Ok(DisabledAccount { kind, name: parse(&name)?, disabled_since_ms: loaded(since) })
    })
    .collect()
}

fn note(db: &Connection, subject: &SubjectSeen) -> Result<(), DbFault> {
    if forget::hash(db, &subject.tenant, &subject.user)?.is_some() {
        return Ok(());
    }
    let mut newest = subject.rights.clone();
    if let Some(known) = rights(db, &subject.tenant, &subject.user)? {
        newest.learn(&known);
    }
    db.prepare_cached(
        "INSERT INTO subjects (tenant, user, roles, entitlements, first_ms, last_ms, valid_until_ms, issued_s, region, project)
         VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (tenant, user) DO UPDATE SET roles = excluded.roles, entitlements = excluded.entitlements,
             last_ms = max(last_ms, excluded.last_ms), valid_until_ms = excluded.valid_until_ms,
             issued_s = excluded.issued_s, region = excluded.region, project = excluded.project",
    )?
    .execute(params![
        subject.tenant.as_str(),
        subject.user.as_str(),
        json(&newest.roles)?,
        json(&newest.entitlements)?,
        stored(subject.seen_ms),
        stored(newest.valid_until_ms),
        stored(newest.issued_s),
        newest.region,
        newest.project,
    ])?;
    Ok(())
}

fn subject(db: &Connection, tenant: &TenantId, user: &UserId) -> Result<Option<SubjectKnown>, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT roles, entitlements, region, project, issued_s, valid_until_ms, first_ms, last_ms FROM subjects
         WHERE tenant = ?1 AND user = ?2",
    )?;
    let found = query.query_row(params![tenant.as_str(), user.as_str()], |row| known_columns(row, 0)).optional()?;
    found.flatten().map(known).transpose()
}

/// What the newest token of a user said, if any was ever seen.
pub(super) fn rights(db: &Connection, tenant: &TenantId, user: &UserId) -> Result<Option<Rights>, DbFault> {
    Ok(subject(db, tenant, user)?.map(|known| known.rights))
}

type KnownColumns = (String, String, [Option<String>; 2], [i64; 4]);

/// What is known of a subject, from column `at` on; `None` where nothing is.
fn known_columns(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<KnownColumns>> {
    let Some(roles) = row.get::<_, Option<String>>(at)? else { return Ok(None) };
    let times = [row.get(at + 4)?, row.get(at + 5)?, row.get(at + 6)?, row.get(at + 7)?];
    Ok(Some((roles, row.get(at + 1)?, [row.get(at + 2)?, row.get(at + 3)?], times)))
}

fn known(
    (roles, entitlements, [region, project], [issued, until, first, last]): KnownColumns,
) -> Result<SubjectKnown, DbFault> {
    let rights = Rights {
        issued_s: loaded(issued),
        valid_until_ms: loaded(until),
        roles: from_json(&roles)?,
        entitlements: from_json(&entitlements)?,
        region,
        project,
    };
    Ok(SubjectKnown { rights, first_ms: loaded(first), last_ms: loaded(last) })
}

fn users(
    db: &Connection,
    tenant: &TenantId,
    limit: u32,
    after: Option<&UserId>,
) -> Result<Vec<SubjectRecord>, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT names.user, s.roles, s.entitlements, s.region, s.project, s.issued_s, s.valid_until_ms, s.first_ms, s.last_ms,
                (SELECT min(since_ms) FROM disabled d WHERE d.tenant = ?1 AND d.user = names.user)
         FROM (SELECT user FROM subjects WHERE tenant = ?1
               UNION SELECT user FROM disabled WHERE tenant = ?1 AND user <> '' AND user NOT LIKE '#%') AS names
         LEFT JOIN subjects s ON s.tenant = ?1 AND s.user = names.user
         WHERE (?2 IS NULL OR names.user > ?2) ORDER BY names.user LIMIT ?3",
    )?;
    let columns = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, known_columns(row, 1)?, row.get::<_, Option<i64>>(9)?));
    let rows = query.query_map(params![tenant.as_str(), after.map(UserId::as_str), limit], columns)?;
    rows.map(|row| {
        let (user, seen, disabled) = row?;
        let seen = seen.map(known).transpose()?;
        Ok(SubjectRecord { user: parse(&user)?, seen, disabled_since_ms: disabled.map(loaded) })
    })
    .collect()
}

fn tenants(db: &Connection, limit: u32, after: Option<&TenantId>) -> Result<Vec<TenantRecord>, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT names.tenant, (SELECT count(*) FROM subjects s WHERE s.tenant = names.tenant),
                (SELECT max(last_ms) FROM subjects s WHERE s.tenant = names.tenant),
                (SELECT min(since_ms) FROM disabled d WHERE d.tenant = names.tenant AND d.user = '')
         FROM (SELECT tenant FROM subjects UNION SELECT tenant FROM disabled) AS names
         WHERE (?1 IS NULL OR names.tenant > ?1) ORDER BY names.tenant LIMIT ?2",
    )?;
    let rows = query.query_map(params![after.map(TenantId::as_str), limit], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<i64>>(2)?, row.get(3)?))
    })?;
    rows.map(|row| {
        let (tenant, users, last, disabled): (String, i64, Option<i64>, Option<i64>) = row?;
        Ok(TenantRecord {
            tenant: parse(&tenant)?,
            users: loaded(users),
            last_seen_ms: last.map(loaded),
            disabled_since_ms: disabled.map(loaded),
        })
    })
    .collect()
}

fn disable(
    db: &Connection,
    tenant: &TenantId,
    user: Option<&UserId>,
    authority: &str,
    now_ms: u64,
) -> Result<bool, DbFault> {
    let changed = db
        .prepare_cached(
            "INSERT INTO disabled (tenant, user, authority, since_ms) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        )?
        .execute(params![tenant.as_str(), name(db, tenant, user)?, authority, stored(now_ms)])?;
    Ok(changed == 1)
}

/// Names that nobody has are without end.
fn refuse_too_many(db: &Connection, tenant: &TenantId, but: &UserId) -> Result<(), DbFault> {
    let others: u32 = db
        .prepare_cached(
            "SELECT count(*) FROM disabled WHERE tenant = ?1 AND authority = ?2 AND user <> ?3 AND NOT EXISTS
                 (SELECT 1 FROM subjects WHERE subjects.tenant = disabled.tenant AND subjects.user = disabled.user)",
        )?
        .query_row(params![tenant.as_str(), ADMIN, but.as_str()], |row| row.get(0))?;
    if others < MAX_UNSEEN_DISABLED {
        return Ok(());
    }
    Err(DbError::TooManyDisabled { limit: MAX_UNSEEN_DISABLED }.into())
}

/// Takes back what anybody said.
fn enable(db: &Connection, tenant: &TenantId, user: Option<&UserId>) -> Result<bool, DbFault> {
    let changed = db
        .prepare_cached("DELETE FROM disabled WHERE tenant = ?1 AND user = ?2")?
        .execute(params![tenant.as_str(), name(db, tenant, user)?])?;
    Ok(changed > 0)
}

/// Whether `authority` says so, or anybody.
fn is_disabled(
    db: &Connection,
    tenant: &TenantId,
    user: Option<&UserId>,
    authority: Option<&str>,
) -> Result<bool, DbFault> {
    Ok(db
        .prepare_cached(
            "SELECT 1 FROM disabled WHERE tenant = ?1 AND user = ?2 AND (?3 IS NULL OR authority = ?3) LIMIT 1",
        )?
        .query_row(params![tenant.as_str(), name(db, tenant, user)?, authority], |_row| Ok(()))
        .optional()?
        .is_some())
}

/// Whether a user, or anybody of a tenant, was ever seen. A machine's user is by its keys; who is forgotten was.
fn is_known(db: &Connection, tenant: &TenantId, user: Option<&UserId>) -> Result<bool, DbFault> {
    if let Some(user) = user
        && forget::hash(db, tenant, user)?.is_some()
    {
        return Ok(true);
    }
    let mut find = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM subjects WHERE tenant = ?1 AND (?2 IS NULL OR user = ?2))
             OR EXISTS (SELECT 1 FROM api_keys WHERE tenant = ?1 AND (?2 IS NULL OR user = ?2 OR creator = ?2))
             OR ?2 IS NULL AND EXISTS (SELECT 1 FROM forget_salts WHERE tenant = ?1)",
    )?;
    Ok(find.query_row(params![tenant.as_str(), user.map(UserId::as_str)], |row| row.get(0))?)
}

/// As whom it is in the table. The empty name stands for the tenant as a whole, and a hash for who is forgotten: no user
/// has such a name.
fn name(db: &Connection, tenant: &TenantId, user: Option<&UserId>) -> Result<String, DbFault> {
    let Some(user) = user else { return Ok(String::new()) };
    Ok(forget::hash(db, tenant, user)?.unwrap_or_else(|| user.to_string()))
}

const KEY_COLUMNS: &str = "id, tenant, name, user, creator, grants, created_ms, expires_ms, revoked_ms, last_used_ms";

type KeyColumns = (String, String, String, String, String, String, i64, i64, Option<i64>, Option<i64>);

fn key_columns(row: &Row<'_>) -> rusqlite::Result<KeyColumns> {
    Ok((
        row.get(0)?,
        row.get(1)?,
        row.get(2)?,
        row.get(3)?,
        row.get(4)?,
        row.get(5)?,
        row.get(6)?,
        row.get(7)?,
        row.get(8)?,
        row.get(9)?,
    ))
}

fn key(columns: KeyColumns) -> Result<KeyRecord, DbFault> {
    let (id, tenant, name, user, creator, grants, created, expires, revoked, used) = columns;
    Ok(KeyRecord {
        id: parse(&id)?,
        tenant: parse(&tenant)?,
        name,
        user: parse(&user)?,
        creator: parse(&creator)?,
        grants: from_json(&grants)?,
        created_ms: loaded(created),
        expires_ms: loaded(expires),
        revoked_ms: revoked.map(loaded),
        last_used_ms: used.map(loaded),
    })
}

fn create_key(db: &Connection, tenant: &TenantId, creator: &UserId, new: &NewKey) -> Result<(), DbFault> {
    forget::refuse(db, tenant, creator)?;
    forget::refuse(db, tenant, &new.user)?;
    let held: u32 = db
        .prepare_cached("SELECT count(*) FROM api_keys WHERE tenant = ?1 AND revoked_ms IS NULL AND expires_ms > ?2")?
        .query_row(params![tenant.as_str(), stored(new.created_ms)], |row| row.get(0))?;
    if held >= MAX_KEYS_PER_TENANT {
        return Err(DbError::TooManyKeys { limit: MAX_KEYS_PER_TENANT }.into());
    }
    db.prepare_cached(
        "INSERT INTO api_keys (id, hash, tenant, name, user, creator, grants, created_ms, expires_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        new.id.as_str(),
        new.hash.as_slice(),
        tenant.as_str(),
        new.name,
        new.user.as_str(),
        creator.as_str(),
        json(&new.grants)?,
        stored(new.created_ms),
        stored(new.expires_ms),
    ])?;
    Ok(())
}

fn keys(db: &Connection, tenant: &TenantId, limit: u32, after: Option<&KeyId>) -> Result<Vec<KeyRecord>, DbFault> {
    let mut query = db.prepare_cached(&format!(
        "SELECT {KEY_COLUMNS} FROM api_keys WHERE tenant = ?1 AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3"
    ))?;
    let rows = query.query_map(params![tenant.as_str(), after.map(KeyId::as_str), limit], key_columns)?;
    rows.map(|row| key(row?)).collect()
}

fn json(value: &impl Serialize) -> Result<String, DbFault> {
    serde_json::to_string(value).map_err(|error| DbFault::Corrupt(error.to_string()))
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, DbFault> {
    serde_json::from_str(text).map_err(|error| DbFault::Corrupt(error.to_string()))
}
