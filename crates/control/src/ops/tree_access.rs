//! What a path permit opens: that tenant's store, at that revision, below that path.

use bailey_policy::{PathReadPermit, PathWritePermit, StoreScope};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_tree::Store;

use super::decide::blocking;
use crate::api_error::ApiError;
use crate::control::Control;

/// An opened path.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub(super) store: Store,
    pub(super) path: TreePath,
    /// What the revision names; `None` while `main` has no version yet.
    pub(super) version: Option<VersionId>,
}

/// Opens what `permit` allows to read.
pub(super) async fn open(control: &Control, permit: &PathReadPermit) -> Result<Opened, ApiError> {
    open_scope(control, &permit.scope()?, permit.path()).await
}

/// Opens what `permit` allows to write.
pub(super) async fn open_to_write(control: &Control, permit: &PathWritePermit) -> Result<Opened, ApiError> {
    open_scope(control, &permit.scope()?, permit.path()).await
}

async fn open_scope(control: &Control, scope: &StoreScope, path: &TreePath) -> Result<Opened, ApiError> {
    let store = control.trees().store(scope.repo())?;
    let version = control.db().resolve(scope).await?;
    match (scope.revision(), &version) {
        (Revision::Version(asked), _) => {
            let (store, asked) = (store.clone(), asked.clone());
            blocking(move || match store.contains(&asked)? {
                true => Ok(()),
                false => Err(no_such("version", asked.as_str())),
            })
            .await?;
        }
        // A tree starts with an empty `main`; any other branch has to be made before it is used.
        (Revision::Branch(branch), None) if *branch != BranchName::main() => {
            return Err(no_such("branch", branch.as_str()));
        }
        (Revision::Branch(_), _) => {}
    }
    Ok(Opened { store, path: path.clone(), version })
}

fn no_such(what: &str, name: &str) -> ApiError {
    ApiError::not_found(format!("there is no {what} `{name}` in this tree"), "See GET /v1/tree-history for versions.")
}
