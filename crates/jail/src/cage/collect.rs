//! Starting a collector over a dead cage's writable slice.
//!
//! It runs in namespaces of its own with an empty root, as uid 0 of the cage's user namespace (so that it may read
//! what the code wrote, and nothing of the host), in the cage's cgroups, with one capability and a tight filter.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_crash::Point;
use bailey_protocol::guest::{COLLECT_LOWER_FD, COLLECT_MERGED_FD, COLLECT_OUT_FD, COLLECT_UPPER_FD};
use bailey_protocol::jail::JailFault;
use bailey_sys::exec::execute;
use bailey_sys::process::{Child, spawn};
use bailey_sys::{descriptors, namespace, signal};
use rustix::fs::{Mode, OFlags, RawDir, open, openat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, LinkNameSpaceType, Uid, UnshareFlags, clear_ambient_capability_set,
    move_into_link_name_space, remove_capability_from_bounding_set, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::Cage;
use super::disk::empty_root;
use super::park::{Workshop, spare_the_host};
use crate::fault::{Failure, OrFault, Step, attempt, invalid};
use crate::ground::place;

/// Made while still in the host's user namespace, so that the collector has no rights over them.
const NAMESPACES: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS);

/// Read everything, whatever its mode.
const CAPABILITIES: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// Steps of the child, each of which has an exit code of its own; the collector itself has those below.
const STEPS: [&str; 9] = [
    "collector: close the jail's descriptors",
    "collector: join the cgroups",
    "collector: make a cgroup namespace",
    "collector: enter the empty root",
    "collector: enter the user namespace",
    "collector: drop rights",
    "collector: arrange the descriptors",
    "collector: install the filters",
    "collector: execute the guest",
];
const FIRST_CODE: u8 = 100;

/// Tells the jail by the exit code at which step the child failed.
fn exit_code(step: &str) -> u8 {
    let position = STEPS.iter().position(|name| *name == step).unwrap_or(STEPS.len());
    u8::try_from(position).map_or(u8::MAX, |position| FIRST_CODE.saturating_add(position))
}

/// The step that an exit code tells of.
pub(crate) fn failed_step(code: i32) -> Option<&'static str> {
    let position = usize::try_from(code).ok()?.checked_sub(FIRST_CODE.into())?;
    STEPS.get(position).copied()
}

/// Everything that a collector needs, made before the fork.
struct Plan<'a> {
    shop: &'a Workshop,
    doors: Vec<OwnedFd>,
    userns: BorrowedFd<'a>,
    root: OwnedFd,
    null: OwnedFd,
    agent: OwnedFd,
    /// Output, upper, merged, lower.
    descriptors: [OwnedFd; 4],
}

/// Starts a collector; returns it and the read end of its output. Nothing where nothing was written: whatever changes
/// below a mount leaves an entry in the upper layer's root, and a process to look at none costs milliseconds.
///
/// # Errors
/// Names the step; no process is left then.
pub(crate) fn start(shop: &Workshop, cage: &Cage, mount: u32) -> Result<Option<(Child, OwnedFd)>, JailFault> {
    let step = "start a collector";
    let number = usize::try_from(mount).unwrap_or(usize::MAX);
    let slice = cage.parts.slices.get(number).ok_or_else(|| invalid(step, "there is no such mount"))?;
    let upper = slice.upper.as_ref().ok_or_else(|| invalid(step, "the mount is not writable"))?;
    if cage.collectors.iter().any(|(running, _)| *running == number) {
        return Err(invalid(step, "one is at work on this mount"));
    }
    if is_empty(&upper.upper).or_internal(step)? {
        return Ok(None);
    }
    let (output, input) = pipe_with(PipeFlags::CLOEXEC).or_internal(step)?;
    let readable = |folder: &OwnedFd| {
        openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).or_internal(step)
    };
    let agent_flags = OFlags::PATH | OFlags::CLOEXEC;
    let plan = Plan {
        shop,
        doors: cage.group.doors().or_fence("open the cgroups")?,
        userns: cage.parts.userns.as_fd(),
        root: empty_root().or_fence("make an empty root")?,
        null: open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).or_internal(step)?,
        agent: open("/fixed/agent", agent_flags, Mode::empty()).or_internal(step)?,
        descriptors: [input, readable(&upper.upper)?, readable(&slice.merged)?, readable(&slice.lower)?],
    };
    let work = || match become_collector(&plan) {
        Ok(never) => match never {},
        Err((step, _errno)) => exit_code(step),
    };
    let child = attempt("make the collector's namespaces", || spawn(NAMESPACES, work))?;
    bailey_crash::point(Point::CollectorForked);
    // It may have ended already.
    spare_the_host(&child).ok();
    Ok(Some((child, output)))
}

/// Whether a folder has no entry. The code is dead, so it stays as it is; its names are not looked at.
fn is_empty(folder: &OwnedFd) -> Result<bool, Errno> {
    let folder = openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = entries.next() {
        if ![c".", c".."].contains(&entry?.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn become_collector(plan: &Plan<'_>) -> Result<std::convert::Infallible, Failure> {
    let fds = plan.descriptors.iter().chain([&plan.root, &plan.null, &plan.agent]).chain(&plan.doors);
    let kept = fds.map(AsFd::as_fd).chain([plan.userns]);
    descriptors::close_all_but(3, kept).step("collector: close the jail's descriptors")?;
    for door in &plan.doors {
        rustix::io::writev(door, &[IoSlice::new(b"0")]).step("collector: join the cgroups")?;
    }
    namespace::unshare(UnshareFlags::NEWCGROUP).step("collector: make a cgroup namespace")?;
    enter_empty_root(&plan.root).step("collector: enter the empty root")?;
    let user = Some(LinkNameSpaceType::User);
    move_into_link_name_space(plan.userns, user).step("collector: enter the user namespace")?;
    drop_rights().step("collector: drop rights")?;
    let agent = arrange(plan).step("collector: arrange the descriptors")?;
    bailey_sys::seccomp::install(&plan.shop.collector_filters).step("collector: install the filters")?;
    let errno = execute(agent.as_fd(), &plan.shop.collector_arguments, &plan.shop.environment);
    Err(("collector: execute the guest", errno))
}

fn enter_empty_root(root: &OwnedFd) -> Result<(), Errno> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    place(root, rustix::fs::CWD, "/root")?;
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

fn drop_rights() -> Result<(), Errno> {
    rustix::process::setsid()?;
    set_thread_groups(&[])?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    signal::reset()?;
    for (resource, most) in [(Resource::Core, 1), (Resource::Memlock, 0), (Resource::Nice, 0), (Resource::Rtprio, 0)] {
        let ceiling = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(most);
        setrlimit(resource, Rlimit { current: Some(ceiling), maximum: Some(ceiling) })?;
    }
    for number in 0..64_u32 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if CAPABILITIES.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Err(Errno::INVAL) if number > 37 => break,
            other => other?,
        }
    }
    clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: CAPABILITIES, permitted: CAPABILITIES, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)
}

/// Puts every descriptor in its place; what is left to do is the agent's start.
fn arrange(plan: &Plan<'_>) -> Result<OwnedFd, Errno> {
    let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 64);
    let [out, upper, merged, lower] = &plan.descriptors;
    let (out, upper, merged, lower) = (high(out)?, high(upper)?, high(merged)?, high(lower)?);
    let (null, agent) = (high(&plan.null)?, high(&plan.agent)?);
    for number in 0..3 {
        descriptors::place(null.as_fd(), number)?;
    }
    descriptors::place(out.as_fd(), COLLECT_OUT_FD)?;
    descriptors::place(upper.as_fd(), COLLECT_UPPER_FD)?;
    descriptors::place(merged.as_fd(), COLLECT_MERGED_FD)?;
    descriptors::place(lower.as_fd(), COLLECT_LOWER_FD)?;
    descriptors::close_all_but(COLLECT_LOWER_FD.cast_unsigned() + 1, [agent.as_fd()])?;
    std::mem::forget((out, upper, merged, lower, null));
    Ok(agent)
}
