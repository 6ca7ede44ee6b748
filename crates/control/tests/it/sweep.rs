//! Every method and route of the document, asked by everybody who may not.

use bailey_control::http::openapi::{self, Operation};
use http::Method;
use serde_json::json;

use crate::client::{Answer, Client};
use crate::guards::content_type;
use crate::world::World;

/// The checked-in list of what needs no credential; the webhook is authenticated by its signature.
const OPEN: [&str; 5] =
    ["/healthz", "/readyz", "/.well-known/jwks.json", "/.well-known/openapi.json", "/v1/webhooks/identity"];

/// The path with something in each place: of the tenant that is named.
fn filled(operation: &Operation, tenant: &str, user: &str, id: &str) -> String {
    let mut path = operation.path.clone();
    if path.starts_with("/git/") {
        let service = if operation.method == "GET" { "info/refs?service=git-upload-pack" } else { "git-upload-pack" };
        path = format!("/git/{tenant}.git/{service}");
    }
    for (name, value) in [("tenant", tenant), ("user", user), ("path", &format!("tenants/{tenant}/x"))] {
        path = path.replace(&format!("{{{name}}}"), value);
    }
    while let (Some(begin), Some(end)) = (path.find('{'), path.find('}')) {
        path.replace_range(begin..=end, id);
    }
    path
}

fn methods() -> [Method; 7] {
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS]
}

/// As [`ask`], with the least that the operation takes: nothing is refused for what it lacks.
async fn ask_well(client: &Client, operation: &Operation, path: &str) -> Answer {
    let (query, body) = match operation.id.as_str() {
        "tree_write" => ("", Some("1")),
        "tree_edit" => ("", Some(r#"{"edits":[{"old":"1","new":"2"}]}"#)),
        "set_labels" => ("", Some(r#"{"labels":["untrusted"]}"#)),
        "delete_branch" | "protect" | "unprotect" => ("?branch=b", None),
        "git_exchange" => ("", Some("0032want 0000000000000000000000000000000000000000\n00000009done\n")),
        _ => ("", None),
    };
    let asking = client.ask(operation.method.parse().unwrap(), &format!("{path}{query}"));
    match body {
        Some(body) => asking.header("content-type", &content_type(&operation.id, path)).body(body).answer().await,
        None => asking.answer().await,
    }
}

async fn ask(client: &Client, method: &Method, path: &str) -> Answer {
    client.ask(method.clone(), path).body("{}").answer().await
}

/// What an answer says, without what names the request.
fn said(answer: &Answer) -> (u16, String, String) {
    let error: bailey_protocol::api::ErrorBody = answer.json();
    (answer.status.as_u16(), error.error, error.hint)
}

#[tokio::test]
async fn a11_every_route_wants_a_credential_that_holds() {
    let world = World::new().await;
    let operations = openapi::operations();
    assert!(operations.len() >= 20, "{}", operations.len());
    let nobody = Client { address: world.address, token: None };
    let forged = {
        let other = World::new().await;
        other.client("acme", "ana").token.unwrap()
    };
    let expired = world.client_for("acme", "ana", 0).token.unwrap();
    let bad = ["garbage", "", "a.b.c", "e2b_0000000000000000000000000000000000000000", &forged, &expired];
    for operation in operations.iter().filter(|operation| !OPEN.contains(&operation.path.as_str())) {
        let path = filled(operation, "acme", "ana", "run_00000000000000000000000000");
        for method in methods() {
            let answer = ask(&nobody, &method, &path).await;
            assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
            for token in bad {
                let answer = ask(&world.holder(token), &method, &path).await;
                assert_eq!(answer.status, 401, "{method} {path} with `{token}`: {answer:?}");
            }
        }
    }
    for path in OPEN.into_iter().filter(|path| !path.starts_with("/v1/")) {
        nobody.get(path).await.ok();
    }
}

#[tokio::test]
async fn a11_what_is_not_documented_is_not_there() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let nobody = Client { address: world.address, token: None };
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/runs",
        "/v1/runs/",
        "//v1/runs",
        "/V1/runs",
        "/v1/run",
        "/admin",
        "/metricsx",
        "/.env",
        "/v1/operator",
        "/v1/keys/a/b",
        "/.well-known/",
        "/.well-known/openid-configuration",
        "/healthz/",
        "/v1/tree",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            assert_eq!(ask(&nobody, &method, path).await.status, 401, "{method} {path}");
            assert_eq!(ask(&ana, &method, path).await.status, 404, "{method} {path}");
        }
    }
    // Every method that the document does not name is refused, and the others are there: router and document agree.
    let operations = openapi::operations();
    for operation in &operations {
        let documented: Vec<&str> =
            operations.iter().filter(|other| other.path == operation.path).map(|other| other.method.as_str()).collect();
        let caller = match operation.who {
            "operator" => world.operator(),
            "service" => world.service("billing", &["acme"]),
            _ => world.client("acme", "ana"),
        };
        let path = filled(operation, "acme", "ana", "run_00000000000000000000000000");
        for method in methods() {
            // A HEAD is answered by whoever answers the GET.
            let named = documented.contains(&method.as_str()) || method == Method::HEAD && documented.contains(&"GET");
            let refused = ask(&caller, &method, &path).await.status == 405;
            assert_eq!(refused, !named, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_route_is_for_its_kind_of_caller() {
    let world = World::new().await;
    let callers = [
        ("user", world.admin("acme", "ana")),
        ("service", world.service("billing", &[])),
        ("operator", world.operator()),
    ];
    for operation in openapi::operations().iter().filter(|operation| !OPEN.contains(&operation.path.as_str())) {
        let path = filled(operation, "acme", "ana", "run_00000000000000000000000000");
        let method: Method = operation.method.parse().unwrap();
        for (kind, caller) in callers.iter().filter(|(kind, _)| *kind != operation.who) {
            let answer = ask(caller, &method, &path).await;
            assert_eq!(answer.error(403).error, "wrong_identity", "{kind}: {method} {path}");
        }
    }
}

#[tokio::test]
async fn t01_every_route_answers_another_tenant_the_same_whether_it_is_there_or_not() {
    let world = World::new().await;
    let (ana, eve) = (world.admin("acme", "ana"), world.client("globex", "eve"));
    ana.put("/v1/tree/tenants/acme/x", "canary-7f3a").await.ok();
    ana.put("/v1/tree/tenants/acme/users/ana/x", "canary-7f3a").await.ok();
    let run = ana.run(json!({"command": ["true"]})).await.header("bailey-run").to_owned();
    let key = ana.post("/v1/keys", json!({"name": "canary-7f3a", "ttl_seconds": 60})).await.ok();
    let key = key.json::<serde_json::Value>()["key"]["id"].as_str().unwrap().to_owned();
    let [purge, token, policy] = plant(&ana).await;
    for operation in openapi::operations().iter().filter(|operation| operation.who == "user") {
        let method: Method = operation.method.parse().unwrap();
        if operation.path.contains("{path}") {
            // A path names its tenant: denied by name, the same for what is there and what is not.
            let mut all = Vec::new();
            for tenant in ["acme", "nobody"] {
                let answer = ask_well(&eve, operation, &filled(operation, tenant, "ana", "x")).await;
                assert_eq!(answer.status, 403, "{method} {}: {answer:?}", operation.path);
                assert!(!String::from_utf8_lossy(&answer.body).contains("canary"));
                all.push(said(&answer));
            }
            all.dedup();
            assert_eq!(all.len(), 1, "{method} {}: {all:?}", operation.path);
        } else if operation.path.contains('{') && !operation.path.contains("{user}") && operation.id != "put_policy" {
            // A user is one of the caller's own tenant, whatever its name, and so is a policy that it puts. An opaque id
            // says nothing: another tenant's is one that never was.
            let mut all = Vec::new();
            let never = ["run_00000000000000000000000000", "key_00000000000000000000000000"];
            for id in [&run, &key, &purge, &token, &policy].map(String::as_str).into_iter().chain(never) {
                let path = filled(operation, "acme", "nobody", id);
                let answer = ask_well(&world.admin("globex", "gil"), operation, &path).await;
                assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
                assert!(!String::from_utf8_lossy(&answer.body).contains("canary"));
                all.push((answer.status, answer.body.len()));
            }
            all.dedup();
            assert_eq!(all.len(), 1, "{method} {}: {all:?}", operation.path);
        } else if method == Method::GET {
            let answer = eve.get(&operation.path).await;
            assert!(!String::from_utf8_lossy(&answer.body).contains("canary"), "{}", operation.path);
            assert!(!String::from_utf8_lossy(&answer.body).contains("acme"), "{}", operation.path);
        }
    }
    // Nor did any of that reach what is acme's.
    ana.get(&format!("/v1/runs/{run}")).await.ok();
    ana.get(&format!("/v1/purges/{purge}")).await.ok();
    for (list, id) in [("/v1/keys", &key), ("/v1/tree-tokens", &token), ("/v1/policies", &policy)] {
        let answer = ana.get(list).await.ok();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains(id.as_str()) && !text.contains("revoked_ms\":1"), "{list}: {text}");
    }
}

/// Leaves `canary-7f3a` wherever a tenant keeps something, as its admin: ids of a purge, of a tree token, and a policy's name.
async fn plant(admin: &Client) -> [String; 3] {
    let id = |answer: Answer| answer.json::<serde_json::Value>()["id"].as_str().unwrap().to_owned();
    for path in ["canary-7f3a", "gone/canary-7f3a"] {
        admin.put(&format!("/v1/tree/tenants/acme/{path}"), "1").await.ok();
    }
    let purge = id(admin.post("/v1/purges", json!({"path": "/tenants/acme/gone"})).await.ok());
    let share = json!({"path": "/tenants/acme/canary-7f3a", "mode": "read", "minutes": 60});
    let token = id(admin.post("/v1/tree-tokens", share).await.ok());
    let text = r#"forbid (principal, action == Action::"tree_diff", resource);"#;
    let put = admin.ask(Method::PUT, "/v1/policies/canary-7f3a").header("content-type", "application/json");
    put.body(json!({ "policy": text }).to_string()).answer().await.ok();
    let label = admin.ask(Method::PUT, "/v1/labels/tenants/acme/canary-7f3a");
    label.header("content-type", "application/json").body(r#"{"labels":["canary-7f3a"]}"#).answer().await.ok();
    [purge, token, "canary-7f3a".to_owned()]
}

#[tokio::test]
async fn t01_an_admin_sees_nothing_of_another_tenant_in_any_list() {
    let world = World::new().await;
    let (ana, gil) = (world.admin("acme", "ana"), world.admin("globex", "gil"));
    world.client("acme", "canary-7f3a").get("/v1/runs").await.ok();
    ana.post("/v1/keys", json!({"name": "canary-7f3a", "ttl_seconds": 60})).await.ok();
    plant(&ana).await;
    let mounts = json!([{"path": "/tenants/acme/canary-7f3a-folder", "at": "/d"}]);
    ana.run(json!({"command": ["echo", "canary-7f3a"], "mounts": mounts})).await.last();
    world.operator().post("/v1/operator/tenants/acme/users/canary-7f3a/disable", json!({})).await.ok();
    let mut shown = Vec::new();
    for operation in openapi::operations().iter().filter(|one| one.who == "user" && one.method == "GET") {
        if operation.path.contains('{') {
            continue;
        }
        let holds = |answer: &Answer, text: &str| String::from_utf8_lossy(&answer.body).contains(text);
        // Its own admin sees it where it is.
        let own = ana.get(&operation.path).await.ok();
        if holds(&own, "canary-7f3a") {
            shown.push(operation.path.clone());
        }
        let answer = gil.get(&operation.path).await.ok();
        assert!(!holds(&answer, "canary") && !holds(&answer, "acme"), "{}: {answer:?}", operation.path);
    }
    for list in
        ["/v1/users", "/v1/keys", "/v1/policies", "/v1/runs", "/v1/tree-tokens", "/v1/audit", "/v1/audit-export"]
    {
        assert!(shown.iter().any(|path| path == list), "nothing was planted for {list}: {shown:?}");
    }
}

#[tokio::test]
async fn a13_no_answer_invites_another_sites_page_and_none_is_let_in_without_a_token() {
    let world = World::new().await;
    let (ana, nobody) = (world.admin("acme", "ana"), Client { address: world.address, token: None });
    let operations = openapi::operations();
    let origins = ["null", "https://evil.example", "https://bailey.evil.example", "https://notbailey", "http://bailey"];
    for (number, operation) in operations.iter().enumerate() {
        let path = filled(operation, "acme", "ana", "run_00000000000000000000000000");
        let origin = origins[number % origins.len()];
        for client in [&ana, &nobody] {
            for method in [operation.method.parse().unwrap(), Method::OPTIONS] {
                let asking = client.ask(method.clone(), &path).header("origin", origin).header("cookie", "session=1");
                let asking = asking
                    .header("sec-fetch-site", "cross-site")
                    .header("content-type", "text/plain")
                    .header("access-control-request-method", "POST")
                    .header("access-control-request-headers", "authorization");
                let answer = asking.body("{}").answer().await;
                let invites = answer.headers.keys().any(|name| name.as_str().starts_with("access-control-"));
                assert!(!invites && !answer.headers.contains_key("set-cookie"), "{method} {path}: {answer:?}");
                if client.token.is_none() && method != Method::GET {
                    assert!(answer.status == 401 || answer.status == 405, "{method} {path}: {answer:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_disabled_user_is_refused_on_every_route() {
    let world = World::new().await;
    let (boss, ana) = (world.admin("acme", "boss"), world.admin("acme", "ana"));
    boss.post("/v1/users/ana/disable", json!({})).await.ok();
    for operation in openapi::operations().iter().filter(|operation| !OPEN.contains(&operation.path.as_str())) {
        let path = filled(operation, "acme", "ana", "run_00000000000000000000000000");
        let method: Method = operation.method.parse().unwrap();
        assert_eq!(ask(&ana, &method, &path).await.error(403).error, "user_disabled", "{method} {path}");
    }
}

/// A body for each operation whose tenant is named in it; `of` is what stands in its place.
fn body_of(id: &str, of: &str) -> Option<serde_json::Value> {
    let (root, x, y) = (format!("/tenants/{of}"), format!("/tenants/{of}/x"), format!("/tenants/{of}/y"));
    let version = "0".repeat(40);
    Some(match id {
        "tree_copy" => json!({"from": x, "to": y}),
        "tree_restore" => json!({"path": x, "from_version": version}),
        "tree_revert" => json!({"path": root, "version": version}),
        "fork" => json!({"path": root, "branch": "b"}),
        "promote" => json!({"path": root, "from": "b", "into": "main"}),
        "purge" => json!({"path": x}),
        "share" => json!({"path": x, "mode": "read", "minutes": 5}),
        "create_run" => json!({"command": ["true"], "mounts": [{"path": x, "at": "/d"}]}),
        "create_key" => json!({"name": "k", "ttl_seconds": 60, "paths": [x]}),
        "explain" => json!({"action": "tree_read", "path": x}),
        _ => return None,
    })
}

/// Operations that take a body in which no tenant can be named.
const NAMES_NO_TENANT: [&str; 1] = ["put_policy"];

#[tokio::test]
async fn t01_t03_a_tenant_named_in_a_body_is_answered_as_one_in_a_path() {
    let world = World::new().await;
    let (ana, eve) = (world.admin("acme", "ana"), world.admin("globex", "eve"));
    for path in ["x", "users/ana/x"] {
        ana.put(&format!("/v1/tree/tenants/acme/{path}"), "canary-7f3a").await.ok();
    }
    ana.post("/v1/forks", json!({"path": "/tenants/acme", "branch": "b"})).await.ok();
    let mut swept = 0;
    for operation in openapi::operations().iter().filter(|one| one.who == "user" && one.method == "POST") {
        if operation.path.contains('{') {
            continue;
        }
        let id = operation.id.as_str();
        if body_of(id, "acme").is_none() {
            assert!(NAMES_NO_TENANT.contains(&id), "`{id}` takes a body: say here where a tenant is in it");
            continue;
        }
        swept += 1;
        let mut all = Vec::new();
        for tenant in ["acme", "nobody"] {
            let answer = eve.post(&operation.path, body_of(id, tenant).unwrap()).await;
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!body.contains("canary"), "{id}: {body}");
            if id == "explain" {
                all.push((answer.status.as_u16(), body.replace("nobody", "acme"), String::new()));
                continue;
            }
            let refused = if id == "create_key" { 400 } else { 403 };
            assert_eq!(answer.status, refused, "{id} for {tenant}: {body}");
            all.push(said(&answer));
        }
        all.dedup();
        assert_eq!(all.len(), 1, "{id}: {all:?}");
    }
    assert!(swept >= 10, "{swept}");
    // Nor does the other half of a copy reach over, in either direction.
    eve.put("/v1/tree/tenants/globex/x", "1").await.ok();
    for (from, to) in [("/tenants/acme/x", "/tenants/globex/y"), ("/tenants/globex/x", "/tenants/acme/y")] {
        assert_eq!(eve.post("/v1/tree-copy", json!({"from": from, "to": to})).await.status, 403);
    }
    ana.get("/v1/tree/tenants/acme/y").await.error(404);
}
