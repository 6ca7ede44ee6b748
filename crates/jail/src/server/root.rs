//! The server's root: the host's system folders, read-only, its data folder, its binary, and nothing else.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use bailey_protocol::jail::{JailFault, server_path};
use rustix::fs::{CWD, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};

use crate::fault::OrFault;
use crate::ground::{INERT, folder, fresh, place, tmpfs};

/// Folders of the host that a dynamically linked program needs.
const SYSTEM: [&str; 9] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "run/systemd/resolve"];

/// What the root is made of.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Names of folders that are mounted from `/server`.
    folders: Vec<&'static str>,
    /// System folders that are links on this host, such as `bin` to `usr/bin`.
    links: Vec<(&'static str, PathBuf)>,
}

/// Mounts to attach at `/server/{name}`.
pub(crate) type Sources = Vec<(&'static str, OwnedFd)>;

/// Opens everything on the host, before the jail leaves its root.
///
/// # Errors
/// When the binary or a folder cannot be opened.
pub(crate) fn gather(binary: &Path, policies: Option<&Path>, data: &OwnedFd) -> Result<(Layout, Sources), JailFault> {
    let mut layout = Layout::default();
    let mut sources = Sources::new();
    let read_only =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    for name in SYSTEM {
        let path = Path::new("/").join(name);
        if let Ok(target) = std::fs::read_link(&path) {
            layout.links.push((name, target));
        } else if path.is_dir() {
            let step = format!("open /{name}");
            let mount = clone_of(CWD, &path, true).or_fence(&step)?;
            bailey_sys::mount::set_attributes(mount.as_fd(), read_only, true).or_fence(&step)?;
            layout.folders.push(name);
            sources.push((shelf(name), mount));
        }
    }
    let step = "open the server's data folder";
    let own = clone_of(data, Path::new(""), false).or_fence(step)?;
    bailey_sys::mount::set_attributes(own.as_fd(), INERT, false).or_fence(step)?;
    sources.push(("data", own));
    let step = "open the server's binary";
    let program = clone_of(CWD, binary, false).or_fence(step)?;
    bailey_sys::mount::set_attributes(program.as_fd(), read_only, false).or_fence(step)?;
    sources.push(("program", program));
    if let Some(policies) = policies {
        let step = "open the folder of policies";
        let folder = clone_of(CWD, policies, false).or_fence(step)?;
        bailey_sys::mount::set_attributes(folder.as_fd(), read_only | MountAttrFlags::MOUNT_ATTR_NOEXEC, false)
            .or_fence(step)?;
        layout.folders.push("policies");
        sources.push(("policies", folder));
    }
    Ok((layout, sources))
}

/// Name of a system folder below `/server`.
fn shelf(name: &'static str) -> &'static str {
    if name == "run/systemd/resolve" { "resolve" } else { name }
}

fn clone_of(at: impl AsFd, path: &Path, recursive: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(at, path, flags)
}

/// Builds a fresh root at `/root` of the current mount namespace, which must be the server's own. Runs as PID 1 of
/// the server's pid namespace, before it gives up its rights.
pub(super) fn build(layout: &Layout) -> Result<OwnedFd, Errno> {
    let root = tmpfs(&[("mode", "0755"), ("size", "1m")], INERT)?;
    place(&root, CWD, "/root")?;
    for name in ["run", "run/systemd", "run/systemd/resolve", "data", "bailey", "proc", "dev", "tmp"] {
        folder(&root, name)?;
    }
    for name in &layout.folders {
        if !name.contains('/') {
            folder(&root, name)?;
        }
        bind(&format!("/server/{}", shelf(name)), &root, name)?;
    }
    for (name, target) in &layout.links {
        if !name.contains('/') {
            symlinkat(target.as_path(), &root, *name)?;
        }
    }
    bind("/server/data", &root, server_path::DATA.trim_start_matches('/'))?;
    let binary = server_path::BINARY.trim_start_matches('/');
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC;
    drop(rustix::fs::openat(&root, binary, flags, rustix::fs::Mode::from_raw_mode(0o444))?);
    bind("/server/program", &root, binary)?;
    bind("/dev", &root, "dev")?;
    place(fresh("proc", &[], INERT)?, &root, "proc")?;
    place(tmpfs(&[("mode", "1777"), ("size", "64m")], INERT)?, &root, "tmp")?;
    bailey_sys::mount::set_attributes(root.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, false)?;
    Ok(root)
}

fn bind(from: &str, root: &OwnedFd, path: &str) -> Result<(), Errno> {
    place(clone_of(CWD, Path::new(from), true)?, root, path)
}

/// The environment as `NAME=value`.
pub(super) fn assignments(environment: &[(String, String)]) -> impl Iterator<Item = OsString> {
    environment.iter().map(|(name, value)| OsString::from(format!("{name}={value}")))
}
