//! How refs move.

use bailey_policy::{ForeignStore, PathWritePermit};
use bailey_protocol::id::{RunId, VersionId};
use bailey_protocol::path::{BranchName, RepoId};

/// One ref's move from a version (none: it must not exist) to another. Only a permit to write makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefMove {
    pub(crate) repo: RepoId,
    pub(crate) branch: BranchName,
    pub(crate) from: Option<VersionId>,
    pub(crate) to: VersionId,
}

impl RefMove {
    /// Moves the branch that was decided on.
    ///
    /// # Errors
    /// When the permit's path lies in a store that is not the principal's.
    pub fn new(permit: &PathWritePermit, from: Option<VersionId>, to: VersionId) -> Result<Self, ForeignStore> {
        let repo = permit.scope()?.repo().clone();
        Ok(Self { repo, branch: permit.branch().clone(), from, to })
    }

    /// Keeps a run's work on its side branch: `from` is `None` but for the second such mount of one store.
    ///
    /// # Errors
    /// When the permit's path lies in a store that is not the principal's.
    pub fn side_branch(
        permit: &PathWritePermit,
        run: &RunId,
        from: Option<VersionId>,
        to: VersionId,
    ) -> Result<Self, ForeignStore> {
        Ok(Self { branch: BranchName::of_run(run), ..Self::new(permit, from, to)? })
    }

    /// The store.
    #[must_use]
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// The branch.
    #[must_use]
    pub fn branch(&self) -> &BranchName {
        &self.branch
    }
}
