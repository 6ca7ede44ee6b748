//! What the host sees: processes, their posture, namespaces, descriptors, mounts, cgroups, loop devices. Everything
//! here is read from outside the sandbox; nothing asks the attacker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Kinds of namespace under `/proc/PID/ns`.
pub(crate) const NAMESPACES: [&str; 8] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];
/// Host uids of one cage.
pub(crate) const RANGE: u32 = 65_536;

/// A process of the host, by its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process(pub(crate) i32);

impl Process {
    pub(crate) fn path(self, below: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{below}", self.0))
    }

    fn text(self, below: &str) -> Option<String> {
        fs::read(self.path(below)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A field of `/proc/PID/status`; `None` when the process is gone.
    pub(crate) fn status(self, field: &str) -> Option<String> {
        let status = self.text("status")?;
        let line = status.lines().find(|line| line.split(':').next() == Some(field))?;
        Some(line.split(':').nth(1)?.trim().to_owned())
    }

    /// Real uid on the host.
    pub(crate) fn uid(self) -> Option<u32> {
        self.status("Uid")?.split_whitespace().next()?.parse().ok()
    }

    /// Uid inside its cage, for a process in a cage's range.
    pub(crate) fn uid_inside(self) -> Option<u32> {
        self.uid().map(|uid| uid % RANGE)
    }

    /// Whether it exists and is no zombie.
    pub(crate) fn alive(self) -> bool {
        self.status("State").is_some_and(|state| !state.starts_with('Z') && !state.starts_with('X'))
    }

    pub(crate) fn parent(self) -> Option<Self> {
        Some(Self(self.status("PPid")?.parse().ok()?))
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(self) -> u64 {
        let kilobytes = self.status("VmRSS").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    }

    /// Identity of its namespace of this kind.
    pub(crate) fn namespace(self, kind: &str) -> Option<String> {
        fs::read_link(self.path(&format!("ns/{kind}"))).ok().map(|link| link.to_string_lossy().into_owned())
    }

    /// What its descriptors are, by number.
    pub(crate) fn descriptors(self) -> BTreeMap<u32, String> {
        let Ok(folder) = fs::read_dir(self.path("fd")) else { return BTreeMap::new() };
        let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let link = |number: u32| fs::read_link(self.path(&format!("fd/{number}"))).ok();
        numbers.filter_map(|number| Some((number, link(number)?.to_string_lossy().into_owned()))).collect()
    }

    /// Arguments, NUL-separated.
    pub(crate) fn command_line(self) -> String {
        self.text("cmdline").unwrap_or_default()
    }

    pub(crate) fn mounts(self) -> Vec<String> {
        self.text("mountinfo").unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Itself and everything that descends from it.
    pub(crate) fn family(self) -> Vec<Self> {
        let parents: BTreeMap<Self, Self> =
            processes().into_iter().filter_map(|process| Some((process, process.parent()?))).collect();
        let descends = |mut process: Self| {
            loop {
                if process == self {
                    return true;
                }
                match parents.get(&process) {
                    Some(parent) => process = *parent,
                    None => return false,
                }
            }
        };
        parents.keys().copied().filter(|process| descends(*process)).collect()
    }
}

/// Every process of the host.
pub(crate) fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Process).collect()
}

/// The processes in the cgroups of one sandbox, PID 1 of the cage first.
pub(crate) fn cage(sandbox: &str) -> Vec<Process> {
    let inside = |process: &Process| process.text("cgroup").is_some_and(|groups| groups.contains(sandbox));
    let mut found: Vec<Process> = processes().into_iter().filter(inside).collect();
    found.sort_by_key(|process| (!is_init(*process), process.0));
    found
}

/// Whether it is the first process of its own PID namespace.
pub(crate) fn is_init(process: Process) -> bool {
    process.status("NSpid").is_some_and(|list| list.split_whitespace().count() > 1 && list.ends_with("\t1"))
}

/// Folders of the cgroup file systems whose path contains `part`.
pub(crate) fn cgroups(part: &str) -> BTreeSet<PathBuf> {
    fn walk(folder: &Path, part: &str, depth: u32, found: &mut BTreeSet<PathBuf>) {
        if depth == 0 {
            return;
        }
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = entry.path();
            if path.to_string_lossy().contains(part) {
                found.insert(path.clone());
            }
            walk(&path, part, depth - 1, found);
        }
    }
    let mut found = BTreeSet::new();
    walk(Path::new("/sys/fs/cgroup"), part, 8, &mut found);
    found
}

/// Loop devices in use whose backing file's path starts with `prefix`.
pub(crate) fn loops(prefix: &str) -> BTreeSet<String> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return BTreeSet::new() };
    let backing = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("loop/backing_file")).ok();
    let files = devices.filter_map(|entry| backing(entry.ok()?));
    files.filter(|file| file.starts_with(prefix)).map(|file| file.trim().to_owned()).collect()
}

/// Waits until `holds` does; whether it did before the time was up.
pub(crate) fn within(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if start.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
