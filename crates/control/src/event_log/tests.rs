use std::fs;

use bailey_protocol::api::{OutputData, RunEventKind, RunResult, Usage};
use bailey_protocol::node::Ending;

use super::*;

fn run() -> RunId {
    RunId::mint(1, [7; 10])
}

fn acme() -> TenantId {
    "acme".parse().unwrap()
}

fn text(text: &str) -> RunEventKind {
    RunEventKind::Stdout(OutputData { text: Some(text.to_owned()), base64: None })
}

fn ended() -> RunEventKind {
    RunEventKind::Ended(RunResult {
        ending: Ending::Exited { code: 0 },
        denied: None,
        limits_hit: Vec::new(),
        output_dropped: 0,
        versions: Vec::new(),
        notices: Vec::new(),
        more_notices: 0,
        usage: Usage::default(),
    })
}

async fn seqs(mut reader: EventReader) -> Result<Vec<u64>, EventLogError> {
    let mut seen = Vec::new();
    while let Some(batch) = reader.next().await? {
        for line in batch.lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            seen.push(serde_json::from_slice::<RunEvent>(line).unwrap().seq);
        }
        assert!(batch.lines.ends_with(b"\n"));
    }
    Ok(seen)
}

#[tokio::test]
async fn a_reader_sees_every_event_once_from_wherever_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let logs = EventLogs::open(folder.path()).unwrap();
    let mut writer = logs.create(&acme(), &run()).unwrap();
    let long = "x".repeat(100_000);
    let readers: Vec<_> = (0..7).map(|after| logs.follow(&acme(), &run(), after, writer.progress()).unwrap()).collect();
    writer.append(1, vec![text("a"), text(&long)]).await.unwrap();
    writer.append(2, vec![text("b"), text(&long), ended()]).await.unwrap();
    for (after, reader) in (0..7_u64).zip(readers) {
        assert_eq!(seqs(reader).await.unwrap(), (after + 1..=5).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn logs_of_runs_that_never_were_go_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let logs = EventLogs::open(folder.path()).unwrap();
    let (kept, never) = (RunId::mint(1, [1; 10]), RunId::mint(2, [2; 10]));
    logs.create(&acme(), &kept).unwrap().append(1, vec![text("a")]).await.unwrap();
    drop(logs.create(&acme(), &never).unwrap());
    let names = || fs::read_dir(folder.path().join("acme")).unwrap().count();
    assert_eq!(names(), 2);
    assert_eq!((logs.sweep().unwrap(), names()), (1, 1));
    assert_eq!((logs.sweep().unwrap(), names()), (0, 1));
    // Had it been recorded, its end would still be told.
    assert!(logs.complete(&acme(), &never, 3, ended()).unwrap().over);
}

#[tokio::test]
async fn a_writer_that_goes_away_early_breaks_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let logs = EventLogs::open(folder.path()).unwrap();
    let mut writer = logs.create(&acme(), &run()).unwrap();
    let mut reader = logs.follow(&acme(), &run(), 0, writer.progress()).unwrap();
    writer.append(1, vec![text("a")]).await.unwrap();
    drop(writer);
    assert_eq!(reader.next().await.unwrap().unwrap().first_seq, 1);
    assert!(matches!(reader.next().await, Err(EventLogError::Broken)));
}

#[tokio::test]
async fn a_line_cut_short_by_a_crash_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let logs = EventLogs::open(folder.path()).unwrap();
    let mut writer = logs.create(&acme(), &run()).unwrap();
    writer.append(1, vec![text("a"), text("b")]).await.unwrap();
    drop(writer);
    let path = logs.path(&acme(), &run());
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [whole.as_slice(), br#"{"seq":3,"time_ms"#].concat()).unwrap();
    let progress = logs.complete(&acme(), &run(), 2, ended()).unwrap();
    assert!(progress.over && progress.bytes > whole.len() as u64);
    // Once is enough.
    assert_eq!(logs.complete(&acme(), &run(), 3, ended()).unwrap(), progress);
    let reader = logs.follow(&acme(), &run(), 0, watch::channel(progress).1).unwrap();
    assert_eq!(seqs(reader).await.unwrap(), [1, 2, 3]);
}

#[tokio::test]
async fn a_log_that_is_gone_still_tells_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let logs = EventLogs::open(folder.path()).unwrap();
    let progress = logs.complete(&acme(), &run(), 2, ended()).unwrap();
    let reader = logs.follow(&acme(), &run(), 0, watch::channel(progress).1).unwrap();
    assert_eq!(seqs(reader).await.unwrap(), [1]);
}

#[test]
fn a_second_log_of_one_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let logs = EventLogs::open(folder.path()).unwrap();
    logs.create(&acme(), &run()).unwrap();
    assert!(logs.create(&acme(), &run()).is_err());
}

#[tokio::test]
async fn the_oldest_logs_go_when_all_together_hold_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let logs = EventLogs::open(folder.path()).unwrap();
    let runs: Vec<_> = (1..=4).map(|time| RunId::mint(time, [0; 10])).collect();
    let mut bytes = 0;
    for run in &runs {
        let mut writer = logs.create(&acme(), run).unwrap();
        writer.append(0, vec![text(&"x".repeat(1000)), ended()]).await.unwrap();
        bytes = writer.progress().borrow().bytes;
    }
    assert!(logs.is_trim_due(0, 1 << 30), "what an earlier life left was never looked at");
    assert_eq!(logs.trim(4 * bytes, |_| false).unwrap(), 0);
    assert!(!logs.is_trim_due(bytes, 1 << 30));
    assert!(logs.is_trim_due(bytes, bytes));
    assert_eq!(logs.trim(bytes, |run| *run == runs[0]).unwrap(), 2);
    let left: Vec<_> = runs.iter().filter(|run| logs.path(&acme(), run).exists()).collect();
    assert_eq!(left, [&runs[0], &runs[3]]);
}

#[tokio::test]
async fn a_tenant_that_writes_much_loses_its_own_logs_first() {
    let folder = tempfile::tempdir().unwrap();
    let logs = EventLogs::open(folder.path()).unwrap();
    let globex: TenantId = "globex".parse().unwrap();
    let write = async |tenant: &TenantId, time| {
        let run = RunId::mint(time, [0; 10]);
        let mut writer = logs.create(tenant, &run).unwrap();
        writer.append(0, vec![text(&"x".repeat(1000)), ended()]).await.unwrap();
        (run, writer.progress().borrow().bytes)
    };
    // The oldest of all.
    let (quiet, bytes) = write(&globex, 1).await;
    let mut loud = Vec::new();
    for time in 2..10 {
        loud.push(write(&acme(), time).await.0);
    }
    assert_eq!(logs.trim(3 * bytes, |_| false).unwrap(), 6);
    assert!(logs.path(&globex, &quiet).exists());
    let left: Vec<_> = loud.iter().filter(|run| logs.path(&acme(), run).exists()).collect();
    assert_eq!(left, [&loud[6], &loud[7]]);
    // What is still being written costs nobody else's either, however much it is.
    assert_eq!(logs.trim(bytes, |run| loud.contains(run)).unwrap(), 0);
    assert!(logs.path(&globex, &quiet).exists());
}
