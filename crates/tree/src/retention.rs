//! Where history is cut: versions beyond what a tenant keeps are no longer led to, and go with the garbage.
//!
//! The ids of the versions that stay do not change. The oldest of them keep their parents' ids, and are listed in git's
//! `shallow` file, by which stock git and this crate know that nothing is to be looked for behind them. The file is on
//! disk before anything is removed.

use std::collections::{HashSet, VecDeque};

use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::cache::lock;
use crate::error::TreeError;
use crate::object::{object_id, version_id};
use crate::shallow;
use crate::store::Store;

/// What is kept of each branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Versions, newest first, the branch's head included.
    pub versions: u64,
    /// Only versions of this time or later, in milliseconds since 1970; the head is always kept.
    pub since_ms: u64,
}

/// A cut to be made.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The versions that are beyond what is kept of the branches. One that a pin keeps for now is among them: nobody may
    /// look at it again before it goes.
    pub expired: Vec<VersionId>,
    last: HashSet<ObjectId>,
}

/// From a version to a parent.
type Steps = Vec<(ObjectId, ObjectId)>;

impl Store {
    /// Finds out where history would be cut; `None` when it is cut there already. `heads` is every version that a branch
    /// leads to.
    ///
    /// # Errors
    /// When a version is missing, or storage fails.
    pub fn plan_cut(&self, heads: &[VersionId], keep: Keep) -> Result<Option<Cut>, TreeError> {
        let objects = self.objects();
        let heads: Vec<ObjectId> = heads.iter().map(|head| object_id(head.as_str())).collect();
        let (led_to, _) = self.within(heads.iter().copied(), keep)?;
        let (kept, edges) = self.within(heads.into_iter().chain(objects.leases().pins()), keep)?;
        let beyond: Vec<_> = edges.iter().filter(|(_, parent)| !kept.contains(parent)).collect();
        if beyond.is_empty() {
            return Ok(None);
        }
        let mut last: HashSet<ObjectId> = beyond.iter().map(|(id, _)| *id).collect();
        for id in objects.shallow().iter() {
            // One that is not kept may still be led to by what is about to be.
            if objects.exists(id)? {
                last.insert(*id);
            }
        }
        let expired = self.beyond(&led_to, edges.into_iter().map(|(_, parent)| parent).collect())?;
        Ok(Some(Cut { expired, last }))
    }

    /// What is kept of the histories of `heads`, and each step from there to a parent.
    fn within(
        &self,
        heads: impl Iterator<Item = ObjectId>,
        keep: Keep,
    ) -> Result<(HashSet<ObjectId>, Steps), TreeError> {
        let mut todo: VecDeque<(ObjectId, u64)> = heads.map(|head| (head, 0)).collect();
        let (mut kept, mut steps) = (HashSet::new(), Vec::new());
        // Nearest first, so that each is met at its least distance from a head.
        while let Some((id, depth)) = todo.pop_front() {
            if kept.contains(&id) {
                continue;
            }
            let commit = self.objects().peek_commit(&id)?;
            let commit = commit.ok_or_else(|| TreeError::corrupt(id, "a version is missing from the store"))?;
            if depth > 0 && (depth >= keep.versions || commit.time_ms < keep.since_ms) {
                continue;
            }
            kept.insert(id);
            steps.extend(commit.parents.iter().map(|parent| (id, *parent)));
            todo.extend(commit.parents.iter().map(|parent| (*parent, depth + 1)));
        }
        Ok((kept, steps))
    }

    /// Makes a cut. The next cycles of garbage collection remove what is behind it.
    ///
    /// # Errors
    /// When storage fails. Then nothing is cut.
    pub fn cut(&self, cut: &Cut) -> Result<(), TreeError> {
        let _turn = lock(&self.repo.upkeep);
        shallow::write(&self.repo.folder, &cut.last)?;
        self.objects().set_shallow(cut.last.clone());
        Ok(())
    }

    fn beyond(&self, kept: &HashSet<ObjectId>, mut todo: Vec<ObjectId>) -> Result<Vec<VersionId>, TreeError> {
        let mut expired = HashSet::new();
        while let Some(id) = todo.pop() {
            if kept.contains(&id) || !expired.insert(id) {
                continue;
            }
            let commit = self.objects().peek_commit(&id)?;
            todo.extend(commit.iter().flat_map(|commit| &commit.parents));
        }
        Ok(expired.iter().map(version_id).collect())
    }
}
