use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use bailey_policy::{Policies, RunPlan};
use bailey_protocol::wall::WallKind;
use rusqlite::Connection;

use super::*;
use crate::db::tree_meta::TreeDb as _;
use crate::db::{AuditDb as _, AuditEntry, UsageDb as _};

mod contract {
    crate::db::contract::suite!(|dir| std::sync::Arc::new(crate::db::Sqlite::open(&dir.join("bailey.db")).unwrap()));
}

fn ana() -> Principal {
    Principal::new("acme".parse().unwrap(), "ana".parse().unwrap())
}

fn may_run() -> RunCreatePermit {
    let plan = RunPlan {
        wall: WallKind::Container,
        template: "base".parse().unwrap(),
        root: false,
        limits: bailey_protocol::limits::Limits::default(),
    };
    Policies::new(&[]).unwrap().judge(&ana(), 0).create_run(&plan).unwrap()
}

fn new_run(n: u64) -> NewRun {
    NewRun {
        run: RunId::mint(n, [7; 10]),
        command: "x".repeat(200),
        mounts: vec![],
        created_ms: n,
        idempotency: None,
        audit: vec![],
    }
}

fn set_max_pages(db: &Connection, pages: i64) -> rusqlite::Result<()> {
    db.pragma_update_and_check(None, "max_page_count", pages, |_row| Ok(()))
}

async fn count(db: &Sqlite) -> usize {
    db.runs(&Policies::new(&[]).unwrap().judge(&ana(), 0).list_runs().unwrap(), MAX_PAGE, None).await.unwrap().len()
}

#[tokio::test]
async fn d05_a_full_disk_is_said_and_gets_well_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    let raw = schema::open(&file).unwrap();
    let pages: i64 = raw.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    set_max_pages(&raw, pages + 2).unwrap();
    let db = Sqlite {
        writer: Worker::writer(raw).unwrap(),
        reader: Worker::reader(schema::open_reader(&file).unwrap()).unwrap(),
        rng: Rng::system(),
        appended: Arc::default(),
    };
    let permit = may_run();
    let mut kept = 0;
    let mut fresh = 1_u64..;
    let full = loop {
        // Several at once, so that they share commits.
        let writes: Vec<_> = fresh.by_ref().take(4).map(|n| db.create_run(&permit, new_run(n))).collect();
        let (good, bad): (Vec<_>, Vec<_>) =
            futures_util::future::join_all(writes).await.into_iter().partition(Result::is_ok);
        kept += good.len();
        if let Some(Err(error)) = bad.into_iter().next() {
            break error;
        }
    };
    assert!(matches!(full, DbError::Full { .. }), "{full:?}");
    assert!(kept > 0);
    // Reads go on, nothing of a failed commit is there, and with room writes go on too.
    assert_eq!(count(&db).await, kept);
    db.writer.call("make room", |db| Ok(set_max_pages(db, 1_000_000))).await.unwrap().unwrap();
    db.create_run(&permit, new_run(9999)).await.unwrap();
    assert_eq!(count(&db).await, kept + 1);
}

#[tokio::test]
async fn what_was_queued_is_kept_when_the_caller_and_the_handle_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    let db = Sqlite::open(&file).unwrap();
    let permit = may_run();
    {
        let mut write = db.create_run(&permit, new_run(1));
        // One poll queues it.
        // Queued by the first poll; the thread may even be done already.
        let _queued = futures_util::poll!(&mut write);
    }
    drop(db);
    assert_eq!(count(&Sqlite::open(&file).unwrap()).await, 1);
}

#[tokio::test]
async fn a_dead_worker_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = Sqlite::open(&dir.path().join("bailey.db")).unwrap();
    db.writer.stop();
    let answer = db.create_run(&may_run(), new_run(1)).await;
    assert!(matches!(answer, Err(DbError::Closed { operation: "create a run" })), "{answer:?}");
}

#[test]
fn the_file_is_private_durable_and_ours() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    let db = schema::open(&file).unwrap();
    let text = |name| db.pragma_query_value(None, name, |row| row.get::<_, String>(0)).unwrap();
    let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((text("journal_mode").as_str(), number("synchronous")), ("wal", 2));
    for name in ["bailey.db", "bailey.db-wal", "bailey.db-shm"] {
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let reader = schema::open_reader(&file).unwrap();
    assert!(reader.execute("DELETE FROM runs", []).is_err());
}

#[test]
fn a_newer_a_foreign_and_a_broken_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    drop(Sqlite::open(&file).unwrap());
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Sqlite::open(&file), Err(DbError::TooNew { found: 99, .. })));

    let foreign = dir.path().join("foreign.db");
    Connection::open(&foreign).unwrap().pragma_update(None, "user_version", 1).unwrap();
    assert!(matches!(Sqlite::open(&foreign), Err(DbError::Corrupt { .. })));

    let broken = dir.path().join("broken.db");
    std::fs::write(&broken, "x".repeat(8192)).unwrap();
    assert!(matches!(Sqlite::open(&broken), Err(DbError::Corrupt { .. })));

    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&broken, &link).unwrap();
    assert!(Sqlite::open(&link).is_err());
    assert!(Sqlite::open(&dir.path().join("no/such/folder.db")).is_err());
}

#[tokio::test]
async fn a_damaged_row_is_an_error_and_not_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    let db = Sqlite::open(&file).unwrap();
    db.create_run(&may_run(), new_run(1)).await.unwrap();
    Connection::open(&file).unwrap().execute("UPDATE runs SET spec = '{}'", []).unwrap();
    let runs = db.runs(&Policies::new(&[]).unwrap().judge(&ana(), 0).list_runs().unwrap(), 10, None).await;
    assert!(matches!(runs, Err(DbError::Corrupt { .. })), "{runs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_is_in_order_and_complete() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    let db = Arc::new(Sqlite::open(&file).unwrap());
    let permit = may_run();
    let entries = (0..100).map(|n| db.audit(AuditEntry::allowed(permit.grant(), &n.to_string(), None, n)));
    for answer in futures_util::future::join_all(entries).await {
        answer.unwrap();
    }
    let raw = Connection::open(&file).unwrap();
    let row = raw.query_row(
        "SELECT count(*), min(seq), max(seq), group_concat(DISTINCT policies) FROM audit_rows",
        [],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, String>(3)?)),
    );
    assert_eq!(row.unwrap(), (100, 1, 100, r#"["own-tenant"]"#.to_owned()));
}

#[tokio::test]
async fn o1_what_a_purge_forgot_is_in_no_part_of_the_file_wherever_rows_were_moved() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bailey.db");
    let db = Sqlite::open(&file).unwrap();
    let mut who = ana();
    who.roles.insert("admin".to_owned());
    let policies = Policies::new(&[]).unwrap();
    let judge = |path: &str| {
        let facts = bailey_policy::PathFacts::plain(path.parse().unwrap());
        policies.judge(&who, 0).label(&facts).unwrap()
    };
    let secret = "canary-9d1e";
    // Keys that come in between have rows moved from page to page.
    let names: Vec<String> = (0..900_u64).map(|n| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    for (n, name) in names.iter().enumerate() {
        let path = if n % 3 == 0 { format!("/tenants/acme/{secret}/{name}") } else { format!("/tenants/acme/{name}") };
        db.set_labels(&judge(&path), &["confidential".parse().unwrap()].into()).await.unwrap();
        if n % 4 == 0 {
            db.set_labels(&judge(&path), &[].into()).await.unwrap();
        }
    }
    let facts = bailey_policy::PathFacts::plain(format!("/tenants/acme/{secret}").parse().unwrap());
    let permit = Policies::new(&[]).unwrap().judge(&who, 0).purge(&facts).unwrap();
    let purge = crate::db::NewPurge {
        id: bailey_protocol::purge::PurgeId::mint(1, [3; 10]),
        path_sha256: String::new(),
        asked_by_sha256: String::new(),
        asked_ms: 1,
        moves: Vec::new(),
        versions: 0,
        audited: crate::db::Audited::default(),
        receipt: AuditEntry::allowed(permit.grant(), "", None, 1).unnamed(),
    };
    let holds = || {
        let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap_or_default();
        let bytes = [read("bailey.db"), read("bailey.db-wal")].concat();
        bytes.windows(secret.len()).filter(|part| *part == secret.as_bytes()).count()
    };
    assert!(holds() > 0);
    db.begin_purge(&permit, purge).await.unwrap();
    db.scrub().await.unwrap();
    assert_eq!(holds(), 0);
}
