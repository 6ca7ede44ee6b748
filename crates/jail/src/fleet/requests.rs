//! What the node asks for. It is not trusted: every field is checked, every state too.

use std::os::fd::OwnedFd;
use std::time::Duration;

use bailey_protocol::id::{SandboxId, ShareTag, TemplateDigest};
use bailey_protocol::jail::{CageMount, JailAnswer, JailFault, JailFaultKind, JailOp, JailRequest, StopFacts};
use bailey_protocol::limits::Limits;

use super::{Fleet, MAX_CAGES};
use crate::cage::park::{Order, What, park};
use crate::cage::program::Program;
use crate::cage::{Phase, claim, collect};
use crate::cgroup::facts;
use crate::disks::Disks;
use crate::fault::{OrFault, fault, invalid};
use crate::log;
use crate::poller::Source;

/// What any sandbox may have at most, whatever the node asks for.
const CEILING: Limits = Limits {
    cpu_millis: 1_024_000,
    memory_bytes: 1 << 44,
    pids: 65_536,
    disk_bytes: 1 << 44,
    disk_inodes: 1 << 32,
    open_files: 1 << 20,
    timeout_ms: u64::MAX,
    output_bytes: u64::MAX,
};

/// Requests of one kind that may wait for the same cage.
const MAX_WAITING: usize = 16;

impl Fleet {
    /// Carries out a request, or starts to.
    pub(crate) fn handle(&mut self, request: JailRequest, descriptors: Vec<OwnedFd>, now: Duration) {
        let JailRequest { id, op } = request;
        let done = match op {
            JailOp::Park { sandbox, template, limits } => {
                no_descriptors(&descriptors).and_then(|()| self.park(id, sandbox, template, limits, now))
            }
            JailOp::Launch { sandbox, image, profile, command, limits } => {
                Program::check((image, profile), command, descriptors)
                    .and_then(|program| self.launch(id, sandbox, program, limits, now))
            }
            JailOp::Claim { sandbox, share, limits, mounts } => {
                self.claim(id, &sandbox, share, (&limits, &mounts, &descriptors), now)
            }
            JailOp::Stop { sandbox } => no_descriptors(&descriptors).and_then(|()| self.stop(id, &sandbox, now)),
            JailOp::Count { sandbox } => no_descriptors(&descriptors).and_then(|()| self.count(id, &sandbox)),
            JailOp::Collect { sandbox, mount } => {
                no_descriptors(&descriptors).and_then(|()| self.collect(id, &sandbox, mount))
            }
            JailOp::Destroy { sandbox } => no_descriptors(&descriptors).and_then(|()| self.destroy(id, &sandbox, now)),
        };
        if let Err(fault) = done {
            self.answer(id, Err(fault));
        }
    }

    fn park(
        &mut self,
        request: u64,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
        now: Duration,
    ) -> Result<(), JailFault> {
        if !self.images.templates.contains(&template) {
            return Err(invalid("check the request", format!("there is no template {template}")));
        }
        self.begin(request, sandbox, What::Guest(template), limits, now)
    }

    fn launch(
        &mut self,
        request: u64,
        sandbox: SandboxId,
        program: Program,
        limits: Limits,
        now: Duration,
    ) -> Result<(), JailFault> {
        let step = "check the request";
        if !self.images.programs.contains(&program.image) {
            return Err(invalid(step, format!("there is no image {}", program.image)));
        }
        if limits.wants_large_disk() {
            return Err(invalid(step, "a program's disk must fit in its memory"));
        }
        self.begin(request, sandbox, What::Program(Box::new(program)), limits, now)
    }

    /// Begins to build a cage.
    fn begin(
        &mut self,
        request: u64,
        sandbox: SandboxId,
        what: What,
        limits: Limits,
        now: Duration,
    ) -> Result<(), JailFault> {
        let step = "check the request";
        if self.names.contains_key(&sandbox) {
            return Err(invalid(step, format!("{sandbox} exists")));
        }
        limits.check(&CEILING, self.disks.as_ref().map(Disks::offer)).or_invalid(step)?;
        if self.names.len() >= MAX_CAGES {
            return Err(fault(JailFaultKind::Exhausted, step, format!("there are {MAX_CAGES} cages")));
        }
        let base = self.take_range(now)?;
        self.last_serial += 1;
        let serial = self.last_serial;
        let order = Order { request, sandbox: sandbox.clone(), what, limits, base };
        self.names.insert(sandbox.clone(), serial);
        let begun = if limits.wants_large_disk() {
            self.make_disk(serial, order)
        } else {
            self.build(serial, order, None, now)
        };
        begun.inspect_err(|_fault| {
            self.names.remove(&sandbox);
            // A failed park has reaped its only process, so the range is as dead as after any other cage.
            self.ranges.give_back(base, now);
        })
    }

    /// Builds a cage and watches it.
    pub(super) fn build(
        &mut self,
        serial: u64,
        order: Order,
        large: Option<OwnedFd>,
        now: Duration,
    ) -> Result<(), JailFault> {
        let cage = park(&self.shop, order, large)?;
        let watched = self.watch(serial, &cage);
        self.cages.insert(serial, cage);
        if let Err(errno) = watched {
            log::warn("a cage cannot be watched", &[("error", &errno)]);
            // Answers the request as well.
            self.remove(serial, Vec::new(), now);
        }
        Ok(())
    }

    fn watch(&self, serial: u64, cage: &crate::cage::Cage) -> Result<(), rustix::io::Errno> {
        if let Some(init) = &cage.init {
            self.poller.add(&init.pidfd, Source::Init(serial))?;
        }
        if let Some(oom) = &cage.oom {
            self.poller.add(oom, Source::Memory(serial))?;
        }
        if let Phase::Building { report, .. } = &cage.phase {
            self.poller.add(report, Source::Report(serial))?;
        }
        Ok(())
    }

    fn claim(
        &mut self,
        request: u64,
        sandbox: &SandboxId,
        share: ShareTag,
        (limits, mounts, lowers): (&Limits, &[CageMount], &[OwnedFd]),
        now: Duration,
    ) -> Result<(), JailFault> {
        let serial = self.serial_of(sandbox)?;
        let step = "check the request";
        limits.check(&CEILING, self.disks.as_ref().map(Disks::offer)).or_invalid(step)?;
        claim::check(mounts, lowers, &self.shop)?;
        let others = self.cages.values().map(|cage| cage.processors.as_slice());
        let processors = self.shop.machine.share(limits, serial, others);
        let Some(cage) = self.cages.get_mut(&serial) else {
            return Err(invalid(step, format!("{sandbox} is being removed")));
        };
        if !matches!(cage.phase, Phase::Parked) {
            return Err(invalid(step, format!("{sandbox} is not parked")));
        }
        if cage.program.is_some() && !mounts.is_empty() {
            return Err(invalid(step, format!("nothing can be mounted for the program of {sandbox}")));
        }
        if !cage.parts.disk.can_become(limits) {
            return Err(invalid(step, format!("the disk of {sandbox} cannot become {} bytes", limits.disk_bytes)));
        }
        cage.processors = processors;
        cage.share = Some(share.clone());
        let claimed = claim::claim(&self.shop, cage, limits, mounts, lowers).and_then(|()| self.divide(&share));
        if claimed.is_err() {
            self.remove(serial, Vec::new(), now);
        }
        claimed.map(|()| self.answer(request, Ok(JailAnswer::Claimed {})))
    }

    fn stop(&mut self, request: u64, sandbox: &SandboxId, now: Duration) -> Result<(), JailFault> {
        let serial = self.serial_of(sandbox)?;
        let step = "check the request";
        let Some(cage) = self.cages.get_mut(&serial) else {
            return Err(invalid(step, format!("{sandbox} is being removed")));
        };
        match &mut cage.phase {
            Phase::Building { .. } => return Err(invalid(step, format!("{sandbox} is not parked yet"))),
            Phase::Removing { .. } => return Err(invalid(step, format!("{sandbox} is being removed"))),
            Phase::Stopped { facts } => {
                let facts = *facts;
                self.answer(request, Ok(JailAnswer::Stopped { facts }));
            }
            Phase::Stopping { requests } if requests.len() < MAX_WAITING => requests.push(request),
            Phase::Stopping { .. } => return Err(invalid(step, "too many requests wait for it")),
            Phase::Parked | Phase::Claimed => self.begin_stop(serial, vec![request], now),
        }
        Ok(())
    }

    fn count(&mut self, request: u64, sandbox: &SandboxId) -> Result<(), JailFault> {
        let serial = self.serial_of(sandbox)?;
        let cage = self.cages.get(&serial).filter(|cage| matches!(cage.phase, Phase::Claimed));
        let cage = cage.ok_or_else(|| invalid("check the request", format!("{sandbox} is not claimed")))?;
        let counted = facts::read(&self.shop.tree, &cage.group).or_internal("read the counters")?;
        let oom_kills = counted.oom_kills.max(u64::from(cage.ran_out_of_memory));
        self.answer(request, Ok(JailAnswer::Counted { facts: StopFacts { oom_kills, ..counted } }));
        Ok(())
    }

    fn collect(&mut self, request: u64, sandbox: &SandboxId, mount: u32) -> Result<(), JailFault> {
        let serial = self.serial_of(sandbox)?;
        let step = "check the request";
        let Some(cage) = self.cages.get_mut(&serial) else {
            return Err(invalid(step, format!("{sandbox} is being removed")));
        };
        if !matches!(cage.phase, Phase::Stopped { .. }) {
            return Err(invalid(step, format!("{sandbox} is not stopped")));
        }
        let Some((child, output)) = collect::start(&self.shop, cage, mount)? else {
            self.answer(request, Ok(JailAnswer::Unchanged {}));
            return Ok(());
        };
        let watched = self.poller.add(&child.pidfd, Source::Collector(serial));
        cage.collectors.push((usize::try_from(mount).unwrap_or(usize::MAX), child));
        watched.or_internal("watch the collector")?;
        let reply = bailey_protocol::jail::JailReply { id: request, result: Ok(JailAnswer::Collecting {}) };
        self.outbox.push((reply, vec![output]));
        Ok(())
    }

    fn destroy(&mut self, request: u64, sandbox: &SandboxId, now: Duration) -> Result<(), JailFault> {
        let serial = self.serial_of(sandbox)?;
        if self.makings.contains_key(&serial) {
            return Err(invalid("check the request", format!("{sandbox} is not parked yet")));
        }
        let too_many = || Err(invalid("check the request", "too many requests wait for it"));
        if let Some(remains) = self.remains.get_mut(&serial) {
            if remains.requests.len() >= MAX_WAITING {
                return too_many();
            }
            remains.requests.push(request);
            return Ok(());
        }
        if let Some(Phase::Removing { requests }) = self.cages.get_mut(&serial).map(|cage| &mut cage.phase) {
            if requests.len() >= MAX_WAITING {
                return too_many();
            }
            requests.push(request);
            return Ok(());
        }
        self.remove(serial, vec![request], now);
        Ok(())
    }
}

/// Only `Claim` and `Launch` bring descriptors.
fn no_descriptors(descriptors: &[OwnedFd]) -> Result<(), JailFault> {
    if descriptors.is_empty() { Ok(()) } else { Err(invalid("check the request", "it came with descriptors")) }
}
