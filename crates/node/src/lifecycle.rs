//! What may follow what in the life of a run's sandbox. Pure: state and event in, state and effects out.
//!
//! ```text
//!            claimed             started            ended · deadline · cancelled · output over
//!  Claiming ────────▶ Starting ─────────▶ Running ─────────────────────┐
//!     │ │                │ └───────────── deadline · cancelled ───────┐│
//!     │ │ stop asked     │                                            ▼▼
//!     │ │                │ refused       killed, and every      ┌─ Stopping ◀─┐
//!     │ │                │               output byte in hand    │    │ └───────┘ output · drained
//!     │ │                │                                      │    ▼
//!     │ │                │                 collected, one more ┌┼▶ Collecting
//!     │ │                │                                     └┼────┤ │
//!     │ │                │                                      │    │ │ collected, none left
//!     │ ▼                ▼                 fault · jail lost    ▼    ▼ ▼
//!     └▶Over◀────────────┴──────────────────────────────────── Over ◀──┘
//! ```
//!
//! The first reason to stop is the ending; only the kernel's count of memory kills can turn it into `oom`. An ending
//! is reported after the last process is dead and after every byte of output that was kept. Entering `Over` releases
//! the sandbox, exactly once, if there is one.

use bailey_protocol::jail::StopFacts;
use bailey_protocol::node::{Ending, LimitHit, NodeFault};

/// What the transitions need to know of the run; fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Indices of the mounts whose changes are collected, in order.
    pub writable: Vec<u32>,
    /// Bytes of output that are kept.
    pub output_bytes: u64,
}

/// Where a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waiting for a sandbox with its mounts in place.
    Claiming,
    /// The agent is told about the run and asked to start the program.
    Starting,
    /// The program runs.
    Running {
        /// Bytes of output kept so far.
        kept: u64,
    },
    /// Everything is being killed; what was written before is still read.
    Stopping(Stopping),
    /// Changes of a writable mount are being read.
    Collecting {
        /// Position in [`Plan::writable`].
        position: usize,
    },
    /// Reported; the sandbox is released.
    Over,
}

/// What is known while a sandbox is being stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopping {
    /// Why, unless the kernel says otherwise.
    ending: Ending,
    /// Bytes of output kept so far.
    kept: u64,
    /// Bytes of output seen and not kept.
    dropped: u64,
    /// What the kernel counted, once everything is dead.
    facts: Option<StopFacts>,
    /// Whether no more output can come.
    drained: bool,
}

/// Something that happened to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A sandbox was claimed.
    Claimed,
    /// The program runs.
    Started,
    /// The agent refused to start the program (not found, bad working folder).
    Refused(NodeFault),
    /// The program wrote this many bytes.
    Output(u64),
    /// The program is over, or the guest is lost: nothing more will be read from it.
    Ended(Ending),
    /// Nothing more can be read, for another reason than an end.
    Drained,
    /// A reason to stop from outside: the deadline, the caller, the node's shutdown.
    StopAsked(Ending),
    /// Every process is dead.
    Killed(StopFacts),
    /// The change stream of the mount at hand was passed on completely.
    Collected,
    /// A step failed in a way that ends the run without an ending.
    Fault(NodeFault),
    /// Nobody listens any more.
    Abandoned,
}

/// What the owner of the run has to do next, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell the agent about the run and start the program.
    Start,
    /// Report that the program runs.
    ReportStarted,
    /// Report this many bytes of the output at hand, from its front; the rest is dropped.
    Keep(u64),
    /// Kill everything in the sandbox.
    Kill,
    /// Report how the run ended.
    ReportStopped(Ended),
    /// Read the changes of the mount with this index and report them.
    Collect(u32),
    /// Report an empty change stream for the mount with this index: its program never ran.
    ReportUnchanged(u32),
    /// Report that all is told.
    ReportDone,
    /// Report that the run could not be carried out.
    ReportFailed(NodeFault),
    /// Let go of the sandbox; it is destroyed behind.
    Release,
}

/// The part of an ending that the transitions decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The one reason.
    pub ending: Ending,
    /// Limits that the code ran into.
    pub limits_hit: Vec<LimitHit>,
    /// Bytes written and not kept, as far as they were seen.
    pub output_dropped: u64,
    /// What the kernel counted.
    pub facts: StopFacts,
}

impl State {
    /// The state after `event`, and what has to be done. An event that means nothing in a state changes nothing.
    #[must_use]
    pub fn on(self, event: Event, plan: &Plan) -> (Self, Vec<Effect>) {
        match (self, event) {
            (Self::Over, _) => (Self::Over, Vec::new()),
            (_, Event::Abandoned) => (Self::Over, vec![Effect::Release]),
            (_, Event::Fault(fault)) => (Self::Over, vec![Effect::ReportFailed(fault), Effect::Release]),
            (Self::Claiming, event) => claiming(event, plan),
            (Self::Starting, event) => starting(event),
            (Self::Running { kept }, event) => running(kept, event, plan),
            (Self::Stopping(stopping), event) => stopping.on(event, plan),
            (Self::Collecting { position }, Event::Collected) => collect(position + 1, plan, Vec::new()),
            (state @ Self::Collecting { .. }, _) => (state, Vec::new()),
        }
    }

    /// Whether the guest's output is still wanted.
    #[must_use]
    pub fn listens(&self) -> bool {
        match self {
            Self::Running { .. } => true,
            Self::Stopping(stopping) => !stopping.drained,
            Self::Claiming | Self::Starting | Self::Collecting { .. } | Self::Over => false,
        }
    }

    /// Whether a deadline, a cancellation or a shutdown still changes something.
    #[must_use]
    pub fn stoppable(&self) -> bool {
        matches!(self, Self::Claiming | Self::Starting | Self::Running { .. })
    }
}

fn claiming(event: Event, plan: &Plan) -> (State, Vec<Effect>) {
    match event {
        Event::Claimed => (State::Starting, vec![Effect::Start]),
        Event::StopAsked(ending) => {
            let mut effects = vec![Effect::ReportStopped(ended(ending, 0, StopFacts::default()))];
            effects.extend(plan.writable.iter().copied().map(Effect::ReportUnchanged));
            effects.extend([Effect::ReportDone, Effect::Release]);
            (State::Over, effects)
        }
        _ => (State::Claiming, Vec::new()),
    }
}

fn starting(event: Event) -> (State, Vec<Effect>) {
    match event {
        Event::Started => (State::Running { kept: 0 }, vec![Effect::ReportStarted]),
        Event::Refused(fault) => (State::Over, vec![Effect::ReportFailed(fault), Effect::Release]),
        // No program ran, so no output is in flight.
        Event::StopAsked(ending) | Event::Ended(ending) => stop(ending, 0, 0, true),
        _ => (State::Starting, Vec::new()),
    }
}

fn running(kept: u64, event: Event, plan: &Plan) -> (State, Vec<Effect>) {
    match event {
        Event::Output(bytes) => {
            let room = plan.output_bytes.saturating_sub(kept);
            if bytes <= room {
                return (State::Running { kept: kept + bytes }, vec![Effect::Keep(bytes)]);
            }
            let (state, mut effects) = stop(Ending::OutputLimit, kept + room, bytes - room, true);
            effects.insert(0, Effect::Keep(room));
            (state, effects)
        }
        Event::Ended(ending) => stop(ending, kept, 0, true),
        Event::StopAsked(ending) => stop(ending, kept, 0, false),
        _ => (State::Running { kept }, Vec::new()),
    }
}

fn stop(ending: Ending, kept: u64, dropped: u64, drained: bool) -> (State, Vec<Effect>) {
    (State::Stopping(Stopping { ending, kept, dropped, facts: None, drained }), vec![Effect::Kill])
}

impl Stopping {
    fn on(mut self, event: Event, plan: &Plan) -> (State, Vec<Effect>) {
        let mut effects = Vec::new();
        match event {
            Event::Output(bytes) => {
                let room = if self.drained { 0 } else { plan.output_bytes.saturating_sub(self.kept).min(bytes) };
                self.kept += room;
                self.dropped = self.dropped.saturating_add(bytes - room);
                effects.push(Effect::Keep(room));
            }
            Event::Ended(_) | Event::Drained => self.drained = true,
            Event::Killed(facts) => self.facts = Some(facts),
            _ => {}
        }
        match self.facts {
            Some(facts) if self.drained => {
                effects.push(Effect::ReportStopped(ended(self.ending, self.dropped, facts)));
                collect(0, plan, effects)
            }
            _ => (State::Stopping(self), effects),
        }
    }
}

fn collect(position: usize, plan: &Plan, mut effects: Vec<Effect>) -> (State, Vec<Effect>) {
    if let Some(mount) = plan.writable.get(position) {
        effects.push(Effect::Collect(*mount));
        return (State::Collecting { position }, effects);
    }
    effects.extend([Effect::ReportDone, Effect::Release]);
    (State::Over, effects)
}

fn ended(ending: Ending, output_dropped: u64, facts: StopFacts) -> Ended {
    let ending = match ending {
        // A sandbox never goes on half dead: whichever process the kernel chose, memory is what ended the run.
        Ending::Exited { .. } | Ending::Signaled { .. } | Ending::GuestLost if facts.oom_kills > 0 => Ending::Oom,
        other => other,
    };
    let hits = [
        (facts.disk_full, LimitHit::Disk),
        (facts.files_full, LimitHit::Files),
        (facts.pids_refused > 0, LimitHit::Pids),
        (facts.oom_kills > 0, LimitHit::Memory),
        (ending == Ending::OutputLimit, LimitHit::Output),
        (ending == Ending::Timeout, LimitHit::Timeout),
    ];
    let limits_hit = hits.into_iter().filter(|(hit, _)| *hit).map(|(_, limit)| limit).collect();
    Ended { ending, limits_hit, output_dropped, facts }
}

#[cfg(test)]
mod tests;
