//! Answers that go on for long are bounded for each tenant.

use std::time::Duration;

use bailey_protocol::api::{RunAccepted, RunList};
use http::Method;
use serde_json::json;

use crate::node::until_cancelled;
use crate::world::World;

#[tokio::test]
async fn t10_a_tenant_reads_the_events_of_so_many_runs_at_once_and_others_as_before() {
    let world = World::with(|config| config.runs.streams_per_tenant = 3).await;
    world.node.follow(until_cancelled);
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    let run: RunAccepted = ana.run(json!({"command": ["true"], "detach": true})).await.ok().json();
    let events = format!("/v1/runs/{}/events", run.run);
    // The events of a run that is made count like those of one that was.
    let mut open = vec![ana.ask(Method::POST, "/v1/runs").body(r#"{"command":["true"]}"#).begin().await];
    for accept in ["application/x-ndjson", "text/event-stream"] {
        open.push(ana.ask(Method::GET, &events).header("accept", accept).begin().await);
    }
    assert!(open.iter().all(|answer| answer.status() == 200));
    assert_eq!(ana.get(&events).await.error(429).error, "too_many_streams");
    let refused = ana.run(json!({"command": ["true"]})).await.error(429);
    assert_eq!(refused.error, "too_many_streams");
    let runs: RunList = ana.get("/v1/runs").await.ok().json();
    assert_eq!(runs.runs.len(), 2, "a run was started whose events nobody is sent");
    // What is no such stream goes on, and so does another tenant.
    ana.run(json!({"command": ["true"], "detach": true})).await.ok();
    let others = eve.ask(Method::POST, "/v1/runs").body(r#"{"command":["true"]}"#).begin().await;
    assert_eq!(others.status(), 200);
    drop(open);
    let again = async {
        while ana.ask(Method::GET, &events).begin().await.status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), again).await.unwrap();
}
