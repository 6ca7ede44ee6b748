//! The one task that owns a run, from its order to its last event.
//!
//! ```text
//!            Started        Output*        Stopped        per writable mount          Done
//! ordered ───────────▶ going ──────▶ going ───────▶ collecting ─Changes* ChangesEnd─▶ … ───▶ landing
//!    │                   │             │               │                              │        │
//!    └───────────────────┴──── Failed, a lost node, an answer out of order ───────────┴────────┤
//!                                                                                              ▼
//!                               end and refs, in one transaction of the database ─▶ last event ─▶ over
//! ```
//!
//! Events go to the run's log and nowhere else, so nobody who listens can slow a run down or make it end.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use bailey_crash::Point;
use bailey_policy::RunCreatePermit;
use bailey_protocol::api::{RunEventKind, RunResult, Usage};
use bailey_protocol::id::{RunId, TenantId, UserId};
use bailey_protocol::node::{Ending, NodeFault, NodeFaultKind, RunStarted, RunStopped, RunUpdate};
use bailey_protocol::path::RepoId;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::run_changes::{Chain, Collected};
use super::runs::{Admitted, Ready};
use super::slices::Slice;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::db::{DbError, RefMove, RunEnd, RunFailure};
use crate::event_log::{EventWriter, Progress};
use crate::live_runs::{Listed, LiveRun};
use crate::node_link::{StartRun, UPDATES_IN_FLIGHT};
use crate::output::OutputEncoder;
use crate::run_request::ChosenWall;
use crate::threads::blocking;

/// Output beyond the run's own limit after which the node is not believed any more.
const OUTPUT_SLACK: u64 = 1024 * 1024;
/// Tries to record an end while the database is too busy, each of which waits by itself.
const MAX_END_TRIES: usize = 5;

/// Keeps all logs together within their budget, now that one more is over.
async fn trim_logs(control: &Control, grown: u64) {
    let budget = control.config().runs.log_bytes;
    if !control.logs().is_trim_due(grown, budget) {
        return;
    }
    let (logs, live) = (control.logs().clone(), control.live().clone());
    match blocking(control.threads(), move || Ok(logs.trim(budget, |run| live.get(run).is_some())?)).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "event logs removed, the oldest of whoever has most"),
        Err(error) => tracing::error!(cause = error.cause_chain(), "event logs cannot be kept within their budget"),
    }
}

/// A run's log and its place among those that are going. It is there before the run is recorded, so that whoever can
/// see the run can follow it.
#[derive(Debug)]
pub(super) struct RunLog {
    writer: EventWriter,
    cancel: CancellationToken,
    _listed: Listed,
}

/// What a run did, and what waits to be committed.
type CarriedOut = Result<(RunResult, HashMap<RepoId, Chain>), RunFailure>;

/// Why a run was stopped, if it was: by policy, or because its caller's rights are over.
#[derive(Debug, Default)]
struct Stop {
    why: Option<String>,
    by_policy: bool,
}

/// A run under way.
#[derive(Debug)]
pub(super) struct Going {
    pub(super) control: Control,
    pub(super) permit: Arc<RunCreatePermit>,
    /// Who asked for the run, and in whose name its changes are decided on.
    pub(super) caller: Caller,
    pub(super) run: RunId,
    pub(super) slices: Vec<Slice>,
    wall: ChosenWall,
    admitted: Admitted,
    started: bool,
    /// The node went away from under the started run: nobody's fault but the operator's.
    node_gone: bool,
    /// Output that may still come.
    allowance: u64,
    updates: mpsc::Receiver<RunUpdate>,
    /// Updates that have come and wait their turn.
    inbox: VecDeque<RunUpdate>,
    /// Events that are not in the log yet.
    pending: Vec<RunEventKind>,
    encoder: OutputEncoder,
    log: RunLog,
}

impl RunLog {
    /// Starts the log of a run that is about to be recorded.
    pub(super) async fn open(control: &Control, tenant: &TenantId, run: &RunId) -> Result<Self, ApiError> {
        let (logs, of, name) = (control.logs().clone(), tenant.clone(), run.clone());
        let writer = blocking(control.threads(), move || Ok(logs.create(&of, &name)?)).await?;
        let cancel = control.run_cancellation();
        let live = LiveRun { progress: writer.progress(), cancel: cancel.clone() };
        Ok(Self { _listed: control.live().list(run, live), cancel, writer })
    }

    /// Takes the log of a run away that was not recorded.
    pub(super) async fn discard(self, control: &Control, tenant: &TenantId, run: &RunId) {
        drop(self);
        let (logs, of, name) = (control.logs().clone(), tenant.clone(), run.clone());
        if let Err(error) = blocking(control.threads(), move || Ok(logs.remove(&of, &name)?)).await {
            tracing::warn!(%run, cause = error.cause_chain(), "an empty log is left");
        }
    }
}

impl Going {
    /// Takes over a run that is recorded, and gives the order for the node.
    pub(super) fn new(control: Control, permit: RunCreatePermit, ready: Ready) -> (Self, StartRun) {
        let Ready { spec, caller, wall, slices, admitted, log } = ready;
        let (updates, received) = mpsc::channel(UPDATES_IN_FLIGHT);
        let going = Self {
            permit: Arc::new(permit),
            caller,
            run: spec.run.clone(),
            slices,
            wall,
            admitted,
            started: false,
            node_gone: false,
            allowance: spec.limits.output_bytes.saturating_add(OUTPUT_SLACK),
            updates: received,
            inbox: VecDeque::with_capacity(UPDATES_IN_FLIGHT),
            pending: Vec::new(),
            encoder: OutputEncoder::default(),
            log,
            control,
        };
        let order = StartRun { spec, updates, cancel: going.log.cancel.clone() };
        (going, order)
    }

    pub(super) fn user(&self) -> &UserId {
        self.permit.user()
    }

    /// What readers of the log wait on.
    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.log.writer.progress()
    }

    /// Sees the run to its end.
    pub(super) async fn live(mut self, order: StartRun) {
        tracing::info!(run = %self.run, tenant = %self.permit.tenant(), "run created");
        let (carried, stop) = self.carry_out_while_allowed(order).await;
        let lost = self.control.still_stands(&self.caller).err().map(|error| error.to_string());
        let tell_why = |(result, works): (RunResult, HashMap<RepoId, Chain>)| stop.told(lost, result, works);
        let landed = match carried.map(tell_why) {
            Ok((result, works)) if works.is_empty() => Err(RunEnd::Ended(result)),
            Ok((result, works)) => self.land(result, works).await.map_err(RunEnd::Failed),
            // As it ends where this server does not live to see it.
            Err(_) if self.node_gone => Err(RunEnd::node_restarted()),
            Err(failure) => Err(RunEnd::Failed(failure)),
        };
        let (control, progress) = (self.control.clone(), self.progress());
        match landed {
            // Recorded together with the branches that moved.
            Ok(result) => self.tell(RunEnd::Ended(result)).await,
            Err(end) => self.conclude(end).await,
        }
        let grown = progress.borrow().bytes;
        trim_logs(&control, grown).await;
    }

    /// As [`Self::carry_out`], with the run cancelled as soon as its caller's rights are over, or policy no longer lets
    /// it run; says why.
    async fn carry_out_while_allowed(&mut self, order: StartRun) -> (CarriedOut, Stop) {
        let (control, caller, plan) = (self.control.clone(), self.caller.clone(), self.permit.plan().clone());
        let cancel = self.log.cancel.clone();
        let mut denial = pin!(control.until_denied(&caller, |judge| judge.create_run(&plan).map(drop)));
        let mut rights = pin!(control.end_of_run(&caller.principal));
        let mut carried = pin!(self.carry_out(order));
        let mut stop = Stop::default();
        loop {
            tokio::select! {
                biased;
                carried = &mut carried => return (carried, stop),
                denial = &mut denial, if stop.why.is_none() => {
                    control.record_denial(&caller, &denial).await;
                    cancel.cancel();
                    stop = Stop { why: Some(denial.to_string()), by_policy: true };
                }
                ended = &mut rights, if stop.why.is_none() => {
                    tracing::info!(request = %caller.request, reason = %ended, "run cancelled with its user's rights");
                    cancel.cancel();
                    stop = Stop { why: Some(ended.to_string()), by_policy: false };
                }
            }
        }
    }

    /// What the node has to say, and what waits to be committed.
    async fn carry_out(&mut self, order: StartRun) -> CarriedOut {
        if self.control.node().send(order).await.is_err() {
            let message = "no node takes runs at the moment";
            return Err(failure("node_unavailable", message, "Try again in a few seconds."));
        }
        bailey_crash::point(Point::RunOrdered);
        let stopped = self.until_stopped().await?;
        let Collected { works, notices, more_notices, .. } = self.collect(&stopped.ending).await?;
        let result = RunResult {
            ending: stopped.ending,
            denied: None,
            limits_hit: stopped.limits_hit,
            output_dropped: stopped.output_dropped,
            versions: Vec::new(),
            notices,
            more_notices,
            usage: Usage {
                wall_ms: stopped.wall_ms,
                cpu_us: stopped.facts.cpu_us,
                memory_peak_bytes: stopped.facts.memory_peak_bytes,
            },
        };
        Ok((result, works))
    }

    async fn until_stopped(&mut self) -> Result<RunStopped, RunFailure> {
        loop {
            match self.next().await? {
                RunUpdate::Started { started: facts } if !self.started => {
                    self.started = true;
                    self.pending.push(self.beginning(facts));
                }
                RunUpdate::Output { stream, data } if self.started => {
                    self.allowance = self
                        .allowance
                        .checked_sub(data.len() as u64)
                        .ok_or_else(|| self.broken("more output than the run's limit"))?;
                    self.pending.extend(self.encoder.push(stream, &data));
                }
                RunUpdate::Stopped { stopped } => {
                    let rest = self.encoder.finish();
                    self.pending.extend(rest);
                    return Ok(stopped);
                }
                RunUpdate::Failed { fault } => return Err(self.failed(fault)),
                RunUpdate::Started { .. }
                | RunUpdate::Output { .. }
                | RunUpdate::Changes { .. }
                | RunUpdate::ChangesEnd { .. }
                | RunUpdate::Done => return Err(self.broken("an update out of order before the stop")),
            }
        }
    }

    /// The next update. Events go to the log before anybody waits.
    pub(super) async fn next(&mut self) -> Result<RunUpdate, RunFailure> {
        if let Some(update) = self.inbox.pop_front() {
            return Ok(update);
        }
        self.flush().await?;
        let mut batch = Vec::with_capacity(UPDATES_IN_FLIGHT);
        self.updates.recv_many(&mut batch, UPDATES_IN_FLIGHT).await;
        self.inbox.extend(batch);
        self.inbox.pop_front().ok_or_else(|| {
            tracing::error!(run = %self.run, "the node went away from a run");
            failure("node_lost", "the node went away while the run was going", "Create the run again.")
        })
    }

    pub(super) async fn flush(&mut self) -> Result<(), RunFailure> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.pending);
        self.log.writer.append(self.control.now_ms(), events).await.map_err(|error| {
            tracing::error!(run = %self.run, error = &error as &dyn std::error::Error, "events cannot be kept");
            failure("output_lost", "the run's output could not be kept", "Ask the operator for room.")
        })?;
        bailey_crash::point(Point::EventsKept);
        Ok(())
    }

    /// What the node's last word means for the run.
    pub(super) fn failed(&mut self, fault: NodeFault) -> RunFailure {
        self.node_gone = self.started && fault.kind == NodeFaultKind::Unavailable;
        node_failure(fault)
    }

    /// A node that breaks the protocol is not believed in anything else.
    pub(super) fn broken(&self, what: &str) -> RunFailure {
        tracing::error!(run = %self.run, what, "the node broke the protocol");
        failure("node_failed", "the node broke off", "Create the run again; tell the operator if it happens again.")
    }

    fn beginning(&self, facts: RunStarted) -> RunEventKind {
        RunEventKind::Started {
            run: self.run.clone(),
            sandbox: facts.sandbox,
            wall: facts.wall,
            reason: self.wall.reason,
            why: self.wall.why.clone(),
            accelerated: facts.accelerated,
            parked: facts.parked,
            fences: facts.fences,
        }
    }

    /// Makes the end durable, and only then tells it. Where it cannot be recorded, the stream breaks off visibly and
    /// the next start ends the run.
    async fn conclude(self, end: RunEnd) {
        // Whatever of it still runs is not wanted any more.
        self.log.cancel.cancel();
        match record_end(&self.control, &self.permit, &self.run, &end, &[]).await {
            Ok(()) => self.tell(end).await,
            Err(error) => {
                tracing::error!(run = %self.run, error = &error as &dyn std::error::Error, "the end is not recorded");
            }
        }
    }

    /// Tells an end that is durable.
    async fn tell(mut self, end: RunEnd) {
        tracing::info!(run = %self.run, tenant = %self.permit.tenant(), "run over");
        // A caller who has read the end finds room for the next run.
        drop(self.admitted);
        let mut events = std::mem::take(&mut self.pending);
        events.push(end.into());
        if let Err(error) = self.log.writer.append(self.control.now_ms(), events).await {
            tracing::error!(run = %self.run, error = &error as &dyn std::error::Error, "the end is not in the log");
        }
        bailey_crash::point(Point::RunTold);
        drop(self.log);
    }
}

/// Records an end and the refs that move with it, with patience for a busy database.
pub(super) async fn record_end(
    control: &Control,
    permit: &RunCreatePermit,
    run: &RunId,
    end: &RunEnd,
    moves: &[RefMove],
) -> Result<(), DbError> {
    let mut tries = 1;
    bailey_crash::point(Point::RunEnding);
    loop {
        match control.db().end_run(permit, run, end.clone(), moves.to_vec(), control.now_ms()).await {
            Err(DbError::Busy { .. }) if tries < MAX_END_TRIES => tries += 1,
            outcome => {
                bailey_crash::point(Point::RunEnded);
                return outcome;
            }
        }
    }
}

impl Stop {
    /// The run's result and what may land of it. A stop may come when the program is over anyway: then it is told where
    /// something was dropped for it. `lost` is why the caller's rights are over.
    fn told(
        self,
        lost: Option<String>,
        result: RunResult,
        works: HashMap<RepoId, Chain>,
    ) -> (RunResult, HashMap<RepoId, Chain>) {
        let drops = self.by_policy || lost.is_some();
        let denied = self.why.or(lost).filter(|_| result.ending == Ending::Cancelled || (drops && !works.is_empty()));
        (RunResult { denied, ..result }, if drops { HashMap::new() } else { works })
    }
}

pub(super) fn failure(error: &str, message: impl Into<String>, hint: &str) -> RunFailure {
    RunFailure { error: error.to_owned(), message: message.into(), hint: hint.to_owned() }
}

fn node_failure(fault: NodeFault) -> RunFailure {
    let (error, hint) = match fault.kind {
        NodeFaultKind::Invalid => ("run_invalid", "Correct the request as the message says."),
        NodeFaultKind::Exhausted => ("node_exhausted", "Try again in a few seconds."),
        NodeFaultKind::Unavailable => ("node_unavailable", "Try again in a few seconds."),
        NodeFaultKind::Internal => ("node_failed", "Create the run again; tell the operator if it happens again."),
    };
    failure(error, fault.message, hint)
}

impl From<RunEnd> for RunEventKind {
    fn from(end: RunEnd) -> Self {
        match end {
            RunEnd::Ended(result) => Self::Ended(result),
            RunEnd::Failed(RunFailure { error, message, hint }) => Self::Failed { error, message, hint },
        }
    }
}
