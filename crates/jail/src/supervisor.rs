//! The loop: requests, the kernel's news, time, the end.

use std::os::fd::OwnedFd;
use std::time::Duration;

use bailey_protocol::jail::JailFault;

use crate::fault::OrFault;
use crate::fleet::Fleet;
use crate::poller::Source;
use crate::wire::{Connection, Received};
use crate::{clock, log, start, sweep};

/// Requests taken in one turn, so that a flood of them cannot keep the kernel's news waiting.
const PER_TURN: usize = 16;

/// How long cages may take to end when the jail does.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

/// Everything the loop owns.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) fleet: Fleet,
    pub(crate) signals: OwnedFd,
    /// The node's socket, while there is a node.
    pub(crate) node: Option<Connection>,
    /// `/run/bailey`.
    pub(crate) shared: OwnedFd,
}

/// Runs until the caller leaves or a signal ends the jail. Nothing is left afterwards.
///
/// # Errors
/// When the kernel refuses to wait.
pub(crate) fn run(mut supervisor: Supervisor) -> Result<u8, JailFault> {
    let mut ending: Option<Duration> = None;
    loop {
        let now = clock::now();
        if ending.is_some_and(|deadline| supervisor.fleet.is_empty() || now >= deadline) {
            break;
        }
        let next = supervisor.fleet.next_tick().into_iter().chain(ending).min();
        let sources = supervisor.fleet.poller.wait(next.map(|at| at.saturating_sub(now))).or_internal("wait")?;
        let now = clock::now();
        supervisor.fleet.tick(now);
        for source in sources {
            let leave = match source {
                Source::Signals => true,
                Source::Node => !supervisor.serve_node(now),
                other => {
                    supervisor.fleet.ready(other, now);
                    false
                }
            };
            if leave && ending.is_none() {
                ending = Some(now + LAST_PATIENCE);
                supervisor.close_node();
                supervisor.fleet.poller.remove(&supervisor.signals);
                supervisor.fleet.remove_all(now);
            }
        }
        if !supervisor.send_answers() && ending.is_none() {
            ending = Some(now + LAST_PATIENCE);
            supervisor.close_node();
            supervisor.fleet.remove_all(now);
        }
    }
    Ok(supervisor.leave())
}

impl Supervisor {
    /// Takes requests; returns whether the node is still there.
    fn serve_node(&mut self, now: Duration) -> bool {
        for _ in 0..PER_TURN {
            let Some(node) = &self.node else { return true };
            match node.receive() {
                Ok(Received::Request(request, descriptors)) => self.fleet.handle(request, descriptors, now),
                Ok(Received::Garbage) => log::warn("a message that is no request", &[]),
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

    /// Sends what waits; returns whether the node still takes answers.
    fn send_answers(&mut self) -> bool {
        let answers = self.fleet.take_outbox();
        let Some(node) = &mut self.node else { return true };
        let was_congested = node.is_congested();
        let mut sent = node.flush();
        for (reply, descriptors) in answers {
            sent = sent.and_then(|()| node.send(&reply, descriptors));
        }
        if let Err(errno) = sent {
            log::warn("the node takes no answers", &[("error", &errno)]);
            return false;
        }
        let congested = node.is_congested();
        if congested != was_congested {
            return self.fleet.poller.want_room(node, Source::Node, congested).is_ok();
        }
        true
    }

    fn close_node(&mut self) {
        if let Some(node) = self.node.take() {
            self.fleet.poller.remove(&node);
        }
    }

    /// The last things.
    fn leave(self) -> u8 {
        let whole = self.fleet.is_empty();
        if !whole {
            log::warn("cages are left; the next start removes them", &[]);
        }
        match start::lock(&self.shared) {
            Ok(_lock) => sweep::leave(&self.fleet.shop.tree, self.fleet.ledger.id()),
            Err(errno) => log::warn("cgroups stay", &[("error", &errno)]),
        }
        u8::from(!whole)
    }
}
