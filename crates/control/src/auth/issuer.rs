//! The embedded issuer: signs tokens with the server's own key.

use std::fmt;
use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::claims::{ALGORITHM, Claims, EMBEDDED, Header, MAX_ROLES, TOKEN_TYPE, Token, TokenSpec};
use super::key_file::{self, KeyFileError};
use super::verify::Authenticator;
use super::{MAX_TOKEN_BYTES, MAX_TTL_SECONDS};
use crate::clock::{Rng, RngError};

/// Why the issuer cannot be opened or a token cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The key file.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The file holds something else than an Ed25519 key.
    #[error("the issuer key is not an Ed25519 key in PKCS #8")]
    NotAKey,
    /// The life asked for.
    #[error("a token may live 1 second to {MAX_TTL_SECONDS} seconds, not {given}")]
    Ttl {
        /// What was asked for.
        given: u64,
    },
    /// More than 16 roles.
    #[error("a token may have at most {MAX_ROLES} roles, not {given}")]
    Roles {
        /// What was asked for.
        given: usize,
    },
    /// The token would be longer than what [`Authenticator::verify`] reads.
    #[error("the token would be longer than {MAX_TOKEN_BYTES} bytes")]
    TooLarge,
    /// No randomness.
    #[error("cannot name the token")]
    Rng(#[from] RngError),
    /// The signer failed.
    #[error("cannot sign the token")]
    Sign {
        /// Why.
        source: jsonwebtoken::errors::Error,
    },
    /// A part cannot be written as JSON.
    #[error("cannot write the token's {part}")]
    Encode {
        /// The part.
        part: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

/// Signs tokens. `Debug` does not show the key.
pub struct Issuer {
    kid: String,
    public_key: Vec<u8>,
    key: EncodingKey,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("kid", &self.kid).field("key", &"[redacted]").finish_non_exhaustive()
    }
}

/// One public key, as RFC 8037 writes it.
#[derive(Serialize)]
struct Jwk<'a> {
    kty: &'a str,
    crv: &'a str,
    x: &'a str,
    kid: &'a str,
    #[serde(rename = "use")]
    purpose: &'a str,
    alg: &'a str,
}

impl Issuer {
    /// Opens the issuer of the server whose files are below `serve_dir` (`DATA/serve`), making its key if there is
    /// none. `owner` is the uid that the files have to belong to: the server's own, also where root comes first.
    ///
    /// # Errors
    /// When the key cannot be read or made, belongs to somebody else, or others may read it.
    pub fn open(serve_dir: &Path, owner: u32) -> Result<Self, IssuerError> {
        let der = key_file::ensure(serve_dir, owner)?;
        let pair = Ed25519KeyPair::from_pkcs8(&der).map_err(|_rejected| IssuerError::NotAKey)?;
        let public_key = pair.public_key().as_ref().to_vec();
        Ok(Self { kid: thumbprint(&public_key), public_key, key: EncodingKey::from_ed_der(&der) })
    }

    /// What checks this issuer's tokens. It holds the public key only.
    #[must_use]
    pub fn authenticator(&self) -> Authenticator {
        Authenticator::embedded(self.kid.clone(), &self.public_key)
    }

    /// The JSON document at `/.well-known/jwks.json`.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn jwks(&self) -> Result<String, IssuerError> {
        let x = URL_SAFE_NO_PAD.encode(&self.public_key);
        let key = Jwk { kty: "OKP", crv: "Ed25519", x: &x, kid: &self.kid, purpose: "sig", alg: ALGORITHM };
        json(&std::collections::BTreeMap::from([("keys", [key])]), "key set")
    }

    /// Signs a token that begins now.
    ///
    /// # Errors
    /// When the spec asks for too long a life or too many roles.
    pub fn mint(&self, spec: &TokenSpec, now_ms: u64, rng: &Rng) -> Result<Token, IssuerError> {
        if !(1..=MAX_TTL_SECONDS).contains(&spec.ttl_seconds) {
            return Err(IssuerError::Ttl { given: spec.ttl_seconds });
        }
        if spec.roles.len() > MAX_ROLES {
            return Err(IssuerError::Roles { given: spec.roles.len() });
        }
        let now = now_ms / 1000;
        let claims = Claims {
            iss: EMBEDDED.to_owned(),
            aud: EMBEDDED.to_owned(),
            sub: spec.user.to_string(),
            tenant: spec.tenant.clone(),
            user: spec.user.clone(),
            roles: spec.roles.iter().cloned().collect(),
            entitlements: spec.entitlements.iter().copied().collect(),
            iat: now,
            nbf: now,
            exp: now.saturating_add(spec.ttl_seconds),
            jti: URL_SAFE_NO_PAD.encode(rng.bytes::<16>()?),
        };
        let header = Header { alg: ALGORITHM.to_owned(), kid: self.kid.clone(), typ: TOKEN_TYPE.to_owned() };
        let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
        let message = format!("{}.{}", encode(json(&header, "header")?), encode(json(&claims, "claims")?));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, Algorithm::EdDSA)
            .map_err(|source| IssuerError::Sign { source })?;
        let token = format!("{message}.{signature}");
        if token.len() > MAX_TOKEN_BYTES { Err(IssuerError::TooLarge) } else { Ok(Token::new(token)) }
    }
}

/// The key's name: its RFC 7638 thumbprint.
fn thumbprint(public_key: &[u8]) -> String {
    let x = URL_SAFE_NO_PAD.encode(public_key);
    let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(canonical))
}

fn json(value: &impl Serialize, part: &'static str) -> Result<String, IssuerError> {
    serde_json::to_string(value).map_err(|source| IssuerError::Encode { part, source })
}
