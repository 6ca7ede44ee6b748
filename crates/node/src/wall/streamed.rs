//! What all walls share whose sandbox is a machine of its own: its guest does over the stream what a jail does to a cage.
//!
//! ```text
//! claim: limits outside ─▶ /claim ─▶ slice:N, each      stop: /stop ─▶ count outside      collect:N
//!                                                          └─ no answer ─▶ kill outside
//! ```
//!
//! The jail still has the machine in a cage: its limits hold whatever the guest says, and it is killed from there. From
//! the guest come facts for the ending and the change stream, both as hostile as its output. There is a deadline on
//! every wait for it.

use std::sync::Arc;
use std::time::Duration;

use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::guest::{GENERATION, MachineClaim, StreamTarget};
use bailey_protocol::jail::{CageMount, JailOp, StopFacts};
use bailey_protocol::limits::Limits;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::time::timeout;
use tracing::info;

use super::jailed::Jailed;
use super::{Changes, ClaimMount, ClaimOrder, Live, WallError};
use crate::agent::{Agent, AgentError};

mod pace;
mod send;
mod walk;

use pace::Paced;
pub use walk::measure;

/// What tells a new machine from every other one.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Wall clock, in nanoseconds since 1970.
    pub now_ns: u64,
    /// Random bytes that nobody else gets.
    pub random: [u8; Self::RANDOM],
}

impl Origin {
    /// For the kernel's generator, the machine id and the boot id.
    pub const RANDOM: usize = 96;
}

/// Makes origins.
pub type Origins = Arc<dyn Fn() -> std::io::Result<Origin> + Send + Sync>;

/// How long a guest may take for its part.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// An answer.
    pub answer: Duration,
    /// A slice, from its first byte to its acknowledgement.
    pub slice: Duration,
    /// The death of all code.
    pub stop: Duration,
}

/// The guests of a wall's machines.
#[derive(Clone)]
pub struct Streamed {
    jail: Jailed,
    origins: Origins,
    patience: Patience,
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streamed").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl Streamed {
    /// Guests in cages of this jail.
    #[must_use]
    pub fn new(jail: Jailed, origins: Origins, patience: Patience) -> Self {
        Self { jail, origins, patience }
    }

    /// The jail that has them.
    #[must_use]
    pub fn jail(&self) -> &Jailed {
        &self.jail
    }

    /// Gives a parked machine to a run: `cage` are the limits of all of it, those of the order its guest's.
    ///
    /// # Errors
    /// When jail or guest do not do their part.
    pub async fn claim(&self, live: &Live, order: ClaimOrder, cage: Limits) -> Result<Vec<String>, WallError> {
        let ClaimOrder { share, limits, mounts } = order;
        let op = JailOp::Claim { sandbox: live.sandbox.clone(), share, limits: cage, mounts: Vec::new() };
        self.jail.ask("claim", op, Vec::new()).await?;
        let claim = machine_claim((self.origins)().map_err(WallError::Chance)?, limits, &mounts);
        let fences = self.ask_guest(live, "claim", self.patience.answer, async |mut agent| agent.claim(&claim).await);
        let fences = fences.await?;
        for (number, mount) in mounts.into_iter().enumerate() {
            let sent = send::slice(self.jail.tasks(), live, number, mount.lower);
            timeout(self.patience.slice, sent).await.map_err(|_elapsed| WallError::Overdue { op: "slice" })??;
        }
        Ok(fences)
    }

    /// Has the guest kill the code; kills the machine if it does not.
    ///
    /// # Errors
    /// When the jail fails.
    pub async fn stop(&self, live: &Live) -> Result<StopFacts, WallError> {
        let told = self.ask_guest(live, "stop", self.patience.stop, async |mut agent| agent.stop().await);
        let counted = async {
            let told = told.await?;
            Ok::<_, WallError>(merged(told, self.jail.count(&live.sandbox).await?))
        };
        match counted.await {
            Ok(facts) => Ok(facts),
            // Also one that dies as soon as it has answered: what it was is told by the kill.
            Err(cause) => {
                info!(sandbox = %live.sandbox, cause = &cause as &dyn std::error::Error, "guest does not stop: killed");
                self.jail.stop(&live.sandbox).await
            }
        }
    }

    /// What the guest says has changed. Where it is gone, the stream says so itself.
    pub async fn collect(&self, live: &Live, mount: u32) -> Changes {
        let opening = timeout(self.patience.answer, live.transport.open(StreamTarget::Collect(mount)));
        match opening.await {
            Ok(Ok(stream)) => Box::pin(Paced::new(stream)),
            Ok(Err(_)) | Err(_) => Box::pin(std::io::Cursor::new(gone())),
        }
    }

    /// One exchange over a connection of its own.
    async fn ask_guest<T>(
        &self,
        live: &Live,
        op: &'static str,
        within: Duration,
        ask: impl AsyncFnOnce(Agent) -> Result<T, AgentError>,
    ) -> Result<T, WallError> {
        let exchange = async { ask(Agent::connect(&live.transport, self.jail.tasks()).await?).await };
        match timeout(within, exchange).await {
            Ok(answer) => answer.map_err(|cause| WallError::Guest { op, cause }),
            Err(_elapsed) => Err(WallError::Overdue { op }),
        }
    }
}

/// What the kernel counted for all of the machine, and what only its guest can see. A guest that lies has no more by it
/// than another ending.
fn merged(told: StopFacts, counted: StopFacts) -> StopFacts {
    StopFacts {
        oom_kills: counted.oom_kills.saturating_add(told.oom_kills),
        pids_refused: counted.pids_refused.saturating_add(told.pids_refused),
        disk_full: told.disk_full,
        files_full: told.files_full,
        cpu_us: counted.cpu_us,
        memory_peak_bytes: counted.memory_peak_bytes,
    }
}

/// The change stream of a machine that is gone.
fn gone() -> Vec<u8> {
    let mut stream = MAGIC.to_vec();
    let failed = Header::Failed { message: "the sandbox was lost with it" }.encode(&mut stream);
    debug_assert!(failed.is_ok(), "a message that is short enough");
    stream
}

fn machine_claim(origin: Origin, limits: Limits, mounts: &[ClaimMount]) -> MachineClaim {
    let Origin { now_ns, random } = origin;
    let (entropy, ids) = random.split_at(64);
    let hex: String = ids.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    // As a random UUID has it.
    let boot_id = format!("{}-{}-4{}-8{}-{}", part(32, 40), part(40, 44), part(45, 48), part(49, 52), part(52, 64));
    MachineClaim {
        generation: GENERATION,
        now_ns,
        entropy: STANDARD.encode(entropy),
        // No two machines have one name, so that what is derived from it differs too.
        hostname: format!("sandbox-{}", part(0, 12)),
        machine_id: part(0, 32).to_owned(),
        boot_id,
        limits,
        mounts: mounts.iter().map(|mount| CageMount { at: mount.at.clone(), writable: mount.writable }).collect(),
    }
}

#[cfg(test)]
mod tests;
