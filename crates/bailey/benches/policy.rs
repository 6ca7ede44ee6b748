//! What one authorization costs, as every operation makes it: from a caller and a path to a permit, with what is noted of
//! the tenant, its labels and its own policies, against Cedar alone, which is given the same policies, and the entities
//! and the request ready-made. 10,000 tenants, 100 policies of the operator's.
//!
//! Prints a table and writes `bench/results/policy.json`. `cargo bench -p bailey --bench policy`; needs no root.

#![allow(clippy::print_stdout, reason = "the table is this program's output")]

#[path = "policy/bare.rs"]
mod bare;
#[path = "policy/world.rs"]
mod world;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bailey_control::control::Caller;
use bailey_policy::ReadAction;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use serde_json::json;
use tokio::time::Instant;

use bare::Bare;
use world::{TENANTS, World};

/// Decisions of each side, in turns, so that both see the same noise.
const TURNS: usize = 50_000;
const WARM_UP: usize = 2_000;
/// The p50 that a decision has to stay within, in microseconds.
const GOAL: f64 = 30.0;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (callers, bare) = (world.callers()?, Bare::of_some_tenants()?);
    let main = Revision::Branch(BranchName::main());
    // The first pass is everybody's first, and after it all are at hand: the cache holds them, as the memory shows.
    let before = resident()?;
    let mut cold = measure(&world, &callers, &main, &bare, TENANTS, 0).await?;
    let held = resident()?.saturating_sub(before);
    let mut warm = measure(&world, &callers, &main, &bare, TURNS, WARM_UP).await?;
    println!(
        "{:<44} {:>8} {:>8}   {:<24} {:>8} {:>8} {:>6}",
        "one authorization, µs", "p50", "p99", "baseline", "p50", "p99", "ratio"
    );
    let rows = [
        row("tenant's policies at hand", &mut warm, Some(GOAL)),
        row("tenant's first: read, parsed, validated", &mut cold, None),
        memory(held),
    ];
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/policy.json");
    std::fs::write(&file, format!("{:#}\n", json!(rows))).with_context(|| format!("write {}", file.display()))
}

/// Times of one side each, sorted once they are read.
struct Times {
    ours: Vec<Duration>,
    bare: Vec<Duration>,
}

async fn measure(
    world: &World,
    callers: &[(Caller, TreePath)],
    main: &Revision,
    bare: &Bare,
    turns: usize,
    warm_up: usize,
) -> anyhow::Result<Times> {
    let mut times = Times { ours: Vec::with_capacity(turns), bare: Vec::with_capacity(turns) };
    for turn in 0..warm_up + turns {
        // A step without a common divisor: neighbours in time are no neighbours in memory.
        let (caller, path) = callers.get(turn * 7_919 % callers.len()).context("a caller")?;
        let start = Instant::now();
        let bare_allows = bare.allows(turn);
        let bare_time = start.elapsed();
        let start = Instant::now();
        let permit = world.control.may_read(black_box(caller), ReadAction::Read, path, main).await;
        let our_time = start.elapsed();
        let permit = permit.map_err(|error| anyhow!(error.cause_chain()))?;
        ensure!(bare_allows && permit.grant().tenant() == &caller.principal.tenant, "a decision failed");
        if turn >= warm_up {
            times.ours.push(our_time);
            times.bare.push(bare_time);
        }
    }
    Ok(times)
}

fn row(name: &str, times: &mut Times, goal: Option<f64>) -> serde_json::Value {
    times.ours.sort_unstable();
    times.bare.sort_unstable();
    let [p50, p99] = [50, 99].map(|hundredths| percentile(&times.ours, hundredths));
    let [bare_p50, bare_p99] = [50, 99].map(|hundredths| percentile(&times.bare, hundredths));
    let (baseline, ratio) = ("Cedar's is_authorized", p50 / bare_p50);
    println!("{name:<44} {p50:>8.1} {p99:>8.1}   {baseline:<24} {bare_p50:>8.1} {bare_p99:>8.1} {ratio:>6.2}");
    json!({
        "name": format!("one authorization, {name}"), "unit": "µs", "n": times.ours.len(), "p50": p50, "p99": p99,
        "baseline": baseline, "baseline_p50": bare_p50, "baseline_p99": bare_p99, "ratio": ratio,
        "goal": goal.map(|goal| format!("p50 <= {goal} µs")), "met": goal.map(|goal| p50 <= goal),
    })
}

/// What it takes to have every tenant's policies at hand, as far as the process grew with its first decisions.
fn memory(held: usize) -> serde_json::Value {
    let (name, mib) = (format!("memory of {TENANTS} tenants' policies at hand, half of them with three"), held >> 20);
    println!("{name}: {mib} MiB");
    json!({ "name": name, "unit": "MiB", "n": TENANTS, "p50": mib, "baseline": null, "goal": null, "met": null })
}

/// The value below which `hundredths` of the sorted samples lie, in microseconds.
fn percentile(sorted: &[Duration], hundredths: usize) -> f64 {
    let place = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
    sorted.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Bytes of memory that this process has.
fn resident() -> anyhow::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse().context("a number")?;
    Ok(kib << 10)
}
