//! Taking back what one version changed: its inverse, by path, on top of what is there now.

use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;
use gix_hash::{Kind as HashKind, ObjectId};

use crate::commit::CommitMeta;
use crate::diff::item_of;
use crate::edits::Edits;
use crate::error::TreeError;
use crate::merge::{Merge, Work};
use crate::path;
use crate::staging::Staging;
use crate::store::{Store, edit_error, parents_of};

impl Store {
    /// Takes back, at and below `inner`, what `version` changed against its first parent. Paths that were changed again
    /// since are conflicts, and then nothing is taken back. The merged version is `head` when there is nothing to do.
    ///
    /// # Errors
    /// When a version is not here, or storage fails.
    pub fn revert(
        &self,
        head: &VersionId,
        inner: &str,
        version: &VersionId,
        meta: &CommitMeta,
    ) -> Result<Merge, TreeError> {
        let real = bytes_of(inner);
        let names = path::parse_inner(&real)?;
        let undone = self.commit_of(version)?;
        let before = match undone.parents.first() {
            None => ObjectId::empty_tree(HashKind::Sha1),
            Some(parent) => self.commit_of(&crate::object::version_id(parent))?.tree,
        };
        let root = self.root_of(Some(head))?;
        let at = |root: &ObjectId| Ok::<_, TreeError>(item_of(self.find(root, inner)?, inner));
        let (base, ours, theirs) = (at(&undone.tree)?, at(&root)?, at(&before)?);
        let mut work = Work::new(Staging::begin(self.objects())?);
        let result = work.settle(&[base.as_ref()], ours.as_ref(), theirs.as_ref(), inner)?;
        let mut staging = match work.finish() {
            Ok(staging) => staging,
            Err(conflicts) => return Ok(Merge::Conflict(conflicts)),
        };
        let tree = if names.is_empty() {
            result.map_or(ObjectId::empty_tree(HashKind::Sha1), |item| item.oid)
        } else {
            let mut edits = Edits::new(self.objects(), root);
            let done = match &result {
                Some(item) => edits.put(&names, item.mode.kind(), item.oid),
                None => edits.remove(&names),
            };
            done.map_err(|fault| edit_error(fault, inner))?;
            edits.apply(&mut staging)?
        };
        if tree == root {
            return Ok(Merge::Merged(head.clone()));
        }
        staging.commit(&tree, &parents_of(Some(head)), meta).map(Merge::Merged)
    }
}
