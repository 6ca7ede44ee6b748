//! Public keys. A key has one algorithm, which the key's type decides and no token can change.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
};

/// The least and the most bits of an RSA key.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// The one public exponent that issuers use.
const RSA_EXPONENT: [u8; 3] = [1, 0, 1];

/// How a token may be signed. There is no other way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Rs256, Self::Es256, Self::EdDsa].into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A key that may sign. `Debug` shows its algorithm alone.
#[derive(Clone)]
pub(super) struct PublicKey {
    algorithm: Algorithm,
    key: ParsedPublicKey,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl PublicKey {
    /// From the 32 bytes of an Ed25519 key.
    pub(super) fn ed25519(point: &[u8]) -> Option<Self> {
        if point.len() != 32 {
            return None;
        }
        let key = ParsedPublicKey::new(&ED25519, point).ok()?;
        Some(Self { algorithm: Algorithm::EdDsa, key })
    }

    /// From the two coordinates of a P-256 point.
    pub(super) fn p256(x: &[u8], y: &[u8]) -> Option<Self> {
        if x.len() != 32 || y.len() != 32 {
            return None;
        }
        let point = [&[4_u8], x, y].concat();
        let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).ok()?;
        Some(Self { algorithm: Algorithm::Es256, key })
    }

    /// From modulus and exponent: 2048 to 8192 bits, and 65537.
    pub(super) fn rsa(n: &[u8], e: &[u8]) -> Option<Self> {
        let top = *n.first()?;
        let bits = n.len() * 8 - usize::try_from(top.leading_zeros()).ok()?;
        if !RSA_BYTES.contains(&n.len()) || bits < 2048 || e != RSA_EXPONENT {
            return None;
        }
        let key = RsaPublicKeyComponents { n, e }.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256).ok()?;
        Some(Self { algorithm: Algorithm::Rs256, key })
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether `signature` is this key's over `message`.
    pub(super) fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(message, signature).is_ok()
    }
}
