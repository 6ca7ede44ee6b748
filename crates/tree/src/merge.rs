//! Three-way merge by path: what one side changed wins over what the other left alone.

use std::collections::BTreeMap;

use bailey_protocol::id::VersionId;
use gix_hash::{Kind as HashKind, ObjectId};

use crate::commit::CommitMeta;
use crate::error::TreeError;
use crate::name;
use crate::object::{self, Mode, Tree, TreeItem, object_id, version_id};
use crate::path;
use crate::staging::Staging;
use crate::store::Store;

/// What became of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merge {
    /// The version that has both sides' changes.
    Merged(VersionId),
    /// The paths that both sides changed, each differently; at most 1,000. Bytes that are not UTF-8 are replaced.
    Conflict(Vec<String>),
}

/// Says of a path, in its real bytes, that a merge must not tell whether both sides made the same of it: then it is in
/// conflict as if they had not.
pub type Hides<'a> = dyn Fn(&[u8]) -> bool + 'a;

const MAX_CONFLICTS: usize = 1000;

impl Store {
    /// Brings what `theirs` changed (against its first parent) onto `head`. Content is never mixed within a file.
    ///
    /// # Errors
    /// When a version is not here, or storage fails.
    pub fn merge(&self, head: Option<&VersionId>, theirs: &VersionId, meta: &CommitMeta) -> Result<Merge, TreeError> {
        self.merge_unseen(head, theirs, None, meta)
    }

    /// The same, where not all may be told of `head`.
    ///
    /// # Errors
    /// As [`Store::merge`].
    pub fn merge_unseen(
        &self,
        head: Option<&VersionId>,
        theirs: &VersionId,
        unseen: Option<&Hides<'_>>,
        meta: &CommitMeta,
    ) -> Result<Merge, TreeError> {
        let their_commit = self.commit_of(theirs)?;
        let base = their_commit.parents.first();
        if head.map(|head| object_id(head.as_str())).as_ref() == base {
            return Ok(Merge::Merged(theirs.clone()));
        }
        let base = base.map(version_id);
        let (base, ours) = (self.root_of(base.as_ref())?, self.root_of(head)?);
        self.ensure()?;
        let parents: Vec<ObjectId> = head.into_iter().chain([theirs]).map(|id| object_id(id.as_str())).collect();
        self.merge_trees(&[base], (&ours, &their_commit.tree), &parents, unseen, meta)
    }

    /// Makes a version of what both sides changed since the bases they have in common.
    pub(crate) fn merge_trees(
        &self,
        bases: &[ObjectId],
        (ours, theirs): (&ObjectId, &ObjectId),
        parents: &[ObjectId],
        unseen: Option<&Hides<'_>>,
        meta: &CommitMeta,
    ) -> Result<Merge, TreeError> {
        let mut work = Work { unseen, ..Work::new(Staging::begin(self.objects())?) };
        let tree = work.merge(bases, ours, theirs, "")?;
        if !work.conflicts.is_empty() {
            return Ok(Merge::Conflict(work.conflicts));
        }
        work.staging.commit(&tree, parents, meta).map(Merge::Merged)
    }
}

/// One merge under way.
pub(crate) struct Work<'a, 'u> {
    staging: Staging<'a>,
    conflicts: Vec<String>,
    unseen: Option<&'u Hides<'u>>,
    /// Where it is, in real bytes.
    path: Vec<u8>,
}

type Side<'t> = Option<&'t TreeItem>;

impl<'a> Work<'a, '_> {
    pub(crate) fn new(staging: Staging<'a>) -> Self {
        Self { staging, conflicts: Vec::new(), unseen: None, path: Vec::new() }
    }

    /// What is staged, or else the paths in conflict.
    pub(crate) fn finish(self) -> Result<Staging<'a>, Vec<String>> {
        if self.conflicts.is_empty() { Ok(self.staging) } else { Err(self.conflicts) }
    }

    /// What one path becomes. Where there are several bases, a side wins only by the word of all of them.
    pub(crate) fn settle(
        &mut self,
        bases: &[Side<'_>],
        ours: Side<'_>,
        theirs: Side<'_>,
        shown: &str,
    ) -> Result<Option<TreeItem>, TreeError> {
        if bases.iter().all(|base| same(*base, theirs)) || (same(ours, theirs) && !self.hides(ours)) {
            Ok(ours.cloned())
        } else if bases.iter().all(|base| same(*base, ours)) {
            Ok(theirs.cloned())
        } else {
            self.both_changed(bases, ours, theirs, shown)
        }
    }

    /// Whether it may not be told that both sides made that of a path. What is in a folder is settled one by one, and that
    /// something is gone is no content.
    fn hides(&self, made: Side<'_>) -> bool {
        let Some((unseen, made)) = self.unseen.zip(made) else { return false };
        made.mode.is_tree() || unseen(&self.path)
    }

    fn merge(
        &mut self,
        bases: &[ObjectId],
        ours: &ObjectId,
        theirs: &ObjectId,
        shown: &str,
    ) -> Result<ObjectId, TreeError> {
        if bases.iter().all(|base| base == theirs) || (ours == theirs && self.unseen.is_none()) {
            return Ok(*ours);
        }
        if bases.iter().all(|base| base == ours) {
            return Ok(*theirs);
        }
        let objects = self.staging.objects();
        let before = bases.iter().map(|base| objects.known_tree(base)).collect::<Result<Vec<_>, _>>()?;
        let sides = [objects.known_tree(ours)?, objects.known_tree(theirs)?];
        let mut items = Vec::new();
        for (name, [ours, theirs]) in beside(sides.each_ref().map(|tree| &**tree)) {
            let bases: Vec<Side<'_>> = before.iter().map(|tree| object::find(tree, name)).collect();
            let length = self.path.len();
            if length > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name::unescape(name));
            let settled = self.settle(&bases, ours, theirs, &path::join_display(shown, name));
            self.path.truncate(length);
            items.extend(settled?);
        }
        self.staging.add_tree(items)
    }

    /// Two folders are merged, whether or not there was one before; anything else is a conflict.
    fn both_changed(
        &mut self,
        bases: &[Side<'_>],
        ours: Side<'_>,
        theirs: Side<'_>,
        shown: &str,
    ) -> Result<Option<TreeItem>, TreeError> {
        let (Some(ours), Some(theirs)) = (folder(ours), folder(theirs)) else {
            if self.conflicts.len() < MAX_CONFLICTS {
                self.conflicts.push(shown.to_owned());
            }
            return Ok(None);
        };
        let empty = ObjectId::empty_tree(HashKind::Sha1);
        let bases: Vec<ObjectId> = bases.iter().map(|base| folder(*base).map_or(empty, |base| base.oid)).collect();
        let oid = self.merge(&bases, &ours.oid, &theirs.oid, shown)?;
        Ok(Some(TreeItem { mode: Mode::Tree.into(), filename: ours.filename.clone(), oid }))
    }
}

fn folder(side: Side<'_>) -> Side<'_> {
    side.filter(|item| item.mode.is_tree())
}

pub(crate) fn same(a: Side<'_>, b: Side<'_>) -> bool {
    a.map(|item| (item.mode, item.oid)) == b.map(|item| (item.mode, item.oid))
}

/// The entries of several trees beside each other, by stored name.
pub(crate) fn beside<const N: usize>(trees: [&Tree; N]) -> BTreeMap<&[u8], [Side<'_>; N]> {
    let mut rows: BTreeMap<&[u8], [Side<'_>; N]> = BTreeMap::new();
    for (column, tree) in trees.into_iter().enumerate() {
        for item in &tree.entries {
            let row = rows.entry(item.filename.as_slice()).or_insert([None; N]);
            if let Some(cell) = row.get_mut(column) {
                *cell = Some(item);
            }
        }
    }
    rows
}
