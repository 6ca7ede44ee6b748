//! Guards on the numbers of SPECIFICATION. They run on debug builds and busy machines, so each allows several times
//! what `make bench` holds a release build to: they catch what makes a run slow by kind, not by degree.

use std::time::Duration;

use tokio::time::Instant;

#[path = "../../benches/run/baseline.rs"]
mod baseline;
#[allow(dead_code, reason = "the benches use the rest of it")]
#[path = "../../benches/run/server.rs"]
mod measured;

use baseline::Template;
use measured::Server;

const PAIRS: usize = 40;

/// The middle one of our times divided by the middle one of the baseline's, taken in turns.
fn ratio(parked: usize, command: &[&str]) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let template = Template::mount().unwrap();
        let server = Server::start(parked).await.unwrap();
        let (mut ours, mut bare, mut claimed) = (Vec::new(), Vec::new(), 0);
        for _ in 0..PAIRS {
            let start = Instant::now();
            template.run(command, None).await.unwrap();
            bare.push(start.elapsed());
            let start = Instant::now();
            let run = server.run(command, None).await.unwrap();
            ours.push(start.elapsed());
            assert_eq!(run.code, 0);
            claimed += usize::from(run.parked);
        }
        assert_eq!(claimed > 0, parked > 0, "{claimed} runs claimed a parked sandbox of {parked}");
        server.stop().await.unwrap();
        middle(ours).as_secs_f64() / middle(bare).as_secs_f64()
    })
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_parked_run_of_true_stays_within_its_budget() {
    let ratio = ratio(4, &["true"]);
    assert!(ratio <= 8.0, "{ratio:.1} times a bare bwrap");
}

#[test]
fn a_cold_run_of_true_stays_within_its_budget() {
    let ratio = ratio(0, &["true"]);
    assert!(ratio <= 24.0, "{ratio:.1} times a bare bwrap");
}

#[test]
fn a_run_on_a_large_disk_stays_within_its_budget() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ratio = runtime.block_on(async {
        let server = Server::start_on(tempfile::tempdir().unwrap(), measured::LARGE_DISKS).await.unwrap();
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            for (times, disk) in [(&mut small, 1 << 27), (&mut large, 1 << 30)] {
                let start = Instant::now();
                server.run_on(disk).await.unwrap();
                times.push(start.elapsed());
            }
        }
        server.stop().await.unwrap();
        middle(large).as_secs_f64() / middle(small).as_secs_f64()
    });
    assert!(ratio <= 6.0, "{ratio:.1} times a run with its disk in memory");
}

#[test]
fn a_parked_run_of_python_stays_within_its_budget() {
    let ratio = ratio(4, &["python3", "-c", "1"]);
    assert!(ratio <= 6.0, "{ratio:.1} times a bare bwrap");
}
