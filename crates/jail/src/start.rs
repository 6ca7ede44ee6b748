//! From the configuration to an empty fleet: everything that needs the host's own files happens here, once.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use bailey_crash::Point;
use bailey_protocol::id::TemplateDigest;
use bailey_protocol::jail::{JailFault, SERVER_UID, server_fd};
use bailey_sys::exec::StringVector;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, mkdirat, open, openat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

use crate::cage::facts::Machine;
use crate::cage::layers::Layers;
use crate::cage::park::Workshop;
use crate::cage::timens::HostTime;
use crate::cage::{claim, filter};
use crate::cgroup::ceiling::Ceiling;
use crate::cgroup::tree::Tree;
use crate::config::Told;
use crate::disks::{Disks, Driver};
use crate::fault::OrFault;
use crate::fleet::{Fleet, Images};
use crate::ledger::Ledger;
use crate::poller::{Poller, Source};
use crate::server::Server;
use crate::supervisor::Supervisor;
use crate::sweep::Traces;
use crate::template::Template;
use crate::wire::Connection;
use crate::{files, ground, host, server, sweep, template};

/// Signals that end the jail in an orderly way.
const SIGNALS: [i32; 3] = [1, 2, 15];

/// Makes everything ready.
///
/// # Errors
/// Names what is missing or wrong; nothing is left then.
pub(crate) fn start(told: &Told) -> Result<Supervisor, JailFault> {
    let config = &told.config;
    host::check()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).or_fence("hide the jail's memory")?;
    raise_descriptor_limit();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let node = match &config.server {
        Some(_) => None,
        None => Some(Connection::new(bailey_sys::descriptors::inherit(server_fd::JAIL).or_invalid("find the caller")?)),
    };
    let kept = node.iter().map(AsFd::as_fd);
    bailey_sys::descriptors::close_all_but(3, kept).or_fence("close inherited descriptors")?;
    let host_mounts = mount_namespace().or_fence("open the mount namespace")?;
    ground::leave_host_mounts()?;
    let (ledger, serve) = Ledger::open(&config.data)?;
    bailey_crash::point(Point::DataLocked);
    let slice_device = claim::device_of(&serve).or_internal("open the server's data folder")?;
    claim::verify_owners(&serve).or_fence("map the owners of the data folder")?;
    let step = "read the guest binary";
    let agent = ground::read_host_file(&config.guest_binary).or_fence(step)?;
    template::verify(agent.as_slice(), &config.guest_sha256, "verify the guest binary")?;
    let shared = shared_folder().or_internal("open /run/bailey")?;
    let uid_folder = files::open_folder(&shared, "uids").or_internal("open /run/bailey/uids")?;
    let groups = files::read(CWD, "/proc/self/cgroup").or_fence("find the cgroup controllers")?;
    let ceiling = Ceiling::of_host().or_fence("find the size of the host")?;
    let driver = config.large_disks.map(|_| Driver::find().or_fence("find the loop driver")).transpose()?;
    let templates = config.templates.iter().map(template::mount).collect::<Result<Vec<_>, _>>()?;
    let images = config.images.iter().map(template::mount).collect::<Result<Vec<_>, _>>()?;
    let gathered = config
        .server
        .as_ref()
        .map(|launch| server::root::gather(&launch.binary, launch.policies.as_deref(), &serve))
        .transpose()?;
    let (layout, sources) = gathered.unwrap_or_default();
    ground::build(&agent, (&templates, &images), &sources)?;
    let images = Images { templates: digests(templates), programs: digests(images) };
    bailey_crash::point(Point::RootBuilt);
    drop(agent);
    let mut tops = Vec::new();
    let opened = {
        let _lock = lock(&shared).or_internal("lock /run/bailey")?;
        Tree::open(&groups, ledger.id(), ceiling, &mut tops)
    };
    let traces = Traces { tops, ledger: ledger.id().to_owned(), shared };
    let furnished = opened.and_then(|tree| {
        furnish(told, Found { tree, ledger, uid_folder, host_mounts, slice_device, images, layout, node, driver })
    });
    match furnished {
        Ok((fleet, signals, server, node)) => {
            Ok(Supervisor { fleet, signals, server, node, traces, garbage: 0, ending: None })
        }
        Err(fault) => {
            traces.remove();
            Err(fault)
        }
    }
}

fn digests(images: Vec<Template>) -> BTreeSet<TemplateDigest> {
    images.into_iter().map(|image| image.digest).collect()
}

/// What the host's own files gave.
struct Found {
    tree: Tree,
    ledger: Ledger,
    uid_folder: OwnedFd,
    host_mounts: OwnedFd,
    slice_device: u64,
    images: Images,
    layout: server::root::Layout,
    node: Option<Connection>,
    driver: Option<Driver>,
}

/// The parts of a supervisor.
type Parts = (Fleet, OwnedFd, Option<Server>, Option<Connection>);

/// Everything after the cgroups.
fn furnish(told: &Told, found: Found) -> Result<Parts, JailFault> {
    let config = &told.config;
    let Found { tree, ledger, uid_folder, host_mounts, slice_device, images, layout, node, driver } = found;
    sweep::sweep(&tree)?;
    bailey_crash::point(Point::Swept);
    let disks = match config.large_disks.zip(driver) {
        Some((offer, driver)) => {
            Some(Disks::set_aside(offer, ledger.folder().or_internal("open the folder")?, driver)?)
        }
        None => None,
    };
    let poller = Poller::new().or_internal("wait for descriptors")?;
    let signals = bailey_sys::signal::as_descriptor(&SIGNALS).or_internal("take the signals")?;
    poller.add(&signals, Source::Signals).or_internal("wait for descriptors")?;
    if let Some(node) = &node {
        poller.add(node, Source::Node).or_internal("wait for descriptors")?;
    }
    let slice_owner = if config.server.is_some() { SERVER_UID } else { 0 };
    let mounts = mount_namespace().or_fence("open the mount namespace")?;
    let layers = Layers::choose(told.layers_by_path).or_fence("find out how layers are named")?;
    let shop = workshop(tree, layers, (mounts, host_mounts), slice_owner, slice_device)?;
    let filters = shop.init_filters.clone();
    let mut fleet = Fleet::new(shop, poller, ledger, images, (uid_folder, disks));
    fleet.take_chunk()?;
    let launch = config.server.clone();
    let server = launch.map(|launch| Server::new(launch, layout, filters)).transpose()?;
    if server.is_some() {
        // A preference: root without CAP_SYS_RESOURCE may not state it, and cages are preferred as victims anyway.
        files::write(CWD, "/proc/self/oom_score_adj", "-900").ok();
    }
    Ok((fleet, signals, server, node))
}

fn workshop(
    tree: Tree,
    layers: Layers,
    (mounts, node_mounts): (OwnedFd, OwnedFd),
    slice_owner: u32,
    slice_device: u64,
) -> Result<Workshop, JailFault> {
    let words = |words: &[&str]| {
        let strings = words.iter().map(|word| CString::new(*word)).collect::<Result<Vec<_>, _>>();
        strings.map(StringVector::new).or_internal("make the arguments")
    };
    Ok(Workshop {
        tree,
        machine: Machine::look().or_fence("look at the machine")?,
        time: HostTime::open().or_fence("open the time namespace")?,
        mounts,
        layers,
        node_mounts,
        slice_owner,
        slice_device,
        init_filters: filter::for_init().or_fence("compile the filters")?,
        sentry_filters: filter::sentry::filters().or_fence("compile the filters")?,
        vmm_filters: filter::vmm::filters().or_fence("compile the filters")?,
        collector_filters: filter::for_collector().or_fence("compile the filters")?,
        init_arguments: words(&["bailey-guest", "init"])?,
        collector_arguments: words(&["bailey-guest", "collect"])?,
        environment: words(&[])?,
    })
}

fn mount_namespace() -> Result<OwnedFd, Errno> {
    open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Every cage needs about a dozen descriptors.
fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // What cannot be raised is refused later, by the step that runs out.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

/// `/run/bailey`: what the jails of one host share.
fn shared_folder() -> Result<OwnedFd, Errno> {
    for path in ["/run/bailey", "/run/bailey/uids"] {
        match mkdirat(CWD, path, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    let folder = files::open_folder(CWD, "/run/bailey")?;
    let stat = rustix::fs::fstat(&folder)?;
    if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
        return Err(Errno::PERM);
    }
    Ok(folder)
}

/// Keeps jails that start and end at the same moment from removing each other's shared folders.
pub(crate) fn lock(shared: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = openat(shared, "lock", flags, Mode::from_raw_mode(0o600))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}
