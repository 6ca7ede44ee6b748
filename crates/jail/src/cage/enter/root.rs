//! The mounts of a cage, from inside: put together, made the root, and no more to come.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::guest::AGENT_PATH;
use rustix::fs::{CWD, Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount_change, open_tree, unmount,
};

use super::{Mounts, Part};
use crate::cage::facts::COVERED;
use crate::fault::{Failure, Step};
use crate::ground::{INERT, place};

/// Kinds of namespaces that nothing in a cage may make more of, as files below `/proc/sys/user`, and how many a kernel in
/// user space may have: it puts each of its parts into some, a start takes three of users and mounts.
const NO_MORE: [(&str, &[u8]); 8] = [
    ("/proc/sys/user/max_user_namespaces", FEW),
    ("/proc/sys/user/max_mnt_namespaces", FEW),
    ("/proc/sys/user/max_pid_namespaces", FEW),
    ("/proc/sys/user/max_net_namespaces", FEW),
    ("/proc/sys/user/max_ipc_namespaces", FEW),
    ("/proc/sys/user/max_uts_namespaces", FEW),
    ("/proc/sys/user/max_cgroup_namespaces", NONE),
    ("/proc/sys/user/max_time_namespaces", NONE),
];

const FEW: &[u8] = b"32";
const NONE: &[u8] = b"0";

/// Parts of `/proc` that are read-only even for uid 0.
pub(crate) const PROC_READ_ONLY: [&str; 1] = ["proc/sys"];

/// Files of `/proc` that are covered by an empty one. What counts something of the whole host is among them: it tells
/// one tenant what another does.
pub(crate) const PROC_MASKED_FILES: [&str; 38] = [
    "proc/cgroups",
    "proc/sys/fs/dentry-state",
    "proc/sys/fs/file-nr",
    "proc/sys/fs/inode-nr",
    "proc/sys/fs/inode-state",
    "proc/sys/kernel/pty/nr",
    "proc/sysrq-trigger",
    "proc/kcore",
    "proc/keys",
    "proc/key-users",
    "proc/kallsyms",
    "proc/kmsg",
    "proc/kpagecount",
    "proc/kpageflags",
    "proc/kpagecgroup",
    "proc/timer_list",
    "proc/sched_debug",
    "proc/latency_stats",
    "proc/interrupts",
    "proc/softirqs",
    "proc/iomem",
    "proc/ioports",
    "proc/slabinfo",
    "proc/vmallocinfo",
    "proc/pagetypeinfo",
    "proc/buddyinfo",
    "proc/zoneinfo",
    "proc/modules",
    "proc/config.gz",
    "proc/cmdline",
    "proc/diskstats",
    "proc/partitions",
    "proc/mtrr",
    "proc/dma",
    "proc/swaps",
    "proc/locks",
    "proc/schedstat",
    "proc/vmstat",
];

/// Folders of `/proc` that are covered by an empty one. `fs` has the host's file systems, block by block.
pub(crate) const PROC_MASKED_FOLDERS: [&str; 11] = [
    "proc/acpi",
    "proc/asound",
    "proc/bus",
    "proc/driver",
    "proc/dynamic_debug",
    "proc/fs",
    "proc/irq",
    "proc/mpt",
    "proc/pressure",
    "proc/scsi",
    "proc/tty",
];

/// Sets the cage's own namespace counts to nothing. After its mounts were made (detached ones count as namespaces),
/// while `/proc` is still the writable one of the jail.
pub(super) fn forbid_namespaces(part: &Part<'_>) -> Result<(), Failure> {
    for (path, few) in NO_MORE {
        let most = if part.is_sentry() { few } else { NONE };
        let name = "forbid further namespaces";
        let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).step(name)?;
        rustix::io::write(&file, most).map(drop).step(name)?;
    }
    Ok(())
}

/// Puts the root together where it is not the root yet.
pub(super) fn build_root(mounts: &Mounts, part: &Part<'_>) -> Result<(), Failure> {
    let root = mounts.root.as_fd();
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step("make the mounts private")?;
    place(root, CWD, "/root").step("attach the root")?;
    place(&mounts.dev, root, "dev").step("mount /dev")?;
    match part {
        Part::Guest(_) => {
            let pts = fresh_pts().step("make the terminals")?;
            place(&pts, root, "dev/pts").step("mount /dev/pts")?;
            place(&mounts.scratch, root, "dev/shm").step("mount /dev/shm")?;
        }
        Part::Program(_) => place(&mounts.scratch, root, "tmp").step("mount /tmp")?,
    }
    if part.is_sentry() {
        // Who has no `/proc` without covers in its mount namespace may not mount another, as a namespace of processes
        // takes. It is behind a folder that nobody in the cage can enter: the program is another user than its owner, and
        // whatever user it becomes in a namespace of its own, that owner is not mapped there.
        let whole = fresh("proc").step("make the sealed /proc")?;
        place(&whole, root, "sealed/proc").step("mount the sealed /proc")?;
    }
    let proc = fresh("proc").step("make /proc")?;
    place(&proc, root, "proc").step("mount /proc")?;
    for path in PROC_READ_ONLY {
        present(read_only(root, path)).step("make parts of /proc read-only")?;
    }
    for path in PROC_MASKED_FILES {
        present(bind("/fixed/file", root, path)).step("mask files of /proc")?;
    }
    for path in PROC_MASKED_FOLDERS {
        present(bind("/fixed/folder", root, path)).step("mask folders of /proc")?;
    }
    for ((_, path), cover) in COVERED.iter().zip(&mounts.covers) {
        let step = "tell the cage of its machine";
        place(cover.as_ref().ok_or((step, Errno::BADMSG))?, root, *path).step(step)?;
    }
    match part {
        Part::Guest(_) => bind("/fixed/agent", root, AGENT_PATH.trim_start_matches('/')).step("mount the agent"),
        Part::Program(_) => Ok(()),
    }
}

fn fresh(kind: &str) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", kind)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, INERT)
}

/// A terminal instance of the cage's own; gid 5 is `tty` in Debian.
fn fresh_pts() -> Result<OwnedFd, Errno> {
    let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("source", "devpts"), ("mode", "0620"), ("ptmxmode", "0666"), ("gid", "5"), ("max", "32")] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Clones a mount of the jail's own root (whose read-only and other attributes are locked here) to `path`.
fn bind(from: &str, root: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    let clone = open_tree(CWD, from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    place(&clone, root, path)
}

/// Puts a read-only mount of a folder over itself.
fn read_only(root: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    let clone = open_tree(root, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let attributes = INERT | MountAttrFlags::MOUNT_ATTR_RDONLY;
    bailey_sys::mount::set_attributes(clone.as_fd(), attributes, false)?;
    place(&clone, root, path)
}

/// What this kernel does not have needs no cover.
fn present(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Makes the new root the root and makes sure that the old one is out of reach.
pub(super) fn enter_root(root: BorrowedFd<'_>) -> Result<(), Failure> {
    let name = "enter the root";
    rustix::process::fchdir(root).step(name)?;
    rustix::process::pivot_root(".", ".").step(name)?;
    unmount(".", UnmountFlags::DETACH).step("let the old root go")?;
    rustix::process::chdir("/").step(name)?;
    let wanted = fstat(root).step("verify the root")?;
    for path in ["/", ".", "..", "/proc/1/root/."] {
        let found = stat(path).step("verify the root")?;
        if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino) {
            return Err(("verify the root", Errno::XDEV));
        }
    }
    Ok(())
}
