//! A push: stock git unpacks it beside the store, in a sandbox; the tree takes the objects in as hostile input; then
//! all its refs move together, by compare-and-swap, or none.
//!
//! ```text
//! decide ─▶ read commands ─▶ judge each ─▶ unpack (sandbox) ─▶ take in (tree) ─▶ lock: heads as told?
//!          fast-forward? ─▶ publish ─▶ unlock: look for credentials ─▶ lock: judge anew ─▶ move refs
//! ```
//!
//! No version is ever lost by a push: what is no fast-forward is refused, on every branch, forced or not.

mod refusals;
mod unpack;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::PoisonError;

use bailey_policy::{Denied, ForeignStore, ForkPermit, Grant, PathWritePermit, WriteAction};
use bailey_protocol::id::VersionId;
use bailey_protocol::label::Label;
use bailey_protocol::path::{BranchName, Revision, TreePath, text_of};
use bailey_tree::{Grown, Pushed, TakenOver};

use super::below::{self, Below, MAX_STEPS};
use super::branches;
use super::entering::{Looked, Shaped};
use super::git::{self, Access};
use super::labels::Labelled;
use super::{landing, upkeep};
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::db::{DbError, LabelRow, RefMove};
use crate::git::advertise::Service;
use crate::git::push::{self, Command, PushRequest, Report};
use crate::threads::blocking;
use refusals::{moved, not_understood, protected, taken, with_policies};
use unpack::{drain, unpack};

/// Most changed paths of a branch in which empty folders are looked for.
const MAX_LOOKED_AT: usize = 20_000;
/// Most merges of which is found out what they took over. Of others every path is asked about.
const MAX_MERGES: usize = 100;
/// Most lines about what is shaped like a credential.
const MAX_WARNINGS: usize = 20;

/// The bytes of a request, from a thread that may block.
pub type Source = Box<dyn Read + Send>;

/// One branch that is to move.
#[derive(Debug)]
struct Move {
    branch: BranchName,
    from: Option<VersionId>,
    to: VersionId,
    write: PathWritePermit,
    /// Where the branch is new.
    fork: Option<ForkPermit>,
}

impl Move {
    fn ref_move(&self) -> Result<RefMove, ForeignStore> {
        match &self.fork {
            Some(fork) => RefMove::fork(fork, self.to.clone()),
            None => RefMove::new(&self.write, self.from.clone(), self.to.clone()),
        }
    }

    fn grants(&self) -> impl Iterator<Item = &Grant> {
        [self.write.grant()].into_iter().chain(self.fork.as_ref().map(ForkPermit::grant))
    }
}

/// Answers a `git-receive-pack` request.
///
/// CANCEL: what came whole goes on, and onto the audit.
///
/// # Errors
/// When it is denied, not understood, or there is no room for git. What is refused of an understood push is in the
/// answer.
pub async fn push(control: &Control, caller: &Caller, repo: &TreePath, source: Source) -> Result<Vec<u8>, ApiError> {
    let access = git::open(control, caller, repo, Service::Push).await?;
    let hold = control.hold_drain()?;
    let (owner, caller, repo) = (control.clone(), caller.clone(), repo.clone());
    let task = async move {
        let _hold = hold;
        let pushed = carry_out(&owner, &caller, &repo, &access, source).await;
        let (outcome, answer) = match pushed {
            Ok((report, answer)) if report.is_refusal() => ("refused", Ok(answer)),
            Ok((_, answer)) => ("ok", Ok(answer)),
            Err(error) => (error.code, Err(error)),
        };
        owner.audit(&caller, access.grants(), outcome).await?;
        answer
    };
    control.own(task).await.map_err(ApiError::internal)?
}

async fn carry_out(
    control: &Control,
    caller: &Caller,
    repo: &TreePath,
    access: &Access,
    source: Source,
) -> Result<(Report, Vec<u8>), ApiError> {
    let (request, source) = blocking(control.threads(), move || push::parse(source).map_err(not_understood)).await?;
    if request.commands.is_empty() {
        // Git asks so whether its credential is good.
        return Ok((Report::moved(&[]), Vec::new()));
    }
    if let [command @ Command { to: None, .. }] = &*request.commands {
        let report = delete(control, caller, repo, access, command).await?;
        let answer = report.encode(&request);
        return Ok((report, answer));
    }
    let report = match judge(control, caller, repo, access, &request.commands).await? {
        Err(reasons) => {
            drain(control, source).await?;
            Report::refused(&request.commands, &reasons)
        }
        Ok(moves) => take(control, caller, repo, access, &request, moves, source).await?,
    };
    let answer = report.encode(&request);
    Ok((report, answer))
}

/// The moves that the commands ask for, or why some cannot be made.
async fn judge(
    control: &Control,
    caller: &Caller,
    repo: &TreePath,
    access: &Access,
    commands: &[Command],
) -> Result<Result<Vec<Move>, Vec<(usize, String)>>, ApiError> {
    let (mut moves, mut reasons) = (Vec::new(), Vec::new());
    for (number, command) in commands.iter().enumerate() {
        match judge_one(control, caller, repo, access, command).await {
            Ok(Ok(one)) => moves.push(one),
            Ok(Err(reason)) => reasons.push((number, reason)),
            Err(error) if error.kind == ErrorKind::Denied => {
                reasons.push((number, with_policies(error.to_string(), &error.policies)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(if reasons.is_empty() { Ok(moves) } else { Err(reasons) })
}

async fn judge_one(
    control: &Control,
    caller: &Caller,
    repo: &TreePath,
    access: &Access,
    command: &Command,
) -> Result<Result<Move, String>, ApiError> {
    let branch = match command.branch() {
        Ok(branch) => branch,
        Err(reason) => return Ok(Err(reason)),
    };
    let Some(to) = command.to.clone() else {
        return Ok(Err("a branch is deleted in a push of its own".to_owned()));
    };
    if command.from.is_none()
        && let Err(error) = branches::check_name(&branch)
    {
        return Ok(Err(error.message));
    }
    let facts = control.path_facts(caller, repo, Some(&branch));
    if facts.protected {
        return Ok(Err(protected(&branch)));
    }
    let write = control.may_write(caller, WriteAction::Write, repo, &branch).await?;
    let fork = if command.from.is_none() && branch != BranchName::main() {
        let asked = control.judge(caller).await?.fork(&facts, &branch, &Revision::Version(to.clone()));
        Some(control.permit(caller, asked).await?)
    } else {
        None
    };
    if let Some(other) = access.heads.iter().map(|(head, _)| head).find(|head| one_holds_the_other(head, &branch)) {
        return Ok(Err(taken(&branch, other)));
    }
    Ok(Ok(Move { branch, from: command.from.clone(), to, write, fork }))
}

/// Takes the one branch away that the push names.
async fn delete(
    control: &Control,
    caller: &Caller,
    repo: &TreePath,
    access: &Access,
    command: &Command,
) -> Result<Report, ApiError> {
    let commands = std::slice::from_ref(command);
    let refused = |reason: String| Ok(Report::refused(commands, &[(0, reason)]));
    let branch = match command.branch() {
        Ok(branch) => branch,
        Err(reason) => return refused(reason),
    };
    if access.heads.iter().find(|(head, _)| *head == branch).map(|(_, version)| version) != command.from.as_ref() {
        return refused(moved(&branch));
    }
    match branches::delete(control, caller, repo.clone(), branch).await {
        Ok(()) => Ok(Report::moved(commands)),
        Err(error) if matches!(error.kind, ErrorKind::Internal | ErrorKind::Unavailable) => Err(error),
        Err(error) => refused(error.to_string()),
    }
}

/// Git keeps `a` and `a/b` in the same place.
fn one_holds_the_other(a: &BranchName, b: &BranchName) -> bool {
    let within = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    within(a.as_str(), b.as_str()) || within(b.as_str(), a.as_str())
}

/// Takes the objects in and moves the branches.
async fn take(
    control: &Control,
    caller: &Caller,
    repo: &TreePath,
    access: &Access,
    request: &PushRequest,
    moves: Vec<Move>,
    source: Source,
) -> Result<Report, ApiError> {
    let tips = moves.iter().map(|one| one.to.clone()).collect();
    let pushed = match unpack(control, access, tips, source).await? {
        Ok(pushed) => pushed,
        Err(reason) => return Ok(Report::not_unpacked(&request.commands, &reason)),
    };
    tracing::debug!(request = %caller.request, objects = pushed.objects(), bytes = pushed.bytes(), "push unpacked");
    let landing = Landing {
        control: control.clone(),
        caller: caller.clone(),
        root: repo.clone(),
        store: access.store.clone(),
        moves,
    };
    let commands = request.commands.clone();
    control
        .changes()
        .finish(&caller.principal.tenant, move || {
            Ok(match landing.land(pushed)? {
                Ok(mut notices) => {
                    notices.extend(landing.notices());
                    Report { notices, ..Report::moved(&commands) }
                }
                Err(reasons) => Report::refused(&commands, &reasons),
            })
        })
        .await
}

/// A push whose objects were found sound.
struct Landing {
    control: Control,
    caller: Caller,
    root: TreePath,
    store: bailey_tree::Store,
    moves: Vec<Move>,
}

/// What differs between two versions of a push.
struct Change {
    /// The place of its ref in the push.
    number: usize,
    to: VersionId,
    from: Option<VersionId>,
    /// Has looked at it.
    below: Below,
}

/// What is shaped like a credential, for people: each file and rule once.
fn warnings(changes: &[Change]) -> Vec<String> {
    let found: BTreeSet<String> =
        changes.iter().flat_map(|change| change.below.shaped()).flat_map(Shaped::warnings).collect();
    let more = found.len().saturating_sub(MAX_WARNINGS);
    let mut told: Vec<_> = found.into_iter().take(MAX_WARNINGS).map(|warning| format!("bailey: {warning}")).collect();
    if more > 0 {
        told.push(format!("bailey: and {more} more that are shaped like a credential"));
    }
    told
}

/// That a path got labels, for people.
fn labelled(row: &LabelRow) -> String {
    let labels = row.labels.iter().map(Label::as_str).collect::<Vec<_>>().join(", ");
    if row.inner.is_empty() {
        return format!(
            "bailey: the push is too large to find what is labelled in it, so the whole store is: {labels}"
        );
    }
    format!("bailey: `{}` holds content that is labelled, and is so too now: {labels}", row.inner)
}

/// Refs that cannot move, by their place in the push, and why.
type Reasons = Vec<(usize, String)>;

impl Landing {
    /// Makes the objects visible and moves all branches, or says which cannot; on success, what was found in them. Blocks.
    fn land(&self, mut pushed: Pushed) -> Result<Result<Vec<String>, Reasons>, ApiError> {
        let lock = self.control.locks().of(self.store.id());
        let commits = {
            let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let reasons = self.against_heads(&mut pushed)?;
            if !reasons.is_empty() {
                return Ok(Err(reasons));
            }
            let new = pushed.commits();
            pushed.publish()?;
            self.unlanded(&new)?
        };
        // Reads the content: others may write meanwhile. A head that moves then is found when the refs are to move.
        let changes = self.look(&commits)?;
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.control.still_stands(&self.caller)?;
        let mut reasons = self.against_purges()?;
        let mut labels = Vec::new();
        if reasons.is_empty() {
            labels = self.labels(&changes)?;
            reasons = self.against_policy(&changes)?;
        }
        if !reasons.is_empty() {
            return Ok(Err(reasons));
        }
        // All that may have taken its time.
        self.control.still_stands(&self.caller)?;
        let mut told = warnings(&changes);
        told.extend(labels.iter().take(MAX_WARNINGS).map(labelled));
        let mut ref_moves = self.moves.iter().map(Move::ref_move).collect::<Result<Vec<_>, _>>()?;
        if let Some(first) = ref_moves.first_mut() {
            first.labels = labels;
        }
        let move_refs = |moves| self.control.wait(self.control.db().move_refs(moves));
        match landing::move_refs(&self.control, ref_moves, &move_refs) {
            Ok(()) => {}
            Err(DbError::RefMoved { branch, .. }) => return Ok(Err(self.at(&branch, &moved(&branch)))),
            Err(DbError::Protected { branch }) => return Ok(Err(self.at(&branch, &protected(&branch)))),
            Err(DbError::BranchTaken { branch, by }) => return Ok(Err(self.at(&branch, &taken(&branch, &by)))),
            Err(error) => return Err(error.into()),
        }
        let grants = self.moves.iter().flat_map(Move::grants);
        self.control.wait(self.control.audit(&self.caller, grants, "ok"))?;
        if let Some(one) = self.moves.first() {
            landing::publish_store(&self.control, &one.write.scope()?, &self.store);
        }
        Ok(Ok(told))
    }

    /// The labels that content takes along to other paths: of what is labelled in a version that the push changes, or on
    /// `main`.
    fn labels(&self, changes: &[Change]) -> Result<Vec<LabelRow>, ApiError> {
        let mut labelled = Labelled::of(&self.control, &self.root);
        let main = self.main()?;
        for version in changes.iter().filter_map(|change| change.from.as_ref()).chain(&main) {
            labelled.learn(&self.store, version)?;
        }
        // Each version comes once for each branch that it is pushed to.
        let changes: BTreeSet<_> = changes.iter().map(|change| (change.from.as_ref(), &change.to)).collect();
        for change in changes {
            labelled.follow(&self.control, &self.root, &self.store, change)?;
        }
        Ok(labelled.rows(&self.control, &self.store))
    }

    /// Where `main` is, if anywhere.
    fn main(&self) -> Result<Option<VersionId>, ApiError> {
        let heads = upkeep::branches(&self.control, self.store.id())?;
        Ok(heads.into_iter().find_map(|(branch, head)| (branch == BranchName::main()).then_some(head)))
    }

    /// Why branches are not where the client thinks, or would lose versions.
    fn against_heads(&self, pushed: &mut Pushed) -> Result<Reasons, ApiError> {
        let mut reasons = Vec::new();
        for (number, one) in self.moves.iter().enumerate() {
            let head = self.control.wait(self.control.db().resolve(&one.write.scope()?))?;
            if head != one.from {
                reasons.push((number, moved(&one.branch)));
            } else if let Some(head) = head
                && !pushed.descends(&one.to, &head)?
            {
                let reason = "not a fast-forward, and no push takes versions off a branch: fetch and merge first";
                reasons.push((number, reason.to_owned()));
            }
        }
        Ok(reasons)
    }

    /// What leads back to what was purged since the objects were taken in.
    fn against_purges(&self) -> Result<Reasons, ApiError> {
        let mut reasons = Vec::new();
        for (number, one) in self.moves.iter().enumerate() {
            if self.store.current(&one.to)? != one.to {
                reasons.push((number, "a purge has gone over what it grew from: fetch first".to_owned()));
            }
        }
        Ok(reasons)
    }

    /// Each version that no branch leads to yet, whether it came now or with a push that was refused.
    fn unlanded(&self, new: &[Grown]) -> Result<Vec<Grown>, ApiError> {
        let heads = upkeep::branches(&self.control, self.store.id())?;
        let heads: Vec<VersionId> = heads.into_iter().map(|(_, head)| head).collect();
        let tips: Vec<VersionId> = self.moves.iter().map(|one| one.to.clone()).collect();
        Ok(self.store.unlanded(&heads, &tips, new)?)
    }

    /// Every change that is judged, with what it brings that is shaped like a credential: of each branch that is there from
    /// head to head, and of each new version by itself.
    fn look(&self, commits: &[Grown]) -> Result<Vec<Change>, ApiError> {
        let mut looked = Looked::default();
        let mut look = |(to, from): &Grown| -> Result<Below, ApiError> {
            let below = Below::writes_and_deletes(&self.caller, vec![self.root.clone()]);
            below.look_among(&self.store, from.as_ref(), to, &mut looked)?;
            Ok(below)
        };
        let commits = commits.iter().map(|commit| Ok((commit, look(commit)?))).collect::<Result<Vec<_>, ApiError>>()?;
        let mut changes = Vec::new();
        for (number, one) in self.moves.iter().enumerate() {
            let whole = (one.to.clone(), one.from.clone());
            // A new branch changes what its versions change that no branch had, back to the nearest that one had.
            if one.from.is_some() && !commits.iter().any(|(commit, _)| **commit == whole) {
                changes.push(Change { number, below: look(&whole)?, to: whole.0, from: whole.1 });
            }
            let commit = |((to, from), below): &(&(VersionId, Option<VersionId>), Below)| Change {
                number,
                to: to.clone(),
                from: from.clone(),
                below: below.clone(),
            };
            changes.extend(commits.iter().map(commit));
        }
        Ok(changes)
    }

    /// Why policy, as it is now, does not allow the push as one that holds what was found in it, a branch to be made, or a
    /// path to change. What a merge takes over as it is from `main` or from the branch itself was judged there, whoever was
    /// allowed to write it.
    fn against_policy(&self, changes: &[Change]) -> Result<Reasons, ApiError> {
        if let Some(denied) = self.against_push(changes)? {
            let reason = with_policies(denied.to_string(), &denied.policies);
            return Ok((0..self.moves.len()).map(|number| (number, reason.clone())).collect());
        }
        let mut reasons = self.against_forks()?;
        let main = self.main()?;
        let (mut merges, steps_left) = (0, Cell::new(MAX_STEPS));
        for Change { number, to, from, below } in changes {
            if reasons.iter().any(|(refused, _)| refused == number) {
                continue;
            }
            let Some(one) = self.moves.get(*number) else { continue };
            let judged: Vec<&VersionId> = main.iter().chain(&one.from).collect();
            let taken =
                from.as_ref().filter(|_| merges < MAX_MERGES).and_then(|from| self.taken_over(from, to, &judged));
            merges += usize::from(taken.is_some());
            let change = (from.as_ref(), to);
            let taken = taken.as_ref();
            let refusal =
                below.refusal_of_merge(&self.control, &one.branch, &self.store, change, taken, &steps_left)?;
            if let Some(refusal) = refusal {
                reasons.push((*number, with_policies(refusal.denied.to_string(), &refusal.denied.policies)));
            }
        }
        Ok(reasons)
    }

    /// Nothing where that cannot be found out: then all of it is asked about.
    fn taken_over(&self, from: &VersionId, to: &VersionId, judged: &[&VersionId]) -> Option<TakenOver<'_>> {
        self.store.taken_over(from, to, judged).unwrap_or_else(|error| {
            tracing::debug!(%error, "what a merge took over is not known");
            None
        })
    }

    /// Why the push may not enter, or not with what was found in it. It is on the audit.
    fn against_push(&self, changes: &[Change]) -> Result<Option<Denied>, ApiError> {
        let shaped = changes.iter().flat_map(|change| change.below.shaped());
        let rules: BTreeSet<&str> = shaped.flat_map(|shaped| shaped.findings.iter().map(|one| one.rule)).collect();
        let judge = self.control.wait(self.control.judge(&self.caller))?.holding(rules);
        let facts = self.control.path_facts(&self.caller, &self.root, None);
        let denied = judge.push(&facts).err();
        below::record(&self.control, &self.caller, denied.as_slice());
        Ok(denied)
    }

    /// Why branches may not be made. It is on the audit.
    fn against_forks(&self) -> Result<Reasons, ApiError> {
        let judge = self.control.wait(self.control.judge(&self.caller))?;
        let refusal = |one: &Move| {
            let facts = self.control.path_facts(&self.caller, &self.root, Some(&one.branch));
            judge.fork(&facts, &one.branch, &Revision::Version(one.to.clone())).err()
        };
        let made = self.moves.iter().enumerate().filter(|(_, one)| one.fork.is_some());
        let (refused, denied): (Vec<usize>, Vec<Denied>) = made.filter_map(|(n, one)| Some((n, refusal(one)?))).unzip();
        below::record(&self.control, &self.caller, &denied);
        let reasons = denied.iter().map(|denied| with_policies(denied.to_string(), &denied.policies));
        Ok(refused.into_iter().zip(reasons).collect())
    }

    fn at(&self, branch: &BranchName, reason: &str) -> Reasons {
        let here = |(number, one): (usize, &Move)| (one.branch == *branch).then(|| (number, reason.to_owned()));
        self.moves.iter().enumerate().filter_map(here).collect()
    }

    /// Git keeps no empty folder, so a clone that is pushed back loses them: that is said of those that are among the first
    /// changes. Nothing is locked meanwhile.
    fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        for one in &self.moves {
            let Some(from) = &one.from else { continue };
            let (mut lost, mut left) = (Vec::new(), MAX_LOOKED_AT);
            let walked = self.store.changed_paths(Some(from), &one.to, "", &mut |inner, now| {
                let path = Some(text_of(inner)).filter(|_| now.is_none());
                let empty = path.filter(|path| {
                    matches!(self.store.subtree(Some(from), path), Ok(Some(tree)) if tree == bailey_tree::empty_tree())
                });
                lost.extend(empty.map(Cow::into_owned));
                left -= 1;
                if lost.len() < 10 && left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if walked.is_ok() && !lost.is_empty() {
                let branch = &one.branch;
                notices.push(format!("bailey: git keeps no empty folders, so `{branch}` lost: {}", lost.join(", ")));
            }
        }
        notices
    }
}
