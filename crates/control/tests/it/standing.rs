//! What ends when somebody's rights do, and how soon.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bailey_control::config::{ControlConfig, WebhookSecret};
use bailey_protocol::api::identity::{DisabledAnswer, TenantList, UserList};
use bailey_protocol::api::{RunAccepted, RunEventKind};
use bailey_protocol::node::Ending;
use bytes::Bytes;
use futures_util::stream;
use http::Method;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::node::until_cancelled;
use crate::world::World;

/// Everything of theirs is over within this.
const SOON: Duration = Duration::from_secs(1);

/// What webhooks are signed with.
const SECRET: [u8; 32] = [7; 32];

/// Seconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// The header of a signed message.
fn signature(secret: &[u8], time: u64, body: &str) -> String {
    use aws_lc_rs::hmac;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), format!("{time}.{body}").as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={time},v1={hex}")
}

/// The rest of a body, which has to break off and not to end.
async fn breaks_off(mut body: hyper::body::Incoming) {
    loop {
        match tokio::time::timeout(Duration::from_secs(20), body.frame()).await.expect("it goes on") {
            Some(Ok(_)) => {}
            Some(Err(_broken)) => return,
            None => panic!("it ended as if it were whole"),
        }
    }
}

/// An upload that sends a little and then goes on for ever.
pub async fn endless(client: &Client, method: Method, path: &str) -> http::StatusCode {
    let stream = TcpStream::connect(client.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let pieces = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"xxxxxxxx"))), ()))
    });
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "bailey")
        .header("authorization", format!("Bearer {}", client.token.as_ref().unwrap()))
        .body(StreamBody::new(Box::pin(pieces)))
        .unwrap();
    sender.send_request(request).await.map_or(http::StatusCode::IM_A_TEAPOT, |answer| answer.status())
}

async fn start_run(client: &Client) -> String {
    client.run(json!({"command": ["sleep", "9"], "detach": true})).await.json::<RunAccepted>().run.to_string()
}

/// Waits for the run's end and says what it was.
async fn ending(client: &Client, run: &str) -> (Ending, Option<String>) {
    match client.get(&format!("/v1/runs/{run}/events")).await.last() {
        RunEventKind::Ended(result) => (result.ending, result.denied),
        other => panic!("{other:?}"),
    }
}

fn with_webhook(config: &mut ControlConfig) {
    config.identity.webhook = WebhookSecret::new(SECRET.to_vec());
}

/// Waits until a run's log has its end: nobody's credential is needed for that.
async fn log_ends(log: PathBuf) {
    while !std::fs::read_to_string(&log).unwrap_or_default().contains(r#""event":"ended""#) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What goes on, each by a task that is over as soon as it is.
#[derive(Default)]
struct Busy(Vec<(&'static str, JoinHandle<()>)>);

impl Busy {
    /// By this credential: an upload, and the stream of a run's events.
    async fn with(&mut self, client: &Client, run: &str) {
        let events = client.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await;
        assert_eq!(events.status(), 200);
        self.0.push(("events", tokio::spawn(breaks_off(events.into_body()))));
        self.upload(client);
    }

    fn upload(&mut self, client: &Client) {
        let client = client.clone();
        let upload = async move {
            let status = endless(&client, Method::PUT, "/v1/tree/tenants/acme/big").await;
            assert!(!status.is_success(), "{status}");
        };
        self.0.push(("upload", tokio::spawn(upload)));
    }

    /// All of it ends within a second of `begin`.
    async fn ends(self, begin: Instant) {
        for (name, task) in self.0 {
            let left = SOON.saturating_sub(begin.elapsed());
            tokio::time::timeout(left, task).await.unwrap_or_else(|_| panic!("{name} goes on")).unwrap();
        }
    }
}

/// Makes `ana` busy in every way, takes her rights away by `end`, and sees everything end within a second of the asking for
/// it. Then gives them back by `again`, and looks how her runs ended.
async fn everything_ends(world: &World, end: impl AsyncFnOnce(), again: impl AsyncFnOnce(), code: &str, why: &str) {
    let (ana, admin) = (world.client("acme", "ana"), world.admin("acme", "ana"));
    world.node.follow(until_cancelled);
    let key = admin.post("/v1/keys", json!({"name": "ci", "ttl_seconds": 600})).await.ok().json::<serde_json::Value>();
    let key = world.holder(key["value"].as_str().unwrap());
    let share = json!({"path": "/tenants/acme", "mode": "write", "minutes": 5});
    let token = ana.post("/v1/tree-tokens", share).await.ok().json::<serde_json::Value>();
    let token = world.holder(token["token"].as_str().unwrap());
    let runs = [start_run(&ana).await, start_run(&key).await];
    let mut busy = Busy::default();
    busy.with(&ana, &runs[0]).await;
    busy.with(&key, &runs[1]).await;
    busy.upload(&token);
    for run in &runs {
        let log = world.folder.path().join(format!("runs/acme/{run}.ndjson"));
        busy.0.push(("run", tokio::spawn(log_ends(log))));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    for (name, task) in &busy.0 {
        assert!(!task.is_finished(), "{name} did not go on");
    }
    let begin = Instant::now();
    end().await;
    // New requests first: there is no moment in which one works.
    for client in [&ana, &admin, &key, &token] {
        assert_eq!(client.get("/v1/runs").await.error(403).error, code);
    }
    // Also where nothing is.
    assert_eq!(ana.get("/v1/nothing").await.error(403).error, code);
    busy.ends(begin).await;
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    again().await;
    // What was ended stays ended, and says why; nothing of the upload is there.
    for run in &runs {
        let (how, said) = ending(&ana, run).await;
        assert_eq!((how, said.as_deref()), (Ending::Cancelled, Some(why)));
    }
    world.client("acme", "bob").get("/v1/tree/tenants/acme/big").await.error(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a10_disabling_a_user_ends_everything_of_theirs_within_a_second() {
    let world = World::with(with_webhook).await;
    let boss = world.admin("acme", "boss");
    let end = async || {
        let answer: DisabledAnswer = boss.post("/v1/users/ana/disable", json!({})).await.ok().json();
        assert_eq!(answer, DisabledAnswer { disabled: true, changed: true, known: Some(true) });
    };
    let again = async || {
        // Others go on.
        world.client("acme", "bob").get("/v1/runs").await.ok();
        world.client("globex", "ana").get("/v1/runs").await.ok();
        let users: UserList = boss.get("/v1/users").await.ok().json();
        let ana = users.users.iter().find(|info| info.user.as_str() == "ana").unwrap();
        assert!(ana.disabled_since_ms.is_some() && ana.last_seen_ms.is_some(), "{ana:?}");
        let answer: DisabledAnswer = boss.post("/v1/users/ana/enable", json!({})).await.ok().json();
        assert_eq!(answer, DisabledAnswer { disabled: false, changed: true, known: Some(true) });
    };
    Box::pin(everything_ends(&world, end, again, "user_disabled", "the user is disabled")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a10_disabling_a_tenant_ends_everything_of_its_users() {
    let world = World::with(with_webhook).await;
    let operator = world.operator();
    let end = async || drop(operator.post("/v1/operator/tenants/acme/disable", json!({})).await.ok());
    let again = async || {
        assert_eq!(world.client("acme", "bob").get("/v1/runs").await.error(403).error, "tenant_disabled");
        world.client("globex", "gil").get("/v1/runs").await.ok();
        let tenants: TenantList = operator.get("/v1/operator/tenants").await.ok().json();
        let acme = tenants.tenants.iter().find(|info| info.tenant.as_str() == "acme").unwrap();
        assert!(acme.disabled_since_ms.is_some() && acme.users > 0, "{acme:?}");
        operator.post("/v1/operator/tenants/acme/enable", json!({})).await.ok();
    };
    Box::pin(everything_ends(&world, end, again, "tenant_disabled", "the tenant is disabled")).await;
    world.client("acme", "bob").get("/v1/runs").await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a10_a_signed_message_ends_everything_of_a_user_or_a_tenant() {
    for (body, back, code, why) in [
        (
            r#"{"event":"disable","tenant":"acme","user":"ana"}"#,
            "/v1/operator/tenants/acme/users/ana/enable",
            "user_disabled",
            "the user is disabled",
        ),
        (
            r#"{"event":"disable","tenant":"acme"}"#,
            "/v1/operator/tenants/acme/enable",
            "tenant_disabled",
            "the tenant is disabled",
        ),
    ] {
        let world = World::with(with_webhook).await;
        let (nobody, operator) = (Client { address: world.address, token: None }, world.operator());
        let end = async || {
            let asking = nobody.ask(Method::POST, "/v1/webhooks/identity");
            asking.header("bailey-signature", &signature(&SECRET, now(), body)).body(body).answer().await.ok();
        };
        let again = async || drop(operator.post(back, json!({})).await.ok());
        Box::pin(everything_ends(&world, end, again, code, why)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a10_what_goes_on_by_a_key_or_a_tree_token_ends_with_it() {
    for revoked in [true, false] {
        let world = World::with(with_webhook).await;
        world.node.follow(until_cancelled);
        let admin = world.admin("acme", "ana");
        let made = admin.post("/v1/keys", json!({"name": "ci", "ttl_seconds": 300})).await.ok();
        let made = made.json::<serde_json::Value>();
        let share = json!({"path": "/tenants/acme", "mode": "write", "minutes": 5});
        let shared = admin.post("/v1/tree-tokens", share).await.ok().json::<serde_json::Value>();
        let (key, token) =
            (world.holder(made["value"].as_str().unwrap()), world.holder(shared["token"].as_str().unwrap()));
        let run = start_run(&key).await;
        let mut by_key = Busy::default();
        by_key.with(&key, &run).await;
        let (mut by_token, mut others) = (Busy::default(), Busy::default());
        by_token.upload(&token);
        others.with(&admin, &start_run(&admin).await).await;
        world.pass(Duration::from_secs(290));
        tokio::time::sleep(Duration::from_millis(700)).await;
        for (name, task) in by_key.0.iter().chain(&by_token.0).chain(&others.0) {
            assert!(!task.is_finished(), "{name} did not go on");
        }
        if revoked {
            let begin = Instant::now();
            admin.delete(&format!("/v1/keys/{}", made["key"]["id"].as_str().unwrap())).await.ok();
            by_key.ends(begin).await;
            assert!(!by_token.0[0].1.is_finished());
            let begin = Instant::now();
            admin.delete(&format!("/v1/tree-tokens/{}", shared["id"].as_str().unwrap())).await.ok();
            by_token.ends(begin).await;
        } else {
            let begin = Instant::now();
            world.pass(Duration::from_secs(11));
            by_key.ends(begin).await;
            by_token.ends(begin).await;
        }
        for client in [&key, &token] {
            client.get("/v1/tree/tenants/acme/big").await.error(401);
        }
        // Another credential of the same user goes on.
        for (name, task) in &others.0 {
            assert!(!task.is_finished(), "{name} ended, too");
        }
        admin.get("/v1/tree/tenants/acme/big").await.error(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a10_a_stalled_database_keeps_nobody_in() {
    let world = World::new().await;
    let (boss, ana) = (world.admin("acme", "boss"), world.client("acme", "ana"));
    ana.get("/v1/runs").await.ok();
    boss.post("/v1/users/ana/disable", json!({})).await.ok();
    // Whoever holds the database's lock holds up no refusal: it is made in memory.
    let db = rusqlite::Connection::open(world.folder.path().join("bailey.db")).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begin = Instant::now();
    for _ in 0..100 {
        assert_eq!(ana.get("/v1/tree/tenants/acme/x").await.error(403).error, "user_disabled");
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    db.execute_batch("ROLLBACK").unwrap();
}

#[tokio::test]
async fn what_is_disabled_stays_so_over_a_restart() {
    let world = World::new().await;
    let (boss, operator) = (world.admin("acme", "boss"), world.operator());
    let made = boss.post("/v1/keys", json!({"name": "ci", "ttl_seconds": 600})).await.ok().json::<serde_json::Value>();
    let (id, value) = (made["key"]["id"].as_str().unwrap().to_owned(), made["value"].as_str().unwrap().to_owned());
    let kept =
        boss.post("/v1/keys", json!({"name": "kept", "ttl_seconds": 600})).await.ok().json::<serde_json::Value>();
    boss.delete(&format!("/v1/keys/{id}")).await.ok();
    boss.post("/v1/users/ana/disable", json!({})).await.ok();
    operator.post("/v1/operator/tenants/globex/disable", json!({})).await.ok();
    // As a crash leaves it: what was answered is on disk.
    let world = World::on(world.crash().await).await;
    assert_eq!(world.client("acme", "ana").get("/v1/runs").await.error(403).error, "user_disabled");
    assert_eq!(world.client("globex", "gil").get("/v1/runs").await.error(403).error, "tenant_disabled");
    world.holder(&value).get("/v1/runs").await.error(401);
    world.holder(kept["value"].as_str().unwrap()).get("/v1/runs").await.ok();
    world.client("acme", "bob").get("/v1/runs").await.ok();
}

#[tokio::test]
async fn an_admin_cannot_undo_what_an_operator_did_nor_shut_itself_out() {
    let world = World::new().await;
    let (boss, operator) = (world.admin("acme", "boss"), world.operator());
    operator.post("/v1/operator/tenants/acme/users/ana/disable", json!({})).await.ok();
    assert_eq!(boss.post("/v1/users/ana/enable", json!({})).await.error(403).error, "disabled_by_operator");
    world.client("acme", "ana").get("/v1/runs").await.error(403);
    operator.post("/v1/operator/tenants/acme/users/ana/enable", json!({})).await.ok();
    world.client("acme", "ana").get("/v1/runs").await.ok();
    assert_eq!(boss.post("/v1/users/boss/disable", json!({})).await.error(400).error, "own_user");
    // Who is no admin, or another tenant's, changes nothing here.
    let error = world.client("acme", "bob").post("/v1/users/ana/disable", json!({})).await.error(403);
    assert_eq!(error.policies, ["admins-only"]);
    world.admin("globex", "gil").post("/v1/users/ana/disable", json!({})).await.ok();
    world.client("acme", "ana").get("/v1/runs").await.ok();
    world.client("globex", "ana").get("/v1/runs").await.error(403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn streams_end_with_their_token_and_runs_a_while_later() {
    let world = World::with(|config| config.identity.max_run_age_past_expiry = Duration::from_secs(2)).await;
    world.node.follow(until_cancelled);
    let (brief, later) = (world.client_for("acme", "ana", 3), world.client("acme", "ana"));
    let run = start_run(&brief).await;
    let events = brief.ask(Method::GET, &format!("/v1/runs/{run}/events")).begin().await.into_body();
    let begin = Instant::now();
    breaks_off(events).await;
    assert!((1..5).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(brief.get("/v1/runs").await.error(401).error, "token_expired");
    // The run goes on for as long as is configured.
    assert!(later.get(&format!("/v1/runs/{run}")).await.ok().body.windows(7).any(|word| word == b"running"));
    let (how, why) = ending(&later, &run).await;
    assert_eq!((how, why.as_deref()), (Ending::Cancelled, Some("the credential is expired")));
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_webhook_is_believed_by_its_signature_alone() {
    let world = World::with(with_webhook).await;
    let (sign, secret, now) = (signature, SECRET, now());
    let nobody = Client { address: world.address, token: None };
    let send = async |signature: Option<&str>, body: &str| {
        let mut asking = nobody.ask(Method::POST, "/v1/webhooks/identity").body(body.to_owned());
        if let Some(signature) = signature {
            asking = asking.header("bailey-signature", signature);
        }
        asking.answer().await
    };
    let body = r#"{"event":"disable","tenant":"acme","user":"ana"}"#;
    let good = sign(&secret, now, body);
    let mut all = Vec::new();
    for (signature, body) in [
        (None, body),
        (Some(sign(&[8; 32], now, body).as_str()), body),
        (Some(sign(&secret, now - 301, body).as_str()), body),
        (Some(sign(&secret, now + 360, body).as_str()), body),
        (Some(&good), r#"{"event":"disable","tenant":"acme","user":"bob"}"#),
        (Some(&good.replace("t=", "t=0")), body),
        (Some(&good.replace("v1=", "v0=")), body),
        (Some(&format!("{good},v1=00")), body),
        (Some("t=1,v1="), body),
        (Some("x"), body),
    ] {
        let error = send(signature, body).await.error(401);
        all.push((error.error, error.message));
    }
    all.dedup();
    assert_eq!(all.len(), 1);
    world.client("acme", "ana").get("/v1/runs").await.ok();
    // What is signed and wrong is told what is wrong; nothing in it gives rights back.
    for bad in ["{}", r#"{"event":"enable","tenant":"acme"}"#, r#"{"event":"disable","tenant":"A"}"#, "[]"] {
        send(Some(&sign(&secret, now, bad)), bad).await.error(400);
    }
    send(Some(&good), body).await.ok();
    assert_eq!(world.client("acme", "ana").get("/v1/runs").await.error(403).error, "user_disabled");
    let tenant = r#"{"event":"disable","tenant":"globex"}"#;
    send(Some(&sign(&secret, now, tenant)), tenant).await.ok();
    assert_eq!(world.client("globex", "gil").get("/v1/runs").await.error(403).error, "tenant_disabled");
    // A server without a secret answers as to a message without a signature.
    let other = World::new().await;
    let asking = Client { address: other.address, token: None };
    let answer = asking.ask(Method::POST, "/v1/webhooks/identity").header("bailey-signature", &good).body(body);
    answer.answer().await.error(401);
}

#[tokio::test]
async fn a_signed_message_does_no_more_than_policy_lets_operators_do() {
    let world = World::with(with_webhook).await;
    let forbid = r#"@id("planted") forbid (principal, action == Action::"tenant_user_disable", resource);"#;
    let forbid = bailey_policy::Policies::new(&[("o.cedar".to_owned(), forbid.to_owned())]).unwrap();
    assert!(world.control.activate_policies(forbid).await);
    let body = r#"{"event":"disable","tenant":"acme","user":"ana"}"#;
    let nobody = Client { address: world.address, token: None };
    let asking = nobody.ask(Method::POST, "/v1/webhooks/identity");
    let asking = asking.header("bailey-signature", &signature(&SECRET, now(), body));
    assert_eq!(asking.body(body).answer().await.error(403).policies, ["planted"]);
    world.client("acme", "ana").get("/v1/runs").await.ok();
}

#[tokio::test]
async fn what_was_learned_of_a_user_has_an_age() {
    let world = World::new().await;
    let boss = world.admin("acme", "boss");
    world.client("acme", "ana").get("/v1/runs").await.ok();
    let first: UserList = boss.get("/v1/users?limit=1").await.ok().json();
    assert_eq!((first.users.len(), first.next.as_ref().map(|user| user.as_str())), (1, Some("ana")));
    let rest: UserList = boss.get("/v1/users?after=ana").await.ok().json();
    assert_eq!(rest.users.iter().map(|info| info.user.as_str()).collect::<Vec<_>>(), ["boss"]);
    let known = &rest.users[0];
    assert_eq!(known.roles, ["admin", "member"]);
    assert!(known.first_seen_ms <= known.last_seen_ms && known.valid_until_ms > known.last_seen_ms);
    // It is there after the end of the server.
    let world = World::on(world.stop().await).await;
    let again: UserList = world.admin("acme", "carl").get("/v1/users").await.ok().json();
    assert_eq!(again.users.iter().map(|info| info.user.as_str()).collect::<Vec<_>>(), ["ana", "boss", "carl"]);
    assert_eq!(again.users[1].first_seen_ms, known.first_seen_ms);
    world.client("acme", "ana").get("/v1/users").await.error(403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c18_a_right_that_was_lost_stays_lost_over_a_crash() {
    let rule = r#"@id("editors") forbid (principal is User, action == Action::"tree_read", resource)
        unless { principal.roles.contains("editor") };"#;
    let policies = || bailey_policy::Policies::new(&[("o.cedar".to_owned(), rule.to_owned())]).unwrap();
    let world = World::under(policies()).await;
    let had = ["admin", "editor"];
    let boss = world.client_as("acme", "boss", &had);
    boss.put("/v1/tree/tenants/acme/x", "1").await.ok();
    let asked = json!({"name": "ci", "ttl_seconds": 3600, "roles": ["admin"], "actions": ["user_list", "run_list"]});
    let key = boss.post("/v1/keys", asked).await.ok().json::<serde_json::Value>()["value"].as_str().unwrap().to_owned();
    let share = json!({"path": "/tenants/acme", "mode": "read", "minutes": 60});
    let token = world.client_as("acme", "eve", &had).post("/v1/tree-tokens", share).await.ok();
    let token = token.json::<serde_json::Value>()["token"].as_str().unwrap().to_owned();
    let world = World::on_under(world.stop().await, policies()).await;
    world.holder(&key).get("/v1/users").await.ok();
    world.holder(&token).get("/v1/tree/tenants/acme/x").await.ok();
    // Their issuer says that they lost it; then there is no moment for anything else.
    for user in ["boss", "eve"] {
        world.client_as("acme", user, &["member"]).get("/v1/runs").await.ok();
    }
    let world = World::on_under(world.crash().await, policies()).await;
    world.holder(&key).get("/v1/users").await.error(403);
    world.holder(&key).get("/v1/runs").await.ok();
    assert_eq!(world.holder(&token).get("/v1/tree/tenants/acme/x").await.error(403).policies, ["editors"]);
}
