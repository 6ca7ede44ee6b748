//! A finished system around PID 1: gVisor, whose kernel is a program on the host and has mounted root, `/proc` and `/dev`.
//!
//! Its clock and its random numbers are the host's, and it is no copy of another one. It has the old way to mount only,
//! no cgroups (the host's hold for all of it), and tells of no boot. `/mnt` of the first root is where all of the scratch
//! space is; the root that the claim makes lies there too, so that no path in it leads out.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use bailey_protocol::limits::Limits;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chownat, fchown, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind};

use super::ground::{Connect, Ground};
use super::root::ensure_folder;
use super::scratch::{Scratch, Upper, by_descriptor};
use super::{MachineError, Step};
use crate::descriptor::Duplex;
use crate::exec::cgroup::Cgroups;
use crate::exec::identity::User;

const TAME: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Where the scratch space is, and in it what is mounted.
const SCRATCH: &str = "/mnt";
const SLICES: &str = "/mnt/slices";
const ROOT: &str = "/mnt/next";

/// The user's home, from the root.
const HOME: &str = "home/user";

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The system, which keeps nothing open.
#[derive(Debug)]
pub(super) struct Given;

/// Takes standard input and output over as the node's stream.
///
/// # Errors
/// When one is missing.
pub(super) fn start() -> anyhow::Result<(Ground, Cgroups, Connect)> {
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    let connect: Connect = Box::new(move || Duplex::pair(input, output));
    Ok((Ground::Given(Given), Cgroups::new(None), connect))
}

impl Given {
    pub(super) fn furnish(&self, limits: &Limits) -> Result<Scratch, MachineError> {
        let size = format!("size={},mode=0755", limits.disk_bytes);
        attach("tmpfs", SCRATCH, TAME, &size).step("make the scratch space")?;
        for place in [SLICES, ROOT] {
            mkdirat(CWD, place, Mode::from_raw_mode(0o755)).step("make the scratch space")?;
        }
        // A file system of its own, so that slices take no room from what the code writes.
        attach("tmpfs", SLICES, TAME, "mode=0755").step("make the space for slices")?;
        let scratch = Scratch::attached(open(SCRATCH).step("open the scratch space")?, open(SLICES).step("open it")?);
        let upper = scratch.upper("root", 0).step("make the root's layer")?;
        let first = open("/").step("open the first root")?;
        let layers = writable(&first, &upper);
        attach("overlay", ROOT, TAME, &layers).step("make the root")?;
        let root = open(ROOT).step("open the root")?;
        for name in ["dev", "proc", "run", "run/bailey", "tmp"] {
            ensure_folder(&root, name).step("make the root's folders")?;
        }
        give_home(&root).step("give the user its home")?;
        attach("proc", "/mnt/next/proc", TAME | MountFlags::NOEXEC, "").step("mount /proc")?;
        scratch.folder("shm", 0, 0o1777).step("make /dev/shm")?;
        for (from, at) in [("/dev", "dev"), ("/dev/pts", "dev/pts"), ("/mnt/shm", "dev/shm")] {
            mount_bind(from, format!("{ROOT}/{at}")).step("mount /dev")?;
        }
        rustix::process::fchdir(&root).step("enter the root")?;
        rustix::process::chroot(".").step("enter the root")?;
        rustix::process::chdir("/").step("enter the root")?;
        Ok(scratch)
    }

    /// Mounts a slice at a folder that is there; what the code sees of it.
    pub(super) fn mount_slice(
        &self,
        (scratch, name): (&Scratch, &str),
        (lower, upper): (&OwnedFd, Option<&Upper>),
        at: &str,
    ) -> Result<OwnedFd, Errno> {
        // No code has run that could have put a link there since it was looked at.
        let target = format!("/{at}");
        match upper {
            Some(upper) => attach("overlay", &target, TAME, &writable(lower, upper))?,
            None => {
                // The user's, as what is mounted is: that it cannot be written to is the mount's doing.
                let owner = User::User.ids().0.as_raw();
                let empty = scratch.folder(&format!("{name}-empty"), owner, 0o755)?;
                let layers = format!("lowerdir={}:{}", by_descriptor(&empty), by_descriptor(lower));
                attach("overlay", &target, TAME | MountFlags::RDONLY, &layers)?;
            }
        }
        open(&target)
    }

    /// Whether anything may be left.
    pub(super) fn kill_all(&self) -> Result<bool, Errno> {
        bailey_sys::signal::kill_all_others()
    }
}

/// Who starts such a kernel without rights has one user on the host, which all of the template belongs to then: nobody's
/// home would be the user's. What a template may have there is a few small files.
fn give_home(root: &OwnedFd) -> Result<(), Errno> {
    let (uid, gid) = User::User.ids();
    let home = match openat(root, HOME, FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        home => home?,
    };
    fchown(&home, Some(uid), Some(gid))?;
    let mut folders = vec![home];
    while let Some(folder) = folders.pop() {
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            chownat(&folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            match openat(&folder, name, FOLDER, Mode::empty()) {
                Ok(inner) => folders.push(inner),
                Err(Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

fn writable(lower: &OwnedFd, upper: &Upper) -> String {
    let [upper, work] = [by_descriptor(&upper.upper), by_descriptor(&upper.work)];
    format!("lowerdir={},upperdir={upper},workdir={work}", by_descriptor(lower))
}

fn attach(kind: &str, at: &str, flags: MountFlags, options: &str) -> Result<(), Errno> {
    let options = CString::new(options).map_err(|_nul| Errno::INVAL)?;
    mount(kind, at, kind, flags, Some(&*options))
}

fn open(path: &str) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
