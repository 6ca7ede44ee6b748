//! What the HTTP front, policy and the database add to a run: runs of a node that does nothing, over one connection.
//!
//! `cargo run --release -p bailey-control --example overhead [RUNS]`

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement")]

use std::sync::Arc;
use std::time::Duration;

use bailey_control::auth::{Issuer, TokenSpec};
use bailey_control::clock::{Clock, Rng};
use bailey_control::config::ControlConfig;
use bailey_control::control::{Control, Parts};
use bailey_control::db::Sqlite;
use bailey_control::event_log::EventLogs;
use bailey_control::node_link::StartRun;
use bailey_control::threads::Threads;
use bailey_policy::{Entitlement, Policies};
use bailey_protocol::id::SandboxId;
use bailey_protocol::jail::StopFacts;
use bailey_protocol::node::{Ending, RunStarted, RunStopped, RunUpdate};
use bailey_protocol::wall::WallKind;
use bailey_tree::Trees;
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() {
    let runs: usize = std::env::args().nth(1).map_or(500, |count| count.parse().unwrap());
    let folder = tempfile::tempdir_in(".").unwrap();
    let issuer = Arc::new(Issuer::open(folder.path(), rustix::process::getuid().as_raw()).unwrap());
    let (orders, received) = mpsc::channel(16);
    let (git_orders, _nobody) = mpsc::channel(1);
    let parts = Parts {
        config: ControlConfig::new("base".parse().unwrap()),
        policies: Policies::new(&[]).unwrap(),
        prover: None,
        authenticator: issuer.authenticator(),
        issuer: Arc::clone(&issuer),
        keepers: Vec::new(),
        jwks: issuer.jwks().unwrap(),
        db: Arc::new(Sqlite::open(&folder.path().join("bailey.db")).unwrap()),
        trees: Trees::open(&folder.path().join("trees")).unwrap(),
        logs: EventLogs::open(&folder.path().join("runs")).unwrap(),
        node: orders,
        git: git_orders,
        clock: Clock::system(),
        rng: Rng::system(),
        threads: Threads::of_runtime(),
        audit_signer: issuer.audit_signer(),
    };
    let control = Control::start(parts).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    tokio::spawn(bailey_control::http::serve(listener, control, shutdown.clone(), Duration::from_secs(1)));
    tokio::spawn(idle_node(received));
    let spec = TokenSpec {
        tenant: "acme".parse().unwrap(),
        user: "ana".parse().unwrap(),
        roles: [].into(),
        entitlements: Entitlement::ALL.into(),
        ttl_seconds: 3600,
    };
    let token = issuer.mint(&spec, Clock::system().now_ms(), &Rng::system()).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let request = Request::post("/v1/runs")
            .header("host", "bailey")
            .header("authorization", format!("Bearer {}", token.reveal()))
            .body(Full::new(bytes::Bytes::from_static(br#"{"command":["true"]}"#)))
            .unwrap();
        let begun = Instant::now();
        let answer = sender.send_request(request).await.unwrap();
        assert!(answer.status().is_success());
        answer.into_body().collect().await.unwrap();
        times.push(begun.elapsed());
        sender.ready().await.unwrap();
    }
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    println!("{runs} runs: p50 {:?}, p90 {:?}, p99 {:?}", at(50), at(90), at(99));
    shutdown.cancel();
}

async fn idle_node(mut orders: mpsc::Receiver<StartRun>) {
    while let Some(order) = orders.recv().await {
        let started = RunStarted {
            sandbox: SandboxId::mint(1, [7; 10]),
            wall: WallKind::Container,
            accelerated: None,
            parked: true,
            fences: Vec::new(),
        };
        let stopped = RunStopped {
            ending: Ending::Exited { code: 0 },
            limits_hit: Vec::new(),
            output_dropped: 0,
            facts: StopFacts::default(),
            wall_ms: 0,
        };
        for update in [RunUpdate::Started { started }, RunUpdate::Stopped { stopped }, RunUpdate::Done] {
            // Control has no reason to go away.
            order.updates.send(update).await.unwrap();
        }
    }
}
