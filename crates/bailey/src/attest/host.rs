//! What must not change on the host, and what must be gone from it once a sandbox is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use super::look;

/// Settings that name a program which the kernel runs, or that weaken it.
const SETTINGS: [&str; 12] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/core_pipe_limit",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/proc/sys/fs/suid_dumpable",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/user/max_user_namespaces",
    "/sys/kernel/uevent_helper",
];
/// The key under which attacks make IPC objects, as the kernel's tables show it.
const IPC_KEY: &str = "4660";
/// A clock that was set moves by more than what is adjusted while an attack goes on.
const DRIFT_SECONDS: i64 = 5;
/// How deep control groups of sandboxes lie at most.
const DEPTH: u32 = 8;

/// The host, as it was at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostState {
    pub(crate) settings: BTreeMap<&'static str, Vec<u8>>,
    /// IPC objects with the attacks' key.
    pub(crate) ipc: Vec<String>,
    /// Seconds from the start of the machine to 1970, by its clock.
    pub(crate) clock: i64,
    /// Core dumps in the root folder.
    pub(crate) cores: usize,
}

impl HostState {
    pub(crate) fn read() -> io::Result<Self> {
        let mut settings = BTreeMap::new();
        for path in SETTINGS {
            // Not every kernel has each.
            if let Some(value) = look::gone_is_none(fs::read(path))? {
                settings.insert(path, value);
            }
        }
        let mut ipc = Vec::new();
        for kind in ["shm", "sem", "msg"] {
            let table = look::gone_is_none(fs::read_to_string(format!("/proc/sysvipc/{kind}")))?.unwrap_or_default();
            let ours = table.lines().filter(|line| line.split_whitespace().next() == Some(IPC_KEY));
            ipc.extend(ours.map(|line| format!("{kind} {}", line.split_whitespace().nth(1).unwrap_or_default())));
        }
        let clock = clock_gettime(ClockId::Realtime).tv_sec - clock_gettime(ClockId::Boottime).tv_sec;
        let mut cores = 0;
        for entry in fs::read_dir("/")? {
            cores += usize::from(entry?.file_name().to_string_lossy().starts_with("core"));
        }
        Ok(Self { settings, ipc, clock, cores })
    }

    /// What is different later, in words.
    pub(crate) fn changes(&self, later: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let names = self.settings.keys().chain(later.settings.keys().filter(|name| !self.settings.contains_key(*name)));
        let changed = names.filter(|name| self.settings.get(*name) != later.settings.get(*name));
        found.extend(changed.map(|name| format!("the host's `{name}` has changed")));
        if later.ipc.iter().any(|object| !self.ipc.contains(object)) {
            found.push("an IPC object of a sandbox is one of the host's".to_owned());
        }
        if later.clock.abs_diff(self.clock) > DRIFT_SECONDS.unsigned_abs() {
            found.push("the host's clock was set".to_owned());
        }
        if later.cores > self.cores {
            found.push("a core dump lies in the host's root folder".to_owned());
        }
        found
    }
}

/// What the jail holds; it has to be as much again once a sandbox is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    mounts: usize,
    descriptors: usize,
    children: usize,
}

impl Held {
    pub(crate) fn by(jail: u32) -> io::Result<Self> {
        let at = |below: &str| PathBuf::from(format!("/proc/{jail}/{below}"));
        let children = fs::read_to_string(at(&format!("task/{jail}/children")))?;
        Ok(Self {
            mounts: fs::read_to_string(at("mountinfo"))?.lines().count(),
            descriptors: fs::read_dir(at("fd"))?.count(),
            children: children.split_whitespace().count(),
        })
    }
}

/// What there still is of a sandbox, in words, beside more that the jail holds than `before`.
pub(crate) fn left_of(sandbox: &str, before: Held, jail: u32) -> io::Result<Vec<String>> {
    let (groups, processes) = (groups_of(sandbox)?, look::processes_of(sandbox)?);
    Ok(left(groups.len(), processes.len(), before, Held::by(jail)?))
}

fn left(groups: usize, processes: usize, before: Held, now: Held) -> Vec<String> {
    let grown = [
        (groups, 0, "control groups"),
        (processes, 0, "processes"),
        (now.mounts, before.mounts, "mounts"),
        (now.descriptors, before.descriptors, "descriptors of the jail"),
        (now.children, before.children, "children of the jail"),
    ];
    let grown = grown.into_iter().filter(|(now, before, _)| now > before);
    grown.map(|(now, before, what)| format!("{} {what} stay behind", now - before)).collect()
}

/// Folders of the control group file systems whose path contains `part`.
pub(crate) fn groups_of(part: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![(PathBuf::from("/sys/fs/cgroup"), DEPTH)];
    while let Some((folder, depth)) = todo.pop() {
        let Some(entries) = look::gone_is_none(fs::read_dir(&folder))? else { continue };
        for entry in entries {
            let Some(entry) = look::gone_is_none(entry)? else { continue };
            // On v1, names of controllers are links to what they are mounted with.
            if !look::gone_is_none(entry.file_type())?.is_some_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if path.to_string_lossy().contains(part) {
                found.push(path.clone());
            }
            if depth > 1 {
                todo.push((path, depth - 1));
            }
        }
    }
    Ok(found)
}

/// Processes and threads of a sandbox now, as its control groups count them; none where no group does.
pub(crate) fn tasks(groups: &[PathBuf]) -> u64 {
    let count = |group: &PathBuf| fs::read_to_string(group.join("pids.current")).ok()?.trim().parse().ok();
    groups.iter().filter_map(count).max().unwrap_or(0)
}

/// What there is of a jail that has ended, in words: `ledger` names its control groups, `folder` its data.
pub(crate) fn left_behind(ledger: &str, folder: &Path) -> io::Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let folder = folder.to_string_lossy();
    let counts = [
        (groups_of(ledger)?.len(), "control groups"),
        (look::processes_of(ledger)?.len(), "processes"),
        (mounts.lines().filter(|line| line.contains(&*folder)).count(), "mounts"),
    ];
    let left = counts.into_iter().filter(|(count, _)| *count > 0);
    Ok(left.map(|(count, what)| format!("{count} {what} stay behind the jail")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_the_host_is_told() {
        let before = HostState {
            settings: BTreeMap::from([(SETTINGS[0], b"core\n".to_vec())]),
            ipc: vec!["shm 1".to_owned()],
            clock: 1_700_000_000,
            cores: 1,
        };
        let told = |change: fn(&mut HostState)| {
            let mut later = before.clone();
            change(&mut later);
            before.changes(&later).join("; ")
        };
        assert_eq!(told(|_| {}), "");
        assert_eq!(told(|later| later.clock += 1), "", "clocks are adjusted");
        assert!(told(|later| drop(later.settings.insert(SETTINGS[0], b"|/x".to_vec()))).contains("core_pattern"));
        assert!(told(|later| later.settings.clear()).contains("core_pattern"));
        assert!(told(|later| drop(later.settings.insert(SETTINGS[6], b"1".to_vec()))).contains("sysrq"));
        assert!(told(|later| later.ipc.push("sem 7".to_owned())).contains("IPC"));
        assert!(told(|later| later.clock += 10).contains("clock"));
        assert!(told(|later| later.clock -= 10).contains("clock"));
        assert!(told(|later| later.cores += 1).contains("core dump"));
        assert_eq!(HostState::read().unwrap().changes(&HostState::read().unwrap()), Vec::<String>::new());
    }

    #[test]
    fn whatever_stays_behind_is_told() {
        let before = Held { mounts: 10, descriptors: 20, children: 1 };
        assert_eq!(left(0, 0, before, before), Vec::<String>::new());
        assert_eq!(left(0, 0, before, Held { mounts: 9, ..before }), Vec::<String>::new());
        assert_eq!(left(2, 0, before, before), ["2 control groups stay behind"]);
        assert_eq!(left(0, 1, before, before), ["1 processes stay behind"]);
        assert_eq!(left(0, 0, before, Held { mounts: 12, ..before }), ["2 mounts stay behind"]);
        assert_eq!(left(0, 0, before, Held { descriptors: 21, ..before }), ["1 descriptors of the jail stay behind"]);
        assert_eq!(left(0, 0, before, Held { children: 2, ..before }), ["1 children of the jail stay behind"]);
    }
}
