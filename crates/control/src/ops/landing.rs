//! How new versions get onto their branches: by compare-and-swap, by merge where the branch has moved, and onto the
//! run's side branch where it has moved over the same paths.
//!
//! ```text
//! lock stores ─▶ read heads ─▶ moved? ─no──────────────────────▶ commit all refs in one transaction ─▶ publish
//!                                │yes                              ▲            │ moved again: read heads
//!                                └─▶ merge ─no overlap─────────────┤            ▼
//!                                        └─overlap─▶ side branch ──┘
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bailey_crash::Point;
use bailey_policy::{PathWritePermit, StoreScope};
use bailey_protocol::api::CommitOutcome;
use bailey_protocol::id::{RunId, VersionId};
use bailey_protocol::label::Label;
use bailey_protocol::path::{BranchName, RepoId, text_of};
use bailey_tree::{CommitMeta, Hides, Merge, Store};

use super::below::Below;
use super::labels::Carried;
use super::unseen::Unseen;
use crate::api_error::{ApiError, ErrorKind, mapping};
use crate::control::{Caller, Control};
use crate::db::{DbError, LabelRow, RefMove};

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
    /// Labels that come with the change.
    pub(super) labels: Carried,
    /// For a merge.
    pub(super) meta: CommitMeta,
}

impl Work {
    /// The same, as it is after purges that were made meanwhile.
    fn current(&self) -> Result<Self, ApiError> {
        let base = self.base.as_ref().map(|base| self.store.current(base)).transpose()?;
        let made = self.made.iter().map(|made| self.store.current(made)).collect::<Result<_, _>>()?;
        let (permit, below) = (Arc::clone(&self.permit), self.below.clone());
        let labels = self.labels.clone();
        Ok(Self { permit, store: self.store.clone(), base, made, below, labels, meta: self.meta.clone() })
    }
}

/// Where it got to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Landed {
    pub(super) branch: BranchName,
    pub(super) version: VersionId,
    pub(super) outcome: CommitOutcome,
    pub(super) reason: Option<String>,
    pub(super) conflicts: Vec<String>,
    /// What changed has these, too.
    pub(super) labels: BTreeSet<Label>,
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
/// When nothing could be moved, or the caller's rights are over: then nothing was.
pub(super) fn land(
    control: &Control,
    caller: &Caller,
    work: &[Work],
    on_conflict: OnConflict<'_>,
    check: HeadCheck<'_>,
    commit: Commit<'_>,
) -> Result<Vec<Landed>, ApiError> {
    if work.is_empty() {
        return Ok(Vec::new());
    }
    for piece in work {
        if let (Some(below), Some(to)) = (&piece.below, piece.made.last()) {
            below.look(&piece.store, piece.base.as_ref(), to)?;
        }
    }
    let locks = locks(control, work);
    let _held: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner)).collect();
    let work = &work.iter().map(Work::current).collect::<Result<Vec<_>, _>>()?;
    for _round in 0..MAX_ROUNDS {
        control.still_stands(caller)?;
        let mut plans = Vec::with_capacity(work.len());
        for piece in work {
            let head = control.wait(control.db().resolve(&piece.permit.scope()?))?;
            check(&piece.store, head.as_ref())?;
            plans.push(plan(control, piece, head, on_conflict)?);
        }
        let (moves, landed): (Vec<_>, Vec<_>) = plans.into_iter().map(|plan| (plan.ref_move, plan.landed)).unzip();
        let moves: Vec<RefMove> = moves.into_iter().flatten().collect();
        match move_refs(control, moves, &|moves| commit(&landed, moves)) {
            Ok(()) => {
                publish(control, work);
                bailey_crash::point(Point::RefsPublished);
                return Ok(landed);
            }
            Err(DbError::RefMoved { .. }) => {}
            // Protected since it was planned: whoever did that has the turn until memory knows it, too.
            Err(DbError::Protected { .. }) => drop(control.wait(control.meta_turn())),
            Err(error) => return Err(error.into()),
        }
    }
    let message = "the branch kept moving";
    Err(ApiError::new(ErrorKind::Conflict, "branch_moved", message, "Read again, then write again."))
}

/// Moves refs by `commit`, with the labels that come along known to all that see where the branches are. Blocks.
pub(super) fn move_refs(
    control: &Control,
    moves: Vec<RefMove>,
    commit: &dyn Fn(Vec<RefMove>) -> Result<(), DbError>,
) -> Result<(), DbError> {
    let labels: Vec<LabelRow> = moves.iter().flat_map(|step| step.labels.iter().cloned()).collect();
    let _turn = if labels.is_empty() { None } else { Some(control.wait(control.meta_turn())) };
    // INVARIANT: whoever sees where the branch is from here on waits for the turn before it is looked at without them.
    let _coming = control.tree_meta().coming(&labels);
    commit(moves)?;
    control.tree_meta().add_labels(&labels);
    Ok(())
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
        CommitOutcome::Merged => match merge(control, piece, head.as_ref())? {
            Ok(merged) => merged,
            Err(conflicts) => return overlapping(control, piece, last, conflicts, on_conflict),
        },
        CommitOutcome::Committed | CommitOutcome::SideBranch => last.clone(),
    };
    if control.tree_meta().protection(piece.store.id(), piece.permit.branch()).is_some() {
        return match on_conflict {
            OnConflict::Refuse => Err(mapping::protected(piece.permit.branch())),
            OnConflict::SideBranch(run) => {
                let branch = piece.permit.branch();
                aside(control, piece, last, run, format!("branch `{branch}` is protected"), Vec::new())
            }
        };
    }
    // INVARIANT: what is asked about is what the branch would become, not what was planned on an older head.
    if let Some(below) = &piece.below
        && let Some(refusal) = below.refusal(control, piece.permit.branch(), &piece.store, head.as_ref(), &to)?
    {
        return match on_conflict {
            OnConflict::Refuse => Err(refusal.denied.into()),
            OnConflict::SideBranch(run) => aside(control, piece, last, run, refusal.reason(), refusal.paths),
        };
    }
    // The same content again moves nothing.
    let moved = head.as_ref() != Some(&to);
    let ref_move = if moved {
        let labels = piece.labels.rows(control, &piece.store, piece.base.as_ref(), last)?;
        Some(RefMove::new(&piece.permit, head, to.clone())?.with_labels(labels))
    } else {
        None
    };
    let branch = piece.permit.branch().clone();
    Ok(Plan {
        ref_move,
        landed: Landed {
            branch,
            version: to,
            outcome,
            reason: None,
            conflicts: Vec::new(),
            labels: piece.labels.labels(),
        },
    })
}

/// Merges each version in turn, as each tells only what it changed itself.
fn merge(
    control: &Control,
    piece: &Work,
    head: Option<&VersionId>,
) -> Result<Result<VersionId, Vec<String>>, ApiError> {
    let (store, branch) = (&piece.store, piece.permit.branch());
    let unseen = match &piece.below {
        Some(below) => Unseen::of(control, below.caller(), store.id(), branch)?,
        None => None,
    };
    let hides = |inner: &[u8]| unseen.as_ref().is_some_and(|unseen| unseen.hides(inner));
    let hidden = unseen.as_ref().map(|_| &hides as &Hides<'_>);
    if let Some(below) = &piece.below {
        // What a version puts as it was before is no change of its own, which must not be told either.
        let mut moved = Vec::new();
        for inner in below.puts().iter() {
            let inner = text_of(inner);
            if store.entry(head, &inner)? != store.entry(piece.base.as_ref(), &inner)? {
                moved.push(inner.into_owned());
            }
        }
        if !moved.is_empty() {
            return Ok(Err(moved));
        }
    }
    let mut onto = head.cloned();
    for made in &piece.made {
        match store.merge_unseen(onto.as_ref(), made, hidden, &piece.meta)? {
            Merge::Merged(merged) => onto = Some(merged),
            Merge::Conflict(conflicts) => return Ok(Err(conflicts)),
        }
    }
    onto.map(Ok).ok_or_else(|| ApiError::internal("work without a version"))
}

/// What happens to work whose paths were changed on the branch as well.
fn overlapping(
    control: &Control,
    piece: &Work,
    last: &VersionId,
    conflicts: Vec<String>,
    on_conflict: OnConflict<'_>,
) -> Result<Plan, ApiError> {
    match on_conflict {
        // What else was changed below it is not for everybody to see.
        OnConflict::Refuse => Err(ApiError::new(
            ErrorKind::Conflict,
            "path_changed",
            format!("`{}`, or something below it, was changed at the same time", piece.permit.path()),
            "Read it again, then write again.",
        )),
        OnConflict::SideBranch(run) => {
            let branch = piece.permit.branch();
            let reason = format!("branch `{branch}` moved while the run was going, over the same paths");
            aside(control, piece, last, run, reason, conflicts)
        }
    }
}

/// Keeps work on the run's side branch.
fn aside(
    control: &Control,
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
    let labels = piece.labels.rows(control, &piece.store, piece.base.as_ref(), last)?;
    Ok(Plan {
        ref_move: Some(RefMove::side_branch(&piece.permit, run, None, last.clone())?.with_labels(labels)),
        landed: Landed {
            branch: BranchName::of_run(run),
            version: last.clone(),
            outcome: CommitOutcome::SideBranch,
            reason: Some(reason),
            conflicts,
            labels: piece.labels.labels(),
        },
    })
}

/// Those of `sources` whose content nobody but its makers has looked at: who moved them goes along with it. What a
/// branch that wants a review holds has been reviewed.
pub(super) fn unreviewed(
    control: &Control,
    repo: &RepoId,
    sources: impl IntoIterator<Item = BranchName>,
) -> Vec<BranchName> {
    let reviewed = |branch: &BranchName| control.tree_meta().protection(repo, branch).is_some_and(|now| now.review);
    let sources: Vec<BranchName> = sources.into_iter().collect();
    if sources.iter().any(reviewed) { Vec::new() } else { sources }
}

/// The locks of all stores, in one order for everybody.
fn locks(control: &Control, work: &[Work]) -> Vec<Arc<Mutex<()>>> {
    let mut repos: Vec<&RepoId> = work.iter().map(|piece| piece.store.id()).collect();
    repos.sort_unstable();
    repos.dedup();
    repos.into_iter().map(|repo| control.locks().of(repo)).collect()
}

fn publish(control: &Control, work: &[Work]) {
    for piece in work {
        match piece.permit.scope() {
            Ok(scope) => publish_store(control, &scope, &piece.store),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "refs not published for git"),
        }
    }
}

/// Shows stock git where the branches are. The database has moved already, so a failure here is repaired by the next
/// commit and is not the caller's. The store's lock is held. Blocks.
pub(super) fn publish_store(control: &Control, scope: &StoreScope, store: &Store) {
    let heads = control.wait(control.db().heads(scope)).map_err(ApiError::from);
    if let Err(error) = heads.and_then(|heads| Ok(store.publish_refs(&heads)?)) {
        tracing::warn!(%error, cause = error.cause_chain(), "refs not published for git");
    }
}
