//! A time namespace per cage, so that its clocks do not tell how long the host has been up.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};

use crate::files;

/// The jail's own time namespace, to come back to.
#[derive(Debug)]
pub(crate) struct HostTime(OwnedFd);

impl HostTime {
    /// Remembers the current one.
    pub(crate) fn open() -> Result<Self, Errno> {
        open("/proc/self/ns/time", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// Runs `start` such that a process that it starts is in a new time namespace, whose monotonic and boot clocks
    /// begin at zero.
    pub(crate) fn start_anew<T>(&self, start: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        bailey_sys::namespace::unshare(UnshareFlags::NEWTIME)?;
        let started = Self::rewind().and_then(|()| start());
        let back = move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Time));
        let value = started?;
        back.map(|()| value)
    }

    fn rewind() -> Result<(), Errno> {
        let monotonic = clock_gettime(ClockId::Monotonic).tv_sec;
        let boot = clock_gettime(ClockId::Boottime).tv_sec;
        files::write(CWD, "/proc/self/timens_offsets", &format!("monotonic -{monotonic} 0\nboottime -{boot} 0\n"))
    }
}
