//! What a decision is made on besides who asks. All of it comes from our own store or configuration.

use std::collections::BTreeSet;

use bailey_protocol::id::{RunId, TemplateName, TenantId, UserId};
use bailey_protocol::label::Label;
use bailey_protocol::limits::Limits;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_protocol::wall::WallKind;
use serde::{Deserialize, Serialize};

use crate::principal::CredentialId;

/// A path, and what the store knows of it. Never taken from the request but for the path itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathFacts {
    /// The path.
    pub path: TreePath,
    /// Its labels, and those of every folder above it.
    pub labels: BTreeSet<Label>,
    /// Whether the branch that is asked about is protected.
    pub protected: bool,
}

impl PathFacts {
    /// A path that nothing is known of.
    #[must_use]
    pub fn plain(path: TreePath) -> Self {
        Self { path, labels: BTreeSet::new(), protected: false }
    }
}

/// A branch that leads to a version: it, or one that grew from it, is where the branch is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadingBranch {
    /// Its name.
    pub branch: BranchName,
    /// Whether it is protected.
    pub protected: bool,
}

/// When something is looked at.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The branch or version.
    pub revision: &'a Revision,
    /// Of a version, the branches that lead to it, or some of them: where a policy looks at the branch, it is judged as
    /// each, and one has to allow it.
    pub leading: &'a [LeadingBranch],
}

impl<'a> From<&'a Revision> for At<'a> {
    fn from(revision: &'a Revision) -> Self {
        Self { revision, leading: &[] }
    }
}

/// The sandbox that a run asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlan {
    /// What isolates it.
    pub wall: WallKind,
    /// What it starts from.
    pub template: TemplateName,
    /// Whether the code may use `sudo`.
    pub root: bool,
    /// What it may use.
    pub limits: Limits,
}

/// What a decision about an existing run needs to know. It comes from the database, never from the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The run.
    pub run: RunId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Who asked for it.
    pub user: UserId,
    /// What it came from, where that is known. What is narrowed to paths sees nothing else.
    pub origin: Option<RunOrigin>,
}

impl RunFacts {
    /// A run of which nothing is known but whose it is.
    #[must_use]
    pub fn plain(run: RunId, tenant: TenantId, user: UserId) -> Self {
        Self { run, tenant, user, origin: None }
    }
}

/// What a run came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOrigin {
    /// What it was asked for with.
    pub credential: CredentialId,
    /// What it was given of the tree.
    pub mounts: Vec<TreePath>,
}

/// What the operator noted of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantFacts {
    /// Where its data has to stay.
    pub region: Option<String>,
    /// What it paid for.
    pub plan: Option<String>,
}
