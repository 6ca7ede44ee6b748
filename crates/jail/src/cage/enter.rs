//! A cage's PID 1 from its first moment to its program: runs in a fork of the jail, inside the new namespaces.
//!
//! Makes system calls only. Each step has a name; the first that fails is reported with its errno, and the process
//! ends. Order matters: see the comments.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::guest::{AGENT_PATH, CGROUP_FD, STREAM_FD};
use bailey_sys::exec::{StringVector, execute};
use bailey_sys::seccomp::Program;
use bailey_sys::{descriptors, namespace, signal};
use rustix::fs::{CWD, Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount_change, open_tree, unmount,
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid, UnshareFlags, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::facts::COVERED;
use crate::fault::{Failure, Step};
use crate::ground::{INERT, place};
use crate::parent::die_with_the_jail;

/// What PID 1 keeps, inside the cage's user namespace, so that it can start programs under other users.
pub(crate) const CAPABILITIES: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Kinds of namespaces that nothing in the cage may make more of, as files below `/proc/sys/user`.
const NO_MORE: [&str; 8] = [
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/user/max_mnt_namespaces",
    "/proc/sys/user/max_pid_namespaces",
    "/proc/sys/user/max_net_namespaces",
    "/proc/sys/user/max_ipc_namespaces",
    "/proc/sys/user/max_uts_namespaces",
    "/proc/sys/user/max_cgroup_namespaces",
    "/proc/sys/user/max_time_namespaces",
];

/// Parts of `/proc` that are read-only even for uid 0.
pub(crate) const PROC_READ_ONLY: [&str; 6] = ["proc/sys", "proc/bus", "proc/fs", "proc/irq", "proc/driver", "proc/tty"];

/// Files of `/proc` that are covered by an empty one.
pub(crate) const PROC_MASKED_FILES: [&str; 32] = [
    "proc/sysrq-trigger",
    "proc/kcore",
    "proc/keys",
    "proc/key-users",
    "proc/kallsyms",
    "proc/kmsg",
    "proc/kpagecount",
    "proc/kpageflags",
    "proc/kpagecgroup",
    "proc/timer_list",
    "proc/sched_debug",
    "proc/latency_stats",
    "proc/interrupts",
    "proc/softirqs",
    "proc/iomem",
    "proc/ioports",
    "proc/slabinfo",
    "proc/vmallocinfo",
    "proc/pagetypeinfo",
    "proc/buddyinfo",
    "proc/zoneinfo",
    "proc/modules",
    "proc/config.gz",
    "proc/cmdline",
    "proc/diskstats",
    "proc/partitions",
    "proc/mtrr",
    "proc/dma",
    "proc/swaps",
    "proc/locks",
    "proc/schedstat",
    "proc/vmstat",
];

/// Folders of `/proc` that are covered by an empty one.
pub(crate) const PROC_MASKED_FOLDERS: [&str; 6] =
    ["proc/acpi", "proc/asound", "proc/scsi", "proc/pressure", "proc/dynamic_debug", "proc/mpt"];

/// Everything that PID 1 needs, made before the fork.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The child's end of the pair to the jail.
    pub(crate) jail: OwnedFd,
    /// The guest's end of the agent's stream.
    pub(crate) stream: OwnedFd,
    /// The delegated cgroup folder.
    pub(crate) cgroup: OwnedFd,
    /// Doors into the v1 groups.
    pub(crate) doors: Vec<OwnedFd>,
    /// PID 1's own filters.
    pub(crate) filters: &'a [Program],
    /// Arguments of the guest.
    pub(crate) arguments: &'a StringVector,
    /// Its empty environment.
    pub(crate) environment: &'a StringVector,
}

/// Becomes the guest. Returns only when that fails, having told the jail.
pub(crate) fn enter(plan: &Plan<'_>) -> u8 {
    let Err((step, errno)) = become_guest(plan);
    report(plan.jail.as_fd(), step, errno);
    1
}

fn become_guest(plan: &Plan<'_>) -> Result<std::convert::Infallible, Failure> {
    // Other cages' descriptors first, and the jail's ends of ours: that they close tells of the jail's death.
    let own = [plan.jail.as_fd(), plan.stream.as_fd(), plan.cgroup.as_fd()];
    let kept = own.into_iter().chain(plan.doors.iter().map(AsFd::as_fd));
    descriptors::close_all_but(3, kept).step("close the jail's descriptors")?;
    let mounts = receive_mounts(plan.jail.as_fd())?;
    for door in &plan.doors {
        rustix::io::write(door, b"0").map(drop).step("join the cgroups")?;
    }
    // After the groups were joined: they become the root of what the cage sees.
    namespace::unshare(UnshareFlags::NEWCGROUP).step("make a cgroup namespace")?;
    become_root(plan.jail.as_fd())?;
    namespace::bring_up_loopback().step("bring up the loopback interface")?;
    rustix::system::sethostname(b"sandbox").step("set the host name")?;
    build_root(&mounts)?;
    forbid_namespaces()?;
    enter_root(mounts.root.as_fd())?;
    limit_resources()?;
    drop_capabilities()?;
    start(plan)
}

/// Mounts that only the jail can make.
pub(crate) const HANDED: usize = 3 + COVERED.len();

/// They, as PID 1 receives them.
struct Mounts {
    root: OwnedFd,
    shm: OwnedFd,
    dev: OwnedFd,
    /// In the order of [`COVERED`].
    covers: [Option<OwnedFd>; COVERED.len()],
}

/// Waits for the user map, then for the mounts.
fn receive_mounts(jail: BorrowedFd<'_>) -> Result<Mounts, Failure> {
    let name = "receive the mounts";
    let mut byte = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(jail, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).step(name)?;
    if message.bytes != 1 {
        return Err((name, Errno::CONNRESET));
    }
    let mut mounts = [const { None }; HANDED];
    for entry in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = entry {
            for (slot, right) in mounts.iter_mut().zip(rights) {
                *slot = Some(right);
            }
        }
    }
    let [Some(root), Some(shm), Some(dev), covers @ ..] = mounts else {
        return Err((name, Errno::BADMSG));
    };
    Ok(Mounts { root, shm, dev, covers })
}

/// Becomes uid 0 of the cage, in a session of its own, dying with the jail.
fn become_root(jail: BorrowedFd<'_>) -> Result<(), Failure> {
    rustix::process::setsid().map(drop).step("begin a session")?;
    set_thread_groups(&[]).step("drop the groups")?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).step("become gid 0")?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).step("become uid 0")?;
    die_with_the_jail(jail).step("die with the jail")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    signal::reset().step("reset the signals")
}

/// Sets the cage's own namespace counts to nothing. After its mounts were made (detached ones count as namespaces),
/// while `/proc` is still the writable one of the jail.
fn forbid_namespaces() -> Result<(), Failure> {
    for path in NO_MORE {
        let name = "forbid further namespaces";
        let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).step(name)?;
        rustix::io::write(&file, b"0").map(drop).step(name)?;
    }
    Ok(())
}

fn build_root(mounts: &Mounts) -> Result<(), Failure> {
    let root = mounts.root.as_fd();
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step("make the mounts private")?;
    place(root, CWD, "/root").step("attach the root")?;
    place(&mounts.dev, root, "dev").step("mount /dev")?;
    let pts = fresh_pts().step("make the terminals")?;
    place(&pts, root, "dev/pts").step("mount /dev/pts")?;
    place(&mounts.shm, root, "dev/shm").step("mount /dev/shm")?;
    let proc = fresh("proc").step("make /proc")?;
    place(&proc, root, "proc").step("mount /proc")?;
    for path in PROC_READ_ONLY {
        present(read_only(root, path)).step("make parts of /proc read-only")?;
    }
    for path in PROC_MASKED_FILES {
        present(bind("/fixed/file", root, path)).step("mask files of /proc")?;
    }
    for path in PROC_MASKED_FOLDERS {
        present(bind("/fixed/folder", root, path)).step("mask folders of /proc")?;
    }
    for ((_, path), cover) in COVERED.iter().zip(&mounts.covers) {
        let step = "tell the cage of its machine";
        place(cover.as_ref().ok_or((step, Errno::BADMSG))?, root, *path).step(step)?;
    }
    bind("/fixed/agent", root, AGENT_PATH.trim_start_matches('/')).step("mount the agent")
}

fn fresh(kind: &str) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", kind)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, INERT)
}

/// A terminal instance of the cage's own; gid 5 is `tty` in Debian.
fn fresh_pts() -> Result<OwnedFd, Errno> {
    let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("source", "devpts"), ("mode", "0620"), ("ptmxmode", "0666"), ("gid", "5"), ("max", "256")] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Clones a mount of the jail's own root (whose read-only and other attributes are locked here) to `path`.
fn bind(from: &str, root: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    let clone = open_tree(CWD, from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    place(&clone, root, path)
}

/// Puts a read-only mount of a folder over itself.
fn read_only(root: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    let clone = open_tree(root, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let attributes = INERT | MountAttrFlags::MOUNT_ATTR_RDONLY;
    bailey_sys::mount::set_attributes(clone.as_fd(), attributes, false)?;
    place(&clone, root, path)
}

/// What this kernel does not have needs no cover.
fn present(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Makes the new root the root and makes sure that the old one is out of reach.
fn enter_root(root: BorrowedFd<'_>) -> Result<(), Failure> {
    let name = "enter the root";
    rustix::process::fchdir(root).step(name)?;
    rustix::process::pivot_root(".", ".").step(name)?;
    unmount(".", UnmountFlags::DETACH).step("let the old root go")?;
    rustix::process::chdir("/").step(name)?;
    let wanted = fstat(root).step("verify the root")?;
    for path in ["/", ".", "..", "/proc/1/root/."] {
        let found = stat(path).step("verify the root")?;
        if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino) {
            return Err(("verify the root", Errno::XDEV));
        }
    }
    Ok(())
}

/// Ceilings for the whole cage; each exec gets narrower ones.
fn limit_resources() -> Result<(), Failure> {
    const MIB: u64 = 1024 * 1024;
    let limits = [
        // One byte: no core file is that small, and no core handler of the host is started either.
        (Resource::Core, 1, 1),
        (Resource::Nofile, 1024, 1_048_576),
        (Resource::Memlock, 64 * 1024, 64 * 1024),
        (Resource::Stack, 8 * MIB, 64 * MIB),
        (Resource::Sigpending, 4096, 4096),
        (Resource::Msgqueue, 819_200, 819_200),
        (Resource::Nice, 0, 0),
        (Resource::Rtprio, 0, 0),
    ];
    for (resource, current, maximum) in limits {
        let ceiling = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(maximum);
        let limit = Rlimit { current: Some(ceiling.min(current)), maximum: Some(ceiling) };
        setrlimit(resource, limit).step("limit resources")?;
    }
    Ok(())
}

fn drop_capabilities() -> Result<(), Failure> {
    let name = "drop capabilities";
    for number in 0..64_u32 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if CAPABILITIES.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // Past the last one of this kernel.
            Err(Errno::INVAL) if number > 37 => break,
            other => other.step(name)?,
        }
    }
    let locks = CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(locks).step("lock the securebits")?;
    clear_ambient_capability_set().step(name)?;
    let sets = CapabilitySets { effective: CAPABILITIES, permitted: CAPABILITIES, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).step(name)
}

/// Arranges the descriptors, installs the filters and executes the guest.
fn start(plan: &Plan<'_>) -> Result<std::convert::Infallible, Failure> {
    let name = "arrange the descriptors";
    let agent = open(AGENT_PATH, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).step(name)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).step(name)?;
    // First out of the way of the low numbers, then down to them.
    let high = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 64).step(name);
    let [null, stream, cgroup] = [high(null.as_fd())?, high(plan.stream.as_fd())?, high(plan.cgroup.as_fd())?];
    let [jail, agent] = [high(plan.jail.as_fd())?, high(agent.as_fd())?];
    for number in 0..3 {
        descriptors::place(null.as_fd(), number).step(name)?;
    }
    descriptors::place(stream.as_fd(), STREAM_FD).step(name)?;
    descriptors::place(cgroup.as_fd(), CGROUP_FD).step(name)?;
    descriptors::close_all_but(CGROUP_FD.cast_unsigned() + 1, [jail.as_fd(), agent.as_fd()]).step(name)?;
    // From here on only what the filters allow. The two descriptors above vanish with a successful exec.
    let failure = match bailey_sys::seccomp::install(plan.filters).step("install the filters") {
        Ok(()) => ("execute the guest", execute(agent.as_fd(), plan.arguments, plan.environment)),
        Err(failure) => failure,
    };
    report(jail.as_fd(), failure.0, failure.1);
    // Every other descriptor is closed, so nothing may be dropped any more.
    std::mem::forget((null, stream, cgroup));
    Err(failure)
}

/// Tells the jail what failed. The jail may be gone: then nobody is left to tell.
fn report(jail: BorrowedFd<'_>, step: &str, errno: Errno) {
    let number = errno.raw_os_error().to_le_bytes();
    let parts = [IoSlice::new(&number), IoSlice::new(step.as_bytes())];
    sendmsg(jail, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL).ok();
}
