//! How refs move.

use std::collections::BTreeSet;

use bailey_policy::{ForeignStore, ForkPermit, Grant, PathWritePermit, PromotePermit, StoreScope};
use bailey_protocol::id::{RunId, UserId, VersionId};
use bailey_protocol::path::{BranchName, RepoId};

use super::tree_meta::LabelRow;

/// One ref's move from a version (none: it must not exist) to another (none: it is gone). Only a permit makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefMove {
    pub(crate) repo: RepoId,
    pub(crate) branch: BranchName,
    pub(crate) from: Option<VersionId>,
    pub(crate) to: Option<VersionId>,
    /// Whose doing it is.
    pub(crate) by: BTreeSet<UserId>,
    pub(crate) kind: MoveKind,
    /// Labels that paths of the store get together with the move.
    pub(crate) labels: Vec<LabelRow>,
    /// Branches of the same store whose movers count as this one's from now on: their versions come with the move.
    pub(crate) movers_of: Vec<BranchName>,
}

/// What a move is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoveKind {
    /// A change of the branch. A protected one takes none.
    Change,
    /// A branch that a person makes: there may be so many.
    Fork,
    /// A promotion, which is all that changes a protected branch.
    Promotion,
}

impl RefMove {
    /// Moves the branch that was decided on.
    ///
    /// # Errors
    /// When the permit's path lies in a store that is not the principal's.
    pub fn new(permit: &PathWritePermit, from: Option<VersionId>, to: VersionId) -> Result<Self, ForeignStore> {
        let branch = permit.branch().clone();
        Ok(Self::build(&permit.scope()?, branch, permit.grant(), MoveKind::Change, (from, Some(to))))
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

    /// Makes the branch that was decided on.
    ///
    /// # Errors
    /// When the permit's path lies in a store that is not the principal's.
    pub fn fork(permit: &ForkPermit, to: VersionId) -> Result<Self, ForeignStore> {
        let branch = permit.branch().clone();
        Ok(Self::build(&permit.scope()?, branch, permit.grant(), MoveKind::Fork, (None, Some(to))))
    }

    /// Moves the target that was decided on, protected or not.
    ///
    /// # Errors
    /// When the permit's path lies in a store that is not the principal's.
    pub fn promotion(permit: &PromotePermit, from: Option<VersionId>, to: VersionId) -> Result<Self, ForeignStore> {
        let branch = permit.target().clone();
        Ok(Self::build(&permit.scope()?, branch, permit.grant(), MoveKind::Promotion, (from, Some(to))))
    }

    /// Takes the branch that was decided on away.
    ///
    /// # Errors
    /// When the permit's path lies in a store that is not the principal's.
    pub fn removal(permit: &PathWritePermit, from: VersionId) -> Result<Self, ForeignStore> {
        let branch = permit.branch().clone();
        Ok(Self::build(&permit.scope()?, branch, permit.grant(), MoveKind::Change, (Some(from), None)))
    }

    /// Has paths of the same store get labels in the same transaction.
    #[must_use]
    pub(crate) fn with_labels(self, labels: Vec<LabelRow>) -> Self {
        debug_assert!(labels.iter().all(|row| row.repo == self.repo), "labels of another store");
        Self { labels, ..self }
    }

    /// Has whoever moved those branches of the same store count as somebody who moved this one.
    #[must_use]
    pub(crate) fn with_movers_of(self, movers_of: Vec<BranchName>) -> Self {
        Self { movers_of, ..self }
    }

    fn build(
        scope: &StoreScope,
        branch: BranchName,
        grant: &Grant,
        kind: MoveKind,
        (from, to): (Option<VersionId>, Option<VersionId>),
    ) -> Self {
        Self {
            repo: scope.repo().clone(),
            branch,
            from,
            to,
            by: grant.persons(),
            kind,
            labels: Vec::new(),
            movers_of: Vec::new(),
        }
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
