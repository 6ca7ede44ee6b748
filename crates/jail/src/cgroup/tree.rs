//! The hierarchies of this host, and the jail's folder `bailey/{ledger id}` in each.

use std::os::fd::{AsFd, OwnedFd};

use bailey_protocol::jail::{JailFault, JailFaultKind};
use rustix::fs::{CWD, Mode, mkdirat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen, move_mount,
};

use super::ceiling::Ceiling;
use super::detect::{self, Controller};
use crate::fault::{OrFault, fault};
use crate::files;

/// The folder that all ledgers of the host share.
const TOP: &str = "bailey";

/// One v1 hierarchy.
#[derive(Debug)]
pub(crate) struct V1 {
    /// Its controllers.
    pub(crate) controllers: Vec<String>,
    /// `bailey/{ledger id}` in it.
    pub(crate) home: OwnedFd,
}

impl V1 {
    /// Whether it carries the controller.
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.controllers.iter().any(|name| name == controller.name())
    }
}

/// Every hierarchy that cages have a folder in.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Those of version 1.
    pub(crate) v1: Vec<V1>,
    /// `bailey/{ledger id}` in the v2 tree.
    pub(crate) home: OwnedFd,
    /// `bailey` in the v2 tree.
    pub(crate) top: OwnedFd,
}

impl Tree {
    /// Whether the v2 tree carries the controller.
    pub(crate) fn v2_has(&self, controller: Controller) -> bool {
        !self.v1.iter().any(|hierarchy| hierarchy.has(controller))
    }

    /// Finds the hierarchies (`own` is the jail's `/proc/self/cgroup`), mounts them below `/cgroup` of the jail's own
    /// root and makes the ledger's folders, with limits for all cages together. Those that they are in, `bailey` in each hierarchy, go to `tops`, when it
    /// fails, too.
    ///
    /// # Errors
    /// Names what the host lacks.
    pub(crate) fn open(own: &str, ledger: &str, ceiling: Ceiling, tops: &mut Vec<OwnedFd>) -> Result<Self, JailFault> {
        let step = "find the cgroup controllers";
        let v2_root = mount("cgroup2", &[], "v2").or_fence("mount the cgroup v2 tree")?;
        let offered = files::read(&v2_root, "cgroup.controllers").or_fence(step)?;
        let layout = detect::layout(own, &offered).map_err(|missing| {
            let names = missing.join(", ");
            fault(JailFaultKind::Fence, step, format!("this host has no cgroup controller for {names}"))
        })?;
        let enable: Vec<String> = layout.v2.iter().map(|controller| format!("+{}", controller.name())).collect();
        let enable = enable.join(" ");
        let top = home(&v2_root, &[TOP], &enable).or_fence("make the cgroup v2 folder")?;
        tops.push(rustix::io::fcntl_dupfd_cloexec(&top, 3).or_internal("remember the cgroups")?);
        let home_v2 = home(&v2_root, &[TOP, ledger], &enable).or_fence("make the cgroup v2 folder")?;
        files::read(&home_v2, "cgroup.kill").map(drop).or_else(ignore_write_only).or_fence("find cgroup.kill")?;
        let mut v1 = Vec::new();
        for (number, controllers) in layout.v1.iter().enumerate() {
            let step = format!("mount the cgroup v1 hierarchy `{}`", controllers.join(","));
            let root = mount("cgroup", controllers, &format!("v1-{number}")).or_fence(&step)?;
            tops.push(home(&root, &[TOP], "").or_fence(&step)?);
            let home = home(&root, &[TOP, ledger], "").or_fence(&step)?;
            v1.push(V1 { controllers: controllers.clone(), home });
        }
        let tree = Self { v1, home: home_v2, top };
        tree.limit_all(ceiling)?;
        Ok(tree)
    }

    /// Limits what all cages may use together.
    fn limit_all(&self, ceiling: Ceiling) -> Result<(), JailFault> {
        let (memory, pids) = (ceiling.memory_bytes.to_string(), ceiling.pids.to_string());
        let v1 = |controller| self.v1.iter().find(|hierarchy| hierarchy.has(controller));
        match v1(Controller::Memory) {
            Some(V1 { home, .. }) => files::write(home, "memory.limit_in_bytes", &memory),
            None => files::write(&self.home, "memory.max", &memory),
        }
        .or_fence("limit the memory of all cages")?;
        // In the v2 tree the server is below the same folder: cages at their limit would keep it from starting threads.
        let Some(V1 { home, .. }) = v1(Controller::Pids) else { return Ok(()) };
        files::write(home, "pids.max", &pids).or_fence("limit the processes of all cages")
    }
}

/// `cgroup.kill` cannot be read; that it exists is enough.
fn ignore_write_only(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::NOENT { Err(errno) } else { Ok(()) }
}

/// Makes the folders one below the other, each handing the v2 controllers on to the next.
fn home(root: &OwnedFd, names: &[&str], enable: &str) -> Result<OwnedFd, Errno> {
    let mut at = rustix::io::fcntl_dupfd_cloexec(root, 3)?;
    for name in names {
        if !enable.is_empty() {
            files::write(&at, "cgroup.subtree_control", enable)?;
        }
        ensure_folder(&at, name)?;
        at = files::open_folder(&at, *name)?;
    }
    if !enable.is_empty() {
        files::write(&at, "cgroup.subtree_control", enable)?;
    }
    Ok(at)
}

/// Makes a folder unless it is there.
fn ensure_folder(at: impl AsFd, name: &str) -> Result<(), Errno> {
    match mkdirat(at, name, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Mounts a hierarchy at `/cgroup/{name}` and returns its root.
fn mount(kind: &str, controllers: &[String], name: &str) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for controller in controllers {
        fsconfig_set_flag(&context, controller.as_str())?;
    }
    fsconfig_set_string(&context, "source", "cgroup")?;
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let at = format!("/cgroup/{name}");
    ensure_folder(CWD, &at)?;
    move_mount(&mounted, "", CWD, at.as_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    files::open_folder(CWD, at.as_str())
}
