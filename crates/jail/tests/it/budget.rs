//! How long the steps take. Prints a table; the bounds are far above what is measured, to catch a step that sleeps.

use std::time::{Duration, Instant};

use bailey_protocol::limits::Limits;
use tempfile::TempDir;

use crate::harness::Jail;

/// Median and 99th percentile.
fn spread(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |share: usize| *times.get(times.len() * share / 100).unwrap();
    (at(50), at(99))
}

#[test]
fn steps_are_quick() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let lower = data.path().join("lower");
    std::fs::create_dir(&lower).unwrap();
    drop(jail.park());
    let mut rows: [(&str, Vec<Duration>); 6] = [
        ("park", Vec::new()),
        ("claim, no mount", Vec::new()),
        ("claim, one mount", Vec::new()),
        ("claim, other limits", Vec::new()),
        ("stop", Vec::new()),
        ("destroy", Vec::new()),
    ];
    let [park, plain, mounted, limited, stop, destroy] = &mut rows;
    let other = Limits { memory_bytes: 1 << 28, pids: 64, cpu_millis: 500, disk_bytes: 1 << 26, ..Limits::default() };
    for number in 0..90 {
        let start = Instant::now();
        let cage = jail.park();
        park.1.push(start.elapsed());
        let start = Instant::now();
        match number % 3 {
            0 => {
                jail.claim(&cage.sandbox, Limits::default(), &[]);
                plain.1.push(start.elapsed());
            }
            1 => {
                jail.claim(&cage.sandbox, Limits::default(), &[("/data", true, &lower)]);
                mounted.1.push(start.elapsed());
            }
            _ => {
                jail.claim(&cage.sandbox, other, &[]);
                limited.1.push(start.elapsed());
            }
        }
        let start = Instant::now();
        jail.stop(&cage.sandbox);
        stop.1.push(start.elapsed());
        let start = Instant::now();
        jail.destroy(&cage.sandbox);
        destroy.1.push(start.elapsed());
    }
    jail.leave();
    for (name, times) in rows {
        let (median, worst) = spread(times);
        println!("{name:20} p50 {median:?} p99 {worst:?}");
        assert!(median < Duration::from_millis(200), "{name} takes {median:?}");
    }
}
