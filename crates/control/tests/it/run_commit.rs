//! From what a run changed to versions.

use bailey_control::node_link::StartRun;
use bailey_protocol::api::{CommitOutcome, NewVersion, RunEventKind, RunResult, TreeListing};
use bailey_protocol::change::{Header, MAGIC, NoticeReason};
use bailey_protocol::node::{Ending, RunUpdate};
use http::Method;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::node::{changes, send_changes, started, stopped, until_cancelled, writes};
use crate::world::World;

fn result(answer: &Answer) -> RunResult {
    match answer.last() {
        RunEventKind::Ended(result) => result,
        other => panic!("{other:?}"),
    }
}

fn on(path: &str) -> serde_json::Value {
    json!({"command": ["true"], "mounts": [{"path": path, "at": "/data"}]})
}

async fn content(client: &Client, path: &str) -> String {
    String::from_utf8(client.get(&format!("/v1/tree{path}")).await.ok().body.to_vec()).unwrap()
}

/// Creates a run on `path`, has `meanwhile` happen while it goes, and lets it write `name`.
async fn run_while<F: Future<Output = ()>>(
    world: &World,
    client: &Client,
    path: &str,
    name: &'static str,
    meanwhile: F,
) -> NewVersion {
    let (go, wait) = tokio::sync::watch::channel(false);
    world.node.follow(move |order: StartRun| {
        let mut wait = wait.clone();
        async move {
            wait.wait_for(|go| *go).await.unwrap();
            writes(order, name, "from the run".to_owned()).await;
        }
    });
    let asking = client.ask(Method::POST, "/v1/runs").body(on(path).to_string());
    let answer = asking.begin().await;
    let run = answer.headers()["bailey-run"].to_str().unwrap().to_owned();
    meanwhile.await;
    go.send(true).unwrap();
    let answer = client.get(&format!("/v1/runs/{run}/events")).await;
    result(&answer).versions.pop().unwrap()
}

#[tokio::test]
async fn what_a_run_changed_is_a_version_before_it_ends() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/reports/in.csv", "1\n").await.ok();
    world.node.follow(|order| writes(order, "out.csv", "2\n".to_owned()));
    let answer = ana.run(on("/tenants/acme/reports")).await;
    let made = result(&answer).versions.pop().unwrap();
    assert_eq!((made.outcome, made.branch.as_str()), (CommitOutcome::Committed, "main"));
    assert_eq!(made.path.as_str(), "/tenants/acme/reports");
    assert_eq!(content(&ana, "/tenants/acme/reports/out.csv").await, "2\n");
    assert_eq!(content(&ana, "/tenants/acme/reports/in.csv").await, "1\n");
    let history = ana.get("/v1/tree-history/tenants/acme/reports/out.csv").await.ok();
    let history: bailey_protocol::api::History = history.json();
    assert_eq!(history.versions[0].version, made.version);
    assert_eq!(history.versions[0].run.as_ref().unwrap().as_str(), answer.header("bailey-run"));
    let spec = world.node.seen.lock().unwrap()[0].clone();
    assert!(spec.mounts[0].writable && spec.mounts[0].at.as_str() == "/data");
}

#[tokio::test]
async fn a_mount_that_does_not_exist_yet_is_empty_and_is_made() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(|order| writes(order, "x", "new".to_owned()));
    ana.run(on("/tenants/acme/a/b")).await.last();
    assert_eq!(content(&ana, "/tenants/acme/a/b/x").await, "new");
    let spec = world.node.seen.lock().unwrap()[0].clone();
    assert_eq!(spec.mounts[0].tree, bailey_tree::empty_tree());
}

#[tokio::test]
async fn a_file_cannot_be_mounted_and_nothing_is_started() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/file", "1").await.ok();
    assert_eq!(ana.run(on("/tenants/acme/file")).await.error(400).error, "invalid_mount");
    let missing = json!({"path": "/tenants/acme", "at": "/data", "branch": "draft"});
    ana.run(json!({"command": ["true"], "mounts": [missing]})).await.error(404);
    assert!(world.node.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_branch_that_moved_elsewhere_is_merged() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/d/old", "1").await.ok();
    let made = run_while(&world, &ana, "/tenants/acme/d", "out", async {
        ana.put("/v1/tree/tenants/acme/d/other", "2").await.ok();
    })
    .await;
    assert_eq!((made.outcome, made.branch.as_str()), (CommitOutcome::Merged, "main"));
    assert_eq!(content(&ana, "/tenants/acme/d/out").await, "from the run");
    assert_eq!(content(&ana, "/tenants/acme/d/other").await, "2");
    assert_eq!(content(&ana, "/tenants/acme/d/old").await, "1");
}

#[tokio::test]
async fn a_branch_that_moved_over_the_same_path_keeps_both() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let made = run_while(&world, &ana, "/tenants/acme/d", "out", async {
        ana.put("/v1/tree/tenants/acme/d/out", "from the person").await.ok();
    })
    .await;
    assert_eq!(made.outcome, CommitOutcome::SideBranch);
    assert!(made.branch.as_str().starts_with("runs/run_"));
    assert!(made.reason.unwrap().contains("main"));
    assert_eq!(made.conflicts, ["d/out"]);
    assert_eq!(content(&ana, "/tenants/acme/d/out").await, "from the person");
    let aside = format!("/tenants/acme/d/out?ref={}", made.branch);
    assert_eq!(content(&ana, &aside).await, "from the run");
    // A run can go on from there.
    let mount = json!({"path": "/tenants/acme/d", "at": "/data", "branch": made.branch});
    world.node.follow(|order| writes(order, "more", "1".to_owned()));
    let answer = ana.run(json!({"command": ["true"], "mounts": [mount]})).await;
    assert_eq!(result(&answer).versions[0].branch, made.branch);
}

#[tokio::test]
async fn several_mounts_land_together() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let nothing = json!([{"path": "/tenants/acme/ro", "at": "/ro", "read_only": true}]);
    ana.run(json!({"command": ["true"], "mounts": nothing})).await.error(404);
    ana.put("/v1/tree/tenants/acme/ro/in", "1").await.ok();
    let mounts = json!([
        {"path": "/tenants/acme/a", "at": "/a"},
        {"path": "/tenants/acme/ro", "at": "/ro", "read_only": true},
        {"path": "/tenants/acme/b", "at": "/b"},
        {"path": "/tenants/acme/users/ana/c", "at": "/c"},
    ]);
    world.node.follow(|order| writes(order, "x", "1".to_owned()));
    let answer = ana.run(json!({"command": ["true"], "mounts": mounts})).await;
    let versions = result(&answer).versions;
    let paths: Vec<_> = versions.iter().map(|made| made.path.as_str()).collect();
    assert_eq!(paths, ["/tenants/acme/a", "/tenants/acme/b", "/tenants/acme/users/ana/c"]);
    assert_eq!(versions[0].version, versions[1].version);
    for path in ["/tenants/acme/a/x", "/tenants/acme/b/x", "/tenants/acme/users/ana/c/x"] {
        assert_eq!(content(&ana, path).await, "1");
    }
    let listing: TreeListing = ana.get("/v1/tree/tenants/acme").await.ok().json();
    assert_eq!(listing.entries.len(), 3);
}

#[tokio::test]
async fn several_mounts_of_a_moved_branch_are_all_merged() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let (go, wait) = tokio::sync::watch::channel(false);
    world.node.follow(move |order: StartRun| {
        let mut wait = wait.clone();
        async move {
            wait.wait_for(|go| *go).await.unwrap();
            writes(order, "x", "1".to_owned()).await;
        }
    });
    let mounts = json!([{"path": "/tenants/acme/a", "at": "/a"}, {"path": "/tenants/acme/b", "at": "/b"}]);
    let body = json!({"command": ["true"], "mounts": mounts, "detach": true});
    let run = ana.run(body).await.json::<bailey_protocol::api::RunAccepted>().run;
    ana.put("/v1/tree/tenants/acme/c/x", "2").await.ok();
    go.send(true).unwrap();
    let answer = ana.get(&format!("/v1/runs/{run}/events")).await;
    assert!(result(&answer).versions.iter().all(|made| made.outcome == CommitOutcome::Merged));
    for (path, expected) in [("/tenants/acme/a/x", "1"), ("/tenants/acme/b/x", "1"), ("/tenants/acme/c/x", "2")] {
        assert_eq!(content(&ana, path).await, expected);
    }
}

#[tokio::test]
async fn a_run_that_changed_nothing_makes_no_version() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    assert!(result(&ana.run(on("/tenants/acme/d")).await).versions.is_empty());
    let listing: TreeListing = ana.get("/v1/tree/tenants/acme").await.ok().json();
    assert_eq!(listing.version, None);
}

#[tokio::test]
async fn a_broken_change_stream_is_a_failure_and_changes_nothing() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let whole = changes(&[("x", "1")]);
    let mut escaping = MAGIC.to_vec();
    Header::File { path: b"../../x", executable: false, size: 0 }.encode(&mut escaping).unwrap();
    Header::End { records: 1 }.encode(&mut escaping).unwrap();
    let mut gave_up = MAGIC.to_vec();
    Header::Failed { message: "no" }.encode(&mut gave_up).unwrap();
    for stream in [Vec::new(), whole[..whole.len() - 1].to_vec(), b"nonsense".repeat(99_999), escaping, gave_up] {
        world.node.follow(move |order: StartRun| {
            let stream = stream.clone();
            async move {
                order.updates.send(started()).await.unwrap();
                order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
                send_changes(&order, 0, &stream).await;
                // Control may have given up by now.
                order.updates.send(RunUpdate::Done).await.unwrap_or_default();
            }
        });
        let RunEventKind::Failed { error, message, .. } = ana.run(on("/tenants/acme/d")).await.last() else {
            panic!("a success")
        };
        assert_eq!(error, "commit_failed");
        assert!(message.contains("exited with code 0") && message.contains("/tenants/acme/d"), "{message}");
    }
    ana.get("/v1/tree/tenants/acme/d").await.error(404);
}

#[tokio::test]
async fn what_a_tree_cannot_hold_is_in_the_result() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(|order: StartRun| async move {
        let mut stream = MAGIC.to_vec();
        for n in 0..1500 {
            let path = format!("fifo{n}");
            Header::Notice { path: path.as_bytes(), reason: NoticeReason::Fifo }.encode(&mut stream).unwrap();
        }
        Header::End { records: 1500 }.encode(&mut stream).unwrap();
        order.updates.send(started()).await.unwrap();
        order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
        send_changes(&order, 0, &stream).await;
        order.updates.send(RunUpdate::Done).await.unwrap();
    });
    let result = result(&ana.run(on("/tenants/acme/d")).await);
    assert_eq!((result.notices.len(), result.more_notices), (1000, 500));
    assert_eq!(result.notices[0].path, "/tenants/acme/d/fifo0");
}

#[tokio::test]
async fn notices_that_json_blows_up_still_fit_the_last_event() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(|order: StartRun| async move {
        let mut stream = MAGIC.to_vec();
        let folder = "\u{1}".repeat(250) + "/";
        for n in 0..1000 {
            let path = format!("{}{n}", folder.repeat(15));
            Header::Notice { path: path.as_bytes(), reason: NoticeReason::Fifo }.encode(&mut stream).unwrap();
        }
        Header::End { records: 1000 }.encode(&mut stream).unwrap();
        order.updates.send(started()).await.unwrap();
        order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
        send_changes(&order, 0, &stream).await;
        order.updates.send(RunUpdate::Done).await.unwrap();
    });
    let result = result(&ana.run(on("/tenants/acme/d")).await);
    assert!(result.notices.len() > 100, "{}", result.notices.len());
    assert_eq!(result.notices.len() as u64 + result.more_notices, 1000);
}

#[tokio::test]
async fn a_cancelled_run_keeps_what_it_changed() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    world.node.follow(|order: StartRun| async move {
        order.updates.send(started()).await.unwrap();
        order.cancel.cancelled().await;
        order.updates.send(stopped(Ending::Cancelled)).await.unwrap();
        send_changes(&order, 0, &changes(&[("half", "done")])).await;
        order.updates.send(RunUpdate::Done).await.unwrap();
    });
    let mut body = on("/tenants/acme/d");
    body["detach"] = json!(true);
    let run = ana.run(body).await.json::<bailey_protocol::api::RunAccepted>().run;
    ana.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok();
    let result = result(&ana.get(&format!("/v1/runs/{run}/events")).await);
    assert_eq!((result.ending, result.versions.len()), (Ending::Cancelled, 1));
    assert_eq!(content(&ana, "/tenants/acme/d/half").await, "done");
    world.node.follow(until_cancelled);
}
