//! How new versions get onto their branches: by compare-and-swap, by merge where the branch has moved, and onto the
//! run's side branch where it has moved over the same paths.
//!
//! ```text
//! lock stores ─▶ read heads ─▶ moved? ─no──────────────────────▶ commit all refs in one transaction ─▶ publish
//!                                │yes                              ▲            │ moved again: read heads
//!                                └─▶ merge ─no overlap─────────────┤            ▼
//!                                        └─overlap─▶ side branch ──┘
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use bailey_policy::PathWritePermit;
use bailey_protocol::api::CommitOutcome;
use bailey_protocol::id::{RunId, VersionId};
use bailey_protocol::path::{BranchName, RepoId};
use bailey_tree::{CommitMeta, Merge, Store};
use tokio::runtime::Handle;

use super::below::Below;
use crate::api_error::{ApiError, ErrorKind};
use crate::control::Control;
use crate::db::{DbError, RefMove};

/// Rounds after which a branch that keeps moving is left alone. With the store's lock held nobody but another server
/// on the same database could move it.
const MAX_ROUNDS: usize = 8;

/// Most conflicts that one piece of work tells.
const MAX_CONFLICTS: usize = 100;
/// Most bytes of them, so that the last event's line holds those of every mount.
const MAX_CONFLICT_BYTES: usize = 16 * 1024;

/// Versions that wait to get onto their branch.
#[derive(Debug)]
pub(super) struct Work {
    /// Allows the branch to move.
    pub(super) permit: Arc<PathWritePermit>,
    pub(super) store: Store,
    /// What the first grew from.
    pub(super) base: Option<VersionId>,
    /// Each grew from the one before. Not empty.
    pub(super) made: Vec<VersionId>,
    /// Asked about each path that would change on the branch, where the permit does not cover them all.
    pub(super) below: Option<Below>,
    /// For a merge.
    pub(super) meta: CommitMeta,
}

/// Where it got to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Landed {
    pub(super) branch: BranchName,
    pub(super) version: VersionId,
    pub(super) outcome: CommitOutcome,
    pub(super) reason: Option<String>,
    pub(super) conflicts: Vec<String>,
}

/// What to do with work whose paths somebody else changed meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) enum OnConflict<'a> {
    /// Keep it on the run's side branch.
    SideBranch(&'a RunId),
    /// Change nothing and say so.
    Refuse,
}

/// Checks the heads that work would land on, under the lock, before anything moves.
pub(super) type HeadCheck<'a> = &'a dyn Fn(&Store, Option<&VersionId>) -> Result<(), ApiError>;

/// Moves refs in one transaction, together with whatever else is to be true once they have moved. Blocks.
pub(super) type Commit<'a> = &'a dyn Fn(&[Landed], Vec<RefMove>) -> Result<(), DbError>;

/// Lands all of `work` by one `commit`. At most one piece per store. Blocks.
///
/// # Errors
/// When nothing could be moved: then nothing was.
pub(super) fn land(
    control: &Control,
    work: &[Work],
    on_conflict: OnConflict<'_>,
    check: HeadCheck<'_>,
    commit: Commit<'_>,
) -> Result<Vec<Landed>, ApiError> {
    if work.is_empty() {
        return Ok(Vec::new());
    }
    let locks = locks(control, work);
    let _held: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner)).collect();
    let runtime = Handle::current();
    for _round in 0..MAX_ROUNDS {
        let mut plans = Vec::with_capacity(work.len());
        for piece in work {
            let head = runtime.block_on(control.db().resolve(&piece.permit.scope()?))?;
            check(&piece.store, head.as_ref())?;
            plans.push(plan(control, piece, head, on_conflict)?);
        }
        let (moves, landed): (Vec<_>, Vec<_>) = plans.into_iter().map(|plan| (plan.ref_move, plan.landed)).unzip();
        match commit(&landed, moves.into_iter().flatten().collect()) {
            Ok(()) => {
                publish(control, work, &runtime);
                return Ok(landed);
            }
            Err(DbError::RefMoved { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let message = "the branch kept moving";
    Err(ApiError::new(ErrorKind::Conflict, "branch_moved", message, "Read again, then write again."))
}

struct Plan {
    ref_move: Option<RefMove>,
    landed: Landed,
}

fn plan(
    control: &Control,
    piece: &Work,
    head: Option<VersionId>,
    on_conflict: OnConflict<'_>,
) -> Result<Plan, ApiError> {
    let last = piece.made.last().ok_or_else(|| ApiError::internal("work without a version"))?;
    let outcome = if head == piece.base { CommitOutcome::Committed } else { CommitOutcome::Merged };
    let to = match outcome {
        CommitOutcome::Merged => match merge(piece, head.as_ref())? {
            Ok(merged) => merged,
            Err(conflicts) => return overlapping(piece, last, conflicts, on_conflict),
        },
        CommitOutcome::Committed | CommitOutcome::SideBranch => last.clone(),
    };
    // INVARIANT: what is asked about is what the branch would become, not what was planned on an older head.
    if let Some(below) = &piece.below
        && let Some(refusal) = below.refusal(control, &piece.permit, &piece.store, head.as_ref(), &to)?
    {
        return match on_conflict {
            OnConflict::Refuse => Err(refusal.denied.into()),
            OnConflict::SideBranch(run) => aside(piece, last, run, refusal.reason(), refusal.paths),
        };
    }
    // The same content again moves nothing.
    let moved = head.as_ref() != Some(&to);
    let ref_move = if moved { Some(RefMove::new(&piece.permit, head, to.clone())?) } else { None };
    let branch = piece.permit.branch().clone();
    Ok(Plan { ref_move, landed: Landed { branch, version: to, outcome, reason: None, conflicts: Vec::new() } })
}

/// Merges each version in turn, as each tells only what it changed itself.
fn merge(piece: &Work, head: Option<&VersionId>) -> Result<Result<VersionId, Vec<String>>, ApiError> {
    let mut onto = head.cloned();
    for made in &piece.made {
        match piece.store.merge(onto.as_ref(), made, &piece.meta)? {
            Merge::Merged(merged) => onto = Some(merged),
            Merge::Conflict(conflicts) => return Ok(Err(conflicts)),
        }
    }
    onto.map(Ok).ok_or_else(|| ApiError::internal("work without a version"))
}

/// What happens to work whose paths were changed on the branch as well.
fn overlapping(
    piece: &Work,
    last: &VersionId,
    conflicts: Vec<String>,
    on_conflict: OnConflict<'_>,
) -> Result<Plan, ApiError> {
    match on_conflict {
        OnConflict::Refuse => Err(ApiError::new(
            ErrorKind::Conflict,
            "path_changed",
            "the same path was changed at the same time",
            "Read it again, then write again.",
        )),
        OnConflict::SideBranch(run) => {
            let branch = piece.permit.branch();
            let reason = format!("branch `{branch}` moved while the run was going, over the same paths");
            aside(piece, last, run, reason, conflicts)
        }
    }
}

/// Keeps work on the run's side branch.
fn aside(
    piece: &Work,
    last: &VersionId,
    run: &RunId,
    reason: String,
    mut conflicts: Vec<String>,
) -> Result<Plan, ApiError> {
    let mut bytes = 0;
    let told = conflicts.iter().take(MAX_CONFLICTS).take_while(|path| {
        bytes += path.len();
        bytes <= MAX_CONFLICT_BYTES
    });
    conflicts.truncate(told.count());
    Ok(Plan {
        ref_move: Some(RefMove::side_branch(&piece.permit, run, None, last.clone())?),
        landed: Landed {
            branch: BranchName::of_run(run),
            version: last.clone(),
            outcome: CommitOutcome::SideBranch,
            reason: Some(reason),
            conflicts,
        },
    })
}

/// The locks of all stores, in one order for everybody.
fn locks(control: &Control, work: &[Work]) -> Vec<Arc<Mutex<()>>> {
    let mut repos: Vec<&RepoId> = work.iter().map(|piece| piece.store.id()).collect();
    repos.sort_unstable();
    repos.dedup();
    repos.into_iter().map(|repo| control.locks().of(repo)).collect()
}

/// Shows stock git where the branches are. The database has moved already, so a failure here is repaired by the next
/// commit and is not the caller's.
fn publish(control: &Control, work: &[Work], runtime: &Handle) {
    for piece in work {
        let published = piece.permit.scope().map_err(ApiError::from).and_then(|scope| {
            let heads = runtime.block_on(control.db().heads(&scope))?;
            Ok(piece.store.publish_refs(&heads)?)
        });
        if let Err(error) = published {
            tracing::warn!(%error, cause = error.cause_chain(), "refs not published for git");
        }
    }
}
