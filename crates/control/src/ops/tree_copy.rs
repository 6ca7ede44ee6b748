//! Copying and moving: reading on one side, writing on the other, deleting where something goes away.

use std::sync::Arc;

use bailey_policy::{PathWritePermit, ReadAction, WriteAction};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{Revision, TreePath};
use bailey_tree::{Source, TreeError};

use super::below::Below;
use super::labels::{self, Carried};
use super::landing::Work;
use super::readable::Readable;
use super::tree_access::{self, Opened};
use super::tree_write::{Allowed, Change, LOOKED_AT, WriteAsk, Written, see_through};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};

/// What to copy.
#[derive(Debug, Clone)]
pub struct CopyAsk {
    /// Where it is.
    pub from: TreePath,
    /// When; the branch that is written to without it.
    pub revision: Option<Revision>,
    /// Where it goes.
    pub to: WriteAsk,
    /// Whether it goes away where it was.
    pub moves: bool,
}

/// Copies or moves a file, link or folder within a store, across its branches, or between the tenant's store and the
/// user's own.
///
/// # Errors
/// When reading, writing or deleting is denied, at the paths or below, nothing is there, something is in the way, or the
/// target is not what the condition says.
pub async fn copy(control: &Control, caller: &Caller, ask: CopyAsk) -> Result<Written, ApiError> {
    let CopyAsk { from, revision, to, moves } = ask;
    let here = Revision::Branch(to.branch.clone());
    let revision = revision.unwrap_or_else(|| here.clone());
    if moves && revision != here {
        let hint = "Copy it, and delete it where it was.";
        return Err(ApiError::invalid("move_across_branches", "a move stays on its branch", hint));
    }
    let write = control.may_write(caller, WriteAction::Write, &to.path, &to.branch).await?;
    let read = control.may_read(caller, ReadAction::Read, &from, &revision).await;
    let read = control.failure_audited(caller, [write.grant()], read).await?;
    let mut allowed = Allowed::reading(write, read);
    if moves {
        let delete = control.may_write(caller, WriteAction::Delete, &from, &to.branch).await;
        allowed.delete = Some(Arc::new(control.failure_audited(caller, allowed.grants(), delete).await?));
    }
    let delete = allowed.delete.clone();
    let found = source(control, caller, &allowed, &from, &revision).await;
    let (readable, source) = control.failure_audited(caller, allowed.grants(), found).await?;
    let (owner, user, permitted) = (control.clone(), caller.clone(), Arc::clone(&allowed.write));
    see_through(control, caller, allowed, async move {
        let turn = owner.asking_below(&user, &LOOKED_AT).await?;
        let opened = tree_access::open_to_write(&owner, &permitted).await?;
        let same_store = source.store.id() == opened.store.id();
        let mut folders = vec![to.path.clone()];
        if moves && same_store {
            folders.push(from.clone());
        }
        let below = Some(Below::writes_and_deletes(&user, folders));
        let verb = if moves { "Move" } else { "Copy" };
        let carried = labels::carry(&owner, &from, &to.path);
        let change = Change::new(owner.clone(), &user, permitted, opened, to, below, verb).carrying(carried);
        let tenant = user.principal.tenant.clone();
        owner
            .changes()
            .make(&tenant, move || {
                let _turn = turn;
                go(&change, &user, &readable, &source, delete.as_ref(), same_store)
            })
            .await
    })
    .await
}

/// What is copied, and what may be seen of it.
async fn source(
    control: &Control,
    caller: &Caller,
    allowed: &Allowed,
    from: &TreePath,
    revision: &Revision,
) -> Result<(Readable, Opened), ApiError> {
    let readable = Readable::new(control, caller, ReadAction::Read, from, revision).await?;
    let read = allowed.read.first().ok_or_else(|| ApiError::internal("a copy without a right to read"))?;
    Ok((readable, tree_access::open(control, read).await?))
}

fn go(
    change: &Change,
    caller: &Caller,
    readable: &Readable,
    source: &Opened,
    delete: Option<&Arc<PathWritePermit>>,
    same_store: bool,
) -> Result<Written, ApiError> {
    let Opened { store, path, version } = &change.opened;
    change.check(store, version.as_ref())?;
    // A move within a store starts from the one version that it makes another of.
    let read = if delete.is_some() && same_store { version } else { &source.version };
    let read = read.as_ref().ok_or_else(|| tree_access::nothing_there(&source.path))?;
    readable.all(&readable.pace(), &source.store, read)?;
    if delete.is_some() && same_store {
        let made = store.rename(read, source.path.inner(), path.inner(), &change.meta);
        let made = change.opened.named(made)?;
        change.puts_all(&made)?;
        return change.land(made);
    }
    let from = Source { store: &source.store, version: read, inner: source.path.inner() };
    let made = store.copy(version.as_ref(), from, path.inner(), &change.meta);
    let made = match made {
        // It is the source's; what else there is to say of a path is of the target's.
        Err(error @ TreeError::NotFound { .. }) => source.named(Err(error)),
        made => change.opened.named(made),
    }?;
    change.puts_all(&made)?;
    match delete {
        None => change.land(made),
        Some(permit) => change.land_with(made, Some(taken_away(change, caller, source, permit, read)?)),
    }
}

/// The other half of a move between stores, which lands with the first or not at all.
fn taken_away(
    change: &Change,
    caller: &Caller,
    source: &Opened,
    permit: &Arc<PathWritePermit>,
    read: &VersionId,
) -> Result<Work, ApiError> {
    let gone = source.named(source.store.delete(Some(read), source.path.inner(), &change.meta))?;
    let gone = gone.ok_or_else(|| ApiError::internal("what was copied is not there"))?;
    Ok(Work {
        permit: Arc::clone(permit),
        store: source.store.clone(),
        base: Some(read.clone()),
        made: vec![gone],
        below: Some(Below::new(caller, WriteAction::Delete, vec![source.path.clone()])),
        labels: Carried::default(),
        meta: change.meta.clone(),
    })
}
