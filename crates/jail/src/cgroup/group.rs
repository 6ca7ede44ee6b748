//! One group: a folder of the same name in every hierarchy.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_protocol::jail::JailFault;
use bailey_protocol::limits::Limits;
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid, chownat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};

use super::detect::Controller;
use super::tree::Tree;
use super::weight;
use crate::fault::OrFault;
use crate::files;

/// CPU time is dealt out per this many microseconds.
const PERIOD_US: u64 = 100_000;
/// Groups that a guest may make below its own, and how deep.
const MAX_DESCENDANTS: &str = "4096";
const MAX_DEPTH: &str = "4";
/// Of a cage's memory, the part that its sockets may take on v1, where they are counted apart.
const SOCKET_SHARE: u64 = 8;

/// A cage's folders. Removing them is explicit: see [`Group::remove`].
#[derive(Debug)]
pub(crate) struct Group {
    name: String,
    v2: OwnedFd,
    /// In the order of [`Tree::v1`].
    v1: Vec<OwnedFd>,
    limits: Limits,
    /// The weight in force.
    weight: u32,
}

impl Group {
    /// Makes the folders and puts the limits in force.
    ///
    /// # Errors
    /// When one cannot be made or a limit cannot be set; nothing is left then.
    pub(crate) fn make(tree: &Tree, name: &str, limits: &Limits) -> Result<Self, JailFault> {
        let made = Self::make_folders(tree, name).or_internal("make the cgroups");
        let ready = made.and_then(|mut group| group.start_limits(tree, limits).map(|()| group));
        ready.inspect_err(|_fault| {
            Self::remove_named(tree, name).ok();
        })
    }

    fn make_folders(tree: &Tree, name: &str) -> Result<Self, Errno> {
        let v2 = make_folder(&tree.home, name)?;
        let v1 = tree.v1.iter().map(|hierarchy| make_folder(&hierarchy.home, name)).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), v2, v1, limits: Limits::default(), weight: 0 })
    }

    fn start_limits(&mut self, tree: &Tree, limits: &Limits) -> Result<(), JailFault> {
        files::write(&self.v2, "cgroup.max.descendants", MAX_DESCENDANTS).or_fence("bound the guest's cgroups")?;
        files::write(&self.v2, "cgroup.max.depth", MAX_DEPTH).or_fence("bound the guest's cgroups")?;
        if let Some(memory) = self.folder_of(tree, Controller::Memory) {
            // Absent where the kernel has no swap: then there is none to forbid.
            optional(files::write(memory, "memory.swappiness", "0")).or_fence("forbid swap")?;
        } else {
            optional(files::write(&self.v2, "memory.swap.max", "0")).or_fence("forbid swap")?;
            optional(files::write(&self.v2, "memory.zswap.max", "0")).or_fence("forbid zswap")?;
            files::write(&self.v2, "memory.oom.group", "1").or_fence("kill whole sandboxes for memory")?;
        }
        self.set_memory(tree, limits.memory_bytes, true)?;
        self.set_pids(tree, limits.pids)?;
        self.set_cpu(tree, limits.cpu_millis)?;
        self.set_weight(tree, weight::WHOLE)?;
        self.limits = *limits;
        Ok(())
    }

    /// Changes what differs from the limits in force, and tells whether anything did.
    ///
    /// # Errors
    /// When the kernel refuses a value.
    pub(crate) fn change_limits(&mut self, tree: &Tree, limits: &Limits) -> Result<bool, JailFault> {
        if limits.memory_bytes != self.limits.memory_bytes {
            self.set_memory(tree, limits.memory_bytes, limits.memory_bytes < self.limits.memory_bytes)?;
        }
        if limits.pids != self.limits.pids {
            self.set_pids(tree, limits.pids)?;
        }
        if limits.cpu_millis != self.limits.cpu_millis {
            self.set_cpu(tree, limits.cpu_millis)?;
        }
        let changed = self.limits != *limits;
        self.limits = *limits;
        Ok(changed)
    }

    /// On v1, memory alone may never exceed memory and swap together, so the order depends on the direction.
    fn set_memory(&self, tree: &Tree, bytes: u64, lower: bool) -> Result<(), JailFault> {
        let value = bytes.to_string();
        let step = "limit memory";
        let Some(memory) = self.folder_of(tree, Controller::Memory) else {
            return files::write(&self.v2, "memory.max", &value).or_fence(step);
        };
        let with_swap = || optional(files::write(memory, "memory.memsw.limit_in_bytes", &value)).or_fence(step);
        if !lower {
            with_swap()?;
        }
        files::write(memory, "memory.limit_in_bytes", &value).or_fence(step)?;
        if lower {
            with_swap()?;
        }
        // Until there is a limit, v1 does not count at all what waits in TCP and UDP sockets: it would be the host's,
        // and running out of it the host's network's. v2 counts it as memory.
        let sockets = (bytes / SOCKET_SHARE).to_string();
        files::write(memory, "memory.kmem.tcp.limit_in_bytes", &sockets).or_fence("limit the memory of sockets")
    }

    fn set_pids(&self, tree: &Tree, pids: u32) -> Result<(), JailFault> {
        let folder = self.folder_of(tree, Controller::Pids).unwrap_or(self.v2.as_fd());
        files::write(folder, "pids.max", &pids.to_string()).or_fence("limit processes")
    }

    fn set_cpu(&self, tree: &Tree, millis: u32) -> Result<(), JailFault> {
        let quota = u64::from(millis) * PERIOD_US / 1000;
        match self.folder_of(tree, Controller::Cpu) {
            Some(cpu) => files::write(cpu, "cpu.cfs_quota_us", &quota.to_string()),
            None => files::write(&self.v2, "cpu.max", &format!("{quota} {PERIOD_US}")),
        }
        .or_fence("limit CPU time")
    }

    /// Gives it another weight among its siblings.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn set_weight(&mut self, tree: &Tree, weight: u32) -> Result<(), JailFault> {
        if weight == self.weight {
            return Ok(());
        }
        match self.folder_of(tree, Controller::Cpu) {
            Some(cpu) => files::write(cpu, "cpu.shares", &weight::as_shares(weight).to_string()),
            None => files::write(&self.v2, "cpu.weight", &weight.to_string()),
        }
        .or_fence("weigh the cage")?;
        self.weight = weight;
        Ok(())
    }

    /// The v1 folder of a controller; nothing if the v2 tree carries it.
    pub(crate) fn folder_of(&self, tree: &Tree, controller: Controller) -> Option<BorrowedFd<'_>> {
        let at = tree.v1.iter().position(|hierarchy| hierarchy.has(controller))?;
        self.v1.get(at).map(AsFd::as_fd)
    }

    /// The folder in the v2 tree.
    pub(crate) fn v2(&self) -> BorrowedFd<'_> {
        self.v2.as_fd()
    }

    /// Descriptors by which a process can move itself into the folders (by writing `0`), whatever its rights. The v2
    /// one comes last.
    ///
    /// Not by `clone3`'s `CLONE_INTO_CGROUP`: it kills a process that starts in a group in which `cgroup.kill` was
    /// ever used *(seen on 6.18)*, as a collector does.
    pub(crate) fn doors(&self) -> Result<Vec<OwnedFd>, Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        self.v1.iter().chain([&self.v2]).map(|folder| openat(folder, "cgroup.procs", flags, Mode::empty())).collect()
    }

    /// A place of its own for the folder in the v2 tree, whose `..` leads nowhere, in which the guest's uid 0 may
    /// make groups and move its processes.
    pub(crate) fn delegate(&self, uid: u32) -> Result<OwnedFd, Errno> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)));
        chownat(&self.v2, "", uid, gid, AtFlags::EMPTY_PATH)?;
        chownat(&self.v2, "cgroup.procs", uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let place = open_tree(&self.v2, "", flags)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        bailey_sys::mount::set_attributes(place.as_fd(), attributes, false)?;
        Ok(place)
    }

    /// Kills every process of the group and of those below it.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        files::write(&self.v2, "cgroup.kill", "1")
    }

    /// Whether any process is left.
    pub(crate) fn is_populated(&self) -> Result<bool, Errno> {
        Ok(populated(&files::read(&self.v2, "cgroup.events")?))
    }

    /// Removes the folders.
    ///
    /// # Errors
    /// `EBUSY` while a process is left.
    pub(crate) fn remove(&self, tree: &Tree) -> Result<(), Errno> {
        Self::remove_named(tree, &self.name)
    }

    /// Removes the folders of that name in every hierarchy.
    pub(crate) fn remove_named(tree: &Tree, name: &str) -> Result<(), Errno> {
        for hierarchy in &tree.v1 {
            remove_folder(&hierarchy.home, name, 0)?;
        }
        remove_folder(&tree.home, name, 0)
    }
}

/// Whether `cgroup.events` speaks of living processes.
pub(crate) fn populated(events: &str) -> bool {
    !events.lines().any(|line| line == "populated 0")
}

/// Names of the folders below `dir`.
pub(crate) fn folders(dir: impl AsFd) -> Result<Vec<std::ffi::CString>, Errno> {
    let open = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(open)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() == rustix::fs::FileType::Directory && name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Removes a group's folder and those that a guest made in it.
pub(crate) fn remove_folder(at: impl AsFd, name: impl rustix::path::Arg + Copy, depth: u32) -> Result<(), Errno> {
    match unlinkat(&at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::BUSY) if depth < 16 => {}
        Err(errno) => return Err(errno),
    }
    let folder = files::open_folder(&at, name)?;
    for inner in folders(&folder)? {
        remove_folder(&folder, inner.as_c_str(), depth + 1)?;
    }
    match unlinkat(&at, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

fn make_folder(home: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    mkdirat(&home, name, Mode::from_raw_mode(0o755))?;
    files::open_folder(&home, name)
}

/// Files that a kernel may lack.
fn optional(written: Result<(), Errno>) -> Result<(), Errno> {
    match written {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::populated;

    #[test]
    fn only_a_clear_zero_counts_as_empty() {
        assert!(!populated("populated 0\nfrozen 0\n"));
        assert!(populated("populated 1\nfrozen 0\n"));
        assert!(populated(""));
        assert!(populated("populated 01\n"));
    }
}
