//! Which paths differ between two versions, by name alone.

use std::ops::ControlFlow;

use bailey_protocol::id::VersionId;
use gix_hash::{Kind as HashKind, ObjectId};

use crate::diff::item_of;
use crate::error::TreeError;
use crate::merge::{beside, same};
use crate::name;
use crate::object::TreeItem;
use crate::objects::Objects;
use crate::store::Store;

impl Store {
    /// Shows `visit` each path, from the store's root and in its real bytes, at and below `inner` that is there on one
    /// side alone or is another file or link: of a folder that came or went itself and all below it, of one that is on
    /// both sides only what changed in it. Ends early when `visit` breaks.
    ///
    /// # Errors
    /// When a version is not here, or storage fails.
    pub fn changed_paths(
        &self,
        from: Option<&VersionId>,
        to: &VersionId,
        inner: &str,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        let old = item_of(self.find(&self.root_of(from)?, inner)?, inner);
        let new = item_of(self.find(&self.root_of(Some(to))?, inner)?, inner);
        let mut walk = Walk { objects: self.objects(), path: inner.as_bytes().to_vec(), visit };
        // Broken off or not: the visitor knows.
        let _ended = walk.compare(old.as_ref(), new.as_ref())?;
        Ok(())
    }
}

struct Walk<'a> {
    objects: &'a Objects,
    path: Vec<u8>,
    visit: &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>,
}

type Side<'t> = Option<&'t TreeItem>;

impl Walk<'_> {
    fn compare(&mut self, old: Side<'_>, new: Side<'_>) -> Result<ControlFlow<()>, TreeError> {
        if same(old, new) {
            return Ok(ControlFlow::Continue(()));
        }
        let folder = |side: Side<'_>| side.filter(|item| item.mode.is_tree()).map(|item| item.oid);
        let (old, new) = (folder(old), folder(new));
        if (old.is_none() || new.is_none()) && (self.visit)(&self.path).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let tree =
            |side: Option<ObjectId>| self.objects.known_tree(&side.unwrap_or(ObjectId::empty_tree(HashKind::Sha1)));
        let (old, new) = (tree(old)?, tree(new)?);
        for (stored, [old, new]) in beside([&*old, &*new]) {
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
