//! Which paths differ between two versions, by name alone.

use std::cell::Cell;
use std::ops::ControlFlow;

use bailey_protocol::api::EntryKind;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;
use gix_hash::{Kind as HashKind, ObjectId};

use crate::diff::item_of;
use crate::error::TreeError;
use crate::merge::{beside, same};
use crate::name;
use crate::object::TreeItem;
use crate::objects::Objects;
use crate::store::{Store, kind_of};

/// Takes a path, and what it is on the newer side, if it is there.
pub type PathVisitor<'a> = dyn FnMut(&[u8], Option<EntryKind>) -> ControlFlow<()> + 'a;

type ItemVisitor<'a> = dyn FnMut(&[u8], Option<&TreeItem>) -> ControlFlow<()> + 'a;

impl Store {
    /// Shows `visit` each path, from the store's root and in its real bytes, at and below `inner` that is there on one
    /// side alone or is another file or link: of a folder that came or went itself and all below it, of one that is on
    /// both sides only what changed in it. With each comes what it is in `to`, if it is there. Ends early when `visit`
    /// breaks.
    ///
    /// # Errors
    /// When a version is not here, or storage fails.
    pub fn changed_paths(
        &self,
        from: Option<&VersionId>,
        to: &VersionId,
        inner: &str,
        visit: &mut PathVisitor<'_>,
    ) -> Result<(), TreeError> {
        self.changed_paths_within(from, to, inner, &Cell::new(u64::MAX), visit)
    }

    /// The same, in as many steps as are left: each entry that is looked at is one, also where nothing changed. Ends early
    /// when none are.
    ///
    /// # Errors
    /// As [`Store::changed_paths`].
    pub fn changed_paths_within(
        &self,
        from: Option<&VersionId>,
        to: &VersionId,
        inner: &str,
        steps_left: &Cell<u64>,
        visit: &mut PathVisitor<'_>,
    ) -> Result<(), TreeError> {
        self.changed_items(from, to, inner, steps_left, &mut |path, now| visit(path, now.map(kind_of)))
    }

    /// The same, with what is there in `to` as it is stored.
    pub(crate) fn changed_items(
        &self,
        from: Option<&VersionId>,
        to: &VersionId,
        inner: &str,
        steps_left: &Cell<u64>,
        visit: &mut ItemVisitor<'_>,
    ) -> Result<(), TreeError> {
        let old = item_of(self.find(&self.root_of(from)?, inner)?, inner);
        let new = item_of(self.find(&self.root_of(Some(to))?, inner)?, inner);
        let mut walk = Walk { objects: self.objects(), path: bytes_of(inner).into_owned(), steps_left, visit };
        // Broken off or not: the visitor knows.
        let _ended = walk.compare(old.as_ref(), new.as_ref())?;
        Ok(())
    }
}

/// Takes steps of those that are left, or what is left where that is less. Whether some still are.
pub(crate) fn take(left: &Cell<u64>, steps: usize) -> bool {
    left.set(left.get().saturating_sub(steps as u64));
    left.get() > 0
}

struct Walk<'a, 'v> {
    objects: &'a Objects,
    path: Vec<u8>,
    steps_left: &'a Cell<u64>,
    visit: &'a mut ItemVisitor<'v>,
}

type Side<'t> = Option<&'t TreeItem>;

impl Walk<'_, '_> {
    fn compare(&mut self, old: Side<'_>, new: Side<'_>) -> Result<ControlFlow<()>, TreeError> {
        if same(old, new) {
            return Ok(ControlFlow::Continue(()));
        }
        let folder = |side: Side<'_>| side.filter(|item| item.mode.is_tree()).map(|item| item.oid);
        let now = new;
        let (old, new) = (folder(old), folder(new));
        if (old.is_none() || new.is_none()) && (self.visit)(&self.path, now).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let tree =
            |side: Option<ObjectId>| self.objects.known_tree(&side.unwrap_or(ObjectId::empty_tree(HashKind::Sha1)));
        let (old, new) = (tree(old)?, tree(new)?);
        let rows = beside([&*old, &*new]);
        // A folder has a step of its own: one may be read and be empty.
        if !take(self.steps_left, rows.len() + 1) {
            return Ok(ControlFlow::Break(()));
        }
        for (stored, [old, new]) in rows {
            let length = self.path.len();
            if length > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name::unescape(stored));
            let flow = self.compare(old, new)?;
            self.path.truncate(length);
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
