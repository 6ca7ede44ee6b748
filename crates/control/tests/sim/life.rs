//! One life of a server: control, node and trees on one thread, asked at the router.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bailey_control::auth::{Issuer, SystemTokenSpec, TokenSpec};
use bailey_control::clock::{Clock, Rng};
use bailey_control::config::ControlConfig;
use bailey_control::control::{Control, Parts};
use bailey_control::event_log::EventLogs;
use bailey_control::node_link::StartRun;
use bailey_control::threads::Threads;
use bailey_node::tasks::Tasks;
use bailey_node::{CheckoutRoom, Deadlines, Machines, Node, NodeConfig};
use bailey_policy::{Entitlement, Policies};
use bailey_protocol::id::SandboxId;
use bailey_protocol::limits::Limits;
use bailey_protocol::quota::TenantQuota;
use bailey_tree::Trees;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::db::FaultyDb;
use crate::fate::Fate;
use crate::store::{Disk, Faulty};
use crate::wall::SimWall;

/// Runs that a tenant may have at once.
pub const MOST_RUNS: usize = 2;
/// How long a program may take.
const TIMEOUT_MS: u64 = 2000;
/// What a tenant may keep where fate makes it tight.
pub const TIGHT: TenantQuota = TenantQuota { bytes: 6000, files: 60, ..TenantQuota::UNLIMITED };

/// What all lives of a seed have in common.
pub struct Ground {
    pub folder: PathBuf,
    pub disk: Arc<Disk>,
    pub fate: Arc<Fate>,
    pub quota: TenantQuota,
    /// Old versions go soon, and garbage with them, while others hold some.
    pub cuts: bool,
    /// Sandboxes that wait.
    pub parked: usize,
}

pub struct Life {
    pub control: Control,
    pub node: Node,
    pub wall: Arc<SimWall>,
    pub trees: Trees,
    router: Router,
    fate: Arc<Fate>,
}

/// Made once, and the same for every seed: making them takes longer than a seed.
struct Prepared {
    issuer: Arc<Issuer>,
    policies: Policies,
    /// A database with its tables.
    database: Vec<u8>,
}

fn prepared() -> &'static Prepared {
    static PREPARED: OnceLock<Prepared> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let issuer = Issuer::open(folder.path(), rustix::process::getuid().as_raw()).unwrap();
        let file = folder.path().join("bailey.db");
        drop(bailey_control::db::Sqlite::open(&file).unwrap());
        let database = std::fs::read(file).unwrap();
        Prepared { issuer: Arc::new(issuer), policies: Policies::new(&[]).unwrap(), database }
    })
}

/// The keys that vouch for the audit.
pub fn audit_keys() -> bailey_control::audit::AuditKeys {
    prepared().issuer.audit_signer().keys()
}

pub fn database(folder: &Path) -> PathBuf {
    folder.join("bailey.db")
}

/// Makes the files of a server that never ran.
pub fn prepare(folder: &Path) {
    std::fs::write(database(folder), &prepared().database).unwrap();
}

impl Life {
    /// Starts a server on what earlier lives have left.
    pub async fn begin(ground: &Ground) -> Result<Self, String> {
        let Ground { folder, disk, fate, .. } = ground;
        let rng = chance(fate);
        let clock = {
            let fate = Arc::clone(fate);
            Clock::from_fn(move || fate.now_ms())
        };
        let threads = {
            let fate = Arc::clone(fate);
            Threads::single(move || fate.pause())
        };
        let trees = {
            let (disk, fate) = (Arc::clone(disk), Arc::clone(fate));
            let blobs = move |packs| Box::new(Faulty::new(packs, Arc::clone(&disk), Arc::clone(&fate))) as Box<_>;
            Trees::over(&folder.join("trees"), blobs, Duration::ZERO).unwrap()
        };
        let mut config = ControlConfig::new("base".parse().unwrap());
        config.runs.per_tenant = MOST_RUNS;
        config.runs.queued_for = Duration::from_secs(1);
        config.runs.ceiling = Limits { memory_bytes: 1 << 30, ..Limits::default() };
        config.runs.default_limits = Limits { timeout_ms: TIMEOUT_MS, ..Limits::default() };
        config.storage.quota = ground.quota;
        let tasks = Tasks::single();
        let wall = SimWall::new(Arc::clone(fate), tasks.clone(), MOST_RUNS);
        let node_config = NodeConfig {
            repos: bailey_node::git::repos_of(trees.clone()),
            source: Arc::new(trees.clone()),
            checkouts: folder.join("checkouts"),
            checkout_room: CheckoutRoom { most: 1 << 24, kept: 1 << 20 },
            templates: BTreeMap::from([("base".parse().unwrap(), "a".repeat(64).parse().unwrap())]),
            parked: ground.parked,
            machines: Machines::none(),
            limits: Limits::default(),
            ceiling: config.runs.ceiling,
            large_disks: None,
            deadlines: Deadlines::default(),
            mint: {
                let (clock, rng) = (clock.clone(), rng.clone());
                Arc::new(move || SandboxId::mint(clock.now_ms(), rng.bytes().unwrap()))
            },
        };
        let node = Node::with_walls(vec![wall.clone()], tasks, node_config).unwrap();
        let Prepared { issuer, policies, .. } = prepared();
        let (orders, queue) = mpsc::channel(16);
        // Stock git is no part of it.
        let (git, _) = mpsc::channel(1);
        let parts = Parts {
            config,
            policies: policies.clone(),
            prover: None,
            authenticator: issuer.authenticator(),
            issuer: Arc::clone(issuer),
            keepers: Vec::new(),
            jwks: issuer.jwks().unwrap(),
            db: Arc::new(FaultyDb::open(&database(folder), rng.clone(), Arc::clone(fate))),
            trees: trees.clone(),
            logs: EventLogs::open(&folder.join("runs")).unwrap().on(threads.clone()),
            node: orders,
            git,
            clock,
            rng,
            threads,
            audit_signer: issuer.audit_signer(),
        };
        let control = Control::start(parts).await.map_err(|error| error.cause_chain())?;
        let runs = TaskTracker::new();
        drop(runs.spawn(carry_out(node.clone(), queue, runs.clone())));
        let router = bailey_control::http::router(control.clone());
        Ok(Self { control, node, wall, trees, router, fate: Arc::clone(fate) })
    }

    /// Asks as a client does that sends and reads everything.
    pub async fn ask(&self, asking: Asking<'_>) -> Answer {
        let Asking { who, method, path, headers, body } = asking;
        self.fate.step();
        let mut request = Request::builder().method(&method).uri(path).header("host", "bailey");
        request = request.header("authorization", format!("Bearer {}", who.token));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(body)).unwrap();
        let response = self.router.clone().call(request).await.unwrap();
        let (head, body) = response.into_parts();
        // A body that breaks off acknowledges nothing.
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).ok();
        self.fate.step();
        Answer { status: head.status, headers: head.headers, body }
    }
}

/// Each order becomes a task that drives the node, as in the real server.
async fn carry_out(node: Node, mut orders: mpsc::Receiver<StartRun>, runs: TaskTracker) {
    while let Some(StartRun { spec, updates, cancel }) = orders.recv().await {
        let node = node.clone();
        drop(runs.spawn(async move { node.run(spec, updates, cancel).await }));
    }
}

/// Somebody who asks.
#[derive(Debug, Clone)]
pub struct Who {
    pub name: &'static str,
    token: String,
}

impl Who {
    /// A user, for all lives of a seed.
    pub fn user(fate: &Arc<Fate>, tenant: &str, name: &'static str, roles: &[&str]) -> Self {
        let spec = TokenSpec {
            tenant: tenant.parse().unwrap(),
            user: name.parse().unwrap(),
            roles: roles.iter().map(|role| role.parse().unwrap()).collect(),
            entitlements: Entitlement::ALL.into_iter().collect(),
            ttl_seconds: 3600,
        };
        let token = prepared().issuer.mint(&spec, fate.now_ms(), &chance(fate)).unwrap();
        Self { name, token: token.reveal().to_owned() }
    }

    /// An operator.
    pub fn operator(fate: &Arc<Fate>) -> Self {
        let (name, spec) = ("op".parse().unwrap(), SystemTokenSpec::Operator);
        let token =
            prepared().issuer.mint_system(&name, &spec, &[].into(), 3600, fate.now_ms(), &chance(fate)).unwrap();
        Self { name: "op", token: token.reveal().to_owned() }
    }
}

fn chance(fate: &Arc<Fate>) -> Rng {
    let fate = Arc::clone(fate);
    Rng::from_fn(move |bytes| fate.dice(|dice| bytes.fill_with(|| dice.roll().to_le_bytes()[0])))
}

/// A request.
pub struct Asking<'a> {
    pub who: &'a Who,
    pub method: Method,
    pub path: &'a str,
    pub headers: &'a [(&'static str, String)],
    pub body: Vec<u8>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// `None` where it broke off.
    pub body: Option<Vec<u8>>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body.as_deref().unwrap_or_default()).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.body.as_deref().unwrap_or_default()).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
