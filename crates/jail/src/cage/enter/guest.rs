//! The last steps of a PID 1 that becomes the guest: it stays uid 0 of the cage and may start programs under other users.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::guest::{AGENT_PATH, CGROUP_FD, STREAM_FD};
use bailey_sys::descriptors;
use bailey_sys::exec::{StringVector, execute};
use bailey_sys::seccomp::Program;
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet};

use super::{Ended, keep_capabilities, report};
use crate::fault::Step;

/// What PID 1 keeps, inside the cage's user namespace, so that it can start programs under other users.
pub(crate) const CAPABILITIES: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE);

const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::KEEP_CAPS_LOCKED
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// What the guest needs beside what every PID 1 does.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The guest's end of the agent's stream.
    pub(crate) stream: OwnedFd,
    /// The delegated cgroup folder.
    pub(crate) cgroup: OwnedFd,
    /// PID 1's own filters.
    pub(crate) filters: &'a [Program],
    /// Arguments of the guest.
    pub(crate) arguments: &'a StringVector,
    /// Its empty environment.
    pub(crate) environment: &'a StringVector,
}

/// Arranges the descriptors, installs the filters and executes the guest.
pub(super) fn start(plan: &Plan<'_>, jail: BorrowedFd<'_>) -> Ended {
    keep_capabilities(CAPABILITIES, SECURE_BITS, || Ok(()))?;
    let name = "arrange the descriptors";
    let agent = open(AGENT_PATH, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).step(name)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).step(name)?;
    // First out of the way of the low numbers, then down to them.
    let high = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 64).step(name);
    let [null, stream, cgroup] = [high(null.as_fd())?, high(plan.stream.as_fd())?, high(plan.cgroup.as_fd())?];
    let [jail, agent] = [high(jail)?, high(agent.as_fd())?];
    for number in 0..3 {
        descriptors::place(null.as_fd(), number).step(name)?;
    }
    descriptors::place(stream.as_fd(), STREAM_FD).step(name)?;
    descriptors::place(cgroup.as_fd(), CGROUP_FD).step(name)?;
    descriptors::close_all_but(CGROUP_FD.cast_unsigned() + 1, [jail.as_fd(), agent.as_fd()]).step(name)?;
    // From here on only what the filters allow. The two descriptors above vanish with a successful exec.
    let failure = match bailey_sys::seccomp::install(plan.filters).step("install the filters") {
        Ok(()) => ("execute the guest", execute(agent.as_fd(), plan.arguments, plan.environment)),
        Err(failure) => failure,
    };
    // Every other descriptor is closed, so nothing may be dropped any more.
    std::mem::forget((null, stream, cgroup));
    report(jail.as_fd(), failure);
    Err(None)
}
