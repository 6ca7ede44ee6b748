//! Bringing one branch into another.

use std::collections::BTreeSet;

use bailey_protocol::id::VersionId;
use gix_hash::{Kind as HashKind, ObjectId};

use crate::ancestry::Ancestry;
use crate::commit::CommitMeta;
use crate::error::TreeError;
use crate::merge::{Hides, Merge};
use crate::object::object_id;
use crate::store::Store;

/// What bringing one version into another comes to. Neither of them is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Brought {
    /// It is in it already.
    Nothing,
    /// The other has not moved since: it becomes the one that is brought.
    Forward,
    /// A new version has both sides' changes.
    Merged(VersionId),
    /// What they have in common is behind a cut of history, so nobody can tell what either side changed or deleted.
    Parted,
    /// The paths that both sides changed, each differently; at most 1,000. Bytes that are not UTF-8 are replaced.
    Conflict(Vec<String>),
}

impl Store {
    /// Brings all that `theirs` has into `ours`, which may be a branch that has no version yet, and names who made what
    /// is brought, as its versions say it.
    ///
    /// # Errors
    /// When a version is not here, their histories are too long, or storage fails.
    pub fn bring(
        &self,
        ours: Option<&VersionId>,
        theirs: &VersionId,
        meta: &CommitMeta,
    ) -> Result<(Brought, BTreeSet<String>), TreeError> {
        self.bring_unseen(ours, theirs, None, meta)
    }

    /// The same, where not all may be told of `ours`.
    ///
    /// # Errors
    /// As [`Store::bring`].
    pub fn bring_unseen(
        &self,
        ours: Option<&VersionId>,
        theirs: &VersionId,
        unseen: Option<&Hides<'_>>,
        meta: &CommitMeta,
    ) -> Result<(Brought, BTreeSet<String>), TreeError> {
        let theirs_id = object_id(theirs.as_str());
        let ours = ours.map(|ours| object_id(ours.as_str()));
        let Ancestry { mut bases, authors, cut } = self.ancestry(ours.as_ref(), &theirs_id)?;
        let Some(ours) = ours else {
            return Ok((Brought::Forward, authors));
        };
        if bases == [theirs_id] {
            return Ok((Brought::Nothing, authors));
        }
        if bases == [ours] {
            return Ok((Brought::Forward, authors));
        }
        for base in &mut bases {
            *base = self.tree_of(base)?;
        }
        if bases.is_empty() && cut {
            return Ok((Brought::Parted, authors));
        }
        if bases.is_empty() {
            bases.push(ObjectId::empty_tree(HashKind::Sha1));
        }
        self.ensure()?;
        let (our_tree, their_tree) = (self.tree_of(&ours)?, self.tree_of(&theirs_id)?);
        let brought = match self.merge_trees(&bases, (&our_tree, &their_tree), &[ours, theirs_id], unseen, meta)? {
            Merge::Merged(version) => Brought::Merged(version),
            Merge::Conflict(paths) => Brought::Conflict(paths),
        };
        Ok((brought, authors))
    }

    fn tree_of(&self, commit: &ObjectId) -> Result<ObjectId, TreeError> {
        Ok(self.commit_of(&crate::object::version_id(commit))?.tree)
    }
}
