//! What heads lead to, in all their history.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::commit::Commit;
use crate::error::TreeError;
use crate::name;
use crate::object::{object_id, version_id};
use crate::store::Store;

/// Most versions, and most folders at their paths, that one call looks at.
const MAX_LOOKED_AT: usize = 2_000_000;

/// A version and its first parent.
pub type Grown = (VersionId, Option<VersionId>);

/// Is shown a version and what it says.
type VisitVersion<'v> = &'v mut dyn FnMut(&ObjectId, &Commit) -> Result<ControlFlow<()>, TreeError>;

impl Store {
    /// The versions whose parents are not kept any more.
    #[must_use]
    pub fn cut_versions(&self) -> Vec<VersionId> {
        let mut cut: Vec<VersionId> = self.objects().shallow().iter().map(version_id).collect();
        cut.sort_unstable();
        cut
    }

    /// The first of `wanted` that is neither one of `heads` nor one that they grew from.
    ///
    /// # Errors
    /// When a head is not here, or storage fails.
    pub fn unreachable(&self, heads: &[VersionId], wanted: &[VersionId]) -> Result<Option<VersionId>, TreeError> {
        let mut open: HashSet<ObjectId> = wanted.iter().map(|wanted| object_id(wanted.as_str())).collect();
        for head in heads {
            open.remove(&object_id(head.as_str()));
        }
        if !open.is_empty() {
            self.ancestors(heads, &mut |id, _commit| {
                open.remove(id);
                Ok(if open.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Ok(wanted.iter().find(|wanted| open.contains(&object_id(wanted.as_str()))).cloned())
    }

    /// The versions that `tips` grew from, themselves included, and none of `heads` did; each with its first parent. `new`
    /// are some of them that are known already.
    ///
    /// # Errors
    /// When a version is not here, there are too many to look at, or storage fails.
    pub fn unlanded(&self, heads: &[VersionId], tips: &[VersionId], new: &[Grown]) -> Result<Vec<Grown>, TreeError> {
        // As a rule these are all: history is looked at only where a tip grew from something else that is no head.
        let heads_alone = heads.iter().map(|head| object_id(head.as_str())).collect();
        let new = new.iter().map(|(version, _)| object_id(version.as_str())).collect();
        if let Some(grown) = self.grown(tips, &heads_alone, Some(&new))? {
            return Ok(grown);
        }
        let mut old = HashSet::new();
        self.ancestors(heads, &mut |id, _commit| {
            old.insert(*id);
            Ok(ControlFlow::Continue(()))
        })?;
        self.grown(tips, &old, None)?.ok_or_else(too_many)
    }

    /// Which of `heads` are `wanted` or grew from it.
    ///
    /// # Errors
    /// When a head is not here, there is too much history to look at, or storage fails.
    pub fn leading(&self, heads: &[VersionId], wanted: &VersionId) -> Result<Vec<bool>, TreeError> {
        // Of each parent, what grew from it.
        let mut grown: Vec<(ObjectId, ObjectId)> = Vec::new();
        let whole = self.ancestors(heads, &mut |id, commit| {
            grown.extend(commit.parents.iter().map(|parent| (*parent, *id)));
            Ok(ControlFlow::Continue(()))
        })?;
        if !whole {
            return Err(too_many());
        }
        grown.sort_unstable();
        let mut found: HashSet<ObjectId> = HashSet::new();
        let mut next = vec![object_id(wanted.as_str())];
        while let Some(id) = next.pop() {
            if found.insert(id) {
                let from = grown.partition_point(|(parent, _)| *parent < id);
                let children = grown.iter().skip(from).take_while(|(parent, _)| *parent == id);
                next.extend(children.map(|(_, child)| *child));
            }
        }
        Ok(heads.iter().map(|head| found.contains(&object_id(head.as_str()))).collect())
    }

    /// What `tips` grew from up to `old`; nothing where that is more than `within`, or too much to look at.
    fn grown(
        &self,
        tips: &[VersionId],
        old: &HashSet<ObjectId>,
        within: Option<&HashSet<ObjectId>>,
    ) -> Result<Option<Vec<Grown>>, TreeError> {
        let (mut seen, mut grown) = (HashSet::new(), Vec::new());
        let mut next: Vec<ObjectId> = tips.iter().map(|tip| object_id(tip.as_str())).collect();
        while let Some(id) = next.pop() {
            if old.contains(&id) || !seen.insert(id) {
                continue;
            }
            if seen.len() > MAX_LOOKED_AT || within.is_some_and(|within| !within.contains(&id)) {
                return Ok(None);
            }
            let commit = self.commit_of(&version_id(&id))?;
            grown.push((version_id(&id), commit.parents.first().map(version_id)));
            next.extend(&commit.parents);
        }
        Ok(Some(grown))
    }

    /// Shows `visit` each path, in its real bytes, that `heads` or any version before them has, each once. Ends early
    /// when `visit` breaks; `false` when there is more than one call looks at.
    ///
    /// # Errors
    /// When a head is not here, or storage fails.
    pub fn every_path(
        &self,
        heads: &[VersionId],
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, TreeError> {
        let mut walk = Everything { store: self, seen: HashSet::new(), paths: HashSet::new(), visit };
        let mut whole = true;
        let all = self.ancestors(heads, &mut |_id, commit| {
            let flow = walk.folder(&commit.tree, &mut Vec::new())?;
            whole &= walk.seen.len() < MAX_LOOKED_AT;
            Ok(if whole { flow } else { ControlFlow::Break(()) })
        })?;
        Ok(whole && all)
    }

    /// Shows `visit` every version that `heads` grew from, themselves first; `false` when there is more than one call
    /// looks at.
    fn ancestors(&self, heads: &[VersionId], visit: VisitVersion<'_>) -> Result<bool, TreeError> {
        let mut seen = HashSet::new();
        let mut next: VecDeque<ObjectId> = heads.iter().map(|head| object_id(head.as_str())).collect();
        while let Some(id) = next.pop_front() {
            if !seen.insert(id) {
                continue;
            }
            if seen.len() > MAX_LOOKED_AT {
                return Ok(false);
            }
            let commit = self.commit_of(&version_id(&id))?;
            if visit(&id, &commit)?.is_break() {
                return Ok(true);
            }
            next.extend(&commit.parents);
        }
        Ok(true)
    }
}

fn too_many() -> TreeError {
    TreeError::TooMany { what: "versions to look at", limit: MAX_LOOKED_AT as u64 }
}

struct Everything<'a> {
    store: &'a Store,
    /// Folders at their paths.
    seen: HashSet<(ObjectId, Vec<u8>)>,
    paths: HashSet<Vec<u8>>,
    visit: &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>,
}

impl Everything<'_> {
    fn folder(&mut self, id: &ObjectId, path: &mut Vec<u8>) -> Result<ControlFlow<()>, TreeError> {
        if self.seen.len() >= MAX_LOOKED_AT || !self.seen.insert((*id, path.clone())) {
            return Ok(ControlFlow::Continue(()));
        }
        let tree = self.store.objects().known_tree(id)?;
        let parent = path.len();
        for item in &tree.entries {
            if parent > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&name::unescape(&item.filename));
            if self.paths.insert(path.clone()) && (self.visit)(path).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if item.mode.is_tree() && self.folder(&item.oid, path)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            path.truncate(parent);
        }
        Ok(ControlFlow::Continue(()))
    }
}
