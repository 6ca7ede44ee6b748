//! Attributes of mounts; rustix has the rest of the mount interface.

use std::ffi::CStr;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use crate::last_errno;

/// `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Adds attributes to the mount behind `mount`, and to those below it if `recursive`.
///
/// # Errors
/// When the kernel refuses.
pub fn set_attributes(mount: BorrowedFd<'_>, attributes: MountAttrFlags, recursive: bool) -> Result<(), Errno> {
    let change = MountAttr { set: u64::from(attributes.bits()), clear: 0, propagation: 0, userns: 0 };
    set(mount, &change, recursive)
}

/// Maps the owners of files in a detached mount through a user namespace, for good, and adds attributes.
///
/// # Errors
/// When the kernel or the file system refuses.
pub fn set_idmap(mount: BorrowedFd<'_>, userns: BorrowedFd<'_>, attributes: MountAttrFlags) -> Result<(), Errno> {
    let userns = u64::try_from(userns.as_raw_fd()).map_err(|_out_of_range| Errno::BADF)?;
    let set_flags = u64::from((attributes | MountAttrFlags::MOUNT_ATTR_IDMAP).bits());
    set(mount, &MountAttr { set: set_flags, clear: 0, propagation: 0, userns }, false)
}

/// `EXT4_IOC_SHUTDOWN`, and its word for "write nothing any more".
const SHUTDOWN: libc::Ioctl = 0x8004_587D;
const NO_LOG_FLUSH: u32 = 2;

/// Has an ext4 write nothing any more, so that letting it go costs no time for what nobody will read. Takes any open
/// file or folder of it.
///
/// # Errors
/// When it is no ext4, or the kernel refuses.
pub fn shut_down(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let how = NO_LOG_FLUSH;
    // SAFETY: the kernel only reads the live integer behind the pointer.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), SHUTDOWN, &raw const how) };
    if answer == -1 { Err(last_errno()) } else { Ok(()) }
}

fn set(mount: BorrowedFd<'_>, change: &MountAttr, recursive: bool) -> Result<(), Errno> {
    const EMPTY: &CStr = c"";
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is null-terminated, `change` is a live struct of the size that is passed, in the kernel's
    // layout; the kernel only reads both.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            EMPTY.as_ptr(),
            flags,
            std::ptr::from_ref(change),
            size_of::<MountAttr>(),
        )
    };
    if answer == -1 { Err(last_errno()) } else { Ok(()) }
}
