use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use bailey_protocol::audit::HexBytes;

use super::*;
use crate::audit::AuditSigner;

const CHAIN: &str = "tenant/acme";

fn signer() -> AuditSigner {
    AuditSigner::new("key-1".to_owned(), Arc::new(Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()))
}

fn detail(seq: u64) -> AuditDetail {
    AuditDetail {
        salt: HexBytes::new(seq.to_be_bytes()),
        resource: format!("/tenants/acme/{seq}"),
        reason: String::new(),
        credential_id: String::new(),
    }
}

/// A chain of `count` rows.
fn chain(count: u64) -> Vec<AuditRow> {
    let mut prev = genesis(CHAIN);
    let rows = (1..=count).map(|seq| {
        let mut row = AuditRow {
            chain: CHAIN.to_owned(),
            seq,
            time_ms: seq,
            request: None,
            subject: pseudonym(CHAIN, b"salt", "user", "ana"),
            actor: None,
            credential: "token".to_owned(),
            run: None,
            action: "tree_read".to_owned(),
            decision: "allowed".to_owned(),
            policies: vec!["own-tenant".to_owned()],
            outcome: "ok".to_owned(),
            detail: detail_commitment(&detail(seq)),
            prev,
            hash: prev,
        };
        row.hash = row_hash(&row);
        prev = row.hash;
        row
    });
    rows.collect()
}

fn faults(rows: &[AuditRow], checkpoints: &[AuditCheckpoint]) -> Vec<Fault> {
    let mut verifier = Verifier::new(CHAIN, 0, signer().keys());
    for (place, row) in rows.iter().enumerate() {
        // Rows are told apart by what they commit to, wherever they are.
        let about = (1..=rows.len() as u64 + 8).map(detail).find(|each| detail_commitment(each) == row.detail);
        verifier.row(row, about.as_ref(), None);
        let is_last = place + 1 == rows.len();
        for one in checkpoints.iter().filter(|one| one.seq == row.seq || (is_last && one.seq > row.seq)) {
            verifier.checkpoint(one);
        }
    }
    verifier.finish().faults
}

fn seal(row: &AuditRow) -> AuditCheckpoint {
    signer().checkpoint(CHAIN, row.seq, row.hash, 1)
}

#[test]
fn d18_a_whole_chain_is_whole() {
    let rows = chain(10);
    let sealed = seal(rows.last().unwrap());
    assert_eq!(faults(&rows, &[sealed]), []);
}

#[test]
fn d18_what_was_done_to_a_chain_is_said_exactly() {
    let whole = chain(10);
    let sealed = [seal(&whole[9])];
    let after = |change: fn(&mut Vec<AuditRow>)| {
        let mut rows = whole.clone();
        change(&mut rows);
        faults(&rows, &sealed)
    };
    assert_eq!(after(|rows| rows[4].outcome = "denied".to_owned()), [Fault::Edited { seq: 5 }]);
    assert_eq!(after(|rows| drop(rows.remove(4))), [Fault::Removed { from: 5, to: 5 }]);
    assert_eq!(after(|rows| drop(rows.drain(2..5))), [Fault::Removed { from: 3, to: 5 }]);
    assert_eq!(after(|rows| rows.truncate(7)), [Fault::Truncated { last: 7, signed: 10 }]);
    // Moved, with their numbers left as they are and with their numbers set to their new places.
    assert_eq!(after(|rows| rows.swap(4, 5)), [Fault::Reordered { seq: 5 }]);
    let renumbered = after(|rows| {
        rows.swap(4, 5);
        (rows[4].seq, rows[5].seq) = (5, 6);
    });
    assert_eq!(renumbered, [Fault::Reordered { seq: 5 }, Fault::Reordered { seq: 6 }]);
    // Edited with a hash that fits: the next row does not follow.
    let rehashed = after(|rows| {
        rows[4].outcome = "denied".to_owned();
        rows[4].hash = row_hash(&rows[4]);
    });
    assert_eq!(rehashed, [Fault::Unlinked { seq: 6 }]);
    // Edited, and every later row written anew: only the signature tells.
    let anew = after(|rows| {
        rows[4].outcome = "denied".to_owned();
        for at in 4..rows.len() {
            rows[at].prev = rows[at - 1].hash;
            rows[at].hash = row_hash(&rows[at]);
        }
    });
    assert_eq!(anew, [Fault::Rewritten { seq: 10 }]);
    // A beginning that was cut off, with the rest renumbered as if it had not been.
    assert_eq!(after(|rows| drop(rows.drain(..3))), [Fault::Removed { from: 1, to: 3 }]);
}

#[test]
fn d18_a_checkpoint_counts_only_when_it_is_signed_over_these_very_words() {
    let rows = chain(3);
    let good = seal(&rows[2]);
    for change in [
        (|one| one.seq = 2) as fn(&mut AuditCheckpoint),
        |one| one.time_ms += 1,
        |one| one.chain = "tenant/other".to_owned(),
        |one| one.key = "key-2".to_owned(),
        |one| one.signature = HexBytes::new([0; 64]),
        |one| one.hash = Digest::new([0; 32]),
    ] {
        let mut bad = good.clone();
        change(&mut bad);
        let seq = bad.seq;
        assert_eq!(faults(&rows, &[bad]), [Fault::Unsigned { seq }]);
    }
}

#[test]
fn d18_what_lies_beside_the_chain_cannot_be_changed_either() {
    let rows = chain(4);
    let report = |each: &dyn Fn(&mut Verifier, &AuditRow)| {
        let mut verifier = Verifier::new(CHAIN, 0, signer().keys());
        rows.iter().for_each(|row| each(&mut verifier, row));
        verifier.finish()
    };
    let edited = report(&|verifier, row| {
        let mut about = detail(row.seq);
        if row.seq == 2 {
            about.resource.push('x');
        }
        verifier.row(row, Some(&about), None);
    });
    assert_eq!(edited.faults, [Fault::DetailEdited { seq: 2 }]);
    let gone = report(&|verifier, row| verifier.row(row, Some(&detail(row.seq)).filter(|_| row.seq != 2), None));
    assert_eq!(gone.faults, [Fault::DetailRemoved { seq: 2 }]);
    // A receipt that is none.
    let blamed = report(&|verifier, row| {
        let is_gone = row.seq == 2;
        verifier.row(row, Some(&detail(row.seq)).filter(|_| !is_gone), is_gone.then_some(4));
    });
    assert_eq!(blamed.faults, [Fault::ErasedOther { seq: 4, said: 0, found: 1 }]);

    let mut verifier = Verifier::new(CHAIN, 0, signer().keys());
    let id = pseudonym(CHAIN, b"salt", "user", "ana");
    let subject =
        |name: &str| AuditSubject { id, salt: HexBytes::new(*b"salt"), kind: "user".to_owned(), name: name.to_owned() };
    verifier.subject(&subject("ana"));
    verifier.subject(&subject("bob"));
    assert_eq!(verifier.finish().faults, [Fault::SubjectEdited { id }]);
}

#[test]
fn the_list_of_faults_is_bounded() {
    let mut rows = chain(300);
    rows.iter_mut().for_each(|row| row.outcome.push('x'));
    let mut verifier = Verifier::new(CHAIN, 0, signer().keys());
    rows.iter().for_each(|row| verifier.row(row, Some(&detail(row.seq)), None));
    let report = verifier.finish();
    assert_eq!((report.faults.len(), report.more_faults), (100, 200));
}
