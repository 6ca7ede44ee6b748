//! Long answers break off when the right to them is over, and say why where they can.

use std::time::{Duration, Instant};

use bailey_control::config::ControlConfig;
use bailey_policy::Policies;
use bailey_protocol::api::identity::TokenAnswer;
use bailey_protocol::api::{CutOff, ErrorBody, RunAccepted, RunEventKind, WriteAnswer};
use bailey_protocol::audit::AuditPage;
use bailey_protocol::git::GitUpdate;
use bailey_protocol::node::Ending;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::json;
use tokio::time::timeout;

use crate::client::Client;
use crate::node::until_cancelled;
use crate::world::World;

/// Rights are over within this, policies judged again at once.
const SOON: Duration = Duration::from_secs(2);

fn roomy(config: &mut ControlConfig) {
    config.max_file_bytes = 128 << 20;
}

fn policies(text: &str) -> Policies {
    Policies::new(&[("o.cedar".to_owned(), text.to_owned())]).unwrap()
}

/// What a body says until it breaks off, which it has to.
async fn until_broken(mut body: Incoming) -> Vec<u8> {
    let mut seen = Vec::new();
    loop {
        match timeout(Duration::from_secs(20), body.frame()).await.expect("it goes on") {
            Some(Ok(frame)) => seen.extend_from_slice(frame.data_ref().unwrap()),
            Some(Err(_broken)) => return seen,
            None => panic!("it ended as if it were whole, after {} bytes", seen.len()),
        }
    }
}

/// The last line of what was broken off: why.
fn last_words(seen: &[u8]) -> ErrorBody {
    let last = seen.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
    serde_json::from_slice::<CutOff>(last).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(last))).cut_off
}

async fn denials(admin: &Client, action: &str) -> Vec<Vec<String>> {
    let page: AuditPage = admin.get(&format!("/v1/audit?decision=denied&action={action}")).await.ok().json();
    page.records.into_iter().map(|record| record.row.policies).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a10_a_disabled_operators_streams_and_uploads_break_off() {
    let world = World::new().await;
    let (root, rita) = (world.operator(), world.operator_named("rita"));
    let follow = rita.ask(Method::GET, "/v1/operator/audit?follow=true&after=0").begin().await;
    assert_eq!(follow.status(), 200);
    let mut follow = follow.into_body();
    let first = timeout(SOON, follow.frame()).await.unwrap().unwrap().unwrap();
    assert!(first.data_ref().unwrap().starts_with(b"{\"row\":{\"chain\":\"operator\","));
    let mut other = root.ask(Method::GET, "/v1/operator/audit?follow=true").begin().await.into_body();
    let upload = tokio::spawn({
        let rita = rita.clone();
        async move { crate::standing::endless(&rita, Method::POST, "/v1/operator/baselines/big").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    root.post("/v1/operator/accounts/operator/rita/disable", json!({})).await.ok();
    let begin = Instant::now();
    let seen = timeout(SOON, until_broken(follow)).await.expect("it goes on");
    let why = last_words(&seen);
    assert_eq!((why.code, why.error.as_str()), (403, "account_disabled"));
    let status = timeout(SOON, upload).await.expect("the upload goes on").unwrap();
    assert!(!status.is_success(), "{status}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(rita.get("/v1/operator/tenants").await.error(403).error, "account_disabled");
    // Another operator's goes on, and tells of it.
    while !next_line(&mut other).await.contains("account_disable") {}
    let ana = world.client("acme", "ana");
    let baselines = ana.get("/v1/baselines").await.ok();
    assert!(!String::from_utf8_lossy(&baselines.body).contains("big"));
}

async fn next_line(body: &mut Incoming) -> String {
    let frame = timeout(SOON, body.frame()).await.expect("nothing comes").unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_operators_stream_ends_with_its_token() {
    let world = World::new().await;
    let brief = world.operator_for("rita", 2);
    let follow = brief.ask(Method::GET, "/v1/operator/audit?follow=true").begin().await.into_body();
    let seen = timeout(Duration::from_secs(5), until_broken(follow)).await.expect("it goes on");
    assert_eq!(last_words(&seen).error, "token_expired");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a10_a_disabled_services_runs_and_streams_end() {
    let world = World::new().await;
    world.node.follow(until_cancelled);
    let billing = world.service("billing", &["acme"]);
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token", "acme/ana"),
        ("subject_token_type", "urn:bailey:token-type:user"),
    ];
    let form = reqwest::Url::parse_with_params("form:/", fields).unwrap().query().unwrap().to_owned();
    let asking = billing.ask(Method::POST, "/v1/token").header("content-type", "application/x-www-form-urlencoded");
    let token: TokenAnswer = asking.body(form).answer().await.ok().json();
    let ana = world.holder(&token.access_token);
    let run = ana.run(json!({"command": ["sleep", "9"], "detach": true})).await.json::<RunAccepted>().run;
    let events = ana.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await.into_body();
    let sse = ana.ask(Method::GET, &format!("/v1/runs/{run}/events")).header("accept", "text/event-stream");
    let sse = sse.begin().await.into_body();
    world.operator().post("/v1/operator/accounts/service/billing/disable", json!({})).await.ok();
    let seen = timeout(SOON, until_broken(events)).await.expect("it goes on");
    assert_eq!(last_words(&seen).error, "account_disabled");
    let seen = String::from_utf8(timeout(SOON, until_broken(sse)).await.expect("it goes on")).unwrap();
    let (_, words) = seen.split_once("event: cut_off\ndata: ").unwrap_or_else(|| panic!("{seen}"));
    assert_eq!(serde_json::from_str::<ErrorBody>(words.trim_end()).unwrap().error, "account_disabled");
    // What it had running is cancelled, as the user sees in its own name.
    match world.client("acme", "ana").get(&format!("/v1/runs/{run}/events")).await.last() {
        RunEventKind::Ended(result) => {
            assert_eq!((result.ending, result.denied.as_deref()), (Ending::Cancelled, Some("the account is disabled")));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_of_events_that_policy_forbids_says_so_last() {
    let world = World::new().await;
    world.node.follow(until_cancelled);
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let run = ana.run(json!({"command": ["sleep", "9"], "detach": true})).await.json::<RunAccepted>().run;
    let events = ana.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await.into_body();
    let blind =
        r#"@id("blind") @reason("nobody looks") forbid (principal is User, action == Action::"run_read", resource);"#;
    assert!(world.control.activate_policies(policies(blind)).await);
    let why = last_words(&timeout(SOON, until_broken(events)).await.expect("it goes on"));
    assert_eq!((why.error.as_str(), why.policies), ("denied", vec!["blind".to_owned()]));
    assert_eq!(denials(&boss, "run_read").await, [["blind"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn downloads_break_off_when_policy_forbids_them() {
    let world = World::with(roomy).await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    const BYTES: usize = 64 << 20;
    ana.put("/v1/tree/tenants/acme/d/big", Bytes::from(vec![7; BYTES])).await.ok();
    ana.put("/v1/tree/tenants/acme/e/secret/big", Bytes::from(vec![7; BYTES])).await.ok();
    let file = ana.ask(Method::GET, "/v1/tree/tenants/acme/d/big").begin().await;
    let tar = ana.ask(Method::GET, "/v1/tree/tenants/acme/e").header("accept", "application/x-tar").begin().await;
    let other = world.client("globex", "gil");
    other.put("/v1/tree/tenants/globex/d/big", Bytes::from(vec![7; BYTES])).await.ok();
    let other = other.ask(Method::GET, "/v1/tree/tenants/globex/d/big").begin().await;
    assert!(file.status() == 200 && tar.status() == 200 && other.status() == 200);
    // Of the archive only what is below it.
    let rules = r#"@id("closed") forbid (principal, action == Action::"tree_read", resource)
        when { resource.path like "/tenants/acme/d/*" || resource.path like "/tenants/acme/e/secret*" };"#;
    assert!(world.control.activate_policies(policies(rules)).await);
    // They are denied though nobody reads.
    let denied = async { while denials(&boss, "tree_read").await.len() < 2 {} };
    timeout(SOON, denied).await.expect("who reads nothing is not denied");
    for body in [file.into_body(), tar.into_body()] {
        let seen = timeout(SOON * 5, until_broken(body)).await.expect("it goes on").len();
        assert!(seen < BYTES, "{seen}");
    }
    // What is not forbidden comes to its end.
    let whole = other.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), BYTES);
    assert_eq!(denials(&boss, "tree_read").await, [["closed"], ["closed"]]);
    ana.get("/v1/tree/tenants/acme/d/big").await.error(403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_export_of_the_audit_breaks_off_with_the_right_to_read_it() {
    let world = World::with(roomy).await;
    let boss = world.admin("acme", "boss");
    let follow = boss.ask(Method::GET, "/v1/audit?follow=true").begin().await.into_body();
    let root = world.operator();
    let operators = root.ask(Method::GET, "/v1/operator/audit?follow=true&tenant=acme").begin().await.into_body();
    let rules =
        r#"@id("sealed") forbid (principal, action in [Action::"audit_read", Action::"tenant_audit"], resource);"#;
    assert!(world.control.activate_policies(policies(rules)).await);
    for body in [follow, operators] {
        let why = last_words(&timeout(SOON, until_broken(body)).await.expect("it goes on"));
        assert_eq!(why.policies, ["sealed"]);
    }
    assert!(world.control.activate_policies(policies("")).await);
    assert_eq!(denials(&boss, "audit_read").await, [["sealed"]]);
    let page: AuditPage = root.get("/v1/operator/audit?decision=denied&action=tenant_audit").await.ok().json();
    assert_eq!(page.records.len(), 1);
    assert_eq!(page.records[0].user.as_deref(), Some("root"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fetch_that_policy_forbids_on_the_way_breaks_off_and_git_says_why() {
    let mut world = World::with(roomy).await;
    let (ana, boss) = (world.client("acme", "ana"), world.admin("acme", "boss"));
    let wrote: WriteAnswer = ana.put("/v1/tree/tenants/acme/d/x", "1").await.ok().json();
    let request = format!("0032want {}\n00000009done\n", wrote.version);
    let fetch = ana.ask(Method::POST, "/git/acme.git/git-upload-pack");
    let fetch = fetch.header("content-type", "application/x-git-upload-pack-request").body(request).begin();
    let (answer, order) = tokio::join!(fetch, async {
        let order = world.git.recv().await.unwrap();
        // A line that is as long as lines get, and breaks off in its middle.
        let begun = Bytes::from(format!("0008NAK\nfff0\u{1}{}", "P".repeat(1000)));
        order.updates.send(GitUpdate::Output { data: begun }).await.unwrap();
        order
    });
    assert_eq!(answer.status(), 200);
    let hidden = r#"@id("hidden") @reason("it moved") forbid (principal, action == Action::"tree_read", resource)
        when { resource.path == "/tenants/acme/d/x" };"#;
    assert!(world.control.activate_policies(policies(hidden)).await);
    let seen = timeout(SOON, until_broken(answer.into_body())).await.expect("it goes on");
    // The line is filled up, so that git reads the next: its side band for what ends an exchange.
    let last = seen.get(8 + 0xfff0..).unwrap();
    assert_eq!((&last[..1], last[4]), (&b"0"[..], 3), "{}", String::from_utf8_lossy(last));
    let said = String::from_utf8_lossy(last);
    assert!(said.contains("broken off") && said.contains("it moved"), "{said}");
    assert!(order.updates.is_closed(), "git goes on");
    assert_eq!(denials(&boss, "tree_read").await, [["hidden"]]);
}
