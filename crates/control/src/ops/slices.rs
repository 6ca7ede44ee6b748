//! The slices of a run: decided on first, all of them, and only then looked at.

use std::sync::Arc;

use bailey_policy::{Grant, PathReadPermit, PathWritePermit, ReadAction, WriteAction};
use bailey_protocol::id::{TreeId, VersionId};
use bailey_protocol::node::SliceMount;
use bailey_protocol::path::{Revision, SandboxPath, TreePath};
use bailey_tree::{Store, TreeError};

use super::decide::blocking;
use super::tree_access::{self, Opened};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::run_request::PlannedMount;

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
    /// What the branch pointed to.
    pub(super) version: Option<VersionId>,
    /// The folder's content.
    pub(super) tree: TreeId,
    /// Present where changes are committed.
    pub(super) write: Option<Arc<PathWritePermit>>,
}

impl Allowed {
    /// What was allowed, for the audit.
    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        [self.read.grant()].into_iter().chain(self.write.as_ref().map(PathWritePermit::grant))
    }
}

impl Slice {
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
        let asked = control.policies().read_path(&caller.principal, ReadAction::Mount, &path, &revision);
        let read = control.permit(caller, asked).await?;
        let write = if writable {
            let asked = control.policies().write_path(&caller.principal, WriteAction::Mount, &path, &branch);
            Some(control.permit(caller, asked).await?)
        } else {
            None
        };
        allowed.push(Allowed { at, read, write });
    }
    Ok(allowed)
}

/// Finds the content of each allowed mount. What does not exist yet is an empty folder.
pub(super) async fn open(control: &Control, allowed: Vec<Allowed>) -> Result<Vec<Slice>, ApiError> {
    let mut slices = Vec::with_capacity(allowed.len());
    for Allowed { at, read, write } in allowed {
        let Opened { store, path, version } = tree_access::open(control, &read).await?;
        let slice = blocking(move || {
            let found = store.subtree(version.as_ref(), path.inner());
            let tree = match found {
                Ok(Some(tree)) => tree,
                Ok(None) => bailey_tree::empty_tree(),
                Err(TreeError::NotADirectory { .. }) => return Err(not_a_folder(&path)),
                Err(error) => return Err(error.into()),
            };
            Ok(Slice { path, at, store, version, tree, write: write.map(Arc::new) })
        });
        slices.push(slice.await?);
    }
    Ok(slices)
}

fn not_a_folder(path: &TreePath) -> ApiError {
    ApiError::invalid("invalid_mount", format!("`{path}` is not a folder"), "Mount the folder that holds it.")
}
