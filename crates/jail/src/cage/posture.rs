//! Comparing PID 1 from outside with what it should be, before its cage counts as parked.
//!
//! Nothing here asks the cage: everything is read from the kernel. The checks are pure functions over its answers.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use bailey_protocol::jail::{JailFault, JailFaultKind, Profile};
use rustix::fs::{CWD, fstat, readlink, stat};
use rustix::io::Errno;
use rustix::process::Pid;

use super::Cage;
use super::enter::guest::CAPABILITIES;
use super::enter::root::{PROC_MASKED_FILES, PROC_MASKED_FOLDERS, PROC_READ_ONLY};
use super::facts::{self, COVERED};
use super::program::{FIRST_FD, Place};
use super::userns::USER;
use crate::fault::{OrFault, fault};
use crate::files;
use crate::uids::{Base, RANGE};

/// Kinds of namespaces that must not be the jail's.
const NAMESPACES: [&str; 8] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];

/// What PID 1 may be at most.
#[derive(Debug, Clone, Copy)]
struct Rights {
    /// Its user and group, inside.
    id: u32,
    /// A bit for each capability.
    capabilities: u64,
    /// Filters that it starts with.
    filters: u64,
}

/// Those of the guest.
const OF_THE_GUEST: Rights = Rights { id: 0, capabilities: CAPABILITIES.bits(), filters: 2 };
/// Those of a program that isolates by itself.
const OF_A_PROGRAM: Rights = Rights { id: USER, capabilities: 0, filters: 1 };

/// Fences that every verified cage has, as the node reports them.
const FENCES: [&str; 16] = [
    "user_namespace",
    "uid_range",
    "mount_namespace",
    "pid_namespace",
    "network_namespace",
    "ipc_namespace",
    "uts_namespace",
    "cgroup_namespace",
    "time_namespace",
    "cgroup_memory",
    "cgroup_pids",
    "cgroup_cpu",
    "capabilities",
    "no_new_privs",
    "private_dev",
    "masked_proc",
];

/// All fences of a verified cage.
pub(crate) fn fences(cage: &Cage) -> Vec<String> {
    let disk = if cage.parts.disk.is_on_image() { "sized_image" } else { "sized_tmpfs" };
    let own: &[&str] = match &cage.program {
        None => &["seccomp_init"],
        Some(running) => match running.profile {
            Profile::Vmm => &["seccomp_program", "read_only_root", "landlock"],
            Profile::Sentry => &["seccomp_program", "read_only_root"],
        },
    };
    FENCES.into_iter().chain([disk]).chain(own.iter().copied()).map(str::to_owned).collect()
}

/// Compares.
///
/// # Errors
/// A [`JailFaultKind::Fence`] that names what is not as it should be.
pub(crate) fn verify(cage: &Cage, pid: Pid, ledger: &str) -> Result<(), JailFault> {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let read = |name: &str| files::read(CWD, format!("{folder}/{name}").as_str()).or_fence("read PID 1's posture");
    let compare = "compare PID 1's posture";
    let mismatch = |what: &str| Err(fault(JailFaultKind::Fence, compare, what));
    let rights = if cage.program.is_some() { OF_A_PROGRAM } else { OF_THE_GUEST };
    status(&read("status")?, cage.base, rights).or_fence(compare)?;
    map(&read("uid_map")?, cage.base).or_fence(compare)?;
    map(&read("gid_map")?, cage.base).or_fence(compare)?;
    groups(&read("cgroup")?, &format!("/bailey/{ledger}/{}", cage.sandbox)).or_fence(compare)?;
    let expected = match &cage.program {
        None => of_the_guest(cage.parts.disk.kind()),
        Some(running) => of_a_program(cage.parts.disk.kind(), running.profile),
    };
    let mountinfo = read("mountinfo")?;
    mounts(&mountinfo, expected).or_fence(compare)?;
    // What is counted for the owner of a user namespace has to be counted for this cage alone.
    let owner = bailey_sys::namespace::owner(cage.parts.userns.as_fd()).or_fence("read the user namespace's owner")?;
    if owner != cage.base.0 {
        return mismatch(&format!("its user namespace belongs to uid {owner}"));
    }
    for kind in NAMESPACES {
        let inode = |of: &str| stat(format!("{of}/ns/{kind}").as_str()).map(|found| found.st_ino);
        let (theirs, ours) = (inode(&folder), inode("/proc/self"));
        if theirs.or_fence("read PID 1's namespaces")? == ours.or_fence("read PID 1's namespaces")? {
            return mismatch(&format!("its {kind} namespace is the jail's"));
        }
    }
    let place = |of: Result<rustix::fs::Stat, Errno>| of.map(|found| (found.st_dev, found.st_ino));
    let root = place(stat(format!("{folder}/root/.").as_str())).or_fence("read PID 1's root")?;
    if root != place(fstat(&cage.parts.root)).or_fence("read PID 1's root")? {
        return mismatch("its root is another");
    }
    let program = place(stat(format!("{folder}/exe").as_str())).or_fence("read PID 1's program")?;
    let wanted = match &cage.program {
        None => place(stat("/fixed/agent")).or_fence("read PID 1's program")?,
        Some(running) => running.file,
    };
    if program != wanted {
        return mismatch("its program is another");
    }
    let found = list_descriptors(&folder).or_fence("read PID 1's descriptors")?;
    match &cage.program {
        None => descriptors(&found).or_fence(compare),
        Some(running) => {
            threads(&folder, cage.base).or_fence(compare)?;
            let at = |number: u32| place(stat(format!("{folder}/fd/{number}").as_str()));
            let mount = |number: u32| files::read(CWD, format!("{folder}/fdinfo/{number}").as_str());
            program_descriptors(&found, (&running.handed, running.line()), at, |number| {
                in_the_cage(&mount(number)?, &mountinfo)
            })
            .or_fence(compare)
        }
    }
}

/// Every thread of a program must be what its first is.
fn threads(folder: &str, base: Base) -> Result<(), String> {
    let path = format!("{folder}/task");
    let list = files::names(&path).map_err(|errno| format!("its threads: {errno}"))?;
    for thread in list {
        match files::read(CWD, format!("{path}/{thread}/status").as_str()) {
            Ok(text) => status(&text, base, OF_A_PROGRAM)?,
            // Ended meanwhile.
            Err(Errno::NOENT | Errno::SRCH) => {}
            Err(errno) => return Err(format!("its thread {thread}: {errno}")),
        }
    }
    Ok(())
}

fn list_descriptors(folder: &str) -> Result<BTreeMap<u32, String>, Errno> {
    let path = format!("{folder}/fd");
    let mut found = BTreeMap::new();
    for name in files::names(&path)? {
        if let Ok(number) = name.parse() {
            match readlink(format!("{path}/{name}").as_str(), Vec::new()) {
                Ok(target) => drop(found.insert(number, target.to_string_lossy().into_owned())),
                // Closed meanwhile.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(found)
}

/// The value of one line of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> Result<&'a str, String> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).ok_or_else(|| format!("its status has no `{name}`"))
}

fn status(text: &str, base: Base, rights: Rights) -> Result<(), String> {
    for name in ["Uid", "Gid"] {
        let ids = field(text, name)?;
        if ids.split_whitespace().any(|id| id != (base.0 + rights.id).to_string()) {
            return Err(format!("its {name} is `{ids}`"));
        }
    }
    let groups = field(text, "Groups")?;
    if !groups.is_empty() {
        return Err(format!("it is in the groups `{groups}`"));
    }
    let most = rights.capabilities;
    for (name, allowed) in [("CapInh", 0), ("CapAmb", 0), ("CapPrm", most), ("CapEff", most), ("CapBnd", most)] {
        let value = field(text, name)?;
        let set = u64::from_str_radix(value, 16).map_err(|error| format!("its {name} is `{value}`: {error}"))?;
        if set & !allowed != 0 {
            return Err(format!("its {name} is {value}"));
        }
    }
    for (name, least, most) in [("NoNewPrivs", 1, 1), ("Seccomp", 2, 2), ("Seccomp_filters", rights.filters, u64::MAX)]
    {
        let value = field(text, name)?;
        if !value.parse::<u64>().is_ok_and(|number| (least..=most).contains(&number)) {
            return Err(format!("its {name} is `{value}`"));
        }
    }
    Ok(())
}

fn map(text: &str, base: Base) -> Result<(), String> {
    let numbers: Vec<&str> = text.split_whitespace().collect();
    if numbers == ["0", base.0.to_string().as_str(), RANGE.to_string().as_str()] {
        Ok(())
    } else {
        Err(format!("its id map is `{}`", text.trim()))
    }
}

/// Every hierarchy that a required controller (or no controller: v2) lives in must have it in its own group.
fn groups(text: &str, wanted: &str) -> Result<(), String> {
    let mut missing = vec!["", "memory", "pids", "cpu"];
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next().unwrap_or("?"), parts.next().unwrap_or("?"));
        // A guest may sort itself into a group below its own.
        let inside = path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        for name in names.split(',') {
            if missing.contains(&name) && !inside {
                return Err(format!("its cgroup is `{line}`"));
            }
            missing.retain(|wanted| *wanted != name);
        }
    }
    // What is in no v1 hierarchy is in v2, which was checked by the empty name.
    if missing.contains(&"") { Err("it is in no cgroup of the v2 tree".to_owned()) } else { Ok(()) }
}

/// Mount points, each with its file system and whether it must be read-only.
type Expected = BTreeMap<String, (&'static str, bool)>;

/// Those that every cage has; `disk` is the file system of its own.
fn of_all(disk: &'static str) -> Expected {
    let fixed = [("/dev", ("tmpfs", true)), ("/proc", ("proc", false))];
    let mut all: Expected = fixed.into_iter().map(|(at, what)| (at.to_owned(), what)).collect();
    all.extend(PROC_READ_ONLY.iter().map(|at| (format!("/{at}"), ("proc", true))));
    all.extend(COVERED.iter().map(|(_, at)| (format!("/{at}"), (disk, true))));
    all.extend(PROC_MASKED_FILES.iter().chain(&PROC_MASKED_FOLDERS).map(|at| (format!("/{at}"), ("tmpfs", true))));
    all
}

fn of_the_guest(disk: &'static str) -> Expected {
    let fixed = [
        ("/", ("overlay", false)),
        ("/dev/pts", ("devpts", false)),
        ("/dev/shm", (disk, false)),
        ("/run/bailey/agent", ("tmpfs", true)),
    ];
    fixed.into_iter().map(|(at, what)| (at.to_owned(), what)).chain(of_all(disk)).collect()
}

fn of_a_program(disk: &'static str, profile: Profile) -> Expected {
    let fixed = [("/", ("overlay", true)), ("/tmp", (disk, false))];
    let sealed = (profile == Profile::Sentry).then_some(("/sealed/proc", ("proc", false)));
    fixed.into_iter().chain(sealed).map(|(at, what)| (at.to_owned(), what)).chain(of_all(disk)).collect()
}

fn mounts(text: &str, mut expected: Expected) -> Result<(), String> {
    for line in text.lines() {
        let (left, right) = line.split_once(" - ").unwrap_or((line, ""));
        let mut left = left.split(' ').skip(3);
        let (source_root, at, options) = (left.next(), left.next().unwrap_or("?"), left.next().unwrap_or(""));
        let kind = right.split(' ').next().unwrap_or("?");
        let Some((wanted, must_be_read_only)) = expected.remove(at) else {
            return Err(format!("`{at}` is mounted once too often"));
        };
        let options: Vec<&str> = options.split(',').collect();
        let right_flags = options.contains(&"nosuid") && (!must_be_read_only || options.contains(&"ro"));
        let devices = options.contains(&"nodev") || at == "/dev" || at == "/dev/pts";
        if kind != wanted || !right_flags || !devices || !is_neutral(source_root.unwrap_or("?"), at) {
            return Err(format!("a mount is `{line}`"));
        }
    }
    // Not every kernel has every part of /proc.
    expected.retain(|at, _| {
        !at.starts_with("/proc/") || at == "/proc/sys" || COVERED.iter().any(|(_, told)| at.ends_with(told))
    });
    match expected.keys().next() {
        Some(at) => Err(format!("`{at}` is not mounted")),
        None => Ok(()),
    }
}

/// What a mount shows as its origin must say nothing about the host.
fn is_neutral(origin: &str, at: &str) -> bool {
    matches!(origin, "/" | "/shm" | "/tmp" | "/agent" | "/file" | "/folder")
        || COVERED.iter().any(|(name, path)| at == format!("/{path}") && origin == format!("/{}/{name}", facts::FOLDER))
        || at.strip_prefix("/proc").is_some_and(|rest| rest == origin)
}

/// 0 to 2 are the null device, 3 is a socket, 4 the cgroup; what the guest has opened since has no path, but for the
/// group in that cgroup that it made for its first exec, and the map of its own memory in which the C library looks
/// for the first thread's stack while it starts.
fn descriptors(found: &BTreeMap<u32, String>) -> Result<(), String> {
    for number in 0..=4 {
        if !found.contains_key(&number) {
            return Err(format!("its descriptor {number} is missing"));
        }
    }
    for (number, target) in found {
        let right = match number {
            0..=2 => target == "/dev/null",
            3 => target.starts_with("socket:["),
            4 => target == "/",
            _ if target == "/proc/1/maps" => true,
            _ => ["socket:[", "pipe:[", "anon_inode:", "/exec-"].iter().any(|start| target.starts_with(start)),
        };
        if !right {
            return Err(format!("its descriptor {number} is `{target}`"));
        }
    }
    Ok(())
}

/// 0 and 1 are the null device or the line, 2 takes its last words, then comes what it was handed, each in its place. What it has
/// opened since is of its own making or of the cage's own mounts.
fn program_descriptors(
    found: &BTreeMap<u32, String>,
    (handed, line): (&[Place], Option<Place>),
    at: impl Fn(u32) -> Result<Place, Errno>,
    in_the_cage: impl Fn(u32) -> Result<bool, Errno>,
) -> Result<(), String> {
    let handed = (FIRST_FD..).zip(handed);
    let mut handed: BTreeMap<u32, Place> =
        handed.filter_map(|(number, place)| Some((u32::try_from(number).ok()?, *place))).collect();
    for number in (0..3).chain(handed.keys().copied()) {
        if !found.contains_key(&number) {
            return Err(format!("its descriptor {number} is missing"));
        }
    }
    for (number, target) in found {
        let right = match (number, handed.remove(number)) {
            (0 | 1, _) => line.map_or(target == "/dev/null", |line| at(*number) == Ok(line)),
            (2, _) => target.starts_with("/memfd:words"),
            (_, Some(place)) => at(*number) == Ok(place),
            (_, None) => {
                let own = ["socket:[", "pipe:[", "anon_inode:", "/memfd:"];
                // Closed meanwhile.
                own.iter().any(|start| target.starts_with(start)) || !matches!(in_the_cage(*number), Ok(false))
            }
        };
        if !right {
            return Err(format!("its descriptor {number} is `{target}`"));
        }
    }
    Ok(())
}

/// Whether a descriptor (by its `fdinfo`) leads to one of these mounts.
fn in_the_cage(fdinfo: &str, mountinfo: &str) -> Result<bool, Errno> {
    let mount = fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim).ok_or(Errno::NOENT)?;
    Ok(mountinfo.lines().any(|line| line.split(' ').next() == Some(mount)))
}

#[cfg(test)]
mod tests;
