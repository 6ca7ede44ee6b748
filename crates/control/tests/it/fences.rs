//! What was refused stays out of reach, and nothing lands for whoever lost the right to it.

use bailey_control::control::Caller;
use bailey_control::node_link::StartRun;
use bailey_control::ops;
use bailey_control::ops::tree_edit::restore;
use bailey_policy::{Policies, Principal};
use bailey_protocol::api::{BranchInfo, History, Protection, RunAccepted, RunEventKind, WriteAnswer};
use bailey_protocol::id::RequestId;
use bailey_protocol::node::{Ending, RunUpdate};
use bailey_protocol::path::{BranchName, RepoId};
use bailey_tree::archive::TarWriter;
use bailey_tree::{CommitMeta, Trees};
use http::Method;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::node::{changes, send_changes, started, stopped, until_cancelled};
use crate::world::World;

const TENANT: &str = "/tenants/acme";

fn operator(text: &str) -> Policies {
    Policies::new(&[("operator.cedar".to_owned(), text.to_owned())]).unwrap()
}

async fn fork(client: &Client, branch: &str, from: &str) -> Answer {
    client.post("/v1/forks", json!({"path": TENANT, "branch": branch, "from": from})).await
}

async fn put(client: &Client, path: &str, branch: &str, content: &str) -> String {
    let answer = client.put(&format!("/v1/tree{TENANT}/{path}?ref={branch}"), content.to_owned()).await;
    answer.ok().json::<WriteAnswer>().version.to_string()
}

async fn promote(client: &Client, from: &str, into: &str) -> Answer {
    client.post("/v1/promotions", json!({"path": TENANT, "from": from, "into": into})).await
}

#[tokio::test]
async fn a_version_that_no_branch_leads_to_is_none() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let first = put(&ana, "f", "main", "1").await;
    let second = put(&ana, "f", "main", "2").await;
    // As a push leaves it that was refused after it was unpacked.
    let folder = world.stop().await;
    let trees = Trees::open(&folder.path().join("trees")).unwrap();
    let store = trees.store(&RepoId { tenant: "acme".parse().unwrap(), user: None }).unwrap();
    let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 0, message: "canary".to_owned(), run: None };
    let base = second.parse().unwrap();
    let refused = store.write_file(Some(&base), "f", &mut &b"refused"[..], 1000, false, &meta).unwrap();
    assert!(store.contains(&refused).unwrap());
    drop((store, trees));
    let world = World::on(folder).await;
    let ana = world.client("acme", "ana");
    fork(&ana, "x", refused.as_str()).await.error(404);
    ana.get(&format!("/v1/tree{TENANT}/f?ref={refused}")).await.error(404);
    ana.get(&format!("/v1/tree-diff{TENANT}?from={first}&to={refused}")).await.error(404);
    ana.get(&format!("/v1/tree-history{TENANT}?after={refused}")).await.error(404);
    ana.post("/v1/tree-copy", json!({"from": "/tenants/acme/f", "from_ref": refused, "to": "/tenants/acme/g"}))
        .await
        .error(404);
    ana.post("/v1/tree-restore", json!({"path": "/tenants/acme/f", "from_version": refused})).await.error(404);
    ana.post("/v1/tree-revert", json!({"path": TENANT, "version": refused})).await.error(404);
    assert_eq!(ana.get(&format!("/v1/tree{TENANT}/f?ref={first}")).await.ok().body, "1");
    fork(&ana, "old", &first).await.ok();
    let history: History = ana.get(&format!("/v1/tree-history{TENANT}?after={second}")).await.ok().json();
    assert_eq!(history.versions.len(), 1);
}

#[tokio::test]
async fn f20_a_fork_brings_nothing_to_a_path_that_may_not_be_written() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let old = put(&ana, ".platform/config", "main", "1").await;
    let now = put(&ana, ".platform/config", "main", "2").await;
    let later = put(&ana, "f", "main", "2").await;
    let mut tar = TarWriter::new(Vec::new(), 0);
    tar.file(b".platform/config", false, 1, &mut &b"3"[..]).unwrap();
    let tar = tar.finish().unwrap();
    world
        .operator()
        .ask(Method::POST, "/v1/operator/baselines/starter")
        .header("content-type", "application/x-tar")
        .body(tar)
        .answer()
        .await
        .ok();
    let rule = r#"@id("platform-config") forbid (principal, action == Action::"tree_write", resource)
        when { resource.path == "/tenants/acme/.platform/config" };"#;
    assert!(world.control.activate_policies(operator(rule)).await);
    for from in [old.as_str(), "baseline:starter"] {
        assert_eq!(fork(&ana, "denied", from).await.error(403).policies, ["platform-config"], "{from}");
    }
    for (branch, from) in [("a", now.as_str()), ("b", later.as_str()), ("c", "main")] {
        let made: BranchInfo = fork(&ana, branch, from).await.ok().json();
        assert_eq!(made.branch.as_str(), branch);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_what_a_run_changed_does_not_land_once_its_user_is_disabled() {
    let world = World::new().await;
    let (ana, bob, boss) = (world.client("acme", "ana"), world.client("acme", "bob"), world.admin("acme", "boss"));
    let make = || {
        world.node.follow(|order: StartRun| async move {
            order.updates.send(started()).await.unwrap();
            order.cancel.cancelled().await;
            order.updates.send(stopped(Ending::Cancelled)).await.unwrap();
            send_changes(&order, 0, &changes(&[("half", "done")])).await;
            order.updates.send(RunUpdate::Done).await.unwrap();
        });
    };
    let body = json!({"command": ["true"], "mounts": [{"path": "/tenants/acme/d", "at": "/data"}], "detach": true});
    let end = async |client: &Client, run: &str| match client.get(&format!("/v1/runs/{run}/events")).await.last() {
        RunEventKind::Ended(result) => (result.ending, result.denied.unwrap_or_default(), result.versions.len()),
        other => panic!("{other:?}"),
    };
    make();
    let run = ana.run(body.clone()).await.json::<RunAccepted>().run;
    boss.post("/v1/users/ana/disable", json!({})).await.ok();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    boss.post("/v1/users/ana/enable", json!({})).await.ok();
    assert_eq!(end(&ana, run.as_str()).await, (Ending::Cancelled, "the user is disabled".to_owned(), 0));
    bob.get("/v1/tree/tenants/acme/d/half").await.error(404);
    // Policy that ends it drops it, too.
    make();
    let run = ana.run(body).await.json::<RunAccepted>().run;
    let rule = r#"@id("no-runs") forbid (principal, action == Action::"run_create", resource);"#;
    assert!(world.control.activate_policies(operator(rule)).await);
    let (ending, denied, versions) = end(&ana, run.as_str()).await;
    assert!(ending == Ending::Cancelled && denied.contains("no-runs") && versions == 0, "{denied} {versions}");
    bob.get("/v1/tree/tenants/acme/d/half").await.error(404);
    world.node.follow(until_cancelled);
}

#[tokio::test]
async fn c18_nothing_lands_for_a_user_who_was_disabled_after_asking() {
    let world = World::new().await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let first = put(&ana, "f", "main", "1").await;
    put(&ana, "f", "main", "2").await;
    fork(&ana, "draft", "main").await.ok();
    let head = put(&ana, "f", "draft", "3").await;
    boss.post("/v1/users/ana/disable", json!({})).await.ok();
    // What a request does that was let in before.
    let mut principal = Principal::new("acme".parse().unwrap(), "ana".parse().unwrap());
    principal.roles.insert("admin".to_owned());
    let (control, caller) = (&world.control, Caller::new(principal, RequestId::mint(1, [1; 10])));
    let code =
        |result: Result<(), bailey_control::api_error::ApiError>| assert_eq!(result.unwrap_err().code, "user_disabled");
    let forked =
        ops::branches::fork(control, &caller, serde_json::from_value(json!({"path": TENANT, "branch": "x"})).unwrap());
    code(forked.await.map(drop));
    let request = serde_json::from_value(json!({"path": TENANT, "from": "draft", "into": "main"})).unwrap();
    code(ops::promotions::promote(control, &caller, request).await.map(drop));
    code(ops::purges::purge(control, &caller, "/tenants/acme/f".parse().unwrap()).await.map(drop));
    code(ops::branches::delete(control, &caller, TENANT.parse().unwrap(), "draft".parse().unwrap()).await);
    let ask = ops::tree::WriteAsk {
        path: "/tenants/acme/f".parse().unwrap(),
        branch: BranchName::main(),
        condition: ops::tree::Condition::None,
    };
    code(restore(control, &caller, ask, first.parse().unwrap()).await.map(drop));
    let bob = world.client("acme", "bob");
    assert_eq!(bob.get(&format!("/v1/tree{TENANT}/f")).await.ok().body, "2");
    assert_eq!(bob.get(&format!("/v1/tree{TENANT}/f?ref=draft")).await.ok().body, "3");
    assert_eq!(bob.get(&format!("/v1/tree{TENANT}/f?ref={head}")).await.ok().body, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn f20_a_purge_of_a_folder_takes_no_path_that_may_not_be_purged_or_deleted() {
    let world = World::new().await;
    let ana = world.admin("acme", "ana");
    put(&ana, "legal/holds/old", "main", "1").await;
    put(&ana, "legal/other", "main", "1").await;
    // Only in history, and only on a branch.
    ana.delete("/v1/tree/tenants/acme/legal/holds").await.ok();
    fork(&ana, "draft", "main").await.ok();
    put(&ana, "legal/kept/new", "draft", "1").await;
    let rules = r#"@id("held") forbid (principal, action == Action::"tree_purge", resource)
            when { resource.path like "/tenants/acme/legal/holds/*" };
        @id("kept") forbid (principal, action == Action::"tree_delete", resource)
            when { resource.path like "/tenants/acme/legal/kept/*" };"#;
    assert!(world.control.activate_policies(operator(rules)).await);
    let purge = async |path: &str| ana.post("/v1/purges", json!({"path": path})).await;
    assert_eq!(purge("/tenants/acme/legal/holds").await.error(403).policies, ["held"]);
    assert_eq!(purge("/tenants/acme/legal/kept").await.error(403).policies, ["kept"]);
    assert_eq!(purge("/tenants/acme/legal").await.error(403).policies.len(), 1);
    purge("/tenants/acme/legal/other").await.ok();
    assert_eq!(ana.get("/v1/tree/tenants/acme/legal/kept/new?ref=draft").await.ok().body, "1");
}

#[tokio::test]
async fn who_moved_a_branch_is_no_reviewer_of_what_others_fork_or_promote_from_it() {
    let world = World::new().await;
    let (ana, bob, rita) = (world.client("acme", "ana"), world.client("acme", "bob"), world.admin("acme", "rita"));
    put(&bob, "f", "main", "1").await;
    fork(&bob, "his", "main").await.ok();
    fork(&bob, "stage", "main").await.ok();
    put(&bob, "f", "his", "2").await;
    // Versions of bob's, on a branch that ana moved: as if she had pushed them in his name.
    fork(&ana, "hers", "his").await.ok();
    fork(&rita, "look", "hers").await.ok();
    promote(&bob, "hers", "stage").await.ok();
    let asked = rita.ask(Method::PUT, "/v1/protections/tenants/acme?branch=main&review=true").answer().await;
    assert!(asked.ok().json::<Protection>().review);
    for from in ["hers", "look", "stage"] {
        assert_eq!(promote(&ana, from, "main").await.error(403).error, "review_required", "{from}");
    }
    // What has been reviewed is everybody's to start from.
    let eve = world.client("acme", "eve");
    promote(&eve, "look", "main").await.ok();
    fork(&rita, "next", "main").await.ok();
    put(&rita, "f", "next", "3").await;
    promote(&ana, "next", "main").await.ok();
}

#[tokio::test]
async fn git_is_let_in_before_anything_is_looked_at_for_it() {
    let world = World::with(|config| config.git.per_tenant = 0).await;
    let ana = world.client("acme", "ana");
    for service in ["git-upload-pack", "git-receive-pack"] {
        let answer = ana.get(&format!("/git/acme.git/info/refs?service={service}")).await;
        assert_eq!(answer.status, 429, "{answer:?}");
    }
}

#[tokio::test]
async fn f11_a_folder_of_too_many_paths_is_not_mounted() {
    let world = World::new().await;
    let mut version = put(&world.client("acme", "ana"), "d0/f", "main", "1").await.parse().unwrap();
    // Each folder holds the one before twice. No request is as quick in making them.
    let folder = world.stop().await;
    let trees = Trees::open(&folder.path().join("trees")).unwrap();
    let store = trees.store(&RepoId { tenant: "acme".parse().unwrap(), user: None }).unwrap();
    let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 0, message: String::new(), run: None };
    for level in 1..=20 {
        for name in ["a", "b"] {
            let (from, to) = (format!("d{}", level - 1), format!("d{level}/{name}"));
            let source = bailey_tree::Source { store: &store, version: &version, inner: &from };
            version = store.copy(Some(&version), source, &to, &meta).unwrap();
        }
    }
    drop((store, trees));
    let db = rusqlite::Connection::open(folder.path().join("bailey.db")).unwrap();
    assert_eq!(db.execute("UPDATE refs SET version = ?1", [version.as_str()]).unwrap(), 1);
    drop(db);
    let world = World::on(folder).await;
    let ana = world.client("acme", "ana");
    let mount = |path: &str| json!({"command": ["true"], "mounts": [{"path": format!("{TENANT}/{path}"), "at": "/data", "read_only": true}]});
    assert_eq!(ana.run(mount("d20")).await.error(413).error, "too_large");
    ana.run(mount("d18")).await.ok();
}
