//! A node: its walls, its pools, its checkouts, and the runs that it drives.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bailey_protocol::git::{GitSpec, GitUpdate};
use bailey_protocol::id::{TemplateDigest, TemplateName};
use bailey_protocol::limits::{LargeDisks, Limits};
use bailey_protocol::node::{NodeFault, RunSpec, RunUpdate};
use bailey_protocol::path::RepoId;
use bailey_protocol::wall::WallKind;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::select_all;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::checkout::{CheckoutRoom, Checkouts, Source};
use crate::fault;
use crate::git::{self, Repos};
use crate::jail::JailClient;
use crate::machine::MachineError;
use crate::pool::{Mint, Pool, Recipe};
use crate::run;
use crate::tasks::Tasks;
use crate::wall::Wall;
use crate::wall::container::ContainerWall;
use crate::wall::gvisor::{GvisorConfig, GvisorWall};
use crate::wall::jailed::Jailed;
use crate::wall::microvm::{self, MicrovmConfig, MicrovmError, MicrovmWall};
use crate::wall::streamed::{Origins, Patience, Streamed};

/// How long a guest may take to kill its code before its machine is killed.
const STOP: Duration = Duration::from_secs(5);

/// What a node needs to know.
pub struct NodeConfig {
    /// Writes a tree of a store as a folder.
    pub source: Arc<dyn Source>,
    /// Opens the repositories that git serves.
    pub repos: Repos,
    /// Where slices of the tree are kept as folders; the node's alone.
    pub checkouts: PathBuf,
    /// Bytes that those may take.
    pub checkout_room: CheckoutRoom,
    /// Templates by name.
    pub templates: BTreeMap<TemplateName, TemplateDigest>,
    /// Sandboxes that wait, for each template, and for each wall that has no number of its own; 0 makes every run start
    /// cold.
    pub parked: usize,
    /// Walls beside the cages.
    pub machines: Machines,
    /// What a sandbox may use until its claim.
    pub limits: Limits,
    /// The most that a run may ask for.
    pub ceiling: Limits,
    /// What the wall has for sandboxes that write more than their memory holds.
    pub large_disks: Option<LargeDisks>,
    /// How long things may take.
    pub deadlines: Deadlines,
    /// Makes sandbox ids.
    pub mint: Mint,
}

impl std::fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeConfig")
            .field("templates", &self.templates)
            .field("parked", &self.parked)
            .finish_non_exhaustive()
    }
}

/// Walls whose sandboxes are machines of their own, whatever makes them so.
#[derive(Clone)]
pub struct Machines {
    /// What tells new ones from all others.
    pub origins: Origins,
    /// Kernels in user space.
    pub gvisor: Option<GvisorConfig>,
    /// Machines with a kernel of their own.
    pub microvm: Option<Microvm>,
}

/// What the `microvm` wall takes.
#[derive(Debug, Clone)]
pub struct Microvm {
    /// What its machines are made from.
    pub config: MicrovmConfig,
    /// What they run on.
    pub host: microvm::Host,
    /// Those that wait, for each template.
    pub parked: usize,
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { gvisor, microvm, .. } = self;
        f.debug_struct("Machines").field("gvisor", gvisor).field("microvm", microvm).finish_non_exhaustive()
    }
}

impl Machines {
    /// None.
    #[must_use]
    pub fn none() -> Self {
        Self { origins: Arc::new(|| Err(io::ErrorKind::Unsupported.into())), gvisor: None, microvm: None }
    }

    /// Sandboxes that wait, where a wall has a number of its own.
    fn parked(&self, wall: WallKind) -> Option<usize> {
        match wall {
            WallKind::Gvisor => self.gvisor.as_ref().map(|gvisor| gvisor.parked),
            WallKind::Microvm => self.microvm.as_ref().map(|microvm| microvm.parked),
            WallKind::Container | WallKind::Isolate => None,
        }
    }
}

/// How long things may take before they count as failed.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// One answer of the jail.
    pub jail: Duration,
    /// From a run's arrival to a claimed sandbox, checkouts included.
    pub claim: Duration,
    /// An agent that comes up, and one that starts a program.
    pub agent: Duration,
    /// The next bytes of a collector.
    pub collect: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            jail: Duration::from_secs(10),
            claim: Duration::from_secs(60),
            agent: Duration::from_secs(10),
            collect: Duration::from_secs(30),
        }
    }
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The socket to the jail cannot be used.
    #[error("could not use the socket to the jail")]
    Jail(#[source] io::Error),
    /// The folder for checkouts cannot be used.
    #[error("could not use the folder for checkouts")]
    Checkouts(#[source] io::Error),
    /// There are no machines with a kernel of their own.
    #[error("could not build the wall `microvm`")]
    Microvm(#[source] MicrovmError),
}

/// Sandboxes on this host. Cheap to clone.
#[derive(Clone)]
pub struct Node {
    host: Arc<Host>,
}

/// What runs need of their node.
pub(crate) struct Host {
    pub(crate) pools: BTreeMap<(WallKind, TemplateDigest), Arc<Pool>>,
    walls: Vec<Arc<dyn Wall>>,
    pub(crate) templates: BTreeMap<TemplateName, TemplateDigest>,
    pub(crate) checkouts: Checkouts,
    pub(crate) repos: Repos,
    pub(crate) ceiling: Limits,
    pub(crate) large_disks: Option<LargeDisks>,
    /// Large disks that nobody has; those who wait for one are served in turn.
    large_free: Arc<Semaphore>,
    pub(crate) deadlines: Deadlines,
    pub(crate) tasks: Tasks,
    /// Runs, apart from the tasks that only clean up.
    runs: Tasks,
    /// No new runs.
    closing: CancellationToken,
    /// Runs in flight end as `node_restarted`.
    pub(crate) ending: CancellationToken,
}

impl Host {
    /// Waits until a run may have the disk that it asks for. CANCEL: it has left the queue.
    pub(crate) async fn large_disk(&self, limits: &Limits) -> Result<Option<OwnedSemaphorePermit>, NodeFault> {
        if !limits.wants_large_disk() {
            return Ok(None);
        }
        let right = Arc::clone(&self.large_free).acquire_owned().await;
        right.map(Some).map_err(|_closed| fault::unavailable())
    }

    /// Resolves when any wall is lost.
    pub(crate) async fn wall_lost(&self) {
        if self.walls.is_empty() {
            std::future::pending::<()>().await;
        }
        select_all(self.walls.iter().map(|wall| wall.lost())).await;
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({:?})", self.host.walls)
    }
}

impl Node {
    /// Starts a node with the container wall and the machines that are asked for, on a connection to `bailey-jail`. The first
    /// of those with a kernel of their own is booted, which takes seconds, and kept.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub async fn start(jail: OwnedFd, config: NodeConfig) -> Result<Self, NodeError> {
        let tasks = Tasks::new();
        // The connection ends with its last user, so it is not among the tasks that a shutdown waits for.
        let jail = JailClient::start(jail, &Tasks::new()).map_err(NodeError::Jail)?;
        let jail = Jailed::new(jail, tasks.clone(), config.deadlines.jail);
        let mut walls: Vec<Arc<dyn Wall>> = vec![Arc::new(ContainerWall::new(jail.clone()))];
        let patience = Patience { answer: config.deadlines.agent, slice: config.deadlines.claim, stop: STOP };
        let streamed = Streamed::new(jail, Arc::clone(&config.machines.origins), patience);
        if let Some(gvisor) = &config.machines.gvisor {
            walls.push(Arc::new(GvisorWall::new(streamed.clone(), gvisor.clone())));
        }
        if let Some(Microvm { config: of, host, .. }) = &config.machines.microvm {
            let made = MicrovmWall::start(streamed, of.clone(), host.clone(), (config.mint)());
            walls.push(made.await.map_err(NodeError::Microvm)?);
        }
        Self::with_walls(walls, tasks, config)
    }

    /// Starts a node with the given walls, whose tasks are `tasks`.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn with_walls(walls: Vec<Arc<dyn Wall>>, tasks: Tasks, config: NodeConfig) -> Result<Self, NodeError> {
        let checkouts = Checkouts::open(&config.checkouts, config.checkout_room, config.source, tasks.clone())
            .map_err(NodeError::Checkouts)?;
        let closing = CancellationToken::new();
        let mut pools = BTreeMap::new();
        for wall in &walls {
            for template in config.templates.values() {
                let recipe = Recipe {
                    wall: Arc::clone(wall),
                    template: template.clone(),
                    limits: config.limits,
                    up_within: config.deadlines.agent,
                    mint: Arc::clone(&config.mint),
                    tasks: tasks.clone(),
                };
                let parked = config.machines.parked(wall.capabilities().kind).unwrap_or(config.parked);
                let pool = Arc::new(Pool::new(recipe, parked));
                let (filled, stop) = (Arc::clone(&pool), closing.clone());
                tasks.spawn(async move { filled.keep_full(stop).await });
                pools.insert((wall.capabilities().kind, template.clone()), pool);
            }
        }
        let large_count = config.large_disks.map_or(0, |large| usize::try_from(large.count).unwrap_or(usize::MAX));
        let host = Host {
            pools,
            walls,
            templates: config.templates,
            checkouts,
            repos: config.repos,
            ceiling: config.ceiling,
            large_disks: config.large_disks,
            large_free: Arc::new(Semaphore::new(large_count)),
            deadlines: config.deadlines,
            tasks,
            runs: Tasks::new(),
            closing,
            ending: CancellationToken::new(),
        };
        Ok(Self { host: Arc::new(host) })
    }

    /// Carries out one run; resolves after its last update. `cancel` ends it as cancelled.
    ///
    /// CANCEL: the run ends as cancelled, and its sandbox is destroyed.
    pub async fn run(&self, spec: RunSpec, updates: mpsc::Sender<RunUpdate>, cancel: CancellationToken) {
        if self.host.closing.is_cancelled() {
            drop(updates.send(RunUpdate::Failed { fault: fault::unavailable() }).await);
            return;
        }
        let cancel = cancel.child_token();
        let _cancelled_when_dropped = cancel.clone().drop_guard();
        let host = Arc::clone(&self.host);
        let driven = self.host.runs.spawn(run::drive(host, spec, updates.clone(), cancel));
        if driven.await.is_err() {
            // The owner panicked; its sandbox is destroyed, and the caller must not take silence for success.
            drop(updates.send(RunUpdate::Failed { fault: fault::broken() }).await);
        }
    }

    /// Carries out one git exchange; resolves after its last update. It is over when `input` is closed and git has said
    /// everything, or when nobody takes its updates any more.
    ///
    /// CANCEL: the sandbox is destroyed.
    pub async fn git(&self, spec: GitSpec, input: mpsc::Receiver<Bytes>, updates: mpsc::Sender<GitUpdate>) {
        if self.host.closing.is_cancelled() {
            drop(updates.send(GitUpdate::Failed { fault: fault::unavailable() }).await);
            return;
        }
        let served = self.host.runs.spawn(git::serve(Arc::clone(&self.host), spec, input, updates.clone()));
        if tokio_util::task::AbortOnDropHandle::new(served).await.is_err() {
            drop(updates.send(GitUpdate::Failed { fault: fault::broken() }).await);
        }
    }

    /// Throws away what is checked out of a store: at once, or when the last run that has it mounted is done.
    pub fn forget_checkouts(&self, repo: &RepoId) {
        self.host.checkouts.forget(repo);
    }

    /// Makes a sandbox behind a wall, and throws it away: a wall that is promised works.
    ///
    /// # Errors
    /// When none comes up.
    pub async fn prove(&self, wall: WallKind) -> Result<(), MachineError> {
        let pools = self.host.pools.iter().filter(|((kind, _), _)| *kind == wall);
        for (_, pool) in pools {
            pool.recipe().make().await?;
        }
        Ok(())
    }

    /// Parked sandboxes, over all pools.
    #[must_use]
    pub fn parked(&self) -> usize {
        self.host.pools.values().map(|pool| pool.waiting()).sum()
    }

    /// Whether runs are taken: not shutting down, no wall lost.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.host.closing.is_cancelled() && self.host.wall_lost().now_or_never().is_none()
    }

    /// Takes no new runs, gives those in flight `drain`, ends the rest as `node_restarted`, and destroys every sandbox.
    pub async fn shutdown(&self, drain: Duration) {
        /// Time for killing and for telling the ends.
        const LAST: Duration = Duration::from_secs(5);
        self.host.closing.cancel();
        if timeout(drain, self.host.runs.finished()).await.is_err() {
            info!("runs in flight are ended");
            self.host.ending.cancel();
            if timeout(LAST, self.host.runs.finished()).await.is_err() {
                warn!("runs in flight whose callers take no updates are given up");
            }
        }
        self.host.ending.cancel();
        if timeout(LAST, self.host.tasks.finished()).await.is_err() {
            warn!("sandboxes are left to the jail");
        }
    }
}
