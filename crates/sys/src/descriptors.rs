//! Descriptor numbers, for a process that is about to execute another program.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::last_errno;

/// Numbers that [`inherit`] has handed out.
static INHERITED: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Takes over a descriptor that the parent process left open under this number, and marks it close-on-exec.
///
/// To be called early in `main`, before descriptors are opened that could get the number.
///
/// # Errors
/// When no descriptor has this number, it is one of the standard three, above 1023, or was taken over before.
pub fn inherit(number: RawFd) -> Result<OwnedFd, Errno> {
    let place = usize::try_from(number).ok().filter(|n| *n >= 3).ok_or(Errno::BADF)?;
    let word = INHERITED.get(place / 64).ok_or(Errno::BADF)?;
    let bit = 1_u64 << (place % 64);
    // SAFETY: F_SETFD takes an integer argument and touches no memory; it fails for a number that is not open.
    let answer = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if answer == -1 {
        return Err(last_errno());
    }
    if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return Err(Errno::BUSY);
    }
    // SAFETY: the number is open (just checked), was open when the process began, and is taken over only once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes `number` refer to what `from` refers to, without close-on-exec. Whatever had the number is closed.
///
/// For the time between fork and exec only: it may replace a descriptor that some value still owns.
///
/// # Errors
/// When the kernel refuses, or `from` has that number already.
pub fn place(from: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
    // SAFETY: dup3 touches no memory.
    let answer = unsafe { libc::dup3(from.as_raw_fd(), number, 0) };
    if answer == -1 { Err(last_errno()) } else { Ok(()) }
}

/// Most descriptors that [`close_all_but`] can keep.
const MAX_KEPT: usize = 32;

/// Closes every descriptor from `first` on but those in `keep`, in a table that is no longer shared with anyone.
///
/// For the time between fork and exec only: it closes descriptors that values still own. Allocates nothing.
///
/// # Errors
/// When the kernel refuses, or `keep` has more than 32 entries.
pub fn close_all_but<'a>(first: u32, keep: impl IntoIterator<Item = BorrowedFd<'a>>) -> Result<(), Errno> {
    let mut kept = [u32::MAX; MAX_KEPT];
    let mut slots = kept.iter_mut();
    for fd in keep {
        *slots.next().ok_or(Errno::INVAL)? = fd.as_raw_fd().cast_unsigned();
    }
    kept.sort_unstable();
    let mut next = first;
    for number in kept.into_iter().take_while(|number| *number != u32::MAX) {
        if number > next {
            close_range(next, number - 1)?;
        }
        next = next.max(number + 1);
    }
    close_range(next, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: close_range touches no memory; the caller executes another program next and uses no owner again.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_UNSHARE) };
    if answer == -1 { Err(last_errno()) } else { Ok(()) }
}
