//! Forgetting a user: nothing names it any more, the audit verifies, and it stays out.

use std::path::Path;

use bailey_control::audit::AuditKeys;
use bailey_control::audit::export::verify_export;
use bailey_protocol::api::identity::{ForgottenAnswer, UserList};
use bailey_protocol::api::{ProtectionList, RunAccepted};
use bailey_protocol::audit::AuditPage;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::client::Client;
use crate::node::{quick, until_cancelled};
use crate::world::World;

/// No word of anything else.
const NAME: &str = "zoe.quill-7d1f";

/// Files below a folder whose name or content holds the text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let named = path.to_string_lossy().contains(text);
        if path.is_dir() {
            found.extend(holding(&path, text));
        }
        let within = || std::fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes());
        if named || !path.is_dir() && within() {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Leaves traces everywhere but in the versions of the tenant's store, whose authors stay.
async fn live(world: &World, zoe: &Client, boss: &Client) {
    zoe.put(&format!("/v1/tree/tenants/acme/users/{NAME}/x"), "1").await.ok();
    zoe.ask(Method::PUT, &format!("/v1/labels/tenants/acme/users/{NAME}/x"))
        .header("content-type", "application/json")
        .body(r#"{"labels":["pii"]}"#)
        .answer()
        .await
        .ok();
    zoe.post("/v1/purges", json!({"path": format!("/tenants/acme/users/{NAME}/x")})).await.ok();
    zoe.put(&format!("/v1/tree/tenants/acme/users/{NAME}/y"), "2").await.ok();
    zoe.get("/v1/tree/tenants/globex/x").await.error(403);
    boss.put("/v1/tree/tenants/acme/d/x", "1").await.ok();
    zoe.post("/v1/forks", json!({"path": "/tenants/acme", "branch": "draft"})).await.ok();
    zoe.ask(Method::PUT, "/v1/protections/tenants/acme?branch=main").answer().await.ok();
    zoe.post("/v1/tree-tokens", json!({"path": "/tenants/acme/d", "mode": "read", "minutes": 60})).await.ok();
    let mounts =
        json!([{"path": "/tenants/acme/d", "at": "/d"}, {"path": format!("/tenants/acme/users/{NAME}"), "at": "/u"}]);
    let run = json!({"command": ["echo", NAME], "mounts": mounts});
    zoe.ask(Method::POST, "/v1/runs").header("idempotency-key", "k").body(run.to_string()).answer().await.ok();
    let explained = json!({"action": "tree_read", "path": format!("/tenants/acme/users/{NAME}")});
    zoe.post("/v1/explain", explained).await.ok();
    // Others name it as well.
    boss.post(&format!("/v1/users/{NAME}/disable"), json!({})).await.ok();
    boss.post(&format!("/v1/users/{NAME}/enable"), json!({})).await.ok();
    boss.get(&format!("/v1/tree/tenants/acme/users/{NAME}")).await.error(403);
    assert!(String::from_utf8_lossy(&boss.get("/v1/users").await.ok().body).contains(NAME));
    assert!(!holding(world.folder.path(), NAME).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_forgotten_user_is_named_nowhere_and_stays_out() {
    let world = World::new().await;
    world.node.follow(quick);
    let (zoe, boss) = (world.admin("acme", NAME), world.admin("acme", "boss"));
    live(&world, &zoe, &boss).await;
    let made: serde_json::Value =
        zoe.post("/v1/keys", json!({"name": "ci", "ttl_seconds": 600, "user": "+ci"})).await.ok().json();
    let key = world.holder(made["value"].as_str().unwrap());
    key.get("/v1/runs").await.ok();
    let twin = world.client("globex", NAME);
    twin.get("/v1/runs").await.ok();

    let answer: ForgottenAnswer = boss.delete(&format!("/v1/users/{NAME}")).await.ok().json();
    assert!(answer.runs == 1 && answer.keys == 1 && answer.audit_rows > 10, "{answer:?}");
    assert_eq!(zoe.get("/v1/runs").await.error(403).error, "user_disabled");
    key.get("/v1/runs").await.error(401);
    let users: UserList = boss.get("/v1/users").await.ok().json();
    assert!(users.users.iter().all(|info| info.user.as_str() != NAME));
    let page: AuditPage = boss.get(&format!("/v1/audit?user={NAME}")).await.ok().json();
    // That was asked for just now, which names it, but as nobody's name.
    assert!(page.records.is_empty(), "{page:?}");
    // What it protected stays so; a branch that it made is there.
    let kept: ProtectionList = boss.get("/v1/protections/tenants/acme").await.ok().json();
    assert_eq!(kept.protections[0].by, "|forgotten");
    boss.get("/v1/tree/tenants/acme/d/x?ref=draft").await.ok();
    // Of another tenant's user of that name nothing is gone.
    twin.get("/v1/runs").await.ok();
    let theirs: UserList = world.admin("globex", "gil").get("/v1/users").await.ok().json();
    assert!(theirs.users.iter().any(|info| info.user.as_str() == NAME));

    // The chain verifies, and says what was forgotten.
    let keys = boss.get("/.well-known/jwks.json").await.ok();
    let keys = AuditKeys::from_jwks(std::str::from_utf8(&keys.body).unwrap()).unwrap();
    let export = boss.get("/v1/audit-export").await.ok().body;
    let report = verify_export(&*export, Some(&keys)).unwrap().report;
    // The purge has let some be forgotten before.
    assert!(report.is_whole() && report.forgotten > answer.audit_rows, "{report:?}");
    assert!(!String::from_utf8_lossy(&export).contains(NAME));

    // In the next life as well.
    let world = World::on(world.stop().await).await;
    let zoe = world.holder(zoe.token.as_deref().unwrap());
    assert_eq!(zoe.get("/v1/runs").await.error(403).error, "user_disabled");
    let boss = world.admin("acme", "boss");
    let kept: ProtectionList = boss.get("/v1/protections/tenants/acme").await.ok().json();
    assert_eq!(kept.protections[0].by, "|forgotten");
    // Disabled anew it is not written down again; enabled it is somebody new.
    boss.post(&format!("/v1/users/{NAME}/disable"), json!({})).await.ok();
    boss.post(&format!("/v1/users/{NAME}/enable"), json!({})).await.ok();
    let list: serde_json::Value = zoe.get("/v1/runs").await.ok().json();
    assert_eq!(list["runs"], json!([]));
    zoe.get(&format!("/v1/tree/tenants/acme/users/{NAME}/y")).await.error(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c10_whoever_gets_a_forgotten_users_name_inherits_nothing() {
    let world = World::new().await;
    world.node.follow(quick);
    let (zoe, boss) = (world.admin("acme", NAME), world.admin("acme", "boss"));
    live(&world, &zoe, &boss).await;
    let key = zoe.post("/v1/keys", json!({"name": "ci", "ttl_seconds": 600, "roles": ["admin"]})).await.ok();
    let key = key.json::<serde_json::Value>()["value"].as_str().unwrap().to_owned();
    let own = format!("/tenants/acme/users/{NAME}");
    let token = zoe.post("/v1/tree-tokens", json!({"path": own, "mode": "write", "minutes": 60})).await.ok();
    let token = token.json::<serde_json::Value>()["token"].as_str().unwrap().to_owned();
    let written = zoe.put(&format!("/v1/tree{own}/z"), "3").await.ok().json::<serde_json::Value>();
    zoe.ask(Method::PUT, &format!("/v1/protections{own}?branch=main")).answer().await.ok();
    let runs = zoe.get("/v1/runs").await.ok().json::<serde_json::Value>();
    let run = runs["runs"][0]["run"].as_str().unwrap().to_owned();
    boss.delete(&format!("/v1/users/{NAME}")).await.ok();
    boss.post(&format!("/v1/users/{NAME}/enable"), json!({})).await.ok();

    let heir = world.client_as("acme", NAME, &["member"]);
    // Neither by what it holds, nor by what its name is, nor by ids that it may have been told.
    for old in [&key, &token] {
        world.holder(old).get(&format!("/v1/tree{own}/y")).await.error(401);
    }
    assert_eq!(heir.get("/v1/runs").await.ok().json::<serde_json::Value>()["runs"], json!([]));
    for path in [format!("/v1/runs/{run}"), format!("/v1/runs/{run}/events"), format!("/v1/tree{own}/z")] {
        heir.get(&path).await.error(404);
    }
    let version = written["version"].as_str().unwrap();
    let old = heir.get(&format!("/v1/tree{own}/z?ref={version}")).await;
    assert!(old.status.is_client_error(), "{old:?}");
    for (list, field) in [("/v1/tree-tokens".to_owned(), "tokens"), (format!("/v1/protections{own}"), "protections")] {
        assert_eq!(heir.get(&list).await.ok().json::<serde_json::Value>()[field], json!([]), "{list}");
    }
    let labels = heir.get(&format!("/v1/labels{own}/x")).await.ok().json::<serde_json::Value>();
    assert_eq!((&labels["labels"], &labels["inherited"]), (&json!([]), &json!([])), "{labels}");
    assert_eq!(heir.get("/v1/users").await.error(403).policies, ["admins-only"]);
    let users: UserList = boss.get("/v1/users").await.ok().json();
    let seen = users.users.iter().find(|info| info.user.as_str() == NAME).unwrap();
    assert_eq!(seen.roles, ["member"]);
    // What it writes into the folder of its name is its own, and alone there.
    heir.put(&format!("/v1/tree{own}/new"), "1").await.ok();
    let listed = heir.get(&format!("/v1/tree{own}")).await.ok();
    let listed: bailey_protocol::api::TreeListing = listed.json();
    assert_eq!(listed.entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["new"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_forgotten_name_is_in_no_file_of_the_servers() {
    let world = World::new().await;
    world.node.follow(quick);
    let (zoe, boss) = (world.admin("acme", NAME), world.admin("acme", "boss"));
    live(&world, &zoe, &boss).await;
    boss.delete(&format!("/v1/users/{NAME}")).await.ok();
    assert_eq!(holding(world.folder.path(), NAME), [""; 0]);
    // Nor after what it tries then, and after the end of the server.
    zoe.get(&format!("/v1/tree/tenants/acme/users/{NAME}")).await.error(403);
    zoe.put(&format!("/v1/tree/tenants/acme/users/{NAME}/z"), "1").await.error(403);
    let folder = world.stop().await;
    assert_eq!(holding(folder.path(), NAME), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_goes_on_of_a_user_ends_before_it_is_forgotten() {
    let world = World::new().await;
    world.node.follow(until_cancelled);
    let (zoe, root) = (world.client("acme", NAME), world.operator());
    let run = zoe.run(json!({"command": ["sleep", "9"], "detach": true})).await.ok().json::<RunAccepted>().run;
    let mut events = zoe.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await.into_body();
    let answer: ForgottenAnswer = root.delete(&format!("/v1/operator/tenants/acme/users/{NAME}")).await.ok().json();
    assert_eq!(answer.runs, 1);
    while let Some(Ok(_)) = events.frame().await {}
    let folder = world.stop().await;
    assert_eq!(holding(folder.path(), NAME), [""; 0]);
}

#[tokio::test]
async fn who_forgets_is_an_admin_or_an_operator_and_not_the_same() {
    let world = World::new().await;
    let (zoe, boss, root) = (world.client("acme", NAME), world.admin("acme", "boss"), world.operator());
    zoe.get("/v1/runs").await.ok();
    assert_eq!(zoe.delete("/v1/users/boss").await.error(403).policies, ["admins-only"]);
    assert_eq!(boss.delete("/v1/users/boss").await.error(400).error, "own_user");
    boss.delete("/v1/users/a%2Fb").await.error(400);
    // Another tenant's admin forgets a user of its own by that name.
    world.admin("globex", "gil").delete(&format!("/v1/users/{NAME}")).await.ok();
    zoe.get("/v1/runs").await.ok();
    // What an operator forgot no admin enables.
    root.delete(&format!("/v1/operator/tenants/acme/users/{NAME}")).await.ok();
    let error = boss.post(&format!("/v1/users/{NAME}/enable"), json!({})).await.error(403);
    assert_eq!(error.error, "disabled_by_operator");
    assert_eq!(zoe.get("/v1/runs").await.error(403).error, "user_disabled");
    // Again is no error, and finds nothing.
    let again: ForgottenAnswer = boss.delete(&format!("/v1/users/{NAME}")).await.ok().json();
    assert_eq!(again, ForgottenAnswer { audit_rows: 0, runs: 0, keys: 0 });
    let audit: AuditPage = root.get("/v1/operator/audit?action=tenant_user_forget").await.ok().json();
    assert_eq!(audit.records.len(), 1);
    root.post(&format!("/v1/operator/tenants/acme/users/{NAME}/enable"), json!({})).await.ok();
    zoe.get("/v1/runs").await.ok();
}
