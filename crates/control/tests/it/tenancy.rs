//! What one tenant sees of another: nothing, and always the same nothing.

use bailey_policy::{Entitlement, Policies};
use bailey_protocol::api::{RunAccepted, RunList};
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::node::until_cancelled;
use crate::world::World;

/// The parts of a refusal that do not name the request.
fn said(answer: &crate::client::Answer, status: u16) -> (String, String, Vec<String>) {
    let error = answer.error(status);
    (error.error, error.hint, error.policies)
}

#[tokio::test]
async fn t01_another_tenants_paths_are_denied_whether_they_exist_or_not() {
    let world = World::new().await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    ana.put("/v1/tree/tenants/acme/secret", "canary").await.ok();
    let paths =
        ["tenants/acme/secret", "tenants/acme/nothing", "tenants/acme", "tenants/nobody/x", "tenants/acme/users/ana/x"];
    let mut all = Vec::new();
    for path in paths {
        for (method, route) in [
            (Method::GET, "tree"),
            (Method::PUT, "tree"),
            (Method::DELETE, "tree"),
            (Method::GET, "tree-history"),
            (Method::GET, "tree-diff"),
        ] {
            let answer = eve.ask(method, &format!("/v1/{route}/{path}")).body("x").answer().await;
            let said = said(&answer, 403);
            assert!(said.2.contains(&"own-tenant-only".to_owned()), "{answer:?}");
            assert!(!String::from_utf8_lossy(&answer.body).contains("canary"));
            all.push(said);
        }
        for read_only in [true, false] {
            let mount = json!({"path": format!("/{path}"), "at": "/data", "read_only": read_only});
            let answer = eve.run(json!({"command": ["true"], "mounts": [mount]})).await;
            assert!(said(&answer, 403).2.contains(&"own-tenant-only".to_owned()), "{answer:?}");
        }
    }
    let user_path = |said: &&(String, String, Vec<String>)| said.2.len() > 1;
    all.retain(|said| !user_path(&said));
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(world.tenants_on_disk(), ["acme"]);
    assert_eq!(ana.get("/v1/tree/tenants/acme/secret").await.ok().body, "canary");
    assert!(world.node.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn t01_another_tenants_run_is_no_run_at_all() {
    let world = World::new().await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    world.node.follow(until_cancelled);
    let run = ana.run(json!({"command": ["sleep", "9"], "detach": true})).await.json::<RunAccepted>().run.to_string();
    let mut all = Vec::new();
    for id in [run.as_str(), "run_00000000000000000000000000", "run_x", "..", "%2e%2e%2f"] {
        for (method, tail) in [(Method::GET, ""), (Method::GET, "/events"), (Method::POST, "/cancel")] {
            let answer = eve.ask(method, &format!("/v1/runs/{id}{tail}")).answer().await;
            let error = answer.error(404);
            all.push((error.error, error.message, error.hint, error.policies));
        }
    }
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(eve.get("/v1/runs").await.json::<RunList>().runs.is_empty());
    // It was not cancelled.
    let still = ana.get(&format!("/v1/runs/{run}")).await.ok();
    assert!(String::from_utf8_lossy(&still.body).contains("running"));
}

#[tokio::test]
async fn another_users_folder_and_runs_are_denied_within_a_tenant() {
    let world = World::new().await;
    let (ana, bob) = (world.client("acme", "ana"), world.client("acme", "bob"));
    ana.put("/v1/tree/tenants/acme/users/ana/notes", "mine").await.ok();
    let answer = bob.get("/v1/tree/tenants/acme/users/ana/notes").await;
    assert_eq!(said(&answer, 403).2, ["own-folder-only"]);
    let run = ana.run(json!({"command": ["true"]})).await;
    let answer = bob.get(&format!("/v1/runs/{}", run.header("bailey-run"))).await;
    assert_eq!(said(&answer, 403).2, ["own-run-only"]);
    ana.put("/v1/tree/tenants/acme/shared", "ours").await.ok();
    assert_eq!(bob.get("/v1/tree/tenants/acme/shared").await.ok().body, "ours");
}

#[tokio::test]
async fn a_token_without_an_entitlement_is_told_which() {
    let world = World::new().await;
    let reader = world.client_with("acme", "ana", &[Entitlement::Tree]);
    let runner = world.client_with("acme", "ana", &[Entitlement::Execute]);
    let answer = reader.run(json!({"command": ["true"]})).await;
    assert_eq!(said(&answer, 403).2, ["entitled-to-execute"]);
    assert!(answer.error(403).message.contains("execute"));
    assert_eq!(said(&runner.get("/v1/tree/tenants/acme").await, 403).2, ["entitled-to-tree"]);
    reader.get("/v1/tree/tenants/acme").await.ok();
    runner.run(json!({"command": ["true"]})).await.last();
    let mounts = json!([{"path": "/tenants/acme/x", "at": "/data", "read_only": true}]);
    let answer = runner.run(json!({"command": ["true"], "mounts": mounts})).await;
    assert_eq!(said(&answer, 403).2, ["entitled-to-tree"]);
}

#[tokio::test]
async fn write_back_is_decided_apart_from_reading() {
    let frozen = r#"@id("frozen") forbid (principal, action == Action::"mount_write", resource)
        when { resource.path like "/tenants/acme/frozen*" };"#;
    let world = World::under(Policies::new(&[("frozen.cedar".to_owned(), frozen.to_owned())]).unwrap()).await;
    let ana = world.client("acme", "ana");
    ana.put("/v1/tree/tenants/acme/frozen/x/in", "1").await.ok();
    let ask = |read_only: bool| {
        let mount = json!({"path": "/tenants/acme/frozen/x", "at": "/data", "read_only": read_only});
        ana.run(json!({"command": ["true"], "mounts": [mount]}))
    };
    assert_eq!(said(&ask(false).await, 403).2, ["frozen"]);
    assert!(world.node.seen.lock().unwrap().is_empty());
    ask(true).await.last();
}

#[tokio::test]
async fn o10_without_any_rule_another_tenants_store_still_does_not_open() {
    let weak = Policies::weakened(r#"@id("all") permit (principal, action, resource);"#, &[]).unwrap();
    let world = World::under(weak).await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    ana.put("/v1/tree/tenants/acme/secret", "canary").await.ok();
    ana.put("/v1/tree/tenants/acme/users/ana/secret", "canary").await.ok();
    let run = ana.run(json!({"command": ["true"]})).await.header("bailey-run").to_owned();
    for path in ["tenants/acme/secret", "tenants/acme", "tenants/acme/users/ana/secret"] {
        for (method, route) in [
            (Method::GET, "tree"),
            (Method::PUT, "tree"),
            (Method::DELETE, "tree"),
            (Method::GET, "tree-history"),
            (Method::GET, "tree-diff"),
        ] {
            let answer = eve.ask(method, &format!("/v1/{route}/{path}")).body("x").answer().await;
            assert_eq!(answer.error(403).error, "denied");
        }
        let mount = json!({"path": format!("/{path}"), "at": "/data"});
        eve.run(json!({"command": ["true"], "mounts": [mount]})).await.error(403);
    }
    eve.get(&format!("/v1/runs/{run}")).await.error(404);
    assert_eq!(ana.get("/v1/tree/tenants/acme/secret").await.ok().body, "canary");
    // The arm is weak indeed: within the tenant everything goes.
    world.client("acme", "bob").get(&format!("/v1/runs/{run}")).await.ok();
}

#[tokio::test]
async fn every_decision_is_on_the_audit() {
    let world = World::new().await;
    let (ana, eve) = (world.client("acme", "ana"), world.client("globex", "eve"));
    ana.put("/v1/tree/tenants/acme/x", "1").await.ok();
    eve.get("/v1/tree/tenants/acme/x").await.error(403);
    ana.get("/v1/tree/tenants/acme/y").await.error(404);
    ana.get("/v1/tree-diff/tenants/acme/x?from=main").await.ok();
    let mounts = json!([{"path": "/tenants/acme/d", "at": "/data"}]);
    let run = ana.run(json!({"command": ["true"], "mounts": mounts, "root": true})).await;
    let run = run.header("bailey-run").to_owned();
    assert_eq!(
        audit(&world.stop().await),
        [
            "ana tree_write ok".to_owned(),
            "ana tree_read not_found".to_owned(),
            "ana tree_diff ok".to_owned(),
            "ana tree_diff ok".to_owned(),
            "ana tree_read ok".to_owned(),
            "ana tree_read ok".to_owned(),
            format!("ana run_create {run}"),
            format!("ana run_as_root {run}"),
            format!("ana mount_read {run}"),
            format!("ana mount_write {run}"),
            "ana run_end exited=0".to_owned(),
            "eve tree_read denied".to_owned(),
        ]
    );
}

#[tokio::test]
async fn a_write_is_on_the_audit_also_when_its_caller_hangs_up() {
    let world = World::new().await;
    let token = world.client("acme", "ana").token.unwrap();
    let mut socket = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "PUT /v1/tree/tenants/acme/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the content once the write is permitted and under way.
    let mut said = [0; 12];
    socket.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 100");
    drop(socket);
    assert_eq!(audit(&world.stop().await), ["ana tree_write body_broken"]);
}

/// Who, what and how it came out, in the order of each tenant's chain.
fn audit(folder: &tempfile::TempDir) -> Vec<String> {
    let db = rusqlite::Connection::open(folder.path().join("bailey.db")).unwrap();
    let mut query =
        db.prepare("SELECT user, action, outcome FROM audit WHERE chain <> 'operator' ORDER BY chain, seq").unwrap();
    let rows = query.query_map([], |row| {
        Ok(format!("{} {} {}", row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}
