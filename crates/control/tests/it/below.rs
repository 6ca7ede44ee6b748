//! An operator's rule about one path holds for whatever comes to it through a folder above.

use bailey_control::node_link::StartRun;
use bailey_policy::Policies;
use bailey_protocol::api::{CommitOutcome, NewVersion, RunEventKind};
use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::node::{Ending, RunUpdate};
use serde_json::json;

use crate::client::{Answer, Client};
use crate::node::{send_changes, started, stopped};
use crate::world::World;

const PROTECTED: &str = r#"@id("platform-config") @reason("only the platform writes it")
    forbid (principal, action in [Action::"mount_write", Action::"tree_delete"], resource)
    when { resource.path == "/tenants/acme/reports/.platform/config" };"#;

type Records<'a> = &'a [(Header<'a>, &'a [u8])];

fn file<'a>(path: &'a str, content: &'a str) -> (Header<'a>, &'a [u8]) {
    (Header::File { path: path.as_bytes(), executable: false, size: content.len() as u64 }, content.as_bytes())
}

fn gone(path: &str) -> (Header<'_>, &[u8]) {
    (Header::Delete { path: path.as_bytes() }, b"")
}

fn stream(records: Records<'_>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (header, content) in records {
        header.encode(&mut bytes).unwrap();
        bytes.extend_from_slice(content);
    }
    Header::End { records: records.len() as u64 }.encode(&mut bytes).unwrap();
    bytes
}

async fn under(rules: &str) -> World {
    World::under(Policies::new(&[("operator.cedar".to_owned(), rules.to_owned())]).unwrap()).await
}

/// The one version of a run that mounts `path` and brings `changes`.
async fn run(world: &World, client: &Client, path: &str, changes: Vec<u8>) -> NewVersion {
    world.node.follow(move |order: StartRun| {
        let changes = changes.clone();
        async move {
            order.updates.send(started()).await.unwrap();
            order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
            send_changes(&order, 0, &changes).await;
            order.updates.send(RunUpdate::Done).await.unwrap();
        }
    });
    let answer = client.run(json!({"command": ["true"], "mounts": [{"path": path, "at": "/data"}]})).await;
    match answer.last() {
        RunEventKind::Ended(mut result) => result.versions.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn head(client: &Client) -> Option<String> {
    let answer = client.get("/v1/tree/tenants/acme").await.ok();
    answer.json::<bailey_protocol::api::TreeListing>().version.map(|version| version.to_string())
}

async fn get(client: &Client, path: &str) -> Answer {
    client.get(&format!("/v1/tree/tenants/acme/{path}")).await
}

fn kept_apart(made: &NewVersion, conflicts: &[&str]) {
    assert_eq!(made.outcome, CommitOutcome::SideBranch, "{made:?}");
    assert!(made.branch.as_str().starts_with("runs/run_"), "{made:?}");
    let reason = made.reason.as_deref().unwrap();
    assert!(reason.contains("`platform-config`") && reason.contains("only the platform writes it"), "{reason}");
    assert_eq!(made.conflicts, conflicts);
}

#[tokio::test]
async fn f20_a_protected_path_that_is_not_there_yet_is_not_made_through_a_folder_above() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    for (mount, config, beside) in [
        ("/tenants/acme/reports", ".platform/config", "q1"),
        ("/tenants/acme", "reports/.platform/config", "reports/q1"),
        ("/tenants/acme/reports/.platform", "config", "q1"),
    ] {
        let before = head(&ana).await;
        let records = [file(beside, "1"), file(config, "evil")];
        let made = run(&world, &ana, mount, stream(&records)).await;
        kept_apart(&made, &["reports/.platform/config"]);
        assert_eq!(head(&ana).await, before, "nothing of it is on the branch");
        get(&ana, "reports/.platform/config").await.error(404);
        let aside = format!("reports/.platform/config?ref={}", made.branch);
        assert_eq!(get(&ana, &aside).await.ok().body, "evil");
    }
    // As a folder or a link it is no other.
    let folder = [(Header::Directory { path: b".platform/config" }, &b""[..])];
    let link = [(Header::Symlink { path: b".platform/config", target: b"/etc/passwd" }, &b""[..])];
    for records in [folder, link] {
        kept_apart(&run(&world, &ana, "/tenants/acme/reports", stream(&records)).await, &["reports/.platform/config"]);
    }
    let made = run(&world, &ana, "/tenants/acme/reports", stream(&[file(".platform/other", "1")])).await;
    assert_eq!((made.outcome, made.reason), (CommitOutcome::Committed, None));
}

#[tokio::test]
async fn f20_a_protected_path_is_not_changed_deleted_or_replaced_through_a_folder_above() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/reports/.platform/config", "good").await.ok();
    let before = head(&ana).await;
    let link = (Header::Symlink { path: b".platform", target: b"evil" }, &b""[..]);
    let executable = (Header::File { path: b".platform/config", executable: true, size: 4 }, &b"good"[..]);
    let attacks: [Records<'_>; 7] = [
        &[file(".platform/config", "evil")],
        &[executable],
        &[gone(".platform/config")],
        &[gone(".platform")],
        // The folder renamed away, another in its place, a link in its place.
        &[gone(".platform"), file("moved/config", "good")],
        &[gone(".platform"), file(".platform/config", "evil"), file(".platform/more", "1")],
        &[gone(".platform"), link],
    ];
    for attack in attacks {
        let made = run(&world, &ana, "/tenants/acme/reports", stream(attack)).await;
        kept_apart(&made, &["reports/.platform/config"]);
        assert_eq!(get(&ana, "reports/.platform/config").await.ok().body, "good");
    }
    kept_apart(&run(&world, &ana, "/tenants/acme", stream(&[gone("reports")])).await, &["reports/.platform/config"]);
    assert_eq!(head(&ana).await, before);
    let made = run(&world, &ana, "/tenants/acme/reports", stream(&[file("q1", "1")])).await;
    assert_eq!(made.outcome, CommitOutcome::Committed);
}

#[tokio::test]
async fn f20_a_branch_that_moved_is_asked_about_as_it_would_become() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    let meanwhile = ana.clone();
    world.node.follow(move |order: StartRun| {
        let ana = meanwhile.clone();
        async move {
            ana.put("/v1/tree/tenants/acme/elsewhere", "1").await.ok();
            order.updates.send(started()).await.unwrap();
            order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
            for (mount, changes) in [(0, stream(&[file("x", "1")])), (1, stream(&[file(".platform/config", "evil")]))] {
                send_changes(&order, mount, &changes).await;
            }
            order.updates.send(RunUpdate::Done).await.unwrap();
        }
    });
    let mounts = json!([{"path": "/tenants/acme/a", "at": "/a"}, {"path": "/tenants/acme/reports", "at": "/b"}]);
    let RunEventKind::Ended(result) = ana.run(json!({"command": ["true"], "mounts": mounts})).await.last() else {
        panic!("no end")
    };
    assert_eq!(result.versions.len(), 2);
    for made in &result.versions {
        kept_apart(made, &["reports/.platform/config"]);
    }
    assert_eq!(get(&ana, "elsewhere").await.ok().body, "1");
    get(&ana, "a").await.error(404);
    get(&ana, "reports").await.error(404);
}

#[tokio::test]
async fn f20_what_was_denied_below_a_mount_is_on_the_audit() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    run(&world, &ana, "/tenants/acme", stream(&[file("reports/.platform/config", "evil")])).await;
    let folder = world.stop().await;
    let db = rusqlite::Connection::open(folder.path().join("bailey.db")).unwrap();
    let sql = "SELECT user, action, resource, policies, outcome FROM audit WHERE decision = 'denied'";
    let mut query = db.prepare(sql).unwrap();
    let rows =
        query.query_map([], |row| (0..5).map(|column| row.get::<_, String>(column)).collect::<Result<Vec<_>, _>>());
    let rows: Vec<Vec<String>> = rows.unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0][..3], ["ana", "mount_write", "/tenants/acme/reports/.platform/config"]);
    assert!(rows[0][3].contains("platform-config"), "{rows:?}");
    assert_eq!(rows[0][4], "only the platform writes it");
}

#[tokio::test]
async fn f20_a_folder_with_a_protected_path_below_it_is_not_deleted() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/reports/.platform/config", "good").await.ok();
    ana.put("/v1/tree/tenants/acme/reports/q1/x", "1").await.ok();
    for path in ["reports", "reports/.platform", "reports/.platform/config"] {
        let error = ana.delete(&format!("/v1/tree/tenants/acme/{path}")).await.error(403);
        assert_eq!((error.error.as_str(), error.policies), ("denied", vec!["platform-config".to_owned()]), "{path}");
        assert_eq!(get(&ana, "reports/.platform/config").await.ok().body, "good");
    }
    ana.delete("/v1/tree/tenants/acme/reports/q1").await.ok();
}

#[tokio::test]
async fn f20_what_policy_cannot_be_asked_about_is_kept_apart() {
    let world = under(PROTECTED).await;
    let ana = world.client("acme", "ana");
    let odd = [(Header::File { path: b"odd\xff", executable: false, size: 1 }, &b"1"[..])];
    let made = run(&world, &ana, "/tenants/acme/reports", stream(&odd)).await;
    assert_eq!(made.outcome, CommitOutcome::SideBranch, "{made:?}");
    assert_eq!(made.conflicts, ["reports/odd\u{fffd}"]);
    let names: Vec<String> = (0..20_001).map(|n| format!("f{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| file(name, "1")).collect();
    let made = run(&world, &ana, "/tenants/acme/many", stream(&many)).await;
    assert_eq!(made.outcome, CommitOutcome::SideBranch, "{made:?}");
    assert!(made.reason.unwrap().contains("more than 20000 paths"));
    get(&ana, "many").await.error(404);
    // No operator rule about writes: nothing to ask, so both land.
    let world = under(r#"forbid (principal, action == Action::"run_as_root", resource);"#).await;
    let ana = world.client("acme", "ana");
    for (mount, changes) in [("/tenants/acme/reports", stream(&odd)), ("/tenants/acme/many", stream(&many))] {
        assert_eq!(run(&world, &ana, mount, changes).await.outcome, CommitOutcome::Committed);
    }
}
