//! What is known of trees beside their content: which branches are protected, who moved them, which labels paths have,
//! and which folders an operator published for everybody.

use std::collections::BTreeSet;

use bailey_policy::{
    AdminAction, AdminPermit, Entitlement, LabelPermit, OperatorPermit, ProtectPermit, SharePermit, UnsharePermit,
};
use bailey_protocol::api::{BaselineInfo, ShareMode, TreeToken};
use bailey_protocol::id::{BaselineName, TenantId, TokenId, UserId, VersionId};
use bailey_protocol::label::Label;
use bailey_protocol::path::{BranchName, RepoId, TreePath};
use serde::{Deserialize, Serialize};

use super::DbFuture;
use crate::standing::Rights;

/// Most branches of one store that people make. A run's side branch is made whatever there is: no work is lost.
pub(crate) const MAX_BRANCHES: u32 = 10_000;
/// Most paths of one store that have labels of their own.
pub(crate) const MAX_LABELLED: u32 = 10_000;
/// Most tree tokens that one user may have at once.
pub(crate) const MAX_TREE_TOKENS: u32 = 1_000;

/// A protected branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectionRow {
    /// The store.
    pub repo: RepoId,
    /// The branch.
    pub branch: BranchName,
    /// Whether who promotes must be somebody else than who made what is promoted.
    pub review: bool,
    /// Who protected it, or [`super::FORGOTTEN`], which is no user.
    pub by: String,
    /// Since when.
    pub since_ms: u64,
}

/// A path with labels of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRow {
    /// The store.
    pub repo: RepoId,
    /// The path in it; empty for its root.
    pub inner: String,
    /// Its labels.
    pub labels: BTreeSet<Label>,
}

/// All of it, as it is kept in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeMetaRows {
    /// Every protected branch.
    pub protections: Vec<ProtectionRow>,
    /// Every labelled path.
    pub labels: Vec<LabelRow>,
}

/// A published folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineRow {
    /// What everybody may know of it.
    pub info: BaselineInfo,
    /// Where its content is in the baselines' own store.
    pub version: VersionId,
}

/// A tree token. Its value is recorded nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeTokenRow {
    /// Its id.
    pub id: TokenId,
    /// Whose tenant.
    pub tenant: TenantId,
    /// Whose rights it has, narrowed.
    pub user: UserId,
    /// The path that it is for.
    pub path: TreePath,
    /// What it is for.
    pub mode: ShareMode,
    /// What its user had when it was made.
    pub grants: ShareGrants,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// Milliseconds since 1970.
    pub expires_ms: u64,
}

impl TreeTokenRow {
    /// What its user may see of it.
    #[must_use]
    pub fn about(&self) -> TreeToken {
        TreeToken {
            id: self.id.clone(),
            user: self.user.to_string(),
            path: self.path.clone(),
            mode: self.mode,
            created_ms: self.created_ms,
            expires_ms: self.expires_ms,
        }
    }
}

/// What a user had when it made a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareGrants {
    /// Roles.
    pub roles: BTreeSet<String>,
    /// Entitlements.
    pub entitlements: BTreeSet<Entitlement>,
    /// Region.
    pub region: Option<String>,
    /// Project.
    pub project: Option<String>,
    /// The service account that made it for its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// Whose token a permit lets end. Only a permit makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenScope {
    tenant: TenantId,
    user: UserId,
}

impl TokenScope {
    /// The permit's user's own.
    #[must_use]
    pub fn own(permit: &UnsharePermit) -> Self {
        Self { tenant: permit.tenant().clone(), user: permit.user().clone() }
    }

    /// A user's of the admin's own tenant; `None` for a permit of something else.
    #[must_use]
    pub fn of_admin(permit: &AdminPermit, user: &UserId) -> Option<Self> {
        let scope = Self { tenant: permit.tenant().clone(), user: user.clone() };
        (*permit.action() == AdminAction::KeyRevoke).then_some(scope)
    }

    /// Whose user.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Who.
    #[must_use]
    pub fn user(&self) -> &UserId {
        &self.user
    }
}

/// Tokens, each with its hash.
pub type TreeTokensHeld = Vec<([u8; 32], TreeTokenRow)>;

/// The part of a database that is about trees.
pub trait TreeDb {
    /// Every protection and label, of all tenants: read once, at start.
    fn tree_meta(&self) -> DbFuture<'_, TreeMetaRows>;

    /// Protects the branch that was decided on; answers the protection, and none where there is no such branch: but for
    /// `main`, which is there before its first version. Moves of it that are no promotion are refused from then on
    /// ([`super::DbError::Protected`]).
    fn protect<'a>(
        &'a self,
        permit: &'a ProtectPermit,
        review: bool,
        now_ms: u64,
    ) -> DbFuture<'a, Option<ProtectionRow>>;

    /// Ends the protection of the branch that was decided on; whether there was one.
    fn unprotect<'a>(&'a self, permit: &'a ProtectPermit) -> DbFuture<'a, bool>;

    /// Who moved a branch of the store since it was made: names, however they got there.
    fn movers<'a>(&'a self, scope: &'a bailey_policy::StoreScope, branch: &'a BranchName) -> DbFuture<'a, Vec<UserId>>;

    /// Gives the path that was decided on these labels and no others.
    fn set_labels<'a>(&'a self, permit: &'a LabelPermit, labels: &'a BTreeSet<Label>) -> DbFuture<'a, ()>;

    /// Records a publication under the name's next number.
    fn publish_baseline<'a>(
        &'a self,
        permit: &'a OperatorPermit,
        name: &'a BaselineName,
        version: &'a VersionId,
        now_ms: u64,
    ) -> DbFuture<'a, BaselineInfo>;

    /// Records a token for the path that was decided on, and forgets the tenant's tokens whose time is over.
    /// [`super::DbError::TooMany`] where the user has as many as it may. Answers what is known of the user.
    fn create_tree_token<'a>(
        &'a self,
        permit: &'a SharePermit,
        hash: [u8; 32],
        token: TreeTokenRow,
    ) -> DbFuture<'a, Option<Rights>>;

    /// Forgets a token; whether there was one.
    fn revoke_tree_token<'a>(&'a self, scope: &'a TokenScope, id: &'a TokenId) -> DbFuture<'a, bool>;

    /// Every token that holds at `now_ms`, with its hash: read once, at start.
    fn tree_tokens(&self, now_ms: u64) -> DbFuture<'_, TreeTokensHeld>;

    /// All of them, by name, newest first.
    fn baselines(&self) -> DbFuture<'_, Vec<BaselineRow>>;
}
