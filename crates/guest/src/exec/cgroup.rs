//! A cgroup per exec, below the one folder that was delegated to the sandbox. Reached by descriptor only.
//!
//! A kernel in user space has none. A group is then nothing: what left its exec's session lives on until the stop.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// The delegated folder and the groups in it.
#[derive(Debug)]
pub struct Cgroups {
    folder: Option<Rc<OwnedFd>>,
    next: Cell<u64>,
    /// Made ahead, since making one takes longer than anything else at the start of an exec.
    spare: RefCell<Option<Group>>,
    /// Groups of ended execs with processes still in them.
    lingering: RefCell<Vec<Group>>,
}

/// One exec's group.
#[derive(Debug)]
pub struct Group(Option<Place>);

/// Where a group is.
#[derive(Debug)]
struct Place {
    name: String,
    folder: Rc<OwnedFd>,
    parent: Rc<OwnedFd>,
}

impl Cgroups {
    /// Takes the delegated folder.
    #[must_use]
    pub fn new(folder: Option<OwnedFd>) -> Self {
        Self {
            folder: folder.map(Rc::new),
            next: Cell::new(1),
            spare: RefCell::default(),
            lingering: RefCell::default(),
        }
    }

    /// The delegated folder.
    #[must_use]
    pub fn folder(&self) -> Option<BorrowedFd<'_>> {
        self.folder.as_ref().map(|folder| folder.as_fd())
    }

    /// Makes the next exec's group now. A failure shows when it is needed.
    pub fn prepare_spare(&self) {
        if self.spare.borrow().is_none() {
            *self.spare.borrow_mut() = self.make(self.folder.as_ref()).ok();
        }
    }

    /// An empty group.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn take(&self) -> Result<Group, Errno> {
        match self.spare.borrow_mut().take() {
            Some(group) => Ok(group),
            None => self.make(self.folder.as_ref()),
        }
    }

    /// An empty group inside another one, which is killed with it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn take_inside(&self, group: &Group) -> Result<Group, Errno> {
        self.make(group.0.as_ref().map(|place| &place.folder))
    }

    fn make(&self, parent: Option<&Rc<OwnedFd>>) -> Result<Group, Errno> {
        let Some(parent) = parent else {
            return Ok(Group(None));
        };
        let name = format!("exec-{}", self.next.get());
        self.next.set(self.next.get() + 1);
        rustix::fs::mkdirat(&**parent, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = rustix::fs::openat(&**parent, &name, flags, Mode::empty())?;
        Ok(Group(Some(Place { name, folder: Rc::new(folder), parent: Rc::clone(parent) })))
    }

    /// Removes the group once it is empty: now, or when its last process is reaped.
    pub fn retire(&self, group: Group) {
        match group.remove() {
            Some(group) => self.lingering.borrow_mut().push(group),
            // It may have been the last one inside another.
            None => self.sweep(),
        }
    }

    /// Tries again to remove the groups that were not empty. Called after processes were reaped.
    pub fn sweep(&self) {
        let mut lingering = self.lingering.borrow_mut();
        loop {
            let before = lingering.len();
            *lingering = std::mem::take(&mut *lingering).into_iter().filter_map(Group::remove).collect();
            // An outer group can go once its inner ones are gone, wherever they are in the list.
            if lingering.is_empty() || lingering.len() == before {
                return;
            }
        }
    }
}

impl Group {
    /// Whether a line of `/proc/PID/cgroup` is of a process in this group or in one inside it.
    #[must_use]
    pub fn holds(&self, line: &str) -> bool {
        let Some(place) = &self.0 else { return false };
        line.strip_prefix("0::").is_some_and(|path| path.split('/').any(|name| name == place.name))
    }

    /// Gives the group back if it is not empty.
    fn remove(self) -> Option<Self> {
        let place = self.0.as_ref()?;
        match rustix::fs::unlinkat(&*place.parent, &place.name, AtFlags::REMOVEDIR) {
            Err(Errno::BUSY) => Some(self),
            // Gone, or out of reach: trying again would not help.
            _ => None,
        }
    }

    /// The folder, for a child to be born in.
    #[must_use]
    pub fn folder(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|place| place.folder.as_fd())
    }

    /// Kills every process in the group, wherever it went: new sessions, orphans, stopped ones.
    ///
    /// # Errors
    /// When the kernel refuses; nothing is killed then.
    pub fn kill(&self) -> Result<(), Errno> {
        let place = self.0.as_ref().ok_or(Errno::NOSYS)?;
        let file = rustix::fs::openat(&*place.folder, "cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, b"1").map(|_written| ())
    }
}
