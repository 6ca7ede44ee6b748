//! What enters shaped like a credential: told by default, refused where policy says so, and never shown.

use bailey_control::node_link::StartRun;
use bailey_policy::Policies;
use bailey_protocol::api::{RunEventKind, RunResult, WriteAnswer};
use bailey_protocol::change::NoticeReason;
use bailey_protocol::node::{Ending, RunUpdate};
use serde_json::json;

use crate::client::{Answer, Client};
use crate::node::{changes, quick, send_changes, started, stopped};
use crate::world::World;

const REFUSE: &str = include_str!("../../../../examples/policies/credential-shaped.cedar");

/// Put together here, so that none lies in the repository.
pub fn credential() -> String {
    let letters: Vec<char> = ('a'..='z').chain('A'..='Z').chain('0'..='9').collect();
    let noise: String = (0..36).map(|n| letters[(n * 37 + n * n * 11) % letters.len()]).collect();
    format!("gh{}_{noise}", 'p')
}

/// As the example is shipped, and with its policy in force.
async fn strict() -> World {
    let (_prose, commented) = REFUSE.split_once("\n//\n").unwrap();
    let rules: String = commented.lines().map(|line| line.trim_start_matches("//").to_owned() + "\n").collect();
    World::under(Policies::new(&[("credential-shaped.cedar".to_owned(), rules)]).unwrap()).await
}

async fn run(world: &World, client: &Client, content: &str) -> (RunResult, Answer) {
    let stream = changes(&[("sub/config.env", content), ("plain", "nothing")]);
    world.node.follow(move |order: StartRun| {
        let stream = stream.clone();
        async move {
            order.updates.send(started()).await.unwrap();
            order.updates.send(stopped(Ending::Exited { code: 0 })).await.unwrap();
            send_changes(&order, 0, &stream).await;
            order.updates.send(RunUpdate::Done).await.unwrap();
        }
    });
    let mounts = json!([{"path": "/tenants/acme/desk", "at": "/data"}]);
    let answer = client.run(json!({"command": ["true"], "mounts": mounts})).await;
    match answer.last() {
        RunEventKind::Ended(result) => (result, answer),
        other => panic!("{other:?}"),
    }
}

fn shows(answer: &Answer, secret: &str) -> bool {
    let headers = format!("{:?}", answer.headers);
    headers.contains(secret) || String::from_utf8_lossy(&answer.body).contains(secret)
}

#[tokio::test]
async fn a_file_shaped_like_a_credential_is_kept_with_a_warning() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    let secret = credential();
    let answer = ana.put("/v1/tree/tenants/acme/config", format!("token = {secret}\n")).await.ok();
    let written: WriteAnswer = answer.json();
    assert_eq!(written.warnings, ["config: shaped like a credential (github-token) at byte 8"]);
    assert!(!shows(&answer, &secret));
    let plain: WriteAnswer = ana.put("/v1/tree/tenants/acme/plain", "token = none").await.ok().json();
    assert_eq!(plain.warnings, [""; 0]);
    assert!(!shows(&ana.get("/v1/tree-history/tenants/acme").await.ok(), &secret));
}

#[tokio::test]
async fn a_policy_refuses_a_file_shaped_like_a_credential() {
    let world = strict().await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let secret = credential();
    let answer = ana.put("/v1/tree/tenants/acme/config", secret.clone()).await;
    assert_eq!(answer.error(403).policies, ["no-credentials"]);
    assert!(!shows(&answer, &secret));
    ana.get("/v1/tree/tenants/acme/config").await.error(404);
    ana.put("/v1/tree/tenants/acme/config", "harmless").await.ok();
    // On the audit, as a denial; and the secret is not.
    let rows = boss.get("/v1/audit?decision=denied&action=tree_write").await.ok();
    assert!(String::from_utf8_lossy(&rows.body).contains("no-credentials"));
    assert!(!shows(&boss.get("/v1/audit-export").await.ok(), &secret));
    // Nor anywhere below the server's folder but in the one place where the upload lay until it was refused.
    let folder = world.stop().await;
    for name in ["bailey.db", "bailey.db-wal"] {
        let bytes = std::fs::read(folder.path().join(name)).unwrap_or_default();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{name}");
    }
}

#[tokio::test]
async fn what_a_run_leaves_shaped_like_a_credential_is_noticed_or_kept_apart() {
    let secret = credential();
    let world = World::new().await;
    let (result, answer) = run(&world, &world.client("acme", "ana"), &format!("A={secret}")).await;
    assert_eq!(result.versions.len(), 1);
    let notice = result.notices.first().unwrap();
    assert_eq!(
        (notice.path.as_str(), notice.reason),
        ("/tenants/acme/desk/sub/config.env", NoticeReason::CredentialShaped)
    );
    assert_eq!(notice.detail.as_deref(), Some("github-token at byte 2"));
    assert!(!shows(&answer, &secret));

    let world = strict().await;
    let ana = world.client("acme", "ana");
    let (result, answer) = run(&world, &ana, &format!("A={secret}")).await;
    let version = result.versions.first().unwrap();
    assert!(version.branch.as_str().starts_with("runs/"), "{version:?}");
    assert!(version.reason.as_deref().unwrap().contains("no-credentials"), "{version:?}");
    assert_eq!(version.conflicts, ["desk/sub/config.env"]);
    assert!(!shows(&answer, &secret));
    ana.get("/v1/tree/tenants/acme/desk/sub/config.env").await.error(404);
    let (result, _) = run(&world, &ana, "A=harmless").await;
    assert_eq!(result.versions.first().unwrap().branch.as_str(), "main");
}

#[tokio::test]
async fn a_run_asked_for_with_what_is_shaped_like_a_credential_is_warned_about_or_refused() {
    let secret = credential();
    let bodies = [
        ("env", json!({"command": ["true"], "env": {"TOKEN": secret}})),
        ("stdin", json!({"command": ["cat"], "stdin": format!("\n{secret}\n")})),
        ("command", json!({"command": ["echo", secret]})),
        ("code", json!({"language": "python", "code": format!("x = '{secret}'")})),
        ("files", json!({"command": ["true"], "files": {"/tmp/.env": {"text": format!("A={secret}")}}})),
    ];
    let world = World::new().await;
    world.node.follow(quick);
    for (field, body) in &bodies {
        let answer = world.client("acme", "ana").run(body.clone()).await;
        let warning = answer.header("bailey-warning");
        assert!(warning.starts_with(&format!("{field}: shaped like a credential (github-token)")), "{warning}");
        assert!(!shows(&answer, &secret));
    }
    let world = strict().await;
    world.node.follow(quick);
    for (field, body) in bodies {
        let answer = world.client("acme", "ana").run(body).await;
        assert_eq!(answer.error(403).policies, ["no-credentials"], "{field}");
        assert!(!shows(&answer, &secret));
    }
    world.client("acme", "ana").run(json!({"command": ["true"]})).await.last();
}
