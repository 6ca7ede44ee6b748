//! Building a cage up to the moment where PID 1 builds its own root.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bailey_crash::Point;
use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::jail::{JailFault, Profile};
use bailey_protocol::limits::Limits;
use bailey_sys::exec::StringVector;
use bailey_sys::process::{Child, spawn_owned};
use bailey_sys::seccomp;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};
use rustix::thread::{Uid, UnshareFlags};

use super::disk::{Disk, Layer, idmapped};
use super::enter::{self, HANDED_TO_PROGRAM, Part, Plan, enter};
use super::facts::{self, Facts, Machine};
use super::layers::Layers;
use super::program::{Program, Running};
use super::timens::HostTime;
use super::{Cage, Parts, Phase, userns};
use crate::cgroup::detect::Controller;
use crate::cgroup::group::Group;
use crate::cgroup::tree::Tree;
use crate::fault::{OrFault, attempt};
use crate::uids::Base;
use crate::{files, ground};

/// Namespaces that PID 1 starts in; the cgroup namespace follows when it is in its groups, the time namespace comes
/// with the fork.
const NAMESPACES: UnshareFlags = UnshareFlags::NEWUSER
    .union(UnshareFlags::NEWNS)
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS);

/// The nodes of the `/dev` of a program that isolates by itself.
const PROGRAM_NODES: [(&str, u32, u32); 3] = [("null", 1, 3), ("zero", 1, 5), ("urandom", 1, 9)];

/// What all cages are built with.
#[derive(Debug)]
pub(crate) struct Workshop {
    /// The host's cgroups.
    pub(crate) tree: Tree,
    /// The host, as cages are told of it.
    pub(crate) machine: Machine,
    /// The jail's own time namespace.
    pub(crate) time: HostTime,
    /// The jail's own mount namespace.
    pub(crate) mounts: OwnedFd,
    /// How layers are named to this kernel.
    pub(crate) layers: Layers,
    /// The node's mount namespace, in which its descriptors of slices were opened.
    pub(crate) node_mounts: OwnedFd,
    /// Owner of slices on disk.
    pub(crate) slice_owner: u32,
    /// File system that slices lie on.
    pub(crate) slice_device: u64,
    /// PID 1's filters.
    pub(crate) init_filters: Vec<seccomp::Program>,
    /// Filters of a virtual machine monitor.
    pub(crate) vmm_filters: Vec<seccomp::Program>,
    /// Filters of a kernel in user space.
    pub(crate) sentry_filters: Vec<seccomp::Program>,
    /// A collector's filters.
    pub(crate) collector_filters: Vec<seccomp::Program>,
    /// Arguments of PID 1.
    pub(crate) init_arguments: StringVector,
    /// Arguments of a collector.
    pub(crate) collector_arguments: StringVector,
    /// The empty environment of both.
    pub(crate) environment: StringVector,
}

/// What `Park` or `Launch` asks for.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) request: u64,
    pub(crate) sandbox: SandboxId,
    pub(crate) what: What,
    pub(crate) limits: Limits,
    pub(crate) base: Base,
}

/// What is to be in a cage.
#[derive(Debug)]
pub(crate) enum What {
    /// The guest, on a template.
    Guest(TemplateDigest),
    /// A program that isolates by itself.
    Program(Box<Program>),
}

/// Builds a cage whose PID 1 goes on by itself, on a large disk if there is one for it. When a step fails, nothing is left.
///
/// # Errors
/// Names the step.
pub(crate) fn park(shop: &Workshop, order: Order, large: Option<OwnedFd>) -> Result<Cage, JailFault> {
    let group = Group::make(&shop.tree, order.sandbox.as_str(), &order.limits)?;
    bailey_crash::point(Point::GroupsMade);
    let mut child = None;
    match build(shop, (&order, large), &group, &mut child) {
        Ok(Built { parts, phase, program, oom }) => Ok(Cage {
            sandbox: order.sandbox,
            phase,
            program,
            share: None,
            base: order.base,
            group,
            init: child,
            collectors: Vec::new(),
            oom,
            ran_out_of_memory: false,
            processors: Vec::new(),
            parts,
        }),
        Err(fault) => {
            if let Some(child) = child {
                userns::end(&child);
            }
            // Empty now: its only process was waited for.
            group.remove(&shop.tree).or_internal("remove the cgroups of a failed cage")?;
            Err(fault)
        }
    }
}

/// The pieces of a cage whose PID 1 runs.
struct Built {
    parts: Parts,
    phase: Phase,
    program: Option<Running>,
    oom: Option<OwnedFd>,
}

fn build(
    shop: &Workshop,
    (order, large): (&Order, Option<OwnedFd>),
    group: &Group,
    child: &mut Option<Child>,
) -> Result<Built, JailFault> {
    let step = "connect PID 1";
    let (report, jail) = pair(SocketType::SEQPACKET).or_internal(step)?;
    let (part, stream) = part(shop, order, group)?;
    let plan = Plan { jail, doors: group.doors().or_fence("open the cgroups")?, part };
    let born = attempt("make the namespaces", || {
        shop.time.start_anew(|| spawn_owned(Uid::from_raw(order.base.0), NAMESPACES, || enter(&plan)))
    });
    let init = child.insert(born?);
    bailey_crash::point(Point::CageForked);
    userns::map_range(init.pid, order.base).or_fence("map the user ids")?;
    spare_the_host(init).or_fence("prefer the cage when the host runs out of memory")?;
    let userns = userns::open_user(init.pid).or_fence("open the user namespace")?;
    let disk = match large {
        Some(mount) => Disk::on_image(&shop.layers, mount, &order.limits),
        None => Disk::make(&shop.layers, &order.limits),
    };
    let disk = disk.or_fence("make the disk")?;
    let empty = disk.folder("empty", order.base.0 + userns::USER, 0o755).or_fence("make the empty layer")?;
    let (Root { root, scratch, dev }, executable) = match &order.what {
        What::Guest(template) => (guest_root(order.base, template, &disk, &userns)?, None),
        What::Program(program) => {
            let root = program_root(order.base, &program.image, &disk, (&empty, &userns))?;
            let executable = program.find(&root.root)?;
            (root, Some((program, executable)))
        }
    };
    let step = "tell the cage of its machine";
    let facts = Facts::make(&disk, order.base.0, &shop.machine, &order.limits).or_fence(step)?;
    let covers = facts::covers(&disk).or_fence(step)?;
    let mut handed: Vec<BorrowedFd<'_>> = [&root, &scratch, &dev].into_iter().chain(&covers).map(AsFd::as_fd).collect();
    let fence = match &executable {
        Some((program, executable)) if program.profile == Profile::Vmm => {
            Some(executable.fence(&root, &scratch, &dev).or_fence("make the fence around the program's paths")?)
        }
        _ => None,
    };
    handed.extend(
        executable.iter().map(|(_, executable)| executable.program.as_fd()).chain(fence.as_ref().map(AsFd::as_fd)),
    );
    hand_over(&report, &handed).or_internal("hand over the mounts")?;
    bailey_crash::point(Point::MountsHandedOver);
    let (slice_userns, program) = match &executable {
        None => {
            let map = userns::for_slices(shop.slice_owner, order.base).or_fence("map the owners of slices")?;
            (Some(map), None)
        }
        Some((program, executable)) => {
            (None, Some(program.remember(&executable.program).or_internal("remember the program")?))
        }
    };
    let oom = watch_memory(shop, group).or_fence("watch the memory")?;
    let parts = Parts { disk, facts, empty, root, userns, slice_userns, mounts: None, slices: Vec::new() };
    Ok(Built { parts, phase: Phase::Building { request: order.request, report, stream }, program, oom })
}

/// What PID 1 is to become, and the host's end of the guest's stream.
fn part<'a>(shop: &'a Workshop, order: &'a Order, group: &Group) -> Result<(Part<'a>, Option<OwnedFd>), JailFault> {
    match &order.what {
        What::Guest(_) => {
            let (stream, guest_stream) = pair(SocketType::STREAM).or_internal("connect PID 1")?;
            let plan = enter::guest::Plan {
                stream: guest_stream,
                cgroup: group.delegate(order.base.0).or_fence("delegate the cgroup")?,
                filters: &shop.init_filters,
                arguments: &shop.init_arguments,
                environment: &shop.environment,
            };
            Ok((Part::Guest(plan), Some(stream)))
        }
        What::Program(program) => {
            let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
            let plan = enter::program::Plan {
                null: null.or_internal("connect PID 1")?,
                words: rustix::io::fcntl_dupfd_cloexec(&program.words, 3).or_internal("connect PID 1")?,
                descriptors: &program.descriptors,
                open_files: order.limits.open_files.into(),
                profile: program.profile,
                filters: match program.profile {
                    Profile::Vmm => &shop.vmm_filters,
                    Profile::Sentry => &shop.sentry_filters,
                },
                arguments: &program.arguments,
                environment: &shop.environment,
            };
            Ok((Part::Program(plan), None))
        }
    }
}

/// Mounts that make a root.
struct Root {
    root: OwnedFd,
    /// What can be written beside it.
    scratch: OwnedFd,
    dev: OwnedFd,
}

fn guest_root(base: Base, template: &TemplateDigest, disk: &Disk, userns: &OwnedFd) -> Result<Root, JailFault> {
    let path = format!("/templates/{template}");
    let lower = idmapped(CWD, &path, userns.as_fd()).or_fence("map the template's owners")?;
    let upper = disk.upper("root", base.0).or_fence("make the root's layers")?;
    let root = disk.overlay(&lower, Layer::Writable(&upper)).or_fence("make the root")?;
    drop(disk.folder("shm", base.0, 0o1777).or_fence("make the shared memory")?);
    let scratch = disk.mount_of("shm").or_fence("make the shared memory")?;
    let dev = ground::devices(&ground::NODES).or_fence("make the devices")?;
    Ok(Root { root, scratch, dev })
}

/// The image, below an otherwise empty layer with the places for mounts: so its files are the cage's own to lock and
/// to watch, and their content is the host's once.
fn program_root(
    base: Base,
    image: &TemplateDigest,
    disk: &Disk,
    (empty, userns): (&OwnedFd, &OwnedFd),
) -> Result<Root, JailFault> {
    let path = format!("/images/{image}");
    let lower = idmapped(CWD, &path, userns.as_fd()).or_fence("map the image's owners")?;
    for (name, mode) in [("dev", 0o755), ("proc", 0o755), ("tmp", 0o755), ("sealed", 0o700), ("sealed/proc", 0o700)] {
        drop(disk.folder(&format!("empty/{name}"), base.0, mode).or_fence("make the places for mounts")?);
    }
    let root = disk.overlay(&lower, Layer::Empty(empty)).or_fence("make the program's root")?;
    drop(disk.folder("tmp", base.0 + userns::USER, 0o700).or_fence("make the program's /tmp")?);
    let scratch = disk.mount_of("tmp").or_fence("make the program's /tmp")?;
    let dev = ground::devices(&PROGRAM_NODES).or_fence("make the program's devices")?;
    Ok(Root { root, scratch, dev })
}

fn pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

/// When the host itself runs out of memory, cages go first.
pub(super) fn spare_the_host(child: &Child) -> Result<(), Errno> {
    let path = format!("/proc/{}/oom_score_adj", child.pid.as_raw_nonzero());
    files::write(CWD, path.as_str(), "800")
}

fn hand_over(report: &OwnedFd, mounts: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED_TO_PROGRAM))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(mounts)) {
        return Err(Errno::INVAL);
    }
    sendmsg(report, &[IoSlice::new(b"g")], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// On v1 the kernel kills one process for memory, not the group; this tells the jail, which kills the rest.
fn watch_memory(shop: &Workshop, group: &Group) -> Result<Option<OwnedFd>, Errno> {
    let Some(memory) = group.folder_of(&shop.tree, Controller::Memory) else {
        return Ok(None);
    };
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = openat(memory, "memory.oom_control", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let line = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
    files::write(memory, "cgroup.event_control", &line)?;
    Ok(Some(event))
}
