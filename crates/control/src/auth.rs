//! Who asks: tokens, the key that signs them, and the strict check of each.
//!
//! The embedded issuer signs with one Ed25519 key, which whoever comes first makes. A token is checked as hostile
//! bytes: size, shape, header, key, signature, and only then what it claims. Nothing is ever fetched because a token
//! says so. Start with [`Authenticator::verify`].

mod claims;
mod issuer;
mod key_file;
mod verify;

#[cfg(test)]
mod tests;

pub use claims::{RoleError, RoleName, Token, TokenSpec};
pub use issuer::{Issuer, IssuerError};
pub use key_file::KeyFileError;
pub use verify::{AuthError, Authenticator};

/// Largest token, in bytes; longer ones are refused unread.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// How far clocks may disagree, in seconds.
pub const LEEWAY_SECONDS: u64 = 30;
/// Longest life of a token, in seconds.
pub const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;
