//! The server from the fork to its program.

use std::ffi::{CString, NulError};
use std::fs::File;
use std::io::{IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use bailey_protocol::jail::{JailFault, SERVER_UID, ServerLaunch, server_fd, server_path};
use bailey_sys::exec::{StringVector, execute};
use bailey_sys::process::spawn;
use bailey_sys::{descriptors, namespace, signal};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open, openat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid, UnshareFlags, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::{Server, Started, root};
use crate::cgroup::detect::Controller;
use crate::cgroup::weight;
use crate::fault::{Failure, OrFault, Step};
use crate::fleet::Fleet;
use crate::parent::die_with_the_jail;
use crate::wire::Connection;
use crate::{files, ground};

/// The network stays the host's: the server answers clients on it.
const NAMESPACES: UnshareFlags =
    UnshareFlags::NEWNS.union(UnshareFlags::NEWPID).union(UnshareFlags::NEWIPC).union(UnshareFlags::NEWUTS);

/// The server's cgroup below the ledger's, so that a sweep finds it.
pub(crate) const GROUP: &str = "server";

/// Everything that the child needs, made before the fork.
struct Plan<'a> {
    server: &'a Server,
    door: OwnedFd,
    report: OwnedFd,
    jail: OwnedFd,
    config: OwnedFd,
}

/// Arguments and environment of the server.
pub(super) fn vectors(launch: &ServerLaunch) -> Result<(StringVector, StringVector), NulError> {
    let text = |text: &str| CString::new(text);
    let arguments = std::iter::once(text(server_path::BINARY)).chain(launch.args.iter().map(|word| text(word)));
    let environment = root::assignments(&launch.env).map(|entry| CString::new(entry.into_vec()));
    Ok((
        StringVector::new(arguments.collect::<Result<_, _>>()?),
        StringVector::new(environment.collect::<Result<_, _>>()?),
    ))
}

/// Forks the server.
pub(super) fn start(server: &Server, fleet: &Fleet) -> Result<Started, JailFault> {
    let step = "start the server";
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).or_internal(step)?;
    let (report, reported) = pipe_with(PipeFlags::CLOEXEC).or_internal(step)?;
    let home = &fleet.shop.tree.home;
    match ground::folder(home, GROUP) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno).or_internal("make the server's cgroup"),
    }
    if fleet.shop.tree.v2_has(Controller::Cpu) {
        // A sibling of the cages there: no number of tenants may keep it from answering.
        let step = "weigh the server";
        let group = files::open_folder(home, GROUP).or_fence(step)?;
        files::write(&group, "cpu.weight", &weight::SERVER.to_string()).or_fence(step)?;
    }
    let door = openat(home, format!("{GROUP}/cgroup.procs").as_str(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let plan = Plan {
        server,
        door: door.or_internal("make the server's cgroup")?,
        report: reported,
        jail: theirs,
        config: sealed(&server.launch.config).or_internal("write the server's configuration")?,
    };
    let child = spawn(NAMESPACES, || {
        let Err(failure) = become_server(&plan);
        tell(&plan.report, failure);
        1
    });
    let child = child.or_internal(step)?;
    // Worth more than any cage, less than the jail; a preference, see there.
    let score = format!("/proc/{}/oom_score_adj", child.pid.as_raw_nonzero());
    files::write(CWD, score.as_str(), "-500").ok();
    Ok(Started { child, report, connection: Connection::new(ours) })
}

/// A memfd that cannot change any more.
fn sealed(config: &serde_json::Value) -> Result<OwnedFd, std::io::Error> {
    let memfd = memfd_create("config", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut memfd = File::from(memfd);
    memfd.write_all(config.to_string().as_bytes())?;
    std::io::Seek::rewind(&mut memfd)?;
    fcntl_add_seals(&memfd, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(memfd.into())
}

fn become_server(plan: &Plan<'_>) -> Result<std::convert::Infallible, Failure> {
    let listener = &plan.server.listener;
    let kept = [listener, &plan.door, &plan.report, &plan.jail, &plan.config];
    descriptors::close_all_but(3, kept.map(AsFd::as_fd)).step("server: close the jail's descriptors")?;
    rustix::io::writev(&plan.door, &[IoSlice::new(b"0")]).step("server: join the cgroup")?;
    namespace::unshare(UnshareFlags::NEWCGROUP).step("server: make a cgroup namespace")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step("server: make the mounts private")?;
    let root = root::build(&plan.server.layout).step("server: build the root")?;
    enter_root(&root).step("server: enter the root")?;
    let program = open(server_path::BINARY, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let program = program.step("server: open the binary")?;
    drop_rights(plan.jail.as_fd()).step("server: drop rights")?;
    arrange(plan, &program)
}

fn enter_root(root: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

fn drop_rights(jail: BorrowedFd<'_>) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(SERVER_UID), Gid::from_raw(SERVER_UID));
    rustix::process::setsid()?;
    let files = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files })?;
    setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) })?;
    for number in 0..64_u32 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Err(Errno::INVAL) if number > 37 => break,
            other => other?,
        }
    }
    let root_is_nobody = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(root_is_nobody)?;
    clear_ambient_capability_set()?;
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    die_with_the_jail(jail)?;
    signal::reset()
}

/// Standard input is the null device; output and errors go where the jail's go.
fn arrange(plan: &Plan<'_>, program: &OwnedFd) -> Result<std::convert::Infallible, Failure> {
    let name = "server: arrange the descriptors";
    let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 64).step(name);
    let null = high(&open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).step(name)?)?;
    let (jail, listener, config) = (high(&plan.jail)?, high(&plan.server.listener)?, high(&plan.config)?);
    let program = high(program)?;
    // Closes with a successful exec, which is what the jail waits for.
    let report = high(&plan.report)?;
    descriptors::place(null.as_fd(), 0).step(name)?;
    descriptors::place(jail.as_fd(), server_fd::JAIL).step(name)?;
    descriptors::place(listener.as_fd(), server_fd::LISTENER).step(name)?;
    descriptors::place(config.as_fd(), server_fd::CONFIG).step(name)?;
    descriptors::close_all_but(server_fd::CONFIG.cast_unsigned() + 1, [program.as_fd(), report.as_fd()]).step(name)?;
    std::mem::forget((null, jail, listener, config));
    let failure = match bailey_sys::seccomp::install(&plan.server.filters).step("server: install the filters") {
        Ok(()) => {
            let errno = execute(program.as_fd(), &plan.server.arguments, &plan.server.environment);
            ("server: execute the binary", errno)
        }
        Err(failure) => failure,
    };
    tell(&report, failure);
    Err(failure)
}

/// Tells the jail what failed. The jail may be gone: then nobody is left to tell.
fn tell(report: &OwnedFd, (step, errno): Failure) {
    let reason = std::io::Error::from_raw_os_error(errno.raw_os_error());
    rustix::io::write(report, format!("{step}: {reason}").as_bytes()).ok();
}
