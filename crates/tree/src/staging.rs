//! One version in the making: new objects go to one pack, which becomes visible as a whole or not at all.

use std::io::Read;

use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::commit::{self, CommitMeta};
use crate::error::TreeError;
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
        Ok(Self { objects, pack: objects.begin()? })
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

    fn add(&mut self, kind: Kind, bytes: &[u8]) -> Result<ObjectId, TreeError> {
        let id = object::hash(kind, bytes)?;
        if !self.pack.contains(&id) && !self.objects.has(&id)? {
            self.pack.add(kind, id, bytes)?;
        }
        Ok(id)
    }
}
