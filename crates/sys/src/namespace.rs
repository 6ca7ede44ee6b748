//! Namespaces of the calling process.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::thread::UnshareFlags;

use crate::last_errno;

/// Leaves the given namespaces for new ones. `FILES` is refused: it could separate a thread from descriptors that
/// others close.
///
/// # Errors
/// When the kernel refuses.
pub fn unshare(namespaces: UnshareFlags) -> Result<(), Errno> {
    if namespaces.contains(UnshareFlags::FILES) {
        return Err(Errno::INVAL);
    }
    // SAFETY: without FILES the call changes no memory and no descriptor.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Brings the loopback interface of the current network namespace up. May be called between fork and exec.
///
/// # Errors
/// When the kernel refuses.
pub fn bring_up_loopback() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(up).map_err(|_out_of_range| Errno::INVAL)?;
    // SAFETY: the argument is a live `ifreq` with a null-terminated name; the kernel only reads it.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if answer == -1 { Err(last_errno()) } else { Ok(()) }
}

/// The user, as the caller sees users, for whom the kernel counts what a user namespace has.
///
/// # Errors
/// When the descriptor is of no user namespace.
pub fn owner(namespace: BorrowedFd<'_>) -> Result<u32, Errno> {
    // NS_GET_OWNER_UID of linux/nsfs.h, which libc does not name.
    const GET_OWNER: libc::Ioctl = 0xb704;
    let mut uid: libc::uid_t = 0;
    // SAFETY: the kernel writes one `uid_t` to a live one, for this request and no other.
    let answer = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_OWNER, &raw mut uid) };
    if answer == -1 { Err(last_errno()) } else { Ok(uid) }
}
