//! Tree tokens, and what operators publish for everybody.

use std::time::Duration;

use bailey_policy::Entitlement;
use bailey_protocol::api::{BaselineInfo, BaselineList, BranchInfo, TreeTokenList, TreeTokenMade};
use bailey_tree::archive::TarWriter;
use http::Method;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::world::World;

async fn share(client: &Client, path: &str, mode: &str, minutes: u32) -> Answer {
    client.post("/v1/tree-tokens", json!({"path": path, "mode": mode, "minutes": minutes})).await
}

async fn token(world: &World, client: &Client, path: &str, mode: &str) -> (TreeTokenMade, Client) {
    let made: TreeTokenMade = share(client, path, mode, 5).await.ok().json();
    assert!(made.token.starts_with("blt_") && made.token.len() == 44, "the shape that scanners look for");
    let holder = world.holder(&made.token);
    (made, holder)
}

async fn read(client: &Client, path: &str) -> Answer {
    client.get(&format!("/v1/tree{path}")).await
}

#[tokio::test]
async fn a_tree_token_opens_its_path_in_its_mode_and_nothing_else() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    for path in ["a/x", "ab/x", "b/x"] {
        ana.put(&format!("/v1/tree/tenants/acme/{path}"), "1").await.ok();
    }
    ana.put("/v1/tree/tenants/acme/users/ana/x", "1").await.ok();
    let (_, reader) = token(&world, &ana, "/tenants/acme/a", "read").await;
    let (_, writer) = token(&world, &ana, "/tenants/acme/a", "write").await;
    for holder in [&reader, &writer] {
        assert_eq!(read(holder, "/tenants/acme/a/x").await.ok().body, "1");
        holder.get("/v1/tree/tenants/acme/a").await.ok();
        holder.get("/v1/tree-history/tenants/acme/a/x").await.ok();
        for path in ["/tenants/acme", "/tenants/acme/ab/x", "/tenants/acme/b/x", "/tenants/acme/users/ana/x"] {
            assert_eq!(read(holder, path).await.error(403).policies, ["credential-scope"], "{path}");
        }
        read(holder, "/tenants/globex/x").await.error(403);
        // Nothing but files: no runs, no branches, no further tokens.
        let mounts = json!([{"path": "/tenants/acme/a", "at": "/d"}]);
        holder.run(json!({"command": ["true"]})).await.error(403);
        holder.run(json!({"command": ["true"], "mounts": mounts})).await.error(403);
        holder.get("/v1/runs").await.error(403);
        holder.post("/v1/forks", json!({"path": "/tenants/acme", "branch": "x"})).await.error(403);
        holder.post("/v1/promotions", json!({"path": "/tenants/acme", "from": "x", "into": "main"})).await.error(403);
        let label = holder.ask(Method::PUT, "/v1/labels/tenants/acme/a").body(json!({"labels": []}).to_string());
        label.answer().await.error(403);
        share(holder, "/tenants/acme/a", "read", 5).await.error(403);
        holder.get("/v1/tree-tokens").await.error(403);
        holder.get("/v1/keys").await.error(403);
    }
    assert_eq!(reader.put("/v1/tree/tenants/acme/a/x", "2").await.error(403).policies, ["credential-scope"]);
    reader.delete("/v1/tree/tenants/acme/a/x").await.error(403);
    writer.put("/v1/tree/tenants/acme/a/y", "2").await.ok();
    writer.delete("/v1/tree/tenants/acme/a/y").await.ok();
    writer.put("/v1/tree/tenants/acme/b/y", "2").await.error(403);
}

#[tokio::test]
async fn what_is_no_tree_token_is_refused() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    for (path, minutes, status) in [
        ("/tenants/acme/a", 0, 400),
        ("/tenants/acme/a", 1441, 400),
        ("/tenants/globex/a", 5, 403),
        ("/tenants/acme/users/bob/a", 5, 403),
    ] {
        share(&ana, path, "read", minutes).await.error(status);
    }
    share(&ana, "/tenants/acme/a", "both", 5).await.error(400);
    let poor = world.client_with("acme", "pia", &[Entitlement::Tree]);
    assert_eq!(share(&poor, "/tenants/acme/a", "read", 5).await.error(403).policies, ["entitled-to-keys"]);
    let (made, _) = token(&world, &ana, "/tenants/acme/a", "read").await;
    let digits = made.token.strip_prefix("blt_").unwrap();
    for wrong in [
        format!("blt_{}", "0".repeat(40)),
        format!("blt_{}", digits.to_uppercase()),
        format!("blt_{digits}0"),
        format!("e2b_{digits}"),
        "blt_".to_owned(),
        made.about.id.to_string(),
    ] {
        read(&world.holder(&wrong), "/tenants/acme/a").await.error(401);
    }
    // In a query it would be in every log on the way.
    let nobody = Client { address: world.address, token: None };
    nobody.get(&format!("/v1/tree/tenants/acme/a?token={}", made.token)).await.error(401);
}

#[tokio::test]
async fn c18_a_tree_token_is_no_more_than_its_user_is_now() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/a/x", "1").await.ok();
    let (_, holder) = token(&world, &ana, "/tenants/acme/a", "write").await;
    read(&holder, "/tenants/acme/a/x").await.ok();
    // The user is seen with less, and then again with all of it.
    world.pass(Duration::from_secs(1));
    world.client_with("acme", "ana", &[Entitlement::Execute]).get("/v1/runs").await.ok();
    assert_eq!(read(&holder, "/tenants/acme/a/x").await.error(403).policies, ["entitled-to-tree"]);
    world.pass(Duration::from_secs(1));
    world.client("acme", "ana").get("/v1/runs").await.ok();
    read(&holder, "/tenants/acme/a/x").await.ok();
    // Somebody else of the same name, and somebody else, change nothing.
    world.client_with("globex", "ana", &[Entitlement::Execute]).get("/v1/runs").await.ok();
    world.client_with("acme", "bob", &[Entitlement::Execute]).get("/v1/runs").await.ok();
    read(&holder, "/tenants/acme/a/x").await.ok();
    let admin = world.admin("acme", "root");
    admin.post("/v1/users/ana/disable", json!({})).await.ok();
    assert_eq!(read(&holder, "/tenants/acme/a/x").await.error(403).error, "user_disabled");
    admin.post("/v1/users/ana/enable", json!({})).await.ok();
    read(&holder, "/tenants/acme/a/x").await.ok();
}

#[tokio::test]
async fn a_tree_token_ends_when_it_is_revoked_and_outlives_a_restart() {
    let world = World::new().await;
    let (ana, bob) = (world.client("acme", "ana"), world.client("acme", "bob"));
    ana.put("/v1/tree/tenants/acme/a/x", "1").await.ok();
    let (made, _) = token(&world, &ana, "/tenants/acme/a", "read").await;
    let (other, _) = token(&world, &ana, "/tenants/acme/a/x", "write").await;
    let list: TreeTokenList = ana.get("/v1/tree-tokens").await.ok().json();
    assert_eq!(list.tokens, [other.about.clone(), made.about.clone()]);
    assert!(bob.get("/v1/tree-tokens").await.ok().json::<TreeTokenList>().tokens.is_empty());
    for id in [made.about.id.as_str(), "tok_00000000000000000000000000", "x"] {
        bob.delete(&format!("/v1/tree-tokens/{id}")).await.error(404);
        world.client("globex", "ana").delete(&format!("/v1/tree-tokens/{id}")).await.error(404);
    }
    let folder = world.stop().await;
    // Nothing on disk opens anything.
    let database = std::fs::read(folder.path().join("bailey.db")).unwrap();
    assert!(!database.windows(44).any(|piece| piece == made.token.as_bytes()));
    let world = World::on(folder).await;
    let ana = world.client("acme", "ana");
    read(&world.holder(&made.token), "/tenants/acme/a/x").await.ok();
    ana.delete(&format!("/v1/tree-tokens/{}", made.about.id)).await.ok();
    read(&world.holder(&made.token), "/tenants/acme/a/x").await.error(401);
    read(&world.holder(&other.token), "/tenants/acme/a/x").await.ok();
    ana.delete(&format!("/v1/tree-tokens/{}", made.about.id)).await.error(404);
    let folder = world.stop().await;
    let world = World::on(folder).await;
    read(&world.holder(&made.token), "/tenants/acme/a/x").await.error(401);
}

/// To take back what was handed out takes less than to hand it out; of another user, the right to revoke keys.
#[tokio::test]
async fn tokens_are_taken_back_by_their_user_without_the_right_to_share_and_by_admins() {
    let world = World::new().await;
    let (ana, bob, root) = (world.client("acme", "ana"), world.client("acme", "bob"), world.admin("acme", "root"));
    ana.put("/v1/tree/tenants/acme/a/x", "1").await.ok();
    let (first, holder) = token(&world, &ana, "/tenants/acme/a", "read").await;
    let (second, other) = token(&world, &ana, "/tenants/acme/users/ana", "read").await;
    let poor = world.client_with("acme", "ana", &[]);
    assert_eq!(share(&poor, "/tenants/acme/a", "read", 5).await.status, 403);
    assert_eq!(poor.get("/v1/tree-tokens").await.ok().json::<TreeTokenList>().tokens.len(), 2);
    poor.delete(&format!("/v1/tree-tokens/{}", first.about.id)).await.ok();
    read(&holder, "/tenants/acme/a/x").await.error(401);
    for client in [&bob, &world.admin("globex", "root")] {
        client.delete(&format!("/v1/tree-tokens/{}", second.about.id)).await.error(404);
    }
    assert_eq!(bob.get("/v1/tree-tokens?user=ana").await.error(403).policies, ["admins-only"]);
    let told: TreeTokenList = root.get("/v1/tree-tokens?user=ana").await.ok().json();
    assert_eq!(told.tokens.iter().map(|token| &token.id).collect::<Vec<_>>(), [&second.about.id]);
    assert!(
        world
            .admin("globex", "root")
            .get("/v1/tree-tokens?user=ana")
            .await
            .ok()
            .json::<TreeTokenList>()
            .tokens
            .is_empty()
    );
    root.delete(&format!("/v1/tree-tokens/{}", second.about.id)).await.ok();
    read(&other, "/tenants/acme/users/ana").await.error(401);
    assert!(ana.get("/v1/tree-tokens").await.ok().json::<TreeTokenList>().tokens.is_empty());
}

pub fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = TarWriter::new(Vec::new(), 0);
    for (path, content) in files {
        tar.file(path.as_bytes(), false, content.len() as u64, &mut content.as_bytes()).unwrap();
    }
    tar.finish().unwrap()
}

pub async fn publish(client: &Client, name: &str, content: Vec<u8>) -> Answer {
    client
        .ask(Method::POST, &format!("/v1/operator/baselines/{name}"))
        .header("content-type", "application/x-tar")
        .body(content)
        .answer()
        .await
}

#[tokio::test]
async fn a_baseline_is_forked_by_every_tenant_into_a_copy_of_its_own() {
    let world = World::new().await;
    let root = world.operator();
    let first: BaselineInfo = publish(&root, "starter", tar(&[("src/a", "1"), (".git/x", "1")])).await.ok().json();
    let second: BaselineInfo = publish(&root, "starter", tar(&[("src/a", "2")])).await.ok().json();
    publish(&root, "other", tar(&[("o", "1")])).await.ok();
    assert_eq!((first.number, second.number), (1, 2));
    let mut heads = Vec::new();
    for (tenant, user, path) in [
        ("acme", "ana", "/tenants/acme"),
        ("globex", "eve", "/tenants/globex"),
        ("globex", "eve", "/tenants/globex/users/eve"),
    ] {
        let client = world.client(tenant, user);
        let list: BaselineList = client.get("/v1/baselines").await.ok().json();
        let names: Vec<_> = list.baselines.iter().map(|info| format!("{}@{}", info.name, info.number)).collect();
        assert_eq!(names, ["other@1", "starter@2", "starter@1"]);
        let fork = |branch: &'static str, from: &'static str| {
            let (client, body) = (client.clone(), json!({"path": path, "branch": branch, "from": from}));
            async move { client.post("/v1/forks", body).await }
        };
        let made: BranchInfo = fork("old", "baseline:starter@1").await.ok().json();
        fork("main", "baseline:starter").await.ok();
        fork("main", "baseline:starter").await.error(409);
        fork("x", "baseline:starter@3").await.error(404);
        assert_eq!(read(&client, &format!("{path}/src/a?ref=old")).await.ok().body, "1");
        assert_eq!(read(&client, &format!("{path}/.git/x?ref=old")).await.ok().body, "1");
        assert_eq!(read(&client, &format!("{path}/src/a")).await.ok().body, "2");
        client.put(&format!("/v1/tree{path}/src/a?ref=old"), "mine").await.ok();
        heads.push(made.version);
    }
    assert!(heads.iter().all(|head| *head == heads[0]), "equal content is an equal version");
    assert_eq!(read(&world.client("globex", "eve"), "/tenants/globex/src/a").await.ok().body, "2");
    // The copy needs the original no more, and no path of a tenant leads to it.
    let folder = world.stop().await;
    std::fs::remove_dir_all(folder.path().join("baselines")).unwrap();
    let world = World::on(folder).await;
    let ana = world.client("acme", "ana");
    assert_eq!(read(&ana, "/tenants/acme/src/a?ref=old").await.ok().body, "mine");
    read(&ana, "/tenants/baselines/src/a").await.error(403);
}

#[tokio::test]
async fn a_baseline_is_published_by_operators_alone_and_whole() {
    let world = World::new().await;
    let good = tar(&[("a", "1")]);
    for client in [world.client("acme", "ana"), world.admin("acme", "root"), world.service("shop", &[])] {
        assert_eq!(publish(&client, "starter", good.clone()).await.error(403).error, "wrong_identity");
    }
    let root = world.operator();
    for bad in [Vec::new(), b"garbage".to_vec(), good[..good.len() - 1].to_vec(), tar(&[("users/x/y", "1")]), tar(&[])]
    {
        publish(&root, "starter", bad).await.error(400);
    }
    publish(&root, "..%2fx", good.clone()).await.error(400);
    for body in [json!({"path": "/tenants/acme", "branch": "x", "from": "baseline:starter"})] {
        root.post("/v1/forks", body).await.error(403);
    }
    root.get("/v1/baselines").await.error(403);
    let ana = world.client("acme", "ana");
    assert!(ana.get("/v1/baselines").await.ok().json::<BaselineList>().baselines.is_empty());
}

#[tokio::test]
async fn a_tree_token_ends_with_what_made_it() {
    let world = World::new().await;
    let brief = world.client_for("acme", "ana", 50);
    let asked = json!({"path": "/tenants/acme/users/ana", "mode": "read", "minutes": 60});
    let made: serde_json::Value = brief.post("/v1/tree-tokens", asked).await.ok().json();
    let about = &made;
    let life = about["expires_ms"].as_u64().unwrap() - about["created_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&life), "{made}");
}
