//! What a run costs over HTTP, against a bare bubblewrap of the same template in the same loop.
//!
//! Prints a table and writes `bench/results/latest.json`. Needs root and the release binaries (`make bench`).

#![allow(clippy::print_stdout, reason = "the table is this program's output")]

#[path = "run/baseline.rs"]
mod baseline;
#[allow(dead_code, reason = "the other benches use the rest of it")]
#[path = "run/report.rs"]
mod report;
#[allow(dead_code, reason = "the other benches use the rest of it")]
#[path = "run/server.rs"]
mod server;

use anyhow::{Context, ensure};
use baseline::Template;
use report::{Goal, Report, Row, Samples};
use server::{LARGE_DISKS, Server};
use tokio::time::Instant;

/// Pairs of one run and one baseline, taken in turns so that both see the same noise.
const PAIRS: usize = 200;
const WARM_UP: usize = 20;
const PARKED: usize = 8;
const CONCURRENCY: usize = 8;
const SUSTAINED_SECONDS: u64 = 10;

/// Files of the folder that some cases mount.
const FILES: usize = 10_000;
/// Where they do.
const AT: &str = "/mnt";

struct Case {
    name: &'static str,
    command: &'static [&'static str],
    /// Whether the folder is mounted.
    mounts: bool,
    goal: Option<f64>,
}

const CASES: [Case; 4] = [
    Case { name: "run of true", command: &["true"], mounts: false, goal: Some(2.0) },
    Case { name: "run of python3 -c 1", command: &["python3", "-c", "1"], mounts: false, goal: Some(1.5) },
    Case { name: "run of true, 10,000 files mounted", command: &["true"], mounts: true, goal: None },
    Case {
        name: "one change among 10,000 files",
        command: &["bash", "-c", "echo $$ $RANDOM $EPOCHREALTIME >/mnt/d0/changed"],
        mounts: true,
        goal: None,
    },
];

/// The folder as plain files, and as an archive.
fn folder() -> anyhow::Result<(tempfile::TempDir, Vec<u8>)> {
    let plain = tempfile::tempdir()?;
    let mut tar = bailey_tree::archive::TarWriter::new(Vec::new(), 0);
    for number in 0..FILES {
        let (folder, content) = (format!("d{}", number % 100), format!("file {number}\n"));
        let name = format!("{folder}/f{number}");
        std::fs::create_dir_all(plain.path().join(folder))?;
        std::fs::write(plain.path().join(&name), &content)?;
        tar.file(name.as_bytes(), false, content.len() as u64, &mut content.as_bytes())?;
    }
    Ok((plain, tar.finish()?))
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    let template = Template::mount().context("mount the template for the baseline")?;
    let (plain, archive) = folder().context("make the files that are mounted")?;
    let mut report = Report::default();
    for (kind, parked) in [("parked", PARKED), ("cold", 0)] {
        let server = Server::start(parked).await?;
        server.extract("files", archive.clone()).await?;
        for case in &CASES {
            report.push(latency(&server, &template, plain.path(), case, kind).await?);
        }
        report.push(sustained(&server, &template, kind).await?);
        server.stop().await?;
    }
    report.push(large_disk().await?);
    print!("{}", report.table());
    report.write("latest.json")
}

async fn latency(
    server: &Server,
    template: &Template,
    plain: &std::path::Path,
    case: &Case,
    kind: &str,
) -> anyhow::Result<Row> {
    let (mount, bind) = if case.mounts { (Some(("files", AT)), Some((plain, AT))) } else { (None, None) };
    let mut ours = Samples::default();
    let mut bare = Samples::default();
    let mut claimed = 0;
    for turn in 0..WARM_UP + PAIRS {
        let start = Instant::now();
        template.run(case.command, bind).await?;
        let bare_time = start.elapsed();
        let start = Instant::now();
        let run = server.run(case.command, mount).await?;
        let our_time = start.elapsed();
        ensure!(run.code == 0, "`{}` ended with {}", case.command.join(" "), run.code);
        if turn >= WARM_UP {
            claimed += usize::from(run.parked);
            ours.push(our_time);
            bare.push(bare_time);
        }
    }
    let note = format!("{claimed} of {PAIRS} claimed a parked sandbox");
    let goal = case.goal.filter(|_| kind == "parked").map(Goal::RatioAtMost);
    Ok(Row::latency(format!("{}, {kind}", case.name), &ours, "bwrap --unshare-all, same template", &bare, goal, note))
}

/// A run on a disk that does not fit in memory, against one of the same kind whose disk does.
async fn large_disk() -> anyhow::Result<Row> {
    let server = Server::start_on(tempfile::tempdir()?, LARGE_DISKS).await?;
    let (mut large, mut small) = (Samples::default(), Samples::default());
    for turn in 0..WARM_UP + PAIRS {
        for (samples, disk) in [(&mut small, 1_u64 << 27), (&mut large, 1 << 30)] {
            let start = Instant::now();
            server.run_on(disk).await?;
            if turn >= WARM_UP {
                samples.push(start.elapsed());
            }
        }
    }
    server.stop().await?;
    let note = "a disk of 1 GiB; the baseline's 128 MiB are in memory".to_owned();
    Ok(Row::latency("run of true on a large disk".to_owned(), &large, "the same, in memory, cold", &small, None, note))
}

/// Runs of `true` per second with a fixed number of callers that each wait for their answer.
async fn sustained(server: &Server, template: &Template, kind: &str) -> anyhow::Result<Row> {
    let ours = rate(|| async { server.run(&["true"], None).await.map(|run| run.code == 0) }).await?;
    let bare = rate(|| async { template.run(&["true"], None).await.map(|()| true) }).await?;
    let goal = (kind == "parked").then_some(Goal::RateAtLeast(150.0));
    let note = format!("{CONCURRENCY} callers in a closed loop for {SUSTAINED_SECONDS} s");
    Ok(Row::rate(
        format!("sustained runs of true, {kind}"),
        ours,
        "bwrap --unshare-all, same template",
        bare,
        goal,
        note,
    ))
}

async fn rate<F>(one: impl Fn() -> F) -> anyhow::Result<(usize, f64)>
where
    F: Future<Output = anyhow::Result<bool>>,
{
    let start = Instant::now();
    let end = start + std::time::Duration::from_secs(SUSTAINED_SECONDS);
    let callers = (0..CONCURRENCY).map(|_| async {
        let mut done = 0;
        while Instant::now() < end {
            ensure!(one().await?, "a run failed under load");
            done += 1;
        }
        Ok(done)
    });
    let done: usize = futures_util::future::try_join_all(callers).await?.into_iter().sum();
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a count of runs in ten seconds is far below 2^52")]
    let rate = done as f64 / seconds;
    Ok((done, rate))
}
