//! The tenant_policies and decisions tables.

use std::collections::BTreeMap;
use std::path::Path;

use bailey_policy::{AdminPermit, OperatorPermit};
use bailey_protocol::id::TenantId;
use bailey_protocol::path::TreePath;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Sqlite;
use super::worker::{DbFault, loaded, parse, stored};
use crate::db::policy::{DECISION_MS, DecisionSeen, MAX_DECISIONS, MAX_DECISIONS_PER_TENANT, PolicyDb};
use crate::db::{DbError, DbFuture};

pub(super) const TABLES: &str = "
CREATE TABLE tenant_policies (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    policy TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- What was decided in the last day: equal requests are one row.
CREATE TABLE decisions (
    tenant TEXT NOT NULL,
    hash INTEGER NOT NULL,
    request TEXT NOT NULL,
    count INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX decisions_by_age ON decisions (tenant, last_ms);
";

/// Which of the operator's policies tenants were told of: one row.
pub(super) const TOLD: &str = "
CREATE TABLE told_policies (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    hash TEXT NOT NULL
) STRICT;
";

impl PolicyDb for Sqlite {
    fn told_policies(&self) -> DbFuture<'_, Option<String>> {
        self.reader.call("read which policies were told", |db| {
            Ok(db.query_row("SELECT hash FROM told_policies", [], |row| row.get(0)).optional()?)
        })
    }

    fn note_told_policies<'a>(&'a self, hash: &'a str) -> DbFuture<'a, ()> {
        let hash = hash.to_owned();
        self.writer.call("note which policies were told", move |db| {
            db.execute("INSERT OR REPLACE INTO told_policies (id, hash) VALUES (1, ?1)", [hash])?;
            Ok(())
        })
    }

    fn policies_of<'a>(&'a self, tenant: &'a TenantId) -> DbFuture<'a, Vec<(String, String)>> {
        let tenant = tenant.clone();
        self.reader.call("read a tenant's policies", move |db| {
            let mut query =
                db.prepare_cached("SELECT name, policy FROM tenant_policies WHERE tenant = ?1 ORDER BY name")?;
            let rows = query.query_map([tenant.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    fn put_policy<'a>(&'a self, permit: &'a AdminPermit, name: &'a str, text: &'a str) -> DbFuture<'a, ()> {
        let (tenant, name, text) = (permit.tenant().clone(), name.to_owned(), text.to_owned());
        self.writer.call("keep a tenant's policy", move |db| {
            let mut change = db.prepare_cached(
                "INSERT INTO tenant_policies (tenant, name, policy) VALUES (?1, ?2, ?3)
                 ON CONFLICT (tenant, name) DO UPDATE SET policy = excluded.policy",
            )?;
            change.execute(params![tenant.as_str(), name, text])?;
            Ok(())
        })
    }

    fn delete_policy<'a>(&'a self, permit: &'a AdminPermit, name: &'a str) -> DbFuture<'a, bool> {
        let (tenant, name) = (permit.tenant().clone(), name.to_owned());
        self.writer.call("delete a tenant's policy", move |db| {
            let mut change = db.prepare_cached("DELETE FROM tenant_policies WHERE tenant = ?1 AND name = ?2")?;
            Ok(change.execute(params![tenant.as_str(), name])? > 0)
        })
    }

    fn note_decisions(&self, seen: Vec<DecisionSeen>, now_ms: u64) -> DbFuture<'_, ()> {
        self.writer.call("note what was decided", move |db| {
            for decision in &seen {
                note(db, decision)?;
            }
            let old = stored(now_ms.saturating_sub(DECISION_MS));
            db.prepare_cached("DELETE FROM decisions WHERE last_ms < ?1")?.execute([old])?;
            let mut trim = db.prepare_cached(
                "DELETE FROM decisions WHERE tenant = ?1 AND hash IN
                 (SELECT hash FROM decisions WHERE tenant = ?1 ORDER BY last_ms DESC LIMIT -1 OFFSET ?2)",
            )?;
            let mut tenants: Vec<_> = seen.iter().map(|decision| decision.tenant.as_str()).collect();
            tenants.sort_unstable();
            tenants.dedup();
            for tenant in tenants {
                trim.execute(params![tenant, MAX_DECISIONS_PER_TENANT])?;
            }
            Ok(())
        })
    }

    fn decisions<'a>(&'a self, _permit: &'a OperatorPermit, since_ms: u64) -> DbFuture<'a, Vec<DecisionSeen>> {
        self.reader.call("read what was decided", move |db| decisions_within(db, stored(since_ms), MAX_DECISIONS))
    }
}

/// The latest of each tenant, some `most` together.
fn decisions_within(db: &Connection, since_ms: i64, most: u32) -> Result<Vec<DecisionSeen>, DbFault> {
    let tenants = tenants_with_decisions(db)?;
    let each = most / u32::try_from(tenants.len()).unwrap_or(u32::MAX).max(1);
    let mut found = Vec::new();
    for tenant in tenants {
        found.extend(latest(db, &tenant, since_ms, each.max(1))?);
    }
    Ok(found)
}

/// One look at the index for each, however many decisions they have.
fn tenants_with_decisions(db: &Connection) -> Result<Vec<String>, DbFault> {
    let mut next = db.prepare_cached("SELECT min(tenant) FROM decisions WHERE tenant > ?1")?;
    let mut tenants = Vec::new();
    loop {
        let last = tenants.last().map_or("", String::as_str);
        match next.query_row([last], |row| row.get::<_, Option<String>>(0))? {
            Some(tenant) => tenants.push(tenant),
            None => return Ok(tenants),
        }
    }
}

fn latest(db: &Connection, tenant: &str, since_ms: i64, most: u32) -> Result<Vec<DecisionSeen>, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT hash, request, count, last_ms FROM decisions WHERE tenant = ?1 AND last_ms >= ?2
         ORDER BY last_ms DESC LIMIT ?3",
    )?;
    let columns = |row: &rusqlite::Row<'_>| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
    };
    let rows = query.query_map(params![tenant, since_ms, most], columns)?;
    rows.map(|row| {
        let (hash, request, count, last_ms) = row?;
        let request = serde_json::from_str(&request).map_err(|error| DbFault::Corrupt(error.to_string()))?;
        let (tenant, hash) = (parse(tenant)?, hash.cast_unsigned());
        Ok(DecisionSeen { tenant, hash, request, count: loaded(count), last_ms: loaded(last_ms) })
    })
    .collect()
}

/// Forgets the requests of a tenant in which a path is named, or one that begins so: a dry run then knows less.
pub(super) fn forget_decisions(db: &Connection, tenant: &TenantId, path: &TreePath) -> Result<(), DbFault> {
    let quoted = serde_json::to_string(path.as_str()).map_err(|error| DbFault::Corrupt(error.to_string()))?;
    db.prepare_cached("DELETE FROM decisions WHERE tenant = ?1 AND instr(request, ?2) > 0")?
        .execute(params![tenant.as_str(), quoted.trim_end_matches('"').trim_start_matches('"')])?;
    Ok(())
}

fn note(db: &Connection, seen: &DecisionSeen) -> Result<(), DbFault> {
    let request = serde_json::to_string(&seen.request).map_err(|error| DbFault::Corrupt(error.to_string()))?;
    db.prepare_cached(
        "INSERT INTO decisions (tenant, hash, request, count, last_ms) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (tenant, hash) DO UPDATE SET count = count + excluded.count, last_ms = excluded.last_ms",
    )?
    .execute(params![
        seen.tenant.as_str(),
        seen.hash.cast_signed(),
        request,
        stored(seen.count),
        stored(seen.last_ms)
    ])?;
    Ok(())
}

/// Policies' texts by name.
type NamedPolicies = Vec<(String, String)>;

/// Every tenant's own policies, from a database that a server may have open.
///
/// # Errors
/// When it cannot be read.
pub fn tenant_policies(file: &Path) -> Result<Vec<(TenantId, NamedPolicies)>, DbError> {
    let db = super::schema::open_reader(file)?;
    let failed = |error: rusqlite::Error| super::worker::storage("read tenants' policies", error);
    let mut query =
        db.prepare("SELECT tenant, name, policy FROM tenant_policies ORDER BY tenant, name").map_err(failed)?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(failed)?;
    let mut all: BTreeMap<String, NamedPolicies> = BTreeMap::new();
    for row in rows {
        let (tenant, name, policy): (String, String, String) = row.map_err(failed)?;
        all.entry(tenant).or_default().push((name, policy));
    }
    // What is no tenant was not written by us; it is nobody's.
    Ok(all.into_iter().filter_map(|(tenant, policies)| Some((tenant.parse().ok()?, policies))).collect())
}

#[cfg(test)]
mod tests {
    use bailey_policy::{PathFacts, Policies, Principal, ReadAction};
    use bailey_protocol::path::{BranchName, Revision};
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_tenant_has_an_equal_share_of_what_a_dry_run_looks_at() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(TABLES).unwrap();
        let request = std::sync::Arc::new(Mutex::new(None));
        let (ana, asked) = (Principal::new("acme".parse().unwrap(), "ana".parse().unwrap()), request.clone());
        let judge = Policies::new(&[]).unwrap().judge(&ana, 0);
        let judge = judge.before(std::sync::Arc::new(move |one| *asked.lock().unwrap() = Some(one.clone())));
        let path = PathFacts::plain("/tenants/acme/x".parse().unwrap());
        judge.read_path(ReadAction::Read, &path, &Revision::Branch(BranchName::main())).unwrap();
        let request = request.lock().unwrap().take().unwrap();
        for (tenant, many) in [("aaa-flood", 100), ("middle", 2), ("zzz", 7)] {
            for n in 1..=many {
                let (tenant, request) = (tenant.parse().unwrap(), request.clone());
                note(&db, &DecisionSeen { tenant, hash: n, request, count: 1, last_ms: n }).unwrap();
            }
        }
        let found = |since: i64, most: u32| -> Vec<(String, u64)> {
            let found = decisions_within(&db, since, most).unwrap();
            found.iter().map(|one| (one.tenant.to_string(), one.last_ms)).collect()
        };
        let count = |rows: &[(String, u64)], tenant: &str| rows.iter().filter(|row| row.0 == tenant).count();
        let rows = found(0, 15);
        assert_eq!(["aaa-flood", "middle", "zzz"].map(|tenant| count(&rows, tenant)), [5, 2, 5]);
        assert_eq!(rows.first(), Some(&("aaa-flood".to_owned(), 100)), "the latest");
        assert_eq!(found(7, 15).len(), 5 + 1);
        assert_eq!(found(0, 0).len(), 3, "one each");
    }
}
