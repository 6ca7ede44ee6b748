//! Parked sandboxes: ahead of need, once each, never a dead one.

use std::collections::HashSet;
use std::time::Duration;

use bailey_protocol::node::{Ending, NodeFaultKind};

use crate::bench::{Bench, eventually, spec};
use crate::fake_wall::{Behaviour, FakeWall};
use crate::guest::{Step, exited, honest};

fn wall(behaviour: Behaviour) -> std::sync::Arc<FakeWall> {
    FakeWall::new(honest(vec![Step::Say(exited(0))]), behaviour)
}

#[tokio::test]
async fn t06_parked_sandboxes_serve_one_run_each_and_are_made_anew() {
    let bench = Bench::new(wall(Behaviour::default()), 4);
    for _ in 0..20 {
        eventually("a sandbox is parked", || bench.node.parked() > 0).await;
        let told = bench.run(spec(&["true"])).await;
        assert_eq!(told.ending(), Ending::Exited { code: 0 });
        assert!(told.started.unwrap().parked);
    }
    let used: Vec<_> = bench.wall.orders().into_iter().map(|(sandbox, _)| sandbox).collect();
    assert_eq!(used.len(), 20);
    assert_eq!(used.iter().collect::<HashSet<_>>().len(), 20, "a sandbox was used twice");
    eventually("the pool is full again", || bench.node.parked() == 4).await;
    eventually("used sandboxes are destroyed", || bench.wall.alive() == 4).await;
    let destroyed: HashSet<_> = bench.wall.destroyed().into_iter().collect();
    assert_eq!(destroyed, used.into_iter().collect());
    bench.node.shutdown(Duration::ZERO).await;
    assert_eq!(bench.wall.alive(), 0);
}

#[tokio::test]
async fn a_burst_larger_than_the_pool_starts_cold() {
    let bench = Bench::new(wall(Behaviour::default()), 2);
    eventually("the pool is full", || bench.node.parked() == 2).await;
    let runs = (0..8).map(|_| bench.run(spec(&["true"])));
    let told = futures_util::future::join_all(runs).await;
    let parked = told.iter().filter(|told| told.started.as_ref().unwrap().parked).count();
    assert!((2..8).contains(&parked), "{parked} of 8 were parked");
}

#[tokio::test]
async fn r05_runs_on_large_disks_start_cold_and_wait_for_one_in_turn() {
    let bench = Bench::new(wall(Behaviour { park_takes: Duration::from_millis(5), ..Behaviour::default() }), 2);
    eventually("the pool is full", || bench.node.parked() == 2).await;
    let large = || {
        let mut spec = spec(&["true"]);
        (spec.limits.disk_bytes, spec.limits.disk_inodes) = (1 << 30, 10_000);
        spec
    };
    let told = futures_util::future::join_all((0..6).map(|_| bench.run(large()))).await;
    for told in told {
        assert_eq!(told.ending(), Ending::Exited { code: 0 });
        assert!(!told.started.unwrap().parked);
    }
    assert_eq!(bench.wall.most_large(), 2);
    for greedy in [(1 << 31, 10_000), (1 << 30, 10_001)] {
        let mut spec = large();
        (spec.limits.disk_bytes, spec.limits.disk_inodes) = greedy;
        assert_eq!(bench.run(spec).await.fault.unwrap().kind, NodeFaultKind::Invalid, "{greedy:?}");
    }
    assert_eq!(bench.node.parked(), 2, "those with their disk in memory are of no use");
}

#[tokio::test]
async fn without_a_pool_every_run_starts_cold() {
    let bench = Bench::new(wall(Behaviour::default()), 0);
    for _ in 0..3 {
        assert!(!bench.run(spec(&["true"])).await.started.unwrap().parked);
    }
    assert_eq!(bench.wall.parks(), 3);
    bench.empty().await;
}

#[tokio::test]
async fn a_parked_sandbox_that_died_is_never_handed_out() {
    let bench = Bench::new(wall(Behaviour::default()), 3);
    eventually("the pool is full", || bench.node.parked() == 3).await;
    bench.wall.kill_all();
    let told = bench.run(spec(&["true"])).await;
    assert_eq!(told.ending(), Ending::Exited { code: 0 });
}

#[tokio::test]
async fn a_sandbox_whose_agent_stays_silent_is_destroyed_and_not_parked() {
    let silent: crate::guest::Script = std::sync::Arc::new(|_, _| vec![Step::Hang]);
    let bench = Bench::new(FakeWall::new(silent, Behaviour::default()), 2);
    eventually("a silent sandbox is destroyed", || !bench.wall.destroyed().is_empty()).await;
    assert_eq!(bench.node.parked(), 0);
    bench.node.shutdown(Duration::ZERO).await;
    assert_eq!(bench.wall.alive(), 0);
}

#[tokio::test]
async fn a_shutdown_in_the_middle_of_parking_leaves_nothing() {
    let bench = Bench::new(wall(Behaviour { park_takes: Duration::from_millis(100), ..Behaviour::default() }), 4);
    tokio::time::sleep(Duration::from_millis(30)).await;
    bench.node.shutdown(Duration::ZERO).await;
    assert_eq!(bench.wall.alive(), 0);
}
