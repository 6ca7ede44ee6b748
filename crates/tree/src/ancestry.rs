//! What two versions have in common, found from both ends at once.
//!
//! ```text
//! ours ──▶ (1) ─┐                 a version reached from both sides is a base; all before it is stale,
//!               ├─▶ (1|2) base ─▶ and the walk ends once nothing else waits
//! theirs ▶ (2) ─┘
//! ```
//!
//! Newest first is for speed alone. Times that lie (they may come from a push) can only add a base that is before
//! another, and a merge takes nothing over on the word of one base.

use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

use gix_hash::ObjectId;

use crate::error::TreeError;
use crate::object::version_id;
use crate::store::Store;

/// Most versions that are looked at.
const MAX_WALK: usize = 1_000_000;

const OURS: u8 = 1;
const THEIRS: u8 = 2;
const BOTH: u8 = OURS | THEIRS;
const STALE: u8 = 4;

/// Where two versions come from.
#[derive(Debug, Default)]
pub(crate) struct Ancestry {
    /// The last versions that both have; empty when they have none.
    pub(crate) bases: Vec<ObjectId>,
    /// Who made the versions that only `theirs` has.
    pub(crate) authors: BTreeSet<String>,
    /// Whether one of the histories that were looked at was cut, so that a base may be behind the cut.
    pub(crate) cut: bool,
}

#[derive(Default)]
struct Walk {
    /// Newest first.
    queue: BinaryHeap<(u64, ObjectId)>,
    flags: HashMap<ObjectId, u8>,
    /// Of the queue: what is not stale.
    open: HashSet<ObjectId>,
}

impl Walk {
    /// Whether that told something new.
    fn mark(&mut self, id: ObjectId, flags: u8, time_ms: u64) {
        let known = self.flags.entry(id).or_default();
        if *known & flags == flags {
            return;
        }
        *known |= flags;
        if *known & STALE == 0 {
            self.open.insert(id);
        } else {
            self.open.remove(&id);
        }
        self.queue.push((time_ms, id));
    }
}

impl Store {
    pub(crate) fn ancestry(&self, ours: Option<&ObjectId>, theirs: &ObjectId) -> Result<Ancestry, TreeError> {
        let mut walk = Walk::default();
        for (id, flag) in ours.map(|ours| (ours, OURS)).into_iter().chain([(theirs, THEIRS)]) {
            walk.mark(*id, flag, self.commit_of(&version_id(id))?.time_ms);
        }
        let mut bases = Vec::new();
        while !walk.open.is_empty() {
            let Some((_, id)) = walk.queue.pop() else { break };
            walk.open.remove(&id);
            let mut flags = walk.flags.get(&id).copied().unwrap_or_default();
            if flags & BOTH == BOTH && flags & STALE == 0 {
                if !bases.contains(&id) {
                    bases.push(id);
                }
                flags |= STALE;
            }
            if walk.flags.len() > MAX_WALK {
                return Err(TreeError::TooLarge { what: "the history between the branches", limit: MAX_WALK as u64 });
            }
            for parent in &self.commit_of(&version_id(&id))?.parents {
                walk.mark(*parent, flags, self.commit_of(&version_id(parent))?.time_ms);
            }
        }
        let stale = |id: &ObjectId| walk.flags.get(id).is_some_and(|flags| flags & STALE != 0);
        bases.retain(|id| !stale(id));
        let only_theirs = walk.flags.iter().filter(|(_, flags)| **flags == THEIRS);
        let authors = only_theirs.map(|(id, _)| Ok(self.commit_of(&version_id(id))?.author.clone()));
        let authors = authors.collect::<Result<_, TreeError>>()?;
        let shallow = self.objects().shallow();
        let cut = walk.flags.keys().any(|id| shallow.contains(id));
        Ok(Ancestry { bases, authors, cut })
    }
}
