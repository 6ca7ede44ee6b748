//! Tree tokens: `blt_` and 40 hex digits, for a part of a tree, for some minutes, for a build or a browser.
//!
//! A token is its user, narrowed: to the path, to reading or writing, and to the roles and entitlements that the user had
//! when it was made and has still, as far as a later token of the user's has told. So it can never do what its user
//! cannot, nor for longer than the credential that it was made by, and policy is asked about each use. Made by a service
//! account for a user, it names that account as its actor and ends with it. Only its hash is kept: see [`crate::secret_value`].

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use bailey_policy::{Action, CredentialId, CredentialKind, Principal, Scope};
use bailey_protocol::api::{ShareMode, TreeToken};
use bailey_protocol::id::{TenantId, TokenId, UserId};

use crate::db::TreeTokenRow;
use crate::secret_value::{SecretHash, hash_of_sent};

/// How every token begins.
pub(crate) const TOKEN_PREFIX: &str = "blt_";

/// What a token of either mode is for. Fetching and pushing by git is about a whole store, so only a token for its root can.
pub(crate) fn actions(mode: ShareMode) -> BTreeSet<Action> {
    let mut actions: BTreeSet<Action> =
        [Action::TreeRead, Action::TreeList, Action::TreeHistory, Action::TreeDiff, Action::TreeClone].into();
    if mode == ShareMode::Write {
        actions.extend([Action::TreeWrite, Action::TreeDelete, Action::TreePush]);
    }
    actions
}

/// Every token that holds.
#[derive(Debug, Default)]
pub(crate) struct TreeTokens(RwLock<HashMap<SecretHash, Arc<TreeTokenRow>>>);

impl TreeTokens {
    pub(crate) fn new(rows: Vec<(SecretHash, TreeTokenRow)>) -> Self {
        Self(RwLock::new(rows.into_iter().map(|(hash, row)| (hash, Arc::new(row))).collect()))
    }

    /// Lets a token hold that is in the database, and no more those whose time is over.
    pub(crate) fn insert(&self, hash: SecretHash, row: TreeTokenRow, now_ms: u64) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, row| row.expires_ms > now_ms);
        held.insert(hash, Arc::new(row));
    }

    /// Lets a token hold no more.
    pub(crate) fn remove(&self, tenant: &TenantId, id: &TokenId) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, row| row.id != *id || row.tenant != *tenant);
    }

    /// Lets no token of a user hold any more.
    pub(crate) fn forget(&self, tenant: &TenantId, user: &UserId) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, row| row.tenant != *tenant || row.user != *user);
    }

    /// The tokens of a user that hold, newest first.
    pub(crate) fn of(&self, tenant: &TenantId, user: &UserId, now_ms: u64) -> Vec<TreeToken> {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let own = held.values().filter(|row| row.tenant == *tenant && row.user == *user);
        let mut tokens: Vec<TreeToken> = own.filter(|row| row.expires_ms > now_ms).map(|row| row.about()).collect();
        tokens.sort_unstable_by(|one, other| other.id.cmp(&one.id));
        tokens
    }

    /// One token of a tenant that holds.
    pub(crate) fn find(&self, tenant: &TenantId, id: &TokenId) -> Option<Arc<TreeTokenRow>> {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        held.values().find(|row| row.id == *id && row.tenant == *tenant).cloned()
    }

    /// Who a token that was sent speaks for; `None` for what is none, or holds no more.
    pub(crate) fn principal(&self, sent: &str, now_ms: u64) -> Option<Principal> {
        let hash = hash_of_sent(TOKEN_PREFIX, sent)?;
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let row = held.get(&hash).filter(|row| row.expires_ms > now_ms)?;
        let mut principal = Principal::new(row.tenant.clone(), row.user.clone());
        principal.roles = row.grants.roles.clone();
        principal.entitlements = row.grants.entitlements.clone();
        principal.region = row.grants.region.clone();
        principal.project = row.grants.project.clone();
        principal.actor = Some(row.grants.actor.clone().unwrap_or_else(|| row.id.to_string()));
        let read_only = row.mode == ShareMode::Read;
        principal.scope = Some(Scope { actions: actions(row.mode), paths: Some(vec![row.path.clone()]), read_only });
        principal.valid_until_ms = row.expires_ms;
        principal.credential = CredentialId { kind: CredentialKind::TreeToken, id: row.id.to_string() };
        Some(principal)
    }
}
