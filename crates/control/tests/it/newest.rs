//! What is known of a user moves forward by `iat` alone: an older token brings nothing back that a newer one lacks.

use std::time::Duration;

use bailey_policy::Entitlement;
use bailey_protocol::api::identity::{TokenAnswer, UserList};
use bailey_protocol::api::{RunAccepted, RunEventKind};
use bailey_protocol::node::Ending;
use serde_json::{Value, json};

use crate::client::Client;
use crate::exchange::{USER, exchange};
use crate::issuer::{IssuerProcess, SigningKey};
use crate::node::until_cancelled;
use crate::trust::{claims, mapping, with};
use crate::world::World;

/// An issuer, and what it signs with.
struct Source {
    issuer: IssuerProcess,
    key: SigningKey,
    now: u64,
}

impl Source {
    fn start() -> Self {
        let (issuer, key) = (IssuerProcess::start(), SigningKey::ed25519("k1"));
        issuer.serve(&[&key]);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        Self { issuer, key, now }
    }

    /// Ana, by a token that was issued `ago` seconds ago.
    fn ana(&self, world: &World, ago: u64, roles: &[&str], scope: &str) -> Client {
        let iat = self.now - ago;
        let said = json!({"sub": "ana", "iat": iat, "exp": self.now + 600, "roles": roles, "scope": scope});
        world.holder(&self.key.token(&with(claims(&self.issuer), &said)))
    }

    async fn world(&self) -> World {
        let world = World::trusting(vec![self.issuer.config(mapping())]).await;
        while self.ana(&world, 500, &[], "tree").get("/v1/tree/tenants/acme").await.status == 503 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        world
    }
}

async fn api_key(by: &Client) -> String {
    let actions = ["user_list", "run_list", "run_create", "run_read", "tree_list"];
    let asked = json!({"name": "ci", "ttl_seconds": 3600, "roles": ["admin", "member"], "actions": actions});
    by.post("/v1/keys", asked).await.ok().json::<Value>()["value"].as_str().unwrap().to_owned()
}

async fn tree_token(by: &Client) -> String {
    let asked = json!({"path": "/tenants/acme/users/ana", "mode": "write", "minutes": 60});
    by.post("/v1/tree-tokens", asked).await.ok().json::<Value>()["token"].as_str().unwrap().to_owned()
}

/// Whether a key may list users, and runs: what takes the role `admin`, and the entitlement `execute`.
async fn may(key: &Client) -> (bool, bool) {
    (key.get("/v1/users").await.status == 200, key.get("/v1/runs").await.status == 200)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_older_token_brings_nothing_back() {
    let source = Source::start();
    let world = source.world().await;
    let old = source.ana(&world, 60, &["admin", "member"], "execute tree keys");
    let key = api_key(&old).await;
    let shared = tree_token(&old).await;
    let write = "/v1/tree/tenants/acme/users/ana/x";
    assert_eq!(may(&world.holder(&key)).await, (true, true));
    world.holder(&shared).put(write, "1").await.ok();
    // A newer one lacks the role and an entitlement, and a later one `tree` as well.
    let newer = source.ana(&world, 30, &["member"], "tree");
    newer.get("/v1/tree/tenants/acme").await.ok();
    let services = world.service_with("billing", &Entitlement::ALL, &["member"]);
    for again in 0..3 {
        assert_eq!(may(&world.holder(&key)).await, (false, false), "{again}");
        // The token itself holds as long as it does; whoever follows its user has what is newest.
        old.get("/v1/runs").await.ok();
        assert_eq!(exchange(&services, "acme/ana", USER, Some("execute")).await.error(400).error, "invalid_scope");
        let users: UserList = world.admin("acme", "boss").get("/v1/users").await.ok().json();
        let ana = users.users.iter().find(|user| user.user.as_str() == "ana").unwrap();
        assert_eq!((ana.roles.clone(), ana.entitlements.clone()), (vec!["member".into()], vec!["tree".into()]));
    }
    // What the older one makes now has no more either.
    let late = api_key(&old).await;
    assert_eq!(may(&world.holder(&late)).await, (false, false));
    let newest = source.ana(&world, 20, &["member"], "execute");
    newest.get("/v1/runs").await.ok();
    old.get("/v1/runs").await.ok();
    assert_eq!(world.holder(&shared).put(write, "2").await.error(403).policies, ["entitled-to-tree"]);
    let late_share = tree_token(&old).await;
    world.holder(&late_share).put(write, "2").await.error(403);
    assert_eq!(may(&world.holder(&key)).await, (false, true));
    // Nor after a restart, whoever comes first.
    let world = World::on_trusting(world.stop().await, vec![source.issuer.config(mapping())]).await;
    let old = source.ana(&world, 60, &["admin", "member"], "execute tree keys");
    while old.get("/v1/runs").await.status == 503 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(may(&world.holder(&key)).await, (false, true));
    assert_eq!(may(&world.holder(&late)).await, (false, true));
    world.holder(&shared).put(write, "3").await.error(403);
    // What a newer one says again holds again.
    source.ana(&world, 10, &["admin", "member"], "execute tree").get("/v1/runs").await.ok();
    assert_eq!(may(&world.holder(&key)).await, (true, true));
    world.holder(&shared).put(write, "3").await.ok();
}

#[tokio::test]
async fn of_two_tokens_of_one_second_only_what_both_say_holds() {
    let source = Source::start();
    let world = source.world().await;
    let key = api_key(&source.ana(&world, 60, &["admin", "member"], "execute tree keys")).await;
    let (admin, runner) =
        (source.ana(&world, 30, &["admin"], "tree keys"), source.ana(&world, 30, &["member"], "execute tree"));
    admin.get("/v1/tree/tenants/acme").await.ok();
    assert_eq!(may(&world.holder(&key)).await, (true, false));
    for seen in [&runner, &admin, &runner] {
        seen.get("/v1/tree/tenants/acme").await.ok();
        assert_eq!(may(&world.holder(&key)).await, (false, false));
    }
    source.ana(&world, 29, &["admin"], "execute tree").get("/v1/runs").await.ok();
    assert_eq!(may(&world.holder(&key)).await, (true, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_goes_on_by_a_key_follows_the_newest_token_of_its_maker() {
    let source = Source::start();
    let world = source.world().await;
    world.node.follow(until_cancelled);
    let old = source.ana(&world, 60, &["admin", "member"], "execute tree keys");
    let key = world.holder(&api_key(&old).await);
    let start = async |client: &Client| {
        let run = client.run(json!({"command": ["sleep", "9"], "detach": true})).await.ok();
        run.json::<RunAccepted>().run.to_string()
    };
    let (by_key, own) = (start(&key).await, start(&old).await);
    source.ana(&world, 30, &["admin", "member"], "tree").get("/v1/tree/tenants/acme").await.ok();
    let events = format!("/v1/runs/{by_key}/events");
    match tokio::time::timeout(Duration::from_secs(2), old.get(&events)).await.expect("it goes on").last() {
        RunEventKind::Ended(result) => {
            assert_eq!(result.ending, Ending::Cancelled);
            assert!(result.denied.is_some(), "{result:?}");
        }
        other => panic!("{other:?}"),
    }
    // What a token of the user's own began is that token's.
    let state = old.get(&format!("/v1/runs/{own}")).await.ok();
    assert!(String::from_utf8_lossy(&state.body).contains("running"));
}

/// What a service account gets for a user that it only names is what the newest token said, too.
#[tokio::test]
async fn who_is_named_has_what_the_newest_token_said() {
    let source = Source::start();
    let world = source.world().await;
    let services = world.service_with("billing", &Entitlement::ALL, &["member"]);
    source.ana(&world, 30, &["member"], "execute").get("/v1/runs").await.ok();
    source.ana(&world, 60, &["member"], "tree").get("/v1/tree/tenants/acme").await.ok();
    let answer: TokenAnswer = exchange(&services, "acme/ana", USER, None).await.ok().json();
    let named = world.holder(&answer.access_token);
    named.get("/v1/runs").await.ok();
    assert_eq!(named.get("/v1/tree/tenants/acme").await.error(403).policies, ["entitled-to-tree"]);
}
