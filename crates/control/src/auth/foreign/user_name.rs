//! Users of foreign issuers as user ids of ours: as they are where they fit, else escaped so that they can be read back.
//!
//! A byte that no user id may hold, and in front a dot, a plus (which marks a machine's user) and a bar (which marks who has
//! no name), become `|` and two upper-case hex digits. A `|` that would read as such an escape is escaped itself. So two
//! names never meet in one id.

use bailey_protocol::id::UserId;

/// The id of the user that an issuer calls `name`; `None` where it would be too long or empty.
pub(super) fn to_id(prefix: &str, name: &str) -> Option<UserId> {
    if name.is_empty() {
        return None;
    }
    let mut id = prefix.to_owned();
    let bytes = name.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let fits =
            byte.is_ascii_alphanumeric() || b"._@+-".contains(byte) || *byte == b'|' && !reads_as_escape(bytes, at);
        if fits && !(id.is_empty() && b".+|".contains(byte)) {
            id.push(char::from(*byte));
        } else {
            id.push_str(&format!("|{byte:02X}"));
        }
    }
    id.parse().ok()
}

fn reads_as_escape(bytes: &[u8], bar: usize) -> bool {
    let digit = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(b));
    digit(bar + 1) && digit(bar + 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the escape stands for.
    fn back(id: &str) -> Vec<u8> {
        let (bytes, mut out, mut at) = (id.as_bytes(), Vec::new(), 0);
        while at < bytes.len() {
            if bytes[at] == b'|' && reads_as_escape(bytes, at) {
                out.push(u8::from_str_radix(&id[at + 1..at + 3], 16).unwrap());
                at += 3;
            } else {
                out.push(bytes[at]);
                at += 1;
            }
        }
        out
    }

    #[test]
    fn what_fits_stays_and_what_does_not_is_escaped() {
        for (name, id) in [
            ("6f9619ff-8b86-d011-b42d-00cf4fc964ff", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
            ("ana@example.com", "ana@example.com"),
            ("o'hara@example.com", "o|27hara@example.com"),
            ("auth0|5f7c8ec7", "auth0|5f7c8ec7"),
            ("auth0|2Fabc", "auth0|7C2Fabc"),
            (".ana", "|2Eana"),
            ("+ana", "|2Bana"),
            ("|forgotten", "|7Cforgotten"),
            ("|2Eana", "|7C2Eana"),
            ("../ana", "|2E.|2Fana"),
            ("é", "|C3|A9"),
        ] {
            assert_eq!(to_id("", name).unwrap().as_str(), id);
            assert_eq!(back(id), name.as_bytes());
        }
        assert_eq!(to_id("okta-", ".x").unwrap().as_str(), "okta-.x");
        assert_eq!(to_id("", ""), None);
        assert_eq!(to_id("", &"x".repeat(129)), None);
        assert_eq!(to_id("", &"/".repeat(43)), None);
    }

    proptest! {
        #[test]
        fn every_name_can_be_read_back(name in "[a-zA-Z0-9|./ é\\\\x00-\\\\x7f]{1,40}") {
            if let Some(id) = to_id("", &name) {
                prop_assert_eq!(back(id.as_str()), name.as_bytes());
            }
        }
    }
}
