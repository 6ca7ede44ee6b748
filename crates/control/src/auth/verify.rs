//! Checks a token, as hostile bytes.

use std::fmt;

use bailey_policy::Principal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::de::DeserializeOwned;

use super::claims::{ALGORITHM, Claims, EMBEDDED, Header, MAX_ROLES, TOKEN_TYPE};
use super::{LEEWAY_SECONDS, MAX_TOKEN_BYTES};

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
    /// The header asks for something else than this server's own way.
    #[error("the token's header has another {field}")]
    Header {
        /// The field.
        field: &'static str,
    },
    /// The key is not one that this server trusts.
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
}

/// Turns tokens into principals.
#[derive(Clone)]
pub struct Authenticator {
    issuer: TrustedIssuer,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("kid", &self.issuer.kid).finish_non_exhaustive()
    }
}

/// A key that may sign, and for whom it speaks.
#[derive(Clone)]
struct TrustedIssuer {
    kid: String,
    key: DecodingKey,
    name: &'static str,
}

impl Authenticator {
    /// Trusts the embedded issuer's key and nothing else.
    pub(crate) fn embedded(kid: String, public_key: &[u8]) -> Self {
        let key = DecodingKey::from_ed_der(public_key);
        Self { issuer: TrustedIssuer { kid, key, name: EMBEDDED } }
    }

    /// Who a token speaks for.
    ///
    /// # Errors
    /// When anything about it is not exactly as this server's own tokens are.
    pub fn verify(&self, token: &str, now_ms: u64) -> Result<Principal, AuthError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AuthError::TooLarge);
        }
        let shape = AuthError::Malformed { part: "shape" };
        let (message, signature) = token.rsplit_once('.').ok_or(shape.clone())?;
        let (header, payload) = message.split_once('.').ok_or(shape.clone())?;
        if payload.contains('.') {
            return Err(shape);
        }
        let header: Header = part(header, "header")?;
        let issuer = self.issuer_of(&header)?;
        // Decoded here only to refuse what is not canonical; the library decodes again.
        decode(signature, "signature")?;
        let signed = jsonwebtoken::crypto::verify(signature, message.as_bytes(), &issuer.key, Algorithm::EdDSA);
        if !signed.is_ok_and(|good| good) {
            return Err(AuthError::Signature);
        }
        principal(part(payload, "claims")?, issuer, now_ms / 1000)
    }

    /// The issuer whose key a header names. Further issuers are found here.
    fn issuer_of(&self, header: &Header) -> Result<&TrustedIssuer, AuthError> {
        if header.alg != ALGORITHM {
            return Err(AuthError::Header { field: "alg" });
        }
        if header.typ != TOKEN_TYPE {
            return Err(AuthError::Header { field: "typ" });
        }
        if header.kid != self.issuer.kid {
            return Err(AuthError::UnknownKey);
        }
        Ok(&self.issuer)
    }
}

fn decode(text: &str, part: &'static str) -> Result<Vec<u8>, AuthError> {
    // The engine refuses padding, other alphabets and trailing bits: one text for each value.
    URL_SAFE_NO_PAD.decode(text).map_err(|_undecodable| AuthError::Malformed { part })
}

fn part<T: DeserializeOwned>(text: &str, part: &'static str) -> Result<T, AuthError> {
    let json = decode(text, part)?;
    // serde reads a struct from a list as well; a token's parts are objects (RFC 7515).
    if json.first() != Some(&b'{') {
        return Err(AuthError::Malformed { part });
    }
    serde_json::from_slice(&json).map_err(|_unreadable| AuthError::Malformed { part })
}

fn principal(claims: Claims, issuer: &TrustedIssuer, now: u64) -> Result<Principal, AuthError> {
    let checks = [
        ("iss", claims.iss == issuer.name),
        ("aud", claims.aud == EMBEDDED),
        ("sub", claims.sub == claims.user.as_str()),
        ("jti", (1..=64).contains(&claims.jti.len())),
        ("roles", claims.roles.len() <= MAX_ROLES),
        ("exp", claims.exp > claims.iat && claims.exp > claims.nbf),
    ];
    if let Some((claim, _)) = checks.into_iter().find(|(_, fits)| !fits) {
        return Err(AuthError::Claim { claim });
    }
    if now >= claims.exp.saturating_add(LEEWAY_SECONDS) {
        return Err(AuthError::Expired);
    }
    if claims.nbf.max(claims.iat) > now.saturating_add(LEEWAY_SECONDS) {
        return Err(AuthError::NotYetValid);
    }
    Ok(Principal {
        tenant: claims.tenant,
        user: claims.user,
        roles: claims.roles.into_iter().map(String::from).collect(),
        entitlements: claims.entitlements.into_iter().collect(),
        run: None,
    })
}
