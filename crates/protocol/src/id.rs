//! Prefixed, sortable identifiers and validated names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a string is not the identifier it claims to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not a {kind}: {rule}")]
pub struct IdError {
    /// What was expected, for example `tenant id`.
    pub kind: &'static str,
    /// The rule that the value broke.
    pub rule: &'static str,
    /// The value, cut to 64 characters and escaped.
    pub value: String,
}

impl IdError {
    pub(crate) fn new(kind: &'static str, rule: &'static str, value: &str) -> Self {
        let value = value.chars().take(64).flat_map(char::escape_default).collect();
        Self { kind, rule, value }
    }
}

/// Declares a string newtype that parses on every way in (`FromStr`, serde) and prints as itself.
macro_rules! string_newtype {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(IdError::new($kind, $rule, text)) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        $crate::id::text_schema!($name, $kind, $rule);
    };
}
pub(crate) use string_newtype;

/// Describes a type that crosses the wire as one text.
macro_rules! text_schema {
    ($name:ident, $kind:literal, $rule:literal) => {
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": concat!("A ", $kind, ": ", $rule, ".") })
            }
        }
    };
}
pub(crate) use text_schema;

string_newtype!(
    /// A customer of the product that embeds Bailey. 1–63 of `a-z 0-9 -`, starting with a letter or digit.
    TenantId, "tenant id", "use 1 to 63 of a-z, 0-9 and `-`, starting with a letter or digit",
    |s| (1..=63).contains(&s.len())
        && !s.starts_with('-')
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);

string_newtype!(
    /// A person or service within a tenant, as its issuer names it. 1–128 of `A-Z a-z 0-9 . _ @ + | -`, not starting with `.`.
    /// What starts with `|` and is no escaped byte (`|` and two upper-case hex digits) is the server's to say of those who
    /// have no name: nobody who is named anywhere, by a claim, in a form, in a path, is called so.
    UserId, "user id", "use 1 to 128 of A-Z, a-z, 0-9 and `. _ @ + | -`, not starting with a dot or a bar",
    |s| (1..=128).contains(&s.len())
        && !s.starts_with('.')
        && s.strip_prefix('|').is_none_or(|rest| starts_with_escaped_byte(rest.as_bytes()))
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@+|-".contains(&b))
);

string_newtype!(
    /// The name of a template, such as `base`. 1–63 of `a-z 0-9 -`.
    TemplateName, "template name", "use 1 to 63 of a-z, 0-9 and `-`, starting with a letter or digit",
    |s| (1..=63).contains(&s.len())
        && !s.starts_with('-')
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);

string_newtype!(
    /// The name of a baseline, such as `python-starter`. 1–63 of `a-z 0-9 -`.
    BaselineName, "baseline name", "use 1 to 63 of a-z, 0-9 and `-`, starting with a letter or digit",
    |s| (1..=63).contains(&s.len())
        && !s.starts_with('-')
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);

string_newtype!(
    /// SHA-256 of a template's image, 64 lower-case hex digits.
    TemplateDigest, "template digest", "use 64 lower-case hex digits",
    |s| s.len() == 64 && is_lower_hex(s)
);

string_newtype!(
    /// Whose CPU time a sandbox takes, as the jail knows it: a name that says nothing of the tenant behind it, 32
    /// lower-case hex digits.
    ShareTag, "share tag", "use 32 lower-case hex digits",
    |s| s.len() == 32 && is_lower_hex(s)
);

string_newtype!(
    /// A version of a tree: the id of a git commit, 40 lower-case hex digits.
    VersionId, "version id", "use 40 lower-case hex digits",
    |s| s.len() == 40 && is_lower_hex(s)
);

string_newtype!(
    /// The id of a git tree object (a folder's content), 40 lower-case hex digits.
    TreeId, "tree id", "use 40 lower-case hex digits",
    |s| s.len() == 40 && is_lower_hex(s)
);

string_newtype!(
    /// One run: `run_` and 26 Crockford base-32 digits, sortable by creation.
    RunId, "run id", "use `run_` followed by 26 lower-case base-32 digits",
    |s| s.strip_prefix("run_").is_some_and(is_sortable)
);

string_newtype!(
    /// One sandbox: `sbx` and 26 Crockford base-32 digits, without a separator so that it can be a host-name label part.
    SandboxId, "sandbox id", "use `sbx` followed by 26 lower-case base-32 digits",
    |s| s.strip_prefix("sbx").is_some_and(is_sortable)
);

string_newtype!(
    /// One API key, by name and not by value: `key_` and 26 Crockford base-32 digits.
    KeyId, "key id", "use `key_` followed by 26 lower-case base-32 digits",
    |s| s.strip_prefix("key_").is_some_and(is_sortable)
);

string_newtype!(
    /// One HTTP request, for logs and error answers: `req_` and 26 Crockford base-32 digits.
    RequestId, "request id", "use `req_` followed by 26 lower-case base-32 digits",
    |s| s.strip_prefix("req_").is_some_and(is_sortable)
);

string_newtype!(
    /// One tree token: `tok_` and 26 Crockford base-32 digits. It names the token and opens nothing.
    TokenId, "token id", "use `tok_` followed by 26 lower-case base-32 digits",
    |s| s.strip_prefix("tok_").is_some_and(is_sortable)
);

impl TokenId {
    /// Makes an id from a time in milliseconds since 1970 and 80 fresh random bits.
    #[must_use]
    pub fn mint(now_ms: u64, random: [u8; 10]) -> Self {
        Self(format!("tok_{}", sortable(now_ms, random)))
    }
}

impl RunId {
    /// Makes an id from a time in milliseconds since 1970 and 80 fresh random bits.
    #[must_use]
    pub fn mint(now_ms: u64, random: [u8; 10]) -> Self {
        Self(format!("run_{}", sortable(now_ms, random)))
    }
}

impl SandboxId {
    /// Makes an id from a time in milliseconds since 1970 and 80 fresh random bits.
    #[must_use]
    pub fn mint(now_ms: u64, random: [u8; 10]) -> Self {
        Self(format!("sbx{}", sortable(now_ms, random)))
    }
}

impl KeyId {
    /// Makes an id from a time in milliseconds since 1970 and 80 fresh random bits.
    #[must_use]
    pub fn mint(now_ms: u64, random: [u8; 10]) -> Self {
        Self(format!("key_{}", sortable(now_ms, random)))
    }
}

impl RequestId {
    /// Makes an id from a time in milliseconds since 1970 and 80 fresh random bits.
    #[must_use]
    pub fn mint(now_ms: u64, random: [u8; 10]) -> Self {
        Self(format!("req_{}", sortable(now_ms, random)))
    }
}

const CROCKFORD: [u8; 32] = *b"0123456789abcdefghjkmnpqrstvwxyz";

/// 48 bits of time, then 80 random bits, as 26 digits: text order is time order.
pub(crate) fn sortable(now_ms: u64, random: [u8; 10]) -> String {
    let random = random.iter().fold(0_u128, |sum, byte| (sum << 8) | u128::from(*byte));
    let value = (u128::from(now_ms & 0xffff_ffff_ffff) << 80) | random;
    (0..26_u32)
        .rev()
        .map(|place| {
            let digit = usize::try_from((value >> (place * 5)) & 31).unwrap_or(0);
            char::from(CROCKFORD.get(digit).copied().unwrap_or(b'0'))
        })
        .collect()
}

pub(crate) fn is_sortable(text: &str) -> bool {
    text.len() == 26 && text.bytes().all(|b| CROCKFORD.contains(&b))
}

fn starts_with_escaped_byte(rest: &[u8]) -> bool {
    let digit = |byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte);
    rest.len() >= 2 && rest.iter().take(2).all(digit)
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minted_ids_sort_by_time_and_parse_again() {
        let early = RunId::mint(1, [0xff; 10]);
        let late = RunId::mint(2, [0; 10]);
        assert!(early < late);
        assert_eq!(early.as_str().parse::<RunId>().unwrap(), early);
        assert_eq!(SandboxId::mint(u64::MAX, [0xff; 10]).as_str().len(), 29);
    }

    #[test]
    fn hostile_names_are_refused() {
        for bad in ["", "..", "a/b", "A", "-a", "a\0", "ａ", &"a".repeat(64)] {
            assert!(bad.parse::<TenantId>().is_err(), "{bad:?}");
        }
        for bad in ["", "..", ".a", "a/b", "a b", "a\n", "|", "|forgotten", "|webhook", "|4", "|4x", "|c3", "|+a"] {
            assert!(bad.parse::<UserId>().is_err(), "{bad:?}");
        }
        for good in ["a|forgotten", "auth0|5f7c", "|2Eana", "|C3|A9", "+ci"] {
            assert_eq!(good.parse::<UserId>().unwrap().as_str(), good);
        }
    }
}
