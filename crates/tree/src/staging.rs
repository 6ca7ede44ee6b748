//! One version in the making: new objects go to one pack, which becomes visible as a whole or not at all.

use std::io::Read;

use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::commit::{self, CommitMeta};
use crate::error::TreeError;
use crate::ledger::Room;
use crate::object::{self, Kind, TreeItem};
use crate::objects::Objects;
use crate::pack::writer::PackWriter;

#[derive(Debug)]
pub(crate) struct Staging<'a> {
    objects: &'a Objects,
    pack: PackWriter,
}

impl<'a> Staging<'a> {
    pub(crate) fn begin(objects: &'a Objects) -> Result<Self, TreeError> {
        Self::within(objects, Room::Quota)
    }

    /// For a version with less in it than there was.
    pub(crate) fn within(objects: &'a Objects, room: Room) -> Result<Self, TreeError> {
        Ok(Self { objects, pack: objects.begin(room)? })
    }

    pub(crate) fn objects(&self) -> &'a Objects {
        self.objects
    }

    /// Adds a file of exactly `size` bytes from `content`.
    pub(crate) fn add_file(&mut self, size: u64, content: &mut dyn Read) -> Result<ObjectId, TreeError> {
        self.pack.add_file(size, content, &|id| self.objects.has(id))
    }

    pub(crate) fn add_tree(&mut self, items: Vec<TreeItem>) -> Result<ObjectId, TreeError> {
        let (_tree, bytes) = object::encode_tree(items)?;
        self.add(Kind::Tree, &bytes)
    }

    /// Adds a tree in its encoded form, whose entries are here or staged.
    pub(crate) fn add_encoded_tree(&mut self, bytes: &[u8]) -> Result<ObjectId, TreeError> {
        self.add(Kind::Tree, bytes)
    }

    /// Completes the version; it is on disk when this returns.
    pub(crate) fn commit(
        mut self,
        tree: &ObjectId,
        parents: &[ObjectId],
        meta: &CommitMeta,
    ) -> Result<VersionId, TreeError> {
        let commit = self.add(Kind::Commit, &commit::encode(tree, parents, meta))?;
        self.objects.publish(self.pack)?;
        Ok(object::version_id(&commit))
    }

    /// Completes the pack without a version of its own.
    pub(crate) fn finish(self) -> Result<(), TreeError> {
        self.objects.publish(self.pack)
    }

    /// Adds an object in git's form.
    pub(crate) fn add(&mut self, kind: Kind, bytes: &[u8]) -> Result<ObjectId, TreeError> {
        let id = object::hash(kind, bytes)?;
        if !self.pack.contains(&id) && !self.objects.has(&id)? {
            self.pack.add(kind, id, bytes)?;
        }
        Ok(id)
    }
}
