//! Checks a token, as hostile bytes, and says whom it speaks for.

use std::fmt;
use std::sync::Arc;

use bailey_policy::{Operator, Principal, ServiceAccount};
use serde::Deserialize;

use super::LEEWAY_SECONDS;
use super::claims::{self, EMBEDDED, Header, TOKEN_TYPE};
use super::foreign::{ForeignIssuer, ForeignIssuerError, Freshness, IssuerConfig, KeyAge, KeyKeeper};
use super::jws::{Jws, part};
use super::key::{Algorithm, PublicKey};

/// Why a token is refused. Callers learn `expired` or `invalid`; the rest is for the operator's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Longer than 8 KiB.
    #[error("the token is longer than 8 KiB")]
    TooLarge,
    /// Not three parts, not base64url, not the JSON it has to be.
    #[error("the token's {part} cannot be read")]
    Malformed {
        /// `shape`, `header`, `claims` or `signature`.
        part: &'static str,
    },
    /// The header asks for something else than its issuer's own way.
    #[error("the token's header has another {field}")]
    Header {
        /// The field.
        field: &'static str,
    },
    /// The key, or the issuer, is not one that this server trusts.
    #[error("the token's key is unknown")]
    UnknownKey,
    /// The signature is not by that key over this token.
    #[error("the token's signature does not fit")]
    Signature,
    /// The claims are for somebody or something else.
    #[error("the token's claim `{claim}` does not fit")]
    Claim {
        /// The claim.
        claim: &'static str,
    },
    /// Its time is over.
    #[error("the token is expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// It may be good, but its issuer cannot be asked for the key that it names.
    #[error("the token's issuer cannot be asked for its keys")]
    IssuerUnavailable,
}

/// Who asks, as a credential says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A user of a tenant.
    User(Principal),
    /// A product that acts for tenants' users. It may exchange its token for a user's, and nothing else.
    Service(ServiceAccount),
    /// Who runs this server. It acts on tenants as wholes.
    Operator(Operator),
}

/// Turns tokens into identities. Clones share what is known of foreign issuers.
#[derive(Clone)]
pub struct Authenticator {
    kid: String,
    key: Arc<PublicKey>,
    foreign: Vec<ForeignIssuer>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("kid", &self.kid).field("foreign", &self.foreign).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Named {
    iss: String,
}

impl Authenticator {
    /// Trusts the embedded issuer's key and nothing else.
    pub(super) fn embedded(kid: String, key: PublicKey) -> Self {
        Self { kid, key: Arc::new(key), foreign: Vec::new() }
    }

    /// Trusts these issuers as well. Each keeper has to be run for as long as tokens are checked.
    ///
    /// # Errors
    /// When there is no way to ask them for their keys.
    pub fn trusting(
        mut self,
        issuers: Vec<IssuerConfig>,
        freshness: Freshness,
    ) -> Result<(Self, Vec<KeyKeeper>), ForeignIssuerError> {
        let mut keepers = Vec::new();
        for config in issuers {
            let (issuer, keeper) = ForeignIssuer::new(config, freshness)?;
            self.foreign.push(issuer);
            keepers.push(keeper);
        }
        Ok((self, keepers))
    }

    /// How fresh the keys of each trusted issuer are.
    pub(crate) fn key_ages(&self) -> Vec<KeyAge> {
        self.foreign.iter().map(ForeignIssuer::key_age).collect()
    }

    /// Who `token` speaks for, at `now_ms`.
    ///
    /// It waits only for a key that an issuer may have made a moment ago, and that for a few seconds at most. Nothing
    /// that a token says is ever where a key comes from.
    ///
    /// # Errors
    /// When anything about it is not exactly as its issuer's tokens are.
    pub async fn verify(&self, token: &str, now_ms: u64) -> Result<Identity, AuthError> {
        let token = Jws::split(token)?;
        let Named { iss } = part(&token.payload, "claims")?;
        if iss == EMBEDDED {
            return self.verify_own(&token, now_ms / 1000);
        }
        match self.foreign.iter().find(|issuer| issuer.name() == iss) {
            Some(issuer) => issuer.verify(&token, now_ms / 1000).await,
            None => Err(AuthError::UnknownKey),
        }
    }

    fn verify_own(&self, token: &Jws<'_>, now: u64) -> Result<Identity, AuthError> {
        let header: Header = part(&token.header, "header")?;
        if header.alg != Algorithm::EdDsa.as_str() {
            return Err(AuthError::Header { field: "alg" });
        }
        if header.typ != TOKEN_TYPE {
            return Err(AuthError::Header { field: "typ" });
        }
        if header.kid != self.kid {
            return Err(AuthError::UnknownKey);
        }
        if !self.key.signed(token.message, &token.signature) {
            return Err(AuthError::Signature);
        }
        claims::identity(&token.payload, now)
    }
}

/// Checks a token's times, in seconds; answers until when it holds, in milliseconds, leeway included.
pub(super) fn check_times(exp: u64, iat: u64, nbf: u64, now: u64) -> Result<u64, AuthError> {
    if exp <= iat || exp <= nbf {
        return Err(AuthError::Claim { claim: "exp" });
    }
    let end = exp.saturating_add(LEEWAY_SECONDS);
    if now >= end {
        return Err(AuthError::Expired);
    }
    if nbf.max(iat) > now.saturating_add(LEEWAY_SECONDS) {
        return Err(AuthError::NotYetValid);
    }
    Ok(end.saturating_mul(1000))
}
