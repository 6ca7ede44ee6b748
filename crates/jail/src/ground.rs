//! The jail's own root: a small tmpfs with the few things that cages are built from, and nothing of the host.
//!
//! ```text
//!  /proc                 a fresh one, fully visible, so that cages may mount theirs
//!  /dev                  read-only tmpfs: six nodes, links, mount points; every cage gets one of its own
//!  /fixed                read-only tmpfs: agent (the guest binary), file and folder (empty, for masks)
//!  /templates/{digest}   the mounted images of templates
//!  /images/{digest}      those of programs that isolate by themselves
//!  /cgroup/…             own instances of the hierarchies
//!  /root                 where a cage's root is attached before it becomes the root
//!  /layers               see `cage::layers`
//!  /server/…             what the supervised server's root is made from
//! ```
//!
//! Every cage's mount namespace begins as a copy of this one: a short list, whatever the host has mounted.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use bailey_protocol::jail::JailFault;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, chmodat, fstat, makedev, mkdirat, mknodat, open, openat, statx,
    symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
    mount_change, move_mount, unmount,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::fault::OrFault;
use crate::template::Template;

/// No program runs from here, nothing gains rights, no device opens.
pub(crate) const INERT: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV).union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// The nodes of a cage's `/dev`: name, major, minor.
pub(crate) const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Leaves the host's mount namespace for one of the jail's own, whose root is still the host's.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn leave_host_mounts() -> Result<(), JailFault> {
    bailey_sys::namespace::unshare(UnshareFlags::NEWNS).or_fence("make a mount namespace")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).or_fence("make the jail's mounts private")?;
    verify_root().or_fence("verify the host's root")
}

/// The root must be the mount namespace's as well, since whoever comes back to a namespace is put there. It is not for
/// a jail that was started inside a `chroot`.
fn verify_root() -> Result<(), Errno> {
    let place = || statx(CWD, "/", AtFlags::empty(), StatxFlags::MNT_ID).map(|found| found.stx_mnt_id);
    let before = place()?;
    let own = open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Mount))?;
    if place()? == before { Ok(()) } else { Err(Errno::XDEV) }
}

/// Builds the root from what is open, moves into it and lets the host's go.
///
/// # Errors
/// When the kernel refuses a step.
pub(crate) fn build(
    agent: &[u8],
    (templates, images): (&[Template], &[Template]),
    server: &[(&str, OwnedFd)],
) -> Result<(), JailFault> {
    let step = "build the jail's own root";
    let root = tmpfs(&[("mode", "0755")], INERT).or_fence(step)?;
    // Any folder will do to attach it: this namespace is the jail's own.
    let attach = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&root, "", CWD, "/proc", attach).or_fence(step)?;
    for name in ["proc", "dev", "fixed", "templates", "images", "cgroup", "root", "layers", "server"] {
        folder(&root, name).or_fence(step)?;
    }
    let proc = fresh("proc", &[], INERT).or_fence("mount the jail's own /proc")?;
    place(&proc, &root, "proc").or_fence("mount the jail's own /proc")?;
    place(&devices(&NODES).or_fence("make the devices")?, &root, "dev").or_fence("make the devices")?;
    place(&fixed(agent).or_fence("store the guest binary")?, &root, "fixed").or_fence("store the guest binary")?;
    attach_images(&root, "templates", templates).or_fence("attach the templates")?;
    attach_images(&root, "images", images).or_fence("attach the images")?;
    attach_server(&root, server).or_fence("attach the server's folders")?;
    enter(&root).or_fence("enter the jail's own root")
}

/// Each becomes a folder that is named by its hash.
fn attach_images(root: &OwnedFd, shelf: &str, images: &[Template]) -> Result<(), Errno> {
    let shelf = openat(root, shelf, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    images.iter().try_for_each(|image| {
        folder(&shelf, image.digest.as_str())?;
        place(&image.mount, &shelf, image.digest.as_str())
    })
}

/// Each source becomes `/server/{name}`: a folder for a folder, a file for a file.
fn attach_server(root: &OwnedFd, sources: &[(&str, OwnedFd)]) -> Result<(), Errno> {
    let shelf = openat(root, "server", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for (name, source) in sources {
        let kind = FileType::from_raw_mode(fstat(source)?.st_mode);
        if kind == FileType::Directory {
            folder(&shelf, name)?;
        } else {
            file(&shelf, name, 0o444, &[])?;
        }
        place(source, &shelf, *name)?;
    }
    Ok(())
}

/// Makes `root` the root, and lets the old one go.
fn enter(root: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

/// A fresh read-only `/dev`. Cages do not share one: whoever may open a node may lock it and watch who else opens it.
pub(crate) fn devices(nodes: &[(&str, u32, u32)]) -> Result<OwnedFd, Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let dev = tmpfs(&[("mode", "0755")], attributes)?;
    for &(name, major, minor) in nodes {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(&dev, name, FileType::CharacterDevice, mode, makedev(major, minor))?;
        // What the umask took away.
        chmodat(&dev, name, mode, AtFlags::empty())?;
    }
    for (name, target) in LINKS {
        symlinkat(target, &dev, name)?;
    }
    folder(&dev, "pts")?;
    folder(&dev, "shm")?;
    freeze(&dev)?;
    Ok(dev)
}

/// What is bound into cages file by file. All cages share it, so nothing of it can be read there: what can be read
/// can be locked and watched.
fn fixed(agent: &[u8]) -> Result<OwnedFd, Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let fixed = tmpfs(&[("mode", "0755")], attributes)?;
    file(&fixed, "agent", 0o111, agent)?;
    file(&fixed, "file", 0o000, &[])?;
    mkdirat(&fixed, "folder", Mode::from_raw_mode(0o111))?;
    freeze(&fixed)?;
    Ok(fixed)
}

/// Makes a file system read-only, whatever its mounts say.
fn freeze(mount: &OwnedFd) -> Result<(), Errno> {
    let context = fspick(mount, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    fsconfig_set_flag(&context, "ro")?;
    fsconfig_reconfigure(&context)?;
    bailey_sys::mount::set_attributes(mount.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, false)
}

/// A detached tmpfs.
pub(crate) fn tmpfs(options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    fresh("tmpfs", options, attributes)
}

/// A detached mount of a new file system.
pub(crate) fn fresh(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", kind)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Attaches a detached mount at `name` below `at`.
pub(crate) fn place(mount: impl AsFd, at: impl AsFd, name: impl rustix::path::Arg) -> Result<(), Errno> {
    move_mount(mount, "", at, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Makes a folder.
pub(crate) fn folder(at: impl AsFd, name: &str) -> Result<(), Errno> {
    mkdirat(at, name, Mode::from_raw_mode(0o755))
}

fn file(at: impl AsFd, name: &str, mode: u32, content: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(at, name, flags, Mode::from_raw_mode(mode))?);
    file.write_all(content).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Reads a whole file of the host.
pub(crate) fn read_host_file(path: &Path) -> Result<Vec<u8>, std::io::Error> {
    use std::io::Read;
    let mut content = Vec::new();
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).take(256 * 1024 * 1024).read_to_end(&mut content)?;
    Ok(content)
}
