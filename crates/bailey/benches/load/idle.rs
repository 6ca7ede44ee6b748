//! What the server takes while nothing happens.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::baseline::Template;
use super::report::{Goal, Row, Samples};
use super::server::Server;
use super::{BWRAP, body};

/// Sandboxes that wait.
const WAITING: usize = 64;
const PAST_RUNS: usize = 10_000;
const KIB: f64 = 1024.0;

/// Memory of one parked sandbox, the server's and the kernel's share included.
pub(super) async fn memory(template: &Template) -> anyhow::Result<Row> {
    let server = Server::start(0).await?;
    let none = settled(&server).await?;
    server.stop().await?;
    let server = Server::start(WAITING).await?;
    wait_for(&server, WAITING).await?;
    let parked = settled(&server).await?;
    server.stop().await?;

    let before = available()?;
    let mut sleepers = Vec::new();
    for _ in 0..WAITING {
        let mut one = template.command();
        one.args(["sh", "-c", "echo; exec sleep 3600"]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut one = one.spawn().context("start bwrap")?;
        let mut ready = [0];
        let out = one.stdout.as_mut().context("bwrap has no output")?;
        tokio::io::AsyncReadExt::read_exact(out, &mut ready).await.context("wait for bwrap")?;
        sleepers.push(one);
    }
    let bare = before - available()?;
    drop(sleepers);
    #[expect(clippy::cast_precision_loss, reason = "64")]
    let each = |kib: f64| kib / KIB / WAITING as f64;
    let (all, pss) = (each(none.available - parked.available), each(parked.proportional - none.proportional));
    let note = format!("by the host's available memory; proportional memory of the processes alone: {pss:.2} MiB");
    let goal = Some(Goal::AtMost(8.0));
    Ok(Row::figure("memory of a parked sandbox".to_owned(), "MiB", (WAITING, all), BWRAP, each(bare), goal, note))
}

/// KiB of the host that are available, and KiB that the server's processes have, shared ones in proportion.
struct Use {
    available: f64,
    proportional: f64,
}

async fn settled(server: &Server) -> anyhow::Result<Use> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pids = descendants(server.pid().context("the server is gone")?)?;
    let each = pids.iter().map(|pid| kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:"));
    Ok(Use { available: available()?, proportional: each.sum::<anyhow::Result<f64>>()? })
}

async fn wait_for(server: &Server, sandboxes: usize) -> anyhow::Result<()> {
    let pid = server.pid().context("the server is gone")?;
    let end = Instant::now() + Duration::from_secs(60);
    // The server itself and its jail are among them.
    while descendants(pid)?.len() < sandboxes + 2 {
        ensure!(Instant::now() < end, "the sandboxes were not parked");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn descendants(pid: u32) -> anyhow::Result<Vec<u32>> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        let path = format!("/proc/{pid}/task/{pid}/children");
        // Some come and go while the server starts.
        let list = match std::fs::read_to_string(&path) {
            Err(error) if gone(&error) => String::new(),
            list => list.with_context(|| format!("read {path}"))?,
        };
        all.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        at += 1;
    }
    Ok(all)
}

fn gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn available() -> anyhow::Result<f64> {
    kib("/proc/meminfo", "MemAvailable:")
}

fn kib(path: &str, name: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("{path} has no {name}"))?;
    line.trim().trim_end_matches(" kB").parse().with_context(|| format!("read {name} of {path}"))
}

/// From the process's start to the first answer, with ten thousand past runs against none.
pub(super) async fn start_up() -> anyhow::Result<Row> {
    const TURNS: usize = 5;
    let settings = "parked = 8\n";
    let server = Server::start_on(tempfile::tempdir()?, settings).await?;
    let left = std::cell::Cell::new(PAST_RUNS);
    try_join_all((0..16).map(|_| async {
        while left.get() > 0 {
            left.set(left.get() - 1);
            server.try_run(server.token(), &body("true")).await?.context("a run was refused")?;
        }
        anyhow::Ok(())
    }))
    .await?;
    let mut data = server.stop().await?;
    let (mut full, mut fresh) = (Samples::default(), Samples::default());
    for _ in 0..TURNS {
        let start = Instant::now();
        let server = Server::start_on(tempfile::tempdir()?, settings).await?;
        fresh.push(start.elapsed());
        server.stop().await?;
        let start = Instant::now();
        let server = Server::start_on(data, settings).await?;
        full.push(start.elapsed());
        data = server.stop().await?;
    }
    let note = "with the making of one token in both".to_owned();
    Ok(Row::latency("start with 10,000 past runs".to_owned(), &full, "with none", &fresh, None, note))
}
