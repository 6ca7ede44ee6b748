//! Cages that wait for a large disk. Nothing else of them is there yet, so only the request can be told.

use std::time::Duration;

use bailey_protocol::jail::{JailFault, JailFaultKind};
use rustix::io::Errno;

use super::Fleet;
use crate::cage::park::Order;
use crate::cage::userns;
use crate::fault::{OrFault, fault};
use crate::log;
use crate::poller::Source;

impl Fleet {
    /// Starts to make the disk of a cage.
    pub(super) fn make_disk(&mut self, serial: u64, order: Order) -> Result<(), JailFault> {
        let step = "make a large disk";
        let none = || fault(JailFaultKind::Invalid, step, "there are none");
        let disks = self.disks.as_mut().ok_or_else(none)?;
        let making = disks.start(&order.limits)?;
        if let Err(errno) = self.poller.add(&making.child.pidfd, Source::Maker(serial)) {
            userns::end(&making.child);
            disks.give_back(None);
            return Err(errno).or_internal(step);
        }
        self.makings.insert(serial, (order, making));
        Ok(())
    }

    /// The disk is made: the cage is built on it.
    pub(super) fn disk_made(&mut self, serial: u64, now: Duration) {
        let Some((order, making)) = self.makings.remove(&serial) else { return };
        let mount = match making.finish(false) {
            Err(Errno::AGAIN) => {
                self.makings.insert(serial, (order, making));
                return;
            }
            Err(Errno::NOSPC) => Err(fault(JailFaultKind::Exhausted, "make a large disk", "the host's disk is full")),
            other => other.or_fence("make a large disk"),
        };
        self.poller.remove(&making.child.pidfd);
        let (request, sandbox, base) = (order.request, order.sandbox.clone(), order.base);
        if let Err(fault) = mount.and_then(|mount| self.build(serial, order, Some(mount), now)) {
            log::warn("no cage on a large disk", &[("sandbox", &sandbox), ("fault", &fault)]);
            self.forget(&sandbox, base, now);
            self.answer(request, Err(fault));
        }
    }

    /// Ends the making of disks for whom nobody waits any more.
    pub(super) fn give_up_makings(&mut self, now: Duration) {
        for (order, making) in std::mem::take(&mut self.makings).into_values() {
            self.poller.remove(&making.child.pidfd);
            userns::end(&making.child);
            self.forget(&order.sandbox, order.base, now);
            self.answer(order.request, Err(fault(JailFaultKind::Invalid, "wait for the cage", "it was given up")));
        }
    }

    /// Of a cage that never was.
    fn forget(&mut self, sandbox: &bailey_protocol::id::SandboxId, base: crate::uids::Base, now: Duration) {
        self.names.remove(sandbox);
        self.ranges.give_back(base, now);
        if let Some(disks) = &mut self.disks {
            disks.give_back(None);
        }
    }
}
