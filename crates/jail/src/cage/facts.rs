//! What a cage's `/proc` says of the machine: what was granted to it, and nothing of the host's other work.
//!
//! A few files of the cage's own tmpfs, mounted read-only over the kernel's. They are written when the cage is parked
//! and again when a claim grants something else, so what changes by the minute stands as it was at the cage's start.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use bailey_protocol::limits::Limits;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::disk::Disk;
use crate::files;

/// The folder of the cage's tmpfs.
pub(crate) const FOLDER: &str = "facts";

/// Its files, and what each of them covers.
pub(crate) const COVERED: [(&str, &str); 5] = [
    ("meminfo", "proc/meminfo"),
    ("cpuinfo", "proc/cpuinfo"),
    ("stat", "proc/stat"),
    ("loadavg", "proc/loadavg"),
    ("boot_id", "proc/sys/kernel/random/boot_id"),
];

/// The host, as far as cages are told of it.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Processors that the jail itself may use.
    processors: Vec<usize>,
    /// What `/proc/cpuinfo` says of each.
    descriptions: Vec<String>,
    /// Memory in bytes.
    memory: u64,
}

impl Machine {
    /// Looks at the host.
    pub(crate) fn look() -> Result<Self, Errno> {
        let set = sched_getaffinity(None)?;
        let text = files::read(CWD, "/proc/cpuinfo")?;
        let descriptions = text.split("\n\n").filter(|part| part.starts_with("processor")).map(str::to_owned);
        Ok(Self {
            processors: (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
            descriptions: descriptions.collect(),
            memory: rustix::system::sysinfo().totalram.saturating_mul(rustix::system::sysinfo().mem_unit.into()),
        })
    }

    /// Whole processors that the limits come to.
    fn count(&self, limits: &Limits) -> usize {
        let wanted = usize::try_from(limits.cpu_millis.div_ceil(1000)).unwrap_or(usize::MAX);
        wanted.clamp(1, self.processors.len().max(1))
    }

    /// The processors for one more cage: those that the fewest others were given, in turn where that is equal.
    /// Nothing where the cage may use all of them.
    pub(crate) fn share<'a>(
        &self,
        limits: &Limits,
        turn: u64,
        others: impl Iterator<Item = &'a [usize]>,
    ) -> Vec<usize> {
        let (count, all) = (self.count(limits), self.processors.len());
        if count >= all {
            return Vec::new();
        }
        let mut uses = BTreeMap::new();
        for cpu in others.flatten() {
            *uses.entry(*cpu).or_insert(0_u32) += 1;
        }
        let turn = usize::try_from(turn).unwrap_or(0) % all;
        let mut order: Vec<usize> = self.processors.iter().cycle().skip(turn).take(all).copied().collect();
        order.sort_by_key(|cpu| uses.get(cpu).copied());
        order.truncate(count);
        order
    }
}

/// Keeps a process, and what it starts from now on, on some processors: all that tells code how many there are.
pub(crate) fn keep_on(pid: Pid, processors: &[usize]) -> Result<(), Errno> {
    if processors.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    processors.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(Some(pid), &set)
}

/// A detached read-only mount of each file, made by the jail: before Linux 6.15 nobody but the owner of a file system's
/// place can clone a part of it.
pub(crate) fn covers(disk: &Disk) -> Result<Vec<OwnedFd>, Errno> {
    let covers = COVERED.iter().map(|(name, _)| {
        let cover = disk.mount_of(&format!("{FOLDER}/{name}"))?;
        bailey_sys::mount::set_attributes(cover.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, false)?;
        Ok(cover)
    });
    covers.collect()
}

/// The files of one cage.
#[derive(Debug)]
pub(crate) struct Facts {
    folder: OwnedFd,
    /// When the cage began, in seconds since 1970.
    born: i64,
}

impl Facts {
    /// Makes them.
    pub(crate) fn make(disk: &Disk, owner: u32, machine: &Machine, limits: &Limits) -> Result<Self, Errno> {
        let folder = disk.folder(FOLDER, owner, 0o755)?;
        for (name, _) in COVERED {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            openat(&folder, name, flags, Mode::from_raw_mode(0o444))?;
        }
        let facts = Self { folder, born: clock_gettime(ClockId::Realtime).tv_sec };
        facts.put("loadavg", "0.00 0.00 0.00 1/1 1\n")?;
        // Random, and no other cage's.
        facts.put("boot_id", &files::read(CWD, "/proc/sys/kernel/random/uuid")?)?;
        facts.tell(machine, limits)?;
        Ok(facts)
    }

    /// Writes what depends on the limits.
    pub(crate) fn tell(&self, machine: &Machine, limits: &Limits) -> Result<(), Errno> {
        let processors = machine.count(limits);
        self.put("meminfo", &memory(limits.memory_bytes.min(machine.memory)))?;
        self.put("cpuinfo", &descriptions(&machine.descriptions, processors))?;
        self.put("stat", &statistics(processors, self.born))
    }

    fn put(&self, name: &str, text: &str) -> Result<(), Errno> {
        let file = openat(&self.folder, name, OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC, Mode::empty())?;
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            rest = rest.get(rustix::io::write(&file, rest)?..).unwrap_or_default();
        }
        Ok(())
    }
}

fn memory(bytes: u64) -> String {
    let whole = ["MemTotal", "MemFree", "MemAvailable", "CommitLimit"].map(|name| (name, bytes / 1024));
    let nothing = [
        "Buffers",
        "Cached",
        "SwapCached",
        "Active",
        "Inactive",
        "SwapTotal",
        "SwapFree",
        "Dirty",
        "Writeback",
        "AnonPages",
        "Mapped",
        "Shmem",
        "KReclaimable",
        "Slab",
        "SReclaimable",
        "SUnreclaim",
        "Committed_AS",
    ];
    let rows = whole.into_iter().chain(nothing.map(|name| (name, 0)));
    rows.fold(String::new(), |mut text, (name, kilobytes)| {
        // Writing to a string cannot fail.
        writeln!(text, "{:<16}{kilobytes:>8} kB", format!("{name}:")).ok();
        text
    })
}

fn descriptions(all: &[String], count: usize) -> String {
    all.iter().take(count).fold(String::new(), |text, one| text + one.trim_end() + "\n\n")
}

fn statistics(processors: usize, born: i64) -> String {
    let zeros = " 0".repeat(10);
    let rows = (0..processors).map(|number| format!("cpu{number}{zeros}\n"));
    let rows: String = std::iter::once(format!("cpu {zeros}\n")).chain(rows).collect();
    format!("{rows}intr 0\nctxt 0\nbtime {born}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq{zeros} 0\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(processors: usize) -> Machine {
        let descriptions = (0..processors).map(|number| format!("processor\t: {number}\nmodel name\t: any")).collect();
        Machine { processors: (0..processors).collect(), descriptions, memory: 1 << 33 }
    }

    #[test]
    fn a_cage_gets_the_processors_that_are_used_least_and_whole_ones() {
        let limits = |cpu_millis| Limits { cpu_millis, ..Limits::default() };
        let four = machine(4);
        let none = || std::iter::empty();
        assert_eq!(four.share(&limits(62), 0, none()), [0]);
        assert_eq!(four.share(&limits(1000), 5, none()), [1]);
        assert_eq!(four.share(&limits(1001), 3, none()), [3, 0]);
        assert!(four.share(&limits(4000), 0, none()).is_empty());
        assert!(four.share(&limits(64_000), 0, none()).is_empty());
        let others = [vec![0, 1], vec![3], vec![0, 3]];
        assert_eq!(four.share(&limits(2000), 0, others.iter().map(Vec::as_slice)), [2, 1]);
    }

    #[test]
    fn the_files_show_what_was_granted() {
        let shown = memory(256 << 20);
        assert!(shown.starts_with("MemTotal:         262144 kB\n"), "{shown}");
        let two = descriptions(&machine(4).descriptions, 2);
        assert_eq!(two.matches("processor").count(), 2);
        assert!(statistics(1, 7).starts_with("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0"));
        assert!(statistics(1, 7).contains("\nbtime 7\n"));
    }
}
