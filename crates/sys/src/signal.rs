//! Signals as a descriptor.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;

use crate::last_errno;

/// Blocks the given signals (numbers as in `libc`) and returns a non-blocking descriptor that yields them: one
/// record of 128 bytes each, which starts with the signal's number as a `u32`.
///
/// # Errors
/// When the kernel refuses.
pub fn as_descriptor(signals: &[i32]) -> Result<OwnedFd, Errno> {
    let set = signal_set(signals)?;
    change_mask(libc::SIG_BLOCK, &set)?;
    // SAFETY: `set` is an initialised signal set that the kernel only reads.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd == -1 {
        return Err(last_errno());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Unblocks every signal and gives each its default action, as a program expects that is executed next. May be
/// called between fork and exec.
///
/// # Errors
/// When the kernel refuses.
pub fn reset() -> Result<(), Errno> {
    for signal in 1..32 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            // SAFETY: SIG_DFL is a valid action and replaces no handler that this process still needs.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    change_mask(libc::SIG_SETMASK, &signal_set(&[])?)
}

/// Kills every process that this one may signal, but itself: as PID 1, everything in its namespace. Whether there was any.
///
/// # Errors
/// When the kernel refuses.
pub fn kill_all_others() -> Result<bool, Errno> {
    if std::process::id() != 1 {
        // Anywhere else that would be everybody's.
        return Err(Errno::PERM);
    }
    // SAFETY: takes numbers only.
    match unsafe { libc::kill(-1, libc::SIGKILL) } {
        0 => Ok(true),
        _ => match last_errno() {
            Errno::SRCH => Ok(false),
            errno => Err(errno),
        },
    }
}

fn signal_set(signals: &[i32]) -> Result<libc::sigset_t, Errno> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: initialises the live set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was initialised above.
        if unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) } == -1 {
            return Err(last_errno());
        }
    }
    // SAFETY: initialised by sigemptyset.
    Ok(unsafe { set.assume_init() })
}

fn change_mask(how: i32, set: &libc::sigset_t) -> Result<(), Errno> {
    // SAFETY: reads a live set; no old mask is asked for.
    let answer = unsafe { libc::sigprocmask(how, ptr::from_ref(set), ptr::null_mut()) };
    if answer == -1 { Err(last_errno()) } else { Ok(()) }
}
