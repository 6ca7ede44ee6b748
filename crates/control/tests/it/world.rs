//! A whole control on a folder of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bailey_control::auth::{Freshness, Issuer, IssuerConfig, SystemTokenSpec, TokenExtras, TokenSpec};
use bailey_control::clock::{Clock, Rng};
use bailey_control::config::ControlConfig;
use bailey_control::control::{Control, Parts};
use bailey_control::db::Sqlite;
use bailey_control::event_log::EventLogs;
use bailey_control::node_link::StartGit;
use bailey_control::threads::Threads;
use bailey_policy::prove::Prover;
use bailey_policy::{Entitlement, Policies, ServedTenants};
use bailey_protocol::limits::Limits;
use bailey_tree::Trees;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::node::FakeNode;

/// Where a world keeps its data.
pub struct Folder {
    path: PathBuf,
    /// Where nobody else owns it.
    own: Option<TempDir>,
}

impl Folder {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl From<TempDir> for Folder {
    fn from(own: TempDir) -> Self {
        Self { path: own.path().to_owned(), own: Some(own) }
    }
}

pub struct World {
    pub folder: Folder,
    pub address: SocketAddr,
    pub node: FakeNode,
    pub control: Control,
    pub git: mpsc::Receiver<StartGit>,
    issuer: Arc<Issuer>,
    /// The machine's, and as far ahead of it as tests say.
    clock: Clock,
    ahead_ms: Arc<AtomicU64>,
    shutdown: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut ControlConfig)) -> Self {
        Self::build(tempfile::tempdir().unwrap(), Policies::new(&[]).unwrap(), Vec::new(), change).await
    }

    pub async fn under(policies: Policies) -> Self {
        Self::build(tempfile::tempdir().unwrap(), policies, Vec::new(), |_| {}).await
    }

    pub async fn trusting(issuers: Vec<IssuerConfig>) -> Self {
        Self::build(tempfile::tempdir().unwrap(), Policies::new(&[]).unwrap(), issuers, |_| {}).await
    }

    /// One that has policies proven before they are in force.
    pub async fn proving(prover: Prover) -> Self {
        let (folder, policies) = (tempfile::tempdir().unwrap(), Policies::new(&[]).unwrap());
        Self::assemble(folder.into(), policies, Vec::new(), Some(prover), |_| {}).await
    }

    /// A new life of the server on the data of an old one.
    pub async fn on(folder: TempDir) -> Self {
        Self::build(folder, Policies::new(&[]).unwrap(), Vec::new(), |_| {}).await
    }

    /// A life on data that somebody else keeps.
    pub async fn at(path: &Path) -> Self {
        let folder = Folder { path: path.to_owned(), own: None };
        Self::assemble(folder, Policies::new(&[]).unwrap(), Vec::new(), None, |_| {}).await
    }

    /// The same, with other policies.
    pub async fn on_under(folder: TempDir, policies: Policies) -> Self {
        Self::build(folder, policies, Vec::new(), |_| {}).await
    }

    pub async fn on_with(folder: TempDir, change: impl FnOnce(&mut ControlConfig)) -> Self {
        Self::build(folder, Policies::new(&[]).unwrap(), Vec::new(), change).await
    }

    /// The same, trusting these issuers.
    pub async fn on_trusting(folder: TempDir, issuers: Vec<IssuerConfig>) -> Self {
        Self::build(folder, Policies::new(&[]).unwrap(), issuers, |_| {}).await
    }

    async fn build(
        folder: TempDir,
        policies: Policies,
        issuers: Vec<IssuerConfig>,
        change: impl FnOnce(&mut ControlConfig),
    ) -> Self {
        Self::assemble(folder.into(), policies, issuers, None, change).await
    }

    async fn assemble(
        folder: Folder,
        policies: Policies,
        issuers: Vec<IssuerConfig>,
        prover: Option<Prover>,
        change: impl FnOnce(&mut ControlConfig),
    ) -> Self {
        Self::start(folder, policies, issuers, prover, change).await.unwrap()
    }

    /// Why there is no server under these policies, if there is none.
    pub async fn refusal(policies: Policies, prover: Prover) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        Self::start(folder.into(), policies, Vec::new(), Some(prover), |_| {}).await.err()
    }

    async fn start(
        folder: Folder,
        policies: Policies,
        issuers: Vec<IssuerConfig>,
        prover: Option<Prover>,
        change: impl FnOnce(&mut ControlConfig),
    ) -> Result<Self, String> {
        let mut config = ControlConfig::new("base".parse().unwrap());
        config.max_file_bytes = 1024 * 1024;
        config.runs.per_tenant = 4;
        config.runs.per_server = 6;
        config.runs.queued_per_tenant = 0;
        config.runs.ceiling = Limits { memory_bytes: 1 << 30, ..Limits::default() };
        // A busy machine takes its time: what ends here, ends for another reason.
        config.http.header_timeout = Duration::from_secs(60);
        config.http.body_timeout = Duration::from_secs(60);
        config.http.write_timeout = Duration::from_secs(60);
        config.http.keep_alive = Duration::from_millis(200);
        change(&mut config);
        let owner = rustix::process::getuid().as_raw();
        let issuer = Arc::new(Issuer::open(folder.path(), owner).unwrap());
        let freshness = Freshness {
            every: Duration::from_millis(300),
            at_most_every: Duration::from_millis(100),
            patience: Duration::from_millis(900),
            stale: Duration::from_secs(60),
        };
        let (authenticator, keepers) = issuer.authenticator().trusting(issuers, freshness).unwrap();
        let ahead_ms = Arc::new(AtomicU64::new(0));
        let (system, ahead) = (Clock::system(), Arc::clone(&ahead_ms));
        let clock = Clock::from_fn(move || system.now_ms() + ahead.load(Ordering::SeqCst));
        let (orders, received) = mpsc::channel(16);
        // No git here but what a test plays: `bailey` has the tests with a real one.
        let (git_orders, git) = mpsc::channel(1);
        let parts = Parts {
            config,
            policies,
            prover,
            authenticator,
            issuer: Arc::clone(&issuer),
            keepers,
            jwks: issuer.jwks().unwrap(),
            db: Arc::new(Sqlite::open(&folder.path().join("bailey.db")).unwrap()),
            trees: Trees::open(&folder.path().join("trees")).unwrap(),
            logs: EventLogs::open(&folder.path().join("runs")).unwrap(),
            node: orders,
            git: git_orders,
            clock: clock.clone(),
            rng: Rng::system(),
            threads: Threads::of_runtime(),
            audit_signer: issuer.audit_signer(),
        };
        let control = Control::start(parts).await.map_err(|error| error.cause_chain())?;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let server =
            bailey_control::http::serve(listener, control.clone(), shutdown.clone(), Duration::from_millis(300));
        let server = tokio::spawn(server);
        let node = FakeNode::start(received);
        Ok(Self { folder, address, control, node, git, issuer, clock, ahead_ms, shutdown, server })
    }

    pub fn client(&self, tenant: &str, user: &str) -> Client {
        self.client_with(tenant, user, &Entitlement::ALL)
    }

    pub fn client_as(&self, tenant: &str, user: &str, roles: &[&str]) -> Client {
        self.client_of(&spec(tenant, user, &Entitlement::ALL, roles, 3600), self.clock.now_ms())
    }

    pub fn client_with(&self, tenant: &str, user: &str, entitlements: &[Entitlement]) -> Client {
        self.client_of(&spec(tenant, user, entitlements, &[], 3600), self.clock.now_ms())
    }

    /// Somebody whose issuer says that it is in a region.
    pub fn client_in(&self, tenant: &str, user: &str, region: &str) -> Client {
        let extras = TokenExtras { region: Some(region.to_owned()), ..TokenExtras::default() };
        let spec = spec(tenant, user, &Entitlement::ALL, &["member"], 3600);
        let token = self.issuer.mint_with(&spec, &extras, self.clock.now_ms(), &Rng::system());
        self.holder(token.unwrap().reveal())
    }

    /// An admin of a tenant.
    pub fn admin(&self, tenant: &str, user: &str) -> Client {
        self.client_of(&spec(tenant, user, &Entitlement::ALL, &["admin", "member"], 3600), self.clock.now_ms())
    }

    /// Somebody whose token holds for `ttl_seconds`, leeway included.
    pub fn client_for(&self, tenant: &str, user: &str, ttl_seconds: u64) -> Client {
        let spec = spec(tenant, user, &Entitlement::ALL, &["member"], 1);
        let now = self.clock.now_ms() + ttl_seconds * 1000;
        self.client_of(&spec, now - 1000 - bailey_control::auth::LEEWAY_SECONDS * 1000)
    }

    pub fn operator(&self) -> Client {
        self.system("root", &SystemTokenSpec::Operator, &[])
    }

    /// An operator whose token holds for `ttl_seconds`, leeway included.
    pub fn operator_for(&self, name: &str, ttl_seconds: u64) -> Client {
        let now = self.clock.now_ms() + ttl_seconds * 1000 - 1000 - bailey_control::auth::LEEWAY_SECONDS * 1000;
        let (name, spec) = (name.parse().unwrap(), SystemTokenSpec::Operator);
        let token = self.issuer.mint_system(&name, &spec, &[].into(), 1, now, &Rng::system());
        self.holder(token.unwrap().reveal())
    }

    pub fn operator_named(&self, name: &str) -> Client {
        self.system(name, &SystemTokenSpec::Operator, &[])
    }

    /// A service account for these tenants; for all of them where none is named.
    pub fn service(&self, name: &str, tenants: &[&str]) -> Client {
        let only = || ServedTenants::Only(tenants.iter().map(|tenant| tenant.parse().unwrap()).collect());
        let tenants = if tenants.is_empty() { ServedTenants::All } else { only() };
        let spec = SystemTokenSpec::Service { tenants, entitlements: Entitlement::ALL.into() };
        self.system(name, &spec, &["member"])
    }

    /// A service account for `acme` that names users who have these rights at most.
    pub fn service_with(&self, name: &str, entitlements: &[Entitlement], roles: &[&str]) -> Client {
        let tenants = ServedTenants::Only(["acme".parse().unwrap()].into());
        let entitlements = entitlements.iter().copied().collect();
        self.system(name, &SystemTokenSpec::Service { tenants, entitlements }, roles)
    }

    /// Somebody with this credential.
    pub fn holder(&self, credential: &str) -> Client {
        Client { address: self.address, token: Some(credential.to_owned()) }
    }

    fn client_of(&self, spec: &TokenSpec, now_ms: u64) -> Client {
        self.holder(self.issuer.mint(spec, now_ms, &Rng::system()).unwrap().reveal())
    }

    fn system(&self, name: &str, spec: &SystemTokenSpec, roles: &[&str]) -> Client {
        let (name, now) = (name.parse().unwrap(), self.clock.now_ms());
        let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
        let token = self.issuer.mint_system(&name, spec, &roles, 3600, now, &Rng::system());
        self.holder(token.unwrap().reveal())
    }

    /// Milliseconds since 1970, by its clock.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Has this much time pass at once, as everybody's credentials count it.
    pub fn pass(&self, time: Duration) {
        self.ahead_ms.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Asks the server to end, without waiting.
    pub fn ask_to_stop(&self) {
        self.shutdown.cancel();
    }

    /// Ends the server in order and keeps its data.
    pub async fn stop(self) -> TempDir {
        self.shutdown.cancel();
        self.server.await.unwrap().unwrap();
        self.folder.own.unwrap()
    }

    /// Ends the server in order, where somebody else keeps its data.
    pub async fn stop_in_place(self) {
        self.shutdown.cancel();
        self.server.await.unwrap().unwrap();
    }

    /// Leaves the server where it is: nobody asks it anything any more.
    pub async fn abandon(self) {
        self.server.abort();
        // Cancelled, as it was asked.
        drop(self.server.await);
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

fn spec(tenant: &str, user: &str, entitlements: &[Entitlement], roles: &[&str], ttl_seconds: u64) -> TokenSpec {
    TokenSpec {
        tenant: tenant.parse().unwrap(),
        user: user.parse().unwrap(),
        roles: roles.iter().map(|role| role.parse().unwrap()).collect(),
        entitlements: entitlements.iter().copied().collect(),
        ttl_seconds,
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

/// Spoils every folder that lies in a store's packs; says how many.
pub fn spoil_folders(store: &Path) -> usize {
    use std::os::unix::fs::FileExt as _;
    let mut spoiled = 0;
    for entry in std::fs::read_dir(store.join("objects/pack")).unwrap() {
        let index = entry.unwrap().path();
        if index.extension().is_none_or(|extension| extension != "idx") {
            continue;
        }
        let mut git = std::process::Command::new("git");
        let output = git.args(["verify-pack", "-v"]).arg(&index).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let pack = std::fs::File::options().write(true).open(index.with_extension("pack")).unwrap();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            // Id, kind, size, size in the pack, place.
            let fields: Vec<&str> = line.split_whitespace().collect();
            if let [_, "tree", _, length, offset] = &*fields {
                let (length, offset): (u64, u64) = (length.parse().unwrap(), offset.parse().unwrap());
                pack.write_all_at(&[0; 4], offset + length - 4).unwrap();
                spoiled += 1;
            }
        }
    }
    spoiled
}
