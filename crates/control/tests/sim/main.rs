//! Control, node and trees on one thread, with a clock that runs as fast as it can, a store, a database and guests that
//! fail when a seed says so, and processes that die anywhere: the same seed gives the same trace. What has to be true
//! is told by a model that knows nothing but what was asked and answered.
//!
//! `BAILEY_SEED=7 cargo test -p bailey-control --test sim` plays one seed and prints its trace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a test reads its environment and tells")]
#![allow(missing_debug_implementations, unreachable_pub, reason = "nobody outside uses a test's types")]

mod client;
mod db;
mod fate;
#[path = "../../../node/tests/it/guest.rs"]
#[allow(dead_code, reason = "the node's own tests use the rest of it")]
mod guest;
mod held;
mod life;
mod model;
mod seed;
mod store;
mod wall;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fate::Fate;

/// Seeds that have ever failed, one a line.
const KEPT: &str = include_str!("seeds.txt");
/// How many are played; in the long form, and from where on.
const SEEDS: u64 = 10_000;
const LONG_SEEDS: u64 = 100_000;
const LONG_BEGIN: u64 = 1 << 32;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn kept() -> impl Iterator<Item = u64> {
    KEPT.lines().filter_map(|line| line.split('#').next()?.trim().parse().ok())
}

/// What a seed has come to.
struct Outcome {
    trace: Vec<String>,
    faults: Vec<String>,
}

/// Plays a seed. A panic is a fault.
fn play(seed: u64) -> Outcome {
    let fate = Fate::new(seed);
    let faults = catch_unwind(AssertUnwindSafe(|| seed::play(seed, &fate))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        vec![format!("panic: {}", text.unwrap_or_default())]
    });
    Outcome { trace: fate.trace(), faults }
}

/// Plays all of `seeds` on every processor; the first that fails, by number, and how.
fn play_all(seeds: &[u64]) -> Option<(u64, Vec<String>)> {
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().unwrap().get();
    let mut faults: Vec<(u64, Vec<String>)> = std::thread::scope(|scope| {
        let share = || {
            let mut found = None;
            while found.is_none() && !failed.load(Ordering::Relaxed) {
                let at = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
                let Some(seed) = seeds.get(at) else { break };
                let faults = play(*seed).faults;
                if !faults.is_empty() {
                    failed.store(true, Ordering::Relaxed);
                    found = Some((*seed, faults));
                }
            }
            found
        };
        let playing: Vec<_> = (0..threads).map(|_| scope.spawn(share)).collect();
        playing.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    faults.sort();
    faults.into_iter().next()
}

#[test]
fn whatever_fails_nothing_acknowledged_is_lost() {
    if let Some(seed) = number("BAILEY_SEED") {
        let outcome = play(seed);
        outcome.trace.iter().for_each(|line| println!("{line}"));
        assert!(outcome.faults.is_empty(), "seed {seed}: {:#?}", outcome.faults);
        return;
    }
    let (from, count) = if std::env::var_os("BAILEY_LONG").is_some() { (LONG_BEGIN, LONG_SEEDS) } else { (0, SEEDS) };
    let count = number("BAILEY_SEEDS").unwrap_or(count);
    let begun = std::time::Instant::now();
    let seeds: Vec<u64> = kept().chain(from..from + count).collect();
    if let Some((seed, faults)) = play_all(&seeds) {
        panic!(
            "seed {seed} fails: {faults:#?}\nplay it alone: BAILEY_SEED={seed} cargo test -p bailey-control --test sim\n\
             add it to crates/control/tests/sim/seeds.txt"
        );
    }
    println!("{} seeds: {:.1} s", seeds.len(), begun.elapsed().as_secs_f64());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in kept().chain(0..20) {
        let (one, other) = (play(seed).trace, play(seed).trace);
        let differ = one.iter().zip(&other).position(|(one, other)| one != other);
        if let Some(at) = differ {
            let from = at.saturating_sub(8);
            panic!("seed {seed} differs at line {at}: {:#?} and {:?}", &one[from..=at], other[at]);
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
        assert!(!one.is_empty());
    }
}
