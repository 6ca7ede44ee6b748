//! The loop: requests, the kernel's news, time, the end.

use std::os::fd::OwnedFd;
use std::time::Duration;

use bailey_protocol::jail::JailFault;

use crate::fault::OrFault;
use crate::fleet::Fleet;
use crate::poller::Source;
use crate::server::{News, Server};
use crate::sweep::Traces;
use crate::wire::{Connection, Received};
use crate::{clock, log};

/// Requests taken in one turn, so that a flood of them cannot keep the kernel's news waiting.
const PER_TURN: usize = 16;

/// How long cages may take to end when the jail does.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

/// Everything the loop owns.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) fleet: Fleet,
    pub(crate) signals: OwnedFd,
    /// The server; nothing when attached to a caller.
    pub(crate) server: Option<Server>,
    /// The node's socket, while there is a node.
    pub(crate) node: Option<Connection>,
    /// Removed at the end.
    pub(crate) traces: Traces,
    /// Messages that were no requests.
    pub(crate) garbage: u64,
    /// Set once everything is to end: until when, and with which code.
    pub(crate) ending: Option<(Duration, u8)>,
}

/// Runs until the caller leaves, the server ends for good or a signal ends the jail. Nothing is left afterwards.
///
/// # Errors
/// When the kernel refuses to wait, or the server cannot be started.
pub(crate) fn run(mut supervisor: Supervisor) -> Result<u8, JailFault> {
    let ended = turn(&mut supervisor);
    supervisor.traces.remove();
    ended
}

fn turn(supervisor: &mut Supervisor) -> Result<u8, JailFault> {
    loop {
        let now = clock::now();
        if let Some((deadline, code)) = supervisor.ending
            && (supervisor.fleet.is_empty() || now >= deadline)
        {
            return Ok(supervisor.leave(code));
        }
        let left = supervisor.next_tick().map(|at| at.saturating_sub(now));
        let sources = supervisor.fleet.poller.wait(left).or_internal("wait")?;
        let now = clock::now();
        for source in sources {
            supervisor.ready(source, now)?;
        }
        supervisor.fleet.tick(now);
        supervisor.tick_server(now)?;
        supervisor.send_answers(now);
    }
}

impl Supervisor {
    fn next_tick(&self) -> Option<Duration> {
        let server = self.server.as_ref().filter(|_| self.ending.is_none());
        let server = server.and_then(|server| server.next_tick(!self.fleet.is_empty()));
        let ending = self.ending.map(|(deadline, _)| deadline);
        self.fleet.next_tick().into_iter().chain(server).chain(ending).min()
    }

    fn ready(&mut self, source: Source, now: Duration) -> Result<(), JailFault> {
        match source {
            Source::Signals => self.signalled(now),
            Source::Node if !self.serve_node(now) => self.node_left(now),
            Source::Node => {}
            Source::Server => {
                let news = self.server.as_mut().map(|server| server.ended_by_itself(&self.fleet, now));
                if news == Some(News::Ended) {
                    self.close_node();
                    self.fleet.remove_all(now);
                }
            }
            Source::ServerReport => {
                if let Some(server) = &mut self.server {
                    server.reported(&mut self.fleet)?;
                    if self.node.is_none() {
                        server.left(now);
                    }
                }
            }
            cage => self.fleet.ready(cage, now),
        }
        Ok(())
    }

    /// Starts the server again when it is time; ends with it when it has ended for good.
    fn tick_server(&mut self, now: Duration) -> Result<(), JailFault> {
        let Some(server) = &mut self.server else { return Ok(()) };
        if self.ending.is_some() {
            return Ok(());
        }
        if let Some(code) = server.ended() {
            self.end(code, now);
            return Ok(());
        }
        if let Some(connection) = server.tick(&self.fleet, now)? {
            self.node = Some(connection);
        }
        Ok(())
    }

    fn signalled(&mut self, now: Duration) {
        let mut record = [0_u8; 128];
        if rustix::io::read(&self.signals, &mut record).is_err() {
            return;
        }
        match &mut self.server {
            Some(server) => server.drain(now),
            None => self.end(0, now),
        }
    }

    /// A caller that leaves ends the jail; a server without its socket is of no use.
    fn node_left(&mut self, now: Duration) {
        self.close_node();
        match &mut self.server {
            Some(server) => server.left(now),
            None => self.end(0, now),
        }
    }

    fn end(&mut self, code: u8, now: Duration) {
        if self.ending.is_none() {
            self.ending = Some((now + LAST_PATIENCE, code));
            self.close_node();
            self.fleet.remove_all(now);
        }
    }

    /// Takes requests; returns whether the node is still there.
    fn serve_node(&mut self, now: Duration) -> bool {
        for _ in 0..PER_TURN {
            let Some(node) = &self.node else { return true };
            match node.receive() {
                Ok(Received::Request(request, descriptors)) => self.fleet.handle(request, descriptors, now),
                Ok(Received::Garbage) => {
                    self.garbage += 1;
                    // A node that was taken over must not fill the log.
                    if self.garbage.is_power_of_two() {
                        log::warn("messages that are no requests", &[("count", &self.garbage)]);
                    }
                }
                Ok(Received::Nothing) => return true,
                Ok(Received::Closed) => return false,
                Err(errno) => {
                    log::warn("the node's socket failed", &[("error", &errno)]);
                    return false;
                }
            }
        }
        true
    }

    /// Sends what waits. A node that takes no answers is as good as gone.
    fn send_answers(&mut self, now: Duration) {
        let answers = self.fleet.take_outbox();
        let Some(node) = &mut self.node else { return };
        let was_congested = node.is_congested();
        let mut sent = node.flush();
        for (reply, descriptors) in answers {
            sent = sent.and_then(|()| node.send(&reply, descriptors));
        }
        let congested = node.is_congested();
        if congested != was_congested {
            sent = sent.and_then(|()| self.fleet.poller.want_room(&*node, Source::Node, congested));
        }
        if let Err(errno) = sent {
            log::warn("the node takes no answers", &[("error", &errno)]);
            self.node_left(now);
        }
    }

    fn close_node(&mut self) {
        if let Some(node) = self.node.take() {
            self.fleet.poller.remove(&node);
        }
    }

    /// The last things.
    fn leave(&self, code: u8) -> u8 {
        let whole = self.fleet.is_empty();
        if !whole {
            log::warn("cages are left; the next start removes them", &[]);
        }
        if whole { code } else { code.max(1) }
    }
}
