//! What the kernel tells about cages.

use std::time::Duration;

use bailey_crash::Point;
use bailey_protocol::jail::{JailAnswer, JailFault, JailFaultKind, JailReply, StopFacts};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::Fleet;
use crate::cage::program::Running;
use crate::cage::{Cage, Phase, collect, posture, userns};
use crate::cgroup::facts;
use crate::fault::{OrFault, fault};
use crate::log;
use crate::poller::Source;

/// Between two looks at a cgroup that should be empty by now.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl Fleet {
    /// Something can be read. Sources of cages that are gone are ignored.
    pub(crate) fn ready(&mut self, source: Source, now: Duration) {
        match source {
            Source::Report(serial) => self.finish_park(serial, now),
            Source::Init(serial) => self.init_ended(serial, now),
            Source::Memory(serial) => self.out_of_memory(serial, now),
            Source::Collector(serial) => self.collector_ended(serial, now),
            Source::Closer(serial) => self.disk_gone(serial, now),
            Source::Maker(serial) => self.disk_made(serial, now),
            Source::Signals | Source::Node | Source::Server | Source::ServerReport => {}
        }
    }

    /// Looks again at what was slow.
    pub(crate) fn tick(&mut self, now: Duration) {
        while let Some((at, serial)) = self.retries.first().copied().filter(|(at, _)| *at <= now) {
            self.retries.remove(&(at, serial));
            match self.cages.get(&serial).map(|cage| &cage.phase) {
                Some(Phase::Stopping { .. }) => self.finish_stop(serial, now),
                Some(Phase::Removing { .. }) => self.finish_kill(serial, now),
                Some(_) => {}
                None => self.remove_remains(serial, now),
            }
        }
    }

    /// PID 1 has executed the guest (the pair is closed), or says why it could not.
    fn finish_park(&mut self, serial: u64, now: Duration) {
        let Some(cage) = self.cages.get_mut(&serial) else { return };
        if !matches!(cage.phase, Phase::Building { .. }) {
            return;
        }
        let Phase::Building { request, report, stream } = std::mem::replace(&mut cage.phase, Phase::Parked) else {
            return;
        };
        self.poller.remove(&report);
        let mut message = [0_u8; 256];
        // A PID 1 that failed before it took the mounts has reset the pair; what it said comes after.
        let read = match rustix::io::read(&report, &mut message) {
            Err(Errno::CONNRESET) => rustix::io::read(&report, &mut message),
            other => other,
        };
        let verdict = match read {
            Ok(0) => check_posture(cage, self.ledger.id()),
            Ok(count) => Err(told(message.get(..count).unwrap_or(&[]))),
            Err(errno) => Err(errno).or_internal("hear from PID 1"),
        };
        let descriptors = verdict.and_then(|()| {
            let init = cage.init.as_ref().ok_or_else(|| fault(JailFaultKind::Internal, "park", "PID 1 ended"))?;
            let pidfd = rustix::io::fcntl_dupfd_cloexec(&init.pidfd, 3).or_internal("hand out the pidfd")?;
            Ok(stream.into_iter().chain([pidfd]).collect())
        });
        match descriptors {
            Ok(descriptors) => {
                bailey_crash::point(Point::CageVerified);
                let fences = posture::fences(cage);
                self.outbox.push((JailReply { id: request, result: Ok(JailAnswer::Parked { fences }) }, descriptors));
            }
            Err(fault) => {
                log::warn("park failed", &[("sandbox", &cage.sandbox), ("fault", &fault), ("words", &words(cage))]);
                self.answer(request, Err(fault));
                self.remove(serial, Vec::new(), now);
            }
        }
    }

    /// PID 1 ended, by our hand or its own; the kernel has killed all that were in its pid namespace.
    fn init_ended(&mut self, serial: u64, now: Duration) {
        let Some(cage) = self.cages.get_mut(&serial) else { return };
        let Some(init) = cage.init.take() else { return };
        match waitid(WaitId::PidFd(rustix::fd::AsFd::as_fd(&init.pidfd)), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
        {
            Ok(Some(_status)) => {}
            Ok(None) | Err(Errno::INTR) => {
                cage.init = Some(init);
                return;
            }
            // It was waited for elsewhere: as good.
            Err(_) => {}
        }
        self.poller.remove(&init.pidfd);
        match &cage.phase {
            // What PID 1 said before it ended is still in the pair.
            Phase::Building { .. } => self.finish_park(serial, now),
            Phase::Parked | Phase::Claimed => {
                log::info("PID 1 ended by itself", &[("sandbox", &cage.sandbox), ("words", &words(cage))]);
                self.begin_stop(serial, Vec::new(), now);
            }
            Phase::Stopping { .. } => self.finish_stop(serial, now),
            Phase::Removing { .. } => self.finish_kill(serial, now),
            Phase::Stopped { .. } => {}
        }
    }

    /// Kills everything in the cage; goes on when PID 1 has ended.
    pub(super) fn begin_stop(&mut self, serial: u64, requests: Vec<u64>, now: Duration) {
        let Some(cage) = self.cages.get_mut(&serial) else { return };
        cage.phase = Phase::Stopping { requests };
        kill(cage);
        bailey_crash::point(Point::CageKilled);
        if cage.init.is_none() {
            self.finish_stop(serial, now);
        }
    }

    fn finish_stop(&mut self, serial: u64, now: Duration) {
        let Some(cage) = self.cages.get_mut(&serial) else { return };
        if cage.init.is_some() {
            return;
        }
        if cage.group.is_populated().unwrap_or(true) {
            kill(cage);
            self.retries.insert((now + LOOK_AGAIN, serial));
            return;
        }
        // Nobody is left to see the mounts; the slices live on in their own descriptors.
        cage.parts.mounts = None;
        let counted = facts::read(&self.shop.tree, &cage.group).unwrap_or_else(|errno| {
            log::warn("counters are unreadable", &[("sandbox", &cage.sandbox), ("error", &errno)]);
            StopFacts::default()
        });
        let oom_kills = counted.oom_kills.max(u64::from(cage.ran_out_of_memory));
        let (disk_full, files_full) = cage.parts.disk.full();
        let facts = StopFacts { disk_full, files_full, oom_kills, ..counted };
        let Phase::Stopping { requests } = std::mem::replace(&mut cage.phase, Phase::Stopped { facts }) else {
            return;
        };
        bailey_crash::point(Point::CageStopped);
        self.answer_all(requests, &Ok(JailAnswer::Stopped { facts }));
    }

    /// On v1 the kernel kills one process; a cage that has lost one is not whole any more.
    fn out_of_memory(&mut self, serial: u64, now: Duration) {
        let Some(cage) = self.cages.get_mut(&serial) else { return };
        let Some(oom) = &cage.oom else { return };
        let mut count = [0_u8; 8];
        if rustix::io::read(oom, &mut count).is_err() {
            return;
        }
        match &cage.phase {
            Phase::Building { .. } | Phase::Parked | Phase::Claimed => {
                cage.ran_out_of_memory = true;
                log::info("out of memory", &[("sandbox", &cage.sandbox)]);
                kill(cage);
            }
            // Removing the group rings the alarm as well.
            Phase::Stopping { .. } | Phase::Stopped { .. } | Phase::Removing { .. } => {}
        }
        self.tick(now);
    }

    fn collector_ended(&mut self, serial: u64, now: Duration) {
        let Some(cage) = self.cages.get_mut(&serial) else { return };
        // Whatever is left of it is killed then.
        let removing = matches!(cage.phase, Phase::Removing { .. });
        let mut left = Vec::new();
        for (mount, child) in cage.collectors.drain(..) {
            let wait = WaitId::PidFd(rustix::fd::AsFd::as_fd(&child.pidfd));
            match waitid(wait, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
                Ok(None) | Err(Errno::INTR) => left.push((mount, child)),
                Ok(Some(status)) => {
                    bailey_crash::point(Point::CollectorReaped);
                    self.poller.remove(&child.pidfd);
                    if status.exit_status() != Some(0) && !removing {
                        let step = status.exit_status().and_then(collect::failed_step);
                        let code = status.exit_status().or(status.terminating_signal());
                        let what = step.map_or_else(|| format!("{code:?}"), str::to_owned);
                        log::warn("a collector failed", &[("sandbox", &cage.sandbox), ("status", &what)]);
                    }
                }
                Err(_) => self.poller.remove(&child.pidfd),
            }
        }
        cage.collectors = left;
        if removing {
            self.finish_kill(serial, now);
        }
    }
}

/// Kills all processes of a cage. PID 1 is killed through its group like any other.
pub(super) fn kill(cage: &Cage) {
    if let Err(errno) = cage.group.kill() {
        log::warn("kill failed", &[("sandbox", &cage.sandbox), ("error", &errno)]);
    }
}

/// What a program said before its end.
fn words(cage: &Cage) -> String {
    cage.program.as_ref().map(Running::last_words).unwrap_or_default()
}

/// Compares PID 1 with what it should be and opens what the claim needs.
fn check_posture(cage: &mut Cage, ledger: &str) -> Result<(), JailFault> {
    let ended = || fault(JailFaultKind::Internal, "look at PID 1", "it ended at once");
    let pid = cage.init.as_ref().ok_or_else(ended)?.pid;
    posture::verify(cage, pid, ledger)?;
    cage.parts.mounts = Some(userns::open_namespace(pid, "mnt").or_fence("open the cage's mount namespace")?);
    Ok(())
}

/// What PID 1 said before it ended: an errno and a step.
fn told(message: &[u8]) -> JailFault {
    let (number, step) = message.split_at_checked(4).unwrap_or((&[], message));
    let number = number.try_into().map_or(0, i32::from_le_bytes);
    fault(JailFaultKind::Fence, &String::from_utf8_lossy(step), Errno::from_raw_os_error(number))
}
