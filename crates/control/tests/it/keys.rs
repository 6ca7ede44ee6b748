//! API keys.

use std::time::{Duration, Instant};

use bailey_protocol::api::identity::{KeyCreated, KeyList};
use bailey_protocol::api::{RunAccepted, RunEventKind};
use bailey_protocol::node::Ending;
use http::Method;
use serde_json::{Value, json};

use crate::client::Client;
use crate::node::until_cancelled;
use crate::world::World;

async fn create(admin: &Client, fields: Value) -> KeyCreated {
    let mut body = json!({"name": "ci", "ttl_seconds": 600});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    let answer = admin.post("/v1/keys", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

#[tokio::test]
async fn a_key_is_what_sdks_expect_and_stands_for_its_creator() {
    let world = World::new().await;
    let admin = world.admin("acme", "ana");
    let made = create(&admin, json!({})).await;
    let digits = made.value.strip_prefix("e2b_").unwrap();
    assert!(digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{made:?}");
    assert_eq!((made.key.user.as_str(), made.key.creator.as_str()), ("ana", "ana"));
    let key = world.holder(&made.value);
    key.put("/v1/tree/tenants/acme/users/ana/x", "1").await.ok();
    // The header that E2B's clients use says the same.
    let nobody = Client { address: world.address, token: None };
    nobody.ask(Method::GET, "/v1/runs").header("x-api-key", &made.value).answer().await.ok();
    for headers in [
        &[("x-api-key", made.value.as_str()), ("x-api-key", made.value.as_str())][..],
        &[("x-api-key", made.value.as_str()), ("authorization", "Bearer x")],
        &[("x-api-key", "e2b_00"), ("x-api-key", made.value.as_str())],
        &[("x-api-key", admin.token.as_deref().unwrap())],
        &[("x-api-key", "")],
    ] {
        let mut asking = nobody.ask(Method::GET, "/v1/runs");
        for (name, value) in headers {
            asking = asking.header(name, value);
        }
        asking.answer().await.error(401);
    }
    let wrong = made.value.replace(digits, &digits.chars().rev().collect::<String>());
    for bad in [&wrong, &made.value.to_uppercase(), "e2b_", &format!("{}0", made.value), &made.value[..43]] {
        assert_eq!(world.holder(bad).get("/v1/runs").await.error(401).error, "token_invalid", "{bad}");
    }
    // What a key stands for has no role that was not named, and makes no keys.
    key.get("/v1/users").await.error(403);
    let list: KeyList = admin.get("/v1/keys").await.ok().json();
    assert!(list.keys.len() == 1 && list.keys[0].last_used_ms.is_some(), "{list:?}");
    // Its value is nowhere: not in an answer, not on the disk.
    let folder = world.stop().await;
    let db = std::fs::read(folder.path().join("bailey.db")).unwrap();
    for secret in [made.value.as_bytes(), digits.as_bytes()] {
        assert!(!db.windows(secret.len()).any(|window| window == secret));
    }
}

#[tokio::test]
async fn a_key_gives_no_more_than_its_creator_has() {
    let world = World::new().await;
    let admin = world.admin("acme", "ana");
    let refused = async |fields: Value, status: u16| {
        let mut body = json!({"name": "ci", "ttl_seconds": 600});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        admin.post("/v1/keys", body).await.error(status).error
    };
    assert_eq!(refused(json!({"roles": ["root"]}), 403).await, "beyond_creator");
    assert_eq!(refused(json!({"roles": ["Not A Role"]}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"entitlements": ["everything"]}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"actions": ["tree_everything"]}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"paths": ["/tenants/globex"]}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"paths": []}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"user": "bob"}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"name": " "}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"ttl_seconds": 0}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"ttl_seconds": 1u64 << 40}), 400).await, "invalid_key");
    assert_eq!(refused(json!({"tenant": "globex"}), 400).await, "unknown_field");
    // Keys are made by admins, and not by keys, whatever their role.
    let plain = world.client("acme", "bob").post("/v1/keys", json!({"name": "x", "ttl_seconds": 60})).await;
    assert_eq!(plain.error(403).policies, ["admins-only"]);
    let all = json!({"roles": ["admin"], "actions": ["key_create", "key_list"]});
    let key = world.holder(&create(&admin, all).await.value);
    key.get("/v1/keys").await.ok();
    let made = key.post("/v1/keys", json!({"name": "x", "ttl_seconds": 60})).await;
    assert_eq!(made.error(403).error, "key_by_key");
    // A machine's user is nobody that a token can name.
    let machine = create(&admin, json!({"user": "+ci"})).await;
    world.holder(&machine.value).put("/v1/tree/tenants/acme/users/+ci/x", "1").await.ok();
    world.holder(&machine.value).get("/v1/tree/tenants/acme/users/ana/x").await.error(403);
}

#[tokio::test]
async fn what_a_key_may_not_delete_it_does_not_delete_by_a_restore_or_a_promotion_either() {
    let world = World::new().await;
    let admin = world.admin("acme", "ana");
    let wrote = admin.put("/v1/tree/tenants/acme/d/a", "1").await.ok();
    let first = wrote.json::<Value>()["version"].as_str().unwrap().to_owned();
    admin.put("/v1/tree/tenants/acme/d/b", "1").await.ok();
    admin.post("/v1/forks", json!({"path": "/tenants/acme", "branch": "draft"})).await.ok();
    admin.delete("/v1/tree/tenants/acme/d/b?ref=draft").await.ok();
    let actions = ["tree_read", "tree_list", "tree_write", "tree_promote"];
    let key = world.holder(&create(&admin, json!({"actions": actions})).await.value);
    let back = json!({"path": "/tenants/acme/d", "from_version": first});
    let promotion = json!({"path": "/tenants/acme", "from": "draft", "into": "main"});
    for answer in
        [key.post("/v1/tree-restore", back.clone()).await, key.post("/v1/promotions", promotion.clone()).await]
    {
        assert_eq!(answer.error(403).policies, ["credential-scope"]);
    }
    admin.get("/v1/tree/tenants/acme/d/b").await.ok();
    let actions = ["tree_read", "tree_list", "tree_write", "tree_promote", "tree_delete"];
    let key = world.holder(&create(&admin, json!({"actions": actions})).await.value);
    key.post("/v1/promotions", promotion).await.ok();
    admin.get("/v1/tree/tenants/acme/d/b").await.error(404);
}

#[tokio::test]
async fn a_key_is_for_its_actions_and_paths_alone() {
    let world = World::new().await;
    let admin = world.admin("acme", "ana");
    admin.put("/v1/tree/tenants/acme/docs/a", "1").await.ok();
    admin.put("/v1/tree/tenants/acme/docsx/a", "1").await.ok();
    let docs = create(&admin, json!({"paths": ["/tenants/acme/docs"], "actions": ["tree_read", "tree_write"]})).await;
    let docs = world.holder(&docs.value);
    docs.get("/v1/tree/tenants/acme/docs/a").await.ok();
    docs.put("/v1/tree/tenants/acme/docs/b", "2").await.ok();
    let narrowed = |answer: &crate::client::Answer| {
        assert_eq!(answer.error(403).policies, ["credential-scope"]);
    };
    narrowed(&docs.get("/v1/tree/tenants/acme/docsx/a").await);
    narrowed(&docs.get("/v1/tree/tenants/acme/users/ana/x").await);
    narrowed(&docs.delete("/v1/tree/tenants/acme/docs/a").await);
    narrowed(&docs.run(json!({"command": ["true"]})).await);
    docs.get("/v1/tree/tenants/globex/docs/a").await.error(403);
    let reader = create(&admin, json!({"read_only": true})).await;
    let reader = world.holder(&reader.value);
    reader.get("/v1/tree/tenants/acme/docs/a").await.ok();
    narrowed(&reader.put("/v1/tree/tenants/acme/docs/a", "x").await);
    let few = create(&admin, json!({"entitlements": ["tree"]})).await;
    let answer = world.holder(&few.value).run(json!({"command": ["true"]})).await;
    assert_eq!(answer.error(403).policies, ["entitled-to-execute"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a10_a_revoked_key_ends_what_goes_on_by_it_and_an_expired_one_too() {
    let world = World::new().await;
    world.node.follow(until_cancelled);
    let admin = world.admin("acme", "ana");
    let made = create(&admin, json!({})).await;
    let key = world.holder(&made.value);
    let detached = json!({"command": ["sleep", "9"], "detach": true});
    let run = key.run(detached.clone()).await.json::<RunAccepted>().run;
    let other = admin.run(detached).await.json::<RunAccepted>().run;
    admin.delete(&format!("/v1/keys/{}", made.key.id)).await.ok();
    let begin = Instant::now();
    assert_eq!(key.get("/v1/runs").await.error(401).error, "token_invalid");
    match admin.get(&format!("/v1/runs/{run}/events")).await.last() {
        RunEventKind::Ended(result) => assert_eq!(result.ending, Ending::Cancelled),
        other => panic!("{other:?}"),
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    // Its user's other things go on.
    assert!(String::from_utf8_lossy(&admin.get(&format!("/v1/runs/{other}")).await.ok().body).contains("running"));
    let brief = create(&admin, json!({"ttl_seconds": 1})).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    world.holder(&brief.value).get("/v1/runs").await.error(401);
}

#[tokio::test]
async fn t01_another_tenants_key_is_no_key() {
    let world = World::new().await;
    let (acme, globex) = (world.admin("acme", "ana"), world.admin("globex", "gil"));
    let made = create(&acme, json!({})).await;
    let mut all = Vec::new();
    for id in [made.key.id.as_str(), "key_00000000000000000000000000", "key_x", "%2e%2e"] {
        let error = globex.delete(&format!("/v1/keys/{id}")).await.error(404);
        all.push((error.error, error.message, error.hint));
    }
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(globex.get("/v1/keys").await.json::<KeyList>().keys.is_empty());
    world.holder(&made.value).get("/v1/runs").await.ok();
    // Revoking is done once and stays done.
    acme.delete(&format!("/v1/keys/{}", made.key.id)).await.ok();
    acme.delete(&format!("/v1/keys/{}", made.key.id)).await.ok();
    let list: KeyList = acme.get("/v1/keys").await.json();
    assert!(list.keys[0].revoked_ms.is_some());
}

#[tokio::test]
async fn a_key_has_no_right_that_its_creator_lost() {
    let world = World::new().await;
    let boss = world.admin("acme", "boss");
    let asked = json!({"name": "ci", "ttl_seconds": 3600, "roles": ["admin"], "actions": ["user_list", "run_list"]});
    let made: serde_json::Value = boss.post("/v1/keys", asked).await.ok().json();
    let key = made["value"].as_str().unwrap();
    world.holder(key).get("/v1/users").await.ok();
    // The issuer says that it is no admin any more.
    world.pass(Duration::from_secs(1));
    world.client_as("acme", "boss", &["member"]).get("/v1/runs").await.ok();
    world.holder(key).get("/v1/users").await.error(403);
    world.holder(key).get("/v1/runs").await.ok();
    // That is known after a restart as well.
    world.admin("acme", "other").get("/v1/users").await.ok();
    let world = World::on(world.stop().await).await;
    world.holder(key).get("/v1/users").await.error(403);
    // And lasts until it is one again.
    world.pass(Duration::from_secs(2));
    world.admin("acme", "boss").get("/v1/runs").await.ok();
    world.holder(key).get("/v1/users").await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t01_a_key_for_a_path_sees_the_runs_within_it_and_its_own_alone() {
    let world = World::with(|config| config.runs.per_tenant = 6).await;
    world.node.follow(until_cancelled);
    let admin = world.admin("acme", "ana");
    for path in ["docs/a", "docs/deep/b", "other/a", "docsx/a"] {
        admin.put(&format!("/v1/tree/tenants/acme/{path}"), "1").await.ok();
    }
    let start = async |client: &Client, paths: &[&str]| {
        let mount =
            |(at, path): (usize, &&str)| json!({"path": format!("/tenants/acme/{path}"), "at": format!("/m{at}")});
        let mounts: Vec<Value> = paths.iter().enumerate().map(mount).collect();
        let answer = client.run(json!({"command": ["sleep", "9"], "detach": true, "mounts": mounts})).await.ok();
        answer.json::<RunAccepted>().run.to_string()
    };
    let within = [start(&admin, &["docs"]).await, start(&admin, &["docs/deep"]).await];
    let narrow = world.holder(&create(&admin, json!({"paths": ["/tenants/acme/docs"]})).await.value);
    let own = start(&narrow, &[]).await;
    // One with another folder beside, one without mounts, one of a folder whose name begins the same.
    let hidden = [start(&admin, &["docs", "other"]).await, start(&admin, &[]).await, start(&admin, &["docsx"]).await];
    let listed = async |client: &Client, query: &str| {
        let list = client.get(&format!("/v1/runs{query}")).await.ok().json::<bailey_protocol::api::RunList>();
        (list.runs.iter().map(|run| run.run.to_string()).collect::<Vec<_>>(), list.next)
    };
    assert_eq!(listed(&narrow, "").await.0, [&own, &within[1], &within[0]].map(String::clone));
    assert_eq!(listed(&admin, "").await.0.len(), 6);
    // Page by page it sees the same: a page may be empty while there are more.
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let (runs, next) = listed(&narrow, &format!("?limit=1{after}")).await;
        all.extend(runs);
        let Some(next) = next else { break };
        after = format!("&after={next}");
    }
    assert_eq!(all, [&own, &within[1], &within[0]].map(String::clone));
    for run in &hidden {
        for answer in [
            narrow.get(&format!("/v1/runs/{run}")).await,
            narrow.get(&format!("/v1/runs/{run}/events")).await,
            narrow.post(&format!("/v1/runs/{run}/cancel"), json!({})).await,
        ] {
            assert_eq!(answer.error(403).policies, ["credential-scope"], "{run}");
        }
        let state = admin.get(&format!("/v1/runs/{run}")).await.ok();
        assert!(String::from_utf8_lossy(&state.body).contains("running"), "{run} was cancelled");
    }
    for run in within.iter().chain([&own]) {
        narrow.get(&format!("/v1/runs/{run}")).await.ok();
        narrow.post(&format!("/v1/runs/{run}/cancel"), json!({})).await.ok();
        narrow.get(&format!("/v1/runs/{run}/events")).await.last();
    }
    // Another key of the same paths does not get at what the first one brought along; one for every path does.
    let twin = world.holder(&create(&admin, json!({"paths": ["/tenants/acme/docs"]})).await.value);
    assert_eq!(twin.get(&format!("/v1/runs/{own}")).await.error(403).policies, ["credential-scope"]);
    world.holder(&create(&admin, json!({})).await.value).get(&format!("/v1/runs/{own}")).await.ok();
    // To explain is about more than paths.
    let asked = json!({"action": "run_read", "run": hidden[1]});
    assert_eq!(narrow.post("/v1/explain", asked).await.error(403).policies, ["credential-scope"]);
}

#[tokio::test]
async fn a_key_sees_no_run_of_its_paths_whose_mounts_were_purged_from_the_record() {
    let world = World::new().await;
    world.node.follow(crate::node::quick);
    let admin = world.admin("acme", "ana");
    admin.put("/v1/tree/tenants/acme/docs/canary-5be1/a", "1").await.ok();
    let made = create(&admin, json!({"paths": ["/tenants/acme/docs"]})).await;
    let key = world.holder(&made.value);
    let mounts = json!([{"path": "/tenants/acme/docs/canary-5be1", "at": "/m"}]);
    let asked = json!({"command": ["true"], "mounts": mounts});
    let run = admin.run(asked.clone()).await.ok().header("bailey-run").to_owned();
    let own = key.run(asked).await.ok().header("bailey-run").to_owned();
    key.get(&format!("/v1/runs/{run}")).await.ok();
    admin.post("/v1/purges", json!({"path": "/tenants/acme/docs/canary-5be1"})).await.ok();
    key.get(&format!("/v1/runs/{run}")).await.error(403);
    key.get(&format!("/v1/runs/{own}")).await.ok();
    let db = std::fs::read(world.stop().await.path().join("bailey.db")).unwrap();
    assert!(!db.windows(11).any(|window| window == b"canary-5be1"));
}

/// A key under another name is its maker's hand.
#[tokio::test]
async fn a_reviewed_branch_takes_nothing_from_its_author_by_a_key_under_another_name() {
    const TENANT: &str = "/tenants/acme";
    let world = World::new().await;
    let (ana, rita) = (world.admin("acme", "ana"), world.admin("acme", "rita"));
    let put = async |client: &Client, branch: &str, content: &'static str| {
        client.put(&format!("/v1/tree/tenants/acme/f?ref={branch}"), content).await.ok();
    };
    let fork = async |client: &Client, branch: &str| {
        client.post("/v1/forks", json!({"path": TENANT, "branch": branch})).await.ok();
    };
    let promote = async |client: &Client, from: &str| {
        client.post("/v1/promotions", json!({"path": TENANT, "from": from, "into": "main"})).await
    };
    put(&ana, "main", "1").await;
    rita.ask(Method::PUT, "/v1/protections/tenants/acme?branch=main&review=true").answer().await.ok();
    let key = async |maker: &Client, name: &str| {
        let actions = ["tree_read", "tree_write", "tree_fork", "tree_promote"];
        world.holder(&create(maker, json!({"user": name, "actions": actions})).await.value)
    };
    let (hers, other, foreign) = (key(&ana, "+ci").await, key(&ana, "+bot").await, key(&rita, "+rita").await);
    // Her work, and her keys': whoever of them wrote, none of them promotes.
    fork(&ana, "draft").await;
    put(&ana, "draft", "2").await;
    fork(&hers, "by-key").await;
    put(&hers, "by-key", "3").await;
    for (who, from) in [(&hers, "draft"), (&ana, "draft"), (&ana, "by-key"), (&hers, "by-key"), (&other, "by-key")] {
        assert_eq!(promote(who, from).await.error(403).error, "review_required", "{from}");
    }
    promote(&foreign, "by-key").await.ok();
    assert_eq!(ana.get("/v1/tree/tenants/acme/f").await.ok().body, "3");
}
