//! Users, tenants, API keys and tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{KeyId, TenantId, UserId};
use crate::path::TreePath;

/// What is known of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserInfo {
    /// The user.
    pub user: UserId,
    /// As the last token said.
    #[serde(default)]
    pub roles: Vec<String>,
    /// As the last token said.
    #[serde(default)]
    pub entitlements: Vec<String>,
    /// Absent where the user was never seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen_ms: Option<u64>,
    /// The age of all of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_ms: Option<u64>,
    /// Until when the last token holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_ms: Option<u64>,
    /// Since when the user is disabled; absent where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_since_ms: Option<u64>,
}

/// Answer to `GET /v1/users`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserList {
    /// By name.
    pub users: Vec<UserInfo>,
    /// Send as `after` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<UserId>,
}

/// What is known of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantInfo {
    /// The tenant.
    pub tenant: TenantId,
    /// Users who were seen.
    pub users: u64,
    /// When any of them was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_ms: Option<u64>,
    /// Since when the tenant is disabled; absent where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_since_ms: Option<u64>,
}

/// Answer to `GET /v1/operator/tenants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantList {
    /// By name.
    pub tenants: Vec<TenantInfo>,
    /// Send as `after` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TenantId>,
}

/// What the operator noted of a tenant, for policies. As a body it replaces what was noted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantNotes {
    /// Where its data has to stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What it paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

/// What is noted of a tenant, answered to operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantNoted {
    /// The tenant.
    pub tenant: TenantId,
    /// Where its data has to stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What it paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Whether anybody of it was ever seen. It can be noted before; of a name that is misspelt nobody will be.
    pub known: bool,
}

/// What a service account or an operator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// A product that acts for tenants.
    Service,
    /// Who runs the server.
    Operator,
}

impl AccountKind {
    /// The name used in addresses and on the audit.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Operator => "operator",
        }
    }
}

impl std::fmt::Display for AccountKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no kind of account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an account is a `service` or an `operator`")]
pub struct UnknownAccountKind;

impl std::str::FromStr for AccountKind {
    type Err = UnknownAccountKind;

    fn from_str(name: &str) -> Result<Self, UnknownAccountKind> {
        [Self::Service, Self::Operator].into_iter().find(|kind| kind.as_str() == name).ok_or(UnknownAccountKind)
    }
}

/// A service account or operator that is disabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DisabledAccount {
    /// Which of the two.
    pub kind: AccountKind,
    /// Its name.
    pub name: UserId,
    /// Since when.
    pub disabled_since_ms: u64,
}

/// Answer to `GET /v1/operator/accounts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountList {
    /// Those that are disabled, services first, by name.
    pub disabled: Vec<DisabledAccount>,
}

/// Answer to `DELETE /v1/users/{user}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForgottenAnswer {
    /// Rows of the audit whose details are gone.
    pub audit_rows: u64,
    /// Runs that are gone, with their events.
    pub runs: u64,
    /// API keys that are gone.
    pub keys: u64,
}

/// Answer to disabling and enabling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DisabledAnswer {
    /// Whether it is disabled now.
    pub disabled: bool,
    /// Whether this changed anything.
    pub changed: bool,
    /// Of users and tenants: whether anybody of that name was ever seen. One can be disabled before it is; a name that is
    /// misspelt never will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<bool>,
}

/// Body of `POST /v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// For people: 1 to 100 characters.
    pub name: String,
    /// As whom it acts: its creator, as without it, or a machine user, whose name begins with `+`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// Roles, none that its creator lacks.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Primitives, none that its creator lacks; all of its creator's without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entitlements: Option<Vec<String>>,
    /// Actions, such as `tree_read`; without it the daily work: nothing that admins or reviewers do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<String>>,
    /// Paths of the tenant, each with what is below it; every path without it. Not with an action about the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<TreePath>>,
    /// Whether it only looks.
    #[serde(default)]
    pub read_only: bool,
    /// How long it is good for, in seconds: at most a year.
    pub ttl_seconds: u64,
}

/// A key, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyInfo {
    /// Its id.
    pub id: KeyId,
    /// For people.
    pub name: String,
    /// As whom it acts.
    pub user: UserId,
    /// Who made it.
    pub creator: UserId,
    /// Roles.
    pub roles: Vec<String>,
    /// Primitives.
    pub entitlements: Vec<String>,
    /// Actions that it is for.
    pub actions: Vec<String>,
    /// Paths that it is for; absent where every path is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<TreePath>>,
    /// Whether it only looks.
    pub read_only: bool,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// Milliseconds since 1970.
    pub expires_ms: u64,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_ms: Option<u64>,
    /// When it was used last, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_ms: Option<u64>,
}

/// Answer to `POST /v1/keys`: the only time that the value is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyCreated {
    /// The key.
    pub key: KeyInfo,
    /// Its value, `e2b_` and 40 hex digits. Nobody can ask for it again.
    pub value: String,
}

impl std::fmt::Debug for KeyCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyCreated").field("key", &self.key).field("value", &"[redacted]").finish()
    }
}

/// Answer to `GET /v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyList {
    /// Newest first, the revoked and expired ones included.
    pub keys: Vec<KeyInfo>,
    /// Send as `after` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<KeyId>,
}

/// Form of `POST /v1/token` (RFC 8693).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenForm {
    /// `urn:ietf:params:oauth:grant-type:token-exchange`.
    pub grant_type: String,
    /// A user's token of a trusted issuer, or `{tenant}/{user}`.
    pub subject_token: String,
    /// `urn:ietf:params:oauth:token-type:access_token` (or `…:jwt`), or `urn:bailey:token-type:user`.
    pub subject_token_type: String,
    /// `urn:ietf:params:oauth:token-type:access_token`, or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_token_type: Option<String>,
    /// What the token is for, in words: entitlements, `role:NAME`, `action:NAME`, `path:PATH`, `read_only`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

impl std::fmt::Debug for TokenForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenForm").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Answer to `POST /v1/token`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenAnswer {
    /// The user's token.
    pub access_token: String,
    /// `urn:ietf:params:oauth:token-type:access_token`.
    pub issued_token_type: String,
    /// `Bearer`.
    pub token_type: String,
    /// Seconds.
    pub expires_in: u64,
}

impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenAnswer").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

/// Body of `POST /v1/webhooks/identity`: an identity provider takes somebody's rights away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityEvent {
    /// What happened. There is no word for giving rights back.
    pub event: IdentityEventKind,
    /// Whose user.
    pub tenant: TenantId,
    /// The user; the whole tenant without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
}

/// What an identity provider can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdentityEventKind {
    /// End everything of theirs.
    Disable,
}
