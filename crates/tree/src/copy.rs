//! Copying, moving, making folders, and bringing back what a path was. Within a store all of it is by id: what is copied
//! is not read, whatever its size. Between two stores of one tenant the objects are copied, each once.

use std::collections::HashSet;

use bailey_protocol::change::NoticeReason;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;
use gix_hash::ObjectId;

use crate::blob::Blob;
use crate::commit::CommitMeta;
use crate::edits::Edits;
use crate::error::TreeError;
use crate::extent::{Extent, MAX_ENTRIES};
use crate::object::{Mode, TreeItem, encode_tree};
use crate::objects::Objects;
use crate::path;
use crate::room::Room;
use crate::staging::Staging;
use crate::store::{Found, Store, edit_error, parents_of};

/// Most entries that are copied from one store to another at once.
const MAX_FOREIGN: u64 = 2_000_000;

/// What to copy.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Where it is.
    pub store: &'a Store,
    /// When.
    pub version: &'a VersionId,
    /// Its path; empty for all of the store.
    pub inner: &'a str,
}

/// A file, link or folder that goes somewhere.
#[derive(Debug, Clone, Copy)]
struct Thing {
    mode: Mode,
    id: ObjectId,
    extent: Extent,
}

impl Store {
    /// Copies what is at `source` to `inner`, making folders on the way. A file or link replaces a file or link; a
    /// folder replaces nothing. Returns `base` when that changes nothing.
    ///
    /// # Errors
    /// When nothing is at `source`, something is in the way, the result would be deeper or larger than a tree may be,
    /// there is no such version, or storage fails.
    pub fn copy(
        &self,
        base: Option<&VersionId>,
        source: Source<'_>,
        inner: &str,
        meta: &CommitMeta,
    ) -> Result<VersionId, TreeError> {
        let root = self.root_of(base)?;
        let thing = source.thing()?;
        self.check_target(&root, inner, &thing)?;
        self.ensure()?;
        let mut staging = Staging::begin(self.objects())?;
        if source.store.id() != self.id() {
            if thing.extent.entries > MAX_FOREIGN {
                return Err(TreeError::TooMany { what: "entries of the folder", limit: MAX_FOREIGN });
            }
            let mut transfer = Transfer { from: source.store.objects(), staging: &mut staging, done: HashSet::new() };
            transfer.bring(thing.mode, &thing.id)?;
        }
        let mut edits = Edits::new(self.objects(), root);
        edits
            .put(&path::parse_inner(&bytes_of(inner))?, thing.mode, thing.id)
            .map_err(|fault| edit_error(fault, inner))?;
        self.finish(base, root, edits, staging, meta)
    }

    /// Moves what is at `from` to `inner`, as [`Store::copy`] would put it there.
    ///
    /// # Errors
    /// As [`Store::copy`], and when `inner` lies within `from`.
    pub fn rename(&self, base: &VersionId, from: &str, inner: &str, meta: &CommitMeta) -> Result<VersionId, TreeError> {
        if from.is_empty() {
            return Err(TreeError::InvalidPath { path: from.to_owned(), rule: "the root of a tree stays" });
        }
        let root = self.root_of(Some(base))?;
        let thing = Source { store: self, version: base, inner: from }.thing()?;
        if inner == from {
            return Ok(base.clone());
        }
        if inner.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(TreeError::WithinItself { path: inner.to_owned() });
        }
        self.check_target(&root, inner, &thing)?;
        let staging = Staging::begin(self.objects())?;
        let mut edits = Edits::new(self.objects(), root);
        edits.remove(&path::parse_inner(&bytes_of(from))?).map_err(|fault| edit_error(fault, from))?;
        edits
            .put(&path::parse_inner(&bytes_of(inner))?, thing.mode, thing.id)
            .map_err(|fault| edit_error(fault, inner))?;
        self.finish(Some(base), root, edits, staging, meta)
    }

    /// Makes a folder at `inner`, and those on the way. Returns `base` when it is there.
    ///
    /// # Errors
    /// When a file or link is there or on the way, there is no such base here, or storage fails.
    pub fn make_folder(
        &self,
        base: Option<&VersionId>,
        inner: &str,
        meta: &CommitMeta,
    ) -> Result<VersionId, TreeError> {
        let real = bytes_of(inner);
        let names = path::parse_inner(&real)?;
        let root = self.root_of(base)?;
        self.check_parents(&root, inner)?;
        if let Some(Found::File(_)) = self.find(&root, inner)? {
            return Err(TreeError::AlreadyExists { path: inner.to_owned() });
        }
        self.check_room(inner)?;
        self.ensure()?;
        let staging = Staging::begin(self.objects())?;
        let mut edits = Edits::new(self.objects(), root);
        edits.make_folder(&names).map_err(|fault| edit_error(fault, inner))?;
        self.finish(base, root, edits, staging, meta)
    }

    /// Makes `inner` what it was in the version `from`: whatever is there goes. Returns `base` when that changes nothing.
    ///
    /// # Errors
    /// When nothing was there, a file is on the way, there is no such version here, or storage fails.
    pub fn restore(
        &self,
        base: Option<&VersionId>,
        inner: &str,
        from: &VersionId,
        meta: &CommitMeta,
    ) -> Result<VersionId, TreeError> {
        let root = self.root_of(base)?;
        let thing = Source { store: self, version: from, inner }.thing()?;
        let real = bytes_of(inner);
        let names = path::parse_inner(&real)?;
        if names.is_empty() {
            return match base {
                Some(base) if thing.id == root => Ok(base.clone()),
                _ => Staging::begin(self.objects())?.commit(&thing.id, &parents_of(base), meta),
            };
        }
        self.check_parents(&root, inner)?;
        let staging = Staging::begin(self.objects())?;
        let mut edits = Edits::new(self.objects(), root);
        edits.put(&names, thing.mode, thing.id).map_err(|fault| edit_error(fault, inner))?;
        self.finish(base, root, edits, staging, meta)
    }

    fn finish(
        &self,
        base: Option<&VersionId>,
        root: ObjectId,
        edits: Edits<'_>,
        mut staging: Staging<'_>,
        meta: &CommitMeta,
    ) -> Result<VersionId, TreeError> {
        let tree = edits.apply(&mut staging)?;
        match base {
            Some(base) if tree == root => Ok(base.clone()),
            _ => staging.commit(&tree, &parents_of(base), meta),
        }
    }

    /// That `thing` may go to `inner`.
    fn check_target(&self, root: &ObjectId, inner: &str, thing: &Thing) -> Result<(), TreeError> {
        if inner.is_empty() {
            return Err(TreeError::InvalidPath { path: inner.to_owned(), rule: "the root of a tree stays" });
        }
        self.check_parents(root, inner)?;
        match self.find(root, inner)? {
            None => {}
            Some(Found::Folder(_)) => return Err(TreeError::AlreadyExists { path: inner.to_owned() }),
            Some(Found::File(_)) if thing.mode == Mode::Tree => {
                return Err(TreeError::AlreadyExists { path: inner.to_owned() });
            }
            Some(Found::File(_)) => {}
        }
        self.check_room(inner)?;
        if !thing.extent.fits(&Room::below(self.id(), inner)) {
            let rule = "what is below it would have a path of more than 4096 bytes or 256 names";
            return Err(TreeError::InvalidPath { path: inner.to_owned(), rule });
        }
        let entries = self.objects().extent(root)?.entries.saturating_add(thing.extent.entries);
        if entries > MAX_ENTRIES {
            return Err(TreeError::TooMany { what: "entries of the tree", limit: MAX_ENTRIES });
        }
        Ok(())
    }

    pub(crate) fn check_room(&self, inner: &str) -> Result<(), TreeError> {
        let rule = match Room::below(self.id(), "").refuses(&bytes_of(inner)) {
            None => return Ok(()),
            Some(NoticeReason::Reserved) => "`users` at a tenant's root is where users' own trees are",
            Some(_) => "use at most 4096 bytes and 256 names",
        };
        Err(TreeError::InvalidPath { path: inner.to_owned(), rule })
    }
}

impl Source<'_> {
    fn thing(&self) -> Result<Thing, TreeError> {
        let objects = self.store.objects();
        match self.store.find(&self.store.root_of(Some(self.version))?, self.inner)? {
            None => Err(TreeError::NotFound { path: self.inner.to_owned() }),
            Some(Found::Folder(id)) => Ok(Thing { mode: Mode::Tree, id, extent: objects.extent(&id)? }),
            Some(Found::File(item)) => {
                Ok(Thing { mode: item.mode.kind(), id: item.oid, extent: Extent { entries: 1, ..Extent::default() } })
            }
        }
    }
}

/// Brings objects of another store into a version in the making.
struct Transfer<'t, 'a> {
    from: &'a Objects,
    staging: &'t mut Staging<'a>,
    done: HashSet<ObjectId>,
}

impl Transfer<'_, '_> {
    fn bring(&mut self, mode: Mode, id: &ObjectId) -> Result<(), TreeError> {
        if !self.done.insert(*id) {
            return Ok(());
        }
        if mode != Mode::Tree {
            // Read and hashed anew: an id that is known here is no proof that this store has the bytes.
            let mut content = Blob::new(*id, false, self.from.open_file(id)?);
            return self.staging.add_file(content.len(), &mut content).map(drop);
        }
        let tree = self.from.known_tree(id)?;
        for TreeItem { mode, oid, .. } in &tree.entries {
            self.bring(mode.kind(), oid)?;
        }
        let (_tree, bytes) = encode_tree(tree.entries.clone())?;
        self.staging.add_encoded_tree(&bytes).map(drop)
    }
}
