//! What the host's kernel says of the processes of one sandbox. Nothing here asks the attacker, and no name below a
//! sandbox's root is resolved but by [`inside`]. What is gone meanwhile is left out; what cannot be read is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, major, minor, openat, openat2};
use rustix::io::Errno;

/// Kinds of namespace under `/proc/PID/ns`.
pub(crate) const NAMESPACES: [&str; 8] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];
/// Namespaces that the next child gets.
const FOR_CHILDREN: [&str; 2] = ["pid_for_children", "time_for_children"];
/// Host uids of one sandbox.
pub(crate) const RANGE: u32 = 65_536;
/// Folders of a sandbox in which a device node would be looked for.
const FOLDERS: [&str; 8] = ["tmp", "dev", "dev/shm", "dev/pts", "home/user", "data", "run", "."];
/// Magic numbers of file systems that are the kernel's own face.
const KERNEL_FILES: [(i64, &str); 8] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x4249_4e4d, "binfmt_misc"),
];

/// A sandbox, as it was at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    /// Its PID 1.
    pub(crate) init: Seen,
    /// The others.
    pub(crate) code: Vec<Seen>,
    /// Mounts that its PID 1 sees.
    pub(crate) mounts: BTreeSet<Mount>,
    /// Names of its network devices.
    pub(crate) links: Vec<String>,
    /// Device nodes in its folders.
    pub(crate) nodes: BTreeSet<String>,
    /// Keys that the kernel keeps for its users.
    pub(crate) keys: u64,
    /// Size of its `/tmp/grow`, and names in its `/tmp`.
    pub(crate) grown: u64,
    pub(crate) files: u64,
}

/// One process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) state: String,
    pub(crate) tracer: i32,
    pub(crate) umask: String,
    pub(crate) capabilities: [u64; 5],
    pub(crate) no_new_privs: String,
    pub(crate) seccomp: String,
    pub(crate) filters: u32,
    pub(crate) root: String,
    pub(crate) namespaces: BTreeMap<String, String>,
    pub(crate) descriptors: BTreeMap<u32, Descriptor>,
    /// Its mounts have a control group file system.
    pub(crate) cgroup_mounts: bool,
}

/// What a descriptor is of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) link: String,
    /// For one that can be written to, on a file system that is the kernel's own face: which.
    pub(crate) writes_to: Option<&'static str>,
    pub(crate) device: Option<Device>,
    /// Family and type of a socket.
    pub(crate) socket: Option<(u16, u32)>,
}

/// A device's kind and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) block: bool,
    pub(crate) number: (u32, u32),
}

/// A line of `mountinfo`, without what differs between equal sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mount {
    pub(crate) at: String,
    pub(crate) options: String,
    pub(crate) kind: String,
}

/// The processes in the control groups of one sandbox that are no zombies.
pub(crate) fn processes_of(sandbox: &str) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Some(groups) = gone_is_none(fs::read_to_string(path(pid, "cgroup")))? else { continue };
        if groups.contains(sandbox) && gone_is_none(status(pid))?.is_some_and(|status| !is_over(&status)) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn is_over(status: &BTreeMap<String, String>) -> bool {
    status.get("State").is_none_or(|state| state.starts_with(['Z', 'X']))
}

impl Look {
    /// Looks at a sandbox.
    pub(crate) fn at(sandbox: &str) -> io::Result<Self> {
        Self::of(&processes_of(sandbox)?)
    }

    /// Looks at processes, of which the first that is one's PID 1 stands for it; without one, the first.
    pub(crate) fn of(pids: &[i32]) -> io::Result<Self> {
        let mut seen = Vec::new();
        for pid in pids {
            seen.extend(gone_is_none(see(*pid))?);
        }
        let first = pids.iter().position(|pid| is_init(*pid)).and_then(|at| pids.get(at)).or(pids.first());
        let at = seen.iter().position(|one: &Seen| Some(&one.pid) == first);
        let Some(at) = at else { return Err(io::Error::new(io::ErrorKind::NotFound, "no PID 1 to look at")) };
        let init = seen.remove(at);
        let mut look = Self { mounts: mounts(init.pid)?, links: links(init.pid)?, ..Self::default() };
        look.nodes = nodes(init.pid)?;
        let from = init.uid - init.uid % RANGE;
        look.keys = keys(&fs::read_to_string("/proc/key-users")?, from);
        // An attack that got itself another root has none.
        if let Some(tmp) = gone_is_none(inside(init.pid, "tmp", OFlags::DIRECTORY))? {
            let tmp = format!("/proc/self/fd/{}", tmp.as_raw_fd());
            look.files = fs::read_dir(&tmp)?.count() as u64;
            look.grown = gone_is_none(fs::symlink_metadata(format!("{tmp}/grow")))?.map_or(0, |meta| meta.len());
        }
        (look.init, look.code) = (init, seen);
        Ok(look)
    }

    /// All its processes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Seen> {
        std::iter::once(&self.init).chain(&self.code)
    }
}

fn see(pid: i32) -> io::Result<Seen> {
    let status = status(pid)?;
    let field = |name: &str| status.get(name).cloned().unwrap_or_default();
    let number = |name: &str| field(name).split_whitespace().next().and_then(|text| text.parse().ok());
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "a field of /proc/PID/status is missing");
    let mut capabilities = [0; 5];
    for (set, name) in capabilities.iter_mut().zip(sets) {
        *set = u64::from_str_radix(&field(name), 16).map_err(|_not_hex| missing())?;
    }
    let mut namespaces = BTreeMap::new();
    for kind in NAMESPACES.into_iter().chain(FOR_CHILDREN) {
        // Without a child to come, there is none for it.
        if let Some(link) = gone_is_none(fs::read_link(path(pid, &format!("ns/{kind}"))))? {
            namespaces.insert(kind.to_owned(), link.to_string_lossy().into_owned());
        }
    }
    let mounted = fs::read_to_string(path(pid, "mountinfo")).map_err(|error| match Errno::from_io_error(&error) {
        // One that is about to end has none any more.
        Some(Errno::INVAL) => Errno::SRCH.into(),
        _ => error,
    })?;
    Ok(Seen {
        pid,
        uid: number("Uid").ok_or_else(missing)?,
        state: field("State"),
        tracer: number("TracerPid").and_then(|pid| i32::try_from(pid).ok()).ok_or_else(missing)?,
        // One that has ended has none.
        umask: status.get("Umask").cloned().ok_or(Errno::SRCH)?,
        capabilities,
        no_new_privs: field("NoNewPrivs"),
        seccomp: field("Seccomp"),
        filters: number("Seccomp_filters").unwrap_or(0),
        root: fs::read_link(path(pid, "root"))?.to_string_lossy().into_owned(),
        namespaces,
        descriptors: descriptors(pid)?,
        cgroup_mounts: mounted.lines().filter_map(mount).any(|mount| mount.kind.starts_with("cgroup")),
    })
}

fn status(pid: i32) -> io::Result<BTreeMap<String, String>> {
    let text = String::from_utf8_lossy(&fs::read(path(pid, "status"))?).into_owned();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

/// Whether it is the first process of its own PID namespace.
fn is_init(pid: i32) -> bool {
    let inside = status(pid).ok().and_then(|status| status.get("NSpid").cloned()).unwrap_or_default();
    inside.split_whitespace().count() > 1 && inside.split_whitespace().next_back() == Some("1")
}

fn descriptors(pid: i32) -> io::Result<BTreeMap<u32, Descriptor>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path(pid, "fd"))? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        found.extend(gone_is_none(descriptor(pid, number))?.map(|descriptor| (number, descriptor)));
    }
    Ok(found)
}

fn descriptor(pid: i32, number: u32) -> io::Result<Descriptor> {
    let at = path(pid, &format!("fd/{number}"));
    let link = fs::read_link(&at)?.to_string_lossy().into_owned();
    let socket = if link.starts_with("socket:") { Some(socket(pid, number)?) } else { None };
    let meta = rustix::fs::stat(&at)?;
    let kind = FileType::from_raw_mode(meta.st_mode);
    let writes_to = if kind == FileType::RegularFile && is_writable(pid, number)? {
        let magic = rustix::fs::statfs(&at)?.f_type;
        KERNEL_FILES.into_iter().find(|(known, _)| *known == magic).map(|(_, name)| name)
    } else {
        None
    };
    Ok(Descriptor { link, writes_to, device: device(&meta), socket })
}

fn is_writable(pid: i32, number: u32) -> io::Result<bool> {
    let info = fs::read_to_string(path(pid, &format!("fdinfo/{number}")))?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    Ok(flags.is_none_or(|flags| flags & 0o3 != 0))
}

/// Family and type of a socket, asked of a copy of it.
fn socket(pid: i32, number: u32) -> io::Result<(u16, u32)> {
    use rustix::net::sockopt::{socket_domain, socket_type};
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let number = i32::try_from(number).map_err(io::Error::other)?;
    let copy = pidfd_getfd(&handle, number, PidfdGetfdFlags::empty())?;
    Ok((socket_domain(&copy)?.as_raw(), socket_type(&copy)?.as_raw()))
}

fn device(meta: &rustix::fs::Stat) -> Option<Device> {
    let kind = FileType::from_raw_mode(meta.st_mode);
    let block = kind == FileType::BlockDevice;
    (block || kind == FileType::CharacterDevice)
        .then(|| Device { block, number: (major(meta.st_rdev), minor(meta.st_rdev)) })
}

/// Whether a sandbox may have it: null, zero, full, random, urandom, its terminals, and what hides a file of a layer.
pub(crate) fn is_harmless(device: Device) -> bool {
    const HARMLESS: [(u32, u32); 8] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2), (0, 0)];
    !device.block && (device.number.0 == 136 || HARMLESS.contains(&device.number))
}

/// Device nodes in a sandbox's folders that it may not have.
fn nodes(pid: i32) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for folder in FOLDERS {
        let Some(opened) = gone_is_none(inside(pid, folder, OFlags::DIRECTORY))? else { continue };
        for entry in fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd()))? {
            let name = entry?.file_name();
            let meta = rustix::fs::statat(&opened, &name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            let meta = gone_is_none(meta.map_err(io::Error::from))?;
            if let Some(device) = meta.as_ref().and_then(device).filter(|device| !is_harmless(*device)) {
                found.insert(format!("{folder}/{} {:?}", name.display(), device.number));
            }
        }
    }
    Ok(found)
}

fn mounts(pid: i32) -> io::Result<BTreeSet<Mount>> {
    Ok(fs::read_to_string(path(pid, "mountinfo"))?.lines().filter_map(mount).collect())
}

fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut fields = left.split(' ').skip(4);
    let (at, options) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    Some(Mount { at, options, kind: right.split(' ').next()?.to_owned() })
}

fn links(pid: i32) -> io::Result<Vec<String>> {
    let table = fs::read_to_string(path(pid, "net/dev"))?;
    Ok(table.lines().skip(2).filter_map(|line| line.split(':').next()).map(|name| name.trim().to_owned()).collect())
}

/// Keys of a range of users, by the kernel's count.
fn keys(table: &str, from: u32) -> u64 {
    let row = |line: &str| {
        let (uid, rest) = line.split_once(':')?;
        let mine = (from..from.saturating_add(RANGE)).contains(&uid.trim().parse::<u32>().ok()?);
        let count = rest.split_whitespace().nth(1)?.split('/').next()?.parse::<u64>().ok()?;
        mine.then_some(count)
    };
    table.lines().filter_map(row).sum()
}

/// Opens a name below a process's root, where no link leads out of it.
pub(crate) fn inside(pid: i32, name: &str, flags: OFlags) -> io::Result<File> {
    let root = openat(CWD, path(pid, "root"), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(&root, name, flags, Mode::empty(), resolve)?.into())
}

/// The content of a file below a process's root, of at most `most` bytes.
pub(crate) fn content(pid: i32, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let file = inside(pid, name, OFlags::empty())?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn path(pid: i32, below: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(below)
}

/// What has ended meanwhile is none; everything else that fails is an error.
pub(crate) fn gone_is_none<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::SRCH | Errno::BADF) => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_kernel_are_read() {
        let line = "36 35 98:0 /mnt1 /tmp/mark rw,nosuid - tmpfs mark rw";
        let read = Mount { at: "/tmp/mark".into(), options: "rw,nosuid".into(), kind: "tmpfs".into() };
        assert_eq!(mount(line), Some(read));
        let table = "    0:    88 87/87 80/1000000 1772/25000000\n70000:     2 2/2 1/200 30/20000\n";
        assert_eq!((keys(table, 0), keys(table, 65_536), keys(table, 131_072)), (87, 2, 0));
    }

    #[test]
    fn what_is_forbidden_is_seen_at_this_very_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let _device = File::open("/dev/null").unwrap();
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let _setting = File::options().write(true).open("/proc/self/comm").unwrap();
        let seen = see(own).unwrap();
        let has = |what: fn(&Descriptor) -> bool| seen.descriptors.values().any(what);
        assert!(has(|one| one.device == Some(Device { block: false, number: (1, 3) })));
        assert!(has(|one| one.socket == Some((2, 2))));
        assert!(has(|one| one.writes_to == Some("proc")));
        assert_eq!((seen.pid, seen.tracer, seen.root.as_str()), (own, 0, "/"));
        assert!(seen.namespaces.len() >= NAMESPACES.len());
        assert!(!is_harmless(Device { block: true, number: (1, 3) }));
        assert!(!is_harmless(Device { block: false, number: (1, 1) }));
        assert!(gone_is_none(see(i32::MAX)).unwrap().is_none());
    }
}
