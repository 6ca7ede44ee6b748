//! The audit as it crosses the wire and lies in an export: rows of a hash chain, what was said apart from them, and the
//! signed checkpoints. What each hash is of is told in `docs/audit.md`; `control::audit` computes and verifies it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{IdError, text_schema};

/// SHA-256, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Bytes, written as lower-case hex digits: salts, signatures, public keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HexBytes(Vec<u8>);

/// One line of the audit: who asked for what, what was decided, how it came out. Persons and paths are not in it, but
/// commitments to them, so that they can be forgotten and the chain still verifies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditRow {
    /// `tenant/{tenant}` or `operator`.
    pub chain: String,
    /// 1, 2, 3… without a gap.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The HTTP request; absent for what the server did by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Who asked: a pseudonym.
    pub subject: Digest,
    /// On whose behalf a service or key acted: a pseudonym.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Digest>,
    /// The kind of the credential.
    pub credential: String,
    /// The run that asked as its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What was asked for.
    pub action: String,
    /// `allowed` or `denied`.
    pub decision: String,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// How it came out: `ok`, an error code, or the id of what it made.
    pub outcome: String,
    /// Commitment to the [`AuditDetail`].
    pub detail: Digest,
    /// Hash of the row before.
    pub prev: Digest,
    /// Hash of this row.
    pub hash: Digest,
}

/// What a row only commits to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditDetail {
    /// Makes the commitment unguessable once this is gone.
    pub salt: HexBytes,
    /// On what.
    pub resource: String,
    /// For a denial: why.
    pub reason: String,
    /// Which credential.
    pub credential_id: String,
}

/// Whose pseudonym it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditSubject {
    /// The pseudonym.
    pub id: Digest,
    /// Makes the pseudonym unguessable once this is gone.
    pub salt: HexBytes,
    /// `user`, `service`, `operator`, `key` or `server`.
    pub kind: String,
    /// As its issuer names it.
    pub name: String,
}

/// A row as it is told: with the names behind it, where they are not forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditRecord {
    /// The chain's row.
    pub row: AuditRow,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// What the row commits to; absent once it is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<AuditDetail>,
    /// Where it is forgotten: the row that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased_by: Option<u64>,
}

/// The server's word that a chain had this head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditCheckpoint {
    /// The chain.
    pub chain: String,
    /// Of the head.
    pub seq: u64,
    /// Of the head.
    pub hash: Digest,
    /// When it was signed, in milliseconds since 1970.
    pub time_ms: u64,
    /// The row of the operator's chain that seals the checkpoints of one round together; 0 for that chain's own. Not signed.
    pub round: u64,
    /// The id of the key, as in the server's key set.
    pub key: String,
    /// Ed25519.
    pub signature: HexBytes,
}

/// One page of `GET /v1/audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// Newest first, or oldest first when `after` was sent.
    pub records: Vec<AuditRecord>,
    /// Send as `before` (or `after`) to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "line")]
pub enum AuditLine {
    /// The first line.
    Begin {
        /// Of this format: 1.
        format: u32,
        /// The chain.
        chain: String,
        /// The first row here is the one after this.
        after: u64,
        /// Whether it is without names and details, as an operator gets a tenant's.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unnamed: bool,
        /// The id of the key that signs the end.
        key: String,
        /// The key itself: compare it with one that you trust.
        public_key: HexBytes,
    },
    /// Whose pseudonym it is; before the first row that names it.
    Subject(AuditSubject),
    /// A row, with what it commits to.
    Row {
        /// The row.
        row: Box<AuditRow>,
        /// What it commits to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<AuditDetail>,
        /// Where it is forgotten: the row that says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        erased_by: Option<u64>,
    },
    /// After the row that it seals.
    Checkpoint(AuditCheckpoint),
    /// The last line. Without it the export is cut off.
    End(AuditEnd),
}

/// The server's word that an export is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditEnd {
    /// The chain.
    pub chain: String,
    /// As in the first line.
    pub after: u64,
    /// As in the first line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unnamed: bool,
    /// Of the last row.
    pub seq: u64,
    /// Of the last row.
    pub hash: Digest,
    /// When it was made.
    pub time_ms: u64,
    /// The id of the key.
    pub key: String,
    /// Ed25519.
    pub signature: HexBytes,
}

impl Digest {
    /// From its bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl HexBytes {
    /// From the bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let digit = |value: u8| HEX.get(usize::from(value)).copied().map_or('0', char::from);
    bytes.iter().try_for_each(|byte| write!(f, "{}{}", digit(byte >> 4), digit(byte & 15)))
}

fn read_hex(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| HEX.iter().position(|each| *each == digit).and_then(|at| u8::try_from(at).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some((value(*high)? << 4) | value(*low)?),
        _ => None,
    });
    pairs.collect()
}

macro_rules! hex_text {
    ($name:ident, $parse:expr, $kind:literal, $rule:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let parse: fn(Vec<u8>) -> Option<Self> = $parse;
                read_hex(text).and_then(parse).ok_or_else(|| IdError::new($kind, $rule, text))
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(bytes: $name) -> String {
                bytes.to_string()
            }
        }

        text_schema!($name, $kind, $rule);
    };
}

hex_text!(Digest, |bytes| bytes.try_into().ok().map(Self), "digest", "use 64 lower-case hex digits");
hex_text!(HexBytes, |bytes| Some(Self(bytes)), "byte string", "use pairs of lower-case hex digits");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_has_one_spelling() {
        let digest = Digest::new([0xaf; 32]);
        assert_eq!(digest.to_string(), "af".repeat(32));
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        for bad in ["", "af", &"AF".repeat(32), &"a".repeat(63), &"g".repeat(64)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        assert_eq!("00ff".parse::<HexBytes>().unwrap().as_bytes(), [0, 255]);
        assert!("0".parse::<HexBytes>().is_err());
    }
}
