//! An issuer's key set, as hostile bytes: bounded, strict, and only keys that may sign a token for us.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::super::key::PublicKey;
use crate::strict_json;

/// Most keys of one set.
pub(super) const MAX_KEYS: usize = 64;
/// Longest name of a key.
const MAX_KID: usize = 128;

/// Why a key set is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeySetError {
    /// Not the JSON that it has to be.
    #[error("the key set cannot be read")]
    Malformed,
    /// More keys than any issuer has.
    #[error("the key set has more than {MAX_KEYS} keys")]
    TooMany,
}

/// Keys by name.
#[derive(Debug, Clone, Default)]
pub(super) struct KeySet(HashMap<String, Arc<PublicKey>>);

#[derive(Deserialize)]
struct Document {
    keys: Vec<Jwk>,
}

/// What is looked at of one key. Everything else in it is not ours, and nothing in it is ever fetched.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a set. Keys for something else, of another kind or too weak are left out, and so are keys that share a name:
    /// nobody could say which is meant. A set that has none left is one all the same: an issuer that takes its keys back
    /// means it.
    pub(super) fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        strict_json::check(text).map_err(|_unreadable| KeySetError::Malformed)?;
        let document: Document = serde_json::from_slice(text).map_err(|_unreadable| KeySetError::Malformed)?;
        if document.keys.len() > MAX_KEYS {
            return Err(KeySetError::TooMany);
        }
        let mut keys: HashMap<String, Option<Arc<PublicKey>>> = HashMap::new();
        for jwk in &document.keys {
            let (Some(kid), Some(key)) = (&jwk.kid, usable(jwk)) else { continue };
            if is_kid(kid) {
                keys.entry(kid.clone()).and_modify(|held| *held = None).or_insert_with(|| Some(Arc::new(key)));
            }
        }
        Ok(Self(keys.into_iter().filter_map(|(kid, key)| Some((kid, key?))).collect()))
    }

    pub(super) fn get(&self, kid: &str) -> Option<&Arc<PublicKey>> {
        self.0.get(kid)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Whether a text can be the name of a key. What cannot is refused without asking the issuer for it.
pub(super) fn is_kid(text: &str) -> bool {
    (1..=MAX_KID).contains(&text.len())
        && !text.contains("..")
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_+/=.:@~".contains(&b))
}

fn usable(jwk: &Jwk) -> Option<PublicKey> {
    let signs = jwk.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
        && jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !signs {
        return None;
    }
    let field = |field: &Option<String>| URL_SAFE_NO_PAD.decode(field.as_deref()?).ok();
    let key = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", None) => PublicKey::rsa(&field(&jwk.n)?, &field(&jwk.e)?),
        ("EC", Some("P-256")) => PublicKey::p256(&field(&jwk.x)?, &field(&jwk.y)?),
        ("OKP", Some("Ed25519")) => PublicKey::ed25519(&field(&jwk.x)?),
        _ => None,
    }?;
    let named = jwk.alg.as_deref().is_none_or(|alg| alg == key.algorithm().as_str());
    named.then_some(key)
}
