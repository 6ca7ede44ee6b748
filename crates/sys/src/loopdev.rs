//! Loop devices that vanish with their last user.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;

use rustix::io::Errno;

use crate::last_errno;

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

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
        let control = open("/dev/loop-control")?;
        for _ in 0..64 {
            // SAFETY: the request takes no argument and touches no memory.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(last_errno());
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open(&path)?;
            match configure(device.as_fd(), backing) {
                Ok(()) => return Ok(Self { path, _device: device }),
                // Someone else took it between the two calls.
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::BUSY)
    }
}

fn configure(device: BorrowedFd<'_>, backing: BorrowedFd<'_>) -> Result<(), Errno> {
    let info = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        sizelimit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let fd = u32::try_from(backing.as_raw_fd()).map_err(|_out_of_range| Errno::BADF)?;
    let config = LoopConfig { fd, block_size: 0, info, reserved: [0; 8] };
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
