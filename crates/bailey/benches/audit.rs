//! What a row of the audit costs, against a bare insert and commit of SQLite in the same loop, on the same disk.
//!
//! Prints a table and writes `bench/results/audit.json`. `cargo bench -p bailey --bench audit`; needs no root.

#![allow(clippy::print_stdout, reason = "the table is this program's output")]
#![allow(clippy::disallowed_methods, reason = "a bench measures with the machine's clock")]

#[allow(dead_code, reason = "the other benches use the rest of it")]
#[path = "run/report.rs"]
mod report;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bailey_control::db::{AuditDb as _, AuditEntry, Sqlite};
use bailey_policy::{PathFacts, Policies, Principal, ReadAction};
use bailey_protocol::path::{BranchName, Revision};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use report::{Report, Row, Samples};

const TURNS: usize = 2_000;
const AT_ONCE: usize = 64;
const SUSTAINED: usize = 20_000;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(".")?;
    let db = Arc::new(Sqlite::open(&folder.path().join("bailey.db"))?);
    let bare = Bare::open(&folder.path().join("bare.db"))?;
    let entry = entry()?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for turn in 0..TURNS {
        let start = Instant::now();
        bare.insert(turn)?;
        theirs.push(start.elapsed());
        let start = Instant::now();
        db.audit(entry.clone()).await?;
        ours.push(start.elapsed());
    }
    let mut report = Report::default();
    let baseline = "bare SQLite insert and commit";
    report.push(Row::latency("audit append".to_owned(), &ours, baseline, &theirs, None, "one at a time".to_owned()));
    let start = Instant::now();
    for turn in 0..TURNS {
        bare.insert(turn)?;
    }
    let theirs = (TURNS, per_second(TURNS, start)?);
    let start = Instant::now();
    let mut going: FuturesUnordered<_> = (0..AT_ONCE).map(|_| db.audit(entry.clone())).collect();
    let mut done = 0;
    while let Some(outcome) = going.next().await {
        outcome?;
        done += 1;
        if done + going.len() < SUSTAINED {
            going.push(db.audit(entry.clone()));
        }
    }
    let (ours, note) = ((done, per_second(done, start)?), "one at a time against it".to_owned());
    report.push(Row::rate(format!("audit append, {AT_ONCE} at once"), ours, baseline, theirs, None, note));
    print!("{}", report.table());
    report.write("audit.json")
}

fn per_second(done: usize, start: Instant) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(done)?) / start.elapsed().as_secs_f64())
}

fn entry() -> anyhow::Result<AuditEntry> {
    let ana = Principal::new("acme".parse()?, "ana".parse()?);
    let path = PathFacts::plain("/tenants/acme/reports/2026/q1.csv".parse()?);
    let permit = Policies::new(&[])?
        .judge(&ana, 0)
        .read_path(ReadAction::Read, &path, &Revision::Branch(BranchName::main()))
        .context("a user may read its tenant's files")?;
    Ok(AuditEntry::allowed(permit.grant(), "ok", None, 1_700_000_000_000))
}

/// A table of one text, with the same guarantees.
struct Bare(rusqlite::Connection);

impl Bare {
    fn open(file: &std::path::Path) -> anyhow::Result<Self> {
        let db = rusqlite::Connection::open(file)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")?;
        Ok(Self(db))
    }

    fn insert(&self, turn: usize) -> anyhow::Result<()> {
        let text = format!("{turn} {}", "x".repeat(300));
        self.0.prepare_cached("INSERT INTO rows (text) VALUES (?1)")?.execute([text])?;
        Ok(())
    }
}
