//! The root that code sees: the template under a writable layer, with the `/dev`, `/proc` and agent of a cage.

use std::os::fd::{AsFd, OwnedFd};

use bailey_protocol::guest::AGENT_PATH;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmodat, makedev, mkdirat, mknodat, openat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::scratch::{Scratch, TAME, Upper, by_descriptor, fresh};
use super::{MachineError, Step};
use crate::beneath;

const INERT: MountAttrFlags = TAME.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// The nodes of `/dev`: name, major, minor. None of the machine's own devices is among them.
const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Parts of `/proc` that even the sandbox's uid 0 cannot write: what it may set there would hand it the kernel.
const READ_ONLY: [&str; 6] = ["proc/sys", "proc/bus", "proc/fs", "proc/irq", "proc/driver", "proc/tty"];

/// Files of `/proc` that are covered: they act on the machine, or tell of its devices and memory.
const MASKED: [&str; 14] = [
    "proc/sysrq-trigger",
    "proc/kcore",
    "proc/kmsg",
    "proc/keys",
    "proc/key-users",
    "proc/kallsyms",
    "proc/kpagecount",
    "proc/kpageflags",
    "proc/kpagecgroup",
    "proc/iomem",
    "proc/ioports",
    "proc/modules",
    "proc/cmdline",
    "proc/partitions",
];

/// Attaches a root at `at` and furnishes it; `agent` is the agent's own binary.
pub(super) fn build(template: &OwnedFd, scratch: &Scratch, agent: &OwnedFd, at: &str) -> Result<OwnedFd, MachineError> {
    let upper = scratch.upper("root", 0).step("make the root's layer")?;
    let root = overlay(template, &upper).step("make the root")?;
    place(&root, CWD, at).step("attach the root")?;
    for name in ["dev", "proc", "run", "run/bailey", "tmp"] {
        ensure_folder(&root, name).step("make the root's folders")?;
    }
    place(&devices().step("make /dev")?, &root, "dev").step("mount /dev")?;
    place(&terminals().step("make the terminals")?, &root, "dev/pts").step("mount /dev/pts")?;
    scratch.folder("shm", 0, 0o1777).step("make /dev/shm")?;
    bind(scratch, "shm", INERT, &root, "dev/shm").step("mount /dev/shm")?;
    place(&fresh("proc", "proc", &[], INERT).step("make /proc")?, &root, "proc").step("mount /proc")?;
    for path in READ_ONLY {
        let attributes = INERT | MountAttrFlags::MOUNT_ATTR_RDONLY;
        present(bind(&root, path, attributes, &root, path)).step("make parts of /proc read-only")?;
    }
    file(scratch, "nothing", 0o000).step("make a mask")?;
    for path in MASKED {
        let attributes = INERT | MountAttrFlags::MOUNT_ATTR_RDONLY;
        present(bind(scratch, "nothing", attributes, &root, path)).step("mask files of /proc")?;
    }
    let inside = AGENT_PATH.trim_start_matches('/');
    present_already(file(&root, inside, 0o111).map(drop)).step("make a place for the agent")?;
    bind(agent, "", TAME | MountAttrFlags::MOUNT_ATTR_RDONLY, &root, inside).step("mount the agent")?;
    Ok(root)
}

/// An overlay that no descriptor or path outside of PID 1 can make or change. A folder of the lower layer cannot be
/// renamed (`EXDEV`, as everywhere with overlay), so that the upper layer alone tells what changed.
pub(super) fn overlay(lower: &OwnedFd, upper: &Upper) -> Result<OwnedFd, Errno> {
    let layers = [by_descriptor(lower), by_descriptor(&upper.upper), by_descriptor(&upper.work)];
    let [lower, upper, work] = layers.each_ref().map(String::as_str);
    let options = [
        ("lowerdir", lower),
        ("upperdir", upper),
        ("workdir", work),
        ("redirect_dir", "nofollow"),
        ("metacopy", "off"),
        ("index", "off"),
        ("xino", "off"),
    ];
    fresh("overlay", "overlay", &options, TAME)
}

/// A fresh `/dev` with what programs expect.
fn devices() -> Result<OwnedFd, Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let dev = fresh("tmpfs", "dev", &[("mode", "0755"), ("size", "64k"), ("nr_inodes", "32")], attributes)?;
    for (name, major, minor) in NODES {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(&dev, name, FileType::CharacterDevice, mode, makedev(major, minor))?;
        // What the umask took away.
        chmodat(&dev, name, mode, AtFlags::empty())?;
    }
    for (name, target) in LINKS {
        rustix::fs::symlinkat(target, &dev, name)?;
    }
    for name in ["pts", "shm"] {
        mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
    }
    bailey_sys::mount::set_attributes(dev.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, false)?;
    Ok(dev)
}

/// gid 5 is `tty` in Debian.
fn terminals() -> Result<OwnedFd, Errno> {
    let options = [("mode", "0620"), ("ptmxmode", "0666"), ("gid", "5"), ("max", "256")];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fresh("devpts", "devpts", &options, attributes)
}

/// Attaches a mount of something that is mounted already, with attributes of its own.
pub(super) fn bind(
    from: impl AsFd,
    path: &str,
    attributes: MountAttrFlags,
    root: impl AsFd,
    at: &str,
) -> Result<(), Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let clone = open_tree(from, path, flags)?;
    bailey_sys::mount::set_attributes(clone.as_fd(), attributes, false)?;
    place(&clone, root, at)
}

/// Attaches a detached mount at `name` below `at`.
pub(super) fn place(mount: impl AsFd, at: impl AsFd, name: &str) -> Result<(), Errno> {
    move_mount(mount, "", at, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// An empty file.
pub(super) fn file(at: impl AsFd, path: &str, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::from_raw_mode(mode))
}

/// Opens a folder, step by step from the root and following nothing; makes what is missing of it.
pub(super) fn ensure_folder(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let mut at = root.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let inside = |at: &OwnedFd| beneath::open(at, name.as_bytes(), flags, Mode::empty());
        at = match inside(&at) {
            Err(Errno::NOENT) => {
                mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                inside(&at)?
            }
            other => other?,
        };
    }
    Ok(at)
}

/// What this kernel does not have needs no cover.
fn present(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// The template may have it.
fn present_already(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}
