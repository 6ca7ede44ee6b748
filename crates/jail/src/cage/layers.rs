//! How the layers of an overlay are named to the kernel.
//!
//! From 6.13 on by descriptor, and folders of a detached mount can be cloned: nothing has to be attached anywhere.
//! Before that (Debian 12 has 6.1) layers are named by path and must be attached in the current mount namespace.
//! They are in one of their own then, the attic, so that no cage begins as a copy of a namespace with all other
//! cages' disks in it. What a cage sees of those paths is `/layers/…`.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_fd,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, open_tree, unmount,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::disk::{Disk, Layer};
use crate::ground::{INERT, folder, place, tmpfs};

/// The way that this kernel takes.
#[derive(Debug, Clone)]
pub(crate) enum Layers {
    ByDescriptor,
    ByPath(Rc<Attic>),
}

/// A mount namespace with the disks of all cages.
#[derive(Debug)]
pub(crate) struct Attic {
    namespace: OwnedFd,
    home: OwnedFd,
    last: Cell<u64>,
}

/// A disk's place in the attic; empties it when dropped.
#[derive(Debug)]
pub(crate) struct Shelf {
    attic: Rc<Attic>,
    /// Path of the disk.
    path: String,
}

/// Does something in another mount namespace and comes back. Nothing that a cage or the node made may be resolved
/// by path in there. A jail that cannot come back must not go on.
pub(crate) fn visit<T>(home: &OwnedFd, there: &OwnedFd, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let mount = Some(LinkNameSpaceType::Mount);
    move_into_link_name_space(there.as_fd(), mount)?;
    let done = act();
    let back = move_into_link_name_space(home.as_fd(), mount);
    back.and_then(|()| rustix::process::chdir("/")).expect("the jail's own mount namespace can always be entered");
    done
}

impl Layers {
    /// Finds out which way this kernel takes; `by_path` takes the old one on a new kernel too.
    pub(crate) fn choose(by_path: bool) -> Result<Self, Errno> {
        if !by_path && takes_descriptors()? {
            return Ok(Self::ByDescriptor);
        }
        let own = || open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let home = own()?;
        bailey_sys::namespace::unshare(UnshareFlags::NEWNS)?;
        let furnished = tmpfs(&[("mode", "0700")], INERT).and_then(|shelf| {
            folder(&shelf, "lower")?;
            place(&shelf, CWD, "/layers")
        });
        let namespace = own()?;
        move_into_link_name_space(home.as_fd(), Some(LinkNameSpaceType::Mount))?;
        rustix::process::chdir("/")?;
        furnished?;
        Ok(Self::ByPath(Rc::new(Attic { namespace, home, last: Cell::new(0) })))
    }

    /// Puts a disk where its folders can be named.
    pub(crate) fn shelve(&self, disk: &OwnedFd) -> Result<Option<Shelf>, Errno> {
        let Self::ByPath(attic) = self else { return Ok(None) };
        attic.last.set(attic.last.get() + 1);
        let path = format!("/layers/{}", attic.last.get());
        attic.visit(|| {
            folder(CWD, &path)?;
            place(disk, CWD, path.as_str())
        })?;
        Ok(Some(Shelf { attic: Rc::clone(attic), path }))
    }
}

impl Attic {
    fn visit<T>(&self, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        visit(&self.home, &self.namespace, act)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let emptied = self.attic.visit(|| {
            unmount(self.path.as_str(), UnmountFlags::DETACH)?;
            rustix::fs::rmdir(self.path.as_str())
        });
        if let Err(errno) = emptied {
            crate::log::warn("a disk stays in the attic", &[("error", &errno)]);
        }
    }
}

/// Whether overlay knows `lowerdir+` and takes a descriptor for it.
fn takes_descriptors() -> Result<bool, Errno> {
    let probe = tmpfs(&[], INERT)?;
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    Ok(fsconfig_set_fd(&context, "lowerdir+", &probe).is_ok())
}

/// A detached mount of one folder of a disk.
pub(super) fn mount_of(disk: &Disk, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = match &disk.shelf {
        None => open_tree(&disk.mount, name, flags)?,
        Some(shelf) => shelf.attic.visit(|| open_tree(CWD, format!("{}/{name}", shelf.path).as_str(), flags))?,
    };
    bailey_sys::mount::set_attributes(mount.as_fd(), INERT, false)?;
    Ok(mount)
}

/// A detached overlay over `lower`: writable if given an upper layer, else above an empty folder (an overlay hides
/// where its layers come from, a plain mount shows it).
///
/// Made from outside the cage, so its own attributes are trusted ones that nothing inside can forge. A folder of the
/// lower layer cannot be renamed (`EXDEV`, as everywhere with overlay), so that the upper layer alone tells what changed.
pub(super) fn overlay(disk: &Disk, lower: &OwnedFd, over: Layer<'_>) -> Result<OwnedFd, Errno> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "overlay")?;
    for (key, value) in [("redirect_dir", "nofollow"), ("metacopy", "off"), ("index", "off"), ("xino", "off")] {
        fsconfig_set_string(&context, key, value)?;
    }
    if disk.is_on_image() && matches!(over, Layer::Writable(_)) {
        // Nothing in there has to survive, so the host need not write it out when the cage or its code wants it.
        fsconfig_set_flag(&context, "volatile")?;
    }
    match &disk.shelf {
        None => by_descriptor(&context, lower, over)?,
        Some(shelf) => shelf.attic.visit(|| by_path(&context, &shelf.path, lower, over))?,
    }
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if matches!(over, Layer::Empty(_)) {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn by_descriptor(context: &OwnedFd, lower: &OwnedFd, over: Layer<'_>) -> Result<(), Errno> {
    match over {
        Layer::Writable(upper) => {
            fsconfig_set_fd(context, "lowerdir+", lower)?;
            fsconfig_set_fd(context, "upperdir", &upper.upper)?;
            fsconfig_set_fd(context, "workdir", &upper.work)?;
        }
        Layer::Empty(empty) => {
            fsconfig_set_fd(context, "lowerdir+", empty)?;
            fsconfig_set_fd(context, "lowerdir+", lower)?;
        }
    }
    fsconfig_create(context)
}

fn by_path(context: &OwnedFd, disk: &str, lower: &OwnedFd, over: Layer<'_>) -> Result<(), Errno> {
    const LOWER: &str = "/layers/lower";
    place(lower, CWD, LOWER)?;
    let layered = match over {
        Layer::Writable(upper) => fsconfig_set_string(context, "lowerdir", LOWER)
            .and_then(|()| fsconfig_set_string(context, "upperdir", format!("{disk}/{}-upper", upper.name)))
            .and_then(|()| fsconfig_set_string(context, "workdir", format!("{disk}/{}-work", upper.name))),
        Layer::Empty(_) => fsconfig_set_string(context, "lowerdir", format!("{disk}/empty:{LOWER}")),
    };
    let made = layered.and_then(|()| fsconfig_create(context));
    unmount(LOWER, UnmountFlags::DETACH)?;
    made
}
