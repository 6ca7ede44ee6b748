//! What opens more of a store than one path at one revision.

use bailey_protocol::id::{TenantId, UserId};
use bailey_protocol::path::{BranchName, Revision, TreePath};

use super::{ForeignStore, Grant, StoreScope, permit};

permit!(
    /// Opens a store for a new branch.
    ForkPermit {
        /// The path that was decided on.
        path: TreePath,
        /// The new branch.
        branch: BranchName,
        /// What it starts at.
        from: Revision,
    }
);

permit!(
    /// Opens a store for taking one branch's changes into another.
    PromotePermit {
        /// The path that was decided on.
        path: TreePath,
        /// The branch whose changes are taken.
        source: BranchName,
        /// The branch that changes.
        target: BranchName,
    }
);

permit!(
    /// Opens a store for protecting one branch, or ending that.
    ProtectPermit {
        /// The path that was decided on.
        path: TreePath,
        /// The branch.
        branch: BranchName,
    }
);

permit!(
    /// Opens a path's labels for changing.
    LabelPermit {
        /// The path that was decided on.
        path: TreePath,
    }
);

permit!(
    /// Opens the making of a token for a path.
    SharePermit {
        /// The path that was decided on.
        path: TreePath,
    }
);

permit!(
    /// Opens the end of the user's own tokens for a path.
    UnsharePermit {
        /// The path that was decided on.
        path: TreePath,
    }
);

permit!(
    /// Opens a path's whole history for its removal.
    PurgePermit {
        /// The path that was decided on.
        path: TreePath,
    }
);

permit!(
    /// Opens a whole store for fetching.
    ClonePermit {
        /// The path that was decided on.
        path: TreePath,
    }
);

permit!(
    /// Opens a whole store for taking in what is pushed; each path takes a permit of its own.
    PushPermit {
        /// The path that was decided on.
        path: TreePath,
    }
);

impl ForkPermit {
    /// The store, at the new branch.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(self.branch.clone()))
    }

    /// The store, at what the branch starts at.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn from_scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, self.from.clone())
    }
}

impl PromotePermit {
    /// The store, at the branch that changes.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(self.target.clone()))
    }

    /// The store, at the branch whose changes are taken.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn source_scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(self.source.clone()))
    }
}

impl ProtectPermit {
    /// The store, at the branch.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(self.branch.clone()))
    }
}

impl LabelPermit {
    /// The store, at its `main`.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(BranchName::main()))
    }
}

impl SharePermit {
    /// The store, at its `main`.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(BranchName::main()))
    }
}

impl PurgePermit {
    /// The store, at its `main`.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(BranchName::main()))
    }
}

impl ClonePermit {
    /// The store, at its `main`.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(BranchName::main()))
    }
}

impl PushPermit {
    /// The store, at its `main`.
    ///
    /// # Errors
    /// When the path lies in a store that is not the principal's.
    pub fn scope(&self) -> Result<StoreScope, ForeignStore> {
        StoreScope::open(&self.grant, &self.path, Revision::Branch(BranchName::main()))
    }
}
