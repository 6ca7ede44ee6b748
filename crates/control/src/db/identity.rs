//! What is remembered of those who ask: who was seen, who is disabled, and API keys.

use std::collections::BTreeSet;

use bailey_policy::{
    Action, AdminAction, AdminPermit, Entitlement, ExchangePermit, ExplainPermit, OperatorPermit, Scope,
};
use bailey_protocol::api::identity::{AccountKind, DisabledAccount};
use bailey_protocol::id::{KeyId, RunId, TenantId, UserId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{AuditEntry, DbFuture};
use crate::standing::Rights;

/// Most rows of one page of users, tenants or keys.
pub const MAX_IDENTITY_PAGE: u32 = 500;
/// Most keys that a tenant may have at once.
pub const MAX_KEYS_PER_TENANT: u32 = 1000;
/// Users that were never seen here of whom a tenant's admins may say at once that they are disabled.
pub const MAX_UNSEEN_DISABLED: u32 = 1024;

/// The part of a database that remembers those who ask.
pub trait IdentityDb: Send + Sync {
    /// At start: everything that ends somebody's rights, and every key that still holds at `now_ms`.
    fn standing(&self, now_ms: u64) -> DbFuture<'_, StandingRows>;

    /// Notes who was seen. A subject's first time stays, and what its newest token said ([`Rights`]).
    fn note_subjects(&self, seen: Vec<SubjectSeen>) -> DbFuture<'_, ()>;

    /// Notes when keys were used last.
    fn note_key_use(&self, used: Vec<(KeyId, u64)>) -> DbFuture<'_, ()>;

    /// Users of the permit's tenant who were seen or are disabled, by name after `after`.
    fn users<'a>(
        &'a self,
        permit: &'a AdminPermit,
        limit: u32,
        after: Option<&'a UserId>,
    ) -> DbFuture<'a, Vec<SubjectRecord>>;

    /// What is known of the permit's user, if it was ever seen.
    fn explained<'a>(&'a self, permit: &'a ExplainPermit) -> DbFuture<'a, Option<SubjectKnown>>;

    /// What is known of a user of the permit's tenant, if it was ever seen.
    fn subject<'a>(&'a self, permit: &'a ExchangePermit, user: &'a UserId) -> DbFuture<'a, Option<SubjectKnown>>;

    /// Whether anybody of the permit's tenant was ever seen.
    fn knows_tenant<'a>(&'a self, permit: &'a OperatorPermit) -> DbFuture<'a, bool>;

    /// Users of the tenant that an operator was permitted, as [`IdentityDb::users`].
    fn users_of<'a>(
        &'a self,
        permit: &'a OperatorPermit,
        limit: u32,
        after: Option<&'a UserId>,
    ) -> DbFuture<'a, Vec<SubjectRecord>>;

    /// Disables or enables a user of the permit's tenant, as its admins may: what an operator disabled stays so, and
    /// nothing changes then. [`super::DbError::TooManyDisabled`] where nobody has ever seen it, nor too many others.
    fn set_user_disabled<'a>(
        &'a self,
        permit: &'a AdminPermit,
        user: &'a UserId,
        disabled: bool,
        now_ms: u64,
    ) -> DbFuture<'a, Disabled>;

    /// Disables or enables the permit's tenant, or a user of it, as operators may: enabling ends an admin's word as well.
    /// A permit that is about no tenant changes nothing.
    fn set_disabled<'a>(
        &'a self,
        permit: &'a OperatorPermit,
        user: Option<&'a UserId>,
        disabled: bool,
        now_ms: u64,
    ) -> DbFuture<'a, Disabled>;

    /// Service accounts and operators that are disabled.
    fn disabled_accounts<'a>(&'a self, permit: &'a OperatorPermit) -> DbFuture<'a, Vec<DisabledAccount>>;

    /// Disables or enables a service account or an operator; whether that changed anything.
    fn set_account_disabled<'a>(
        &'a self,
        permit: &'a OperatorPermit,
        kind: AccountKind,
        name: &'a UserId,
        disabled: bool,
        now_ms: u64,
    ) -> DbFuture<'a, bool>;

    /// Tenants of whom anybody was seen, or that are disabled, by name after `after`.
    fn tenants<'a>(
        &'a self,
        permit: &'a OperatorPermit,
        limit: u32,
        after: Option<&'a TenantId>,
    ) -> DbFuture<'a, Vec<TenantRecord>>;

    /// Makes a key of the permit's tenant; [`super::DbError::TooManyKeys`] where it has its share. Answers what is known of
    /// its creator.
    fn create_key<'a>(&'a self, permit: &'a AdminPermit, key: NewKey) -> DbFuture<'a, Option<Rights>>;

    /// Keys of the permit's tenant, the revoked and expired ones included, newest first, older than `after`.
    fn keys<'a>(
        &'a self,
        permit: &'a AdminPermit,
        limit: u32,
        after: Option<&'a KeyId>,
    ) -> DbFuture<'a, Vec<KeyRecord>>;

    /// Runs of a user, newest first.
    fn runs_of<'a>(&'a self, scope: &'a ForgetScope) -> DbFuture<'a, Vec<RunId>>;

    /// Forgets a user who is disabled: everything that names it, but that it is disabled, which is kept as a salted hash
    /// until it is enabled. Forgets it in the tenant's audit as well, where `receipt` is appended, with the number of
    /// details that are gone. From then on nothing that is still under way writes the name again.
    fn forget_user<'a>(&'a self, scope: &'a ForgetScope, receipt: AuditEntry) -> DbFuture<'a, UserForgotten>;

    /// Revokes a key of the permit's tenant. Whether there is one; another tenant's is none.
    fn revoke_key<'a>(&'a self, permit: &'a AdminPermit, key: &'a KeyId, now_ms: u64) -> DbFuture<'a, bool>;
}

/// Who stands where the name of a forgotten user was and one is needed. Nobody is called so: it is no [`UserId`].
pub const FORGOTTEN: &str = "|forgotten";

/// Whom a permit lets be forgotten. Only a permit makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetScope {
    tenant: TenantId,
    user: UserId,
}

impl ForgetScope {
    /// A user of the admin's own tenant; `None` for a permit of something else.
    #[must_use]
    pub fn of_admin(permit: &AdminPermit, user: &UserId) -> Option<Self> {
        let scope = Self { tenant: permit.tenant().clone(), user: user.clone() };
        (*permit.action() == AdminAction::UserForget).then_some(scope)
    }

    /// A user of the tenant that an operator was permitted; `None` for a permit of something else.
    #[must_use]
    pub fn of_operator(permit: &OperatorPermit, user: &UserId) -> Option<Self> {
        let tenant = permit.tenant().filter(|_| permit.action() == Action::TenantUserForget)?;
        Some(Self { tenant: tenant.clone(), user: user.clone() })
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

/// What was forgotten with a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserForgotten {
    /// How the name is kept.
    pub names: ForgottenNames,
    /// Keys that acted as the user, or that it made.
    pub keys: Vec<KeyId>,
    /// Runs.
    pub runs: u64,
    /// Rows of the audit that lost their details.
    pub audit_rows: u64,
}

/// Users of one tenant who are disabled and forgotten: salted hashes of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenNames {
    /// The tenant.
    pub tenant: TenantId,
    /// Hashed before each name.
    pub salt: Vec<u8>,
    /// The hashes.
    pub hashes: BTreeSet<String>,
}

impl ForgottenNames {
    /// How a name is kept once it is forgotten. No user has such a name.
    #[must_use]
    pub fn hash(salt: &[u8], user: &UserId) -> String {
        let mut hash = Sha256::new_with_prefix(b"bailey forgotten user 1\0");
        hash.update(salt);
        hash.update(user.as_str());
        hash.finalize().iter().fold(String::from("#"), |text, byte| text + &format!("{byte:02x}"))
    }

    /// Whether the user is one of them.
    #[must_use]
    pub fn holds(&self, user: &UserId) -> bool {
        !self.hashes.is_empty() && self.hashes.contains(&Self::hash(&self.salt, user))
    }
}

/// Everything that decides at once whether somebody may still ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandingRows {
    /// Disabled tenants.
    pub tenants: Vec<TenantId>,
    /// Disabled users.
    pub users: Vec<(TenantId, UserId)>,
    /// Disabled users who are forgotten.
    pub forgotten: Vec<ForgottenNames>,
    /// Disabled service accounts and operators.
    pub accounts: Vec<DisabledAccount>,
    /// Keys that hold, with the hash of each.
    pub keys: Vec<(KeyHash, KeyRecord)>,
    /// What the newest token of those said who made any of them, or a tree token.
    pub makers: Vec<((TenantId, UserId), Option<Rights>)>,
}

/// Whether somebody is disabled, after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disabled {
    /// Whether the change changed anything.
    pub changed: bool,
    /// Whether it is disabled now, by whoever.
    pub now: bool,
    /// Whether it, or of a tenant anybody, was ever seen.
    pub known: bool,
}

/// SHA-256 of a key.
pub type KeyHash = [u8; 32];

/// Somebody who was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectSeen {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// What its newest token said.
    pub rights: Rights,
    /// When.
    pub seen_ms: u64,
}

/// What is known of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectRecord {
    /// The user.
    pub user: UserId,
    /// As it was seen last; `None` where it never was.
    pub seen: Option<SubjectKnown>,
    /// Since when it is disabled.
    pub disabled_since_ms: Option<u64>,
}

/// What the newest token of a user said, and when it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectKnown {
    /// What it said.
    pub rights: Rights,
    /// First time.
    pub first_ms: u64,
    /// Last time.
    pub last_ms: u64,
}

/// What is known of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    /// The tenant.
    pub tenant: TenantId,
    /// Users seen.
    pub users: u64,
    /// When anybody was last seen.
    pub last_seen_ms: Option<u64>,
    /// Since when it is disabled.
    pub disabled_since_ms: Option<u64>,
}

/// What a key may do, as its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyGrants {
    /// Roles.
    pub roles: BTreeSet<String>,
    /// Entitlements.
    pub entitlements: BTreeSet<Entitlement>,
    /// What it is narrowed to.
    pub scope: Scope,
    /// Its creator's region, which its user keeps.
    pub region: Option<String>,
    /// Its creator's project, which its user keeps.
    pub project: Option<String>,
}

/// A key to record. Whose tenant and who made it is in the permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its id, fresh.
    pub id: KeyId,
    /// Of its value, which is recorded nowhere.
    pub hash: KeyHash,
    /// For people.
    pub name: String,
    /// As whom it acts.
    pub user: UserId,
    /// What it may do.
    pub grants: KeyGrants,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// Milliseconds since 1970.
    pub expires_ms: u64,
}

/// A key as remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its id.
    pub id: KeyId,
    /// Whose.
    pub tenant: TenantId,
    /// For people.
    pub name: String,
    /// As whom it acts.
    pub user: UserId,
    /// Who made it.
    pub creator: UserId,
    /// What it may do.
    pub grants: KeyGrants,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// Milliseconds since 1970.
    pub expires_ms: u64,
    /// When it was revoked.
    pub revoked_ms: Option<u64>,
    /// When it was used last, to the minute.
    pub last_used_ms: Option<u64>,
}
