//! From the kernel's first program to a parked machine: modules, devices, hardening, a root to be parked in.
//!
//! The initramfs stays beneath the root, where nothing but PID 1's descriptors lead:
//!
//! ```text
//!  /init             this binary
//!  /modules/list     names of the files beside it, in the order in which they load
//!  /dev /proc /sys   whole ones; the machine's disks and its port are in /dev
//!  /template         the template's image
//!  /cgroup           the cgroup tree; `code` in it is for everything but PID 1
//!  /parked, /scratch what is written before the claim, and after it
//! ```

use std::io::Read;
use std::os::fd::OwnedFd;

use anyhow::Context;
use bailey_protocol::guest::PORT_NAME;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, mount_move};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Step;
use super::ground::{Connect, Ground, Kernel};
use super::root::{self, bind, ensure_folder, place};
use super::scratch::{Scratch, TAME, by_descriptor, fresh};
use crate::descriptor::Duplex;
use crate::exec::cgroup::Cgroups;

/// Looks for a device, and the time between two of them.
const LOOKS: u32 = 10_000;
const PAUSE_NS: i64 = 1_000_000;

/// Room for what is written before the claim.
const PARKED_BYTES: u64 = 64 * 1024 * 1024;
const PARKED_FILES: u64 = 16_384;

/// What the whole kernel is told once the modules are in: no more of them, no other kernel, no namespaces for code to
/// find its bugs with, no addresses, no messages, no filters of unprivileged code.
const SETTINGS: [(&str, &str); 8] = [
    ("kernel/modules_disabled", "1"),
    ("kernel/kexec_load_disabled", "1"),
    ("kernel/kptr_restrict", "2"),
    ("kernel/dmesg_restrict", "1"),
    ("kernel/unprivileged_bpf_disabled", "1"),
    ("kernel/perf_event_paranoid", "3"),
    ("kernel/core_pattern", "core"),
    ("user/max_user_namespaces", "0"),
];

/// Starts the machine.
///
/// # Errors
/// Names the step.
pub(super) fn boot() -> anyhow::Result<(Ground, Cgroups, Connect)> {
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let stage = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for name in ["dev", "proc", "sys", "template", "cgroup", "parked", "scratch", "root"] {
        ensure_folder(&stage, name).with_context(|| format!("make /{name}"))?;
    }
    for (kind, at, attributes) in
        [("proc", "proc", TAME), ("sysfs", "sys", TAME), ("devtmpfs", "dev", MountAttrFlags::MOUNT_ATTR_NOSUID)]
    {
        // The kernel may have mounted devices itself.
        let mount = fresh(kind, kind, &[], attributes).with_context(|| format!("make {kind}"))?;
        place(&mount, &stage, at).with_context(|| format!("mount {kind}"))?;
    }
    load_modules()?;
    let port = wait_for("its port", find_port)?;
    let disk = wait_for("the template's disk", || open_device("/dev/vda", OFlags::RDONLY))?;
    harden()?;
    let template = fresh("erofs", &by_descriptor(&disk), &[("ro", "")], TAME | MountAttrFlags::MOUNT_ATTR_RDONLY);
    let template = template.context("mount the template")?;
    place(&template, &stage, "template").context("attach the template")?;
    let agent = openat(CWD, "/init", OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let agent = agent.context("open the agent")?;
    let code = make_cgroup(&stage).context("make the cgroups")?;
    let cgroups = Cgroups::new(Some(code.try_clone()?));
    bailey_sys::namespace::bring_up_loopback().context("bring up the loopback interface")?;
    rustix::system::sethostname(b"sandbox").context("set the host name")?;
    raise_limits().context("raise PID 1's limits")?;
    let parked = Scratch::in_memory(PARKED_BYTES, PARKED_FILES).context("make the parked root's layer")?;
    place(&parked, &stage, "parked").context("attach the parked root's layer")?;
    let new = root::build(&template, &parked, &agent, "/root")?;
    enter(&new).step("enter the root")?;
    let kernel = Kernel { stage, template, agent, code };
    Ok((Ground::Kernel(kernel), cgroups, Box::new(move || Duplex::socket(port))))
}

/// The initramfs itself cannot be left by `pivot_root`: the new root is moved over it.
fn enter(root: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")
}

fn load_modules() -> anyhow::Result<()> {
    let list = std::fs::read_to_string("/modules/list").context("read the list of modules")?;
    for name in list.split_whitespace() {
        let load = || -> Result<(), Errno> {
            let file = openat(CWD, format!("/modules/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            match rustix::system::finit_module(&file, c"", 0) {
                // Built in, or named twice.
                Err(Errno::EXIST) => Ok(()),
                other => other,
            }
        };
        load().with_context(|| format!("load the module `{name}`"))?;
    }
    Ok(())
}

/// Devices appear some time after their driver.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    for _ in 0..LOOKS {
        if let Some(found) = look()? {
            return Ok(found);
        }
        // Nothing else is to be done meanwhile.
        rustix::event::poll(&mut [], Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: PAUSE_NS }))?;
    }
    anyhow::bail!("the machine did not get {what}")
}

/// The serial port that is the node's stream. It has its name some time after itself.
fn find_port() -> anyhow::Result<Option<OwnedFd>> {
    let Ok(ports) = std::fs::read_dir("/sys/class/virtio-ports") else {
        return Ok(None);
    };
    for port in ports {
        let port = port.context("list the ports")?;
        let name = std::fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == PORT_NAME {
            let device = format!("/dev/{}", port.file_name().display());
            return open_device(&device, OFlags::RDWR);
        }
    }
    Ok(None)
}

fn open_device(path: &str, access: OFlags) -> anyhow::Result<Option<OwnedFd>> {
    match openat(CWD, path, access | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
        Ok(device) => Ok(Some(device)),
        Err(Errno::NOENT | Errno::NXIO | Errno::NODEV) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("open {path}")),
    }
}

fn harden() -> anyhow::Result<()> {
    for (name, value) in SETTINGS {
        match std::fs::write(format!("/proc/sys/{name}"), value) {
            // A kernel without the part needs no setting for it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.with_context(|| format!("set {name}"))?,
        }
    }
    Ok(())
}

/// The group of everything but PID 1, with the controllers that limit it.
fn make_cgroup(stage: &OwnedFd) -> anyhow::Result<OwnedFd> {
    place(&fresh("cgroup2", "cgroup2", &[], TAME | MountAttrFlags::MOUNT_ATTR_NOEXEC)?, stage, "cgroup")?;
    std::fs::write("/cgroup/cgroup.subtree_control", "+memory +pids +cpu").context("turn the controllers on")?;
    let tree = openat(stage, "cgroup", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::mkdirat(&tree, "code", Mode::from_raw_mode(0o755))?;
    // A mount of its own, whose `..` leads nowhere.
    bind(&tree, "code", TAME | MountAttrFlags::MOUNT_ATTR_NOEXEC, &tree, "code")?;
    Ok(openat(&tree, "code", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// What an exec may be granted is never above what PID 1 has.
fn raise_limits() -> Result<(), Errno> {
    const MIB: u64 = 1024 * 1024;
    let limits = [(Resource::Nofile, 1024, 1_048_576), (Resource::Stack, 8 * MIB, 64 * MIB), (Resource::Core, 1, 1)];
    for (resource, current, maximum) in limits {
        setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })?;
    }
    // Processes are the cgroup's to count.
    let processes = getrlimit(Resource::Nproc);
    setrlimit(Resource::Nproc, Rlimit { current: None, maximum: None }).or_else(|errno| match processes.maximum {
        None => Ok(()),
        Some(_) => Err(errno),
    })
}

/// The whole of a small file of the kernel's.
pub(super) fn read(at: &OwnedFd, name: &str) -> Result<String, Errno> {
    let file = openat(at, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    let read = std::fs::File::from(file).take(64 * 1024).read_to_string(&mut text);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(text)
}
