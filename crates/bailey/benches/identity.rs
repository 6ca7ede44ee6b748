//! What it costs to know who asks: a credential to its principal, disabled users and revoked keys checked, against the
//! bare signature check of the same bytes in the same loop.
//!
//! Prints a table and writes `bench/results/identity.json`.

#![allow(clippy::print_stdout, reason = "the table is this program's output")]

#[path = "identity/signer.rs"]
mod signer;
#[path = "identity/world.rs"]
mod world;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bailey_control::auth::Identity;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use signer::Signer;
use tokio::time::Instant;
use world::World;

/// Pairs of one check and one baseline, taken in turns so that both see the same noise.
const PAIRS: usize = 20_000;
const WARM_UP: usize = 2_000;

struct Case {
    name: &'static str,
    credential: String,
    baseline: &'static str,
    bare: Box<dyn Fn() -> bool>,
}

struct Row {
    name: &'static str,
    baseline: &'static str,
    ours: Vec<Duration>,
    bare: Vec<Duration>,
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> anyhow::Result<()> {
    let signers = [Signer::p256("e1")?, Signer::rsa("r1")?];
    let world = World::start(&signers).await?;
    let mut cases = vec![Case {
        name: "EdDSA, the embedded issuer",
        credential: world.embedded.clone(),
        baseline: "bare Ed25519 check",
        bare: world.bare_embedded()?,
    }];
    for signer in signers {
        let token = signer.token(&world.claims())?;
        let (name, baseline) = signer.names();
        let bare = signer.bare(&token)?;
        cases.push(Case { name, credential: token, baseline, bare });
    }
    let key = world.key.clone();
    let bare = Box::new(move || !black_box(Sha256::digest(black_box(key.as_bytes()))).is_empty());
    cases.push(Case { name: "API key", credential: world.key.clone(), baseline: "bare SHA-256", bare });
    let mut rows = Vec::new();
    for case in cases {
        rows.push(measure(&world, case).await?);
    }
    report(&rows)
}

async fn measure(world: &World, case: Case) -> anyhow::Result<Row> {
    let (mut ours, mut bare) = (Vec::with_capacity(PAIRS), Vec::with_capacity(PAIRS));
    // The first check of an issuer's token may wait for its keys.
    world.control.identify(&case.credential).await.map_err(|error| anyhow::anyhow!(error.cause_chain()))?;
    for turn in 0..WARM_UP + PAIRS {
        let start = Instant::now();
        let good = (case.bare)();
        let bare_time = start.elapsed();
        let start = Instant::now();
        let who = world.control.identify(black_box(&case.credential)).await;
        let our_time = start.elapsed();
        ensure!(good && matches!(who, Ok(Identity::User(_))), "{}: a check failed", case.name);
        if turn >= WARM_UP {
            ours.push(our_time);
            bare.push(bare_time);
        }
    }
    ours.sort_unstable();
    bare.sort_unstable();
    Ok(Row { name: case.name, baseline: case.baseline, ours, bare })
}

/// The value below which `hundredths` of the sorted samples lie, in microseconds.
fn percentile(sorted: &[Duration], hundredths: usize) -> f64 {
    let place = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
    sorted.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

fn report(rows: &[Row]) -> anyhow::Result<()> {
    println!(
        "{:<28} {:>8} {:>8}   {:<22} {:>8} {:>8} {:>6}",
        "credential, µs", "p50", "p99", "baseline", "p50", "p99", "ratio"
    );
    let mut out = Vec::new();
    for row in rows {
        let [p50, p99] = [50, 99].map(|hundredths| percentile(&row.ours, hundredths));
        let [bare_p50, bare_p99] = [50, 99].map(|hundredths| percentile(&row.bare, hundredths));
        let ratio = p50 / bare_p50;
        println!(
            "{:<28} {p50:>8.1} {p99:>8.1}   {:<22} {bare_p50:>8.1} {bare_p99:>8.1} {ratio:>6.2}",
            row.name, row.baseline
        );
        out.push(json!({
            "name": row.name, "unit": "µs", "n": PAIRS, "p50": p50, "p99": p99, "baseline": row.baseline,
            "baseline_p50": bare_p50, "baseline_p99": bare_p99, "ratio": ratio,
        }));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/identity.json");
    std::fs::write(&file, format!("{:#}\n", json!(out))).with_context(|| format!("write {}", file.display()))
}
