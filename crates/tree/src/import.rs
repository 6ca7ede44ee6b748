//! Taking a version of another store in, whole: every object of it is read, verified and written anew, so that the two
//! stores share nothing afterwards.

use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::blob::Blob;
use crate::commit::CommitMeta;
use crate::error::TreeError;
use crate::object::{Mode, TreeItem, object_id};
use crate::objects::Objects;
use crate::staging::Staging;
use crate::store::Store;

impl Store {
    /// Makes the content of `version` of `source` a version of this store, without a history. Equal content with an
    /// equal `meta` is the same version, and what is here already is not written again.
    ///
    /// # Errors
    /// When there is no such version there, or storage fails.
    pub fn import(&self, source: &Self, version: &VersionId, meta: &CommitMeta) -> Result<VersionId, TreeError> {
        let root = source.commit_of(version)?.tree;
        self.ensure()?;
        let mut taking = Taking { from: source.objects(), staging: Staging::begin(self.objects())? };
        let tree = taking.folder(&root)?;
        debug_assert_eq!(tree, root, "the same content in the same encoding");
        taking.staging.commit(&tree, &[], meta)
    }

    /// Whether all of `version` is here, down to its root folder.
    ///
    /// # Errors
    /// When storage fails.
    pub fn has_whole(&self, version: &VersionId) -> Result<bool, TreeError> {
        let commit = self.objects().commit(&object_id(version.as_str()))?;
        commit.map_or(Ok(false), |commit| Ok(self.objects().tree(&commit.tree)?.is_some()))
    }
}

struct Taking<'a> {
    from: &'a Objects,
    staging: Staging<'a>,
}

impl Taking<'_> {
    fn folder(&mut self, id: &ObjectId) -> Result<ObjectId, TreeError> {
        let tree = self.from.known_tree(id)?;
        let mut items = Vec::with_capacity(tree.entries.len());
        for item in &tree.entries {
            let oid = if item.mode.kind() == Mode::Tree { self.folder(&item.oid)? } else { self.file(&item.oid)? };
            items.push(TreeItem { oid, ..item.clone() });
        }
        self.staging.add_tree(items)
    }

    fn file(&mut self, id: &ObjectId) -> Result<ObjectId, TreeError> {
        let mut content = Blob::new(*id, false, self.from.open_file(id)?);
        self.staging.add_file(content.len(), &mut content)
    }
}
