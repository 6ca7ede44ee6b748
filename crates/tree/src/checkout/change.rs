//! Making the checkout of one tree that of another: what is in both stays as it is.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use bailey_protocol::id::TreeId;
use gix_hash::ObjectId;
use rustix::fs::{AtFlags, Mode as Permissions};

use super::{FOLDER_FLAGS, Written, write_any};
use crate::error::TreeError;
use crate::merge::{beside, same};
use crate::object::{Tree, TreeItem, object_id};
use crate::objects::Objects;
use crate::store::Store;
use crate::{name, path};

/// By how much a checkout became larger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckoutGrowth {
    /// Files, links and folders.
    pub entries: i64,
    /// Bytes of files and links.
    pub bytes: i64,
}

impl Store {
    /// Whether [`Store::change_checkout`] would write and remove no more than `most` entries.
    ///
    /// # Errors
    /// When a tree is not there, or storage fails.
    pub fn is_near(&self, from: &TreeId, to: &TreeId, most: u64) -> Result<bool, TreeError> {
        let mut left = most;
        near(self.objects(), &object_id(from.as_str()), &object_id(to.as_str()), &mut left)
    }

    /// Entries of a checkout of that tree, without its own folder.
    ///
    /// # Errors
    /// When a tree is not there, or storage fails.
    pub fn checkout_entries(&self, tree: &TreeId) -> Result<u64, TreeError> {
        Ok(self.objects().extent(&object_id(tree.as_str()))?.entries)
    }

    /// Bytes of all files of a checkout of that tree.
    ///
    /// # Errors
    /// When a tree is not there, or storage fails.
    pub fn checkout_content(&self, tree: &TreeId) -> Result<u64, TreeError> {
        self.objects().content(&object_id(tree.as_str()), 0)
    }

    /// Makes `folder`, which is the checkout of `from` and which nobody uses meanwhile, that of `to`. Whatever is not as
    /// `from` says is an error.
    ///
    /// # Errors
    /// When a tree is not there, or storage fails: then the folder is neither, and good for nothing.
    pub fn change_checkout(&self, from: &TreeId, to: &TreeId, folder: &Path) -> Result<CheckoutGrowth, TreeError> {
        // Before the first byte, as for a new one.
        self.check_extent(to)?;
        self.check_content(&object_id(to.as_str()))?;
        let fail = TreeError::storage("opening", folder.display());
        let open = rustix::fs::open(folder, FOLDER_FLAGS, Permissions::empty()).map_err(|error| fail(error.into()))?;
        let mut change = Change { objects: self.objects(), grown: CheckoutGrowth::default() };
        change.folder(&object_id(from.as_str()), &object_id(to.as_str()), open.as_fd(), "", 0)?;
        Ok(change.grown)
    }
}

/// What differs between two folders under one name.
enum Differs<'t> {
    /// What is in the folders that both are.
    Below(&'t TreeItem, &'t TreeItem),
    /// One is in the place of the other, or of nothing, or nothing of it.
    Whole(Option<&'t TreeItem>, Option<&'t TreeItem>),
}

fn differences<'t>(from: &'t Tree, to: &'t Tree) -> impl Iterator<Item = Differs<'t>> {
    beside([from, to]).into_values().filter(|[old, new]| !same(*old, *new)).map(|[old, new]| match (old, new) {
        (Some(old), Some(new)) if old.mode.is_tree() && new.mode.is_tree() => Differs::Below(old, new),
        (old, new) => Differs::Whole(old, new),
    })
}

/// Counts what differs down from `left`, as long as there is something left.
fn near(objects: &Objects, from: &ObjectId, to: &ObjectId, left: &mut u64) -> Result<bool, TreeError> {
    let (from, to) = (objects.known_tree(from)?, objects.known_tree(to)?);
    for one in differences(&from, &to) {
        match one {
            Differs::Below(old, new) => {
                if !near(objects, &old.oid, &new.oid, left)? {
                    return Ok(false);
                }
            }
            Differs::Whole(old, new) => {
                for item in [old, new].into_iter().flatten() {
                    let below = if item.mode.is_tree() { objects.extent(&item.oid)?.entries } else { 0 };
                    match left.checked_sub(below.saturating_add(1)) {
                        Some(less) => *left = less,
                        None => return Ok(false),
                    }
                }
            }
        }
    }
    Ok(true)
}

struct Change<'a> {
    objects: &'a Objects,
    grown: CheckoutGrowth,
}

impl Change<'_> {
    fn folder(
        &mut self,
        from: &ObjectId,
        to: &ObjectId,
        folder: BorrowedFd<'_>,
        shown: &str,
        depth: usize,
    ) -> Result<(), TreeError> {
        let (from, to) = (self.objects.known_tree(from)?, self.objects.known_tree(to)?);
        for one in differences(&from, &to) {
            match one {
                Differs::Below(old, new) => {
                    let (below, shown) = enter(old, folder, shown)?;
                    self.folder(&old.oid, &new.oid, below.as_fd(), &shown, depth + 1)?;
                }
                Differs::Whole(old, new) => {
                    if let Some(old) = old {
                        self.remove(old, folder, shown)?;
                    }
                    if let Some(new) = new {
                        let Written { entries, bytes } = write_any(self.objects, new, folder, shown, depth)?;
                        self.grow(entries, bytes, 1);
                    }
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, item: &TreeItem, folder: BorrowedFd<'_>, shown: &str) -> Result<(), TreeError> {
        let real = name::unescape(&item.filename);
        if item.mode.is_tree() {
            let (below, shown) = enter(item, folder, shown)?;
            for item in &self.objects.known_tree(&item.oid)?.entries {
                self.remove(item, below.as_fd(), &shown)?;
            }
        }
        let flags = if item.mode.is_tree() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let look = rustix::fs::statat(folder, &*real, AtFlags::SYMLINK_NOFOLLOW);
        let gone = look.and_then(|look| rustix::fs::unlinkat(folder, &*real, flags).map(|()| look));
        let gone = gone.map_err(|error| TreeError::storage("removing", shown)(error.into()))?;
        let bytes = if item.mode.is_tree() { 0 } else { u64::try_from(gone.st_size).unwrap_or(0) };
        self.grow(1, bytes, -1);
        Ok(())
    }

    fn grow(&mut self, entries: u64, bytes: u64, sign: i64) {
        let of = |number: u64| i64::try_from(number).unwrap_or(i64::MAX).saturating_mul(sign);
        self.grown.entries = self.grown.entries.saturating_add(of(entries));
        self.grown.bytes = self.grown.bytes.saturating_add(of(bytes));
    }
}

/// A folder that is there, and how it is told.
fn enter(item: &TreeItem, folder: BorrowedFd<'_>, shown: &str) -> Result<(OwnedFd, String), TreeError> {
    let shown = path::join_display(shown, &item.filename);
    let fail = TreeError::storage("opening", &shown);
    let real = name::unescape(&item.filename);
    let open = rustix::fs::openat(folder, &*real, FOLDER_FLAGS, Permissions::empty());
    let open = open.map_err(|error| fail(error.into()))?;
    Ok((open, shown))
}
