//! All cages of this jail, their names and their user ids.
//!
//! Requests come in by [`Fleet::handle`], what the kernel tells by [`Fleet::ready`], time by [`Fleet::tick`].
//! Answers wait in an outbox. Nothing here waits.

mod events;
mod making;
mod removal;
mod requests;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::jail::{JailAnswer, JailFault, JailFaultKind, JailReply};

use crate::cage::Cage;
use crate::cage::park::{Order, Workshop};
use crate::disks::{Disks, Making};
use crate::fault::{fault, invalid};
use crate::ledger::Ledger;
use crate::poller::Poller;
use crate::uids::chunk::{self, Chunk};
use crate::uids::{Base, Ranges};
use removal::Remains;

/// Most cages at one time, those that are being removed included.
const MAX_CAGES: usize = 1000;

/// What is mounted for cages to start from.
#[derive(Debug)]
pub(crate) struct Images {
    pub(crate) templates: BTreeSet<TemplateDigest>,
    /// With programs that isolate by themselves.
    pub(crate) programs: BTreeSet<TemplateDigest>,
}

/// All cages.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) shop: Workshop,
    pub(crate) poller: Poller,
    pub(crate) ledger: Ledger,
    pub(crate) images: Images,
    /// Where the host's jails share out uid chunks.
    pub(crate) uid_folder: OwnedFd,
    chunks: Vec<Chunk>,
    ranges: Ranges,
    cages: BTreeMap<u64, Cage>,
    /// Disks for cages that do not fit in memory.
    disks: Option<Disks>,
    /// Cages that wait for theirs.
    makings: BTreeMap<u64, (Order, Making)>,
    remains: BTreeMap<u64, Remains>,
    names: BTreeMap<SandboxId, u64>,
    last_serial: u64,
    /// When to look again at a cage that is slow to die.
    retries: BTreeSet<(Duration, u64)>,
    outbox: Vec<(JailReply, Vec<OwnedFd>)>,
}

impl Fleet {
    /// An empty fleet.
    pub(crate) fn new(
        shop: Workshop,
        poller: Poller,
        ledger: Ledger,
        images: Images,
        (uid_folder, disks): (OwnedFd, Option<Disks>),
    ) -> Self {
        Self {
            shop,
            poller,
            ledger,
            images,
            uid_folder,
            chunks: Vec::new(),
            ranges: Ranges::default(),
            cages: BTreeMap::new(),
            disks,
            makings: BTreeMap::new(),
            remains: BTreeMap::new(),
            names: BTreeMap::new(),
            last_serial: 0,
            retries: BTreeSet::new(),
            outbox: Vec::new(),
        }
    }

    /// Whether no cage is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Answers that wait to be sent.
    pub(crate) fn take_outbox(&mut self) -> Vec<(JailReply, Vec<OwnedFd>)> {
        std::mem::take(&mut self.outbox)
    }

    /// When [`Fleet::tick`] wants to be called.
    pub(crate) fn next_tick(&self) -> Option<Duration> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Makes sure that there is a uid chunk, so that a host without room refuses at the start.
    pub(crate) fn take_chunk(&mut self) -> Result<(), JailFault> {
        let before = self.ledger.chunk().filter(|number| self.chunks.iter().all(|chunk| chunk.number != *number));
        let taken = chunk::take(&self.uid_folder, &self.shop.tree.top, self.ledger.id(), before)?;
        bailey_crash::point(Point::UidsTaken);
        self.ledger.set_chunk(taken.number)?;
        self.ranges.add_chunk(taken.number);
        self.chunks.push(taken);
        Ok(())
    }

    fn take_range(&mut self, now: Duration) -> Result<Base, JailFault> {
        if let Some(base) = self.ranges.take(now) {
            return Ok(base);
        }
        self.take_chunk()?;
        let none = || fault(JailFaultKind::Exhausted, "take user ids", "all ranges are in use or resting");
        self.ranges.take(now).ok_or_else(none)
    }

    fn serial_of(&self, sandbox: &SandboxId) -> Result<u64, JailFault> {
        let serial = self.names.get(sandbox).copied();
        serial.ok_or_else(|| invalid("find the sandbox", format!("there is no {sandbox}")))
    }

    fn answer(&mut self, id: u64, result: Result<JailAnswer, JailFault>) {
        self.outbox.push((JailReply { id, result }, Vec::new()));
    }

    fn answer_all(&mut self, requests: Vec<u64>, result: &Result<JailAnswer, JailFault>) {
        for id in requests {
            self.answer(id, result.clone());
        }
    }
}
