//! What a token says.

use std::collections::BTreeSet;
use std::fmt;

use bailey_policy::{
    CredentialId, CredentialKind, Entitlement, Operator, Principal, Scope, ServedTenants, ServiceAccount,
};
use bailey_protocol::id::{TenantId, UserId};
use serde::{Deserialize, Serialize};

use super::MAX_SYSTEM_TTL_SECONDS;
use super::jws::part;
use super::verify::{AuthError, Identity, check_times};

/// The embedded issuer, and the audience of its users' tokens.
pub(crate) const EMBEDDED: &str = "bailey";
/// The audience of its service accounts' tokens.
pub(crate) const SERVICES: &str = "bailey-services";
/// The audience of its operators' tokens.
pub(crate) const OPERATORS: &str = "bailey-operators";
/// The type of every access token (RFC 9068).
pub(crate) const TOKEN_TYPE: &str = "at+jwt";
/// Most roles of one token.
pub(crate) const MAX_ROLES: usize = 16;

/// The whole header. Any other field (`jwk jku x5u x5c crit zip b64 …`) and any field said twice is refused.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) alg: String,
    pub(crate) kid: String,
    pub(crate) typ: String,
}

/// The whole payload of a user's token. Any other field and any field said twice is refused. Times are seconds since
/// 1970.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserClaims {
    pub(crate) iss: String,
    pub(crate) aud: String,
    pub(crate) sub: String,
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    pub(crate) roles: Vec<RoleName>,
    pub(crate) entitlements: Vec<Entitlement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    /// What acts for the user (RFC 8693): then the token came by an exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) act: Option<Actor>,
    /// What the token is narrowed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) narrowed: Option<Scope>,
    pub(crate) iat: u64,
    pub(crate) nbf: u64,
    pub(crate) exp: u64,
    pub(crate) jti: String,
}

/// Who acts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Actor {
    pub(crate) sub: UserId,
}

/// The whole payload of a service account's or an operator's token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SystemClaims {
    pub(crate) iss: String,
    /// Which of the two.
    pub(crate) aud: String,
    pub(crate) sub: UserId,
    /// Of a service account: for whom it acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenants: Option<ServedTenants>,
    pub(crate) roles: Vec<RoleName>,
    /// Of a service account: what those whom it only names may use at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) entitlements: Vec<Entitlement>,
    pub(crate) iat: u64,
    pub(crate) nbf: u64,
    pub(crate) exp: u64,
    pub(crate) jti: String,
}

#[derive(Deserialize)]
struct Audience {
    aud: String,
}

/// Who a payload of the embedded issuer speaks for, at `now` in seconds. Its signature holds already.
pub(crate) fn identity(payload: &[u8], now: u64) -> Result<Identity, AuthError> {
    let Audience { aud } = part(payload, "claims")?;
    match aud.as_str() {
        EMBEDDED => user(part(payload, "claims")?, now),
        SERVICES | OPERATORS => system(part(payload, "claims")?, now),
        _ => Err(AuthError::Claim { claim: "aud" }),
    }
}

fn user(claims: UserClaims, now: u64) -> Result<Identity, AuthError> {
    let label = |label: &Option<String>| label.as_ref().is_none_or(|text| is_label(text));
    let checks = [
        ("iss", claims.iss == EMBEDDED),
        ("sub", claims.sub == claims.user.as_str()),
        ("user", !is_machine(&claims.user)),
        ("jti", is_token_id(&claims.jti)),
        ("roles", claims.roles.len() <= MAX_ROLES),
        ("region", label(&claims.region)),
        ("project", label(&claims.project)),
    ];
    if let Some((claim, _)) = checks.into_iter().find(|(_, fits)| !fits) {
        return Err(AuthError::Claim { claim });
    }
    let valid_until_ms = check_times(claims.exp, claims.iat, claims.nbf, now)?;
    let kind = if claims.act.is_some() { CredentialKind::Exchanged } else { CredentialKind::Token };
    let mut principal = Principal::new(claims.tenant, claims.user);
    principal.roles = names(claims.roles);
    principal.entitlements = claims.entitlements.into_iter().collect();
    principal.actor = claims.act.map(|actor| actor.sub.to_string());
    principal.region = claims.region;
    principal.project = claims.project;
    principal.scope = claims.narrowed;
    principal.issued_s = claims.iat;
    principal.valid_until_ms = valid_until_ms;
    principal.credential = CredentialId { kind, id: claims.jti };
    Ok(Identity::User(principal))
}

fn system(claims: SystemClaims, now: u64) -> Result<Identity, AuthError> {
    let checks = [
        ("iss", claims.iss == EMBEDDED),
        ("jti", is_token_id(&claims.jti)),
        ("roles", claims.roles.len() <= MAX_ROLES),
        // An older server signed longer ones.
        ("exp", claims.exp.saturating_sub(claims.iat) <= MAX_SYSTEM_TTL_SECONDS),
        ("tenants", claims.tenants.is_some() == (claims.aud == SERVICES)),
        ("entitlements", claims.entitlements.is_empty() || claims.aud == SERVICES),
    ];
    if let Some((claim, _)) = checks.into_iter().find(|(_, fits)| !fits) {
        return Err(AuthError::Claim { claim });
    }
    let valid_until_ms = check_times(claims.exp, claims.iat, claims.nbf, now)?;
    let (name, roles) = (claims.sub.to_string(), names(claims.roles));
    let credential = CredentialId { kind: CredentialKind::Token, id: claims.jti };
    Ok(match claims.tenants {
        Some(tenants) => {
            let entitlements = claims.entitlements.into_iter().collect();
            Identity::Service(ServiceAccount { name, roles, entitlements, tenants, valid_until_ms, credential })
        }
        None => Identity::Operator(Operator { name, roles, valid_until_ms, credential }),
    })
}

fn names(roles: Vec<RoleName>) -> BTreeSet<String> {
    roles.into_iter().map(String::from).collect()
}

fn is_token_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
}

/// Whether a user is a machine's: `+` and a name. Only API keys act as such a user; no token ever names one.
pub(crate) fn is_machine(user: &UserId) -> bool {
    user.as_str().starts_with('+')
}

/// Whether a text can be a region or a project.
pub(crate) fn is_label(text: &str) -> bool {
    (1..=128).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// What operator policies may ask for: 1–63 of `a-z 0-9 _ -`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RoleName(String);

/// A text that is not a role name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role name: use 1 to 63 of a-z, 0-9, `_` and `-`")]
pub struct RoleError(String);

impl RoleName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for RoleName {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
        if (1..=63).contains(&text.len()) && text.bytes().all(known) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RoleError(text.chars().take(64).flat_map(char::escape_default).collect()))
        }
    }
}

impl TryFrom<String> for RoleName {
    type Error = RoleError;
    fn try_from(text: String) -> Result<Self, RoleError> {
        text.parse()
    }
}

impl From<RoleName> for String {
    fn from(role: RoleName) -> String {
        role.0
    }
}

/// What a new token is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSpec {
    /// The tenant.
    pub tenant: TenantId,
    /// The user within it.
    pub user: UserId,
    /// At most 16.
    pub roles: BTreeSet<RoleName>,
    /// Primitives it grants.
    pub entitlements: BTreeSet<Entitlement>,
    /// How long it is good for, in seconds.
    pub ttl_seconds: u64,
}

/// What a user's token may say beside its [`TokenSpec`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenExtras {
    /// Where the user's data has to stay.
    pub region: Option<String>,
    /// What the user works on.
    pub project: Option<String>,
    /// The service account that acts for the user.
    pub actor: Option<UserId>,
    /// What the token is narrowed to.
    pub scope: Option<Scope>,
}

/// Of whom a token speaks that is no tenant's user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemTokenSpec {
    /// A service account.
    Service {
        /// For whom it acts.
        tenants: ServedTenants,
        /// The primitives that those whom it only names may use at most.
        entitlements: BTreeSet<Entitlement>,
    },
    /// An operator.
    Operator,
}

/// A signed token: a secret of whoever holds it. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The token, to hand to its holder.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token([redacted])")
    }
}
