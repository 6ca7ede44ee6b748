//! What a cage may write: one tmpfs with a size, or a large disk ([`crate::disks`]); a folder of it for every layer.
//!
//! It is never attached to any place as a whole, so nothing inside the cage names a path of the host.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::limits::Limits;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, fstatvfs, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_reconfigure,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick, open_tree,
};

use super::layers::{self, Layers, Shelf};
use crate::files;
use crate::ground::{INERT, tmpfs};

/// Inodes for the layers' own folders, on top of what the limits grant.
pub(crate) const OWN_INODES: u64 = 128;

/// A cage's disk.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(super) mount: OwnedFd,
    /// Where it is attached, on kernels that need that.
    pub(super) shelf: Option<Shelf>,
    bytes: u64,
    inodes: u64,
    /// Whether it is an image on the host's disk.
    on_image: bool,
}

/// The two folders that an overlay writes to.
#[derive(Debug)]
pub(crate) struct Upper {
    /// Holds what was written.
    pub(crate) upper: OwnedFd,
    pub(super) work: OwnedFd,
    /// What the two folders' names begin with.
    pub(super) name: String,
}

impl Disk {
    /// Makes a tmpfs of the size that the limits grant; its content is never swapped out where the kernel can
    /// promise that.
    pub(crate) fn make(layers: &Layers, limits: &Limits) -> Result<Self, Errno> {
        let size = limits.disk_bytes.to_string();
        let inodes = limits.disk_inodes.saturating_add(OWN_INODES).to_string();
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in [("source", "disk"), ("size", &size), ("nr_inodes", &inodes), ("mode", "0755")] {
            fsconfig_set_string(&context, key, value)?;
        }
        match fsconfig_set_flag(&context, "noswap") {
            // Older than 6.4: cages may not use swap at all there (see the memory cgroup).
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let shelf = layers.shelve(&mount)?;
        Ok(Self { mount, shelf, bytes: limits.disk_bytes, inodes: limits.disk_inodes, on_image: false })
    }

    /// Takes over a large disk, which must have exactly the room that the limits grant.
    pub(crate) fn on_image(layers: &Layers, mount: OwnedFd, limits: &Limits) -> Result<Self, Errno> {
        let room = fstatvfs(&mount)?;
        let bytes = room.f_bavail.saturating_mul(room.f_frsize);
        if bytes != limits.disk_bytes / room.f_frsize * room.f_frsize || room.f_ffree != limits.disk_inodes + OWN_INODES
        {
            return Err(Errno::DOM);
        }
        let shelf = layers.shelve(&mount)?;
        Ok(Self { mount, shelf, bytes: limits.disk_bytes, inodes: limits.disk_inodes, on_image: true })
    }

    /// Whether it is an image on the host's disk.
    pub(crate) fn is_on_image(&self) -> bool {
        self.on_image
    }

    /// Its file system.
    pub(crate) fn kind(&self) -> &'static str {
        if self.on_image { "ext4" } else { "tmpfs" }
    }

    /// Whether it has the size that the limits grant, or can get it.
    pub(crate) fn can_become(&self, limits: &Limits) -> bool {
        if self.on_image {
            limits.disk_bytes == self.bytes && limits.disk_inodes == self.inodes
        } else {
            !limits.wants_large_disk()
        }
    }

    /// Changes the size if the limits grant another.
    pub(crate) fn resize(&mut self, limits: &Limits) -> Result<(), Errno> {
        if limits.disk_bytes == self.bytes && limits.disk_inodes == self.inodes {
            return Ok(());
        }
        let context = fspick(&self.mount, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
        fsconfig_set_string(&context, "size", limits.disk_bytes.to_string())?;
        fsconfig_set_string(&context, "nr_inodes", limits.disk_inodes.saturating_add(OWN_INODES).to_string())?;
        fsconfig_reconfigure(&context)?;
        self.bytes = limits.disk_bytes;
        self.inodes = limits.disk_inodes;
        Ok(())
    }

    /// A new folder that belongs to `owner`.
    pub(crate) fn folder(&self, name: &str, owner: u32, mode: u32) -> Result<OwnedFd, Errno> {
        mkdirat(&self.mount, name, Mode::from_raw_mode(mode))?;
        let folder = files::open_folder(&self.mount, name)?;
        chownat(&folder, "", Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)), AtFlags::EMPTY_PATH)?;
        if mode & 0o7000 != 0 || mode & 0o022 != 0 {
            // What the umask or the change of owner took away.
            rustix::fs::chmodat(&self.mount, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        Ok(folder)
    }

    /// The folders for one overlay.
    pub(crate) fn upper(&self, name: &str, owner: u32) -> Result<Upper, Errno> {
        let upper = self.folder(&format!("{name}-upper"), owner, 0o755)?;
        let work = self.folder(&format!("{name}-work"), owner, 0o700)?;
        Ok(Upper { upper, work, name: name.to_owned() })
    }

    /// A detached mount of one folder.
    pub(crate) fn mount_of(&self, name: &str) -> Result<OwnedFd, Errno> {
        layers::mount_of(self, name)
    }

    /// A detached overlay over `lower`, see [`layers::overlay`].
    pub(crate) fn overlay(&self, lower: &OwnedFd, over: Layer<'_>) -> Result<OwnedFd, Errno> {
        layers::overlay(self, lower, over)
    }

    /// Whether freeing it takes a while.
    pub(crate) fn is_slow_to_free(&self) -> bool {
        const LARGE: u64 = 4 * 1024 * 1024;
        const MANY: u64 = 2048;
        self.on_image
            || fstatvfs(&self.mount).is_ok_and(|room| {
                let used = room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize);
                used > LARGE || room.f_files.saturating_sub(room.f_ffree) > MANY
            })
    }

    /// Has a large disk write nothing any more.
    pub(crate) fn shut_down(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(&self.mount, ".", flags, Mode::empty())?;
        bailey_sys::mount::shut_down(root.as_fd())
    }

    /// Whether no block is left, and whether no inode is. On an ext4, less than may be written at once is none: Linux
    /// refuses as a whole what does not fit.
    pub(crate) fn full(&self) -> (bool, bool) {
        const AT_ONCE: u64 = 8 * 1024 * 1024;
        let least = if self.on_image { AT_ONCE.min(self.bytes / 64) } else { 0 };
        fstatvfs(&self.mount)
            .map_or((false, false), |room| (room.f_bavail.saturating_mul(room.f_frsize) <= least, room.f_favail == 0))
    }
}

impl AsFd for Disk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

/// A detached clone of a mounted folder whose owners are mapped by `userns`; read-only.
pub(crate) fn idmapped(folder: impl AsFd, path: &str, userns: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    flags |= OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    if path.is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    let clone = open_tree(folder, path, flags)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    bailey_sys::mount::set_idmap(clone.as_fd(), userns, attributes)?;
    Ok(clone)
}

/// What lies above the lower layer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Layer<'a> {
    Writable(&'a Upper),
    Empty(&'a OwnedFd),
}

/// A fresh empty root for a process that needs no files.
pub(crate) fn empty_root() -> Result<OwnedFd, Errno> {
    tmpfs(&[("mode", "0555"), ("size", "4096"), ("nr_inodes", "2")], INERT | MountAttrFlags::MOUNT_ATTR_RDONLY)
}
