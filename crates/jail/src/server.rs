//! The supervised server: one process under a uid of its own, started again when it fails.
//!
//! ```text
//!            ┌──────────────── pause over ──────────────┐
//!            ▼                                          │
//!  start ─▶ Starting ── executed ──▶ Running ── ended ─▶ Waiting     ended with code 0, or at once: the jail ends
//!                                      │
//!                                      └── signal ──▶ Draining ── ended ──▶ Ended
//! ```
//!
//! Whenever it ends, its cages are destroyed before it is started again: nobody else knows what they are for.

pub(crate) mod enter;
pub(crate) mod root;

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::jail::{JailFault, ServerLaunch};
use bailey_sys::exec::StringVector;
use bailey_sys::process::Child;
use bailey_sys::seccomp::Program;
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::cage::userns;
use crate::fault::OrFault;
use crate::fleet::Fleet;
use crate::log;
use crate::poller::Source;
use crate::wire::Connection;

/// Connections that may wait for the server to accept them, while it is started again too.
const BACKLOG: i32 = 1024;
/// First and longest pause before a restart.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A server that ran this long was well: the pause begins anew.
const WELL: Duration = Duration::from_secs(30);
/// How long a server without its socket may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// A first server that ends with an error within this time will not do better the next time.
const STILLBORN: Duration = Duration::from_secs(5);

/// The server and what it is started with.
#[derive(Debug)]
pub(crate) struct Server {
    launch: ServerLaunch,
    listener: OwnedFd,
    layout: root::Layout,
    arguments: StringVector,
    environment: StringVector,
    filters: Vec<Program>,
    state: State,
    /// Failures in a row.
    failures: u32,
}

#[derive(Debug)]
enum State {
    Starting {
        child: Child,
        report: OwnedFd,
        since: Duration,
    },
    /// `leave_by`: it has closed its socket, and is killed then unless it has ended.
    Running {
        child: Child,
        since: Duration,
        leave_by: Option<Duration>,
    },
    Waiting {
        until: Duration,
    },
    Draining {
        child: Child,
        deadline: Duration,
    },
    Ended {
        code: u8,
    },
}

/// What the supervisor has to do after news of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing.
    None,
    /// It has ended: its connection and its cages must go.
    Ended,
}

impl Server {
    /// Binds the listener. The server is started by the first [`Server::tick`].
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) fn new(launch: ServerLaunch, layout: root::Layout, filters: Vec<Program>) -> Result<Self, JailFault> {
        let step = format!("listen on {}", launch.listen);
        let listener = OwnedFd::from(TcpListener::bind(launch.listen).or_invalid(&step)?);
        rustix::net::listen(&listener, BACKLOG).or_invalid(&step)?;
        let (arguments, environment) = enter::vectors(&launch).or_invalid("make the server's arguments")?;
        let state = State::Waiting { until: Duration::ZERO };
        Ok(Self { launch, listener, layout, arguments, environment, filters, state, failures: 0 })
    }

    /// When [`Server::tick`] wants to be called. While cages of its last life are left, their end is what it waits for.
    pub(crate) fn next_tick(&self, cages_left: bool) -> Option<Duration> {
        match self.state {
            State::Waiting { .. } if cages_left => None,
            State::Waiting { until } => Some(until),
            State::Draining { deadline, .. } => Some(deadline),
            State::Running { leave_by, .. } => leave_by,
            State::Starting { .. } | State::Ended { .. } => None,
        }
    }

    /// The exit code, once it has ended for good.
    pub(crate) fn ended(&self) -> Option<u8> {
        if let State::Ended { code } = self.state { Some(code) } else { None }
    }

    /// Starts it when its time has come and no cage of its last life is left; kills it when it drains too long.
    /// Returns the connection to a server that was started.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn tick(&mut self, fleet: &Fleet, now: Duration) -> Result<Option<Connection>, JailFault> {
        match &mut self.state {
            State::Waiting { until } if *until <= now && fleet.is_empty() => self.start(fleet, now).map(Some),
            State::Draining { child, deadline } if *deadline <= now => {
                log::warn("the server did not drain in time", &[]);
                pidfd_send_signal(&child.pidfd, Signal::KILL).ok();
                *deadline = Duration::MAX;
                Ok(None)
            }
            State::Running { child, leave_by, .. } if leave_by.is_some_and(|at| at <= now) => {
                log::warn("the server closed its socket and runs on", &[]);
                pidfd_send_signal(&child.pidfd, Signal::KILL).ok();
                *leave_by = None;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn start(&mut self, fleet: &Fleet, now: Duration) -> Result<Connection, JailFault> {
        let started = enter::start(self, fleet)?;
        bailey_crash::point(Point::ServerForked);
        let step = "watch the server";
        fleet.poller.add(&started.child.pidfd, Source::Server).or_internal(step)?;
        fleet.poller.add(&started.report, Source::ServerReport).or_internal(step)?;
        fleet.poller.add(&started.connection, Source::Node).or_internal(step)?;
        self.state = State::Starting { child: started.child, report: started.report, since: now };
        Ok(started.connection)
    }

    /// It was executed, or says why not. Descriptors of slices come from its mount namespace from now on.
    pub(crate) fn reported(&mut self, fleet: &mut Fleet) -> Result<(), JailFault> {
        let (child, report, since) = match std::mem::replace(&mut self.state, State::Ended { code: 1 }) {
            State::Starting { child, report, since } => (child, report, since),
            other => {
                self.state = other;
                return Ok(());
            }
        };
        fleet.poller.remove(&report);
        if was_not_executed(&report).or_internal("hear from the server")? {
            // Its end is news of its own.
        } else if let Ok(mounts) = userns::open_namespace(child.pid, "mnt") {
            // A server that has ended already has none; its end is news of its own.
            fleet.shop.node_mounts = mounts;
        }
        self.state = State::Running { child, since, leave_by: None };
        Ok(())
    }

    /// It ended.
    pub(crate) fn ended_by_itself(&mut self, fleet: &Fleet, now: Duration) -> News {
        let (child, since, draining) = match std::mem::replace(&mut self.state, State::Ended { code: 1 }) {
            State::Starting { child, since, report } => {
                fleet.poller.remove(&report);
                // Its end may be heard of before its reason is. Nobody writes any more, so that nothing is waited for.
                if let Err(errno) = was_not_executed(&report) {
                    log::warn("the server's reason cannot be read", &[("errno", &errno)]);
                }
                (child, since, false)
            }
            State::Running { child, since, .. } => (child, since, false),
            State::Draining { child, .. } => (child, now, true),
            other @ (State::Waiting { .. } | State::Ended { .. }) => {
                self.state = other;
                return News::None;
            }
        };
        let status = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
        fleet.poller.remove(&child.pidfd);
        let code = status.ok().flatten().and_then(|status| status.exit_status());
        let code = code.map(|code| u8::try_from(code).unwrap_or(1));
        self.state = self.after(code, draining, now.saturating_sub(since), now);
        let shown = code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
        log::info("the server ended", &[("by", &shown)]);
        News::Ended
    }

    /// What follows an end. An orderly one ends the jail; a server that dies at its very start is not tried again.
    fn after(&mut self, code: Option<u8>, draining: bool, lived: Duration, now: Duration) -> State {
        match code {
            Some(0) => return State::Ended { code: 0 },
            Some(code) if draining || (self.failures == 0 && lived < STILLBORN) => return State::Ended { code },
            None if draining => return State::Ended { code: 1 },
            Some(_) | None => {}
        }
        self.failures = if lived >= WELL { 1 } else { self.failures + 1 };
        State::Waiting { until: now + pause(self.failures) }
    }

    /// Asks it to finish; asked again, kills it.
    pub(crate) fn drain(&mut self, now: Duration) {
        match std::mem::replace(&mut self.state, State::Ended { code: 1 }) {
            State::Starting { child, .. } | State::Running { child, .. } => {
                pidfd_send_signal(&child.pidfd, Signal::TERM).ok();
                let deadline = now + Duration::from_millis(self.launch.drain_ms);
                self.state = State::Draining { child, deadline };
            }
            State::Draining { child, deadline } => {
                pidfd_send_signal(&child.pidfd, Signal::KILL).ok();
                self.state = State::Draining { child, deadline };
            }
            State::Waiting { .. } => self.state = State::Ended { code: 0 },
            ended @ State::Ended { .. } => self.state = ended,
        }
    }

    /// It has closed its socket, as any process does when it ends. One that goes on is killed soon; it is then
    /// started again like after any failure.
    pub(crate) fn left(&mut self, now: Duration) {
        if let State::Running { leave_by, .. } = &mut self.state {
            *leave_by = Some(now + GRACE);
        }
    }
}

/// How long to wait after this many failures in a row.
fn pause(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    PAUSES.0.saturating_mul(factor).min(PAUSES.1)
}

/// What [`enter::start`] made.
struct Started {
    child: Child,
    report: OwnedFd,
    connection: Connection,
}

/// Whether the report is of a server that could not be executed, which is logged with its reason.
fn was_not_executed(report: &OwnedFd) -> Result<bool, Errno> {
    let mut message = [0_u8; 256];
    let count = rustix::io::read(report, &mut message)?;
    if count == 0 {
        return Ok(false);
    }
    let reason = String::from_utf8_lossy(message.get(..count).unwrap_or(&[])).into_owned();
    log::warn("the server cannot be executed", &[("reason", &reason)]);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        assert_eq!(pause(1), Duration::from_millis(100));
        assert_eq!(pause(2), Duration::from_millis(200));
        assert_eq!(pause(8), Duration::from_secs(10));
        assert_eq!(pause(40), Duration::from_secs(10));
    }
}
