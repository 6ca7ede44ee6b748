//! Prints what one run of `true` costs on this node, from claim to `Done`, parked and cold.
//!
//! As root: `cargo bench -p bailey-node --bench run -- [RUNS]`, after `make static` and `bailey template prepare`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a program for developers")]

use std::time::Duration;

use bailey_protocol::node::Ending;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[path = "../tests/it/bench.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod bench;
#[path = "../tests/it/fake_wall.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod fake_wall;
#[path = "../tests/it/guest.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod guest;
#[path = "../tests/it/real.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod real;

fn main() {
    // Cargo adds a flag of its own.
    let runs = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(200);
    for (name, parked) in [("parked", 16), ("cold", 0)] {
        let folder = tempfile::tempdir().unwrap();
        let host = real::Host::start(folder.path(), parked);
        let mut times = host.runtime.block_on(measure(&host, runs, parked));
        times.sort_unstable();
        let at = |hundredth: usize| times[(times.len() - 1) * hundredth / 100].as_secs_f64() * 1000.0;
        println!("{name:6} n {:4}  p50 {:7.2} ms  p90 {:7.2} ms  p99 {:7.2} ms", times.len(), at(50), at(90), at(99));
        host.runtime.block_on(host.node.shutdown(Duration::ZERO));
    }
}

async fn measure(host: &real::Host, runs: usize, parked: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(runs);
    while times.len() < runs {
        if parked > 0 {
            bench::eventually("the pool is full", || host.node.parked() == parked).await;
        }
        for _ in 0..parked.clamp(1, 8) {
            let begun = Instant::now();
            let told = bench::run(&host.node, bench::spec(&["true"]), CancellationToken::new()).await;
            times.push(begun.elapsed());
            assert_eq!(told.ending(), Ending::Exited { code: 0 });
            assert_eq!(told.started.unwrap().parked, parked > 0);
        }
    }
    times
}
