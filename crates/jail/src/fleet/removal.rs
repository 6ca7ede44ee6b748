//! Removing cages: kill, wait, let go of the file systems, remove the groups, rest the user ids.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::id::SandboxId;
use bailey_protocol::jail::{JailAnswer, JailFaultKind};
use bailey_sys::descriptors;
use bailey_sys::process::{Child, spawn};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::UnshareFlags;

use super::Fleet;
use super::events::kill;
use crate::cage::disk::Disk;
use crate::cage::userns::reap;
use crate::cage::{Cage, Phase};
use crate::cgroup::group::Group;
use crate::disks::{self, Disks};
use crate::fault::fault;
use crate::log;
use crate::poller::Source;
use crate::uids::Base;

/// Tries to remove a group that the kernel calls busy; the pauses between them double from 1 ms.
const MAX_TRIES: u32 = 12;

/// What is left of a cage whose processes and file systems are gone.
#[derive(Debug)]
pub(super) struct Remains {
    sandbox: SandboxId,
    group: Group,
    base: Base,
    /// `Destroy` requests to answer.
    pub(super) requests: Vec<u64>,
    tries: u32,
    /// Lets the disk go; the groups are removed after it.
    closer: Option<Child>,
    /// Whether that was a large disk, and what takes its place.
    large: Option<Option<OwnedFd>>,
}

/// Starts a process that frees a disk with much in it by being its last holder: freeing takes milliseconds, in which
/// no other cage could be served. It waits until the pipe's end that comes with it is closed. Then the next image, if
/// there is one, gets its blocks. Nothing if the disk is freed fast, or no process can be had: then it is freed here.
fn start_closer(disk: &Disk, next: Option<(&OwnedFd, u64)>) -> Option<(Child, OwnedFd)> {
    if !disk.is_slow_to_free() {
        return None;
    }
    let (hold, held) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    let child = spawn(UnshareFlags::empty(), || {
        let next_image = next.map(|(image, _)| image.as_fd());
        let kept = [disk.as_fd(), hold.as_fd()].into_iter().chain(next_image);
        if descriptors::close_all_but(3, kept).is_ok() {
            rustix::io::read(&hold, &mut [0_u8; 1]).ok();
        }
        if disk.is_on_image() {
            // Nobody will read what has not been written out.
            disk.shut_down().ok();
        }
        if descriptors::close_all_but(3, next_image).is_ok()
            && let Some((image, bytes)) = next
        {
            // A host without room is told when the image is taken.
            disks::fill(image, bytes).ok();
        }
        0
    });
    Some((child.ok()?, held))
}

impl Fleet {
    /// Kills every cage and removes it.
    pub(crate) fn remove_all(&mut self, now: Duration) {
        self.give_up_makings(now);
        let serials: Vec<u64> = self.cages.keys().copied().collect();
        for serial in serials {
            let removing = self.cages.get(&serial).is_some_and(|cage| matches!(cage.phase, Phase::Removing { .. }));
            if !removing {
                self.remove(serial, Vec::new(), now);
            }
        }
    }

    /// Begins to remove a cage in any phase. Requests that wait for something else are told.
    pub(super) fn remove(&mut self, serial: u64, requests: Vec<u64>, now: Duration) {
        let Some(cage) = self.cages.get_mut(&serial) else { return };
        let gone = || fault(JailFaultKind::Invalid, "wait for the cage", "it was destroyed meanwhile");
        let before = std::mem::replace(&mut cage.phase, Phase::Removing { requests });
        kill(cage);
        bailey_crash::point(Point::CageRemoving);
        match before {
            Phase::Building { request, report, .. } => {
                self.poller.remove(&report);
                self.answer(request, Err(gone()));
            }
            Phase::Stopping { requests } => self.answer_all(requests, &Err(gone())),
            Phase::Parked | Phase::Claimed | Phase::Stopped { .. } | Phase::Removing { .. } => {}
        }
        self.finish_kill(serial, now);
    }

    /// Goes on when every child has been waited for.
    pub(super) fn finish_kill(&mut self, serial: u64, now: Duration) {
        let busy = self.cages.get(&serial).is_none_or(Cage::has_children);
        if busy {
            return;
        }
        let Some(cage) = self.cages.remove(&serial) else { return };
        let Cage { sandbox, phase, share, base, group, oom, parts, .. } = cage;
        if let Some(Err(fault)) = share.map(|share| self.divide(&share)) {
            // Those that are left have less than they could, and nobody has more.
            log::warn("a share was not divided anew", &[("sandbox", &sandbox), ("fault", &fault)]);
        }
        if let Some(oom) = &oom {
            self.poller.remove(oom);
        }
        // Before the groups: memory that a file system holds would keep its group alive.
        let large = match &self.disks {
            Some(disks) if parts.disk.is_on_image() => Some(disks.blank().ok()),
            _ => None,
        };
        let bytes = self.disks.as_ref().map_or(0, Disks::image_bytes);
        let next = large.as_ref().and_then(Option::as_ref).map(|image| (image, bytes));
        let (mut closer, held) = start_closer(&parts.disk, next).unzip();
        drop(parts);
        drop(held);
        bailey_crash::point(Point::DiskGone);
        if let Some(child) = &closer
            && self.poller.add(&child.pidfd, Source::Closer(serial)).is_err()
        {
            reap(child);
            closer = None;
        }
        let Phase::Removing { requests } = phase else { return };
        let busy = closer.is_some();
        self.remains.insert(serial, Remains { sandbox, group, base, requests, tries: 0, closer, large });
        if !busy {
            self.remove_remains(serial, now);
        }
    }

    /// The disk is freed.
    pub(super) fn disk_gone(&mut self, serial: u64, now: Duration) {
        let Some(child) = self.remains.get_mut(&serial).and_then(|remains| remains.closer.take()) else { return };
        self.poller.remove(&child.pidfd);
        reap(&child);
        self.remove_remains(serial, now);
    }

    /// Removes the groups, or tries again later.
    pub(super) fn remove_remains(&mut self, serial: u64, now: Duration) {
        let Some(remains) = self.remains.get_mut(&serial) else { return };
        if let (Some(disks), Some(image)) = (&mut self.disks, remains.large.take()) {
            disks.give_back(image);
        }
        let removed = remains.group.remove(&self.shop.tree);
        if removed == Err(Errno::BUSY) && remains.tries < MAX_TRIES {
            // E.g. the last process has ended but is not accounted for yet. Killing again costs nothing.
            remains.group.kill().ok();
            self.retries.insert((now + Duration::from_millis(1 << remains.tries), serial));
            remains.tries += 1;
            return;
        }
        bailey_crash::point(Point::GroupsGone);
        let Some(remains) = self.remains.remove(&serial) else { return };
        self.names.remove(&remains.sandbox);
        let result = match removed {
            Ok(()) => {
                self.ranges.give_back(remains.base, now);
                Ok(JailAnswer::Destroyed {})
            }
            Err(errno) => {
                // The range is never used again in this life: nothing proves that it is dead.
                log::warn("a cgroup cannot be removed", &[("sandbox", &remains.sandbox), ("error", &errno)]);
                Err(fault(JailFaultKind::Internal, "remove the cgroups", errno))
            }
        };
        self.answer_all(remains.requests, &result);
    }
}
