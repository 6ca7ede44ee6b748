//! Who asks, as authentication found out.

use std::collections::BTreeSet;
use std::fmt;

use bailey_protocol::id::{RunId, TenantId, UserId};
use serde::{Deserialize, Serialize};

/// A primitive that a customer paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entitlement {
    /// Running code.
    Execute,
    /// Reading and writing files.
    Tree,
}

impl Entitlement {
    /// Every primitive.
    pub const ALL: [Self; 2] = [Self::Execute, Self::Tree];

    /// The name used in tokens, policies and denials.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Tree => "tree",
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
#[error("`{0}` is not an entitlement: use `execute` or `tree`")]
pub struct UnknownEntitlement(String);

impl std::str::FromStr for Entitlement {
    type Err = UnknownEntitlement;

    fn from_str(name: &str) -> Result<Self, UnknownEntitlement> {
        let known = Self::ALL.into_iter().find(|entitlement| entitlement.as_str() == name);
        known.ok_or_else(|| UnknownEntitlement(name.chars().take(64).flat_map(char::escape_default).collect()))
    }
}

/// Who asks. Every attribute comes from a verified token, never from the request itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant that everything it may reach belongs to.
    pub tenant: TenantId,
    /// The user within the tenant.
    pub user: UserId,
    /// What operator policies may ask for.
    pub roles: BTreeSet<String>,
    /// Primitives it may use at all.
    pub entitlements: BTreeSet<Entitlement>,
    /// Set when a run asks as its user.
    pub run: Option<RunId>,
}
