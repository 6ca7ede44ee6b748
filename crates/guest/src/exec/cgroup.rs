//! A cgroup per exec, below the one folder that was delegated to the sandbox. Reached by descriptor only.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// The delegated folder and the groups in it.
#[derive(Debug)]
pub struct Cgroups {
    folder: OwnedFd,
    next: Cell<u64>,
    /// Made ahead, since making one takes longer than anything else at the start of an exec.
    spare: RefCell<Option<Group>>,
    /// Groups of ended execs with processes still in them.
    lingering: RefCell<Vec<Group>>,
}

/// One exec's group.
#[derive(Debug)]
pub struct Group {
    name: String,
    folder: OwnedFd,
}

impl Cgroups {
    /// Takes the delegated folder.
    #[must_use]
    pub fn new(folder: OwnedFd) -> Self {
        Self { folder, next: Cell::new(1), spare: RefCell::default(), lingering: RefCell::default() }
    }

    /// The delegated folder.
    #[must_use]
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Makes the next exec's group now. A failure shows when it is needed.
    pub fn prepare_spare(&self) {
        if self.spare.borrow().is_none() {
            *self.spare.borrow_mut() = self.make().ok();
        }
    }

    /// An empty group.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn take(&self) -> Result<Group, Errno> {
        match self.spare.borrow_mut().take() {
            Some(group) => Ok(group),
            None => self.make(),
        }
    }

    fn make(&self) -> Result<Group, Errno> {
        let name = format!("exec-{}", self.next.get());
        self.next.set(self.next.get() + 1);
        rustix::fs::mkdirat(&self.folder, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = rustix::fs::openat(&self.folder, &name, flags, Mode::empty())?;
        Ok(Group { name, folder })
    }

    /// Removes the group once it is empty: now, or when its last process is reaped.
    pub fn retire(&self, group: Group) {
        if let Some(group) = self.remove(group) {
            self.lingering.borrow_mut().push(group);
        }
    }

    /// Tries again to remove the groups that were not empty. Called after processes were reaped.
    pub fn sweep(&self) {
        let lingering = std::mem::take(&mut *self.lingering.borrow_mut());
        let left: Vec<Group> = lingering.into_iter().filter_map(|group| self.remove(group)).collect();
        *self.lingering.borrow_mut() = left;
    }

    fn remove(&self, group: Group) -> Option<Group> {
        match rustix::fs::unlinkat(&self.folder, &group.name, AtFlags::REMOVEDIR) {
            Err(Errno::BUSY) => Some(group),
            // Gone, or out of reach: trying again would not help.
            _ => None,
        }
    }
}

impl Group {
    /// The folder, for a child to be born in.
    #[must_use]
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Kills every process in the group, wherever it went: new sessions, orphans, stopped ones.
    ///
    /// # Errors
    /// When the kernel refuses; nothing is killed then.
    pub fn kill(&self) -> Result<(), Errno> {
        let file = rustix::fs::openat(&self.folder, "cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, b"1").map(|_written| ())
    }
}
