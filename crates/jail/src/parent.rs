//! What every child of the jail that lasts must do: die with it.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Has the kernel kill the calling process when the jail ends, and fails if it has ended already: then no signal comes
/// any more. `line` is the calling process's end of a socket to the jail. To be called after the last change of user,
/// which takes the signal back.
///
/// # Errors
/// `OWNERDEAD` when the jail is gone.
pub(crate) fn die_with_the_jail(line: BorrowedFd<'_>) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut ends = [PollFd::from_borrowed_fd(line, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now))?;
    let gone = ends.iter().any(|end| end.revents().intersects(PollFlags::HUP | PollFlags::ERR));
    if gone { Err(Errno::OWNERDEAD) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_jail_that_is_gone_is_noticed() {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        // In a thread of its own, as the signal is a thread's.
        let noticed = std::thread::spawn(move || {
            let (jail, line) = pair();
            let before = die_with_the_jail(line.as_fd());
            drop(jail);
            let after = die_with_the_jail(line.as_fd());
            set_parent_process_death_signal(None).unwrap();
            (before, after)
        });
        assert_eq!(noticed.join().unwrap(), (Ok(()), Err(Errno::OWNERDEAD)));
    }
}
