//! No credential makes another that may more than itself: every route that makes one, asked with every kind of credential.

use bailey_protocol::api::identity::TokenAnswer;
use http::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::exchange::{ACCESS, USER, exchange};
use crate::world::World;

/// Everything that a key can be for which is not about a whole tenant, and more of a tree than it needs.
const WITHIN_PATHS: [&str; 6] = ["tree_read", "tree_list", "tree_write", "tree_share", "run_create", "mount_read"];

async fn api_key(world: &World, by: &Client, fields: &Value) -> Client {
    let mut asked = json!({"name": "k", "ttl_seconds": 600, "roles": ["admin"]});
    asked.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let answer = by.post("/v1/keys", asked).await.ok();
    world.holder(answer.json::<Value>()["value"].as_str().unwrap())
}

async fn share(by: &Client) -> Answer {
    by.post("/v1/tree-tokens", json!({"path": "/tenants/acme/docs", "mode": "write", "minutes": 1440})).await
}

/// How a route answers: `made`, or an error's code with the policy where there is one.
fn verdict(answer: &Answer) -> String {
    if answer.status.is_success() {
        return "made".to_owned();
    }
    let error = answer.error(answer.status.as_u16());
    error.policies.first().cloned().unwrap_or(error.error)
}

#[tokio::test]
async fn no_credential_makes_one_that_may_more_than_itself() {
    let world = World::new().await;
    let boss = world.admin("acme", "boss");
    let services = world.service("billing", &["acme"]);
    let exchanged = async |subject: &str, kind: &str, scope: Option<&str>| {
        let answer: TokenAnswer = exchange(&services, subject, kind, scope).await.ok().json();
        world.holder(&answer.access_token)
    };
    let own = boss.token.clone().unwrap();
    let share_of_boss: Value = share(&boss).await.ok().json();
    let every = json!({"actions": ["key_create", "tree_share", "tree_read", "user_list"]});
    let (key_rules, share_rules) = ("key_by_key", "key_by_key");
    // Who asks, and what comes of a key, a tree token, and of itself as the subject of an exchange.
    let table = [
        ("a user's token", boss.clone(), ["made", "made", "made"]),
        ("an API key", api_key(&world, &boss, &every).await, [key_rules, share_rules, "invalid_request"]),
        (
            "an API key for paths",
            api_key(&world, &boss, &json!({"paths": ["/tenants/acme"], "actions": WITHIN_PATHS})).await,
            ["credential-scope", share_rules, "invalid_request"],
        ),
        (
            "a tree token",
            world.holder(share_of_boss["token"].as_str().unwrap()),
            ["credential-scope", "credential-scope", "invalid_request"],
        ),
        ("a proven user's", exchanged(&own, ACCESS, None).await, [key_rules, "made", "invalid_request"]),
        ("a named user's", exchanged("acme/new", USER, None).await, ["admins-only", "made", "invalid_request"]),
        (
            "a proven user's, narrowed",
            exchanged(&own, ACCESS, Some("read_only")).await,
            ["credential-scope", "credential-scope", "invalid_request"],
        ),
        (
            "a proven user's, for paths",
            exchanged(&own, ACCESS, Some("path:/tenants/acme")).await,
            ["credential-scope", share_rules, "invalid_request"],
        ),
        ("a service account's", services.clone(), ["wrong_identity", "wrong_identity", "invalid_request"]),
        ("an operator's", world.operator(), ["wrong_identity", "wrong_identity", "invalid_request"]),
    ];
    for (name, client, expected) in table {
        let token = client.token.clone().unwrap();
        let found = [
            verdict(&client.post("/v1/keys", json!({"name": "k", "ttl_seconds": 600})).await),
            verdict(&share(&client).await),
            verdict(&exchange(&services, &token, ACCESS, None).await),
        ];
        assert_eq!(found, expected, "{name}");
    }
    // Every route that makes a credential is in the table: those whose answer holds one.
    let document: Value = serde_json::from_str(bailey_control::http::openapi::text()).unwrap();
    let mut makers = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for answer in ["KeyCreated", "TreeTokenMade", "TokenAnswer"] {
            makers.extend(methods.to_string().contains(&format!("schemas/{answer}")).then_some(path.as_str()));
        }
    }
    makers.sort_unstable();
    assert_eq!(makers, ["/v1/keys", "/v1/token", "/v1/tree-tokens"]);
}

#[tokio::test]
async fn what_is_made_has_no_more_than_what_made_it() {
    let world = World::new().await;
    world.admin("acme", "boss").put("/v1/tree/tenants/acme/docs/a", "1").await.ok();
    let services = world.service("billing", &["acme"]);
    let few = exchange(&services, "acme/ana", USER, Some("tree keys")).await.ok().json::<TokenAnswer>();
    let few = world.holder(&few.access_token);
    let made: Value = share(&few).await.ok().json();
    // Its minutes were more than are left of what made it.
    let life = made["expires_ms"].as_u64().unwrap() - made["created_ms"].as_u64().unwrap();
    assert!(life <= 930_000, "{made}");
    let shared = world.holder(made["token"].as_str().unwrap());
    shared.get("/v1/tree/tenants/acme/docs/a").await.ok();
    assert_eq!(shared.get("/v1/tree/tenants/acme").await.error(403).policies, ["credential-scope"]);
    // Fetching takes an entitlement that its maker has not, whatever its mode.
    let git = shared.ask(Method::GET, "/git/tenants/acme.git/info/refs?service=git-upload-pack").answer().await;
    assert!(!git.status.is_success(), "{git:?}");
    let boss = world.admin("acme", "boss");
    let none = api_key(&world, &boss, &json!({"entitlements": []})).await;
    assert_eq!(none.get("/v1/tree/tenants/acme/docs/a").await.error(403).policies, ["entitled-to-tree"]);
}

#[tokio::test]
async fn paths_go_with_what_is_about_paths_alone() {
    let world = World::new().await;
    let boss = world.admin("acme", "boss");
    let services = world.service("billing", &["acme"]);
    for action in [
        "user_list",
        "user_disable",
        "user_enable",
        "user_forget",
        "key_create",
        "key_list",
        "key_revoke",
        "policy_read",
        "policy_write",
        "policy_explain",
        "audit_read",
        "tenant_read",
    ] {
        let asked = |paths: Option<[&str; 1]>| {
            let mut asked =
                json!({"name": "k", "ttl_seconds": 60, "roles": ["admin"], "actions": ["tree_read", action]});
            if let Some(paths) = paths {
                asked["paths"] = json!(paths);
            }
            asked
        };
        let error = boss.post("/v1/keys", asked(Some(["/tenants/acme/docs"]))).await.error(400);
        assert!(error.error == "invalid_key" && error.message.contains(action), "{error:?}");
        boss.post("/v1/keys", asked(None)).await.ok();
        let scope = format!("action:{action} path:/tenants/acme/docs");
        let error = exchange(&services, boss.token.as_deref().unwrap(), ACCESS, Some(&scope)).await.error(400);
        assert!(error.error == "invalid_scope" && error.message.contains(action), "{error:?}");
    }
    let docs = api_key(&world, &boss, &json!({"paths": ["/tenants/acme/docs"]})).await;
    docs.put("/v1/tree/tenants/acme/docs/a", "1").await.ok();
    docs.get("/v1/runs").await.ok();
    let asked = json!({"action": "tree_read", "path": "/tenants/acme/docs/a"});
    assert_eq!(docs.post("/v1/explain", asked).await.error(403).policies, ["credential-scope"]);
}
