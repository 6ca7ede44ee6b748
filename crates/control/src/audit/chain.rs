//! What each hash is of. Every value is length-prefixed and every hash begins with the name of what it is of, so that no
//! two different things are ever the same bytes.

use std::fmt;

use bailey_protocol::audit::{AuditCheckpoint, AuditDetail, AuditEnd, AuditRow, Digest};
use bailey_protocol::id::TenantId;
use sha2::{Digest as _, Sha256};

/// Bytes of a salt.
pub const SALT_BYTES: usize = 16;

/// Whose chain: each tenant has one, the operator another, so that a tenant's verifies without anybody else's rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// What users of this tenant asked for.
    Tenant(TenantId),
    /// What operators and the server itself did.
    Operator,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "tenant/{tenant}"),
            Self::Operator => f.write_str("operator"),
        }
    }
}

/// The value before a chain's first row.
#[must_use]
pub fn genesis(chain: &str) -> Digest {
    Encoder::new("bailey audit genesis 1").text(chain).digest()
}

/// The hash of a row: of everything in it but the hash itself.
#[must_use]
pub fn row_hash(row: &AuditRow) -> Digest {
    let mut encoder = Encoder::new("bailey audit row 1")
        .text(&row.chain)
        .number(row.seq)
        .number(row.time_ms)
        .bytes(row.prev.as_bytes())
        .optional(row.request.as_deref())
        .bytes(row.subject.as_bytes())
        .optional(row.actor.as_ref().map(Digest::as_bytes))
        .text(&row.credential)
        .optional(row.run.as_deref())
        .text(&row.action)
        .text(&row.decision)
        .number(row.policies.len() as u64);
    for policy in &row.policies {
        encoder = encoder.text(policy);
    }
    encoder.text(&row.outcome).bytes(row.detail.as_bytes()).digest()
}

/// What a row holds in place of its detail.
#[must_use]
pub fn detail_commitment(detail: &AuditDetail) -> Digest {
    Encoder::new("bailey audit detail 1")
        .bytes(detail.salt.as_bytes())
        .text(&detail.resource)
        .text(&detail.reason)
        .text(&detail.credential_id)
        .digest()
}

/// What a row holds in place of a name.
#[must_use]
pub fn pseudonym(chain: &str, salt: &[u8], kind: &str, name: &str) -> Digest {
    Encoder::new("bailey audit subject 1").text(chain).bytes(salt).text(kind).text(name).digest()
}

/// What is signed of a checkpoint. Its round is bound by [`round_digest`].
#[must_use]
pub fn checkpoint_message(checkpoint: &AuditCheckpoint) -> Vec<u8> {
    Encoder::new("bailey audit checkpoint 1")
        .text(&checkpoint.chain)
        .number(checkpoint.seq)
        .bytes(checkpoint.hash.as_bytes())
        .number(checkpoint.time_ms)
        .text(&checkpoint.key)
        .finish()
}

/// What is signed of an export's end.
#[must_use]
pub fn end_message(end: &AuditEnd) -> Vec<u8> {
    let name = if end.unnamed { "bailey audit unnamed export 1" } else { "bailey audit export 1" };
    Encoder::new(name)
        .text(&end.chain)
        .number(end.after)
        .number(end.seq)
        .bytes(end.hash.as_bytes())
        .number(end.time_ms)
        .text(&end.key)
        .finish()
}

/// What is signed of a report of `bailey attest`, given as its canonical bytes.
#[must_use]
pub fn report_message(report: &[u8]) -> Vec<u8> {
    Encoder::new("bailey attest report 1").bytes(report).finish()
}

/// What the operator's chain holds of one round of checkpoints, given in the order of their chains' names.
#[must_use]
pub fn round_digest<'a>(heads: impl Iterator<Item = (&'a str, u64, &'a Digest)>) -> Digest {
    let mut encoder = Encoder::new("bailey audit round 1");
    for (chain, seq, hash) in heads {
        encoder = encoder.text(chain).number(seq).bytes(hash.as_bytes());
    }
    encoder.digest()
}

/// Writes values one after the other so that they can be told apart again.
struct Encoder(Vec<u8>);

impl Encoder {
    fn new(domain: &str) -> Self {
        Self(Vec::with_capacity(512)).text(domain)
    }

    fn number(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn bytes(self, value: &[u8]) -> Self {
        let mut encoder = self.number(value.len() as u64);
        encoder.0.extend_from_slice(value);
        encoder
    }

    fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    fn optional(mut self, value: Option<&(impl AsRef<[u8]> + ?Sized)>) -> Self {
        self.0.push(u8::from(value.is_some()));
        match value {
            Some(value) => self.bytes(value.as_ref()),
            None => self,
        }
    }

    fn finish(self) -> Vec<u8> {
        self.0
    }

    fn digest(self) -> Digest {
        Digest::new(Sha256::digest(&self.0).into())
    }
}

#[cfg(test)]
mod tests {
    use bailey_protocol::audit::HexBytes;

    use super::*;

    fn row() -> AuditRow {
        let digest = |byte| Digest::new([byte; 32]);
        AuditRow {
            chain: "tenant/acme".to_owned(),
            seq: 1,
            time_ms: 2,
            request: Some("req_1".to_owned()),
            subject: digest(3),
            actor: None,
            credential: "token".to_owned(),
            run: None,
            action: "tree_read".to_owned(),
            decision: "allowed".to_owned(),
            policies: vec!["own-tenant".to_owned()],
            outcome: "ok".to_owned(),
            detail: digest(4),
            prev: genesis("tenant/acme"),
            hash: digest(0),
        }
    }

    #[test]
    fn the_encoding_is_the_documented_one() {
        // Frozen: what an earlier version wrote has to verify for ever.
        assert_eq!(
            genesis("operator").to_string(),
            hex(&Sha256::digest(b"\0\0\0\0\0\0\0\x16bailey audit genesis 1\0\0\0\0\0\0\0\x08operator"))
        );
        assert_eq!(row_hash(&row()).to_string(), FROZEN_ROW);
    }

    const FROZEN_ROW: &str = "62b3ed729db5b413384a895ae01ee6d99798e96209c64f1a0599a69f7e50ce33";

    fn hex(bytes: &[u8]) -> String {
        HexBytes::new(bytes).to_string()
    }

    #[test]
    fn every_field_of_a_row_is_in_its_hash_and_no_two_rows_share_bytes() {
        let changes: [fn(&mut AuditRow); 17] = [
            |row| row.chain.push('x'),
            |row| row.seq += 1,
            |row| row.time_ms += 1,
            |row| row.request = None,
            |row| row.request = Some(String::new()),
            |row| row.subject = Digest::new([9; 32]),
            |row| row.actor = Some(Digest::new([9; 32])),
            |row| row.credential.clear(),
            |row| row.run = Some(String::new()),
            |row| row.action.push('x'),
            |row| row.decision.push('x'),
            |row| row.policies.clear(),
            |row| row.policies.push(String::new()),
            |row| row.policies = vec!["own".to_owned(), "-tenant".to_owned()],
            |row| row.outcome.push('x'),
            |row| row.detail = Digest::new([9; 32]),
            |row| row.prev = Digest::new([9; 32]),
        ];
        let mut seen = std::collections::BTreeSet::from([row_hash(&row())]);
        for (number, change) in changes.iter().enumerate() {
            let mut changed = row();
            change(&mut changed);
            assert!(seen.insert(row_hash(&changed)), "change {number}");
        }
        // A boundary between two fields cannot be moved.
        let mut moved = row();
        moved.action = "tree_readal".to_owned();
        moved.decision = "lowed".to_owned();
        assert!(seen.insert(row_hash(&moved)));
    }

    #[test]
    fn a_commitment_depends_on_its_salt() {
        let detail = |salt: u8| AuditDetail {
            salt: HexBytes::new([salt; SALT_BYTES]),
            resource: "/tenants/acme/x".to_owned(),
            reason: String::new(),
            credential_id: String::new(),
        };
        assert_ne!(detail_commitment(&detail(1)), detail_commitment(&detail(2)));
        assert_ne!(pseudonym("operator", &[1], "user", "ana"), pseudonym("operator", &[2], "user", "ana"));
        assert_ne!(pseudonym("operator", &[1], "user", "ana"), pseudonym("operator", &[1], "usera", "na"));
    }
}
