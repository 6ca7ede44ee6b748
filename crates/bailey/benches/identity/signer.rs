//! Keys of a foreign issuer.

use anyhow::{Context, anyhow};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

enum Pair {
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

pub(crate) struct Signer {
    kid: &'static str,
    pair: Pair,
}

/// Checks one signature again and again.
pub(crate) type Bare = Box<dyn Fn() -> bool>;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(crate) fn p256(kid: &'static str) -> anyhow::Result<Self> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|error| anyhow!("{error}"))?;
        Ok(Self { kid, pair: Pair::P256(pair) })
    }

    pub(crate) fn rsa(kid: &'static str) -> anyhow::Result<Self> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|error| anyhow!("{error}"))?;
        Ok(Self { kid, pair: Pair::Rsa(pair) })
    }

    /// What it and its baseline are called.
    pub(crate) fn names(&self) -> (&'static str, &'static str) {
        match self.pair {
            Pair::P256(_) => ("ES256, a foreign issuer", "bare P-256 check"),
            Pair::Rsa(_) => ("RS256, a foreign issuer", "bare RSA-2048 check"),
        }
    }

    fn alg(&self) -> &'static str {
        match self.pair {
            Pair::P256(_) => "ES256",
            Pair::Rsa(_) => "RS256",
        }
    }

    pub(crate) fn jwk(&self) -> anyhow::Result<Value> {
        let mut jwk = match &self.pair {
            Pair::P256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = point.get(1..).context("a point")?.split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y) })
            }
            Pair::Rsa(pair) => {
                // A PKCS #1 key of 2048 bits: the modulus stands at a fixed place, the exponent is 65537.
                let der = pair.public_key().as_ref();
                let n = der.get(9..9 + 256).context("a modulus")?;
                json!({ "kty": "RSA", "n": encode(n), "e": "AQAB" })
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk["alg"] = json!(self.alg());
        Ok(jwk)
    }

    fn sign(&self, message: &[u8]) -> anyhow::Result<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::P256(pair) => {
                let signature = pair.sign(&random, message).map_err(|error| anyhow!("{error}"))?;
                Ok(signature.as_ref().to_vec())
            }
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let done = pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                done.map_err(|error| anyhow!("{error}"))?;
                Ok(signature)
            }
        }
    }

    pub(crate) fn token(&self, claims: &Value) -> anyhow::Result<String> {
        let header = json!({ "alg": self.alg(), "kid": self.kid, "typ": "at+jwt" });
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.sign(message.as_bytes())?;
        Ok(format!("{message}.{}", encode(signature)))
    }

    /// The signature check of `token`, and nothing else.
    pub(crate) fn bare(&self, token: &str) -> anyhow::Result<Bare> {
        let key = match &self.pair {
            Pair::P256(pair) => ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref()),
            Pair::Rsa(pair) => ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref()),
        };
        bare(key.map_err(|error| anyhow!("{error}"))?, token)
    }
}

/// The check of `token`'s signature by `key`, and nothing else.
pub(crate) fn bare(key: ParsedPublicKey, token: &str) -> anyhow::Result<Bare> {
    let (message, signature) = token.rsplit_once('.').context("a token")?;
    let (message, signature) = (message.as_bytes().to_vec(), URL_SAFE_NO_PAD.decode(signature)?);
    Ok(Box::new(move || key.verify_sig(&message, &signature).is_ok()))
}
