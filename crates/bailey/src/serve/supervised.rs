//! The server half: started by bailey-jail under its own uid, in a root that holds its data folder and nothing else
//! of the host. Takes over three descriptors, joins control to node, and serves until it is told to stop.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bailey_control::auth::{Freshness, Issuer};
use bailey_control::clock::{Clock, Rng};
use bailey_control::config::ControlConfig;
use bailey_control::control::{Control, ForgetCheckouts, Parts};
use bailey_control::db::Sqlite;
use bailey_control::event_log::EventLogs;
use bailey_control::node_link::{StartGit, StartRun};
use bailey_control::threads::Threads;
use bailey_crash::Point;
use bailey_node::{CheckoutRoom, Deadlines, Machines, Node, NodeConfig};
use bailey_policy::Policies;
use bailey_protocol::id::{SandboxId, TemplateName};
use bailey_protocol::jail::{SERVER_UID, server_fd, server_path};
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;
use bailey_tree::Trees;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::machines;
use crate::config::ServerConfig;
use crate::{template, terminal};

/// Orders that wait for the node's attention; it takes each at once.
const ORDERS: usize = 64;
/// Bytes of checkouts that are kept while no run holds them.
const KEPT_CHECKOUT_BYTES: u64 = 8 * 1024 * 1024 * 1024;
/// Time for sandboxes to be destroyed once no run is going.
const TEAR_DOWN: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT.
pub(crate) fn supervised() -> anyhow::Result<ExitCode> {
    // Before anything is opened that could get one of these numbers.
    let inherit = |number| bailey_sys::descriptors::inherit(number).with_context(|| started_by_jail(number));
    let jail = inherit(server_fd::JAIL)?;
    let listener = inherit(server_fd::LISTENER)?;
    let config = read_config(inherit(server_fd::CONFIG)?).context("read the configuration")?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(config.log.tracing()).init();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Any of its threads may decide. Memory is what a stack really uses.
    let runtime = runtime.thread_stack_size(bailey_policy::DECISION_STACK_BYTES).enable_all();
    let runtime = runtime.build().context("start the runtime")?;
    runtime.block_on(serve(jail, listener, config))?;
    runtime.shutdown_timeout(TEAR_DOWN);
    Ok(ExitCode::SUCCESS)
}

fn started_by_jail(number: i32) -> String {
    format!("descriptor {number} is not there: `bailey serve --supervised` is started by bailey-jail only")
}

fn read_config(fd: OwnedFd) -> anyhow::Result<ServerConfig> {
    let file = File::from(fd);
    let mut text = Vec::new();
    // From the start, wherever whoever held it before has left its position.
    let mut at = 0;
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = file.read_at(&mut piece, at)?;
        if count == 0 {
            break;
        }
        text.extend_from_slice(piece.get(..count).unwrap_or_default());
        at += u64::try_from(count)?;
    }
    Ok(serde_json::from_slice(&text)?)
}

async fn serve(jail: OwnedFd, listener: OwnedFd, config: ServerConfig) -> anyhow::Result<()> {
    let data = Path::new(server_path::DATA);
    let (clock, rng) = (Clock::system(), Rng::system());
    let policies = Policies::new(&config.policies).context("load the policies")?;
    let issuer = Arc::new(Issuer::open(data, SERVER_UID).context("open the issuer")?);
    let (authenticator, keepers) = issuer
        .authenticator()
        .trusting(config.identity.issuers.clone(), Freshness::default())
        .context("prepare the issuers")?;
    let db = Sqlite::open(&data.join("bailey.db")).context("open the database")?;
    bailey_crash::point(Point::DatabaseOpened);
    let trees = Trees::open(&data.join("trees")).context("open the trees")?;
    let logs = EventLogs::open(&data.join("runs")).context("open the event logs")?;
    let listener = listen(listener).context("listen")?;
    let address = listener.local_addr().context("listen")?;

    let prover = crate::config::prover();
    let followed = config.follow_policies.then(|| config.policies.clone());

    let base: TemplateName = template::NAME.parse()?;
    let mut control_config = ControlConfig::new(base.clone());
    control_config.identity = config.identity.control().context("read the configuration")?;
    control_config.storage.quota = config.quota;
    control_config.policy_cache_bytes = usize::try_from(config.policy_cache_mib)? << 20;
    control_config.runs.large_disks = config.large_disks;
    config.limits.apply(&mut control_config.runs)?;
    let (cpu_millis, memory_bytes) = super::host::size();
    control_config.runs.fit_host(cpu_millis, memory_bytes);
    let node_config = node_config(&config, base, control_config.runs.ceiling, &trees, data, &clock, &rng)?;
    let node = Node::start(jail, node_config).await.context("start the node")?;
    if config.gvisor.is_some() {
        // Before it is promised to anybody.
        node.prove(WallKind::Gvisor).await.context("start a sandbox behind the wall `gvisor`")?;
        control_config.runs.host.walls.insert(WallKind::Gvisor, None);
    }
    if config.microvm.is_some() {
        node.prove(WallKind::Microvm).await.context("start a sandbox behind the wall `microvm`")?;
        control_config.runs.host.walls.insert(WallKind::Microvm, Some(false));
    }

    let (orders, queue) = mpsc::channel(ORDERS);
    let (git_orders, git_queue) = mpsc::channel(ORDERS);
    let parts = Parts {
        config: control_config,
        policies,
        prover,
        authenticator,
        issuer: Arc::clone(&issuer),
        keepers,
        jwks: issuer.jwks().context("write the public keys")?,
        db: Arc::new(db),
        trees,
        logs,
        node: orders,
        git: git_orders,
        clock,
        rng,
        threads: Threads::of_runtime(),
        audit_signer: issuer.audit_signer(),
    };
    let control = Control::start(parts).await.context("start control")?;
    super::policies::note(data, &config.policies);
    let cached = node.clone();
    control.on_purge(ForgetCheckouts(Box::new(move |repo| cached.forget_checkouts(repo))));
    let runs = TaskTracker::new();
    runs.spawn(carry_out(node.clone(), queue, runs.clone()));
    runs.spawn(serve_git(node.clone(), git_queue, runs.clone()));

    let following = followed.map(|known| runs.spawn(super::policies::follow(control.clone(), known)));
    let following = following.map(tokio_util::task::AbortOnDropHandle::new);

    let shutdown = CancellationToken::new();
    let signals = stop_on_signal(shutdown.clone()).context("listen for signals")?;
    let signals = tokio_util::task::AbortOnDropHandle::new(runs.spawn(signals));
    // Whoever started the server may have read its first life's line and gone: no reason to stay down after a restart.
    if let Err(error) = announce(address, config.json) {
        tracing::warn!(%error, "nobody reads that the server is ready");
    }
    bailey_control::http::serve(listener, control, shutdown, Duration::from_millis(config.drain_ms)).await?;
    node.shutdown(TEAR_DOWN).await;
    drop((signals, following));
    Ok(())
}

/// Checkouts are a cache beside what has to be kept: half of the disk is the most for them.
fn checkout_room(data: &Path) -> std::io::Result<CheckoutRoom> {
    let disk = rustix::fs::statvfs(data)?;
    let most = disk.f_blocks.saturating_mul(disk.f_frsize) / 2;
    Ok(CheckoutRoom { most, kept: most.min(KEPT_CHECKOUT_BYTES) })
}

fn node_config(
    config: &ServerConfig,
    base: TemplateName,
    ceiling: Limits,
    trees: &Trees,
    data: &Path,
    clock: &Clock,
    rng: &Rng,
) -> anyhow::Result<NodeConfig> {
    let (trees, clock, rng) = (trees.clone(), clock.clone(), rng.clone());
    let origins = machines::origins(&clock, &rng);
    let gvisor = config.gvisor.as_ref().map(|gvisor| machines::gvisor(&config.template, gvisor)).transpose()?;
    let microvm =
        config.microvm.as_ref().map(|microvm| machines::microvm(&config.template, microvm, data)).transpose()?;
    Ok(NodeConfig {
        repos: bailey_node::git::repos_of(trees.clone()),
        source: Arc::new(trees),
        checkouts: data.join("checkouts"),
        checkout_room: checkout_room(data).context("look at the data folder's file system")?,
        templates: BTreeMap::from([(base, config.template.clone())]),
        parked: usize::try_from(config.parked)?,
        machines: Machines { origins, gvisor, microvm },
        limits: Limits::default(),
        ceiling,
        large_disks: config.large_disks,
        deadlines: Deadlines::default(),
        mint: Arc::new(move || SandboxId::mint(clock.now_ms(), rng.bytes().unwrap_or_default())),
    })
}

/// The one place where control and node meet: each order becomes a task that drives the node.
async fn carry_out(node: Node, mut orders: mpsc::Receiver<StartRun>, runs: TaskTracker) {
    while let Some(StartRun { spec, updates, cancel }) = orders.recv().await {
        let node = node.clone();
        runs.spawn(async move { node.run(spec, updates, cancel).await });
    }
}

/// The same for git exchanges.
async fn serve_git(node: Node, mut orders: mpsc::Receiver<StartGit>, runs: TaskTracker) {
    while let Some(StartGit { spec, input, updates }) = orders.recv().await {
        let node = node.clone();
        runs.spawn(async move { node.git(spec, input, updates).await });
    }
}

fn listen(fd: OwnedFd) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn stop_on_signal(shutdown: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        shutdown.cancel();
    })
}

fn announce(address: SocketAddr, json: bool) -> std::io::Result<()> {
    if json {
        terminal::json(&serde_json::json!({ "listening": format!("http://{address}") }))
    } else {
        terminal::line(&format!("listening on http://{address}"))
    }
}
