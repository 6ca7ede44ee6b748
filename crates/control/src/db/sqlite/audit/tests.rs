//! The chains as they lie in the file, and whoever writes to that file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use bailey_policy::{AdminAction, Policies, Principal, RunCreatePermit, RunPlan};
use bailey_protocol::wall::WallKind;
use rusqlite::Connection;

use crate::audit::{AuditSigner, Chain, Fault, Report};
use crate::db::contract::audit::signer;
use crate::db::{AuditDb as _, AuditEntry, Db as _, ForgetScope, IdentityDb as _, NewRun, Sqlite, verify_audit};

fn principal(tenant: &str, user: &str) -> Principal {
    Principal::new(tenant.parse().unwrap(), user.parse().unwrap())
}

fn may_run(who: &Principal) -> RunCreatePermit {
    let (wall, template) = (WallKind::Container, "base".parse().unwrap());
    let plan = RunPlan { wall, template, root: false, limits: bailey_protocol::limits::Limits::default() };
    Policies::new(&[]).unwrap().judge(who, 0).create_run(&plan).unwrap()
}

fn entry(who: &Principal, n: u64) -> AuditEntry {
    AuditEntry::allowed(may_run(who).grant(), &n.to_string(), None, n)
}

async fn seal(db: &Sqlite) {
    let signer = signer();
    let heads = db.audit_unsealed().await.unwrap();
    let tenants = heads.iter().filter(|head| head.chain != "operator");
    let checkpoints = tenants.map(|head| signer.checkpoint(&head.chain, head.seq, head.hash, 1)).collect();
    db.audit_seal(checkpoints, signer, 1).await.unwrap();
}

/// Two tenants, two rounds of checkpoints, one purge.
async fn filled(dir: &Path) -> PathBuf {
    let file = dir.join("bailey.db");
    let db = Sqlite::open(&file).unwrap();
    let (ana, bob, eve) = (principal("acme", "ana"), principal("acme", "bob"), principal("evil", "eve"));
    for round in 0..2 {
        for n in 0..5 {
            db.audit(entry(&ana, round * 10 + n)).await.unwrap();
            db.audit(entry(&eve, n)).await.unwrap();
        }
        db.audit(entry(&bob, round)).await.unwrap();
        seal(&db).await;
    }
    let receipt =
        AuditEntry { chain: Chain::Tenant(bob.tenant.clone()), ..AuditEntry::by_server("test", String::new(), 1) };
    let mut boss = principal("acme", "boss");
    boss.roles.insert("admin".to_owned());
    let permit = Policies::new(&[]).unwrap().judge(&boss, 0).admin(AdminAction::UserForget).unwrap();
    let scope = ForgetScope::of_admin(&permit, &bob.user).unwrap();
    assert_eq!(db.forget_user(&scope, receipt).await.unwrap().audit_rows, 2);
    seal(&db).await;
    file
}

fn verify(file: &Path) -> Vec<Report> {
    verify_audit(file, &signer().keys(), None, None).unwrap()
}

fn faults(reports: &[Report]) -> Vec<(&str, &Fault)> {
    reports.iter().flat_map(|report| report.faults.iter().map(|fault| (report.chain.as_str(), fault))).collect()
}

#[tokio::test]
async fn d18_every_way_to_tamper_with_the_file_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let good = filled(dir.path()).await;
    let acme = "chain = (SELECT id FROM audit_chains WHERE name = 'tenant/acme')";
    let edited = |seq| ("tenant/acme", Fault::Edited { seq });
    let cases: [(String, Vec<(&str, Fault)>); 11] = [
        (String::new(), vec![]),
        (format!("UPDATE audit_rows SET outcome = 'ok' WHERE seq = 3 AND {acme}"), vec![edited(3)]),
        (format!("UPDATE audit_rows SET time_ms = 77 WHERE seq = 3 AND {acme}"), vec![edited(3)]),
        (
            format!("DELETE FROM audit_rows WHERE seq IN (3, 4) AND {acme}"),
            vec![("tenant/acme", Fault::Removed { from: 3, to: 4 })],
        ),
        (
            format!(
                "UPDATE audit_rows SET seq = 100 WHERE seq = 3 AND {acme};
                 UPDATE audit_rows SET seq = 3 WHERE seq = 4 AND {acme};
                 UPDATE audit_rows SET seq = 4 WHERE seq = 100 AND {acme};
                 DELETE FROM audit_details WHERE 0"
            ),
            vec![
                ("tenant/acme", Fault::Reordered { seq: 3 }),
                ("tenant/acme", Fault::DetailEdited { seq: 3 }),
                ("tenant/acme", Fault::Reordered { seq: 4 }),
                ("tenant/acme", Fault::DetailEdited { seq: 4 }),
            ],
        ),
        (
            format!("DELETE FROM audit_rows WHERE seq > 11 AND {acme}"),
            vec![("tenant/acme", Fault::Truncated { last: 11, signed: 13 })],
        ),
        // Together with its checkpoints: the operator's chain has sealed them.
        (
            format!(
                "DELETE FROM audit_rows WHERE seq > 12 AND {acme};
                 DELETE FROM audit_checkpoints WHERE seq > 12 AND chain = 'tenant/acme'"
            ),
            vec![("operator", Fault::RoundBroken { seq: 3 })],
        ),
        (
            format!("UPDATE audit_details SET resource = 'x' WHERE seq = 2 AND {acme}"),
            vec![("tenant/acme", Fault::DetailEdited { seq: 2 })],
        ),
        (
            format!("DELETE FROM audit_details WHERE seq = 2 AND {acme}"),
            vec![("tenant/acme", Fault::DetailRemoved { seq: 2 })],
        ),
        // One more is forgotten than the receipt says.
        (
            format!(
                "UPDATE audit_details SET salt = NULL, resource = NULL, reason = NULL, credential_id = NULL,
                 erased_by = 13 WHERE seq = 2 AND {acme}"
            ),
            vec![("tenant/acme", Fault::ErasedOther { seq: 13, said: 2, found: 3 })],
        ),
        (
            "DROP TABLE audit_rows; DELETE FROM audit_chains; DELETE FROM audit_checkpoints;
             CREATE TABLE audit_rows (chain, seq)"
                .to_owned(),
            vec![],
        ),
    ];
    for (number, (sql, expected)) in cases.into_iter().enumerate() {
        let file = dir.path().join(format!("case-{number}.db"));
        std::fs::copy(&good, &file).unwrap();
        let raw = Connection::open(&file).unwrap();
        raw.execute_batch("DROP TRIGGER audit_rows_stay; DROP TRIGGER audit_rows_are_kept;").unwrap();
        raw.execute_batch(&sql).unwrap();
        drop(raw);
        let reports = verify(&file);
        let expected: Vec<(&str, &Fault)> = expected.iter().map(|(chain, fault)| (*chain, fault)).collect();
        assert_eq!(faults(&reports), expected, "case {number}");
        // Nothing at all is no whole audit either: whoever looks sees that there is no chain.
        assert_eq!(reports.is_empty(), number == 10);
    }
}

#[tokio::test]
async fn d18_a_purge_leaves_no_name_and_no_path_and_the_chain_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let file = filled(dir.path()).await;
    let reports = verify(&file);
    assert_eq!(faults(&reports), []);
    let acme = reports.iter().find(|report| report.chain == "tenant/acme").unwrap();
    assert_eq!((acme.rows, acme.signed, acme.forgotten), (13, 13, 2));
    let raw = Connection::open(&file).unwrap();
    raw.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let holds = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    assert!(holds(b"userana") || holds(b"ana"), "the file holds names");
    assert!(!holds(b"userbob"), "a forgotten name is in the file");
}

#[test]
fn d18_no_statement_changes_or_deletes_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let db = super::super::schema::open(&dir.path().join("bailey.db")).unwrap();
    let row = "INSERT INTO audit_rows VALUES (1, 1, 0, NULL, x'', NULL, '', NULL, '', '', '', '', x'', x'', x'')";
    db.execute(row, []).unwrap();
    for sql in ["UPDATE audit_rows SET outcome = 'x'", "DELETE FROM audit_rows"] {
        assert!(db.execute(sql, []).is_err(), "{sql}");
    }
}

/// Everything that was signed for, cut off at the end of every chain: only who kept a head elsewhere can tell.
#[tokio::test]
async fn d18_a_head_that_was_kept_elsewhere_has_to_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = filled(dir.path()).await;
    let operator = |reports: Vec<Report>| reports.into_iter().find(|report| report.chain == "operator").unwrap();
    let kept = operator(verify(&file));
    let raw = Connection::open(&file).unwrap();
    raw.execute_batch(
        "DROP TRIGGER audit_rows_are_kept;
         DELETE FROM audit_rows WHERE chain = (SELECT id FROM audit_chains WHERE name = 'operator') AND seq > 2;
         DELETE FROM audit_rows WHERE chain = (SELECT id FROM audit_chains WHERE name = 'tenant/acme') AND seq > 12;
         DELETE FROM audit_checkpoints WHERE (chain = 'operator' AND seq > 2) OR (chain = 'tenant/acme' AND seq > 12)",
    )
    .unwrap();
    drop(raw);
    let unseen = verify(&file);
    assert!(unseen.iter().all(Report::is_whole), "{unseen:?}");
    let anchor = |seq, hash| operator(verify_audit(&file, &signer().keys(), None, Some((seq, hash))).unwrap()).faults;
    assert_eq!(anchor(3, kept.head), [Fault::Truncated { last: 2, signed: 3 }]);
    assert_eq!(anchor(2, kept.head), [Fault::Rewritten { seq: 2 }]);
}

#[tokio::test]
async fn d18_only_the_servers_key_seals() {
    let dir = tempfile::tempdir().unwrap();
    let file = filled(dir.path()).await;
    // Under the very name of the server's key.
    let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap();
    let stranger = AuditSigner::new(signer().key().to_owned(), Arc::new(pair)).keys();
    let reports = verify_audit(&file, &stranger, None, None).unwrap();
    assert!(reports.iter().all(|report| report.signed == 0 && !report.is_whole()));
    let one = verify_audit(&file, &signer().keys(), Some(&Chain::Tenant("evil".parse().unwrap())), None).unwrap();
    assert_eq!(one.iter().map(|report| report.chain.as_str()).collect::<Vec<_>>(), ["tenant/evil"]);
}

/// What was acknowledged before the process was killed is there, in a whole chain: the file and its log as they are at
/// that moment are what the next life finds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d18_a_kill_at_any_moment_leaves_no_gap() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    let db = Arc::new(Sqlite::open(&file).unwrap());
    let ana = principal("acme", "ana");
    for life in 0..8_u64 {
        let writes = (0..40).map(|n| {
            let (db, entry) = (Arc::clone(&db), entry(&ana, life * 100 + n));
            async move { db.audit(entry).await }
        });
        let mut writes: futures_util::stream::FuturesUnordered<_> = writes.collect();
        for _ in 0..20 {
            futures_util::StreamExt::next(&mut writes).await.unwrap().unwrap();
        }
        let killed = tempfile::tempdir().unwrap();
        // The log first: what it holds is newer than what the file holds.
        for name in ["bailey.db-wal", "bailey.db"] {
            std::fs::copy(dir.path().join(name), killed.path().join(name)).unwrap();
        }
        drop(Sqlite::open(&killed.path().join("bailey.db")).unwrap());
        let reports = verify(&killed.path().join("bailey.db"));
        assert_eq!(faults(&reports), [], "life {life}");
        assert!(reports.iter().any(|report| report.rows >= (life + 1) * 20), "life {life}");
    }
}

#[tokio::test]
async fn a_run_and_its_decisions_are_recorded_together() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    let db = Sqlite::open(&file).unwrap();
    let ana = principal("acme", "ana");
    let permit = may_run(&ana);
    let run = bailey_protocol::id::RunId::mint(1, [7; 10]);
    let audit = vec![AuditEntry::allowed(permit.grant(), "", None, 7)];
    let new =
        NewRun { run: run.clone(), command: String::new(), mounts: vec![], created_ms: 7, idempotency: None, audit };
    db.create_run(&permit, new).await.unwrap();
    drop(db);
    let raw = Connection::open(&file).unwrap();
    let row = raw.query_row("SELECT user, action, outcome FROM audit", [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    });
    assert_eq!(row.unwrap(), ("ana".to_owned(), "run_create".to_owned(), run.to_string()));
    assert_eq!(faults(&verify(&file)), []);
}
