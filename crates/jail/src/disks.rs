//! Disks for cages that write more than their memory holds: images set aside on the host's own disk.
//!
//! ```text
//!  set aside ──▶ free ──take──▶ in the making ──▶ a cage's disk ──▶ let go, another set aside ──▶ free
//! ```
//!
//! An image has no name, has all of its blocks from the beginning, and belongs to one cage: what was written to it goes
//! with its last user, after a `kill -9` as well. It is formatted for the size that a cage asks for, put behind a loop
//! device and mounted by a process of its own, since that takes milliseconds in which no other cage could be served.

pub(crate) mod format;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::jail::{JailFault, JailFaultKind};
use bailey_protocol::limits::{LargeDisks, Limits};
use bailey_sys::process::{Child, spawn};
use bailey_sys::{descriptors, loopdev};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, fallocate, fstatvfs, makedev, mknodat, openat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use rustix::thread::UnshareFlags;

use crate::cage::disk::OWN_INODES;
use crate::fault::{OrFault, fault};
use crate::{files, ground};
use format::{BLOCK, Block, Format};

/// Major number of loop devices.
const LOOP: u32 = 7;
/// What a mounted image is called in a cage's `mountinfo`, as a tmpfs is.
const NAME: &str = "disk";

/// The images of this jail.
#[derive(Debug)]
pub(crate) struct Disks {
    offer: LargeDisks,
    /// Where images lie, without a name.
    folder: OwnedFd,
    control: OwnedFd,
    partition_bits: u32,
    /// How many may be taken.
    free: u32,
    /// Images that wait; one that could not be set aside anew is when it is taken.
    images: Vec<OwnedFd>,
}

/// The loop driver, from the host's own files.
pub(crate) struct Driver {
    control: OwnedFd,
    /// Bits of a device's minor number that tell partitions apart.
    partition_bits: u32,
}

impl Driver {
    /// Finds it.
    pub(crate) fn find() -> Result<Self, Errno> {
        let partitions = files::read(CWD, "/sys/module/loop/parameters/max_part").unwrap_or_default();
        let partitions: u32 = partitions.trim().parse().unwrap_or(0);
        Ok(Self { control: loopdev::control()?, partition_bits: u32::BITS - partitions.leading_zeros() })
    }
}

/// A disk that is being formatted and mounted.
#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) child: Child,
    context: OwnedFd,
}

impl Disks {
    /// Sets all images aside, and tries one.
    ///
    /// # Errors
    /// When the host has not as much room, or cannot mount what it has.
    pub(crate) fn set_aside(offer: LargeDisks, folder: OwnedFd, driver: Driver) -> Result<Self, JailFault> {
        let step = "set large disks aside";
        offer.check().or_invalid(step)?;
        let Driver { control, partition_bits } = driver;
        let (free, images) = (offer.count, Vec::new());
        let mut disks = Self { offer, folder, control, partition_bits, free, images };
        let bytes = disks.image_bytes();
        let short = |errno| format!("{} of {bytes} bytes each: {errno}", offer.count);
        disks.has_room(bytes).map_err(short).or_fence(step)?;
        let whole = Limits { disk_bytes: offer.bytes, disk_inodes: offer.inodes, ..Limits::default() };
        let trial = disks.start(&whole)?;
        drop(trial.finish(true).or_fence("try a large disk")?);
        disks.give_back(None);
        disks.fill_all(bytes).map_err(short).or_fence(step)?;
        Ok(disks)
    }

    /// A host that has too little is not filled up to find out.
    fn has_room(&self, bytes: u64) -> Result<(), Errno> {
        let room = fstatvfs(&self.folder)?;
        let wanted = bytes.saturating_mul(self.offer.count.into());
        if room.f_bavail.saturating_mul(room.f_frsize) < wanted { Err(Errno::NOSPC) } else { Ok(()) }
    }

    fn fill_all(&mut self, bytes: u64) -> Result<(), Errno> {
        for _ in 0..self.offer.count {
            let image = self.blank()?;
            fill(&image, bytes)?;
            self.images.push(image);
        }
        Ok(())
    }

    /// What a cage may ask for.
    pub(crate) fn offer(&self) -> &LargeDisks {
        &self.offer
    }

    /// Bytes of one image.
    pub(crate) fn image_bytes(&self) -> u64 {
        Format::of(self.offer.bytes, self.offer.inodes + OWN_INODES).bytes()
    }

    /// A file without a name, and so far without blocks.
    pub(crate) fn blank(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(&self.folder, ".", flags, Mode::from_raw_mode(0o600))
    }

    /// Takes an image and starts to make a disk of it.
    ///
    /// # Errors
    /// When all are taken, or there can be no process.
    pub(crate) fn start(&mut self, limits: &Limits) -> Result<Making, JailFault> {
        let step = "make a large disk";
        let free = self.free.checked_sub(1);
        let free = free.ok_or_else(|| fault(JailFaultKind::Exhausted, step, "all of them are in use"))?;
        let image = self.images.pop().map_or_else(|| self.blank(), Ok).or_internal(step)?;
        let blocks = Format::of(limits.disk_bytes, limits.disk_inodes + OWN_INODES).written();
        let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC).or_fence(step)?;
        let work = Work {
            image: image.as_fd(),
            bytes: self.image_bytes(),
            blocks: &blocks,
            control: self.control.as_fd(),
            partition_bits: self.partition_bits,
            context: context.as_fd(),
        };
        let child = spawn(UnshareFlags::empty(), || match work.carry_out() {
            Ok(()) => 0,
            Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX),
        });
        let child = child.or_internal(step)?;
        self.free = free;
        Ok(Making { child, context })
    }

    /// A disk is gone for good; another image takes its place.
    pub(crate) fn give_back(&mut self, image: Option<OwnedFd>) {
        self.free += 1;
        self.images.extend(image);
    }
}

/// Gives an image all its blocks.
pub(crate) fn fill(image: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    fallocate(image, FallocateFlags::empty(), 0, bytes)
}

impl Making {
    /// The mounted disk, when its process has ended; `wait` for that if it is not known to have.
    pub(crate) fn finish(&self, wait: bool) -> Result<OwnedFd, Errno> {
        let options = WaitIdOptions::EXITED | if wait { WaitIdOptions::empty() } else { WaitIdOptions::NOHANG };
        let status = loop {
            match waitid(WaitId::PidFd(self.child.pidfd.as_fd()), options) {
                Err(Errno::INTR) => {}
                other => break other?.ok_or(Errno::AGAIN)?,
            }
        };
        match status.exit_status() {
            Some(0) => {}
            Some(errno) => return Err(Errno::from_raw_os_error(errno)),
            None => return Err(Errno::INTR),
        }
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(&self.context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    }
}

/// What the process does that makes a disk; nothing of it allocates.
struct Work<'a> {
    image: BorrowedFd<'a>,
    bytes: u64,
    blocks: &'a [Block],
    control: BorrowedFd<'a>,
    partition_bits: u32,
    context: BorrowedFd<'a>,
}

impl Work<'_> {
    fn carry_out(&self) -> Result<(), Errno> {
        descriptors::close_all_but(3, [self.image, self.control, self.context])?;
        // Does nothing where it was done before.
        fallocate(self.image, FallocateFlags::empty(), 0, self.bytes)?;
        for (number, content) in self.blocks {
            self.write(content, number * BLOCK)?;
        }
        // The one place with a node of the device, this process's alone; not a name of the host's gets into the mount.
        let shelf = ground::tmpfs(&[("mode", "0700")], MountAttrFlags::MOUNT_ATTR_NOSUID)?;
        let block_size = u32::try_from(BLOCK).unwrap_or(0);
        let device = loopdev::attach_writable(self.control, self.image, block_size, |number| {
            match unlinkat(&shelf, NAME, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            let device = makedev(LOOP, number << self.partition_bits);
            mknodat(&shelf, NAME, FileType::BlockDevice, Mode::from_raw_mode(0o600), device)?;
            openat(&shelf, NAME, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        })?;
        rustix::process::fchdir(&shelf)?;
        fsconfig_set_string(self.context, "source", NAME)?;
        // Nothing has to survive: what is flushed in there need not be on the host's disk.
        fsconfig_set_flag(self.context, "nobarrier")?;
        fsconfig_create(self.context)?;
        drop(device);
        Ok(())
    }

    fn write(&self, content: &[u8], at: u64) -> Result<(), Errno> {
        let mut done = 0;
        while let Some(rest) = content.get(done..).filter(|rest| !rest.is_empty()) {
            let count = rustix::io::pwrite(self.image, rest, at + u64::try_from(done).unwrap_or(0))?;
            done += count;
        }
        Ok(())
    }
}
