//! Protections, labels and baselines.

use std::collections::BTreeSet;

use bailey_policy::{ForeignStore, LabelPermit, OperatorPermit, ProtectPermit, SharePermit, StoreScope};
use bailey_protocol::api::{BaselineInfo, ShareMode};
use bailey_protocol::id::{BaselineName, TokenId, UserId, VersionId};
use bailey_protocol::label::Label;
use bailey_protocol::path::{BranchName, RepoId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::worker::{DbFault, loaded, parse, stored};
use super::{Sqlite, forget, identity, refs};
use crate::db::tree_meta::{
    BaselineRow, LabelRow, MAX_LABELLED, MAX_TREE_TOKENS, ProtectionRow, TokenScope, TreeDb, TreeMetaRows,
    TreeTokenRow, TreeTokensHeld,
};
use crate::db::{DbError, DbFuture, Rights};

pub(super) const TABLES: &str = "
-- user is '' for the tenant's own store, here as in refs
CREATE TABLE ref_movers (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    branch TEXT NOT NULL,
    mover TEXT NOT NULL,
    PRIMARY KEY (tenant, user, branch, mover)
) STRICT, WITHOUT ROWID;

CREATE TABLE protections (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    branch TEXT NOT NULL,
    review INTEGER NOT NULL,
    by_user TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, user, branch)
) STRICT, WITHOUT ROWID;

-- path is '' for the root of the store
CREATE TABLE labels (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    path TEXT NOT NULL,
    label TEXT NOT NULL,
    PRIMARY KEY (tenant, user, path, label)
) STRICT, WITHOUT ROWID;

CREATE TABLE tree_tokens (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    path TEXT NOT NULL,
    writes INTEGER NOT NULL,
    grants TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tree_tokens_by_user ON tree_tokens (tenant, user);

CREATE TABLE baselines (
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    version TEXT NOT NULL,
    by_operator TEXT NOT NULL,
    published_ms INTEGER NOT NULL,
    PRIMARY KEY (name, number)
) STRICT, WITHOUT ROWID;
";

impl TreeDb for Sqlite {
    fn tree_meta(&self) -> DbFuture<'_, TreeMetaRows> {
        self.reader.call("read labels and protections", |db| {
            Ok(TreeMetaRows { protections: protections(db)?, labels: labels(db)? })
        })
    }

    fn protect<'a>(
        &'a self,
        permit: &'a ProtectPermit,
        review: bool,
        now_ms: u64,
    ) -> DbFuture<'a, Option<ProtectionRow>> {
        let row = place(permit.scope()).map(|repo| ProtectionRow {
            repo,
            branch: permit.branch().clone(),
            review,
            by: permit.user().to_string(),
            since_ms: now_ms,
        });
        self.writer.call("protect a branch", move |db| {
            let row = row?;
            if row.branch != BranchName::main() && refs::head(db, &row.repo, &row.branch)?.is_none() {
                return Ok(None);
            }
            db.prepare_cached(
                "INSERT INTO protections (tenant, user, branch, review, by_user, since_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (tenant, user, branch) DO UPDATE
                 SET review = excluded.review, by_user = excluded.by_user, since_ms = excluded.since_ms",
            )?
            .execute(params![
                row.repo.tenant.as_str(),
                user(&row.repo),
                row.branch.as_str(),
                row.review,
                row.by,
                stored(row.since_ms)
            ])?;
            Ok(Some(row))
        })
    }

    fn unprotect<'a>(&'a self, permit: &'a ProtectPermit) -> DbFuture<'a, bool> {
        let (repo, branch) = (place(permit.scope()), permit.branch().clone());
        self.writer.call("end a protection", move |db| {
            let repo = repo?;
            let gone = db
                .prepare_cached("DELETE FROM protections WHERE tenant = ?1 AND user = ?2 AND branch = ?3")?
                .execute(params![repo.tenant.as_str(), user(&repo), branch.as_str()])?;
            Ok(gone > 0)
        })
    }

    fn movers<'a>(&'a self, scope: &'a StoreScope, branch: &'a BranchName) -> DbFuture<'a, Vec<UserId>> {
        let (repo, branch) = (scope.repo().clone(), branch.clone());
        self.reader.call("read who moved a branch", move |db| {
            let mut query = db.prepare_cached(
                "SELECT mover FROM ref_movers WHERE tenant = ?1 AND user = ?2 AND branch = ?3 ORDER BY mover",
            )?;
            let rows = query.query_map(params![repo.tenant.as_str(), user(&repo), branch.as_str()], |row| {
                row.get::<_, String>(0)
            })?;
            rows.map(|row| parse(&row?)).collect()
        })
    }

    fn set_labels<'a>(&'a self, permit: &'a LabelPermit, labels: &'a BTreeSet<Label>) -> DbFuture<'a, ()> {
        let row = place(permit.scope()).map(|repo| LabelRow {
            repo,
            inner: permit.path().inner().to_owned(),
            labels: labels.clone(),
        });
        self.writer.call("label a path", move |db| {
            let row = row?;
            let (tenant, user) = (row.repo.tenant.as_str(), user(&row.repo));
            db.prepare_cached("DELETE FROM labels WHERE tenant = ?1 AND user = ?2 AND path = ?3")?
                .execute(params![tenant, user, row.inner])?;
            add_labels(db, &row)?;
            let paths: u32 = db
                .prepare_cached("SELECT count(DISTINCT path) FROM labels WHERE tenant = ?1 AND user = ?2")?
                .query_row(params![tenant, user], |row| row.get(0))?;
            if !row.labels.is_empty() && paths > MAX_LABELLED {
                return Err(DbError::TooMany { what: "labelled paths in one store", most: MAX_LABELLED }.into());
            }
            Ok(())
        })
    }

    fn publish_baseline<'a>(
        &'a self,
        permit: &'a OperatorPermit,
        name: &'a BaselineName,
        version: &'a VersionId,
        now_ms: u64,
    ) -> DbFuture<'a, BaselineInfo> {
        let (who, name, version) = (permit.grant().who().to_owned(), name.clone(), version.clone());
        self.writer.call("publish a baseline", move |db| {
            let number: u32 = db
                .prepare_cached("SELECT coalesce(max(number), 0) + 1 FROM baselines WHERE name = ?1")?
                .query_row([name.as_str()], |row| row.get(0))?;
            db.prepare_cached(
                "INSERT INTO baselines (name, number, version, by_operator, published_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![name.as_str(), number, version.as_str(), who, stored(now_ms)])?;
            Ok(BaselineInfo { name, number, published_ms: now_ms })
        })
    }

    fn create_tree_token<'a>(
        &'a self,
        permit: &'a SharePermit,
        hash: [u8; 32],
        token: TreeTokenRow,
    ) -> DbFuture<'a, Option<Rights>> {
        let own = place(permit.scope()).map(|_own| (permit.tenant().clone(), permit.user().clone()));
        let path = permit.path().clone();
        self.writer.call("make a tree token", move |db| {
            let (tenant, user) = own?;
            forget::refuse(db, &tenant, &user)?;
            let known = identity::rights(db, &tenant, &user)?;
            let (tenant, user) = (tenant.as_str(), user.as_str());
            db.prepare_cached("DELETE FROM tree_tokens WHERE tenant = ?1 AND expires_ms <= ?2")?
                .execute(params![tenant, stored(token.created_ms)])?;
            let grants = serde_json::to_string(&token.grants).map_err(|error| DbFault::Corrupt(error.to_string()))?;
            db.prepare_cached(
                "INSERT INTO tree_tokens (id, hash, tenant, user, path, writes, grants, created_ms, expires_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                token.id.as_str(),
                hash,
                tenant,
                user,
                path.as_str(),
                token.mode == ShareMode::Write,
                grants,
                stored(token.created_ms),
                stored(token.expires_ms)
            ])?;
            let held: u32 = db
                .prepare_cached("SELECT count(*) FROM tree_tokens WHERE tenant = ?1 AND user = ?2")?
                .query_row(params![tenant, user], |row| row.get(0))?;
            if held > MAX_TREE_TOKENS {
                return Err(DbError::TooMany { what: "tree tokens of yours", most: MAX_TREE_TOKENS }.into());
            }
            Ok(known)
        })
    }

    fn revoke_tree_token<'a>(&'a self, scope: &'a TokenScope, id: &'a TokenId) -> DbFuture<'a, bool> {
        let (tenant, user, id) = (scope.tenant().clone(), scope.user().clone(), id.clone());
        self.writer.call("revoke a tree token", move |db| {
            let gone = db
                .prepare_cached("DELETE FROM tree_tokens WHERE id = ?1 AND tenant = ?2 AND user = ?3")?
                .execute(params![id.as_str(), tenant.as_str(), user.as_str()])?;
            Ok(gone > 0)
        })
    }

    fn tree_tokens(&self, now_ms: u64) -> DbFuture<'_, TreeTokensHeld> {
        self.reader.call("read tree tokens", move |db| tokens(db, now_ms))
    }

    fn baselines(&self) -> DbFuture<'_, Vec<BaselineRow>> {
        self.reader.call("list baselines", |db| {
            let mut query = db.prepare_cached(
                "SELECT name, number, version, published_ms FROM baselines ORDER BY name, number DESC",
            )?;
            let rows = query.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get(3)?))
            })?;
            rows.map(|row| {
                let (name, number, version, published_ms) = row?;
                let info = BaselineInfo { name: parse(&name)?, number, published_ms: loaded(published_ms) };
                Ok(BaselineRow { info, version: parse(&version)? })
            })
            .collect()
        })
    }
}

fn tokens(db: &Connection, now_ms: u64) -> Result<TreeTokensHeld, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT hash, id, tenant, user, path, writes, grants, created_ms, expires_ms FROM tree_tokens
         WHERE expires_ms > ?1",
    )?;
    let mut rows = query.query([stored(now_ms)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let token = TreeTokenRow {
            id: parse(&row.get::<_, String>(1)?)?,
            tenant: parse(&row.get::<_, String>(2)?)?,
            user: parse(&row.get::<_, String>(3)?)?,
            path: parse(&row.get::<_, String>(4)?)?,
            mode: if row.get(5)? { ShareMode::Write } else { ShareMode::Read },
            grants: from_json(&row.get::<_, String>(6)?)?,
            created_ms: loaded(row.get(7)?),
            expires_ms: loaded(row.get(8)?),
        };
        found.push((row.get(0)?, token));
    }
    Ok(found)
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, DbFault> {
    serde_json::from_str(text).map_err(|error| DbFault::Corrupt(error.to_string()))
}

/// Adds labels to a path, whatever it has.
pub(super) fn add_labels(db: &Connection, row: &LabelRow) -> Result<(), DbFault> {
    let mut add =
        db.prepare_cached("INSERT OR IGNORE INTO labels (tenant, user, path, label) VALUES (?1, ?2, ?3, ?4)")?;
    for label in &row.labels {
        add.execute(params![row.repo.tenant.as_str(), user(&row.repo), row.inner, label.as_str()])?;
    }
    Ok(())
}

pub(super) fn is_protected(db: &Connection, repo: &RepoId, branch: &BranchName) -> Result<bool, DbFault> {
    let found: Option<i64> = db
        .prepare_cached("SELECT 1 FROM protections WHERE tenant = ?1 AND user = ?2 AND branch = ?3")?
        .query_row(params![repo.tenant.as_str(), user(repo), branch.as_str()], |row| row.get(0))
        .optional()?;
    Ok(found.is_some())
}

fn protections(db: &Connection) -> Result<Vec<ProtectionRow>, DbFault> {
    let mut query = db.prepare_cached(
        "SELECT tenant, user, branch, review, by_user, since_ms FROM protections ORDER BY tenant, user, branch",
    )?;
    let mut rows = query.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(ProtectionRow {
            repo: repo(row)?,
            branch: parse(&row.get::<_, String>(2)?)?,
            review: row.get(3)?,
            by: row.get(4)?,
            since_ms: loaded(row.get(5)?),
        });
    }
    Ok(found)
}

fn labels(db: &Connection) -> Result<Vec<LabelRow>, DbFault> {
    let mut query = db.prepare_cached("SELECT tenant, user, path, label FROM labels ORDER BY tenant, user, path")?;
    let mut rows = query.query([])?;
    let mut found: Vec<LabelRow> = Vec::new();
    while let Some(row) = rows.next()? {
        let (repo, inner): (_, String) = (repo(row)?, row.get(2)?);
        let label: Label = parse(&row.get::<_, String>(3)?)?;
        match found.last_mut().filter(|last| last.repo == repo && last.inner == inner) {
            Some(last) => drop(last.labels.insert(label)),
            None => found.push(LabelRow { repo, inner, labels: [label].into() }),
        }
    }
    Ok(found)
}

fn repo(row: &rusqlite::Row<'_>) -> Result<RepoId, DbFault> {
    let user: String = row.get(1)?;
    let user = if user.is_empty() { None } else { Some(parse(&user)?) };
    Ok(RepoId { tenant: parse(&row.get::<_, String>(0)?)?, user })
}

/// The store of a permit. What is not the principal's is refused here as everywhere.
fn place(scope: Result<StoreScope, ForeignStore>) -> Result<RepoId, DbError> {
    scope.map(|scope| scope.repo().clone()).map_err(|foreign| DbError::Foreign { path: foreign.path })
}

pub(super) fn user(repo: &RepoId) -> &str {
    repo.user.as_ref().map_or("", |user| user.as_str())
}
