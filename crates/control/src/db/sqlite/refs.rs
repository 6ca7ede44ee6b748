//! The refs table: compare-and-swap.

use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, RepoId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::worker::{DbFault, parse};
use crate::db::{DbError, RefMove};

pub(super) fn head(db: &Connection, repo: &RepoId, branch: &BranchName) -> Result<Option<VersionId>, DbFault> {
    let version: Option<String> = db
        .prepare_cached("SELECT version FROM refs WHERE tenant = ?1 AND user = ?2 AND branch = ?3")?
        .query_row(params![repo.tenant.as_str(), user(repo), branch.as_str()], |row| row.get(0))
        .optional()?;
    version.as_deref().map(parse).transpose()
}

pub(super) fn heads(db: &Connection, repo: &RepoId) -> Result<Vec<(BranchName, VersionId)>, DbFault> {
    let mut query =
        db.prepare_cached("SELECT branch, version FROM refs WHERE tenant = ?1 AND user = ?2 ORDER BY branch")?;
    let rows = query.query_map(params![repo.tenant.as_str(), user(repo)], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    rows.map(|row| {
        let (branch, version) = row?;
        Ok((parse(&branch)?, parse(&version)?))
    })
    .collect()
}

pub(super) fn apply(db: &Connection, moves: &[RefMove]) -> Result<(), DbFault> {
    for step in moves {
        let now = head(db, &step.repo, &step.branch)?;
        if now != step.from {
            return Err(DbError::RefMoved { branch: step.branch.clone(), head: now }.into());
        }
        db.prepare_cached(
            "INSERT INTO refs (tenant, user, branch, version) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (tenant, user, branch) DO UPDATE SET version = excluded.version",
        )?
        .execute(params![
            step.repo.tenant.as_str(),
            user(&step.repo),
            step.branch.as_str(),
            step.to.as_str()
        ])?;
    }
    Ok(())
}

fn user(repo: &RepoId) -> &str {
    repo.user.as_ref().map_or("", |user| user.as_str())
}
