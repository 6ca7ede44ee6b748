//! Credentials, as hostile bytes. Each line is tried as a token and as a key, the whole as a header and as claims with a
//! good signature, as a key file and as an issuer's key set.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use serde_json::Value;

use super::claims::{MAX_ROLES, is_label, is_machine};
use super::jws::Jws;
use super::key::PublicKey;
use super::{AuthError, Authenticator, Identity, LEEWAY_SECONDS, MAX_TOKEN_BYTES, foreign, key_file};
use crate::secret_value::hash_of_sent;
use crate::standing::KEY_PREFIX;
use crate::tree_tokens::TOKEN_PREFIX;

const NOW: u64 = 1_800_000_000;
const KID: &str = "fuzz";
const HEADER: &str = r#"{"alg":"EdDSA","kid":"fuzz","typ":"at+jwt"}"#;
const CLAIMS: &str = r#"{"iss":"bailey","aud":"bailey","sub":"ana","tenant":"acme","user":"ana","roles":[],
    "entitlements":[],"iat":1800000000,"nbf":1800000000,"exp":1800000060,"jti":"x"}"#;

/// Nobody gets in without the key; who does is whom the claims name, and for as long as they say.
pub fn tokens(data: &[u8]) {
    let gate = Gate::new();
    data.split(|byte| *byte == b'\n').for_each(|line| sent(&gate, line));
    if let Ok(identity) = gate.asks(&gate.sign(HEADER.as_bytes(), data)) {
        named(&identity, data);
    }
    if gate.asks(&gate.sign(data, CLAIMS.as_bytes())).is_ok() {
        let fields = serde_json::from_slice::<Value>(data).expect("an accepted header is JSON");
        assert_eq!(fields, serde_json::from_str::<Value>(HEADER).expect("a header"));
    }
    foreign::fuzz::key_set(data);
    if let Some(identity) = foreign::fuzz::claims(data) {
        mapped(&identity);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(der) = key_file::from_pem(text)
    {
        assert_eq!(key_file::from_pem(&key_file::to_pem(&der)).as_deref(), Some(&*der));
        assert!(der.len() < data.len());
    }
}

fn sent(gate: &Gate, line: &[u8]) {
    let Ok(text) = std::str::from_utf8(line) else { return };
    if let Ok(token) = Jws::split(text) {
        let parts = [&token.header, &token.payload, &token.signature].map(|part| URL_SAFE_NO_PAD.encode(part));
        assert_eq!(parts.join("."), text, "a token has two spellings");
        assert!(text.len() <= MAX_TOKEN_BYTES);
        assert!(text.as_bytes().starts_with(token.message));
    }
    assert!(gate.asks(text).is_err(), "{text:?} was never signed");
    for prefix in [KEY_PREFIX, TOKEN_PREFIX] {
        if hash_of_sent(prefix, text).is_some() {
            assert!(text.len() == 44 && text.starts_with(prefix) && text.is_ascii(), "{text:?}");
        }
    }
}

/// An issuer and what checks its tokens.
struct Gate {
    pair: Ed25519KeyPair,
    checks: Authenticator,
}

impl Gate {
    fn new() -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key of 32 bytes");
        let key = PublicKey::ed25519(pair.public_key().as_ref()).expect("a public key");
        Self { pair, checks: Authenticator::embedded(KID.to_owned(), key) }
    }

    fn sign(&self, header: &[u8], claims: &[u8]) -> String {
        let message = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }

    fn asks(&self, token: &str) -> Result<Identity, AuthError> {
        self.checks.verify(token, NOW * 1000).now_or_never().expect("no other issuer is asked")
    }
}

/// An identity is what its claims say, read by another reader.
fn named(identity: &Identity, claims: &[u8]) {
    let claims: Value = serde_json::from_slice(claims).expect("accepted claims are JSON");
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let (roles, until) = match identity {
        Identity::User(user) => {
            assert_eq!((text("tenant"), text("user")), (Some(user.tenant.as_str()), Some(user.user.as_str())));
            assert_eq!((text("aud"), text("sub")), (Some("bailey"), Some(user.user.as_str())));
            assert!(!is_machine(&user.user));
            assert!([&user.region, &user.project].into_iter().flatten().all(|label| is_label(label)));
            (&user.roles, user.valid_until_ms)
        }
        Identity::Service(service) => {
            assert_eq!((text("aud"), text("sub")), (Some("bailey-services"), Some(service.name.as_str())));
            (&service.roles, service.valid_until_ms)
        }
        Identity::Operator(operator) => {
            assert_eq!((text("aud"), text("sub")), (Some("bailey-operators"), Some(operator.name.as_str())));
            (&operator.roles, operator.valid_until_ms)
        }
    };
    assert!(roles.len() <= MAX_ROLES);
    let exp = claims.get("exp").and_then(Value::as_u64).expect("accepted claims end");
    assert!(until > NOW * 1000 && until == exp.saturating_add(LEEWAY_SECONDS).saturating_mul(1000));
}

/// A foreign issuer's word counts for its own tenants alone, and its users are no others'.
fn mapped(identity: &Identity) {
    if let Identity::User(user) = identity {
        assert!(["acme", "globex"].contains(&user.tenant.as_str()), "{:?}", user.tenant);
        assert!(user.user.as_str().starts_with("x-") && user.roles.len() <= MAX_ROLES, "{user:?}");
        assert!([&user.region, &user.project].into_iter().flatten().all(|label| is_label(label)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay;

    #[test]
    fn a08_nobody_gets_in_without_the_key() {
        let gate = Gate::new();
        let corpus = replay::corpus("tokens");
        let files = |taken: &dyn Fn(&[u8]) -> bool| -> Vec<_> {
            corpus.iter().filter(|(_, bytes)| taken(bytes)).map(|(name, _)| name.as_str()).collect()
        };
        let signed = |claims: &[u8]| gate.asks(&gate.sign(HEADER.as_bytes(), claims)).is_ok();
        assert_eq!(files(&signed), ["claims", "claims-operator", "claims-service"]);
        assert_eq!(files(&|header| gate.asks(&gate.sign(header, CLAIMS.as_bytes())).is_ok()), ["header"]);
        let mapped = |claims: &[u8]| foreign::fuzz::claims(claims).is_some();
        assert_eq!(files(&mapped), ["foreign", "foreign-operator", "foreign-service"]);
        replay::target("tokens", 1200, tokens);
    }
}
