//! Runs: create, follow, list, look at, cancel.

use bailey_crash::Point;
use bailey_policy::{Denied, RunCreatePermit, RunFacts, RunOrigin, RunPlan};
use bailey_protocol::api::{RunList, RunRequest, RunSummary};
use bailey_protocol::id::RunId;
use bailey_protocol::limits::Limits;
use bailey_protocol::node::RunSpec;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::entering;
use super::run_owner::{Going, RunLog};
use super::slices::{self, Allowed, Slice};
use crate::admission::Slot;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::db::{AuditEntry, Idempotency, IdempotencyKey, MAX_PAGE, NewRun, RunCreated, RunRecord};
use crate::event_log::{EventReader, Progress};
use crate::run_request::{self, ChosenWall, PlannedMount, PlannedRun};
use crate::streams::Stream;
use crate::threads::blocking;

/// Runs of one page, when the caller does not say.
const DEFAULT_PAGE: u32 = 50;

/// A run that a request made, now or before.
#[derive(Debug)]
pub struct Created {
    /// The run.
    pub run: RunId,
    /// Where its events have got to; absent when an earlier request with the same key made it.
    progress: Option<watch::Receiver<Progress>>,
    /// Mounts that are not there yet, and what in the request is shaped like a credential.
    pub warnings: Vec<String>,
    /// For its events, unless it was asked for without.
    room: Option<Slot>,
}

/// Makes a run and starts it. What it answers is durable; the run goes on whoever stays to listen.
///
/// CANCEL: once it is decided, the run is made and started also when the caller is gone.
///
/// # Errors
/// When the request cannot be carried out, is denied, or there is no room. Then nothing was started.
pub async fn create(
    control: &Control,
    caller: &Caller,
    request: RunRequest,
    key: Option<IdempotencyKey>,
) -> Result<Created, ApiError> {
    let hold = control.hold_drain()?;
    let idempotency = key.map(|key| Ok::<_, ApiError>(Idempotency { key, request: digest(&request)? })).transpose()?;
    let mut shaped = entering::in_request(&request);
    let mut planned = run_request::plan(request, &control.config().runs)?;
    let caller = &caller.clone().behind(planned.wall.kind);
    shaped.extend(entering::in_files(&planned.files));
    let (template, limits) = (planned.template.clone(), planned.limits);
    let asked = Asked {
        plan: RunPlan { wall: planned.wall.kind, template, root: planned.root, limits },
        mounts: std::mem::take(&mut planned.mounts),
        rules: shaped.iter().map(|(_, finding)| finding.rule).collect(),
    };
    let allowed = asked.judge(control, caller).await?;
    bailey_crash::point(Point::RunAllowed);
    // A task of its own: a caller who hangs up must not leave a run that is recorded and never started.
    let making = make(control.clone(), caller.clone(), asked, allowed, planned, idempotency);
    let made = control.own(making).await.map_err(ApiError::internal)?;
    drop(hold);
    let mut created = made?;
    created.warnings.extend(shaped.iter().map(|(field, finding)| entering::warning(field, finding)));
    Ok(created)
}

/// What is decided about a run before it starts.
struct Asked {
    plan: RunPlan,
    mounts: Vec<PlannedMount>,
    /// By which what the request holds is shaped like a credential.
    rules: Vec<&'static str>,
}

/// What was allowed of it, and its rows for the audit, how it came out to be filled in.
struct Judged {
    permit: RunCreatePermit,
    mounts: Vec<Allowed>,
    audit: Vec<AuditEntry>,
}

impl Asked {
    /// Decides on all of it, by the policies in force now.
    async fn judge(&self, control: &Control, caller: &Caller) -> Result<Judged, ApiError> {
        let judge = control.judge(caller).await?.holding(self.rules.iter().copied());
        let permit = control.permit(caller, judge.create_run(&self.plan)).await?;
        let mounts = slices::authorize(control, caller, self.mounts.clone()).await?;
        let audit = audit_entries(control, caller, &permit, &mounts);
        Ok(Judged { permit, mounts, audit })
    }
}

/// A run that is recorded as running and has to be started.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) spec: RunSpec,
    pub(super) caller: Caller,
    pub(super) wall: ChosenWall,
    pub(super) slices: Vec<Slice>,
    pub(super) admitted: Admitted,
    pub(super) log: RunLog,
}

/// What there is only so much of, and a run has.
#[derive(Debug)]
pub(super) struct Admitted {
    run: Slot,
    disk: Option<Slot>,
}

impl Admitted {
    /// Takes room for a run of the caller's. CANCEL: nothing is taken.
    async fn enter(control: &Control, caller: &Caller, limits: &Limits) -> Result<Self, ApiError> {
        let tenant = &caller.principal.tenant;
        // First, so that nobody waits for a disk in a place that others could run in.
        let disk = match limits.wants_large_disk() {
            true => Some(control.disk_admission().enter(tenant).await.map_err(ApiError::large_disks)?),
            false => None,
        };
        Ok(Self { run: control.admission().enter(tenant).await?, disk })
    }

    fn waited(&self) -> bool {
        self.run.waited() || self.disk.as_ref().is_some_and(Slot::waited)
    }
}

enum Recorded {
    /// With room for its events, unless it was asked for without.
    New(Box<(Ready, RunCreatePermit)>, Option<Slot>),
    Before(RunId),
}

async fn make(
    control: Control,
    caller: Caller,
    asked: Asked,
    judged: Judged,
    planned: PlannedRun,
    idempotency: Option<Idempotency>,
) -> Result<Created, ApiError> {
    let mut audit = judged.audit.clone();
    match record(&control, &caller, &asked, judged, planned, idempotency).await {
        Ok(Recorded::New(ready, room)) => {
            let (ready, permit) = *ready;
            let warnings = ready.slices.iter().filter_map(Slice::warning).collect();
            let (owner, order) = Going::new(control.clone(), permit, ready);
            let created = Created { run: order.spec.run.clone(), progress: Some(owner.progress()), warnings, room };
            // The run's own task goes on, and keeps a drain waiting in this one's place.
            drop(control.own(owner.live(order)));
            Ok(created)
        }
        Ok(Recorded::Before(run)) => Ok(Created { run, progress: None, warnings: Vec::new(), room: None }),
        Err(error) => {
            audit.iter_mut().for_each(|entry| error.code.clone_into(&mut entry.outcome));
            control.write_audit(audit).await?;
            Err(error)
        }
    }
}

/// Finds room and the slices, and makes the run durable, together with what was decided about it.
async fn record(
    control: &Control,
    caller: &Caller,
    asked: &Asked,
    mut judged: Judged,
    planned: PlannedRun,
    idempotency: Option<Idempotency>,
) -> Result<Recorded, ApiError> {
    // A retry needs no room and looks at nothing: its answer is that of the first.
    if let Some(idempotency) = &idempotency
        && let Some(first) = control.db().earlier_run(&judged.permit, idempotency, control.now_ms()).await?
    {
        let outcome = |entry| AuditEntry { outcome: first.to_string(), ..entry };
        control.write_audit(judged.audit.into_iter().map(outcome).collect()).await?;
        return Ok(Recorded::Before(first));
    }
    // Before anything starts: a run whose events nobody can be sent is not what was asked for.
    let room = (!planned.detach).then(|| control.streams().enter(Stream::Run, &caller.principal.tenant)).transpose()?;
    let admitted = Admitted::enter(control, caller, &planned.limits).await?;
    bailey_crash::point(Point::RunAdmitted);
    if admitted.waited() {
        control.still_stands(caller)?;
        judged = asked.judge(control, caller).await?;
    }
    let Judged { permit, mounts: allowed, audit } = judged;
    let mounts = allowed.iter().map(|allowed| allowed.path().clone()).collect();
    let slices = slices::open(control, caller, allowed).await?;
    bailey_crash::point(Point::RunSliced);
    let run = control.mint_run()?;
    let command = planned.command.join(" ");
    let new = NewRun { run: run.clone(), command, mounts, created_ms: control.now_ms(), idempotency, audit };
    let log = RunLog::open(control, &caller.principal.tenant, &run).await?;
    bailey_crash::point(Point::RunLogged);
    match control.db().create_run(&permit, new).await {
        Ok(RunCreated::New) => {
            bailey_crash::point(Point::RunRecorded);
            let wall = planned.wall.clone();
            let spec = spec(planned, run, caller, &slices);
            let caller = caller.clone();
            let ready = Ready { spec, caller, wall, slices, admitted, log };
            Ok(Recorded::New(Box::new((ready, permit)), room))
        }
        Ok(RunCreated::Replayed(first)) => {
            log.discard(control, &caller.principal.tenant, &run).await;
            Ok(Recorded::Before(first))
        }
        Err(error) => {
            log.discard(control, &caller.principal.tenant, &run).await;
            Err(error.into())
        }
    }
}

/// The events of a run, and what may be decided about it while they are read.
#[derive(Debug)]
pub struct Followed {
    /// The events.
    pub events: EventReader,
    /// Held for as long as they are read.
    pub room: Slot,
    /// The run.
    pub facts: RunFacts,
}

/// The events of a run that was just made.
///
/// # Errors
/// When they cannot be read.
pub async fn follow(control: &Control, caller: &Caller, created: Created) -> Result<Followed, ApiError> {
    let (Some(progress), Some(room)) = (created.progress, created.room) else {
        return events(control, caller, &created.run, 0).await;
    };
    let events = control.logs().follow(&caller.principal.tenant, &created.run, 0, progress)?;
    // Whoever made it may see it, whatever it was given.
    let origin = Some(RunOrigin { credential: caller.principal.credential.clone(), mounts: Vec::new() });
    let facts = RunFacts::plain(created.run, caller.principal.tenant.clone(), caller.principal.user.clone());
    Ok(Followed { events, room, facts: RunFacts { origin, ..facts } })
}

/// The events of a run after number `after`, to its end.
///
/// # Errors
/// When it does not exist or is denied, or too many of the tenant's are read.
pub async fn events(control: &Control, caller: &Caller, run: &RunId, after: u64) -> Result<Followed, ApiError> {
    let facts = facts(control, caller, run).await?;
    let permit = control.permit(caller, control.judge(caller).await?.read_run(&facts)).await?;
    let result = async {
        let room = control.streams().enter(Stream::Run, &caller.principal.tenant)?;
        // Looked at first: what is not going any more has its end in the database.
        if let Some(live) = control.live().get(run) {
            return Ok((control.logs().follow(&facts.tenant, run, after, live.progress)?, room));
        }
        let record = control.db().run(&permit).await?.ok_or_else(ApiError::run_not_found)?;
        let Some(end) = record.end else {
            return Err(ApiError::internal("a run that is not going has no end"));
        };
        let (logs, run, time_ms) = (control.logs().clone(), run.clone(), record.ended_ms.unwrap_or(record.created_ms));
        let tenant = facts.tenant.clone();
        blocking(control.threads(), move || {
            let progress = logs.complete(&tenant, &run, time_ms, end.into())?;
            Ok((logs.follow(&tenant, &run, after, watch::channel(progress).1)?, room))
        })
        .await
    };
    let (events, room) = control.audited(caller, [permit.grant()], result.await).await?;
    Ok(Followed { events, room, facts })
}

/// Waits until policy no longer lets the caller see the run whose events it follows. The denial is on the audit.
pub async fn until_unseen(control: Control, caller: Caller, facts: RunFacts) -> Denied {
    let denied = control.until_denied(&caller, |judge| judge.read_run(&facts).map(drop)).await;
    control.record_denial(&caller, &denied).await;
    denied
}

/// The caller's runs, newest first: a page of those that its credential may see, which may be none while there are more.
///
/// # Errors
/// When it is denied.
pub async fn list(
    control: &Control,
    caller: &Caller,
    after: Option<RunId>,
    limit: Option<u32>,
) -> Result<RunList, ApiError> {
    let permit = control.permit(caller, control.judge(caller).await?.list_runs()).await?;
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let result = async {
        let records = control.db().runs(&permit, limit, after.as_ref()).await?;
        let whole_page = u32::try_from(records.len()).is_ok_and(|count| count == limit);
        let next = if whole_page { records.last().map(|last| last.facts.run.clone()) } else { None };
        let shown = records.iter().filter(|record| permit.shows(&record.facts));
        Ok(RunList { runs: shown.map(RunRecord::summary).collect(), next })
    };
    control.audited(caller, [permit.grant()], result.await).await
}

/// One run.
///
/// # Errors
/// When it does not exist or is denied.
pub async fn get(control: &Control, caller: &Caller, run: &RunId) -> Result<RunSummary, ApiError> {
    let facts = facts(control, caller, run).await?;
    let permit = control.permit(caller, control.judge(caller).await?.read_run(&facts)).await?;
    let result = async {
        let record = control.db().run(&permit).await?.ok_or_else(ApiError::run_not_found)?;
        Ok(record.summary())
    };
    control.audited(caller, [permit.grant()], result.await).await
}

/// Asks for a run's end and waits for nothing: the end comes on its event stream. A run that is over stays as it is.
///
/// # Errors
/// When it does not exist or is denied.
pub async fn cancel(control: &Control, caller: &Caller, run: &RunId) -> Result<(), ApiError> {
    let facts = facts(control, caller, run).await?;
    let permit = control.permit(caller, control.judge(caller).await?.cancel_run(&facts)).await?;
    if let Some(live) = control.live().get(&permit.facts().run) {
        live.cancel.cancel();
    }
    control.audited(caller, [permit.grant()], Ok(())).await
}

/// What a decision about `run` needs. Another tenant's run is answered like none.
async fn facts(control: &Control, caller: &Caller, run: &RunId) -> Result<RunFacts, ApiError> {
    control.db().run_facts(&caller.principal, run).await?.ok_or_else(ApiError::run_not_found)
}

/// One line for each thing that was allowed; how it came out is filled in later.
fn audit_entries(control: &Control, caller: &Caller, run: &RunCreatePermit, allowed: &[Allowed]) -> Vec<AuditEntry> {
    let now = control.now_ms();
    let grants = [run.grant()].into_iter().chain(run.as_root()).chain(allowed.iter().flat_map(Allowed::grants));
    grants.map(|grant| AuditEntry::allowed(grant, "", Some(&caller.request), now)).collect()
}

fn spec(planned: PlannedRun, run: RunId, caller: &Caller, slices: &[Slice]) -> RunSpec {
    RunSpec {
        run,
        tenant: caller.principal.tenant.clone(),
        wall: planned.wall.kind,
        template: planned.template,
        command: planned.command,
        env: planned.env,
        cwd: planned.cwd,
        stdin: planned.stdin,
        files: planned.files,
        root: planned.root,
        mounts: slices.iter().map(Slice::mount).collect(),
        limits: planned.limits,
    }
}

/// Equal for equal requests, however they were spelled.
fn digest(request: &RunRequest) -> Result<[u8; 32], ApiError> {
    let canonical = serde_json::to_vec(request).map_err(ApiError::internal)?;
    Ok(Sha256::digest(canonical).into())
}
