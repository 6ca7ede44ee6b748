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

#[tokio::test]
async fn r11_a_tenants_large_bodies_wait_for_each_other_and_leave_others_their_turns() {
    let world = World::new().await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    world.node.follow(until_cancelled);
    // So many that nobody sends on hold what one tenant may have of memory.
    let mut stuck = Vec::new();
    for _ in 0..4 {
        let mut stream = tokio::net::TcpStream::connect(ana.address).await.unwrap();
        let head = format!(
            "POST /v1/runs HTTP/1.1\r\nhost: bailey\r\nauthorization: Bearer {}\r\ncontent-length: 1048576\r\n\r\n{{",
            ana.token.as_ref().unwrap()
        );
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
        stuck.push(stream);
    }
    let large = json!({"command": ["true"], "detach": true, "stdin": "x".repeat(100 * 1024)});
    let soon = Duration::from_millis(1500);
    assert!(tokio::time::timeout(soon, ana.run(large.clone())).await.is_err(), "a fifth was read");
    ana.run(json!({"command": ["true"], "detach": true})).await.ok();
    tokio::time::timeout(soon, eve.run(large.clone())).await.expect("another tenant's is read at once").ok();
    drop(stuck);
    ana.run(large).await.ok();
}
