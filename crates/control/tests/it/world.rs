//! A whole control on a folder of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bailey_control::auth::{Issuer, TokenSpec};
use bailey_control::clock::{Clock, Rng};
use bailey_control::config::ControlConfig;
use bailey_control::control::{Control, Parts};
use bailey_control::db::Sqlite;
use bailey_control::event_log::EventLogs;
use bailey_policy::{Entitlement, Policies};
use bailey_protocol::limits::Limits;
use bailey_tree::Trees;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::node::FakeNode;

pub struct World {
    pub folder: TempDir,
    pub address: SocketAddr,
    pub node: FakeNode,
    issuer: Issuer,
    shutdown: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut ControlConfig)) -> Self {
        Self::build(tempfile::tempdir().unwrap(), Policies::new(&[]).unwrap(), change).await
    }

    pub async fn under(policies: Policies) -> Self {
        Self::build(tempfile::tempdir().unwrap(), policies, |_| {}).await
    }

    /// A new life of the server on the data of an old one.
    pub async fn on(folder: TempDir) -> Self {
        Self::build(folder, Policies::new(&[]).unwrap(), |_| {}).await
    }

    async fn build(folder: TempDir, policies: Policies, change: impl FnOnce(&mut ControlConfig)) -> Self {
        let mut config = ControlConfig::new("base".parse().unwrap());
        config.max_file_bytes = 1024 * 1024;
        config.runs.per_tenant = 4;
        config.runs.per_server = 6;
        config.runs.ceiling = Limits { memory_bytes: 1 << 30, ..Limits::default() };
        config.http.header_timeout = Duration::from_millis(500);
        config.http.body_timeout = Duration::from_millis(500);
        config.http.write_timeout = Duration::from_millis(1500);
        config.http.keep_alive = Duration::from_millis(200);
        change(&mut config);
        let owner = rustix::process::getuid().as_raw();
        let issuer = Issuer::open(folder.path(), owner).unwrap();
        let (orders, received) = mpsc::channel(16);
        let parts = Parts {
            config,
            policies,
            authenticator: issuer.authenticator(),
            jwks: issuer.jwks().unwrap(),
            db: Arc::new(Sqlite::open(&folder.path().join("bailey.db")).unwrap()),
            trees: Trees::open(&folder.path().join("trees")).unwrap(),
            logs: EventLogs::open(&folder.path().join("runs")).unwrap(),
            node: orders,
            clock: Clock::system(),
            rng: Rng::system(),
        };
        let control = Control::start(parts).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let server = bailey_control::http::serve(listener, control, shutdown.clone(), Duration::from_millis(300));
        let server = tokio::spawn(server);
        Self { folder, address, node: FakeNode::start(received), issuer, shutdown, server }
    }

    pub fn client(&self, tenant: &str, user: &str) -> Client {
        self.client_with(tenant, user, &Entitlement::ALL)
    }

    pub fn client_with(&self, tenant: &str, user: &str, entitlements: &[Entitlement]) -> Client {
        let spec = TokenSpec {
            tenant: tenant.parse().unwrap(),
            user: user.parse().unwrap(),
            roles: [].into(),
            entitlements: entitlements.iter().copied().collect(),
            ttl_seconds: 3600,
        };
        let token = self.issuer.mint(&spec, Clock::system().now_ms(), &Rng::system()).unwrap();
        Client { address: self.address, token: Some(token.reveal().to_owned()) }
    }

    /// Asks the server to end, without waiting.
    pub fn ask_to_stop(&self) {
        self.shutdown.cancel();
    }

    /// Ends the server in order and keeps its data.
    pub async fn stop(self) -> TempDir {
        self.shutdown.cancel();
        self.server.await.unwrap().unwrap();
        self.folder
    }

    /// Ends the server as a crash would, and keeps its data. The folder is copied, as the old life's tasks may still
    /// write for a moment.
    pub async fn crash(self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_all(self.folder.path(), copy.path());
        self.server.abort();
        copy
    }

    pub fn tenants_on_disk(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.folder.path().join("trees"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            std::fs::set_permissions(&target, entry.metadata().unwrap().permissions()).unwrap();
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
