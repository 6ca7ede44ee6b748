//! What is beneath the machine, and how the steps of its life are taken there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bailey_protocol::jail::StopFacts;
use bailey_protocol::limits::Limits;
use bailey_sys::entropy;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount};
use rustix::time::{ClockId, Timespec, clock_settime};

use super::boot::read;
use super::given::Given;
use super::mounts::Slice;
use super::root::{self, bind, ensure_folder, file, overlay, place};
use super::scratch::{Scratch, TAME, by_descriptor};
use super::{MachineError, Step};
use crate::descriptor::Duplex;

/// Makes the node's stream, once there is something to watch it with.
pub(super) type Connect = Box<dyn FnOnce() -> io::Result<Duplex>>;

/// CPU time is dealt out per this many microseconds.
const PERIOD_US: u64 = 100_000;

/// What is beneath the machine.
#[derive(Debug)]
pub(super) enum Ground {
    /// A kernel of its own, with virtual devices.
    Kernel(Kernel),
    /// A kernel in user space, with a finished system.
    Given(Given),
}

/// Descriptors into the initramfs, which is beneath the root.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) stage: OwnedFd,
    pub(super) template: OwnedFd,
    pub(super) agent: OwnedFd,
    /// The cgroup of everything but PID 1.
    pub(super) code: OwnedFd,
}

impl Ground {
    /// Whether the machine stays when the stream's other end goes.
    pub(super) fn outlives_the_stream(&self) -> bool {
        match self {
            Self::Kernel(_) => true,
            Self::Given(_) => false,
        }
    }

    /// Makes the scratch space, and a fresh root over it in place of the one that the machine was parked in.
    pub(super) fn furnish(&self, limits: &Limits) -> Result<Scratch, MachineError> {
        match self {
            Self::Kernel(kernel) => kernel.furnish(limits),
            Self::Given(given) => given.furnish(limits),
        }
    }

    /// Puts the limits up; names what is in force.
    pub(super) fn limit(&self, limits: &Limits) -> Result<Vec<&'static str>, MachineError> {
        match self {
            Self::Kernel(kernel) => kernel.limit(limits).step("limit what the code uses"),
            Self::Given(_) => Ok(Vec::new()),
        }
    }

    /// Kills everything but PID 1; says whether anything may be left.
    pub(super) fn kill_all(&self) -> Result<bool, MachineError> {
        match self {
            Self::Kernel(kernel) => kernel.kill_all().step("kill everything"),
            Self::Given(given) => given.kill_all().step("kill everything"),
        }
    }

    /// What was counted for everything but PID 1; nothing of the scratch space.
    pub(super) fn facts(&self) -> Result<StopFacts, MachineError> {
        match self {
            Self::Kernel(kernel) => kernel.facts().step("read what was counted"),
            Self::Given(_) => Ok(StopFacts::default()),
        }
    }

    /// Begins with random numbers and a clock of its own, where those of another machine may have come along.
    pub(super) fn begin_anew(&self, entropy: &[u8], now_ns: u64) -> Result<Vec<&'static str>, MachineError> {
        match self {
            Self::Kernel(_) => {
                reseed(entropy).step("reseed the kernel's generator")?;
                set_clock(now_ns).step("set the clock")?;
                Ok(vec!["entropy", "clock"])
            }
            Self::Given(_) => Ok(Vec::new()),
        }
    }

    /// Has the kernel's boot id be this one, where it has any.
    pub(super) fn tell_boot_id(&self, scratch: &Scratch, id: &str) -> Result<Option<&'static str>, MachineError> {
        match self {
            Self::Kernel(_) => tell_boot_id(scratch, id).step("tell the boot id").map(|()| Some("boot_id")),
            Self::Given(_) => Ok(None),
        }
    }

    /// Mounts a slice where it belongs; what the code sees of it.
    pub(super) fn mount_slice(&self, scratch: &Scratch, slice: &Slice, root: &OwnedFd) -> Result<OwnedFd, Errno> {
        let at = slice.mount.at.as_str().trim_start_matches('/');
        // Step by step, since a template may have links.
        let place_of_it = ensure_folder(root, at)?;
        match self {
            Self::Given(given) => {
                let name = at.replace('/', "-");
                given.mount_slice((scratch, &name), (&slice.lower, slice.upper.as_ref()), at)
            }
            Self::Kernel(_) => {
                let Some(upper) = &slice.upper else {
                    bind(&slice.lower, "", TAME | MountAttrFlags::MOUNT_ATTR_RDONLY, root, at)?;
                    return Ok(place_of_it);
                };
                let merged = overlay(&slice.lower, upper)?;
                place(&merged, root, at)?;
                Ok(merged)
            }
        }
    }
}

impl Kernel {
    fn furnish(&self, limits: &Limits) -> Result<Scratch, MachineError> {
        let scratch = match openat(&self.stage, "dev/vdb", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Ok(disk) => Scratch::on_disk(&disk).step("mount the scratch disk")?,
            Err(Errno::NOENT) => {
                // Slices come on top of what the code may write: there is room for them until the last one is here.
                let memory = rustix::system::sysinfo();
                let half = memory.totalram.saturating_mul(memory.mem_unit.into()) / 2;
                let most = limits.disk_inodes.saturating_add(bailey_protocol::limits::MAX_CHANGE_RECORDS);
                Scratch::in_memory(limits.disk_bytes.saturating_add(half), most).step("make the scratch space")?
            }
            Err(errno) => return Err(errno).step("open the scratch disk"),
        };
        place(&scratch, &self.stage, "scratch").step("attach the scratch space")?;
        mkdirat(CWD, "/next", Mode::from_raw_mode(0o700)).step("make a place for the root")?;
        let new = root::build(&self.template, &scratch, &self.agent, "/next")?;
        self.enter(&new).step("enter the root")?;
        Ok(scratch)
    }

    /// Leaves the parked root, and with it all that was written there.
    fn enter(&self, root: &OwnedFd) -> Result<(), Errno> {
        rustix::process::fchdir(root)?;
        rustix::process::pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        rustix::process::chdir("/")?;
        unmount(format!("{}/parked", by_descriptor(&self.stage)), UnmountFlags::DETACH)
    }

    fn limit(&self, limits: &Limits) -> Result<Vec<&'static str>, Errno> {
        let quota = u64::from(limits.cpu_millis) * PERIOD_US / 1000;
        let rows = [
            ("memory.max", limits.memory_bytes.to_string()),
            ("memory.oom.group", "1".to_owned()),
            // PID 1 counts, and is not in the group.
            ("pids.max", limits.pids.saturating_sub(1).max(1).to_string()),
            ("cpu.max", format!("{quota} {PERIOD_US}")),
        ];
        for (name, value) in rows {
            self.write(name, &value)?;
        }
        Ok(vec!["memory", "pids", "cpu"])
    }

    fn kill_all(&self) -> Result<bool, Errno> {
        self.write("cgroup.kill", "1")?;
        Ok(!read(&self.code, "cgroup.events")?.lines().any(|line| line == "populated 0"))
    }

    fn facts(&self) -> Result<StopFacts, Errno> {
        let counter = |file: &str, key: &str| -> Result<u64, Errno> {
            let text = read(&self.code, file)?;
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            Ok(value.and_then(|value| value.trim().parse().ok()).unwrap_or(0))
        };
        Ok(StopFacts {
            oom_kills: counter("memory.events", "oom_kill")?,
            pids_refused: counter("pids.events", "max")?,
            disk_full: false,
            files_full: false,
            cpu_us: counter("cpu.stat", "usage_usec")?,
            // Not in kernels before 5.19.
            memory_peak_bytes: read(&self.code, "memory.peak").map_or(0, |text| text.trim().parse().unwrap_or(0)),
        })
    }

    fn write(&self, name: &str, value: &str) -> Result<(), Errno> {
        let file = openat(self.code.as_fd(), name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, value.as_bytes()).map(drop)
    }
}

fn reseed(bytes: &[u8]) -> Result<(), Errno> {
    let random = openat(CWD, "/dev/random", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    entropy::reseed(random.as_fd(), bytes)
}

fn set_clock(now_ns: u64) -> Result<(), Errno> {
    const SECOND: u64 = 1_000_000_000;
    let seconds = i64::try_from(now_ns / SECOND).map_err(|_too_late| Errno::INVAL)?;
    let rest = i64::try_from(now_ns % SECOND).map_err(|_too_late| Errno::INVAL)?;
    clock_settime(ClockId::Realtime, Timespec { tv_sec: seconds, tv_nsec: rest })
}

/// The kernel's own is that of the machine which this one may be a copy of.
fn tell_boot_id(scratch: &Scratch, id: &str) -> Result<(), Errno> {
    let new = file(scratch, "boot_id", 0o444)?;
    rustix::io::write(&new, format!("{id}\n").as_bytes())?;
    let attributes = TAME | MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
    bind(scratch, "boot_id", attributes, CWD, "/proc/sys/kernel/random/boot_id")
}
