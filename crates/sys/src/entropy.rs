//! The kernel's random number generator, from the side that feeds it.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::last_errno;

/// `_IOW('R', 0x03, int[2])` and `_IO('R', 0x07)`.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

/// Most bytes that are given at once.
pub const MOST: usize = 512;

/// `struct rand_pool_info` with its bytes.
#[repr(C)]
struct PoolInfo {
    entropy_count: libc::c_int,
    buf_size: libc::c_int,
    buf: [u8; MOST],
}

/// Adds bytes to the kernel's pool, credits each bit of them, and has the generator begin anew from the pool, so that
/// whatever is asked for from now on depends on them. `random` is an open `/dev/random`.
///
/// # Errors
/// `EINVAL` for more than [`MOST`] bytes; else what the kernel says.
pub fn reseed(random: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let mut info = PoolInfo { entropy_count: 0, buf_size: 0, buf: [0; MOST] };
    info.buf.get_mut(..bytes.len()).ok_or(Errno::INVAL)?.copy_from_slice(bytes);
    info.buf_size = libc::c_int::try_from(bytes.len()).map_err(|_too_many| Errno::INVAL)?;
    info.entropy_count = info.buf_size.saturating_mul(8);
    // SAFETY: the argument is a live structure in the kernel's layout with at least `buf_size` bytes behind its header;
    // the kernel only reads it.
    let added = unsafe { libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const info) };
    if added == -1 {
        return Err(last_errno());
    }
    // SAFETY: the request takes no argument and touches no memory.
    let reseeded = unsafe { libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG) };
    if reseeded == -1 { Err(last_errno()) } else { Ok(()) }
}
