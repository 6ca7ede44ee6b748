//! Who asks, as authentication found out.

use std::collections::BTreeSet;
use std::fmt;

use bailey_protocol::id::{RunId, TenantId, UserId};
use serde::{Deserialize, Serialize};

use crate::scope::Scope;

/// A primitive that a customer paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entitlement {
    /// Running code.
    Execute,
    /// Reading and writing files.
    Tree,
    /// Fetching and pushing with git.
    Git,
    /// Making API keys and tree tokens.
    Keys,
    /// Policies of the tenant's own.
    Policies,
}

impl Entitlement {
    /// Every primitive.
    pub const ALL: [Self; 5] = [Self::Execute, Self::Tree, Self::Git, Self::Keys, Self::Policies];

    /// The name used in tokens, policies and denials.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Tree => "tree",
            Self::Git => "git",
            Self::Keys => "keys",
            Self::Policies => "policies",
        }
    }
}

impl fmt::Display for Entitlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is not an entitlement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an entitlement: use `execute`, `tree`, `git`, `keys` or `policies`")]
pub struct UnknownEntitlement(String);

impl std::str::FromStr for Entitlement {
    type Err = UnknownEntitlement;

    fn from_str(name: &str) -> Result<Self, UnknownEntitlement> {
        let known = Self::ALL.into_iter().find(|entitlement| entitlement.as_str() == name);
        known.ok_or_else(|| UnknownEntitlement(name.chars().take(64).flat_map(char::escape_default).collect()))
    }
}

/// Kinds of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    /// A signed token of an issuer.
    Token,
    /// An API key.
    ApiKey,
    /// A token for a part of a tree.
    TreeToken,
    /// A token that a service account got for a user.
    Exchanged,
}

impl CredentialKind {
    /// The name used in policies.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::ApiKey => "api_key",
            Self::TreeToken => "tree_token",
            Self::Exchanged => "exchanged",
        }
    }
}

/// Which credential a request came with, so that its revocation finds what it started. Never the secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CredentialId {
    /// Which kind.
    pub kind: CredentialKind,
    /// Its name: a token's `jti`, a key's id.
    pub id: String,
}

/// A user of a tenant who asks. Every attribute comes from a verified credential, never from the request itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant that everything it may reach belongs to.
    pub tenant: TenantId,
    /// The user within the tenant.
    pub user: UserId,
    /// What policies may ask for; `admin` is the base rules' own.
    pub roles: BTreeSet<String>,
    /// Primitives it may use at all.
    pub entitlements: BTreeSet<Entitlement>,
    /// Who made the key that it asks by, where that acts as somebody else: what it does is this person's doing, too.
    pub made_by: Option<UserId>,
    /// Set when a run asks as its user.
    pub run: Option<RunId>,
    /// What acts on the user's behalf: a service account or a key.
    pub actor: Option<String>,
    /// Where the user's data has to stay, where its issuer says.
    pub region: Option<String>,
    /// What the user works on, where its issuer says.
    pub project: Option<String>,
    /// What the credential is narrowed to.
    pub scope: Option<Scope>,
    /// When its issuer said all of this, in seconds since 1970; 0 for what is no token.
    pub issued_s: u64,
    /// When the credential stops to hold, in milliseconds since 1970.
    pub valid_until_ms: u64,
    /// Which credential it is.
    pub credential: CredentialId,
}

impl Principal {
    /// A user with every entitlement, no role and a token that does not end: what is missing is set on it.
    #[must_use]
    pub fn new(tenant: TenantId, user: UserId) -> Self {
        Self {
            tenant,
            user,
            roles: BTreeSet::new(),
            entitlements: Entitlement::ALL.into(),
            made_by: None,
            run: None,
            actor: None,
            region: None,
            project: None,
            scope: None,
            issued_s: 0,
            valid_until_ms: u64::MAX,
            credential: CredentialId { kind: CredentialKind::Token, id: String::new() },
        }
    }
}

/// A product that acts for tenants: it may exchange its token for a user's, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Its name.
    pub name: String,
    /// What policies may ask for, and the roles that those whom it only names may have at most.
    pub roles: BTreeSet<String>,
    /// The primitives that those whom it only names may use at most.
    pub entitlements: BTreeSet<Entitlement>,
    /// For whom it may act.
    pub tenants: ServedTenants,
    /// When the credential stops to hold, in milliseconds since 1970.
    pub valid_until_ms: u64,
    /// Which credential it came with.
    pub credential: CredentialId,
}

/// The tenants that a service account acts for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServedTenants {
    /// All.
    All,
    /// These.
    Only(BTreeSet<TenantId>),
}

/// Who runs this server: it acts on tenants as wholes, never on their data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Its name.
    pub name: String,
    /// What policies may ask for.
    pub roles: BTreeSet<String>,
    /// When the credential stops to hold, in milliseconds since 1970.
    pub valid_until_ms: u64,
    /// Which credential it came with.
    pub credential: CredentialId,
}
