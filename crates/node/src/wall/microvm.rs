//! The hardware wall: a machine with a kernel of its own, QEMU's, in a cage of the jail's.
//!
//! ```text
//!  once:      boot ─▶ warm up ─▶ pause ─▶ save (device state, memory; authenticated)
//!  each:      launch in a cage ─▶ load the state over a private view of the memory ─▶ go on ─▶ warm up ─▶ parked
//! ```
//!
//! Every start is a restore of a machine that was booted once, without a tenant, an address of the host's or anything
//! secret in it. Clones share the saved memory, which is sealed: nothing that breaks out of a machine can change what
//! others start from. What makes a clone a machine of its own is the claim's to do, see [`super::streamed`].
//!
//! The monitor is not trusted either: it has a cage with less than any other, what it says is bounded, and nobody listens
//! to it any more once its machine is parked.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::jail::StopFacts;
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tracing::{info, warn};

use super::jailed::Jailed;
use super::streamed::Streamed;
use super::{BoxFuture, Capabilities, Changes, ClaimOrder, Live, Parked, Wall, WallError};
use crate::agent::{Agent, AgentError};
use crate::transport::Transport;

mod canary;
mod command;
mod memory;
mod monitor;
mod qmp;
pub mod snapshot;

use command::Start;
pub use command::{Accelerator, Host};
use monitor::Monitor;
pub use qmp::QmpError;
use snapshot::{Key, Made, Saved, SnapshotError};

const MIB: u64 = 1024 * 1024;

/// What a monitor takes beside the memory of its machine: itself, what it has translated, its devices.
const OVERHEAD: u64 = 256 * MIB;
/// Memory of a machine that is its kernel's and its agent's.
const KERNEL: u64 = 128 * MIB;
/// Threads of a monitor, with room.
const THREADS: u32 = 64;
/// What a monitor may write: nothing that it is known to.
const MONITOR_DISK: u64 = MIB;

/// What runs in every clone before it counts as parked: the first exec of a machine is the slowest.
const REHEARSAL: [&[&str]; 1] = [&["true"]];

/// What the wall is made from.
#[derive(Debug, Clone)]
pub struct MicrovmConfig {
    /// The template that its machines start from.
    pub template: TemplateDigest,
    /// The image with monitor, kernel and template.
    pub image: TemplateDigest,
    /// The kernel in it, by its name.
    pub kernel: String,
    /// The monitor in it, by its version.
    pub vmm: String,
    /// Memory of one machine.
    pub memory_bytes: u64,
    /// Where its snapshot is kept, and the key to it; the node's alone.
    pub folder: PathBuf,
    /// What runs in the machine before it is saved, for what that leaves in its memory.
    pub warm: Vec<Vec<String>>,
    /// Bytes that may be in no snapshot, whatever happens.
    pub canaries: Vec<Vec<u8>>,
    /// Whether machines are booted one by one, without a snapshot.
    pub cold: bool,
    /// How long things may take.
    pub patience: Patience,
}

/// How long a machine may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// From nothing to an agent that answers.
    pub boot: Duration,
    /// Warming up.
    pub warm: Duration,
    /// Saving, or loading.
    pub state: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { boot: Duration::from_secs(120), warm: Duration::from_secs(120), state: Duration::from_secs(30) }
    }
}

/// Why there is no such wall.
#[derive(Debug, thiserror::Error)]
pub enum MicrovmError {
    /// The machine to be saved was not made.
    #[error("could not make the machine to start others from")]
    Made(#[source] WallError),
    /// It could not be saved, or its key not be had.
    #[error("could not keep the machine to start others from")]
    Saved(#[source] SnapshotError),
}

/// Machines on this host.
#[derive(Debug)]
pub struct MicrovmWall {
    streamed: Streamed,
    config: MicrovmConfig,
    host: Host,
    /// What every machine is a copy of; nothing where each is booted.
    saved: Option<Saved>,
}

impl MicrovmWall {
    /// A wall over the snapshot that there is, or one that is made now, in a machine under this id.
    ///
    /// # Errors
    /// When the machine cannot be made or saved.
    pub async fn start(
        streamed: Streamed,
        config: MicrovmConfig,
        host: Host,
        sandbox: SandboxId,
    ) -> Result<Arc<Self>, MicrovmError> {
        if config.cold {
            return Ok(Arc::new(Self { streamed, config, host, saved: None }));
        }
        let tasks = streamed.jail().tasks().clone();
        let wanted = Made::new(&config, &host);
        let folder = config.folder.clone();
        let found = tasks.spawn_blocking(move || {
            let key = Key::ensure(&folder)?;
            let found = snapshot::load(&folder, &key, &wanted);
            Ok((key, wanted, found))
        });
        let found = found.await.unwrap_or(Err(SnapshotError::Lost)).map_err(MicrovmError::Saved)?;
        let (key, made, found) = found;
        let saved = match found {
            Ok(saved) => saved,
            Err(refusal) => {
                match refusal {
                    SnapshotError::Missing => info!("no snapshot of the machine yet: one is made"),
                    refused => warn!(cause = &refused as &dyn std::error::Error, "snapshot refused: one is made anew"),
                }
                let cold = Arc::new(Self {
                    streamed: streamed.clone(),
                    config: config.clone(),
                    host: host.clone(),
                    saved: None,
                });
                let taken = cold.make_snapshot(sandbox).await.map_err(MicrovmError::Made)?;
                let (folder, canaries) = (config.folder.clone(), config.canaries.clone());
                let stored = tasks.spawn_blocking(move || snapshot::store(&folder, &key, &made, taken, &canaries));
                stored.await.unwrap_or(Err(SnapshotError::Lost)).map_err(MicrovmError::Saved)?
            }
        };
        Ok(Arc::new(Self { streamed, config, host, saved: Some(saved) }))
    }

    /// Boots a machine, warms it up, and takes what it is made of.
    async fn make_snapshot(self: Arc<Self>, sandbox: SandboxId) -> Result<snapshot::Taken, WallError> {
        let memory = memory::fresh(self.config.memory_bytes).map_err(WallError::Descriptor)?;
        let shared = memory.try_clone().map_err(WallError::Descriptor)?;
        let mut monitor = Arc::clone(&self).launch(sandbox, Start::Template, shared).await?;
        let transport = Transport::start(monitor.take_stream()?, self.jail().tasks());
        let warm = async {
            let mut agent = Agent::connect(&transport, self.jail().tasks()).await?;
            agent.health().await?;
            agent.warm(&self.config.warm).await
        };
        let all = self.config.patience.boot.saturating_add(self.config.patience.warm);
        let warmed = timeout(all, warm).await.unwrap_or(Err(AgentError::Broken("it takes too long to get warm")));
        if let Err(cause) = warmed {
            let said = timeout(self.config.patience.state, monitor.console()).await.unwrap_or_default();
            warn!(cause = &cause as &dyn std::error::Error, said, "the machine to start others from does not start");
            return Err(WallError::Guest { op: "start", cause });
        }
        // The guest sees that nobody is there any more, and waits for the next one: that is what its copies begin with.
        drop(transport);
        let state = timeout(self.config.patience.state, monitor.save()).await;
        let state = state.map_err(|_elapsed| WallError::Overdue { op: "save" })?.map_err(WallError::Monitor)?;
        self.jail().stop(monitor.sandbox()).await?;
        Ok(snapshot::Taken { memory, state })
    }

    async fn park_whole(self: Arc<Self>, sandbox: SandboxId, template: TemplateDigest) -> Result<Parked, WallError> {
        if template != self.config.template {
            return Err(WallError::Unable("it has no machine for this template"));
        }
        let mut monitor = match &self.saved {
            Some(saved) => {
                let view = saved.memory().map_err(WallError::Descriptor)?;
                let state = saved.state().map_err(WallError::Descriptor)?;
                let mut monitor = Arc::clone(&self).launch(sandbox, Start::Clone { state }, view).await?;
                let loaded = timeout(self.config.patience.state, monitor.resume()).await;
                loaded.map_err(|_elapsed| WallError::Overdue { op: "restore" })?.map_err(WallError::Monitor)?;
                monitor
            }
            None => {
                let memory = memory::fresh(self.config.memory_bytes).map_err(WallError::Descriptor)?;
                Arc::clone(&self).launch(sandbox, Start::Cold, memory).await?
            }
        };
        let stream = monitor.take_stream()?;
        let (hold, fences, death) = monitor.into_parts();
        let warm = REHEARSAL.iter().map(|words| words.iter().map(|&word| word.to_owned()).collect()).collect();
        Ok(Parked { hold, template, fences, stream, death, warm })
    }

    /// Starts a monitor in a cage of its own.
    async fn launch(self: Arc<Self>, sandbox: SandboxId, start: Start, memory: OwnedFd) -> Result<Monitor, WallError> {
        let limits = self.cage(&Limits { disk_bytes: MONITOR_DISK, ..Limits::default() });
        let order = command::Order {
            image: self.config.image.clone(),
            memory_bytes: self.config.memory_bytes,
            host: self.host.clone(),
            limits,
        };
        let jail = self.jail().clone();
        Monitor::launch(jail, sandbox, order, start, memory, self as Arc<dyn Wall>).await
    }

    fn jail(&self) -> &Jailed {
        self.streamed.jail()
    }

    /// Limits of a whole machine whose code has these.
    fn cage(&self, code: &Limits) -> Limits {
        let memory_bytes = self.config.memory_bytes.saturating_add(OVERHEAD);
        Limits { memory_bytes, pids: THREADS, disk_bytes: MONITOR_DISK, ..*code }
    }
}

impl Wall for MicrovmWall {
    fn capabilities(&self) -> Capabilities {
        Capabilities { kind: WallKind::Microvm, accelerated: Some(self.host.is_accelerated()) }
    }

    fn park(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
    ) -> BoxFuture<'static, Result<Parked, WallError>> {
        if limits.wants_large_disk() {
            let why = "its disk is in memory: ask for no more than three quarters of that";
            return Box::pin(std::future::ready(Err(WallError::Unable(why))));
        }
        let jail = self.jail().clone();
        jail.make(self.park_whole(sandbox, template))
    }

    fn claim<'a>(&'a self, live: &'a Live, order: ClaimOrder) -> BoxFuture<'a, Result<Vec<String>, WallError>> {
        Box::pin(async move {
            if order.limits.memory_bytes.saturating_add(KERNEL) > self.config.memory_bytes {
                return Err(WallError::Unable("its machines have less memory than the code asks for"));
            }
            let cage = self.cage(&order.limits);
            self.streamed.claim(live, order, cage).await
        })
    }

    fn stop<'a>(&'a self, live: &'a Live) -> BoxFuture<'a, Result<StopFacts, WallError>> {
        Box::pin(self.streamed.stop(live))
    }

    fn collect<'a>(&'a self, live: &'a Live, mount: u32) -> BoxFuture<'a, Result<Option<Changes>, WallError>> {
        Box::pin(async move { Ok(Some(self.streamed.collect(live, mount).await)) })
    }

    fn destroy<'a>(&'a self, sandbox: &'a SandboxId) -> BoxFuture<'a, Result<(), WallError>> {
        Box::pin(self.jail().destroy(sandbox))
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.jail().lost())
    }
}

/// A pair of connected sockets: ours, and the monitor's.
fn pair() -> std::io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}
