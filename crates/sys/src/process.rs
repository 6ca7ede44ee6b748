//! Making processes from a single-threaded one, each held by a pidfd.

use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::{Pid, Uid, getuid};
use rustix::thread::{
    CapabilitiesSecureBits, UnshareFlags, capabilities_secure_bits, set_capabilities_secure_bits, set_thread_res_uid,
};

use crate::last_errno;

/// `struct clone_args`, version 2.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// A child of this process.
#[derive(Debug)]
pub struct Child {
    /// Its number; meaningful until it has been waited for.
    pub pid: Pid,
    /// Readable once it has ended.
    pub pidfd: OwnedFd,
}

/// Starts a child in new namespaces that runs `body` and ends with the code it returns.
///
/// The child is a copy of this process, which must have one thread only: otherwise a lock that another thread
/// holds would stay locked in the child for ever. The child gets `SIGKILL` when this process ends only if `body`
/// asks for it. A panic in `body` ends the child with code 101.
///
/// # Errors
/// `EDEADLK` when this process has several threads; else whatever the kernel says.
pub fn spawn(namespaces: UnshareFlags, body: impl FnOnce() -> u8) -> Result<Child, Errno> {
    ensure_single_threaded()?;
    let mut pidfd: RawFd = -1;
    let args = CloneArgs {
        flags: u64::from(namespaces.bits()) | u64::from(libc::CLONE_PIDFD.cast_unsigned()),
        pidfd: (&raw mut pidfd).addr() as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..CloneArgs::default()
    };
    // The address was taken as a number above; this keeps it known as written to.
    let _exposed = (&raw mut pidfd).expose_provenance();
    // SAFETY: like fork (no CLONE_VM, no stack given): the child goes on with a copy of this address space, and no
    // other thread exists whose state could be torn. `args` is live, in the kernel's layout and of the size passed;
    // the kernel writes the pidfd to a live integer.
    let answer = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    match answer {
        -1 => Err(last_errno()),
        0 => {
            let bomb = EndOnUnwind;
            let code = body();
            std::mem::forget(bomb);
            end(i32::from(code))
        }
        pid => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
            // SAFETY: on success the kernel stored a fresh descriptor that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Child { pid, pidfd })
        }
    }
}

/// As [`spawn`], with a new user namespace that belongs to `owner` outside: what the kernel counts for users and not for
/// namespaces or cgroups (watches of files, pending signals) is counted there for `owner`, not for the caller.
///
/// # Errors
/// As [`spawn`]; also when the caller may not take on that user.
///
/// # Panics
/// When the caller cannot become itself again: it must not go on as another.
pub fn spawn_owned(owner: Uid, namespaces: UnshareFlags, body: impl FnOnce() -> u8) -> Result<Child, Errno> {
    ensure_single_threaded()?;
    let bits = capabilities_secure_bits()?;
    // Or the change of user would cost the capabilities.
    set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    let own = getuid();
    let spawned = set_thread_res_uid(own, owner, own).and_then(|()| spawn(namespaces, body));
    set_thread_res_uid(own, own, own)
        .and_then(|()| set_capabilities_secure_bits(bits))
        .expect("whoever became another can become itself again");
    spawned
}

/// Ends the process if a panic unwinds past it.
struct EndOnUnwind;

impl Drop for EndOnUnwind {
    fn drop(&mut self) {
        end(101);
    }
}

fn end(code: i32) -> ! {
    // SAFETY: ends a forked child without running the exit handlers of the process it was copied from.
    unsafe { libc::_exit(code) }
}

/// The folder of a process's threads has one link per thread and two of its own.
fn ensure_single_threaded() -> Result<(), Errno> {
    let threads = rustix::fs::stat("/proc/self/task")?;
    if threads.st_nlink == 3 { Ok(()) } else { Err(Errno::DEADLK) }
}
