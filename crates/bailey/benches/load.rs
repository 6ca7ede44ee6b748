//! Many runs at once: open loops, a thousand at a time, three times too many, beside attackers; and what idle costs.
//!
//! Prints a table and writes `bench/results/load.json`. Needs root and the release binaries (`make bench`).

#![allow(clippy::print_stdout, reason = "the table is this program's output")]

#[path = "run/baseline.rs"]
mod baseline;
#[path = "load/idle.rs"]
mod idle;
#[allow(dead_code, reason = "the other benches use the rest of it")]
#[path = "run/report.rs"]
mod report;
#[allow(dead_code, reason = "the other benches use the rest of it")]
#[path = "run/server.rs"]
mod server;

use std::time::Duration;

use anyhow::{Context, ensure};
use bailey_protocol::node::Ending;
use baseline::Template;
use futures_util::future::try_join_all;
use report::{Goal, Report, Row, Samples};
use serde_json::json;
use server::Server;
use tokio::time::Instant;

const BWRAP: &str = "bwrap --unshare-all, same template";
const PARKED: usize = 8;
/// How long each phase lasts.
const PHASE: Duration = Duration::from_secs(6);
/// How long too much is asked for.
const OVERLOAD: Duration = Duration::from_secs(60);
/// Runs in a row that take no more than twice what one takes alone, until the server counts as well again.
const WELL: usize = 20;

/// What another tenant does meanwhile, as programs for the shell (group R).
const ATTACKS: [(&str, &str); 7] = [
    ("cpu", "for i in 1 2 3 4; do while :; do :; done & done; wait"),
    ("forks", ":(){ :|:& };:; sleep 60"),
    ("memory", "python3 -c 'b=[]\nwhile 1: b.append(bytearray(1<<24))'"),
    ("disk", "while :; do dd if=/dev/zero of=/tmp/x bs=1M 2>/dev/null; done"),
    (
        "inodes",
        "python3 -c 'import os\nn=0\nwhile 1:\n try: os.close(os.open(f\"/tmp/{n}\",os.O_CREAT)); n+=1\n except OSError: pass'",
    ),
    ("output", "yes"),
    (
        "fsync",
        "python3 -c 'import os\nf=os.open(\"/tmp/x\",os.O_CREAT|os.O_RDWR)\nwhile 1: os.pwrite(f,b\"x\",0); os.fsync(f)'",
    ),
];

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    let template = Template::mount().context("mount the template for the baseline")?;
    let mut report = Report::default();
    report.push(idle::memory(&template).await?);
    report.push(idle::start_up().await?);
    let server = Server::start(PARKED).await?;
    for rate in [50, 100, 150] {
        report.push(open_loop(&server, &template, rate).await?);
    }
    for (name, attack) in ATTACKS {
        report.push(neighbour(&server, name, attack).await?);
    }
    server.stop().await?;
    report.push(thousand(&template).await?);
    for row in overload().await? {
        report.push(row);
    }
    print!("{}", report.table());
    report.write("load.json")
}

/// Starts `one` at a steady rate whether or not the earlier ones are over, and times each from when it was due.
async fn steady<F>(phase: Duration, rate: u32, one: impl Fn() -> F) -> anyhow::Result<Vec<(Duration, F::Output)>>
where
    F: Future,
{
    let start = Instant::now();
    let gap = Duration::from_secs(1) / rate;
    let count = phase.as_secs() * u64::from(rate);
    let due = (0..u32::try_from(count)?).map(|number| start + gap * number);
    let all = due.map(|due| {
        let one = &one;
        async move {
            tokio::time::sleep_until(due).await;
            let output = one().await;
            (due.elapsed(), output)
        }
    });
    Ok(futures_util::future::join_all(all).await)
}

async fn open_loop(server: &Server, template: &Template, rate: u32) -> anyhow::Result<Row> {
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    let (order, mut refused) = (body("true"), 0);
    for (time, run) in steady(PHASE, rate, || server.try_run(server.token(), &order)).await? {
        match run? {
            Some(_) => ours.push(time),
            None => refused += 1,
        }
    }
    for (time, run) in steady(PHASE, rate, || template.run(&["true"], None)).await? {
        run?;
        bare.push(time);
    }
    let note = format!("open loop for {} s, timed from when each was due; {refused} refused", PHASE.as_secs());
    Ok(Row::latency(format!("runs of true, {rate} a second"), &ours, BWRAP, &bare, None, note))
}

/// One tenant's runs of `true` one after the other, alone and beside another tenant's attack.
async fn neighbour(server: &Server, name: &str, attack: &str) -> anyhow::Result<Row> {
    let attacker = server.token_of("attacker").await?;
    let alone = one_by_one(server).await?;
    let order = json!({
        "command": ["sh", "-c", attack],
        "limits": { "timeout_ms": 600_000, "memory_bytes": 256 << 20, "disk_bytes": 64 << 20, "output_bytes": 64 << 20 },
    });
    let mut attacks = 0;
    let again = async {
        loop {
            // Some end by themselves, at a limit.
            server.try_run(&attacker, &order).await?;
            attacks += 1;
        }
        #[allow(unreachable_code, reason = "gives the block its type")]
        anyhow::Ok(())
    };
    let beside = tokio::select! {
        broken = again => return broken.map(|()| unreachable!()),
        samples = async { tokio::time::sleep(Duration::from_millis(500)).await; one_by_one(server).await } => samples?,
    };
    let note = format!("p99 against p99 alone just before; the attack ended {attacks} times at a limit");
    let goal = Some(Goal::TailRatioAtMost(1.5));
    Ok(Row::latency(format!("run of true beside: {name}"), &beside, "alone", &alone, goal, note))
}

async fn one_by_one(server: &Server) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    let end = Instant::now() + PHASE;
    while Instant::now() < end {
        let start = Instant::now();
        let run = server.run(&["true"], None).await?;
        ensure!(run.code == 0, "`true` ended with {}", run.code);
        samples.push(start.elapsed());
    }
    Ok(samples)
}

/// A thousand runs that are asked for at one moment and wait in line.
async fn thousand(template: &Template) -> anyhow::Result<Row> {
    const MANY: usize = 1000;
    const AT_ONCE: usize = 64;
    // Of one tenant only so many are listened to at once.
    const TENANTS: usize = 8;
    let settings = format!(
        "parked = {PARKED}\n[limits]\nruns = {AT_ONCE}\nruns_per_tenant = {MANY}\nqueued_per_tenant = {MANY}\nqueued_seconds = 60\n"
    );
    let server = Server::start_on(tempfile::tempdir()?, &settings).await?;
    let mut tokens = Vec::new();
    for number in 0..TENANTS {
        tokens.push(server.token_of(&format!("crowd{number}")).await?);
    }
    let order = body("true");
    let start = Instant::now();
    let each = tokens.iter().cycle().take(MANY).map(|token| {
        let order = &order;
        let server = &server;
        async move { server.try_run(token, order).await.map(|run| (run, start.elapsed())) }
    });
    let runs = try_join_all(each).await?;
    let ours = start.elapsed();
    let mut waits = Samples::default();
    for (run, time) in runs {
        if matches!(run, Some((Ending::Exited { code: 0 }, _))) {
            waits.push(time);
        }
    }
    let done = waits.len();
    server.stop().await?;
    ensure!(done == MANY, "{done} of {MANY} runs succeeded");
    let room = tokio::sync::Semaphore::new(AT_ONCE);
    let start = Instant::now();
    try_join_all((0..MANY).map(|_| async {
        let _turn = room.acquire().await?;
        template.run(&["true"], None).await
    }))
    .await?;
    let bare = start.elapsed();
    let rate = |time: Duration| 1000.0 / time.as_secs_f64();
    let wait = (waits.median().as_secs_f64() * 1e3, waits.tail().as_secs_f64() * 1e3);
    let note = format!(
        "all asked for at once by {TENANTS} tenants, {AT_ONCE} going at a time, none refused; a caller waited {:.0} ms p50, {:.0} p99",
        wait.0, wait.1
    );
    Ok(Row::rate("1,000 runs of true at once".to_owned(), (MANY, rate(ours)), BWRAP, (MANY, rate(bare)), None, note))
}

/// Three times what the server can do, from four tenants: what it still does, how soon it refuses, when it is well again.
async fn overload() -> anyhow::Result<[Row; 3]> {
    let settings = format!("parked = {PARKED}\n[limits]\nruns = 16\nqueued_per_tenant = 16\nqueued_seconds = 2\n");
    let server = Server::start_on(tempfile::tempdir()?, &settings).await?;
    let order = body("true");
    let alone = one_by_one(&server).await?;
    // The most that any number of callers gets out of it.
    let mut capacity = 0.0_f64;
    for callers in [4, 8, 16] {
        let (done, end) = (std::cell::Cell::new(0_u32), Instant::now() + PHASE);
        try_join_all((0..callers).map(|_| async {
            while Instant::now() < end {
                server.run(&["true"], None).await?;
                done.set(done.get() + 1);
            }
            anyhow::Ok(())
        }))
        .await?;
        capacity = capacity.max(f64::from(done.get()) / PHASE.as_secs_f64());
    }
    let mut tokens = Vec::new();
    for number in 0..4 {
        tokens.push(server.token_of(&format!("crowd{number}")).await?);
    }
    let turn = std::cell::Cell::new(0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate of some hundreds")]
    let rate = (capacity * 3.0) as u32;
    let start = Instant::now();
    let answers = steady(OVERLOAD, rate, || {
        turn.set(turn.get() + 1);
        let token = tokens.get(turn.get() % tokens.len()).map_or("", String::as_str);
        server.try_run(token, &order)
    })
    .await?;
    let seconds = start.elapsed().as_secs_f64();
    // From when the last was due, whatever is still to be answered then.
    let after = start + OVERLOAD;
    let (mut done, mut refusals) = (0_u32, Samples::default());
    for (time, answer) in answers {
        match answer? {
            Some(_) => done += 1,
            None => refusals.push(time),
        }
    }
    let mut well = (0, after.elapsed());
    while well.0 < WELL {
        let (start, so_far) = (Instant::now(), after.elapsed());
        server.run(&["true"], None).await?;
        let quick = start.elapsed() <= alone.median() * 2;
        well = match (quick, well.0) {
            (false, _) => (0, so_far),
            (true, 0) => (1, so_far),
            (true, runs) => (runs + 1, well.1),
        };
        ensure!(after.elapsed() < Duration::from_secs(60), "the server did not get well again");
    }
    let normal = well.1;
    server.stop().await?;
    let goodput = f64::from(done) / seconds;
    let count = usize::try_from(done)?;
    let refused = refusals.len();
    let note = format!("{rate} runs a second offered for {} s, {refused} refused", OVERLOAD.as_secs());
    let goal = Some(Goal::RatioAtLeast(0.8));
    let name = "goodput at three times the capacity".to_owned();
    let goodput = Row::figure(
        name,
        "1/s",
        (count, goodput),
        "the most of 4, 8 and 16 callers in a closed loop",
        capacity,
        goal,
        note,
    );
    let note = "timed from when the run was due".to_owned();
    let name = "refusal under overload".to_owned();
    let refusal = Row::latency(name, &refusals, "a run of true, alone", &alone, Some(Goal::TailAtMost(20.0)), note);
    let (time, one) = (normal.as_secs_f64() * 1e3, alone.median().as_secs_f64() * 1e3);
    let note =
        format!("from when the last was due, until {WELL} runs in a row take at most twice what one takes alone");
    let goal = Some(Goal::AtMost(5000.0));
    let name = "time to normal after overload".to_owned();
    Ok([goodput, refusal, Row::figure(name, "ms", (1, time), "a run of true, alone", one, goal, note)])
}

fn body(program: &str) -> serde_json::Value {
    json!({ "command": [program] })
}
