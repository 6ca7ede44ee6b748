//! The state behind every use case, and its life from start to shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bailey_crash::Point;
use bailey_policy::prove::Prover;
use bailey_policy::{CredentialKind, Operator, Policies, Principal, ServiceAccount};
use bailey_protocol::id::{RequestId, RunId, TenantId};
use bailey_protocol::path::RepoId;
use bailey_protocol::wall::WallKind;
use bailey_tree::{Store, Trees};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::admission::Admission;
use crate::api_error::{ApiError, ErrorKind};
use crate::audit::{self, AuditSigner};
use crate::auth::{AuthError, Authenticator, Identity, Issuer, KeyAge, KeyKeeper};
use crate::changes::Changes;
use crate::clock::{Clock, Rng};
use crate::config::ControlConfig;
use crate::db::Db;
use crate::decisions::Decisions;
use crate::event_log::EventLogs;
use crate::live_guard::LiveGuard;
use crate::live_runs::LiveRuns;
use crate::node_link::{StartGit, StartRun};
use crate::ops::mountable::Mountable;
use crate::ops::reachable::Reached;
use crate::ops::upkeep::{self, UpkeepState};
use crate::pace::Paces;
use crate::policy_handle::PolicyHandle;
use crate::standing::{Ended, KEY_PREFIX, Standing};
use crate::store_locks::StoreLocks;
use crate::streams::Streams;
use crate::tenant_facts::TenantNotebook;
use crate::threads::Threads;
use crate::tree_meta::TreeMeta;
use crate::tree_tokens::{TOKEN_PREFIX, TreeTokens};
use crate::turns::Turns;

/// What control is built from.
#[derive(Debug)]
pub struct Parts {
    /// Limits and defaults.
    pub config: ControlConfig,
    /// Who may do what.
    pub policies: Policies,
    /// Finds out whether policies keep tenants apart, where there is a solver.
    pub prover: Option<Prover>,
    /// Checks tokens.
    pub authenticator: Authenticator,
    /// Signs tokens that service accounts get for users.
    pub issuer: Arc<Issuer>,
    /// Keep the keys of foreign issuers fresh.
    pub keepers: Vec<KeyKeeper>,
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
    /// Where stock git is started.
    pub git: mpsc::Sender<StartGit>,
    /// Tells the time.
    pub clock: Clock,
    /// Names things.
    pub rng: Rng,
    /// Where work goes that may block.
    pub threads: Threads,
    /// Signs the audit's heads.
    pub audit_signer: AuditSigner,
}

/// A handle on the whole of control. Clones share it.
#[derive(Debug, Clone)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: Parts,
    policies: Arc<PolicyHandle>,
    decisions: Decisions,
    admission: Admission,
    disk_admission: Admission,
    git_admission: Admission,
    streams: Streams,
    live: LiveRuns,
    standing: Arc<Standing>,
    locks: StoreLocks,
    /// Held by the one purge that a store has at a time.
    purging: StoreLocks,
    tenant_facts: TenantNotebook,
    tree_meta: TreeMeta,
    tree_tokens: TreeTokens,
    mountable: Mountable,
    reached: Reached,
    /// What operators publish.
    baselines: Store,
    /// Held from a change of labels or protections in the database to the same in memory.
    meta_turn: tokio::sync::Mutex<()>,
    uploads: Turns,
    large_bodies: Turns,
    downloads: Turns,
    changes: Changes,
    explanations: Turns,
    paces: Arc<Paces>,
    /// Owner tasks of runs, and requests that are about to start one.
    runs: TaskTracker,
    cancel_runs: CancellationToken,
    draining: AtomicBool,
    upkeep: UpkeepState,
    forget_checkouts: OnceLock<ForgetCheckouts>,
    /// What goes on from start to shutdown whoever asks for what.
    background: TaskTracker,
    stop_background: CancellationToken,
}

/// Who sent a request, and which.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who asks.
    pub principal: Principal,
    /// For logs, audit and error answers.
    pub request: RequestId,
    /// What isolates the run that is asked for.
    pub wall: Option<WallKind>,
}

impl Caller {
    /// Whoever asks, for no run so far.
    #[must_use]
    pub fn new(principal: Principal, request: RequestId) -> Self {
        Self { principal, request, wall: None }
    }

    /// The same, for a run behind `wall`.
    #[must_use]
    pub fn behind(self, wall: WallKind) -> Self {
        Self { wall: Some(wall), ..self }
    }
}

/// An operator who sent a request.
#[derive(Debug, Clone)]
pub struct OperatorCaller {
    /// Who asks.
    pub operator: Operator,
    /// For logs, audit and error answers.
    pub request: RequestId,
}

/// A service account that sent a request.
#[derive(Debug, Clone)]
pub struct ServiceCaller {
    /// Who asks.
    pub service: ServiceAccount,
    /// For logs, audit and error answers.
    pub request: RequestId,
}

/// Throws away what a node has checked out of a store.
pub struct ForgetCheckouts(pub Box<dyn Fn(&RepoId) + Send + Sync>);

impl std::fmt::Debug for ForgetCheckouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForgetCheckouts")
    }
}

/// Uploads at once: each holds a blocking thread for as long as its client sends.
const MAX_UPLOADS: usize = 128;
/// Large JSON bodies at once, of the largest of which memory holds that many.
const MAX_LARGE_BODIES: usize = 16;
/// Explanations that are looked for at once, one for each tenant. Each may keep a thread busy for seconds.
const MAX_EXPLANATIONS: usize = 4;
/// Archives that are read at once: each holds one, too.
const MAX_DOWNLOADS: usize = 64;

impl Control {
    /// Takes up the work: runs that an earlier life of the server left are ended as `node_restarted` first.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn start(mut parts: Parts) -> Result<Self, ApiError> {
        let keepers = std::mem::take(&mut parts.keepers);
        let rows = parts.db.standing(parts.clock.now_ms()).await?;
        let standing = Arc::new(Standing::new(rows, parts.clock.clone()));
        let admission = Admission::new(parts.config.runs.admission());
        let disk_admission = Admission::new(parts.config.runs.disk_admission());
        let git_admission = Admission::new(parts.config.git.admission());
        let streams = Streams::new(&parts.config);
        let policies =
            Arc::new(PolicyHandle::new(parts.policies.clone(), parts.prover.clone(), parts.config.policy_cache_bytes));
        let tenant_facts = TenantNotebook::new(parts.db.tenant_facts().await?);
        let tree_meta = TreeMeta::new(parts.db.tree_meta().await?);
        let tree_tokens = TreeTokens::new(parts.db.tree_tokens(parts.clock.now_ms()).await?);
        let baselines = parts.trees.published()?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let changes = Changes::new(parts.threads.clone());
        let paces = Arc::new(Paces::new(parts.config.checks, processors, parts.threads.clone()));
        let control = Self(Arc::new(Inner {
            parts,
            policies,
            decisions: Decisions::default(),
            admission,
            disk_admission,
            git_admission,
            streams,
            live: LiveRuns::default(),
            standing,
            locks: StoreLocks::default(),
            purging: StoreLocks::default(),
            tenant_facts,
            tree_meta,
            tree_tokens,
            mountable: Mountable::default(),
            reached: Reached::default(),
            baselines,
            meta_turn: tokio::sync::Mutex::default(),
            uploads: Turns::new(MAX_UPLOADS, MAX_UPLOADS / 4),
            large_bodies: Turns::new(MAX_LARGE_BODIES, MAX_LARGE_BODIES / 4),
            downloads: Turns::new(MAX_DOWNLOADS, MAX_DOWNLOADS / 4),
            changes,
            explanations: Turns::new(MAX_EXPLANATIONS, 1),
            paces,
            runs: TaskTracker::new(),
            cancel_runs: CancellationToken::new(),
            draining: AtomicBool::new(false),
            upkeep: UpkeepState::default(),
            forget_checkouts: OnceLock::new(),
            background: TaskTracker::new(),
            stop_background: CancellationToken::new(),
        }));
        crate::ops::recovery::end_lost_runs(&control).await?;
        bailey_crash::point(Point::LostRunsEnded);
        upkeep::begin(&control).await?;
        let policies = control.policies().current();
        control.begin_telling_policies(&policies).await?;
        if !control.activate_policies(policies).await {
            let why = control.policy_state().refused.unwrap_or_default();
            return Err(ApiError::internal(format!("the policies are refused: {why}")));
        }
        let stop = control.0.stop_background.clone();
        control.0.background.spawn(upkeep::keep(control.clone(), stop.clone()));
        control.0.background.spawn(audit::keep(control.clone(), stop));
        for keeper in keepers {
            control.in_background(keeper.keep());
        }
        control.in_background(crate::ops::identity::keep_notes(control.clone()));
        let stop = control.0.stop_background.clone();
        control.0.background.spawn(control.clone().keep_decisions(stop));
        Ok(control)
    }

    /// Refuses new runs from now on, waits up to `patience` for those that are going, cancels the rest and waits up
    /// to `grace` for their end. What is still going then ends as `node_restarted` at the next start.
    pub async fn drain(&self, patience: Duration, grace: Duration) {
        self.0.draining.store(true, Ordering::SeqCst);
        self.0.runs.close();
        if tokio::time::timeout(patience, self.0.runs.wait()).await.is_err() {
            tracing::warn!(runs = self.0.admission.going(), "cancelling what still runs");
            self.0.cancel_runs.cancel();
            if tokio::time::timeout(grace, self.0.runs.wait()).await.is_err() {
                tracing::warn!(runs = self.0.admission.going(), "runs left at the end");
            }
        }
        self.0.stop_background.cancel();
        self.0.background.close();
        self.0.background.wait().await;
        // What could not be written was told, and is noted again when it is seen again.
        drop(crate::ops::identity::write_notes(self).await);
    }

    /// Has `task` go on until the server ends, when it is dropped wherever it is.
    pub(crate) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.0.stop_background.clone();
        let task = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        };
        drop(self.0.background.spawn(task));
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

    /// Who a credential speaks for: a token or an API key.
    ///
    /// # Errors
    /// When it does not hold, or whoever it speaks for is disabled. The answer says no more than whether its time was
    /// over.
    pub async fn identify(&self, credential: &str) -> Result<Identity, ApiError> {
        let (standing, now_ms) = (self.standing(), self.now_ms());
        let identity = if credential.starts_with(KEY_PREFIX) {
            let principal = standing.keys.principal(credential, now_ms);
            Identity::User(principal.ok_or(ApiError::from(AuthError::UnknownKey))?)
        } else if credential.starts_with(TOKEN_PREFIX) {
            let principal = self.tree_tokens().principal(credential, now_ms);
            Identity::User(principal.ok_or(ApiError::from(AuthError::UnknownKey))?)
        } else {
            self.0.parts.authenticator.verify(credential, now_ms).await?
        };
        standing.check(&identity)?;
        if let Identity::User(principal) = &identity
            && principal.credential.kind == CredentialKind::Token
        {
            standing.seen.note(principal, now_ms);
            // What a key or tree token no longer may outlives a crash: it is written before the answer.
            if standing.followed.learn(principal) {
                self.judge_again(&principal.tenant);
                crate::ops::identity::write_notes(self).await?;
            }
        }
        Ok(identity)
    }

    /// Who may ask at this moment.
    pub(crate) fn standing(&self) -> &Arc<Standing> {
        &self.0.standing
    }

    /// Whether what a caller began may still land: asked with the store's lock held, so that nothing lands after the answer
    /// to whoever took its rights away. That the credential's time is over by now does not matter.
    ///
    /// # Errors
    /// When the caller, its tenant or its credential is disabled or revoked.
    pub(crate) fn still_stands(&self, caller: &Caller) -> Result<(), ApiError> {
        Ok(self.standing().check_rights(&caller.principal)?)
    }

    /// Over as soon as the rights of whoever asks are.
    pub(crate) fn end_of(&self, identity: &Identity) -> impl Future<Output = Ended> + Send + 'static {
        let (standing, identity) = (Arc::clone(self.standing()), identity.clone());
        async move { standing.end_of(&identity, 0).await }
    }

    /// Over as soon as a run of `principal` may not go on, which its token's time alone does not decide.
    pub(crate) fn end_of_run(&self, principal: &Principal) -> impl Future<Output = Ended> + Send + 'static {
        let (standing, identity) = (Arc::clone(self.standing()), Identity::User(principal.clone()));
        let patience = self.config().identity.max_run_age_past_expiry.as_millis();
        let patience = u64::try_from(patience).unwrap_or(u64::MAX);
        async move { standing.end_of(&identity, patience).await }
    }

    /// How fresh the keys of each trusted issuer are.
    pub(crate) fn key_ages(&self) -> Vec<KeyAge> {
        self.0.parts.authenticator.key_ages()
    }

    /// Signs tokens.
    pub(crate) fn issuer(&self) -> &Issuer {
        &self.0.parts.issuer
    }

    /// For work that may block.
    pub(crate) fn threads(&self) -> Threads {
        self.0.parts.threads.clone()
    }

    pub(crate) fn rng(&self) -> &Rng {
        &self.0.parts.rng
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

    /// Says how a node throws away what it has checked out of a store, for when something is purged there. The first
    /// call counts.
    pub fn on_purge(&self, forget: ForgetCheckouts) {
        // A second node would need a list; there is one.
        let _taken_before = self.0.forget_checkouts.set(forget).is_err();
    }

    pub(crate) fn forget_checkouts(&self, repo: &RepoId) {
        if let Some(ForgetCheckouts(forget)) = self.0.forget_checkouts.get() {
            forget(repo);
        }
    }

    pub(crate) fn upkeep(&self) -> &UpkeepState {
        &self.0.upkeep
    }

    pub(crate) fn random(&self) -> Result<[u8; 10], ApiError> {
        self.0.parts.rng.bytes().map_err(ApiError::internal)
    }

    /// What is hashed together with what nobody shall guess.
    pub(crate) fn salt(&self) -> Result<[u8; 16], ApiError> {
        self.0.parts.rng.bytes().map_err(ApiError::internal)
    }

    pub(crate) fn mint_run(&self) -> Result<RunId, ApiError> {
        let random = self.0.parts.rng.bytes().map_err(ApiError::internal)?;
        Ok(RunId::mint(self.now_ms(), random))
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.0.parts.clock.now_ms()
    }

    pub(crate) fn policies(&self) -> &PolicyHandle {
        &self.0.policies
    }

    pub(crate) fn decisions(&self) -> &Decisions {
        &self.0.decisions
    }

    /// Has what goes on for a tenant judged again at once: what its decisions are made on has changed.
    pub(crate) fn judge_again(&self, tenant: &TenantId) {
        self.policies().changed(tenant);
    }

    /// Ticks when something long of a tenant (of an operator's, without one) has to be judged again that was judged before:
    /// at once for the first time.
    pub(crate) fn live_guard(&self, tenant: Option<&TenantId>) -> LiveGuard {
        LiveGuard::late(Arc::clone(&self.0.policies), tenant.cloned())
    }

    /// The same for what will be judged after this: no change from now on is passed over.
    pub(crate) fn early_guard(&self, tenant: &TenantId) -> LiveGuard {
        LiveGuard::early(Arc::clone(&self.0.policies), Some(tenant.clone()))
    }

    pub(crate) fn db(&self) -> &Arc<dyn Db> {
        &self.0.parts.db
    }

    pub(crate) fn audit_signer(&self) -> &AuditSigner {
        &self.0.parts.audit_signer
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

    /// Room for what runs write beyond their memory.
    pub(crate) fn disk_admission(&self) -> &Admission {
        &self.0.disk_admission
    }

    pub(crate) fn git(&self) -> &mpsc::Sender<StartGit> {
        &self.0.parts.git
    }

    /// Room for git exchanges.
    pub(crate) fn git_admission(&self) -> &Admission {
        &self.0.git_admission
    }

    /// Room for answers that go on for long.
    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
    }

    pub(crate) fn live(&self) -> &LiveRuns {
        &self.0.live
    }

    pub(crate) fn purging(&self) -> &StoreLocks {
        &self.0.purging
    }

    pub(crate) fn locks(&self) -> &StoreLocks {
        &self.0.locks
    }

    pub(crate) fn baselines(&self) -> &Store {
        &self.0.baselines
    }

    pub(crate) fn mountable(&self) -> &Mountable {
        &self.0.mountable
    }

    pub(crate) fn reached(&self) -> &Reached {
        &self.0.reached
    }

    pub(crate) fn tree_tokens(&self) -> &TreeTokens {
        &self.0.tree_tokens
    }

    /// What operators noted of tenants.
    pub(crate) fn tenant_facts(&self) -> &TenantNotebook {
        &self.0.tenant_facts
    }

    pub(crate) fn tree_meta(&self) -> &TreeMeta {
        &self.0.tree_meta
    }

    /// Waits for the turn to change labels or protections, so that memory sees changes in the database's order.
    pub(crate) async fn meta_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.meta_turn.lock().await
    }

    /// Turns of those whose bodies are read.
    pub(crate) fn uploads(&self) -> &Turns {
        &self.0.uploads
    }

    /// Turns of those whose JSON is so large that memory holds only so much of it.
    pub(crate) fn large_bodies(&self) -> &Turns {
        &self.0.large_bodies
    }

    /// Turns of those who read archives: however slowly, nobody's upload waits for them.
    pub(crate) fn downloads(&self) -> &Turns {
        &self.0.downloads
    }

    /// Threads for what may have to wait for a store.
    pub(crate) fn changes(&self) -> &Changes {
        &self.0.changes
    }

    /// Turns of those who ask about many paths.
    pub(crate) fn paces(&self) -> &Arc<Paces> {
        &self.0.paces
    }

    /// Turns of those who ask why something is allowed or denied.
    pub(crate) fn explanations(&self) -> &Turns {
        &self.0.explanations
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
