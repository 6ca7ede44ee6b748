//! What a path permit opens: that tenant's store, at that revision, below that path.

use bailey_policy::{PathReadPermit, PathWritePermit, ReadAction, StoreScope};
use bailey_protocol::api::EntryKind;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, RepoId, Revision, TreePath};
use bailey_tree::{Store, TreeError};

use super::{branches, reachable};
use crate::api_error::{ApiError, Details, ErrorKind, mapping};
use crate::control::{Caller, Control};
use crate::db::Gone;
use crate::threads::blocking;

/// An opened path.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub(super) store: Store,
    pub(super) path: TreePath,
    /// What the revision names; `None` while `main` has no version yet.
    pub(super) version: Option<VersionId>,
}

impl Opened {
    /// What comes of asking the store, with a path in an error as callers name it.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn named<T>(&self, result: Result<T, TreeError>) -> Result<T, ApiError> {
        result.map_err(|error| error.in_store(self.store.id()).into())
    }
}

/// Opens what `permit` allows to read.
///
/// # Errors
/// Also when it has other labels by now than were decided with: what was opened may be what brought them.
pub(super) async fn open(control: &Control, permit: &PathReadPermit) -> Result<Opened, ApiError> {
    let opened = open_scope(control, &permit.scope()?, permit.path()).await?;
    if control.tree_meta().labels(permit.path()) == *permit.labels() {
        return Ok(opened);
    }
    let message = format!("the labels of `{}` changed while it was opened", permit.path());
    Err(ApiError::new(ErrorKind::Conflict, "labels_changed", message, "Ask again."))
}

/// Whether what was opened is a folder.
pub(super) async fn is_folder(control: &Control, opened: &Opened) -> Result<bool, ApiError> {
    let Opened { store, path, version } = opened;
    let (store, path, version) = (store.clone(), path.clone(), version.clone());
    let kind =
        blocking(control.threads(), move || Ok(store.entry(version.as_ref(), path.inner())?.map(|entry| entry.kind)));
    Ok(kind.await? == Some(EntryKind::Directory))
}

/// Whether anything is at `path` on `main`; `None` where the caller may not look.
pub(super) async fn is_there(control: &Control, caller: &Caller, path: &TreePath) -> Result<Option<bool>, ApiError> {
    let main = Revision::Branch(BranchName::main());
    let Ok(permit) = control.ask_to_read(caller, ReadAction::List, path, &main).await? else { return Ok(None) };
    let Opened { store, path, version } = open_scope(control, &permit.scope()?, permit.path()).await?;
    blocking(control.threads(), move || Ok(Some(store.entry(version.as_ref(), path.inner())?.is_some()))).await
}

/// Waits until the labels of all that a branch of the store leads to are known.
pub(super) async fn settled(control: &Control, repo: &RepoId) {
    if control.tree_meta().is_coming(repo) {
        drop(control.meta_turn().await);
    }
}

/// Opens what `permit` allows to write.
pub(super) async fn open_to_write(control: &Control, permit: &PathWritePermit) -> Result<Opened, ApiError> {
    let scope = permit.scope()?;
    if control.tree_meta().protection(scope.repo(), permit.branch()).is_some() {
        // Again, and for good, when the branch is to move. Here it saves the work.
        return Err(mapping::protected(permit.branch()));
    }
    open_scope(control, &scope, permit.path()).await
}

pub(super) async fn open_scope(control: &Control, scope: &StoreScope, path: &TreePath) -> Result<Opened, ApiError> {
    let store = control.trees().store(scope.repo())?;
    let version = control.db().resolve(scope).await?;
    settled(control, scope.repo()).await;
    match (scope.revision(), &version) {
        (Revision::Version(asked), _) => {
            let (owner, store, asked) = (control.clone(), store.clone(), asked.clone());
            blocking(control.threads(), move || kept(&owner, &store, &asked)).await?;
        }
        // A tree starts with an empty `main`; any other branch has to be made before it is used.
        (Revision::Branch(branch), None) if *branch != BranchName::main() => {
            return Err(branches::missing(branch));
        }
        (Revision::Branch(_), _) => {}
    }
    Ok(Opened { store, path: path.clone(), version })
}

/// That a version that was named by its id is here, is to be kept, and is one that a branch leads to. Blocks.
pub(super) fn kept(control: &Control, store: &Store, asked: &VersionId) -> Result<(), ApiError> {
    let gone = control.wait(control.db().gone(store.id(), asked))?;
    if let Some(gone) = gone.as_ref().filter(|gone| gone.purge.is_some()) {
        return Err(expired(asked, gone));
    }
    let here = store.contains(asked)? && reachable::is_reachable(control, store, asked)?;
    match (here, gone) {
        (true, _) => Ok(()),
        (false, Some(gone)) => Err(expired(asked, &gone)),
        (false, None) => Err(no_such_version(asked)),
    }
}

fn expired(version: &VersionId, gone: &Gone) -> ApiError {
    let code = "version_expired";
    let Some(purge) = &gone.purge else {
        let message = format!("version `{version}` is older than what is kept");
        return ApiError::new(ErrorKind::Gone, code, message, "See GET /v1/tree-history for versions.");
    };
    let message = match &gone.became {
        Some(became) => format!("version `{version}` was purged by `{purge}` and became `{became}`"),
        None => format!("version `{version}` was purged by `{purge}`"),
    };
    let error = ApiError::new(ErrorKind::Gone, code, message, format!("See GET /v1/purges/{purge} for the receipt."));
    ApiError { details: Some(Box::new(Details { purge: Some(purge.clone()), ..Details::default() })), ..error }
}

pub(super) fn no_such_version(version: &VersionId) -> ApiError {
    let message = format!("there is no version `{version}` in this tree");
    ApiError::not_found(message, "See GET /v1/tree-history for versions.")
}

pub(super) fn nothing_there(path: &TreePath) -> ApiError {
    ApiError::not_found(format!("`{path}` does not exist"), "List the folder above to see what there is.")
}
