//! The tables of storage: quotas, versions that are gone, purges.

use bailey_policy::{OperatorPermit, Principal, PurgePermit};
use bailey_protocol::id::{TenantId, VersionId};
use bailey_protocol::path::{BranchName, RepoId, TreePath};
use bailey_protocol::purge::{Became, PurgeId, PurgeReceipt, PurgeState};
use bailey_protocol::quota::TenantQuota;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::tree_meta::user;
use super::worker::{DbFault, loaded, parse, stored};
use super::{Sqlite, audit, policy, refs, runs};
use crate::audit::Chain;
use crate::db::usage::{Audited, Gone, MAX_BECAME, NewPurge, PendingPurge, UsageDb};
use crate::db::{DbError, DbFuture};

pub(super) const TABLES: &str = include_str!("usage.sql");
pub(super) const PURGED: &str = include_str!("purged.sql");

/// Largest file that is written anew to be rid of what was deleted. It takes as much memory, and writers wait for it.
const MAX_REWRITTEN: i64 = 64 << 20;

impl UsageDb for Sqlite {
    fn quotas(&self) -> DbFuture<'_, Vec<(TenantId, TenantQuota)>> {
        self.reader.call("read the quotas", quotas)
    }

    fn set_quota<'a>(&'a self, permit: &'a OperatorPermit, quota: Option<TenantQuota>) -> DbFuture<'a, ()> {
        let (tenant, who) = (permit.tenant().cloned(), permit.grant().who().to_owned());
        self.writer.call("set a quota", move |db| {
            let tenant = tenant.ok_or_else(|| DbFault::Corrupt("a permit for no tenant".to_owned()))?;
            let Some(quota) = quota else {
                db.prepare_cached("DELETE FROM quotas WHERE tenant = ?1")?.execute([tenant.as_str()])?;
                return Ok(());
            };
            let text = serde_json::to_string(&quota).map_err(|error| DbFault::Corrupt(error.to_string()))?;
            db.prepare_cached(
                "INSERT INTO quotas (tenant, quota, set_by) VALUES (?1, ?2, ?3)
                 ON CONFLICT (tenant) DO UPDATE SET quota = excluded.quota, set_by = excluded.set_by",
            )?
            .execute(params![tenant.as_str(), text, who])?;
            Ok(())
        })
    }

    fn branches_of<'a>(&'a self, repo: &'a RepoId) -> DbFuture<'a, Vec<(BranchName, VersionId)>> {
        let repo = repo.clone();
        self.reader.call("list refs", move |db| refs::heads(db, &repo))
    }

    fn drop_side_branch<'a>(
        &'a self,
        repo: &'a RepoId,
        branch: &'a BranchName,
        head: &'a VersionId,
    ) -> DbFuture<'a, bool> {
        let (repo, branch, head) = (repo.clone(), branch.clone(), head.clone());
        self.writer.call("remove a side branch", move |db| {
            let gone = db
                .prepare_cached(
                    "DELETE FROM refs WHERE tenant = ?1 AND user = ?2 AND branch = ?3 AND version = ?4
                     AND branch LIKE 'runs/%'",
                )?
                .execute(params![repo.tenant.as_str(), user(&repo), branch.as_str(), head.as_str()])?;
            if gone > 0 {
                db.prepare_cached("DELETE FROM ref_movers WHERE tenant = ?1 AND user = ?2 AND branch = ?3")?
                    .execute(params![repo.tenant.as_str(), user(&repo), branch.as_str()])?;
            }
            Ok(gone > 0)
        })
    }

    fn expire_versions<'a>(&'a self, repo: &'a RepoId, versions: Vec<VersionId>) -> DbFuture<'a, ()> {
        let repo = repo.clone();
        self.writer.call("expire versions", move |db| {
            let mut insert = db.prepare_cached(
                "INSERT INTO gone_versions (tenant, user, version) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?;
            for version in &versions {
                insert.execute(params![repo.tenant.as_str(), user(&repo), version.as_str()])?;
            }
            Ok(())
        })
    }

    fn gone<'a>(&'a self, repo: &'a RepoId, version: &'a VersionId) -> DbFuture<'a, Option<Gone>> {
        let (repo, version) = (repo.clone(), version.clone());
        self.reader.call("look for a version", move |db| gone(db, &repo, &version))
    }

    fn stage_purge<'a>(
        &'a self,
        permit: &'a PurgePermit,
        id: &'a PurgeId,
        became: Vec<(VersionId, VersionId)>,
    ) -> DbFuture<'a, ()> {
        let (repo, id) = (NewPurge::repo(permit), id.clone());
        self.writer.call("prepare a purge", move |db| {
            let repo = repo?;
            let mut insert = db.prepare_cached(
                "INSERT INTO purged_versions (tenant, user, version, purge, became) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET became = excluded.became",
            )?;
            for (old, new) in &became {
                insert.execute(params![repo.tenant.as_str(), user(&repo), old.as_str(), id.as_str(), new.as_str()])?;
            }
            Ok(())
        })
    }

    fn forget_staged(&self) -> DbFuture<'_, ()> {
        self.writer.call("forget purges that never began", |db| {
            db.execute("DELETE FROM purged_versions WHERE purge NOT IN (SELECT id FROM purges)", [])?;
            Ok(())
        })
    }

    fn audited<'a>(&'a self, permit: &'a PurgePermit, from: u64) -> DbFuture<'a, Audited> {
        let (repo, path) = (NewPurge::repo(permit), permit.path().clone());
        self.reader.call("look for a path in the audit", move |db| {
            audit::find_path(db, &Chain::Tenant(repo?.tenant), &path, from)
        })
    }

    fn begin_purge<'a>(&'a self, permit: &'a PurgePermit, purge: NewPurge) -> DbFuture<'a, ()> {
        let (repo, path, salts) = (NewPurge::repo(permit), permit.path().clone(), self.salts());
        self.writer.call("purge a path", move |db| {
            let repo = repo?;
            begin(db, &repo, &purge)?;
            forget_labels(db, &repo, path.inner())?;
            policy::forget_decisions(db, &repo.tenant, &path)?;
            runs::forget_mounts(db, &repo.tenant, &path)?;
            audit::forget_path(db, &salts, purge.receipt, &path, &purge.audited)?;
            Ok(())
        })
    }

    fn scrub(&self) -> DbFuture<'_, ()> {
        const SCRUB: &str = "empty the write-ahead log";
        // What is deleted is overwritten (`secure_delete`), but not where rows were moved from before: that goes when the file is
        // written anew. The log keeps all of it until it is emptied.
        self.writer.call_alone(SCRUB, |db| {
            let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            if number("page_count")?.saturating_mul(number("page_size")?) <= MAX_REWRITTEN {
                db.execute_batch("VACUUM")?;
            }
            let busy: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
            if busy == 0 { Ok(()) } else { Err(DbError::Busy { operation: SCRUB }.into()) }
        })
    }

    fn pending_purges(&self) -> DbFuture<'_, Vec<PendingPurge>> {
        self.reader.call("list purges", pending)
    }

    fn finish_purge<'a>(&'a self, id: &'a PurgeId, now_ms: u64) -> DbFuture<'a, ()> {
        let id = id.clone();
        self.writer.call("finish a purge", move |db| {
            db.prepare_cached("UPDATE purges SET done_ms = ?2 WHERE id = ?1 AND done_ms IS NULL")?
                .execute(params![id.as_str(), stored(now_ms)])?;
            Ok(())
        })
    }

    fn purge<'a>(&'a self, principal: &'a Principal, id: &'a PurgeId) -> DbFuture<'a, Option<PurgeReceipt>> {
        let (tenant, id) = (principal.tenant.clone(), id.clone());
        self.reader.call("read a purge", move |db| receipt(db, &tenant, &id))
    }
}

fn quotas(db: &Connection) -> Result<Vec<(TenantId, TenantQuota)>, DbFault> {
    let mut query = db.prepare_cached("SELECT tenant, quota FROM quotas")?;
    let rows = query.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (tenant, quota) = row?;
        let quota = serde_json::from_str(&quota).map_err(|error| DbFault::Corrupt(error.to_string()))?;
        Ok((parse(&tenant)?, quota))
    })
    .collect()
}

pub(super) fn is_purged(db: &Connection, repo: &RepoId, version: &VersionId) -> Result<bool, DbFault> {
    Ok(purged(db, repo, version)?.is_some())
}

fn gone(db: &Connection, repo: &RepoId, version: &VersionId) -> Result<Option<Gone>, DbFault> {
    // Too old does not hide that it was purged as well.
    if let Some(purged) = purged(db, repo, version)? {
        return Ok(Some(purged));
    }
    let expired: Option<()> = db
        .prepare_cached("SELECT 1 FROM gone_versions WHERE tenant = ?1 AND user = ?2 AND version = ?3")?
        .query_row(params![repo.tenant.as_str(), user(repo), version.as_str()], |_row| Ok(()))
        .optional()?;
    Ok(expired.map(|()| Gone { purge: None, became: None }))
}

/// The newest purge that took a version out. One that was prepared and has not begun is none.
fn purged(db: &Connection, repo: &RepoId, version: &VersionId) -> Result<Option<Gone>, DbFault> {
    let row: Option<(String, Option<String>)> = db
        .prepare_cached(
            "SELECT v.purge, v.became FROM purged_versions v JOIN purges p ON p.id = v.purge
             WHERE v.tenant = ?1 AND v.user = ?2 AND v.version = ?3 ORDER BY v.purge DESC LIMIT 1",
        )?
        .query_row(params![repo.tenant.as_str(), user(repo), version.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    row.map(|(purge, became)| {
        Ok(Gone { purge: Some(parse(&purge)?), became: became.as_deref().map(parse).transpose()? })
    })
    .transpose()
}

fn begin(db: &Connection, repo: &RepoId, purge: &NewPurge) -> Result<(), DbFault> {
    let now = refs::heads(db, repo)?;
    for (branch, head) in &now {
        let known = purge.moves.iter().any(|(moved, from, _)| moved == branch && from == head);
        if !known {
            return Err(DbError::RefMoved { branch: branch.clone(), head: Some(head.clone()) }.into());
        }
    }
    if let Some((branch, ..)) = purge.moves.iter().find(|(branch, ..)| !now.iter().any(|(here, _)| here == branch)) {
        return Err(DbError::RefMoved { branch: branch.clone(), head: None }.into());
    }
    let (tenant, user) = (repo.tenant.as_str(), user(repo));
    for (branch, _, to) in &purge.moves {
        db.prepare_cached("UPDATE refs SET version = ?4 WHERE tenant = ?1 AND user = ?2 AND branch = ?3")?
            .execute(params![tenant, user, branch.as_str(), to.as_str()])?;
    }
    db.prepare_cached(
        "INSERT INTO purges (id, tenant, user, path_sha256, asked_by_sha256, asked_ms, versions)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        purge.id.as_str(),
        tenant,
        user,
        purge.path_sha256,
        purge.asked_by_sha256,
        stored(purge.asked_ms),
        i64::try_from(purge.versions).unwrap_or(i64::MAX),
    ])?;
    Ok(())
}

fn forget_labels(db: &Connection, repo: &RepoId, inner: &str) -> Result<(), DbFault> {
    db.prepare_cached(
        "DELETE FROM labels WHERE tenant = ?1 AND user = ?2
         AND (path = ?3 OR substr(path, 1, length(?3) + 1) = ?3 || '/')",
    )?
    .execute(params![repo.tenant.as_str(), user(repo), inner])?;
    Ok(())
}

fn pending(db: &Connection) -> Result<Vec<PendingPurge>, DbFault> {
    let mut query = db.prepare_cached("SELECT id, tenant, user FROM purges WHERE done_ms IS NULL ORDER BY id")?;
    let rows = query
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)))?;
    let mut versions = db.prepare_cached("SELECT version FROM purged_versions WHERE purge = ?1")?;
    rows.map(|row| {
        let (id, tenant, user) = row?;
        let old = versions.query_map([&id], |row| row.get::<_, String>(0))?;
        let versions = old.map(|old| parse(&old?)).collect::<Result<_, DbFault>>()?;
        Ok(PendingPurge { id: parse(&id)?, repo: repo(&tenant, &user)?, versions })
    })
    .collect()
}

fn receipt(db: &Connection, tenant: &TenantId, id: &PurgeId) -> Result<Option<PurgeReceipt>, DbFault> {
    let row = db
        .prepare_cached(
            "SELECT user, path_sha256, asked_by_sha256, asked_ms, done_ms, versions FROM purges
             WHERE id = ?1 AND tenant = ?2",
        )?
        .query_row(params![id.as_str(), tenant.as_str()], |row| {
            let user: String = row.get(0)?;
            let (path, who): (String, String) = (row.get(1)?, row.get(2)?);
            let (asked, done): (i64, Option<i64>) = (row.get(3)?, row.get(4)?);
            Ok((user, path, who, asked, done, row.get::<_, i64>(5)?))
        })
        .optional()?;
    let Some((user, path_sha256, asked_by_sha256, asked, done, versions)) = row else {
        return Ok(None);
    };
    let mut query = db.prepare_cached(
        "SELECT version, became FROM purged_versions WHERE purge = ?1 AND became IS NOT NULL LIMIT ?2",
    )?;
    let limit = i64::try_from(MAX_BECAME).unwrap_or(i64::MAX);
    let rows =
        query.query_map(params![id.as_str(), limit], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let became = rows.map(|row| {
        let (old, new) = row?;
        Ok(Became { old: parse(&old)?, new: parse(&new)? })
    });
    Ok(Some(PurgeReceipt {
        id: id.clone(),
        store: root(tenant.as_str(), &user)?,
        path_sha256,
        asked_by_sha256,
        salt: None,
        asked_ms: loaded(asked),
        done_ms: done.map(loaded),
        state: if done.is_some() { PurgeState::Done } else { PurgeState::Removing },
        versions: loaded(versions),
        became: became.collect::<Result<_, DbFault>>()?,
    }))
}

fn repo(tenant: &str, user: &str) -> Result<RepoId, DbFault> {
    let user = if user.is_empty() { None } else { Some(parse(user)?) };
    Ok(RepoId { tenant: parse(tenant)?, user })
}

fn root(tenant: &str, user: &str) -> Result<TreePath, DbFault> {
    if user.is_empty() {
        parse(&format!("/tenants/{tenant}"))
    } else {
        parse(&format!("/tenants/{tenant}/users/{user}"))
    }
}
