//! Loop devices that vanish with their last user.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;

use crate::last_errno;

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// Tries to get a free device before somebody else does.
const TRIES: usize = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A read-only loop device over a file. It is cleared when this value and every mount of it are gone.
#[derive(Debug)]
pub struct LoopDevice {
    /// Where the device is.
    pub path: PathBuf,
    _device: File,
}

impl LoopDevice {
    /// Puts a free loop device over `backing`.
    ///
    /// # Errors
    /// When there is no loop driver, or no device could be had in a number of tries.
    pub fn attach(backing: BorrowedFd<'_>) -> Result<Self, Errno> {
        let control = control()?;
        let (device, path) = attach(control.as_fd(), backing, LO_FLAGS_READ_ONLY, 0, |number| {
            let path = PathBuf::from(format!("/dev/loop{number}"));
            Ok((open(&path)?, path))
        })?;
        Ok(Self { path, _device: device })
    }
}

/// Opens what [`attach_writable`] asks for a free device.
///
/// # Errors
/// When there is no loop driver.
pub fn control() -> Result<OwnedFd, Errno> {
    open("/dev/loop-control").map(OwnedFd::from)
}

/// Puts a free loop device over `backing`, past its page cache where its file system can do that. The device is cleared
/// when what is returned and every mount of it are gone. `open` opens the device of a number. Allocates nothing.
///
/// # Errors
/// When the kernel refuses, or no device could be had in a number of tries.
pub fn attach_writable(
    control: BorrowedFd<'_>,
    backing: BorrowedFd<'_>,
    block_size: u32,
    mut open: impl FnMut(u32) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    attach(control, backing, LO_FLAGS_DIRECT_IO, block_size, |number| Ok((open(number)?, ())))
        .map(|(device, ())| device)
}

fn attach<D: AsFd, T>(
    control: BorrowedFd<'_>,
    backing: BorrowedFd<'_>,
    flags: u32,
    block_size: u32,
    mut open: impl FnMut(u32) -> Result<(D, T), Errno>,
) -> Result<(D, T), Errno> {
    for _ in 0..TRIES {
        // SAFETY: the request takes no argument and touches no memory.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        let number = u32::try_from(number).map_err(|_negative| last_errno())?;
        let (device, rest) = open(number)?;
        match configure(device.as_fd(), backing, flags, block_size) {
            Ok(()) => return Ok((device, rest)),
            // Someone else took it between the two calls.
            Err(Errno::BUSY) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

fn configure(device: BorrowedFd<'_>, backing: BorrowedFd<'_>, flags: u32, block_size: u32) -> Result<(), Errno> {
    let info = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        sizelimit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: flags | LO_FLAGS_AUTOCLEAR,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let fd = u32::try_from(backing.as_raw_fd()).map_err(|_out_of_range| Errno::BADF)?;
    let config = LoopConfig { fd, block_size, info, reserved: [0; 8] };
    // SAFETY: the argument is a live `loop_config` in the kernel's layout, which the kernel only reads.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if answer == -1 { Err(last_errno()) } else { Ok(()) }
}

fn open(path: impl AsRef<std::path::Path>) -> Result<File, Errno> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
