//! What a token says.

use std::collections::BTreeSet;
use std::fmt;

use bailey_policy::Entitlement;
use bailey_protocol::id::{TenantId, UserId};
use serde::{Deserialize, Serialize};

/// The issuer and the audience of the embedded issuer's tokens.
pub(crate) const EMBEDDED: &str = "bailey";
/// The type of every access token (RFC 9068).
pub(crate) const TOKEN_TYPE: &str = "at+jwt";
/// The one algorithm of the embedded issuer.
pub(crate) const ALGORITHM: &str = "EdDSA";
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

/// The whole payload. Any other field and any field said twice is refused. Times are seconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claims {
    pub(crate) iss: String,
    pub(crate) aud: String,
    pub(crate) sub: String,
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    pub(crate) roles: Vec<RoleName>,
    pub(crate) entitlements: Vec<Entitlement>,
    pub(crate) iat: u64,
    pub(crate) nbf: u64,
    pub(crate) exp: u64,
    pub(crate) jti: String,
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
