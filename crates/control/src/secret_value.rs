//! Secrets that are handed out once: a prefix and 40 hex digits.
//!
//! They are 160 random bits, so that each can be kept as one SHA-256: nobody can try them all, and a slow hash for
//! guessable passwords would only slow each request. Each is looked up by that hash: where the lookup leaks time, it leaks
//! it about the hash of what was sent, which helps nobody towards another.

use std::fmt;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::clock::{Rng, RngError};

/// Hex digits after the prefix.
const DIGITS: usize = 40;

/// SHA-256 of a secret.
pub(crate) type SecretHash = [u8; 32];

/// A secret of whoever holds it. `Debug` does not show it.
pub(crate) struct SecretValue(Zeroizing<String>);

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue([redacted])")
    }
}

impl SecretValue {
    /// A new one.
    pub(crate) fn generate(prefix: &str, rng: &Rng) -> Result<Self, RngError> {
        let bytes = Zeroizing::new(rng.bytes::<20>()?);
        let mut text = Zeroizing::new(String::with_capacity(prefix.len() + DIGITS));
        text.push_str(prefix);
        for byte in bytes.iter() {
            text.push_str(&format!("{byte:02x}"));
        }
        Ok(Self(text))
    }

    /// The value, to hand to its holder once.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub(crate) fn hash(&self) -> SecretHash {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// What is kept of a secret that was sent; `None` for what cannot be one of that prefix.
pub(crate) fn hash_of_sent(prefix: &str, sent: &str) -> Option<SecretHash> {
    let digits = sent.strip_prefix(prefix)?;
    let shaped = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    shaped.then(|| Sha256::digest(sent.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_by_what_was_sent_and_by_nothing_else() {
        let rng = Rng::system();
        let (one, other) = (SecretValue::generate("x_", &rng).unwrap(), SecretValue::generate("x_", &rng).unwrap());
        assert_eq!(hash_of_sent("x_", one.reveal()), Some(one.hash()));
        assert_ne!(one.hash(), other.hash());
        let digits = one.reveal().strip_prefix("x_").unwrap();
        for bad in
            ["", "x_", digits, &one.reveal().to_uppercase(), &format!("{}0", one.reveal()), &format!("y_{digits}")]
        {
            assert_eq!(hash_of_sent("x_", bad), None, "{bad}");
        }
        assert!(!format!("{one:?}").contains(digits));
    }
}
