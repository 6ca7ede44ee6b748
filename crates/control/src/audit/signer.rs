//! Who signs checkpoints and reports, and who can check that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use bailey_protocol::audit::{AuditCheckpoint, AuditEnd, AuditLine, Digest, HexBytes};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::chain::{checkpoint_message, end_message, report_message};
use crate::auth::thumbprint;
use crate::db::AuditHead;

/// The version of what an export is written in.
pub const FORMAT: u32 = 1;

/// Signs heads with the issuer's key. A signed message begins with eight bytes of length and a name with spaces: no
/// token is ever signed over such bytes, so neither can be taken for the other. `Debug` does not show the key.
#[derive(Clone)]
pub struct AuditSigner {
    key: String,
    pair: Arc<Ed25519KeyPair>,
    /// Held while heads are read, signed and kept: each is signed once.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl fmt::Debug for AuditSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditSigner").field("key", &self.key).finish_non_exhaustive()
    }
}

impl AuditSigner {
    /// A signer with the key that `key` names.
    #[must_use]
    pub fn new(key: String, pair: Arc<Ed25519KeyPair>) -> Self {
        Self { key, pair, turn: Arc::default() }
    }

    /// A signer with a fresh key that is kept nowhere.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn ephemeral() -> Result<Self, NoFreshKey> {
        let pair = Ed25519KeyPair::generate().map_err(|_unspecified| NoFreshKey)?;
        Ok(Self::new(thumbprint(pair.public_key().as_ref()), Arc::new(pair)))
    }

    /// The name of its key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its public key.
    #[must_use]
    pub fn public_key(&self) -> HexBytes {
        HexBytes::new(self.pair.public_key().as_ref())
    }

    /// What vouches for a report of `bailey attest`, given as its canonical bytes.
    #[must_use]
    pub fn report(&self, report: &[u8]) -> HexBytes {
        self.sign(&report_message(report))
    }

    /// Waits until nobody else signs heads.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The first line of an export that this signer ends.
    #[must_use]
    pub fn begin(&self, chain: &str, after: u64, unnamed: bool) -> AuditLine {
        let (key, public_key) = (self.key.clone(), self.public_key());
        AuditLine::Begin { format: FORMAT, chain: chain.to_owned(), after, unnamed, key, public_key }
    }

    /// A signed checkpoint.
    #[must_use]
    pub fn checkpoint(&self, chain: &str, seq: u64, hash: Digest, time_ms: u64) -> AuditCheckpoint {
        let (chain, key, signature) = (chain.to_owned(), self.key.clone(), HexBytes::new([]));
        let mut checkpoint = AuditCheckpoint { chain, seq, hash, time_ms, round: 0, key, signature };
        checkpoint.signature = self.sign(&checkpoint_message(&checkpoint));
        checkpoint
    }

    /// The signed end of an export of rows after `after`, up to `head`.
    #[must_use]
    pub fn end(&self, head: AuditHead, after: u64, unnamed: bool, time_ms: u64) -> AuditEnd {
        let AuditHead { chain, seq, hash } = head;
        let (key, signature) = (self.key.clone(), HexBytes::new([]));
        let mut end = AuditEnd { chain, after, unnamed, seq, hash, time_ms, key, signature };
        end.signature = self.sign(&end_message(&end));
        end
    }

    /// What checks this signer's signatures.
    #[must_use]
    pub fn keys(&self) -> AuditKeys {
        AuditKeys(BTreeMap::from([(self.key.clone(), self.pair.public_key().as_ref().to_vec())]))
    }

    fn sign(&self, message: &[u8]) -> HexBytes {
        HexBytes::new(self.pair.sign(message).as_ref())
    }
}

/// No key can be made here.
#[derive(Debug, thiserror::Error)]
#[error("the system makes no Ed25519 key")]
pub struct NoFreshKey;

/// Public keys by their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditKeys(BTreeMap<String, Vec<u8>>);

/// A key set that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the key set has no Ed25519 key")]
pub struct NoKeys;

impl AuditKeys {
    /// One key, by the id that follows from it: whoever brings a key cannot give it another's.
    #[must_use]
    pub fn of(public_key: &[u8]) -> Self {
        Self(BTreeMap::from([(thumbprint(public_key), public_key.to_vec())]))
    }

    /// The Ed25519 keys of a JSON Web Key Set, such as the server's `/.well-known/jwks.json`.
    ///
    /// # Errors
    /// When it holds none.
    pub fn from_jwks(text: &str) -> Result<Self, NoKeys> {
        let set: serde_json::Value = serde_json::from_str(text).map_err(|_not_json| NoKeys)?;
        let keys = set.get("keys").and_then(|keys| keys.as_array()).ok_or(NoKeys)?;
        let keys: BTreeMap<_, _> = keys
            .iter()
            .filter(|key| key.get("crv").is_some_and(|crv| crv == "Ed25519"))
            .filter_map(|key| {
                let bytes = URL_SAFE_NO_PAD.decode(key.get("x")?.as_str()?).ok()?;
                Some((key.get("kid")?.as_str()?.to_owned(), bytes))
            })
            .collect();
        if keys.is_empty() { Err(NoKeys) } else { Ok(Self(keys)) }
    }

    /// Whether the checkpoint is signed by one of them.
    #[must_use]
    pub fn signed_checkpoint(&self, checkpoint: &AuditCheckpoint) -> bool {
        self.verifies(&checkpoint.key, &checkpoint_message(checkpoint), &checkpoint.signature)
    }

    /// Whether the end is signed by one of them.
    #[must_use]
    pub fn signed_end(&self, end: &AuditEnd) -> bool {
        self.verifies(&end.key, &end_message(end), &end.signature)
    }

    /// Whether a report of `bailey attest`, given as its canonical bytes, is signed by the one with this name.
    #[must_use]
    pub fn signed_report(&self, key: &str, report: &[u8], signature: &HexBytes) -> bool {
        self.verifies(key, &report_message(report), signature)
    }

    fn verifies(&self, key: &str, message: &[u8], signature: &HexBytes) -> bool {
        self.0
            .get(key)
            .is_some_and(|bytes| UnparsedPublicKey::new(&ED25519, bytes).verify(message, signature.as_bytes()).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_signed_as_one_and_by_its_key_alone() {
        let (signer, other) = (AuditSigner::ephemeral().unwrap(), AuditSigner::ephemeral().unwrap());
        let signature = signer.report(b"{}");
        assert!(signer.keys().signed_report(signer.key(), b"{}", &signature));
        assert!(!signer.keys().signed_report(signer.key(), b"{ }", &signature));
        assert!(!other.keys().signed_report(other.key(), b"{}", &signature));
        assert!(!other.keys().signed_report(signer.key(), b"{}", &signature));
        // The bytes alone are no message: what is signed says what it is of.
        assert_eq!(report_message(b"{}"), b"\0\0\0\0\0\0\0\x16bailey attest report 1\0\0\0\0\0\0\0\x02{}");
    }
}
