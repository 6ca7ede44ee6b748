//! The slices of a run: decided on first, all of them, and only then looked at.

use std::collections::BTreeSet;
use std::sync::Arc;

use bailey_policy::{Grant, PathReadPermit, PathWritePermit, ReadAction, WriteAction};
use bailey_protocol::id::{TreeId, VersionId};
use bailey_protocol::label::Label;
use bailey_protocol::node::SliceMount;
use bailey_protocol::path::{Revision, SandboxPath, TreePath};
use bailey_tree::{Store, TreeError};

use super::mountable;
use super::tree_access::{self, Opened};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::run_request::PlannedMount;
use crate::threads::blocking;

/// A mount that policy allows.
#[derive(Debug)]
pub(super) struct Allowed {
    at: SandboxPath,
    read: PathReadPermit,
    write: Option<PathWritePermit>,
}

/// An allowed mount, opened.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) path: TreePath,
    pub(super) at: SandboxPath,
    pub(super) store: Store,
    /// Keeps what the branch pointed to.
    #[expect(dead_code, reason = "it is held, not used")]
    base: Store,
    /// What the branch pointed to.
    pub(super) version: Option<VersionId>,
    /// The folder's content.
    pub(super) tree: TreeId,
    /// Present where changes are committed.
    pub(super) write: Option<Arc<PathWritePermit>>,
    /// The labels of anything in it.
    pub(super) labels: BTreeSet<Label>,
    /// Nothing is there yet.
    is_new: bool,
}

impl Allowed {
    /// What it is of the tree.
    pub(super) fn path(&self) -> &TreePath {
        self.read.path()
    }

    /// What was allowed, for the audit.
    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        [self.read.grant()].into_iter().chain(self.write.as_ref().map(PathWritePermit::grant))
    }
}

impl Slice {
    /// From here on the store keeps all that is written.
    pub(super) fn awake(&mut self) {
        self.store = self.store.awake();
    }

    /// That the code finds nothing there, which may be a path misspelt.
    pub(super) fn warning(&self) -> Option<String> {
        let Self { path, at, .. } = self;
        self.is_new.then(|| format!("`{path}` does not exist yet: `{at}` is empty, and what is written there makes it"))
    }

    /// As the node gets it.
    pub(super) fn mount(&self) -> SliceMount {
        SliceMount {
            repo: self.store.id().clone(),
            tree: self.tree.clone(),
            at: self.at.clone(),
            writable: self.write.is_some(),
        }
    }
}

/// Asks for each mount: may it be read, and may what the code changes be written back?
pub(super) async fn authorize(
    control: &Control,
    caller: &Caller,
    mounts: Vec<PlannedMount>,
) -> Result<Vec<Allowed>, ApiError> {
    let mut allowed = Vec::with_capacity(mounts.len());
    for PlannedMount { path, at, writable, branch } in mounts {
        let revision = Revision::Branch(branch.clone());
        let read = control.may_read(caller, ReadAction::Mount, &path, &revision).await?;
        let write =
            if writable { Some(control.may_write(caller, WriteAction::Mount, &path, &branch).await?) } else { None };
        allowed.push(Allowed { at, read, write });
    }
    Ok(allowed)
}

/// Finds the content of each allowed mount, and asks about what is in it where a rule may say something of that. Where it
/// may be written, what does not exist yet is an empty folder.
pub(super) async fn open(control: &Control, caller: &Caller, allowed: Vec<Allowed>) -> Result<Vec<Slice>, ApiError> {
    let mut slices = Vec::with_capacity(allowed.len());
    for Allowed { at, read, write } in allowed {
        let Opened { store, path, version } = tree_access::open(control, &read).await?;
        let labels = control.tree_meta().labels_of_slice(&path);
        let slice = blocking(control.threads(), move || {
            let found = store.subtree(version.as_ref(), path.inner());
            let is_new = matches!(found, Ok(None));
            let tree = match found {
                Ok(Some(tree)) => tree,
                Ok(None) if write.is_none() => return Err(tree_access::nothing_there(&path)),
                Ok(None) => bailey_tree::empty_tree(),
                Err(TreeError::NotADirectory { .. }) => return Err(not_a_folder(&path)),
                Err(error) => return Err(error.into()),
            };
            store.check_extent(&tree)?;
            // The code may run for long: until then only what it started from is kept for it.
            let store = store.resting(version.as_ref());
            Ok(Slice {
                path,
                at,
                base: store.clone(),
                store,
                version,
                tree,
                write: write.map(Arc::new),
                labels,
                is_new,
            })
        });
        let slice = slice.await?;
        mountable::check(control, caller, &read, (&slice.store, slice.version.as_ref()), &slice.tree).await?;
        slices.push(slice);
    }
    Ok(slices)
}

fn not_a_folder(path: &TreePath) -> ApiError {
    ApiError::invalid("invalid_mount", format!("`{path}` is not a folder"), "Mount the folder that holds it.")
}
