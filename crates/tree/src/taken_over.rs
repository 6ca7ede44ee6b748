//! What a version has of others by taking it over as it is: what a clean merge would leave at a path.

use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::diff::item_of;
use crate::error::TreeError;
use crate::merge::same;
use crate::object::{TreeItem, object_id, version_id};
use crate::store::Store;

/// What lies between two versions, as far as others explain it.
///
/// ```text
/// base ──▶ from ──▶ to     at a path: `to` has what `theirs` has, and `from` still what every base had
///    └───▶ theirs ──▶┘
/// ```
///
/// Having what *some* parent has is not enough: a merge that keeps an old side takes the other's change back.
#[derive(Debug)]
pub struct TakenOver<'a> {
    store: &'a Store,
    from: ObjectId,
    to: ObjectId,
    sides: Vec<Side>,
}

/// Roots of what was merged, and of where it had parted from `from`.
#[derive(Debug)]
struct Side {
    theirs: ObjectId,
    bases: Vec<ObjectId>,
}

impl Store {
    /// What `to` has, and `from` has not, of what `others` lead to; nothing where `to` is but one step from `from`.
    ///
    /// # Errors
    /// When a version is not here, there is too much history to look at, or storage fails.
    pub fn taken_over(
        &self,
        from: &VersionId,
        to: &VersionId,
        others: &[&VersionId],
    ) -> Result<Option<TakenOver<'_>>, TreeError> {
        let (from_id, to_id) = (object_id(from.as_str()), object_id(to.as_str()));
        let (before, after) = (self.commit_of(from)?, self.commit_of(to)?);
        if after.parents == [from_id] {
            return Ok(None);
        }
        let root = |id: &ObjectId| Ok::<_, TreeError>(self.commit_of(&version_id(id))?.tree);
        let mut sides = Vec::new();
        for other in others {
            for theirs in self.ancestry(Some(&to_id), &object_id(other.as_str()))?.bases {
                let bases = self.ancestry(Some(&from_id), &theirs)?.bases;
                // Without a common version nobody can say which side changed; what `from` grew from brings nothing.
                if !bases.is_empty() && !bases.contains(&theirs) {
                    let bases = bases.iter().map(root).collect::<Result<_, _>>()?;
                    sides.push(Side { theirs: root(&theirs)?, bases });
                }
            }
        }
        Ok(Some(TakenOver { store: self, from: before.tree, to: after.tree, sides }))
    }
}

impl TakenOver<'_> {
    /// Whether `inner` is as one of the others has it and was as it had been before. Of a folder: whether it is one; what
    /// is below has paths of its own.
    ///
    /// # Errors
    /// When storage fails.
    pub fn has(&self, inner: &str) -> Result<bool, TreeError> {
        if self.sides.is_empty() {
            return Ok(false);
        }
        let at = |root: &ObjectId| Ok::<_, TreeError>(item_of(self.store.find(root, inner)?, inner));
        let (from, to) = (at(&self.from)?, at(&self.to)?);
        for side in &self.sides {
            let mut clean = alike(at(&side.theirs)?.as_ref(), to.as_ref());
            for base in &side.bases {
                clean = clean && alike(at(base)?.as_ref(), from.as_ref());
            }
            if clean {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn alike(a: Option<&TreeItem>, b: Option<&TreeItem>) -> bool {
    let folder = |item: Option<&TreeItem>| item.is_some_and(|item| item.mode.is_tree());
    same(a, b) || (folder(a) && folder(b))
}
