//! Waiting for descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// What a descriptor belongs to. Numbers are cages' serial numbers, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// `SIGTERM` and the like.
    Signals,
    /// The node's socket.
    Node,
    /// The server's pidfd.
    Server,
    /// A server that builds its root.
    ServerReport,
    /// A PID 1 that builds its root.
    Report(u64),
    /// A PID 1's pidfd.
    Init(u64),
    /// A v1 memory cgroup's alarm.
    Memory(u64),
    /// A collector's pidfd.
    Collector(u64),
    /// The pidfd of a process that lets a disk go.
    Closer(u64),
    /// The pidfd of a process that makes a large disk.
    Maker(u64),
}

impl Source {
    fn pack(self) -> u64 {
        let (serial, kind) = match self {
            Self::Signals => (0, 0),
            Self::Node => (0, 1),
            Self::Server => (0, 2),
            Self::ServerReport => (0, 7),
            Self::Report(serial) => (serial, 3),
            Self::Init(serial) => (serial, 4),
            Self::Memory(serial) => (serial, 5),
            Self::Collector(serial) => (serial, 6),
            Self::Closer(serial) => (serial, 8),
            Self::Maker(serial) => (serial, 9),
        };
        serial << 4 | kind
    }

    fn unpack(packed: u64) -> Self {
        let serial = packed >> 4;
        match packed & 15 {
            0 => Self::Signals,
            1 => Self::Node,
            2 => Self::Server,
            3 => Self::Report(serial),
            4 => Self::Init(serial),
            5 => Self::Memory(serial),
            6 => Self::Collector(serial),
            7 => Self::ServerReport,
            8 => Self::Closer(serial),
            _ => Self::Maker(serial),
        }
    }
}

/// A set of descriptors that are waited for.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// An empty set.
    pub(crate) fn new() -> Result<Self, Errno> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(|epoll| Self { epoll })
    }

    /// Adds a descriptor that tells when it can be read.
    pub(crate) fn add(&self, fd: impl AsFd, source: Source) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(source.pack()), epoll::EventFlags::IN)
    }

    /// Changes whether a descriptor tells as well when it can be written.
    pub(crate) fn want_room(&self, fd: impl AsFd, source: Source, room: bool) -> Result<(), Errno> {
        let flags = if room { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(source.pack()), flags)
    }

    /// Removes a descriptor. To be called before it is closed: a fork may hold a copy of it.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        // Not in the set: as wanted.
        epoll::delete(&self.epoll, fd).ok();
    }

    /// Waits until something can be read or the time is over.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<Vec<Source>, Errno> {
        let timeout = timeout.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) => Ok(events.iter().map(|event| Source::unpack(event.data.u64())).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn sources_survive_the_kernel() {
        let all = [Source::Signals, Source::Node, Source::Server, Source::ServerReport];
        let cages = [
            Source::Report(1),
            Source::Init(1 << 40),
            Source::Memory(7),
            Source::Collector(9),
            Source::Closer(3),
            Source::Maker(2),
        ];
        for source in all.into_iter().chain(cages) {
            assert_eq!(Source::unpack(source.pack()), source);
        }
    }
}
