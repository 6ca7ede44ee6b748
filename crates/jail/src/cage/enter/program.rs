//! The last steps of a PID 1 that becomes a program which isolates by itself: it has no right in the cage but to run.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bailey_protocol::jail::Profile;
use bailey_protocol::limits::MAX_PROGRAM_FDS;
use bailey_sys::exec::{StringVector, execute};
use bailey_sys::seccomp::Program;
use bailey_sys::{descriptors, landlock};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, Gid, Uid, set_thread_res_gid, set_thread_res_uid};

use super::{Ended, Mounts, keep_capabilities, report};
use crate::cage::program::{EXEC_FD, FIRST_FD};
use crate::cage::userns::USER;
use crate::fault::{Failure, Step};
use crate::parent::die_with_the_jail;

/// Uid 0 is nobody special, a change of user gives and takes nothing, and none of that can be changed any more.
const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// What a program needs beside what every PID 1 does.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) profile: Profile,
    /// The standard input and output of a machine monitor; those of a kernel in user space are the first descriptor.
    pub(crate) null: OwnedFd,
    /// Its standard error.
    pub(crate) words: OwnedFd,
    /// What it finds from [`FIRST_FD`] on.
    pub(crate) descriptors: &'a [OwnedFd],
    /// How many files it may have open.
    pub(crate) open_files: u64,
    /// Its filters.
    pub(crate) filters: &'a [Program],
    /// Its arguments.
    pub(crate) arguments: &'a StringVector,
    /// Its empty environment.
    pub(crate) environment: &'a StringVector,
}

/// Gives up everything and executes the program.
pub(super) fn start(plan: &Plan<'_>, mounts: &Mounts, jail: BorrowedFd<'_>) -> Ended {
    keep_capabilities(CapabilitySet::empty(), SECURE_BITS, become_user)?;
    // The change of user took that back.
    die_with_the_jail(jail).step("die with the jail")?;
    rustix::process::umask(Mode::from_raw_mode(0o077));
    if let Some(paths) = &mounts.paths {
        landlock::enforce(paths.as_fd()).step("restrict the program's paths")?;
    }
    let name = "arrange the descriptors";
    let program = mounts.program.as_ref().ok_or((name, Errno::BADMSG))?;
    // First out of the way of the low numbers, then down to them.
    let high = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 64).step(name);
    let [jail, null, words] = [high(jail)?, high(plan.null.as_fd())?, high(plan.words.as_fd())?];
    let mut handed = [const { None }; MAX_PROGRAM_FDS];
    for (place, descriptor) in handed.iter_mut().zip(plan.descriptors) {
        *place = Some(high(descriptor.as_fd())?);
    }
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).step(name)?;
    let program = rustix::io::fcntl_dupfd_cloexec(program, EXEC_FD).step(name)?;
    let line = match plan.profile {
        Profile::Vmm => &null,
        Profile::Sentry => handed.first().and_then(Option::as_ref).unwrap_or(&null),
    };
    for (number, descriptor) in [line, line, &words].into_iter().chain(handed.iter().flatten()).enumerate() {
        descriptors::place(descriptor.as_fd(), i32::try_from(number).unwrap_or(i32::MAX)).step(name)?;
    }
    let first_free = FIRST_FD.saturating_add(plan.descriptors.len());
    let first_free = u32::try_from(first_free).unwrap_or(u32::MAX);
    descriptors::close_all_but(first_free, [jail.as_fd(), program.as_fd()]).step(name)?;
    // Every other descriptor is closed, so nothing may be dropped any more.
    std::mem::forget((null, words, handed));
    let failure = match limit_files(plan.open_files, program.as_fd()).and_then(|()| {
        // From here on only what the filters allow. The two descriptors above vanish with a successful exec.
        bailey_sys::seccomp::install(plan.filters).step("install the filters")
    }) {
        Ok(()) => ("execute the program", execute(program.as_fd(), plan.arguments, plan.environment)),
        Err(failure) => failure,
    };
    report(jail.as_fd(), failure);
    Err(None)
}

fn become_user() -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
    set_thread_res_gid(gid, gid, gid).step("become the program's group")?;
    set_thread_res_uid(uid, uid, uid).step("become the program's user")
}

/// After this no descriptor can get the program's number any more, see [`EXEC_FD`].
fn limit_files(most: u64, program: BorrowedFd<'_>) -> Result<(), Failure> {
    let name = "limit the program's files";
    if program.as_raw_fd() != EXEC_FD {
        return Err((name, Errno::BADF));
    }
    let most = Some(most.min(EXEC_FD.unsigned_abs().into()));
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).step(name)
}
