//! Marks on paths, such as `confidential`, that policies look at.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{IdError, string_newtype};

/// Most labels of one path.
pub const MAX_LABELS: usize = 16;

string_newtype!(
    /// A mark on a path, such as `confidential` or `untrusted`. 1–32 of `a-z 0-9 -`, starting with a letter.
    Label, "label", "use 1 to 32 of a-z, 0-9 and `-`, starting with a letter",
    |s| (1..=32).contains(&s.len())
        && s.starts_with(|c: char| c.is_ascii_lowercase())
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);
