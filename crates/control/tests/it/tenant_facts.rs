//! What operators note of tenants, and what policies make of it.

use bailey_policy::Policies;
use bailey_protocol::api::identity::TenantNoted;
use bailey_protocol::api::{RunAccepted, RunEvent, RunEventKind};
use bailey_protocol::node::Ending;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::node::{quick, until_cancelled};
use crate::world::World;

const REGION: &str = include_str!("../../../../examples/policies/region.cedar");
const WALL: &str = include_str!("../../../../examples/policies/wall.cedar");

fn examples() -> Policies {
    let files = [("region.cedar", REGION), ("wall.cedar", WALL)];
    Policies::new(&files.map(|(name, text)| (name.to_owned(), text.to_owned()))).unwrap()
}

async fn note(root: &Client, tenant: &str, notes: serde_json::Value) -> Answer {
    let asking = root.ask(Method::PUT, &format!("/v1/operator/tenants/{tenant}/facts"));
    asking.header("content-type", "application/json").body(notes.to_string()).answer().await
}

#[tokio::test]
async fn a_region_that_the_operator_notes_is_asked_about_at_once_and_in_the_next_life() {
    let world = World::under(examples()).await;
    let (root, ana, bob) = (world.operator(), world.client("acme", "ana"), world.client("globex", "bob"));
    let european = world.client_in("acme", "eva", "eu");
    ana.get("/v1/tree/tenants/acme").await.ok();
    note(&root, "acme", json!({ "region": "eu" })).await.ok();
    assert_eq!(ana.get("/v1/tree/tenants/acme").await.error(403).policies, ["same-region"]);
    european.get("/v1/tree/tenants/acme").await.ok();
    bob.get("/v1/tree/tenants/globex").await.ok();
    let notes: TenantNoted = root.get("/v1/operator/tenants/acme/facts").await.ok().json();
    assert_eq!((notes.region.as_deref(), notes.plan, notes.known), (Some("eu"), None, true));

    let world = World::on_under(world.stop().await, examples()).await;
    let (root, ana) = (world.operator(), world.client("acme", "ana"));
    assert_eq!(ana.get("/v1/tree/tenants/acme").await.error(403).policies, ["same-region"]);
    note(&root, "acme", json!({})).await.ok();
    ana.get("/v1/tree/tenants/acme").await.ok();
}

#[tokio::test]
async fn a_plan_that_the_operator_notes_ends_a_run_behind_a_weaker_wall() {
    let world = World::under(examples()).await;
    let (root, ana) = (world.operator(), world.client("acme", "ana"));
    world.node.follow(until_cancelled);
    let accepted = ana.run(json!({"command": ["sleep", "9"], "detach": true})).await;
    let run = accepted.json::<RunAccepted>().run;
    let live = ana.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await.into_body();
    note(&root, "acme", json!({ "plan": "regulated" })).await.ok();
    let lines = live.collect().await.unwrap().to_bytes();
    let last = lines.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
    let event: RunEvent = serde_json::from_slice(last).unwrap();
    let RunEventKind::Ended(result) = event.kind else { panic!("{event:?}") };
    assert_eq!(result.ending, Ending::Cancelled);
    let denied = result.denied.unwrap();
    assert!(denied.contains("stronger wall"), "{denied}");
    let denied = ana.run(json!({"command": ["true"]})).await.error(403);
    assert_eq!(denied.policies, ["minimum-wall"]);
    note(&root, "acme", json!({ "plan": "free" })).await.ok();
    world.node.follow(quick);
    ana.run(json!({"command": ["true"]})).await.ok();
}

#[tokio::test]
async fn only_an_operator_notes_and_only_what_is_a_text() {
    let world = World::new().await;
    let (root, admin) = (world.operator(), world.admin("acme", "boss"));
    note(&admin, "acme", json!({ "region": "eu" })).await.error(403);
    admin.get("/v1/operator/tenants/acme/facts").await.error(403);
    for bad in [json!({ "region": "" }), json!({ "plan": "a\nb" }), json!({ "region": "x".repeat(129) })] {
        assert_eq!(note(&root, "acme", bad).await.error(400).error, "invalid_facts");
    }
    note(&root, "acme", json!({ "colour": "red" })).await.error(400);
    note(&root, "No-Tenant", json!({})).await.error(400);
    let notes: TenantNoted = root.get("/v1/operator/tenants/acme/facts").await.ok().json();
    assert_eq!((notes.region, notes.plan), (None, None));
}
