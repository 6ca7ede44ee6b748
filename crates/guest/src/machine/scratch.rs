//! What a machine may write: a disk that came with it, or a tmpfs with a size; a folder of it for every layer.
//!
//! It is attached where no path of the sandbox leads, since kernels before 6.13 name the layers of an overlay by path.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::limits::Limits;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chmodat, chownat, fstatvfs, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, fspick,
};

/// Files for the layers' own folders, on top of what the limits grant.
const OWN_INODES: u64 = 128;

/// Nothing in it gains rights, and no device opens.
pub(super) const TAME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// The scratch space.
#[derive(Debug)]
pub(super) struct Scratch {
    mount: OwnedFd,
    /// Where slices are kept, if not here.
    slices: Option<OwnedFd>,
    /// Whether it is a disk, whose size is its own.
    on_disk: bool,
}

/// The two folders that an overlay writes to.
#[derive(Debug)]
pub(super) struct Upper {
    /// Holds what was written.
    pub(super) upper: OwnedFd,
    pub(super) work: OwnedFd,
}

impl Scratch {
    /// A detached tmpfs of a size.
    pub(super) fn in_memory(bytes: u64, inodes: u64) -> Result<Self, Errno> {
        let (size, inodes) = (bytes.to_string(), inodes.saturating_add(OWN_INODES).to_string());
        let mount = fresh("tmpfs", "scratch", &[("size", &size), ("nr_inodes", &inodes), ("mode", "0755")], TAME)?;
        Ok(Self { mount, slices: None, on_disk: false })
    }

    /// A tmpfs of the right size that is mounted already, and another one for slices.
    pub(super) fn attached(mount: OwnedFd, slices: OwnedFd) -> Self {
        Self { mount, slices: Some(slices), on_disk: false }
    }

    /// The ext4 on a disk, detached. Nothing on it has to survive the machine.
    pub(super) fn on_disk(disk: &OwnedFd) -> Result<Self, Errno> {
        let mount = fresh("ext4", &by_descriptor(disk), &[("barrier", "0")], TAME)?;
        Ok(Self { mount, slices: None, on_disk: true })
    }

    /// Gives a tmpfs the size that the limits grant on top of what is in it now, which is what the node sent.
    pub(super) fn settle(&self, limits: &Limits) -> Result<(), Errno> {
        if self.on_disk || self.slices.is_some() {
            return Ok(());
        }
        let room = fstatvfs(&self.mount)?;
        let used = room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize);
        let files = room.f_files.saturating_sub(room.f_ffree).saturating_add(OWN_INODES);
        let context = fspick(&self.mount, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
        fsconfig_set_string(&context, "size", used.saturating_add(limits.disk_bytes).to_string())?;
        fsconfig_set_string(&context, "nr_inodes", files.saturating_add(limits.disk_inodes).to_string())?;
        fsconfig_reconfigure(&context)
    }

    /// Its file system.
    pub(super) fn kind(&self) -> &'static str {
        if self.on_disk { "ext4" } else { "tmpfs" }
    }

    /// A new folder.
    pub(super) fn folder(&self, name: &str, owner: u32, mode: u32) -> Result<OwnedFd, Errno> {
        folder(&self.mount, name, owner, mode)
    }

    /// A new folder for what the node sends.
    pub(super) fn lower(&self, name: &str, owner: u32) -> Result<OwnedFd, Errno> {
        folder(self.slices.as_ref().unwrap_or(&self.mount), name, owner, 0o755)
    }

    /// The folders for one overlay.
    pub(super) fn upper(&self, name: &str, owner: u32) -> Result<Upper, Errno> {
        let upper = self.folder(&format!("{name}-upper"), owner, 0o755)?;
        let work = self.folder(&format!("{name}-work"), 0, 0o700)?;
        Ok(Upper { upper, work })
    }

    /// Whether no block is left, and whether no inode is. On an ext4, less than may be written at once is none: Linux
    /// refuses as a whole what does not fit.
    pub(super) fn full(&self) -> (bool, bool) {
        const AT_ONCE: u64 = 8 * 1024 * 1024;
        fstatvfs(&self.mount).map_or((false, false), |room| {
            let bytes = room.f_blocks.saturating_mul(room.f_frsize);
            let least = if self.on_disk { AT_ONCE.min(bytes / 64) } else { 0 };
            (room.f_bavail.saturating_mul(room.f_frsize) <= least, room.f_files > 0 && room.f_favail == 0)
        })
    }
}

impl AsFd for Scratch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

fn folder(at: &OwnedFd, name: &str, owner: u32, mode: u32) -> Result<OwnedFd, Errno> {
    mkdirat(at, name, Mode::from_raw_mode(mode))?;
    let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
    chownat(at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    // What the umask or the change of owner took away.
    chmodat(at, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// A detached mount of a new file system. An option without a value is a flag.
pub(super) fn fresh(
    kind: &str,
    source: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", source)?;
    for (key, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(&context, *key)?;
        } else {
            fsconfig_set_string(&context, *key, *value)?;
        }
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A path that leads to what a descriptor of this process refers to.
pub(super) fn by_descriptor(descriptor: &impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}
