//! The state behind every use case, and its life from start to shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bailey_policy::{Policies, Principal};
use bailey_protocol::id::{RequestId, RunId};
use bailey_tree::Trees;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::admission::Admission;
use crate::api_error::{ApiError, ErrorKind};
use crate::auth::Authenticator;
use crate::clock::{Clock, Rng};
use crate::config::ControlConfig;
use crate::db::Db;
use crate::event_log::EventLogs;
use crate::live_runs::LiveRuns;
use crate::node_link::StartRun;
use crate::store_locks::StoreLocks;

/// What control is built from.
#[derive(Debug)]
pub struct Parts {
    /// Limits and defaults.
    pub config: ControlConfig,
    /// Who may do what.
    pub policies: Policies,
    /// Checks tokens.
    pub authenticator: Authenticator,
    /// The public keys' JSON document.
    pub jwks: String,
    /// Durable state.
    pub db: Arc<dyn Db>,
    /// Files.
    pub trees: Trees,
    /// Events of runs.
    pub logs: EventLogs,
    /// Where runs are carried out.
    pub node: mpsc::Sender<StartRun>,
    /// Tells the time.
    pub clock: Clock,
    /// Names things.
    pub rng: Rng,
}

/// A handle on the whole of control. Clones share it.
#[derive(Debug, Clone)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: Parts,
    admission: Admission,
    live: LiveRuns,
    locks: StoreLocks,
    uploads: Arc<Semaphore>,
    /// Owner tasks of runs, and requests that are about to start one.
    runs: TaskTracker,
    cancel_runs: CancellationToken,
    draining: AtomicBool,
}

/// Who sent a request, and which.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who asks.
    pub principal: Principal,
    /// For logs, audit and error answers.
    pub request: RequestId,
}

/// Uploads at once: each holds a blocking thread for as long as its client sends.
const MAX_UPLOADS: usize = 64;

impl Control {
    /// Takes up the work: runs that an earlier life of the server left are ended as `node_restarted` first.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn start(parts: Parts) -> Result<Self, ApiError> {
        let admission = Admission::new(parts.config.runs.per_server, parts.config.runs.per_tenant);
        let control = Self(Arc::new(Inner {
            parts,
            admission,
            live: LiveRuns::default(),
            locks: StoreLocks::default(),
            uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
            runs: TaskTracker::new(),
            cancel_runs: CancellationToken::new(),
            draining: AtomicBool::new(false),
        }));
        crate::ops::recovery::end_lost_runs(&control).await?;
        Ok(control)
    }

    /// Refuses new runs from now on, waits up to `patience` for those that are going, cancels the rest and waits up
    /// to `grace` for their end. What is still going then ends as `node_restarted` at the next start.
    pub async fn drain(&self, patience: Duration, grace: Duration) {
        self.0.draining.store(true, Ordering::SeqCst);
        self.0.runs.close();
        if tokio::time::timeout(patience, self.0.runs.wait()).await.is_ok() {
            return;
        }
        tracing::warn!(runs = self.0.admission.going(), "cancelling what still runs");
        self.0.cancel_runs.cancel();
        if tokio::time::timeout(grace, self.0.runs.wait()).await.is_err() {
            tracing::warn!(runs = self.0.admission.going(), "runs left at the end");
        }
    }

    /// # Errors
    /// When the server is shutting down.
    pub fn refuse_while_draining(&self) -> Result<(), ApiError> {
        if !self.0.draining.load(Ordering::SeqCst) {
            return Ok(());
        }
        let hint = "Try again in a few seconds.";
        Err(ApiError::new(ErrorKind::Unavailable, "shutting_down", "the server is shutting down", hint))
    }

    /// Who a token speaks for.
    ///
    /// # Errors
    /// When it does not hold. The answer says no more than whether its time was over.
    pub fn authenticate(&self, token: &str) -> Result<Principal, ApiError> {
        Ok(self.0.parts.authenticator.verify(token, self.now_ms())?)
    }

    /// The document at `/.well-known/jwks.json`.
    #[must_use]
    pub fn public_keys(&self) -> &str {
        &self.0.parts.jwks
    }

    /// A name for a request. Should the system give no random bytes, the clock alone has to do.
    #[must_use]
    pub fn mint_request_id(&self) -> RequestId {
        RequestId::mint(self.now_ms(), self.0.parts.rng.bytes().unwrap_or_default())
    }

    /// What the server was told at start.
    #[must_use]
    pub fn config(&self) -> &ControlConfig {
        &self.0.parts.config
    }

    pub(crate) fn mint_run(&self) -> Result<RunId, ApiError> {
        let random = self.0.parts.rng.bytes().map_err(ApiError::internal)?;
        Ok(RunId::mint(self.now_ms(), random))
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.0.parts.clock.now_ms()
    }

    pub(crate) fn policies(&self) -> &Policies {
        &self.0.parts.policies
    }

    pub(crate) fn db(&self) -> &Arc<dyn Db> {
        &self.0.parts.db
    }

    pub(crate) fn trees(&self) -> &Trees {
        &self.0.parts.trees
    }

    pub(crate) fn logs(&self) -> &EventLogs {
        &self.0.parts.logs
    }

    pub(crate) fn node(&self) -> &mpsc::Sender<StartRun> {
        &self.0.parts.node
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.0.admission
    }

    pub(crate) fn live(&self) -> &LiveRuns {
        &self.0.live
    }

    pub(crate) fn locks(&self) -> &StoreLocks {
        &self.0.locks
    }

    pub(crate) fn uploads(&self) -> &Arc<Semaphore> {
        &self.0.uploads
    }

    /// Keeps a drain waiting until it is dropped, or says that it has begun.
    pub(crate) fn hold_drain(&self) -> Result<TaskTrackerToken, ApiError> {
        let hold = self.0.runs.token();
        self.refuse_while_draining()?;
        Ok(hold)
    }

    /// Runs `task` to its end whatever becomes of the request that wanted it.
    pub(crate) fn own<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.runs.spawn(task)
    }

    pub(crate) fn run_cancellation(&self) -> CancellationToken {
        self.0.cancel_runs.child_token()
    }
}
