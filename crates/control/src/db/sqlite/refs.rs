//! The refs table: compare-and-swap.

use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, RepoId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::forget;
use super::tree_meta::{add_labels, is_protected, user};
use super::worker::{DbFault, parse};
use crate::db::refs::MoveKind;
use crate::db::tree_meta::MAX_BRANCHES;
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
        // INVARIANT: asked in the transaction that moves, so that no move slips by a protection that was answered.
        if step.kind != MoveKind::Promotion && is_protected(db, &step.repo, &step.branch)? {
            return Err(DbError::Protected { branch: step.branch.clone() }.into());
        }
        match &step.to {
            Some(to) => put(db, step, to)?,
            None => remove(db, step)?,
        }
        for row in &step.labels {
            add_labels(db, row)?;
        }
    }
    Ok(())
}

fn put(db: &Connection, step: &RefMove, to: &VersionId) -> Result<(), DbFault> {
    if step.from.is_none() {
        check_room(db, step)?;
    }
    // INVARIANT: no branch leads back to what was purged.
    if super::usage::is_purged(db, &step.repo, to)? {
        return Err(DbError::Purged { version: to.clone() }.into());
    }
    let (tenant, user, branch) = (step.repo.tenant.as_str(), user(&step.repo), step.branch.as_str());
    db.prepare_cached(
        "INSERT INTO refs (tenant, user, branch, version) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (tenant, user, branch) DO UPDATE SET version = excluded.version",
    )?
    .execute(params![tenant, user, branch, to.as_str()])?;
    for by in &step.by {
        if forget::hash(db, &step.repo.tenant, by)?.is_none() {
            db.prepare_cached(
                "INSERT OR IGNORE INTO ref_movers (tenant, user, branch, mover) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![tenant, user, branch, by.as_str()])?;
        }
    }
    for source in &step.movers_of {
        db.prepare_cached(
            "INSERT OR IGNORE INTO ref_movers (tenant, user, branch, mover)
             SELECT tenant, user, ?3, mover FROM ref_movers WHERE tenant = ?1 AND user = ?2 AND branch = ?4",
        )?
        .execute(params![tenant, user, branch, source.as_str()])?;
    }
    Ok(())
}

fn remove(db: &Connection, step: &RefMove) -> Result<(), DbFault> {
    let place = params![step.repo.tenant.as_str(), user(&step.repo), step.branch.as_str()];
    db.prepare_cached("DELETE FROM refs WHERE tenant = ?1 AND user = ?2 AND branch = ?3")?.execute(place)?;
    db.prepare_cached("DELETE FROM ref_movers WHERE tenant = ?1 AND user = ?2 AND branch = ?3")?.execute(place)?;
    Ok(())
}

/// Git keeps `a` and `a/b` in the same place, so that they exclude each other.
fn check_room(db: &Connection, step: &RefMove) -> Result<(), DbFault> {
    let (tenant, user, branch) = (step.repo.tenant.as_str(), user(&step.repo), step.branch.as_str());
    let parents = branch.match_indices('/').filter_map(|(at, _)| branch.get(..at));
    for parent in parents {
        let taken: Option<String> = db
            .prepare_cached("SELECT branch FROM refs WHERE tenant = ?1 AND user = ?2 AND branch = ?3")?
            .query_row(params![tenant, user, parent], |row| row.get(0))
            .optional()?;
        if let Some(taken) = taken {
            return Err(DbError::BranchTaken { branch: step.branch.clone(), by: parse(&taken)? }.into());
        }
    }
    // `0` is the character after `/`.
    let below: Option<String> = db
        .prepare_cached(
            "SELECT branch FROM refs WHERE tenant = ?1 AND user = ?2 AND branch > ?3 || '/' AND branch < ?3 || '0' LIMIT 1",
        )?
        .query_row(params![tenant, user, branch], |row| row.get(0))
        .optional()?;
    if let Some(below) = below {
        return Err(DbError::BranchTaken { branch: step.branch.clone(), by: parse(&below)? }.into());
    }
    if step.kind == MoveKind::Fork {
        let branches: u32 = db
            .prepare_cached("SELECT count(*) FROM (SELECT 1 FROM refs WHERE tenant = ?1 AND user = ?2 LIMIT ?3)")?
            .query_row(params![tenant, user, MAX_BRANCHES], |row| row.get(0))?;
        if branches >= MAX_BRANCHES {
            return Err(DbError::TooMany { what: "branches in one store", most: MAX_BRANCHES }.into());
        }
    }
    Ok(())
}
