//! Writes a tree's files to disk, as a run's mount needs them.
//!
//! Everything is made relative to a descriptor of a folder that this module itself has just made, and nothing that
//! exists is opened for writing, so that no link in the tree, and no name, leads anywhere else.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use bailey_protocol::id::TreeId;
use bailey_protocol::path::MAX_PATH_DEPTH;
use gix_hash::ObjectId;
use rustix::fs::{Mode as Permissions, OFlags};

use crate::blob::Blob;
use crate::blob_store::folder::temporary_name;
use crate::error::TreeError;
use crate::object::{Mode, TreeItem, object_id};
use crate::objects::Objects;
use crate::store::Store;
use crate::{name, path};

mod change;

pub use change::CheckoutGrowth;

impl Store {
    /// Writes the folder `tree` of this store to `dest`, which appears at once and whole: real names, files 0644 or
    /// 0755, folders 0755, links as links. Nothing happens when `dest` exists. Interrupted work is left beside `dest`
    /// under a name that starts with `tmp_`. Nothing is synced to disk: after a power cut a checkout may be there and
    /// hollow, so throw all of them away at start.
    ///
    /// # Errors
    /// When there is no such tree here, it is more than is written to disk, or storage fails.
    pub fn checkout(&self, tree: &TreeId, dest: &Path) -> Result<(), TreeError> {
        let id = object_id(tree.as_str());
        if self.objects().tree(&id)?.is_none() {
            return Err(TreeError::NotFound { path: id.to_string() });
        }
        if dest.symlink_metadata().is_ok() {
            return Ok(());
        }
        // Before the first byte: a few bytes of folders can be more files than any disk holds.
        self.check_extent(tree)?;
        self.check_content(&id)?;
        let parent = dest.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).map_err(TreeError::storage("creating", parent.display()))?;
        let temporary = parent.join(temporary_name());
        let written = self.write_out(&id, &temporary).and_then(|()| publish(&temporary, dest));
        if temporary.symlink_metadata().is_ok()
            && let Err(error) = std::fs::remove_dir_all(&temporary)
        {
            tracing::warn!(%error, folder = %temporary.display(), "a half-made checkout stays until the next start");
        }
        written
    }

    fn write_out(&self, tree: &ObjectId, folder: &Path) -> Result<(), TreeError> {
        let fail = |error: rustix::io::Errno| TreeError::storage("creating", folder.display())(error.into());
        rustix::fs::mkdir(folder, FOLDER).map_err(fail)?;
        let open = rustix::fs::open(folder, FOLDER_FLAGS, Permissions::empty()).map_err(fail)?;
        rustix::fs::fchmod(&open, FOLDER).map_err(fail)?;
        fill(self.objects(), tree, open.as_fd(), "", 0).map(drop)
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    entries: u64,
    bytes: u64,
}

impl Written {
    fn add(&mut self, more: Self) {
        self.entries += more.entries;
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

const FOLDER: Permissions = Permissions::from_bits_retain(0o755);
const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE_FLAGS: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Another thread may have been faster with the same tree.
fn publish(temporary: &Path, dest: &Path) -> Result<(), TreeError> {
    match std::fs::rename(temporary, dest) {
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => Ok(()),
        other => other.map_err(TreeError::storage("publishing", dest.display())),
    }
}

fn fill(
    objects: &Objects,
    tree: &ObjectId,
    folder: BorrowedFd<'_>,
    shown: &str,
    depth: usize,
) -> Result<Written, TreeError> {
    if depth > MAX_PATH_DEPTH {
        return Err(TreeError::corrupt(tree, "folders are nested deeper than any that is written here"));
    }
    let tree = objects.known_tree(tree)?;
    let mut written = Written::default();
    for item in &tree.entries {
        written.add(write_any(objects, item, folder, shown, depth)?);
    }
    Ok(written)
}

/// Writes a file, a link, or a folder with all below it.
fn write_any(
    objects: &Objects,
    item: &TreeItem,
    folder: BorrowedFd<'_>,
    shown: &str,
    depth: usize,
) -> Result<Written, TreeError> {
    let real = name::unescape(&item.filename);
    let shown = path::join_display(shown, &item.filename);
    name::check(&real).map_err(|rule| TreeError::corrupt(&shown, rule))?;
    let mut written = Written { entries: 1, bytes: 0 };
    if item.mode.is_tree() {
        let below = make_folder(folder, &real).map_err(TreeError::storage("creating", &shown))?;
        written.add(fill(objects, &item.oid, below.as_fd(), &shown, depth + 1)?);
    } else {
        written.bytes = write_item(objects, item, folder, &real, &shown)?;
    }
    Ok(written)
}

fn make_folder(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(parent, name, FOLDER)?;
    let open = rustix::fs::openat(parent, name, FOLDER_FLAGS, Permissions::empty())?;
    rustix::fs::fchmod(&open, FOLDER)?;
    Ok(open)
}

fn write_item(
    objects: &Objects,
    item: &TreeItem,
    folder: BorrowedFd<'_>,
    name: &[u8],
    shown: &str,
) -> Result<u64, TreeError> {
    let fail = |error: io::Error| TreeError::storage("writing", shown)(error);
    let mut content = Blob::new(item.oid, false, objects.open_file(&item.oid)?);
    if item.mode.kind() == Mode::Link {
        let mut target = Vec::new();
        io::Read::read_to_end(&mut content, &mut target).map_err(fail)?;
        let bytes = target.len() as u64;
        return rustix::fs::symlinkat(target, folder, name).map(|()| bytes).map_err(|error| fail(error.into()));
    }
    let mode = if item.mode.kind() == Mode::BlobExecutable { 0o755 } else { 0o644 };
    let mode = Permissions::from_bits_retain(mode);
    let file = rustix::fs::openat(folder, name, FILE_FLAGS, mode).map_err(|error| fail(error.into()))?;
    rustix::fs::fchmod(&file, mode).map_err(|error| fail(error.into()))?;
    let mut file = File::from(file);
    io::copy(&mut content, &mut file).map_err(fail)
}

#[cfg(test)]
mod tests;
