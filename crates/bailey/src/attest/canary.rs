//! A secret that the host plants, and the search for it in whatever came out of a sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// First bytes of every one. Attack programs hunt for anything that starts so.
const MARK: &str = "cnry-";

/// A nonce of 256 bits as text: [`MARK`] and 64 hex digits. `Debug` does not show it.
pub(crate) struct Canary {
    /// Where it was planted.
    pub(crate) place: &'static str,
    text: String,
    needles: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Canary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canary").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Canary {
    pub(crate) fn new(place: &'static str, secret: [u8; 32]) -> Self {
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{MARK}{digits}");
        Self { place, needles: disguises(&text, &digits, &secret), text }
    }

    /// What is planted.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it stands in `bytes`, as it is or in a disguise that programs give to what they send out.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        // Most places are ruled out by two bytes.
        let mut starts = vec![false; 1 << 16];
        for needle in &self.needles {
            if let [first, second, ..] = needle[..] {
                starts[usize::from(u16::from_be_bytes([first, second]))] = true;
            }
        }
        let mut last = 0_u16;
        bytes.iter().enumerate().any(|(at, byte)| {
            last = (last << 8) | u16::from(*byte);
            at > 0
                && starts[usize::from(last)]
                && bytes.get(at - 1..).is_some_and(|rest| self.needles.iter().any(|needle| rest.starts_with(needle)))
        })
    }
}

fn disguises(text: &str, digits: &str, secret: &[u8]) -> Vec<Vec<u8>> {
    let mut list = vec![
        digits.as_bytes().to_vec(),
        digits.to_uppercase().into_bytes(),
        digits.bytes().rev().collect(),
        secret.to_vec(),
        digits.bytes().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes(),
        digits.bytes().flat_map(|byte| [byte, 0]).collect(),
    ];
    for shift in 0..3_usize {
        for bytes in [text.as_bytes(), secret] {
            // Characters that depend on nothing but the secret, when `shift` unknown bytes stand before it.
            let padded = [&[0; 3][..shift], bytes].concat();
            for coded in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
                let from = if shift == 0 { 0 } else { 4 };
                let to = coded.len().saturating_sub(2);
                list.push(coded.as_bytes().get(from..to).unwrap_or_default().to_vec());
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_found_in_every_disguise() {
        let secret: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7 + 3).unwrap());
        let canary = Canary::new("here", secret);
        let text = canary.text().to_owned();
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let disguises = [
            text.clone().into_bytes(),
            text.to_uppercase().into_bytes(),
            text.bytes().rev().collect(),
            hex.into_bytes(),
            text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            STANDARD_NO_PAD.encode(&text).into_bytes(),
            STANDARD_NO_PAD.encode(format!("a{text}z")).into_bytes(),
            URL_SAFE_NO_PAD.encode(format!("ab{text}z")).into_bytes(),
            secret.to_vec(),
        ];
        for (number, disguise) in disguises.iter().enumerate() {
            assert!(canary.is_in(&[b"noise ", disguise.as_slice(), b" noise"].concat()), "{number}");
        }
        let other = Canary::new("there", [9; 32]);
        assert!(!other.is_in(&disguises.concat()));
        assert!(!canary.is_in(&text.as_bytes()[..60]), "a part is taken for the whole");
        assert!(!format!("{canary:?}").contains(&text));
    }
}
