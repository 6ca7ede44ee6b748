//! What takes long lands by the rules of the moment in which it lands, and not by those under which it began.

use std::time::Duration;

use bailey_control::config::ControlConfig;
use bailey_control::control::OperatorCaller;
use bailey_control::node_link::StartRun;
use bailey_control::ops::baselines;
use bailey_control::pipe::pipe;
use bailey_policy::{CredentialId, CredentialKind, Operator, Policies};
use bailey_protocol::api::{CommitOutcome, PathLabels, RunEventKind, WriteAnswer};
use bailey_protocol::git::GitUpdate;
use bailey_protocol::id::RequestId;
use bailey_protocol::node::Ending;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use http::Method;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::{Answer, Client};
use crate::node::writes;
use crate::shares::tar;
use crate::world::World;

/// Long enough for a request to be let in. One that is not is refused by the same rule, and the test says nothing.
const LET_IN: Duration = Duration::from_millis(300);
/// A pack without objects.
const EMPTY_PACK: &[u8] =
    b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e";

fn roomy(config: &mut ControlConfig) {
    config.max_file_bytes = 128 << 20;
}

fn rules(text: &str) -> Policies {
    Policies::new(&[("operator.cedar".to_owned(), text.to_owned())]).unwrap()
}

async fn put(client: &Client, path: &str, branch: &str, content: &str) -> String {
    let answer = client.put(&format!("/v1/tree/tenants/acme/{path}?ref={branch}"), content.to_owned()).await.ok();
    answer.json::<WriteAnswer>().version.to_string()
}

async fn fork(client: &Client, branch: &str) {
    client.post("/v1/forks", json!({"path": "/tenants/acme", "branch": branch})).await.ok();
}

/// A request whose body is sent when a test says so.
struct Slow {
    pieces: mpsc::Sender<Bytes>,
    answer: JoinHandle<Answer>,
}

impl Slow {
    fn begin(client: &Client, method: Method, path: &str, content_type: &str) -> Self {
        let (pieces, waiting) = mpsc::channel::<Bytes>(4);
        let body = stream::unfold(waiting, |mut waiting| async move {
            let piece = waiting.recv().await?;
            Some((Ok::<_, std::io::Error>(Frame::data(piece)), waiting))
        });
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "bailey")
            .header("content-type", content_type)
            .header("authorization", format!("Bearer {}", client.token.as_ref().unwrap()))
            .body(StreamBody::new(body.boxed()))
            .unwrap();
        let address = client.address;
        let answer = tokio::spawn(async move {
            let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let (head, body) = sender.send_request(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Answer { status: head.status, headers: head.headers, body }
        });
        Self { pieces, answer }
    }

    /// Sends half, has `meanwhile` happen, and sends the rest.
    async fn change(self, content: &[u8], meanwhile: impl Future<Output = ()>) -> Answer {
        let (first, rest) = content.split_at(content.len() / 2);
        self.pieces.send(Bytes::copy_from_slice(first)).await.unwrap();
        tokio::time::sleep(LET_IN).await;
        meanwhile.await;
        // A refusal may come before the rest.
        drop(self.pieces.send(Bytes::copy_from_slice(rest)).await);
        drop(self.pieces);
        self.answer.await.unwrap()
    }
}

/// What happens to a tenant while something goes on, and the policy that denies it then.
type Change = (&'static str, fn(&World) -> BoxFuture<'_, ()>);

const FROZEN: &str = r#"@id("frozen") forbid (principal, action == Action::"tree_write", resource)
    when { resource.labels.contains("frozen") };"#;

fn an_operators_rule(world: &World) -> BoxFuture<'_, ()> {
    async {
        let text = r#"@id("no-writes") forbid (principal, action == Action::"tree_write", resource);"#;
        assert!(world.control.activate_policies(rules(text)).await);
    }
    .boxed()
}

fn an_operators_rule_about_a_path_below(world: &World) -> BoxFuture<'_, ()> {
    async {
        let text = r#"@id("below") forbid (principal, action == Action::"tree_write", resource)
            when { resource.path == "/tenants/acme/d/in/x" };"#;
        assert!(world.control.activate_policies(rules(text)).await);
    }
    .boxed()
}

fn a_tenants_rule(world: &World) -> BoxFuture<'_, ()> {
    async {
        let text = r#"forbid (principal, action == Action::"tree_write", resource);"#;
        let boss = world.admin("acme", "boss");
        let asking = boss.ask(Method::PUT, "/v1/policies/own").header("content-type", "application/json");
        asking.body(json!({ "policy": text }).to_string()).answer().await.ok();
    }
    .boxed()
}

fn a_label(world: &World) -> BoxFuture<'_, ()> {
    async {
        let boss = world.admin("acme", "boss");
        // There has to be something to label.
        boss.ask(Method::PUT, "/v1/tree/tenants/acme/d?type=folder").answer().await;
        let asking = boss.ask(Method::PUT, "/v1/labels/tenants/acme/d").header("content-type", "application/json");
        asking.body(r#"{"labels":["frozen"]}"#).answer().await.ok();
    }
    .boxed()
}

const CHANGES: [Change; 4] = [
    ("no-writes", an_operators_rule),
    ("below", an_operators_rule_about_a_path_below),
    ("tenant/own", a_tenants_rule),
    ("frozen", a_label),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c13_what_is_uploaded_lands_by_the_policies_of_that_moment() {
    let archive = tar(&[("x", "1"), ("y", "2")]);
    for (policy, change) in CHANGES {
        for (path, kind, content) in
            [("d/in/x", "application/octet-stream", &b"content"[..]), ("d/in", "application/x-tar", &archive[..])]
        {
            let world = World::with(roomy).await;
            assert!(world.control.activate_policies(rules(FROZEN)).await);
            let ana = world.client("acme", "ana");
            let upload = Slow::begin(&ana, Method::PUT, &format!("/v1/tree/tenants/acme/{path}"), kind);
            let answer = upload.change(content, change(&world)).await;
            assert_eq!(answer.error(403).policies, [policy], "{kind}");
            ana.get("/v1/tree/tenants/acme/d/in/x").await.error(404);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c13_what_is_uploaded_does_not_land_on_a_branch_that_was_protected_meanwhile() {
    let world = World::with(roomy).await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let upload = Slow::begin(&ana, Method::PUT, "/v1/tree/tenants/acme/x", "application/octet-stream");
    let protect = async {
        boss.ask(Method::PUT, "/v1/protections/tenants/acme?branch=main").answer().await.ok();
    };
    assert_eq!(upload.change(b"content", protect).await.error(409).error, "branch_protected");
    ana.get("/v1/tree/tenants/acme/x").await.error(404);
}

/// Pushes a version that is here with every object already; once it was let in, `meanwhile` happens.
async fn push(
    world: &mut World,
    client: &Client,
    [from, to, branch]: [&str; 3],
    meanwhile: impl AsyncFnOnce(&World),
) -> Answer {
    let command = format!("{from} {to} refs/heads/{branch}\0 report-status");
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    body.extend_from_slice(EMPTY_PACK);
    let push = client.ask(Method::POST, "/git/acme.git/git-receive-pack");
    let push = push.header("content-type", "application/x-git-receive-pack-request").body(body).answer();
    let (answer, ()) = tokio::join!(push, async {
        // It was let in: git is asked for.
        let mut order = world.git.recv().await.unwrap();
        meanwhile(world).await;
        while order.input.recv().await.is_some() {}
        order.updates.send(GitUpdate::Output { data: Bytes::from_static(EMPTY_PACK) }).await.unwrap();
        let ended = GitUpdate::Ended { ending: Ending::Exited { code: 0 }, said: Bytes::new() };
        order.updates.send(ended).await.unwrap();
    });
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c13_a_push_lands_by_the_policies_of_that_moment() {
    let about_a_path = r#"@id("closed") forbid (principal, action == Action::"tree_write", resource)
        when { resource.path == "/tenants/acme/d/x" };"#;
    let about_pushes = r#"@id("closed") forbid (principal, action == Action::"tree_push", resource);"#;
    let about_writes = r#"@id("closed") forbid (principal, action == Action::"tree_write", resource);"#;
    let about_forks = r#"@id("closed") forbid (principal, action == Action::"tree_fork", resource);"#;
    for (rule, branch) in [
        ("", "main"),
        (about_a_path, "main"),
        (about_pushes, "main"),
        (about_writes, "main"),
        ("", "new"),
        (about_forks, "new"),
    ] {
        let mut world = World::with(roomy).await;
        let ana = world.client("acme", "ana");
        let from = put(&ana, "d/y", "main", "1").await;
        fork(&ana, "draft").await;
        // It has every object already.
        let to = put(&ana, "d/x", "draft", "1").await;
        let from = if branch == "new" { "0".repeat(40) } else { from };
        let let_in = async |world: &World| assert!(world.control.activate_policies(rules(rule)).await);
        let answer = push(&mut world, &ana, [&from, &to, branch], let_in).await;
        let report = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(world.control.activate_policies(rules("")).await);
        let pushed = ana.get(&format!("/v1/tree/tenants/acme/d/x?ref={branch}")).await;
        if rule.is_empty() {
            assert!(report.contains(&format!("ok refs/heads/{branch}")), "{answer:?}");
            pushed.ok();
        } else {
            assert!(report.contains(&format!("ng refs/heads/{branch}")) && report.contains("`closed`"), "{report}");
            pushed.error(404);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_push_that_copies_too_much_sheds_no_labels() {
    // Some files that are labelled, too many of them, and one behind too many that are not.
    for (levels, file, everything) in
        [(4, "secret/deep/key", false), (14, "secret/deep/key", true), (20, "plain", true)]
    {
        let mut world = World::new().await;
        let ana = world.admin("acme", "ana");
        put(&ana, "secret/deep/key", "main", "the key").await;
        put(&ana, "plain", "main", "plain").await;
        let from = put(&ana, "other", "main", "1").await;
        fork(&ana, "draft").await;
        // Each folder has the one before twice, and before it there is the content under another name.
        let copy = async |from: &str, to: &str| {
            let (from, to) = (format!("/tenants/acme/{from}"), format!("/tenants/acme/{to}"));
            ana.post("/v1/tree-copy", json!({"from": from, "to": to, "ref": "draft"})).await.ok();
        };
        copy("secret/deep/key", "z").await;
        copy(file, "0/f").await;
        for level in 0..levels {
            for half in ["a", "b"] {
                copy(&level.to_string(), &format!("{}/{half}", level + 1)).await;
            }
        }
        let to = put(&ana, "other", "draft", "2").await;
        for (path, labels) in [("secret", json!(["confidential"])), ("secret/deep", json!(["key"]))] {
            let body = json!({ "labels": labels }).to_string();
            ana.ask(Method::PUT, &format!("/v1/labels/tenants/acme/{path}")).body(body).answer().await.ok();
        }
        let answer = push(&mut world, &ana, [&from, &to, "main"], async |_| {}).await;
        let report = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(report.contains("ok refs/heads/main"), "{report}");
        let labels = async |path: &str| {
            let shown: PathLabels = ana.get(&format!("/v1/labels/tenants/acme{path}")).await.ok().json();
            shown.labels.union(&shown.inherited).map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(labels("/z").await, ["confidential", "key"]);
        if file != "plain" {
            assert_eq!(labels(&format!("/{levels}{}/f", "/b".repeat(levels))).await, ["confidential", "key"]);
        }
        let of_all: &[&str] = if everything { &["confidential", "key"] } else { &[] };
        assert_eq!(labels("/other").await, of_all);
    }
}

/// Has `asked` wait for its store, whose lock somebody holds whose write does not come to its end, while `rule` comes in
/// force.
async fn held_up(world: &World, asked: impl Future<Output = Answer> + Send + 'static, rule: &str) -> Answer {
    let other = world.client("acme", "other");
    let db = rusqlite::Connection::open(world.folder.path().join("bailey.db")).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let holder = tokio::spawn(async move { other.put("/v1/tree/tenants/acme/other", "1").await });
    tokio::time::sleep(LET_IN).await;
    let asked = tokio::spawn(asked);
    tokio::time::sleep(LET_IN).await;
    assert!(!holder.is_finished() && !asked.is_finished());
    assert!(world.control.activate_policies(rules(rule)).await);
    db.execute_batch("ROLLBACK").unwrap();
    holder.await.unwrap().ok();
    asked.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c13_a_promotion_lands_by_the_policies_of_that_moment() {
    for rule in [
        r#"@id("closed") forbid (principal, action == Action::"tree_write", resource)
            when { resource.path == "/tenants/acme/d/x" };"#,
        r#"@id("closed") forbid (principal, action == Action::"tree_promote", resource);"#,
        r#"@id("closed") forbid (principal, action == Action::"tree_read", resource)
            when { context has branch && context.branch == "draft" };"#,
    ] {
        let world = World::with(roomy).await;
        let ana = world.client("acme", "ana");
        put(&ana, "d/y", "main", "1").await;
        fork(&ana, "draft").await;
        put(&ana, "d/x", "draft", "1").await;
        let promotion = async move {
            ana.post("/v1/promotions", json!({"path": "/tenants/acme", "from": "draft", "into": "main"})).await
        };
        assert_eq!(held_up(&world, promotion, rule).await.error(403).policies, ["closed"]);
        world.client("acme", "ana").get("/v1/tree/tenants/acme/d/x").await.error(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c13_a_deletion_of_a_folder_lands_by_the_policies_of_that_moment() {
    let world = World::with(roomy).await;
    let ana = world.client("acme", "ana");
    put(&ana, "d/in/x", "main", "1").await;
    let rule = r#"@id("kept") forbid (principal, action == Action::"tree_delete", resource)
        when { resource.path == "/tenants/acme/d/in/x" };"#;
    let deletion = async move { ana.delete("/v1/tree/tenants/acme/d").await };
    assert_eq!(held_up(&world, deletion, rule).await.error(403).policies, ["kept"]);
    world.client("acme", "ana").get("/v1/tree/tenants/acme/d/in/x").await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c13_a_baseline_is_published_by_the_policies_of_that_moment() {
    let world = World::with(roomy).await;
    let root = world.operator();
    let upload = Slow::begin(&root, Method::POST, "/v1/operator/baselines/base", "application/x-tar");
    let rule = r#"@id("closed") forbid (principal, action == Action::"baseline_publish", resource);"#;
    let change = Box::pin(async { assert!(world.control.activate_policies(rules(rule)).await) });
    let answer = upload.change(&tar(&[("x", "1")]), change).await;
    assert_eq!(answer.error(403).policies, ["closed"]);
    let list = world.client("acme", "ana").get("/v1/baselines").await.ok();
    assert!(!String::from_utf8_lossy(&list.body).contains("base\""), "{list:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c13_what_a_run_changed_lands_by_the_policies_of_that_moment() {
    let world = World::new().await;
    let ana = world.client("acme", "ana");
    put(&ana, "d/y", "main", "1").await;
    let (go, wait) = tokio::sync::watch::channel(false);
    world.node.follow(move |order: StartRun| {
        let mut wait = wait.clone();
        async move {
            wait.wait_for(|go| *go).await.unwrap();
            writes(order, "x", "from the run".to_owned()).await;
        }
    });
    let body = json!({"command": ["true"], "mounts": [{"path": "/tenants/acme/d", "at": "/data"}]});
    let begun = ana.ask(Method::POST, "/v1/runs").body(body.to_string()).begin().await;
    let run = begun.headers()["bailey-run"].to_str().unwrap().to_owned();
    let rule = r#"@id("closed") forbid (principal, action == Action::"mount_write", resource)
        when { resource.path == "/tenants/acme/d/x" };
        @id("unread") forbid (principal, action == Action::"mount_read", resource);"#;
    assert!(world.control.activate_policies(rules(rule)).await);
    go.send(true).unwrap();
    match ana.get(&format!("/v1/runs/{run}/events")).await.last() {
        RunEventKind::Ended(result) => {
            let version = &result.versions[0];
            assert_eq!((result.ending, version.outcome), (Ending::Exited { code: 0 }, CommitOutcome::SideBranch));
            assert!(version.reason.as_deref().unwrap().contains("`closed`"), "{version:?}");
            assert_eq!(version.conflicts, ["d/x"]);
        }
        other => panic!("{other:?}"),
    }
    ana.get("/v1/tree/tenants/acme/d/x").await.error(404);
    // What it was given it kept; the next is asked anew.
    assert_eq!(ana.run(body).await.error(403).policies, ["unread"]);
}

/// Reads slowly until the body breaks off, which it has to before anything is judged by the clock.
async fn breaks_off(mut body: hyper::body::Incoming) {
    let broken = async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Some(Err(_broken)) => return,
                None => panic!("it ended as if it were whole"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(4), broken).await.expect("it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn labels_and_protections_set_meanwhile_count_at_once_for_what_is_being_sent() {
    let world = World::with(roomy).await;
    let text = r#"@id("frozen") forbid (principal, action == Action::"tree_read", resource)
            when { resource.labels.contains("frozen") };
        @id("reviewed") forbid (principal, action == Action::"tree_read", resource)
            when { resource.protected && resource.path == "/tenants/acme/reviewed" };
        @id("unreviewed") forbid (principal, action == Action::"tree_read", resource)
            when { resource.path == "/tenants/acme/unreviewed" } unless { resource.protected };
        @id("unplanned") forbid (principal, action == Action::"tree_read", resource)
            when { resource.path == "/tenants/acme/planned" && principal.tenant has plan };"#;
    assert!(world.control.activate_policies(rules(text)).await);
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    for name in ["labelled", "reviewed", "unreviewed", "planned"] {
        let content = Bytes::from(vec![7; 24 << 20]);
        ana.put(&format!("/v1/tree/tenants/acme/{name}"), content).await.ok();
    }
    let begin = async |name: &str| {
        let answer = ana.ask(Method::GET, &format!("/v1/tree/tenants/acme/{name}")).begin().await;
        assert_eq!(answer.status(), 200);
        // Whatever it finds at once, it has found.
        tokio::time::sleep(LET_IN).await;
        answer.into_body()
    };
    let labelled = begin("labelled").await;
    let label = boss.ask(Method::PUT, "/v1/labels/tenants/acme/labelled").header("content-type", "application/json");
    label.body(r#"{"labels":["frozen"]}"#).answer().await.ok();
    breaks_off(labelled).await;
    let reviewed = begin("reviewed").await;
    boss.ask(Method::PUT, "/v1/protections/tenants/acme?branch=main").answer().await.ok();
    breaks_off(reviewed).await;
    let unreviewed = begin("unreviewed").await;
    boss.delete("/v1/protections/tenants/acme?branch=main").await.ok();
    breaks_off(unreviewed).await;
    // As does what an operator notes of the tenant.
    let planned = begin("planned").await;
    let noting = world.operator();
    let noting = noting.ask(Method::PUT, "/v1/operator/tenants/acme/facts").header("content-type", "application/json");
    noting.body(r#"{"plan":"free"}"#).answer().await.ok();
    breaks_off(planned).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_right_that_a_keys_user_lost_counts_at_once_for_what_is_being_sent() {
    let rule = r#"@id("editors") forbid (principal is User, action == Action::"tree_read", resource)
        unless { principal.roles.contains("editor") };"#;
    let world = World::with(roomy).await;
    assert!(world.control.activate_policies(rules(rule)).await);
    let boss = world.client_as("acme", "boss", &["admin", "editor"]);
    boss.put("/v1/tree/tenants/acme/x", Bytes::from(vec![7; 24 << 20])).await.ok();
    let asked = json!({"name": "ci", "ttl_seconds": 3600, "roles": ["editor"], "actions": ["tree_read"]});
    let made: serde_json::Value = boss.post("/v1/keys", asked).await.ok().json();
    let key = world.holder(made["value"].as_str().unwrap());
    let answer = key.ask(Method::GET, "/v1/tree/tenants/acme/x").begin().await;
    assert_eq!(answer.status(), 200);
    tokio::time::sleep(LET_IN).await;
    world.pass(Duration::from_secs(1));
    world.client_as("acme", "boss", &["member"]).get("/v1/runs").await.ok();
    breaks_off(answer.into_body()).await;
}

/// Without the connection, which ends with its operator as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c18_a_baseline_is_not_published_once_its_operator_is_disabled() {
    let world = World::new().await;
    let credential = CredentialId { kind: CredentialKind::Token, id: "rita-1".to_owned() };
    let operator = Operator { name: "rita".to_owned(), roles: [].into(), valid_until_ms: u64::MAX, credential };
    let caller = OperatorCaller { operator, request: RequestId::mint(1, [1; 10]) };
    let ((writer, reader), control) = (pipe(), world.control.clone());
    let publishing =
        tokio::spawn(async move { baselines::publish(&control, &caller, "base".parse().unwrap(), reader).await });
    // More pieces than the pipe holds: once they are taken, it is allowed and under way.
    let content = tar(&[("x", "1")]);
    let (first, rest) = content.split_at(700);
    for piece in first.chunks(32) {
        writer.send(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    world.operator().post("/v1/operator/accounts/operator/rita/disable", json!({})).await.ok();
    writer.send(Bytes::copy_from_slice(rest)).await.unwrap();
    writer.finish().await.unwrap_or_default();
    assert_eq!(publishing.await.unwrap().unwrap_err().code, "account_disabled");
    let list = world.client("acme", "ana").get("/v1/baselines").await.ok();
    assert!(!String::from_utf8_lossy(&list.body).contains("base\""), "{list:?}");
}
