//! A cage's PID 1 from its first moment to its program: runs in a fork of the jail, inside the new namespaces.
//!
//! Makes system calls only. Each step has a name; the first that fails is reported with its errno, and the process
//! ends. Order matters: see the comments.

pub(crate) mod guest;
pub(crate) mod program;
pub(crate) mod root;

use std::convert::Infallible;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::jail::Profile;
use bailey_sys::{descriptors, namespace, signal};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid, UnshareFlags, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::facts::COVERED;
use crate::fault::{Failure, Step};
use crate::parent::die_with_the_jail;

/// Everything that PID 1 needs, made before the fork.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The child's end of the pair to the jail.
    pub(crate) jail: OwnedFd,
    /// Doors into the groups.
    pub(crate) doors: Vec<OwnedFd>,
    /// What it becomes.
    pub(crate) part: Part<'a>,
}

/// What PID 1 becomes.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    /// The guest, which starts programs in the cage.
    Guest(guest::Plan<'a>),
    /// A program that isolates by itself.
    Program(program::Plan<'a>),
}

impl Part<'_> {
    fn is_sentry(&self) -> bool {
        matches!(self, Self::Program(plan) if plan.profile == Profile::Sentry)
    }

    /// Its own descriptors.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (two, more) = match self {
            Self::Guest(plan) => ([&plan.stream, &plan.cgroup], &[][..]),
            Self::Program(plan) => ([&plan.null, &plan.words], plan.descriptors),
        };
        two.into_iter().chain(more).map(AsFd::as_fd)
    }
}

/// How a PID 1 ends that has not become what it should: with what the jail is still to be told.
type Ended = Result<Infallible, Option<Failure>>;

/// Becomes the guest or the program. Returns only when that fails, having told the jail.
pub(crate) fn enter(plan: &Plan<'_>) -> u8 {
    let Err(untold) = become_it(plan);
    if let Some(failure) = untold {
        report(plan.jail.as_fd(), failure);
    }
    1
}

fn become_it(plan: &Plan<'_>) -> Ended {
    // Other cages' descriptors first, and the jail's ends of ours: that they close tells of the jail's death.
    let kept = [plan.jail.as_fd()].into_iter().chain(plan.part.descriptors());
    let kept = kept.chain(plan.doors.iter().map(AsFd::as_fd));
    descriptors::close_all_but(3, kept).step("close the jail's descriptors")?;
    let mounts = receive_mounts(plan.jail.as_fd())?;
    for door in &plan.doors {
        rustix::io::write(door, b"0").map(drop).step("join the cgroups")?;
    }
    // After the groups were joined: they become the root of what the cage sees.
    namespace::unshare(UnshareFlags::NEWCGROUP).step("make a cgroup namespace")?;
    become_root(plan.jail.as_fd())?;
    match &plan.part {
        Part::Guest(_) => namespace::bring_up_loopback().step("bring up the loopback interface")?,
        // Not even that: it speaks by what it was handed.
        Part::Program(_) => {}
    }
    rustix::system::sethostname(b"sandbox").step("set the host name")?;
    root::build_root(&mounts, &plan.part)?;
    root::forbid_namespaces(&plan.part)?;
    root::enter_root(mounts.root.as_fd())?;
    limit_resources()?;
    match &plan.part {
        Part::Guest(own) => guest::start(own, plan.jail.as_fd()),
        Part::Program(own) => program::start(own, &mounts, plan.jail.as_fd()),
    }
}

/// Mounts that only the jail can make, and what goes with them.
pub(crate) const HANDED: usize = 3 + COVERED.len();
/// What a program has beside: itself, and its fence of paths.
pub(crate) const HANDED_TO_PROGRAM: usize = HANDED + 2;

/// They, as PID 1 receives them.
struct Mounts {
    root: OwnedFd,
    /// What can be written beside the root.
    scratch: OwnedFd,
    dev: OwnedFd,
    /// In the order of [`COVERED`].
    covers: [Option<OwnedFd>; COVERED.len()],
    /// The program's file.
    program: Option<OwnedFd>,
    /// A Landlock ruleset.
    paths: Option<OwnedFd>,
}

/// Waits for the user map, then for the mounts.
fn receive_mounts(jail: BorrowedFd<'_>) -> Result<Mounts, Failure> {
    let name = "receive the mounts";
    let mut byte = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED_TO_PROGRAM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(jail, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).step(name)?;
    if message.bytes != 1 {
        return Err((name, Errno::CONNRESET));
    }
    let mut mounts = [const { None }; HANDED_TO_PROGRAM];
    for entry in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = entry {
            for (slot, right) in mounts.iter_mut().zip(rights) {
                *slot = Some(right);
            }
        }
    }
    let [Some(root), Some(scratch), Some(dev), covers @ .., program, paths] = mounts else {
        return Err((name, Errno::BADMSG));
    };
    Ok(Mounts { root, scratch, dev, covers, program, paths })
}

/// Becomes uid 0 of the cage, in a session of its own, dying with the jail.
fn become_root(jail: BorrowedFd<'_>) -> Result<(), Failure> {
    rustix::process::setsid().map(drop).step("begin a session")?;
    set_thread_groups(&[]).step("drop the groups")?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).step("become gid 0")?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).step("become uid 0")?;
    die_with_the_jail(jail).step("die with the jail")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    signal::reset().step("reset the signals")
}

/// Ceilings for the whole cage; execs and programs get narrower ones.
fn limit_resources() -> Result<(), Failure> {
    const MIB: u64 = 1024 * 1024;
    let limits = [
        // One byte: no core file is that small, and no core handler of the host is started either.
        (Resource::Core, 1, 1),
        (Resource::Nofile, 1024, 1_048_576),
        (Resource::Memlock, 64 * 1024, 64 * 1024),
        (Resource::Stack, 8 * MIB, 64 * MIB),
        (Resource::Sigpending, 4096, 4096),
        (Resource::Msgqueue, 819_200, 819_200),
        (Resource::Nice, 0, 0),
        (Resource::Rtprio, 0, 0),
    ];
    for (resource, current, maximum) in limits {
        let ceiling = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(maximum);
        let limit = Rlimit { current: Some(ceiling.min(current)), maximum: Some(ceiling) };
        setrlimit(resource, limit).step("limit resources")?;
    }
    Ok(())
}

/// Gives up all capabilities but some, for good, and becomes another user while it still may.
fn keep_capabilities(
    kept: CapabilitySet,
    secure_bits: CapabilitiesSecureBits,
    change_user: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let name = "drop capabilities";
    for number in 0..64_u32 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // Past the last one of this kernel.
            Err(Errno::INVAL) if number > 37 => break,
            other => other.step(name)?,
        }
    }
    set_capabilities_secure_bits(secure_bits).step("lock the securebits")?;
    change_user()?;
    clear_ambient_capability_set().step(name)?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).step(name)
}

/// Tells the jail what failed. The jail may be gone: then nobody is left to tell.
fn report(jail: BorrowedFd<'_>, (step, errno): Failure) {
    let number = errno.raw_os_error().to_le_bytes();
    let parts = [IoSlice::new(&number), IoSlice::new(step.as_bytes())];
    sendmsg(jail, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL).ok();
}
