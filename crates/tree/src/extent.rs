//! How much a folder holds on all its levels. A folder that is in a tree many times is looked at once, so that a tree
//! of 2^40 paths made of forty folders is measured, and refused, as fast as it was made.

use bailey_protocol::id::TreeId;
use gix_hash::ObjectId;

use crate::cache::lock;
use crate::error::TreeError;
use crate::name;
use crate::object::object_id;
use crate::objects::Objects;
use crate::room::Room;
use crate::store::Store;

/// Most entries that one tree may get by copying, or by a push.
pub(crate) const MAX_ENTRIES: u64 = 10_000_000;
/// Most bytes of all files at all their paths that one tree may get by a push.
pub(crate) const MAX_CONTENT: u64 = 1 << 40;
/// Most entries of a folder that is written to disk: each takes an inode that others need, too.
const MAX_WRITTEN: u64 = 2_000_000;
/// Most bytes of its files.
const MAX_WRITTEN_BYTES: u64 = 64 << 30;
/// Deeper folders are not read. None that is written here is as deep.
const MAX_DEPTH: usize = 1000;

/// What a folder holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Files, links and folders.
    pub(crate) entries: u64,
    /// Most names of a path below it.
    pub(crate) names: usize,
    /// Bytes of the longest path below it.
    pub(crate) bytes: usize,
}

impl Store {
    /// That a folder is not too large to be written to disk. How much its files
    /// have is looked at when they are to be written.
    ///
    /// # Errors
    /// When it has too many entries, or cannot be read.
    pub fn check_extent(&self, folder: &TreeId) -> Result<(), TreeError> {
        if self.objects().extent(&object_id(folder.as_str()))?.entries > MAX_WRITTEN {
            return Err(TreeError::TooMany { what: "entries of a folder to mount", limit: MAX_WRITTEN });
        }
        Ok(())
    }

    /// That the files of a folder, at all their paths, are not too much to be written to disk.
    pub(crate) fn check_content(&self, folder: &ObjectId) -> Result<(), TreeError> {
        if self.objects().content(folder, 0)? > MAX_WRITTEN_BYTES {
            return Err(TreeError::TooLarge {
                what: "a folder to mount, with all its files",
                limit: MAX_WRITTEN_BYTES,
            });
        }
        Ok(())
    }
}

impl Objects {
    /// Bytes of all files at all their paths.
    pub(crate) fn content(&self, folder: &ObjectId, depth: usize) -> Result<u64, TreeError> {
        let key = self.key(folder);
        if let Some(known) = lock(&self.caches().contents).get(&key) {
            return Ok(known);
        }
        if depth > MAX_DEPTH {
            return Err(TreeError::corrupt(folder, "folders are nested deeper than any that is written here"));
        }
        let mut bytes = 0_u64;
        for item in &self.known_tree(folder)?.entries {
            bytes = bytes.saturating_add(if item.mode.is_tree() {
                self.content(&item.oid, depth + 1)?
            } else {
                self.file_size(&item.oid)?
            });
        }
        lock(&self.caches().contents).put(key, bytes, 1);
        Ok(bytes)
    }

    /// Measures a folder of this store.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn extent(&self, folder: &ObjectId) -> Result<Extent, TreeError> {
        self.extent_at(folder, 0)
    }

    fn extent_at(&self, folder: &ObjectId, depth: usize) -> Result<Extent, TreeError> {
        let key = self.key(folder);
        if let Some(known) = lock(&self.caches().extents).get(&key) {
            return Ok(known);
        }
        if depth > MAX_DEPTH {
            return Err(TreeError::corrupt(folder, "folders are nested deeper than any that is written here"));
        }
        let tree = self.known_tree(folder)?;
        let mut all = Extent::default();
        for item in &tree.entries {
            let own = name::unescape(&item.filename).len();
            let below = if item.mode.is_tree() { self.extent_at(&item.oid, depth + 1)? } else { Extent::default() };
            let path = if below.bytes == 0 { own } else { own.saturating_add(1).saturating_add(below.bytes) };
            all.entries = all.entries.saturating_add(1).saturating_add(below.entries);
            all.names = all.names.max(below.names.saturating_add(1));
            all.bytes = all.bytes.max(path);
        }
        lock(&self.caches().extents).put(key, all, 1);
        Ok(all)
    }
}

impl Extent {
    /// Whether all of it is still a path of the tree where `room` is.
    pub(crate) fn fits(&self, room: &Room) -> bool {
        self.bytes <= room.bytes && self.names <= room.names
    }
}
