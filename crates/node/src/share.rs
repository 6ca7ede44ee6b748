//! Under what name a jail knows whose CPU time a sandbox takes.

use std::fmt::Write as _;

use bailey_protocol::id::{ShareTag, TenantId};
use sha2::{Digest as _, Sha256};

/// Bytes of a hash that make a tag.
const BYTES: usize = 16;

/// The tag of everything that is done for a tenant. A hash: the jail learns who is the same, and not who it is.
pub(crate) fn of(tenant: &TenantId) -> ShareTag {
    let hash = Sha256::digest(format!("bailey share of CPU time: {tenant}"));
    let digits = hash.iter().take(BYTES).fold(String::new(), |mut digits, byte| {
        // Writing to a string cannot fail.
        write!(digits, "{byte:02x}").ok();
        digits
    });
    digits.parse().expect("32 hex digits are a tag")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_one_tag_that_says_nothing_of_it() {
        let [acme, globex]: [TenantId; 2] = ["acme", "globex"].map(|name| name.parse().unwrap());
        assert_eq!(of(&acme), of(&acme));
        assert_ne!(of(&acme), of(&globex));
        assert!(!of(&acme).as_str().contains("acme"));
        let longest: TenantId = "a".repeat(63).parse().unwrap();
        assert_eq!(of(&longest).as_str().len(), 2 * BYTES);
    }
}
