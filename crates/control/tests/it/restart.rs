//! The end of one life of the server, and the start of the next.

use bailey_control::node_link::StartRun;
use bailey_protocol::api::{RunAccepted, RunEventKind, RunStatus, RunSummary, WriteAnswer};
use bailey_protocol::audit::AuditPage;
use bailey_protocol::node::{Ending, RunUpdate};
use http::Method;
use serde_json::json;

use crate::node::{output, started, stopped, until_cancelled};
use crate::world::World;

#[tokio::test]
async fn what_was_running_at_a_crash_ends_as_node_restarted() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let version = ana.put("/v1/tree/tenants/acme/x", "kept").await.ok().json::<WriteAnswer>().version;
    let over = ana.run(json!({"command": ["true"]})).await;
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
        order.updates.send(output("so far\n")).await.unwrap();
        order.cancel.cancelled().await;
    });
    let asking = ana.ask(Method::POST, "/v1/runs").header("idempotency-key", "k");
    let answer = asking.body(json!({"command": ["sleep", "9"]}).to_string()).begin().await;
    let run = answer.headers()["bailey-run"].to_str().unwrap().to_owned();
    // Until its output is in the log.
    let mut body = answer.into_body();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("so far") {
        use http_body_util::BodyExt;
        seen.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    let world = World::on(world.crash().await).await;
    let ana = world.client("acme", "ana");
    let events = ana.get(&format!("/v1/runs/{run}/events")).await.events();
    assert_eq!(events.len(), 3);
    assert!(matches!(&events[2].kind, RunEventKind::Ended(result) if result.ending == Ending::NodeRestarted));
    let summary: RunSummary = ana.get(&format!("/v1/runs/{run}")).await.json();
    assert_eq!((summary.status, summary.ending), (RunStatus::Ended, Some(Ending::NodeRestarted)));
    let rows: AuditPage =
        world.admin("acme", "boss").get(&format!("/v1/audit?run={run}&action=run_end")).await.ok().json();
    let rows: Vec<_> = rows.records.iter().map(|one| (one.user.as_deref(), one.row.outcome.as_str())).collect();
    assert_eq!(rows, [(Some("bailey"), "node_restarted")]);
    // What was acknowledged is there.
    let read = ana.get("/v1/tree/tenants/acme/x").await.ok();
    assert_eq!((read.body.as_ref(), read.header("bailey-version")), (b"kept".as_slice(), version.as_str()));
    let replay = ana.get(&format!("/v1/runs/{}/events", over.header("bailey-run"))).await;
    assert_eq!(replay.body, over.body);
    // A retry of the lost request is answered with the run that was, and starts nothing.
    let asking = ana.ask(Method::POST, "/v1/runs").header("idempotency-key", "k");
    let again = asking.body(json!({"command": ["sleep", "9"]}).to_string()).answer().await;
    assert_eq!(again.header("bailey-run"), run);
    assert!(world.node.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_was_unfinished_at_a_crash_goes_before_anybody_comes() {
    let world = World::new().await;
    world.client("acme", "ana").put("/v1/tree/tenants/acme/x", "kept").await.ok();
    let folder = world.crash().await;
    let packs = folder.path().join("trees/acme/tenant.git/objects/pack");
    let logs = folder.path().join("runs/acme");
    std::fs::create_dir_all(&logs).unwrap();
    let left = [
        packs.join("tmp_1_1"),
        packs.join(format!("pack-{}.pack", "1".repeat(40))),
        logs.join("run_01m8qq24mnc1m0qszca60jgxsa.ndjson"),
    ];
    for file in &left {
        std::fs::write(file, "").unwrap();
    }
    let world = World::on(folder).await;
    while left.iter().any(|file| file.exists()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.client("acme", "ana").get("/v1/tree/tenants/acme/x").await.ok().body.as_ref(), b"kept");
}

#[tokio::test]
async fn a_log_that_lost_its_end_is_completed_from_the_database() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let answer = ana.run(json!({"command": ["true"]})).await;
    let run = answer.header("bailey-run").to_owned();
    let log = world.folder.path().join(format!("runs/acme/{run}.ndjson"));
    let whole = std::fs::read(&log).unwrap();
    for keep in [0, 10, whole.len() - 1] {
        std::fs::write(&log, &whole[..keep]).unwrap();
        let answer = ana.get(&format!("/v1/runs/{run}/events")).await;
        assert!(matches!(answer.last(), RunEventKind::Ended(result) if result.ending == Ending::Exited { code: 0 }));
    }
    std::fs::remove_file(&log).unwrap();
    ana.get(&format!("/v1/runs/{run}/events")).await.last();
}

#[tokio::test]
async fn a_shutdown_waits_refuses_and_then_cancels() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(until_cancelled);
    let answer = ana.run(json!({"command": ["sleep", "9"], "detach": true})).await;
    let run = answer.json::<RunAccepted>().run;
    let follow = ana.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await;
    world.ask_to_stop();
    while ana.get("/readyz").await.status == 200 {
        tokio::task::yield_now().await;
    }
    let refused = ana.run(json!({"command": ["true"]})).await;
    assert_eq!(refused.error(503).error, "shutting_down");
    assert_eq!(refused.header("retry-after"), "5");
    ana.get("/healthz").await.ok();
    use http_body_util::BodyExt;
    let rest = follow.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("cancelled"));
    let world = World::on(world.stop().await).await;
    let summary: RunSummary = world.client("acme", "ana").get(&format!("/v1/runs/{run}")).await.json();
    assert_eq!(summary.ending, Some(Ending::Cancelled));
}

#[tokio::test]
async fn a_shutdown_lets_a_run_end_by_itself() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
        order.updates.send(RunUpdate::Done).await.unwrap();
    });
    let run = ana.run(json!({"command": ["true"], "detach": true})).await.json::<RunAccepted>().run;
    let world = World::on(world.stop().await).await;
    let summary: RunSummary = world.client("acme", "ana").get(&format!("/v1/runs/{run}")).await.json();
    assert_eq!(summary.ending, Some(Ending::Exited { code: 0 }));
}
