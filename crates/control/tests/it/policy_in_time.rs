//! Policies and time: what goes on, what waits, and what was asked in the last day.

use std::time::Duration;

use bailey_protocol::api::policy::DryRunAnswer;
use bailey_protocol::api::{RunAccepted, RunEvent, RunEventKind};
use bailey_protocol::node::Ending;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::node::until_cancelled;
use crate::policy::{operator, put_policy};
use crate::world::World;

/// Half an hour of a run, and all that happens in it is that the time has come.
#[tokio::test]
async fn a_run_that_goes_on_ends_when_the_time_of_day_no_longer_allows_it() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let begin = world.now_ms();
    let evening = begin + 20 * 60_000;
    let text = format!(
        r#"@id("office-hours") forbid (principal is User, action == Action::"run_create", resource)
           when {{ context.time >= datetime("1970-01-01").offset(duration("{evening}ms")) }};"#
    );
    assert!(world.control.activate_policies(operator(&text)).await);
    world.node.follow(until_cancelled);
    let body = json!({"command": ["sleep", "9"], "detach": true});
    let run = ana.run(body.clone()).await.json::<RunAccepted>().run;
    let live = ana.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await.into_body();
    world.pass(Duration::from_secs(30 * 60));
    let lines = live.collect().await.unwrap().to_bytes();
    let last = lines.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
    let event: RunEvent = serde_json::from_slice(last).unwrap();
    let RunEventKind::Ended(result) = event.kind else { panic!("{event:?}") };
    assert_eq!(result.ending, Ending::Cancelled);
    assert!(result.denied.unwrap().contains("office-hours"));
    // It asked for one run. That it went on was asked by the server.
    let none = json!({ "files": { "x.cedar": r#"@id("none") forbid (principal, action == Action::"run_create", resource);"# } });
    let found: DryRunAnswer = world.operator().post("/v1/operator/policies/dry-run", none).await.ok().json();
    let counts: Vec<_> = found.newly_denied.iter().map(|row| (row.action.as_str(), row.count)).collect();
    assert_eq!(counts, [("run_create", 1)]);
    assert_eq!(ana.run(body).await.error(403).policies, ["office-hours"]);
}

/// All that is decided about a run is decided on what holds when it starts, however long it waited for room.
#[tokio::test]
async fn what_policy_says_of_a_run_that_waited_is_asked_again_when_it_starts() {
    let world = World::with(|config| (config.runs.per_server, config.runs.queued_per_tenant) = (1, 2)).await;
    let (boss, ana, eve) = (world.admin("acme", "boss"), world.client("acme", "ana"), world.client("globex", "eve"));
    ana.put("/v1/tree/tenants/acme/data/f", "x").await.ok();
    world.node.follow(until_cancelled);
    let mounts = json!([{ "path": "/tenants/acme/data", "at": "/mnt/data" }]);
    for (name, action, condition, body) in [
        ("run", "run_create", "true", json!({ "command": ["true"] })),
        ("read", "mount_read", "true", json!({ "command": ["true"], "mounts": mounts })),
        ("write", "mount_write", "true", json!({ "command": ["true"], "mounts": mounts })),
        (
            "shaped",
            "run_create",
            "!context.credential_shaped.isEmpty()",
            json!({ "command": ["true"], "env": { "TOKEN": crate::credentials::credential() } }),
        ),
    ] {
        let first = eve.run(json!({ "command": ["sleep", "9"], "detach": true })).await.json::<RunAccepted>().run;
        let waiting = ana.clone();
        let waits = tokio::spawn(async move { waiting.run(body).await });
        while !world.operator().get("/metrics").await.ok().body.windows(21).any(|part| part == b"bailey_runs_waiting 1")
        {
            tokio::task::yield_now().await;
        }
        let text = format!(r#"forbid (principal, action == Action::"{action}", resource) when {{ {condition} }};"#);
        put_policy(&boss, name, &text).await.ok();
        eve.post(&format!("/v1/runs/{first}/cancel"), json!({})).await.ok();
        assert_eq!(waits.await.unwrap().error(403).policies, [format!("tenant/{name}")]);
        assert_eq!(boss.delete(&format!("/v1/policies/{name}")).await.status, 204);
    }
}

/// Rules about the time are asked about each hour in which there was a request, and what is older than a day is none.
#[tokio::test]
async fn a_dry_run_counts_what_was_asked_in_the_last_day_at_the_time_it_was_asked() {
    let world = World::new().await;
    let (hour, start) = (Duration::from_secs(3600), world.now_ms());
    let root = async || world.operator();
    let dry_run = async |text: &str| -> Vec<(String, u64)> {
        let ask = json!({ "files": { "x.cedar": text } });
        let found: DryRunAnswer = root().await.post("/v1/operator/policies/dry-run", ask).await.ok().json();
        found.newly_denied.iter().map(|row| (row.action.clone(), row.count)).collect()
    };
    let all = r#"@id("all") forbid (principal, action == Action::"run_list", resource);"#;
    let lists = async |times: usize| {
        for _ in 0..times {
            world.client("acme", "ana").get("/v1/runs").await.ok();
        }
    };
    lists(1).await;
    world.pass(hour * 20);
    lists(2).await;
    assert_eq!(dry_run(all).await, [("run_list".to_owned(), 3)]);
    world.pass(hour * 20);
    lists(4).await;
    assert_eq!(dry_run(all).await, [("run_list".to_owned(), 6)], "the first is two days old");
    let between = start + 30 * 3_600_000;
    let late = format!(
        r#"@id("late") forbid (principal, action == Action::"run_list", resource)
           when {{ context.time >= datetime("1970-01-01").offset(duration("{between}ms")) }};"#
    );
    assert_eq!(dry_run(&late).await, [("run_list".to_owned(), 4)]);
}
