//! Who asks: tokens, the keys that sign them, and the strict check of each.
//!
//! The embedded issuer signs with one Ed25519 key, which whoever comes first makes. Foreign issuers are those that the
//! operator configured; [`foreign`] keeps their keys. A token is checked as hostile bytes: size, shape, header, key,
//! signature, and only then what it claims. Nothing is ever fetched because a token says so. Start with
//! [`Authenticator::verify`].

mod claims;
mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod issuer;
mod jws;
mod key;
mod key_file;
mod verify;

#[cfg(test)]
mod tests;

pub use claims::{RoleError, RoleName, SystemTokenSpec, Token, TokenExtras, TokenSpec};
pub use foreign::{
    ClaimPath, ForeignIssuerError, Freshness, IssuerConfig, IssuerConfigError, KeyKeeper, MappingConfig, OperatorRule,
    ServiceRule,
};
pub use issuer::{Issuer, IssuerError};
pub use key_file::KeyFileError;
pub use verify::{AuthError, Authenticator, Identity};

pub(crate) use claims::{TOKEN_TYPE, is_label, is_machine};
pub(crate) use foreign::KeyAge;
pub(crate) use issuer::thumbprint;

/// Largest token, in bytes; longer ones are refused unread.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// How far clocks may disagree, in seconds.
pub const LEEWAY_SECONDS: u64 = 30;
/// Longest life of a service account's or an operator's token, in seconds.
pub const MAX_SYSTEM_TTL_SECONDS: u64 = 30 * 24 * 3600;
/// Longest life of a user's token, in seconds.
pub const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;
