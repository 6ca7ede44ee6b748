//! Listing, moving and removing.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::entry::{self, Entry, Names};
use super::path;
use crate::agent::connect::{Code, RpcError, invalid};
use crate::exec::identity::User;

/// Most entries of one answer.
const MAX_ENTRIES: usize = 65_536;
/// Deepest folder that is listed or removed.
const MAX_DEPTH: usize = 256;
/// Entries looked at before others get a turn.
const BATCH: usize = 256;

/// The entries of a folder and, down to `depth`, of its subfolders. Links are not followed, but at the start.
///
/// # Errors
/// When it is no folder, or there are too many entries.
pub async fn list(path: &str, depth: u32) -> Result<Vec<Entry>, RpcError> {
    let failed = |errno| RpcError::from_errno(errno, "list", path.as_bytes());
    let root = path::open(None, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
    let depth = usize::try_from(depth.max(1)).unwrap_or(MAX_DEPTH).min(MAX_DEPTH);
    let names = Names::read();
    let base = path.trim_end_matches('/').to_owned();
    let mut entries = Vec::new();
    // Each level's folder, path, and names still to be described, last one first.
    let mut levels = vec![(sorted_names(&root).map_err(failed)?, base, root)];
    while let Some((pending, base, folder)) = levels.last_mut() {
        let Some(name) = pending.pop() else {
            levels.pop();
            continue;
        };
        // What vanished meanwhile is not there.
        let Ok((file, stat)) = entry::open_entry(folder, &name) else {
            continue;
        };
        let child = format!("{base}/{name}");
        entries.push(entry::of(&name, child.clone(), &stat, &file, &names));
        if entries.len() > MAX_ENTRIES {
            let message = format!("more than {MAX_ENTRIES} entries; list a subfolder, or less deep");
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let next = if is_folder && levels.len() < depth { open_listed(levels.last(), &name) } else { None };
        if let Some(next) = next.and_then(|folder| Some((sorted_names(&folder).ok()?, child, folder))) {
            levels.push(next);
        }
        if entries.len().is_multiple_of(BATCH) {
            tokio::task::yield_now().await;
        }
    }
    Ok(entries)
}

fn open_listed(level: Option<&(Vec<String>, String, OwnedFd)>, name: &str) -> Option<OwnedFd> {
    let (_, _, folder) = level?;
    path::open(Some(folder), name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).ok()
}

/// Names that are UTF-8, last one first: others cannot be written in JSON, nor asked for.
fn sorted_names(folder: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Moves a file or folder; makes the folders that lead to the destination.
///
/// # Errors
/// When it is not there, or the move crosses a mount.
pub fn rename(source: &str, destination: &str, user: User) -> Result<(), RpcError> {
    let (from, from_name) = path::parent(source).map_err(|e| RpcError::from_errno(e, "move", source.as_bytes()))?;
    rustix::fs::statat(&from, from_name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| RpcError::from_errno(e, "move", source.as_bytes()))?;
    let failed = |errno| match errno {
        // Overlay says so, too, for a folder that the template has.
        Errno::XDEV => RpcError::new(Code::FailedPrecondition, format!("move `{source}`: copy it, it crosses a mount")),
        other => RpcError::from_errno(other, "move to", destination.as_bytes()),
    };
    let (to, to_name) = path::parent_made(destination, user).map_err(failed)?;
    rustix::fs::renameat(&from, from_name, &to, to_name).map_err(failed)
}

/// Removes a file, or a folder with all that is in it. What is not there is removed already.
///
/// # Errors
/// When something cannot be removed, or folders are nested too deep.
pub fn remove(path: &str) -> Result<(), RpcError> {
    let failed = |errno| RpcError::from_errno(errno, "remove", path.as_bytes());
    match path::parent(path) {
        Ok((folder, name)) => remove_tree(&folder, name.as_bytes(), MAX_DEPTH).map_err(failed),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(Errno::INVAL) => Err(invalid(format!("remove `{path}`: name a file or folder"))),
        Err(error) => Err(failed(error)),
    }
}

fn remove_tree(folder: &OwnedFd, name: &[u8], depth: usize) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let next = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&inner)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            remove_tree(&inner, name, next)?;
        }
    }
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)
}
