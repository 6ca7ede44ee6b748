//! Descriptors that the one thread waits for.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A non-blocking descriptor, watched.
pub type Watched = AsyncFd<OwnedFd>;

/// Makes a descriptor non-blocking and watches it.
///
/// # Errors
/// When it cannot be watched, as regular files cannot.
#[expect(deprecated, reason = "sound for an `OwnedFd`, whose number never changes; its successor does not know that")]
pub fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<Watched> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    AsyncFd::with_interest(descriptor, interest)
}
