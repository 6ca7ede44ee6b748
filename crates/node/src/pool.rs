//! Parked sandboxes of one template behind one wall: made ahead of need, handed out once, never taken back.
//!
//! The pool refills in batches: when half of it is gone, or when nothing was taken for a while. So a burst of runs
//! is not slowed down by the making of its successors. A run that finds the pool empty makes a sandbox of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::limits::Limits;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::machine::{Machine, MachineError};
use crate::tasks::Tasks;
use crate::wall::Wall;

/// Sandboxes made at the same time.
const AT_ONCE: usize = 4;
/// Without a claim for this long, the pool is topped up.
const QUIET: Duration = Duration::from_millis(100);
/// First and longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Makes sandbox ids.
pub type Mint = Arc<dyn Fn() -> SandboxId + Send + Sync>;

/// What every sandbox of a pool is made from.
pub struct Recipe {
    /// What isolates it.
    pub wall: Arc<dyn Wall>,
    /// What it starts from.
    pub template: TemplateDigest,
    /// What it may use until its claim.
    pub limits: Limits,
    /// How long its agent has to come up.
    pub up_within: Duration,
    /// Makes its id.
    pub mint: Mint,
    /// Where its tasks belong.
    pub tasks: Tasks,
}

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recipe({:?} {})", self.wall.capabilities().kind, self.template)
    }
}

impl Recipe {
    /// Makes a sandbox whose agent answers.
    ///
    /// # Errors
    /// When the wall fails or the agent does not come up.
    pub async fn make(&self) -> Result<Machine, MachineError> {
        self.make_with(self.limits).await
    }

    /// The same with other limits: a large disk has its size from the beginning.
    ///
    /// # Errors
    /// As above.
    pub async fn make_with(&self, limits: Limits) -> Result<Machine, MachineError> {
        let parked = Arc::clone(&self.wall)
            .park((self.mint)(), self.template.clone(), limits)
            .await
            .map_err(MachineError::Wall)?;
        let machine = Machine::up(parked, self.up_within, &self.tasks).await?;
        bailey_crash::point(Point::SandboxParked);
        Ok(machine)
    }
}

/// A store of parked sandboxes.
#[derive(Debug)]
pub struct Pool {
    recipe: Recipe,
    target: usize,
    waiting: Mutex<VecDeque<Machine>>,
    taken: Notify,
}

impl Pool {
    /// An empty pool that wants `target` sandboxes; [`Pool::keep_full`] makes them.
    #[must_use]
    pub fn new(recipe: Recipe, target: usize) -> Self {
        Self { recipe, target, waiting: Mutex::new(VecDeque::new()), taken: Notify::new() }
    }

    /// What its sandboxes are made from.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Sandboxes that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// The sandbox that has waited longest and is still alive, if any.
    #[must_use]
    pub fn take(&self) -> Option<Machine> {
        let machine = loop {
            let Some(machine) = self.lock().pop_front() else { break None };
            // The template is compared again although the pool holds only one: a mix-up must never reach a run.
            if machine.is_alive() && *machine.template() == self.recipe.template {
                break Some(machine);
            }
            warn!(sandbox = %machine.sandbox(), "parked sandbox had died");
        };
        self.taken.notify_one();
        machine
    }

    /// Keeps the pool full until told to stop, then empties it.
    pub async fn keep_full(&self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.recipe.wall.lost() => {}
            () = self.refill_forever() => {}
        }
        let waiting = std::mem::take(&mut *self.lock());
        drop(waiting);
    }

    async fn refill_forever(&self) {
        let mut pause = RETRY.0;
        loop {
            let missing = self.target.saturating_sub(self.waiting());
            if missing == 0 {
                self.taken.notified().await;
                continue;
            }
            let half_full = self.waiting() > self.target / 2;
            if half_full && timeout(QUIET, self.taken.notified()).await.is_ok() {
                continue;
            }
            match self.batch(missing).await {
                Ok(()) => pause = RETRY.0,
                Err(cause) => {
                    warn!(cause = &cause as &dyn std::error::Error, "parking failed");
                    sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        }
    }

    async fn batch(&self, count: usize) -> Result<(), MachineError> {
        let mut making = FuturesUnordered::new();
        let mut left = count;
        loop {
            while left > 0 && making.len() < AT_ONCE {
                making.push(self.recipe.make());
                left -= 1;
            }
            let Some(made) = making.next().await else { return Ok(()) };
            let machine = made?;
            debug!(sandbox = %machine.sandbox(), "sandbox parked");
            self.lock().push_back(machine);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Machine>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
