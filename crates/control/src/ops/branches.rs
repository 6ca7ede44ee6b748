//! Branches of a store: make one from what is there, list them, take one away.

use std::sync::PoisonError;

use bailey_policy::{Action, At, ForkPermit, PathReadPermit, ReadAction, StoreScope, WriteAction};
use bailey_protocol::api::{BranchInfo, BranchList, ForkRequest, ForkSource};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_tree::Store;

use super::below::Below;
use super::crossing::{Crossing, LOOKS};
use super::{baselines, landing, reachable, tree_access};
use crate::api_error::{ApiError, ErrorKind, mapping};
use crate::control::{Caller, Control};
use crate::db::{BaselineRow, DbError, RefMove};
use crate::threads::blocking;

/// Branches of one page, when the caller does not say.
const DEFAULT_PAGE: u32 = 1_000;
/// Most branches of one page.
const MAX_PAGE: u32 = 10_000;

/// Makes a branch: a new name for a version that is there, whatever its size. From a baseline, its content is taken into
/// the store first.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, there is such a branch already, or nothing to start at.
pub async fn fork(control: &Control, caller: &Caller, request: ForkRequest) -> Result<BranchInfo, ApiError> {
    let ForkRequest { path, branch, from } = request;
    let (from, baseline) = match from.unwrap_or_else(|| ForkSource::Revision(Revision::Branch(BranchName::main()))) {
        ForkSource::Revision(revision) => (revision, None),
        ForkSource::Baseline { name, number } => {
            let row = baselines::find(control, &name, number).await?;
            (Revision::Version(row.version.clone()), Some(row))
        }
    };
    let facts = control.path_facts(caller, &path, Some(&branch));
    let judge = control.judge(caller).await?;
    let (permit, read) = match &baseline {
        Some(row) => (control.permit(caller, judge.fork_baseline(&facts, &branch, row.version.clone())).await?, None),
        None => {
            let leading = control.leading(caller, &judge, &[Action::TreeFork], &path, &from).await?;
            let at = from.clone();
            let asked = move || Ok(judge.fork(&facts, &branch, At { revision: &at, leading: &leading }));
            let permit = control.permit(caller, blocking(control.threads(), asked).await?).await?;
            let read = control.may_read(caller, ReadAction::Read, &path, &from).await;
            let read = control.failure_audited(caller, [permit.grant()], read).await?;
            (permit, Some(read))
        }
    };
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let (made, store) = match make(&owner, &caller, &permit, baseline).await {
            Ok((info, store)) => (Ok(info), Some(store)),
            Err(error) => (Err(error), None),
        };
        let grants = std::iter::once(permit.grant()).chain(read.iter().map(PathReadPermit::grant));
        // Two waits for the disk, neither of which needs the other.
        let (made, published) =
            tokio::join!(owner.audited(&caller, grants, made), publish(&owner, &caller, &permit, store));
        published?;
        made
    };
    control.own(task).await.map_err(ApiError::internal)?
}

async fn make(
    control: &Control,
    caller: &Caller,
    permit: &ForkPermit,
    baseline: Option<BaselineRow>,
) -> Result<(BranchInfo, Store), ApiError> {
    check_root(permit.path())?;
    check_name(permit.branch())?;
    let scope = permit.scope()?;
    let is_baseline = baseline.is_some();
    let (store, version) = match baseline {
        Some(row) => baselines::take_in(control, &scope, row).await?,
        None => start(control, permit).await?,
    };
    let sources = match permit.from() {
        Revision::Branch(source) => vec![(source.clone(), version.clone())],
        Revision::Version(_) if is_baseline => Vec::new(),
        Revision::Version(_) => over(control, &store, &version).await?,
    };
    if !is_baseline {
        crossing(control, caller, permit, (&store, &version)).await?;
    }
    if is_baseline || matches!(permit.from(), Revision::Version(_)) {
        let base = sources.first().map(|(_, head)| head.clone());
        judge(control, caller, permit, (&store, &version), base).await?;
    }
    let sources = landing::unreviewed(control, scope.repo(), sources.into_iter().map(|(branch, _)| branch));
    control.still_stands(caller)?;
    match control.db().move_refs(vec![RefMove::fork(permit, version.clone())?.with_movers_of(sources)]).await {
        Ok(()) => {}
        Err(DbError::RefMoved { branch, .. }) => return Err(exists(&branch)),
        Err(error) => return Err(error.into()),
    }
    let protected = control.tree_meta().protection(permit.path().repo(), permit.branch()).is_some();
    Ok((BranchInfo { branch: permit.branch().clone(), version, protected }, store))
}

/// The branches that lead to a version, `main` first.
async fn over(control: &Control, store: &Store, version: &VersionId) -> Result<Vec<(BranchName, VersionId)>, ApiError> {
    let (control, store, version) = (control.clone(), store.clone(), version.clone());
    blocking(control.threads(), move || reachable::over(&control, &store, &version)).await
}

/// Asks about each path that the branch would have otherwise than a branch has it now: all of a baseline, and of a version
/// what differs from the head that leads to it.
async fn judge(
    control: &Control,
    caller: &Caller,
    permit: &ForkPermit,
    (store, version): (&Store, &VersionId),
    base: Option<VersionId>,
) -> Result<(), ApiError> {
    let below = Below::writes_and_deletes(caller, vec![permit.path().clone()]);
    let (control, branch) = (control.clone(), permit.branch().clone());
    let (store, version) = (store.clone(), version.clone());
    blocking(control.threads(), move || match below.refusal(&control, &branch, &store, base.as_ref(), &version)? {
        Some(refusal) => Err(refusal.denied.into()),
        None => Ok(()),
    })
    .await
}

/// That the branch shows nothing which may not be seen where it starts at.
async fn crossing(
    control: &Control,
    caller: &Caller,
    permit: &ForkPermit,
    (store, version): (&Store, &VersionId),
) -> Result<(), ApiError> {
    let (judge, from) = (control.judge(caller).await?, permit.from().clone());
    let leading = control.leading(caller, &judge, &LOOKS.map(Action::from), permit.path(), &from).await?;
    let (owner, who, root, to) = (control.clone(), caller.clone(), permit.path().clone(), permit.branch().clone());
    let (store, version) = (store.clone(), version.clone());
    let denied = blocking(control.threads(), move || {
        let from = At { revision: &from, leading: &leading };
        let crossing = Crossing { control: &owner, caller: &who, judge: &judge, root: &root, from, to: &to };
        crossing.shown(&store, &version)
    });
    match denied.await? {
        Some(denied) => control.permit(caller, Err(denied)).await,
        None => Ok(()),
    }
}

/// What the branch starts at.
async fn start(control: &Control, permit: &ForkPermit) -> Result<(Store, VersionId), ApiError> {
    let opened = tree_access::open_scope(control, &permit.from_scope()?, permit.path()).await?;
    let version = opened.version.ok_or_else(|| {
        let message = format!("`{}` has no version yet", permit.from());
        ApiError::not_found(message, "Write a file first, or fork from a baseline.")
    })?;
    Ok((opened.store, version))
}

/// The branches of a store, in name order.
///
/// # Errors
/// When it is denied.
pub async fn list(
    control: &Control,
    caller: &Caller,
    path: TreePath,
    after: Option<BranchName>,
    limit: Option<u32>,
) -> Result<BranchList, ApiError> {
    let main = Revision::Branch(BranchName::main());
    let permit = control.may_read(caller, ReadAction::List, &path, &main).await?;
    let result = async {
        check_root(&path)?;
        let scope = permit.scope()?;
        let limit = usize::try_from(limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE)).map_err(ApiError::internal)?;
        let heads = control.db().heads(&scope).await?.into_iter();
        let mut rest = heads.filter(|(branch, _)| after.as_ref().is_none_or(|after| branch > after));
        let branches: Vec<BranchInfo> = rest.by_ref().take(limit).map(|head| info(control, &scope, head)).collect();
        let next = if rest.next().is_some() { branches.last().map(|last| last.branch.clone()) } else { None };
        Ok(BranchList { branches, next })
    };
    control.audited(caller, [permit.grant()], result.await).await
}

fn info(control: &Control, scope: &StoreScope, (branch, version): (BranchName, VersionId)) -> BranchInfo {
    let protected = control.tree_meta().protection(scope.repo(), &branch).is_some();
    BranchInfo { branch, version, protected }
}

/// Takes a branch away. What it has and `main` has not is deleted with it, and asked about as such.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, protected, `main`, or not there.
pub async fn delete(control: &Control, caller: &Caller, path: TreePath, branch: BranchName) -> Result<(), ApiError> {
    let permit = control.may_write(caller, WriteAction::Delete, &path, &branch).await?;
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let (control, below) = (owner.clone(), Below::new(&caller, WriteAction::Delete, vec![path.clone()]));
        let result = async {
            check_root(&path)?;
            if branch == BranchName::main() {
                return Err(ApiError::invalid("invalid_branch", "`main` stays", "Name another branch."));
            }
            let scope = permit.scope()?;
            let store = control.trees().store(scope.repo())?;
            let head = control.db().resolve(&scope).await?.ok_or_else(|| missing(&branch))?;
            let step = RefMove::removal(&permit, head.clone())?;
            let work = move || remove(&control, &scope, &store, &branch, &head, (&below, step));
            owner.changes().make(&caller.principal.tenant, work).await
        };
        let result = result.await;
        owner.audited(&caller, [permit.grant()], result).await
    };
    control.own(task).await.map_err(ApiError::internal)?
}

fn remove(
    control: &Control,
    scope: &StoreScope,
    store: &Store,
    branch: &BranchName,
    head: &VersionId,
    (below, step): (&Below, RefMove),
) -> Result<(), ApiError> {
    let lock = control.locks().of(scope.repo());
    let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    control.still_stands(below.caller())?;
    if control.tree_meta().protection(scope.repo(), branch).is_some() {
        return Err(mapping::protected(branch));
    }
    let heads = control.wait(control.db().heads(scope))?;
    let main = heads.into_iter().find_map(|(name, version)| (name == BranchName::main()).then_some(version));
    if let Some(refusal) = below.refusal(control, branch, store, main.as_ref(), head)? {
        return Err(refusal.denied.into());
    }
    control.wait(control.db().move_refs(vec![step]))?;
    landing::publish_store(control, scope, store);
    Ok(())
}

/// Shows stock git where the branches are, if one was made.
async fn publish(control: &Control, caller: &Caller, permit: &ForkPermit, made: Option<Store>) -> Result<(), ApiError> {
    let Some(store) = made else { return Ok(()) };
    let (owner, scope) = (control.clone(), permit.scope()?);
    control
        .changes()
        .finish(&caller.principal.tenant, move || {
            let lock = owner.locks().of(scope.repo());
            let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            landing::publish_store(&owner, &scope, &store);
            Ok(())
        })
        .await
}

/// Branches are a store's, so they are asked about at its root.
pub(super) fn check_root(path: &TreePath) -> Result<(), ApiError> {
    if path.inner().is_empty() {
        return Ok(());
    }
    let message = format!("`{path}` is not the root of a store");
    let hint = "Name `/tenants/TENANT`, or `/tenants/TENANT/users/USER`.";
    Err(ApiError::invalid("not_a_store", message, hint))
}

/// `runs/…` is where runs keep what could not land, and `main/…` would be in `main`'s way.
pub(super) fn check_name(branch: &BranchName) -> Result<(), ApiError> {
    let kept = ["runs/", "main/"].iter().find(|prefix| branch.as_str().starts_with(**prefix));
    let kept = kept.copied().or_else(|| (branch.as_str() == "runs").then_some("runs"));
    match kept {
        None => Ok(()),
        Some(prefix) => {
            let message = format!("`{branch}` is a name that Bailey keeps: `{prefix}`");
            Err(ApiError::invalid("invalid_branch", message, "Choose another name."))
        }
    }
}

pub(super) fn missing(branch: &BranchName) -> ApiError {
    ApiError::not_found(
        format!("there is no branch `{branch}` in this tree"),
        "See GET /v1/branches for those there are; POST /v1/forks makes one.",
    )
}

fn exists(branch: &BranchName) -> ApiError {
    let message = format!("there is a branch `{branch}` already");
    ApiError::new(ErrorKind::Conflict, "branch_exists", message, "Choose another name, or delete it first.")
}
