//! The embedded issuer: signs tokens with the server's own key.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use bailey_protocol::id::UserId;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::claims::{
    Actor, EMBEDDED, Header, MAX_ROLES, OPERATORS, RoleName, SERVICES, SystemClaims, SystemTokenSpec, TOKEN_TYPE,
    Token, TokenExtras, TokenSpec, UserClaims, is_label, is_machine,
};
use super::key::{Algorithm, PublicKey};
use super::key_file::{self, KeyFileError};
use super::verify::Authenticator;
use super::{MAX_SYSTEM_TTL_SECONDS, MAX_TOKEN_BYTES, MAX_TTL_SECONDS};
use crate::audit::AuditSigner;
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
    #[error("such a token may live 1 second to {most} seconds, not {given}")]
    Ttl {
        /// Most that is allowed.
        most: u64,
        /// What was asked for.
        given: u64,
    },
    /// More than 16 roles.
    #[error("a token may have at most {MAX_ROLES} roles, not {given}")]
    Roles {
        /// What was asked for.
        given: usize,
    },
    /// A machine user's name.
    #[error("a user whose name begins with `+` is a machine's: give it an API key")]
    Machine,
    /// A region or project that is none.
    #[error("a region and a project have 1 to 128 characters, none of them a control character")]
    Label,
    /// The token would be longer than what [`Authenticator::verify`] reads.
    #[error("the token would be longer than {MAX_TOKEN_BYTES} bytes")]
    TooLarge,
    /// No randomness.
    #[error("cannot name the token")]
    Rng(#[from] RngError),
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
    checks: PublicKey,
    pair: Arc<Ed25519KeyPair>,
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
        let checks = PublicKey::ed25519(&public_key).ok_or(IssuerError::NotAKey)?;
        Ok(Self { kid: thumbprint(&public_key), public_key, checks, pair: Arc::new(pair) })
    }

    /// What checks this issuer's tokens. It holds the public key only.
    #[must_use]
    pub fn authenticator(&self) -> Authenticator {
        Authenticator::embedded(self.kid.clone(), self.checks.clone())
    }

    /// What signs the audit's heads, with the same key over bytes that no token is.
    #[must_use]
    pub fn audit_signer(&self) -> AuditSigner {
        AuditSigner::new(self.kid.clone(), Arc::clone(&self.pair))
    }

    /// The JSON document at `/.well-known/jwks.json`.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn jwks(&self) -> Result<String, IssuerError> {
        let x = URL_SAFE_NO_PAD.encode(&self.public_key);
        let key =
            Jwk { kty: "OKP", crv: "Ed25519", x: &x, kid: &self.kid, purpose: "sig", alg: Algorithm::EdDsa.as_str() };
        json(&std::collections::BTreeMap::from([("keys", [key])]), "key set")
    }

    /// Signs a user's token that begins now.
    ///
    /// # Errors
    /// When the spec asks for too long a life or too many roles.
    pub fn mint(&self, spec: &TokenSpec, now_ms: u64, rng: &Rng) -> Result<Token, IssuerError> {
        self.mint_with(spec, &TokenExtras::default(), now_ms, rng)
    }

    /// As [`Issuer::mint`], saying more.
    ///
    /// # Errors
    /// As [`Issuer::mint`], and when a region or project is no text of 1 to 128 characters.
    pub fn mint_with(
        &self,
        spec: &TokenSpec,
        extras: &TokenExtras,
        now_ms: u64,
        rng: &Rng,
    ) -> Result<Token, IssuerError> {
        let roles = check(spec.ttl_seconds, MAX_TTL_SECONDS, &spec.roles)?;
        if [&extras.region, &extras.project].into_iter().flatten().any(|text| !is_label(text)) {
            return Err(IssuerError::Label);
        }
        if is_machine(&spec.user) {
            return Err(IssuerError::Machine);
        }
        let now = now_ms / 1000;
        self.sign(&UserClaims {
            iss: EMBEDDED.to_owned(),
            aud: EMBEDDED.to_owned(),
            sub: spec.user.to_string(),
            tenant: spec.tenant.clone(),
            user: spec.user.clone(),
            roles,
            entitlements: spec.entitlements.iter().copied().collect(),
            region: extras.region.clone(),
            project: extras.project.clone(),
            act: extras.actor.clone().map(|sub| Actor { sub }),
            narrowed: extras.scope.clone(),
            iat: now,
            nbf: now,
            exp: now.saturating_add(spec.ttl_seconds),
            jti: token_id(rng)?,
        })
    }

    /// Signs a token of a service account or an operator that begins now.
    ///
    /// # Errors
    /// When it asks for too long a life or too many roles.
    pub fn mint_system(
        &self,
        name: &UserId,
        spec: &SystemTokenSpec,
        roles: &BTreeSet<RoleName>,
        ttl_seconds: u64,
        now_ms: u64,
        rng: &Rng,
    ) -> Result<Token, IssuerError> {
        let roles = check(ttl_seconds, MAX_SYSTEM_TTL_SECONDS, roles)?;
        let (aud, tenants, entitlements) = match spec {
            SystemTokenSpec::Service { tenants, entitlements } => {
                (SERVICES, Some(tenants.clone()), entitlements.iter().copied().collect())
            }
            SystemTokenSpec::Operator => (OPERATORS, None, Vec::new()),
        };
        let now = now_ms / 1000;
        self.sign(&SystemClaims {
            iss: EMBEDDED.to_owned(),
            aud: aud.to_owned(),
            sub: name.clone(),
            tenants,
            roles,
            entitlements,
            iat: now,
            nbf: now,
            exp: now.saturating_add(ttl_seconds),
            jti: token_id(rng)?,
        })
    }

    fn sign(&self, claims: &impl Serialize) -> Result<Token, IssuerError> {
        let alg = Algorithm::EdDsa.as_str().to_owned();
        let header = Header { alg, kid: self.kid.clone(), typ: TOKEN_TYPE.to_owned() };
        let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
        let message = format!("{}.{}", encode(json(&header, "header")?), encode(json(claims, "claims")?));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(message.as_bytes()));
        let token = format!("{message}.{signature}");
        if token.len() > MAX_TOKEN_BYTES { Err(IssuerError::TooLarge) } else { Ok(Token::new(token)) }
    }
}

fn check(ttl_seconds: u64, most: u64, roles: &BTreeSet<RoleName>) -> Result<Vec<RoleName>, IssuerError> {
    if !(1..=most).contains(&ttl_seconds) {
        return Err(IssuerError::Ttl { most, given: ttl_seconds });
    }
    if roles.len() > MAX_ROLES {
        return Err(IssuerError::Roles { given: roles.len() });
    }
    Ok(roles.iter().cloned().collect())
}

fn token_id(rng: &Rng) -> Result<String, IssuerError> {
    Ok(URL_SAFE_NO_PAD.encode(rng.bytes::<16>()?))
}

/// The key's name: its RFC 7638 thumbprint.
pub(crate) fn thumbprint(public_key: &[u8]) -> String {
    let x = URL_SAFE_NO_PAD.encode(public_key);
    let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(canonical))
}

fn json(value: &impl Serialize, part: &'static str) -> Result<String, IssuerError> {
    serde_json::to_string(value).map_err(|source| IssuerError::Encode { part, source })
}
