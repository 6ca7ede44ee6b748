//! The owner of one run: waits for whatever happens, asks [`crate::lifecycle`] what follows, and does it.
//!
//! At any time there is one piece of work (a claim, a start, a kill), besides the program's output and the caller.
//! Updates leave through an outbox: while it is not empty, nothing more is read from the sandbox, so that a slow
//! caller stalls its own program and nothing else; deadlines and kills do not wait for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::jail::StopFacts;
use bailey_protocol::node::{Ending, NodeFault, OutputStream, RunSpec, RunStarted, RunStopped, RunUpdate};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::agent::{AgentError, Exec, ExecEvent};
use crate::fault;
use crate::lifecycle::{Effect, Ended, Event, Plan, State};
use crate::node::Host;
use crate::wall::{BoxFuture, WallError};

mod begin;
mod claim;
mod collect;

use begin::{BeginError, Begun};
use claim::Claimed;
use collect::{ChangeStream, Piece};

/// Largest piece of output in one update.
const MAX_OUTPUT: usize = 32 * 1024;
/// How long the output of a dead guest may take to arrive.
const GRACE: Duration = Duration::from_millis(200);

/// Drives one run to its last update. CANCEL: the sandbox is destroyed behind.
pub(crate) async fn drive(host: Arc<Host>, spec: RunSpec, updates: mpsc::Sender<RunUpdate>, cancel: CancellationToken) {
    let mut run = Run::new(host, spec);
    while !run.is_told() {
        let input = run.next_input(&updates, &cancel).await;
        run.handle(input);
    }
    debug!(run = %run.spec.run, "run told");
}

struct Run {
    host: Arc<Host>,
    spec: Arc<RunSpec>,
    plan: Plan,
    state: State,
    outbox: VecDeque<RunUpdate>,
    work: Option<BoxFuture<'static, Done>>,
    claimed: Option<Claimed>,
    /// Facts for `Started`, from the start to its report.
    started: Option<RunStarted>,
    exec: Option<Exec>,
    feed: Option<BoxFuture<'static, ()>>,
    changes: Option<ChangeStream>,
    /// Output of the event at hand.
    at_hand: Option<(OutputStream, Bytes)>,
    /// When to stop waiting for a dead guest's output.
    grace: Option<Instant>,
    wall_ms: u64,
    /// Whether all processes of its sandbox are known to be.
    dead: bool,
}

/// A piece of work that came to an end.
enum Done {
    Claimed(Result<Box<Claimed>, NodeFault>),
    Begun(Result<Box<Begun>, BeginError>),
    Killed(Result<StopFacts, WallError>),
    Collecting(Result<Option<ChangeStream>, NodeFault>),
}

/// What woke the owner.
enum Input {
    Sent,
    Abandoned,
    Done(Done),
    Stop(Ending),
    WallLost,
    Program(Result<ExecEvent, AgentError>),
    Fed,
    Died,
    GraceOver,
    Changes(Result<Piece, NodeFault>),
}

impl Run {
    fn new(host: Arc<Host>, spec: RunSpec) -> Self {
        let writable = spec.mounts.iter().zip(0_u32..).filter(|(mount, _)| mount.writable).map(|(_, at)| at).collect();
        let plan = Plan { writable, output_bytes: spec.limits.output_bytes };
        let spec = Arc::new(spec);
        let claiming = claim::claim(Arc::clone(&host), Arc::clone(&spec));
        Self {
            host,
            spec,
            plan,
            state: State::Claiming,
            outbox: VecDeque::new(),
            work: Some(Box::pin(async { Done::Claimed(claiming.await) })),
            claimed: None,
            started: None,
            exec: None,
            feed: None,
            changes: None,
            at_hand: None,
            grace: None,
            wall_ms: 0,
            dead: false,
        }
    }

    fn is_told(&self) -> bool {
        self.state == State::Over && self.outbox.is_empty()
    }

    /// Waits for the next thing that matters in this state. CANCEL: nothing is lost.
    async fn next_input(&mut self, updates: &mpsc::Sender<RunUpdate>, cancel: &CancellationToken) -> Input {
        let quiet = self.outbox.is_empty();
        let over = self.state == State::Over;
        let stoppable = self.state.stoppable();
        let deadline = self.claimed.as_ref().map(|claimed| claimed.deadline);
        let Self { host, state, outbox, work, claimed, exec, feed, changes, grace, .. } = self;
        let exec = exec.as_mut().filter(|_| quiet && state.listens());
        let changes = changes.as_mut().filter(|_| quiet);
        let watched = claimed.as_ref().filter(|_| grace.is_none() && matches!(state, State::Running { .. }));
        let grace = grace.filter(|_| quiet && state.listens());
        tokio::select! {
            biased;
            () = cancel.cancelled(), if stoppable => Input::Stop(Ending::Cancelled),
            () = host.ending.cancelled(), if stoppable => Input::Stop(Ending::NodeRestarted),
            () = until(deadline), if stoppable => Input::Stop(Ending::Timeout),
            permit = updates.reserve(), if !quiet => match permit {
                Ok(permit) => {
                    if let Some(update) = outbox.pop_front() {
                        permit.send(update);
                    }
                    Input::Sent
                }
                Err(_closed) => {
                    outbox.clear();
                    Input::Abandoned
                }
            },
            () = updates.closed(), if quiet => Input::Abandoned,
            done = some(work) => {
                *work = None;
                Input::Done(done)
            }
            () = host.wall_lost(), if !over => Input::WallLost,
            event = of(exec, Exec::next) => Input::Program(event),
            () = of(watched, |claimed| claimed.machine.died()) => Input::Died,
            () = until(grace) => Input::GraceOver,
            piece = of(changes, ChangeStream::next) => Input::Changes(piece),
            () = some(feed) => {
                *feed = None;
                Input::Fed
            }
        }
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Sent | Input::Fed => {}
            Input::Abandoned => self.apply(Event::Abandoned),
            Input::Stop(ending) => self.apply(Event::StopAsked(ending)),
            Input::WallLost => self.apply(Event::Fault(fault::unavailable())),
            Input::Died => self.grace = Some(Instant::now() + GRACE),
            Input::GraceOver => self.apply(Event::Ended(Ending::GuestLost)),
            Input::Program(Ok(ExecEvent::Output(stream, bytes))) => {
                bailey_crash::point(Point::OutputCame);
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.at_hand = Some((stream, bytes));
                self.apply(Event::Output(length));
            }
            Input::Program(Ok(ExecEvent::Ended(ending))) => {
                bailey_crash::point(Point::ProgramEnded);
                self.apply(Event::Ended(ending));
            }
            Input::Program(Err(cause)) => {
                debug!(run = %self.spec.run, cause = &cause as &dyn std::error::Error, "guest lost");
                self.apply(Event::Ended(Ending::GuestLost));
            }
            Input::Changes(Ok(Piece::Bytes(data))) => {
                bailey_crash::point(Point::ChangesCame);
                let mount = self.collecting();
                self.outbox.push_back(RunUpdate::Changes { mount, data });
            }
            Input::Changes(Ok(Piece::End)) => {
                bailey_crash::point(Point::ChangesEnded);
                let mount = self.collecting();
                self.outbox.push_back(RunUpdate::ChangesEnd { mount });
                self.changes = None;
                self.apply(Event::Collected);
            }
            Input::Changes(Err(fault)) => self.apply(Event::Fault(fault)),
            Input::Done(done) => self.done(done),
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Claimed(Ok(claimed)) => {
                self.claimed = Some(*claimed);
                self.apply(Event::Claimed);
            }
            Done::Claimed(Err(fault)) | Done::Collecting(Err(fault)) => self.apply(Event::Fault(fault)),
            Done::Begun(Ok(begun)) => {
                let Begun { exec, feed, started } = *begun;
                self.exec = Some(exec);
                self.feed = feed;
                self.started = Some(started);
                self.apply(Event::Started);
            }
            Done::Begun(Err(BeginError::Refused(fault))) => self.apply(Event::Refused(fault)),
            Done::Begun(Err(BeginError::Lost(cause))) => {
                info!(run = %self.spec.run, cause = &cause as &dyn std::error::Error, "guest lost before its program");
                self.apply(Event::Ended(Ending::GuestLost));
            }
            Done::Killed(Ok(facts)) => {
                bailey_crash::point(Point::SandboxStopped);
                self.dead = true;
                let since = self.claimed.as_ref().map(|claimed| claimed.at.elapsed()).unwrap_or_default();
                self.wall_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                self.grace = Some(Instant::now() + GRACE);
                self.apply(Event::Killed(facts));
            }
            Done::Killed(Err(cause)) => self.apply(Event::Fault(fault::of_wall(&cause, "stop the sandbox"))),
            Done::Collecting(Ok(Some(changes))) => {
                bailey_crash::point(Point::CollectorOpened);
                self.changes = Some(changes);
            }
            Done::Collecting(Ok(None)) => {
                self.perform(Effect::ReportUnchanged(self.collecting()));
                self.apply(Event::Collected);
            }
        }
    }

    fn apply(&mut self, event: Event) {
        let (state, effects) = std::mem::replace(&mut self.state, State::Over).on(event, &self.plan);
        self.state = state;
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Start => {
                let beginning = begin::begin(&self.host, &self.spec, self.claimed.as_mut());
                self.work = Some(Box::pin(async { Done::Begun(beginning.await) }));
            }
            Effect::ReportStarted => {
                self.outbox.extend(self.started.take().map(|started| RunUpdate::Started { started }));
            }
            Effect::Keep(bytes) => self.keep(bytes),
            Effect::Kill => {
                self.feed = None;
                let machine = self.claimed.as_ref().map(|claimed| &claimed.machine);
                self.work = machine.map(|machine| -> BoxFuture<'static, Done> {
                    let (wall, live) = (Arc::clone(machine.hold().wall()), machine.live());
                    Box::pin(async move { Done::Killed(wall.stop(&live).await) })
                });
            }
            Effect::ReportStopped(ended) => self.report_stopped(ended),
            Effect::Collect(mount) => {
                let machine = self.claimed.as_ref().map(|claimed| &claimed.machine);
                let within = self.host.deadlines.collect;
                self.work = machine.map(|machine| -> BoxFuture<'static, Done> {
                    let (wall, live) = (Arc::clone(machine.hold().wall()), machine.live());
                    Box::pin(async move { Done::Collecting(collect::open(&*wall, &live, mount, within).await) })
                });
            }
            Effect::ReportUnchanged(mount) => {
                self.outbox.extend([RunUpdate::Changes { mount, data: unchanged() }, RunUpdate::ChangesEnd { mount }]);
            }
            Effect::ReportDone => self.outbox.push_back(RunUpdate::Done),
            Effect::ReportFailed(fault) => self.outbox.push_back(RunUpdate::Failed { fault }),
            Effect::Release => {
                self.work = None;
                self.feed = None;
                self.exec = None;
                self.changes = None;
                // Last: dropping the sandbox starts its destruction. Its slices may become others' meanwhile if it is dead.
                if let Some(mut claimed) = self.claimed.take().filter(|_| self.dead) {
                    claimed.machine.hold_mut().is_dead();
                }
            }
        }
    }

    fn keep(&mut self, bytes: u64) {
        let Some((stream, mut data)) = self.at_hand.take() else { return };
        data.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        while !data.is_empty() {
            let data = data.split_to(data.len().min(MAX_OUTPUT));
            self.outbox.push_back(RunUpdate::Output { stream, data });
        }
    }

    fn report_stopped(&mut self, ended: Ended) {
        let Ended { ending, limits_hit, output_dropped, facts } = ended;
        info!(run = %self.spec.run, tenant = %self.spec.tenant, ?ending, wall_ms = self.wall_ms, "run stopped");
        let stopped = RunStopped { ending, limits_hit, output_dropped, facts, wall_ms: self.wall_ms };
        self.outbox.push_back(RunUpdate::Stopped { stopped });
    }

    /// The mount whose changes are being read.
    fn collecting(&self) -> u32 {
        match &self.state {
            State::Collecting { position } => self.plan.writable.get(*position).copied().unwrap_or(u32::MAX),
            _ => u32::MAX,
        }
    }
}

/// A change stream that says that nothing changed.
fn unchanged() -> Bytes {
    let mut stream = MAGIC.to_vec();
    let end = Header::End { records: 0 }.encode(&mut stream);
    debug_assert!(end.is_ok(), "an end record has no field that could be too long");
    Bytes::from(stream)
}

/// Resolves at `instant`, or never.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The work's result; never, without work.
async fn some<T>(work: &mut Option<BoxFuture<'static, T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

/// What `next` gives for `source`; never, without a source.
async fn of<S, T, F>(source: Option<S>, next: impl FnOnce(S) -> F) -> T
where
    F: Future<Output = T>,
{
    match source {
        Some(source) => next(source).await,
        None => std::future::pending().await,
    }
}
