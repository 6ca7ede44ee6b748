//! Quotas, retention and purges over HTTP.

use std::path::Path;
use std::time::Duration;

use bailey_protocol::api::{History, RunEventKind, TreeListing, WriteAnswer};
use bailey_protocol::purge::{PurgeReceipt, PurgeState};
use bailey_protocol::quota::{GcSummary, TenantQuota, TenantStorage};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::client::{Answer, Client};
use crate::node::writes;
use crate::world::World;

fn holds(folder: &Path, canary: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, canary);
        }
        std::fs::read(path).is_ok_and(|bytes| bytes.windows(canary.len()).any(|part| part == canary.as_bytes()))
    })
}

/// Every object of a store, inflated by stock git.
fn objects(world: &World, store: &str) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "cat-file", "--batch-all-objects", "--batch"])
        .current_dir(world.folder.path().join("trees").join(store))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn purge(client: &Client, path: &str) -> Answer {
    client.post("/v1/purges", json!({"path": path})).await
}

async fn copy(client: &Client, from: &str, to: &str, moves: bool) -> Answer {
    client.post("/v1/tree-copy", json!({"from": from, "to": to, "move": moves})).await
}

async fn version(client: &Client, path: &str, content: &str) -> String {
    let answer: WriteAnswer = client.put(&format!("/v1/tree{path}"), content.to_owned()).await.ok().json();
    answer.version.to_string()
}

async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..200 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("never: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_path_is_nowhere_and_its_versions_answer_410_with_the_receipt() {
    let world = World::new().await;
    let ana = world.admin("acme", "ana");
    // Large, so that it lies on disk as it is.
    let canary = format!("canary-of-ana {}", "x".repeat(1_000_000));
    let clean = version(&ana, "/tenants/acme/a", "1").await;
    let dirty = version(&ana, "/tenants/acme/d/secret", &canary).await;
    let after = version(&ana, "/tenants/acme/b", "2").await;
    assert!(objects(&world, "acme/tenant.git").contains("canary-of-ana"));
    purge(&ana, "/tenants/acme").await.error(400);
    purge(&ana, "/tenants/acme/nothing").await.error(404);
    let receipt: PurgeReceipt = purge(&ana, "/tenants/acme/d/secret").await.ok().json();
    assert_eq!((receipt.state, receipt.versions, receipt.became.len()), (PurgeState::Done, 2, 2));
    assert!(!objects(&world, "acme/tenant.git").contains("canary-of-ana"));
    assert!(!holds(&world.folder.path().join("trees"), "canary-of-ana"));
    for old in [&dirty, &after] {
        let error = ana.get(&format!("/v1/tree/tenants/acme/b?ref={old}")).await.error(410);
        assert_eq!(error.error, "version_expired");
        assert!(error.message.contains(receipt.id.as_str()), "{}", error.message);
    }
    let kept = ana.get(&format!("/v1/tree/tenants/acme/a?ref={clean}")).await.ok();
    assert_eq!(kept.body, "1", "what never had the path keeps its id");
    assert_eq!(ana.get("/v1/tree/tenants/acme/b").await.ok().body, "2");
    ana.get("/v1/tree/tenants/acme/d/secret").await.error(404);
    let history: History = ana.get("/v1/tree-history/tenants/acme").await.ok().json();
    assert_eq!(history.versions.len(), 3);

    let again: PurgeReceipt = ana.get(&format!("/v1/purges/{}", receipt.id)).await.ok().json();
    // What the salt shows is told to nobody later, and nobody could guess it from what is.
    let salt = receipt.salt.clone().unwrap();
    assert!(salt.len() == 32 && salt.bytes().all(|byte| byte.is_ascii_hexdigit()), "{salt}");
    for (hash, of) in [(&receipt.path_sha256, "/tenants/acme/d/secret"), (&receipt.asked_by_sha256, "ana")] {
        let hashed = |with: &str| sha256(&format!("{with}\n{of}"));
        assert_eq!(*hash, hashed(&salt));
        assert_ne!(*hash, hashed(receipt.id.as_str()));
    }
    assert_eq!(again, PurgeReceipt { salt: None, ..receipt.clone() });
    assert!(!holds(world.folder.path(), &salt), "it is kept nowhere");
    let foreign = world.client("evil", "eve").get(&format!("/v1/purges/{}", receipt.id)).await.error(404);
    let none = world.client("evil", "eve").get("/v1/purges/nonsense").await.error(404);
    assert_eq!((foreign.error, foreign.message), (none.error, none.message));

    // And life goes on, also in the next life of the server.
    let world = World::on(world.stop().await).await;
    let ana = world.admin("acme", "ana");
    ana.get(&format!("/v1/tree/tenants/acme/b?ref={dirty}")).await.error(410);
    ana.put("/v1/tree/tenants/acme/d/secret", "another").await.ok();
    assert_eq!(ana.get("/v1/tree/tenants/acme/d/secret").await.ok().body, "another");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_had_the_path_brings_none_of_it_back() {
    let world = World::new().await;
    let ana = world.admin("acme", "ana");
    version(&ana, "/tenants/acme/d/secret", "canary-of-ana").await;
    version(&ana, "/tenants/acme/d/other", "1").await;
    let (go, wait) = tokio::sync::watch::channel(false);
    world.node.follow(move |order| {
        let mut wait = wait.clone();
        async move {
            wait.wait_for(|go| *go).await.unwrap();
            writes(order, "made", "by the run".to_owned()).await;
        }
    });
    let run = json!({"command": ["true"], "mounts": [{"path": "/tenants/acme/d", "at": "/data"}]}).to_string();
    let going = ana.ask(http::Method::POST, "/v1/runs").body(run).begin().await;
    let run = going.headers()["bailey-run"].to_str().unwrap().to_owned();
    let receipt: PurgeReceipt = purge(&ana, "/tenants/acme/d/secret").await.ok().json();
    assert_eq!(receipt.state, PurgeState::Done, "a run holds back no purge");
    go.send(true).unwrap();
    let events = ana.get(&format!("/v1/runs/{run}/events")).await;
    assert!(matches!(events.last(), RunEventKind::Ended(_)));
    assert_eq!(ana.get("/v1/tree/tenants/acme/d/made").await.ok().body, "by the run");
    assert_eq!(ana.get("/v1/tree/tenants/acme/d/other").await.ok().body, "1");
    ana.get("/v1/tree/tenants/acme/d/secret").await.error(404);
    assert!(!objects(&world, "acme/tenant.git").contains("canary-of-ana"));
}

#[tokio::test(flavor = "multi_thread")]
async fn f23_writers_at_the_edge_of_the_quota_stay_below_it_and_are_told() {
    let quota = TenantQuota { bytes: 40_000, ..TenantQuota::default() };
    let world = World::with(|config| config.storage.quota = quota).await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/first", "1").await.ok();
    let writers = (0..32).map(|n| {
        let (ana, store) = (ana.clone(), if n % 2 == 0 { "acme" } else { "acme/users/ana" });
        async move { ana.put(&format!("/v1/tree/tenants/{store}/f{n}"), format!("{n}").repeat(500)).await }
    });
    let answers = futures_util::future::join_all(writers).await;
    let refused = answers.iter().filter(|answer| answer.status.as_u16() == 507).count();
    assert!(refused > 0 && refused < 32, "{refused}");
    for answer in answers.iter().filter(|answer| answer.status.as_u16() == 507) {
        let error: bailey_protocol::api::ErrorBody = answer.json();
        assert_eq!(error.error, "quota_exceeded");
        assert!(
            error.message.contains("`bytes`") && error.message.contains("over the 40000 allowed"),
            "{}",
            error.message
        );
    }
    let admin = world.admin("acme", "ana");
    let storage: TenantStorage = admin.get("/v1/tenant").await.ok().json();
    assert!(storage.usage.bytes <= 40_000, "{storage:?}");
    assert_eq!(storage.quota, quota);
    ana.get("/v1/tenant").await.error(403);
    // Another tenant has room of its own.
    world.client("beta", "bob").put("/v1/tree/tenants/beta/x", "1").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_changes_exceed_the_quota_says_so() {
    let quota = TenantQuota { bytes: 1500, ..TenantQuota::default() };
    let world = World::with(|config| config.storage.quota = quota).await;
    let ana = world.client("acme", "ana");
    world.node.follow(|order| writes(order, "big", "x".repeat(20_000)));
    let run = json!({"command": ["true"], "mounts": [{"path": "/tenants/acme/d", "at": "/data"}]});
    match ana.run(run).await.last() {
        RunEventKind::Failed { error, message, .. } => {
            assert_eq!(error, "quota_exceeded");
            assert!(message.contains("exited with code 0") && message.contains("`bytes`"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_versions_go_and_answer_410_while_the_newest_stay() {
    let quota = TenantQuota { versions: 2, ..TenantQuota::default() };
    let world = World::with(|config| {
        config.storage.quota = quota;
        (config.storage.tick, config.storage.round) = (Duration::from_millis(30), Duration::from_millis(60));
    })
    .await;
    let ana = world.client("acme", "ana");
    let mut versions = Vec::new();
    for n in 0..5 {
        versions.push(version(&ana, "/tenants/acme/f", &format!("canary-{n}")).await);
    }
    let old = format!("/v1/tree/tenants/acme/f?ref={}", versions[0]);
    wait_until("an old version is gone", async || ana.get(&old).await.status.as_u16() == 410).await;
    assert_eq!(ana.get(&old).await.error(410).error, "version_expired");
    wait_until("its content is gone", async || !objects(&world, "acme/tenant.git").contains("canary-2")).await;
    assert_eq!(ana.get(&format!("/v1/tree/tenants/acme/f?ref={}", versions[3])).await.ok().body, "canary-3");
    let history: History = ana.get("/v1/tree-history/tenants/acme").await.ok().json();
    assert_eq!((history.versions.len(), history.next), (2, None));
    let listing: TreeListing = ana.get("/v1/tree/tenants/acme").await.ok().json();
    assert_eq!(listing.entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sets_a_quota_that_holds_at_once_and_in_the_next_life() {
    let world = World::new().await;
    let (ana, root) = (world.client("acme", "ana"), world.operator());
    let path = "/v1/operator/tenants/acme/quota";
    ana.put("/v1/tree/tenants/acme/x", "1").await.ok();
    let before: TenantStorage = root.get(path).await.ok().json();
    assert_eq!(before.quota, TenantQuota::default());
    let set = |quota: TenantQuota| root.put(path, serde_json::to_string(&quota).unwrap());
    let tight = TenantQuota { bytes: before.usage.bytes, ..TenantQuota::default() };
    set(TenantQuota { versions: 0, ..tight }).await.error(400);
    let answer: TenantStorage = set(tight).await.ok().json();
    assert_eq!((answer.quota, answer.usage), (tight, before.usage));
    assert_eq!(ana.put("/v1/tree/tenants/acme/y", "2").await.error(507).error, "quota_exceeded");
    set(TenantQuota { file_bytes: 3, ..TenantQuota::default() }).await.ok();
    assert_eq!(ana.put("/v1/tree/tenants/acme/y", "1234").await.error(413).error, "quota_exceeded");
    for stranger in [&ana, &world.admin("acme", "ana")] {
        stranger.get(path).await.error(403);
        stranger.put(path, "{}").await.error(403);
    }
    root.get("/v1/tenant").await.error(403);
    set(tight).await.ok();
    let world = World::on(world.stop().await).await;
    let (ana, root) = (world.client("acme", "ana"), world.operator());
    assert_eq!(ana.put("/v1/tree/tenants/acme/y", "2").await.error(507).error, "quota_exceeded");
    let usual: TenantStorage = root.delete(path).await.ok().json();
    assert_eq!(usual.quota, TenantQuota::default());
    ana.put("/v1/tree/tenants/acme/y", "2").await.ok();
    let summary: GcSummary = root.post("/v1/operator/tenants/acme/gc", json!({})).await.ok().json();
    assert_eq!((summary.stores, summary.removed), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_keeps_no_other_purge_from_its_end() {
    let world = World::new().await;
    let mut receipts = Vec::new();
    for tenant in ["acme", "globex"] {
        let ana = world.admin(tenant, "ana");
        version(&ana, &format!("/tenants/{tenant}/f"), "1").await;
        version(&ana, &format!("/tenants/{tenant}/secret"), "1").await;
        receipts.push(purge(&ana, &format!("/tenants/{tenant}/secret")).await.ok().json::<PurgeReceipt>());
    }
    // Both as a crash would leave them, and the first, which comes first, with a branch that cannot be read.
    let folder = world.stop().await;
    let db = rusqlite::Connection::open(folder.path().join("bailey.db")).unwrap();
    assert_eq!(db.execute("UPDATE purges SET done_ms = NULL", []).unwrap(), 2);
    assert_eq!(db.execute("UPDATE refs SET version = 'broken' WHERE tenant = 'acme'", []).unwrap(), 1);
    drop(db);
    let world = World::on_with(folder, |config| config.storage.tick = Duration::from_millis(30)).await;
    let globex = world.admin("globex", "ana");
    wait_until("the other purge is done", async || {
        let path = format!("/v1/purges/{}", receipts[1].id);
        globex.get(&path).await.ok().json::<PurgeReceipt>().state == PurgeState::Done
    })
    .await;
    let path = format!("/v1/purges/{}", receipts[0].id);
    let first: PurgeReceipt = world.admin("acme", "ana").get(&path).await.ok().json();
    assert_ne!(first.state, PurgeState::Done);
    assert!(world.control.upkeep_totals().failures > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn o1_neither_name_nor_content_of_a_purged_path_is_in_any_file() {
    let world = World::new().await;
    let ana = world.admin("acme", "ana");
    let (name, content) = ("canary-name-7f3a", "canary-content-91c2");
    let path = format!("/tenants/acme/d/{name}");
    for round in 0..30 {
        version(&ana, &format!("/tenants/acme/d/other-{round}"), "x").await;
        version(&ana, &path, &format!("{content} {round} {}", "x".repeat(100))).await;
        ana.get(&format!("/v1/tree{path}")).await.ok();
        ana.get(&format!("/v1/tree-history{path}")).await.ok();
    }
    version(&ana, &format!("{path}-neighbour"), "kept").await;
    let label = json!({"labels": ["confidential"]}).to_string();
    ana.ask(http::Method::PUT, &format!("/v1/labels{path}")).body(label).answer().await.ok();
    copy(&ana, &path, "/tenants/acme/e/copy", false).await.ok();
    ana.delete(&format!("/v1/tree{path}")).await.ok();
    // The same content under another path is that path's.
    purge(&ana, "/tenants/acme/e").await.ok();
    let everywhere = world.folder.path().to_owned();
    assert!(holds(&everywhere, name), "the test would find it");
    // A neighbour whose name begins so is another path; it goes first, so that nothing has the name any more.
    purge(&ana, &format!("{path}-neighbour")).await.ok();
    let receipt: PurgeReceipt = purge(&ana, &path).await.ok().json();
    assert_eq!(receipt.state, PurgeState::Done);
    for canary in [name, content] {
        assert!(!objects(&world, "acme/tenant.git").contains(canary), "{canary}");
        assert!(!holds(&everywhere, canary), "{canary} is in a file");
    }
    let folder = world.stop().await;
    for canary in [name, content] {
        assert!(!holds(folder.path(), canary), "{canary} is in a file after the end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_versions_name_no_path() {
    let world = World::new().await;
    let ana = world.admin("acme", "ana");
    version(&ana, "/tenants/acme/d/secret", "1").await;
    for moves in [false, true] {
        copy(&ana, "/tenants/acme/d/secret", &format!("/tenants/acme/d/secret-{moves}"), moves).await.ok();
    }
    ana.delete("/v1/tree/tenants/acme/d").await.ok();
    let history: History = ana.get("/v1/tree-history/tenants/acme").await.ok().json();
    assert!(history.versions.len() > 1);
    for version in history.versions {
        assert!(!version.message.contains('/') && !version.message.contains("secret"), "{}", version.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f20_a_purge_takes_a_path_off_no_branch_on_which_it_may_not_be_deleted() {
    let rules = r#"@id("release-stays") forbid (principal, action == Action::"tree_delete", resource)
        when { context.branch == "release" };"#;
    let policies = bailey_policy::Policies::new(&[("operator.cedar".to_owned(), rules.to_owned())]).unwrap();
    let world = World::under(policies).await;
    let ana = world.admin("acme", "ana");
    version(&ana, "/tenants/acme/d/early", "1").await;
    let fork = |branch: &str| ana.post("/v1/forks", json!({"path": "/tenants/acme", "branch": branch}));
    fork("release").await.ok();
    version(&ana, "/tenants/acme/d/late", "1").await;
    fork("draft").await.ok();
    assert_eq!(purge(&ana, "/tenants/acme/d/early").await.error(403).policies, ["release-stays"]);
    assert_eq!(purge(&ana, "/tenants/acme/d").await.error(403).policies, ["release-stays"]);
    ana.get("/v1/tree/tenants/acme/d/early").await.ok();
    // What that branch never had is none of its concern.
    purge(&ana, "/tenants/acme/d/late").await.ok();
    ana.get("/v1/tree/tenants/acme/d/late?ref=draft").await.error(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_and_writers_at_once_lose_nothing_and_bring_nothing_back() {
    let world = World::new().await;
    let ana = world.admin("acme", "ana");
    for n in 0..40 {
        version(&ana, "/tenants/acme/d/secret", &format!("canary-of-ana {n}")).await;
    }
    let writers = (0..8).map(|writer| {
        let ana = ana.clone();
        async move {
            for n in 0..10 {
                let path = format!("/v1/tree/tenants/acme/w{writer}/f{n}");
                // One that had begun on what was purged then is told so, and writes again.
                while !ana.put(&path, "1").await.status.is_success() {}
            }
        }
    });
    let purges = (0..3).map(|_| purge(&ana, "/tenants/acme/d/secret"));
    let (_written, purged) =
        tokio::join!(futures_util::future::join_all(writers), futures_util::future::join_all(purges));
    let done = purged.iter().filter(|answer| answer.status.is_success()).count();
    assert_eq!(done, 1, "the others find nothing any more: {purged:?}");
    for writer in 0..8 {
        let listing: TreeListing = ana.get(&format!("/v1/tree/tenants/acme/w{writer}")).await.ok().json();
        assert_eq!(listing.entries.len(), 10);
    }
    let history: History = ana.get("/v1/tree-history/tenants/acme?limit=500").await.ok().json();
    for version in &history.versions {
        ana.get(&format!("/v1/tree/tenants/acme/d/secret?ref={}", version.version)).await.error(404);
    }
    let id = purged.iter().find(|answer| answer.status.is_success()).unwrap().json::<PurgeReceipt>().id;
    wait_until("the purge is done", async || {
        ana.get(&format!("/v1/purges/{id}")).await.ok().json::<PurgeReceipt>().state == PurgeState::Done
    })
    .await;
    assert!(!objects(&world, "acme/tenant.git").contains("canary-of-ana"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_read_while_a_purge_is_pending_is_shut_and_no_other() {
    let world = World::new().await;
    for tenant in ["acme", "globex"] {
        let ana = world.admin(tenant, "ana");
        version(&ana, &format!("/tenants/{tenant}/f"), "1").await;
        version(&ana, &format!("/tenants/{tenant}/secret"), "1").await;
        purge(&ana, &format!("/tenants/{tenant}/secret")).await.ok();
    }
    let folder = world.stop().await;
    let db = rusqlite::Connection::open(folder.path().join("bailey.db")).unwrap();
    db.execute("UPDATE purges SET done_ms = NULL WHERE tenant = 'acme'", []).unwrap();
    drop(db);
    let list = folder.path().join("trees/acme/tenant.git/bailey-purged");
    let good = std::fs::read(&list).unwrap();
    std::fs::write(&list, "no id\n").unwrap();

    let world = World::on_with(folder, |config| config.storage.tick = Duration::from_millis(30)).await;
    let (acme, globex, root) = (world.admin("acme", "ana"), world.admin("globex", "ana"), world.operator());
    globex.get("/v1/tree/tenants/globex/f").await.ok();
    let refused = acme.get("/v1/tree/tenants/acme/f").await.error(503);
    assert_eq!(refused.error, "store_shut", "{}", refused.message);
    assert_eq!(acme.put("/v1/tree/tenants/acme/f", "2").await.error(503).error, "store_shut");
    assert_eq!(root.get("/readyz").await.ok().body, "ok\nstores: 1 shut\n");
    let metrics = String::from_utf8(root.get("/metrics").await.ok().body.to_vec()).unwrap();
    assert!(metrics.contains("\nbailey_stores_shut 1\n"));

    std::fs::write(&list, good).unwrap();
    wait_until("the store is open again", async || acme.get("/v1/tree/tenants/acme/f").await.status.is_success()).await;
    assert_eq!(root.get("/readyz").await.ok().body, "ok\n");
    let db = rusqlite::Connection::open(world.folder.path().join("bailey.db")).unwrap();
    let mut rows = db.prepare("SELECT outcome, resource FROM audit WHERE action = 'store' ORDER BY seq").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    let row = |outcome: &str| (outcome.to_owned(), "/tenants/acme".to_owned());
    assert_eq!(rows, [row("shut"), row("opened")]);
}
