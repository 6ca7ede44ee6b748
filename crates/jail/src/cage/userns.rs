//! User namespaces and their maps.

use std::os::fd::{AsFd, OwnedFd};

use bailey_sys::descriptors;
use bailey_sys::process::{Child, spawn};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use rustix::thread::UnshareFlags;

use crate::files;
use crate::uids::{Base, RANGE};

/// Uid and gid of the code's user inside a cage.
pub(crate) const USER: u32 = 1000;

/// Maps uids and gids 0 to 65,535 of a fresh user namespace to the range at `base`.
pub(crate) fn map_range(pid: Pid, base: Base) -> Result<(), Errno> {
    write_maps(pid, &format!("0 {} {RANGE}\n", base.0))
}

/// A user namespace that maps nothing but `owner` (on disk) to the user of the cage at `base`. For mounts only: no
/// process lives in it.
pub(crate) fn for_slices(owner: u32, base: Base) -> Result<OwnedFd, Errno> {
    let (hold, held) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = spawn(UnshareFlags::NEWUSER, || {
        // Ends with the jail, whose end of the pipe then closes. Not with a copy of that end in this process itself,
        // nor with copies of the jail's lock and of other cages' streams, which would outlive the jail.
        if descriptors::close_all_but(3, [hold.as_fd()]).is_ok() {
            rustix::io::read(&hold, &mut [0_u8; 1]).ok();
        }
        0
    })?;
    let made = write_maps(child.pid, &format!("{owner} {} 1\n", base.0 + USER)).and_then(|()| open_user(child.pid));
    drop(held);
    end(&child);
    made
}

/// A descriptor of a process's user namespace.
pub(crate) fn open_user(pid: Pid) -> Result<OwnedFd, Errno> {
    open_namespace(pid, "user")
}

/// A descriptor of one of a process's namespaces. The process must not have been waited for yet.
pub(crate) fn open_namespace(pid: Pid, kind: &str) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero());
    open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Kills a child and waits for it.
pub(crate) fn end(child: &Child) {
    // It may be dead already.
    pidfd_send_signal(&child.pidfd, Signal::KILL).ok();
    reap(child);
}

/// Waits for a child that is dead or dying.
pub(crate) fn reap(child: &Child) {
    while let Err(Errno::INTR) = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED) {}
}

fn write_maps(pid: Pid, map: &str) -> Result<(), Errno> {
    let folder = files::open_folder(CWD, format!("/proc/{}", pid.as_raw_nonzero()).as_str())?;
    files::write(&folder, "uid_map", map)?;
    files::write(&folder, "gid_map", map)
}
