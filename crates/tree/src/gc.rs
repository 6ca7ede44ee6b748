//! Garbage collection: removes what nothing leads to, and merges packs so that look-ups stay fast.
//!
//! ```text
//! object:  live ──nothing leads to it──▶ condemned ──all leases from before are gone,──▶ removed
//!           ▲                               │        nothing leads to it still
//!           └──── somebody came across it ──┘
//! ```
//!
//! One call does one cycle: it looks which objects are live, removes those that an earlier cycle condemned, and condemns
//! the rest of what is not live. What is garbage when a cycle begins is gone after the next, unless somebody is at work
//! with it. Nobody waits: not for a clock, and not for garbage collection.
//!
//! - Live is what the heads and the pinned versions lead to. Packs that were written in an epoch of which a lease is left
//!   are left alone: their versions may be on the way to a branch.
//! - A condemned object is written again by whoever needs it ([`crate::objects::Objects::has`]). Reading one saves all
//!   that are condemned, for it may lead to others.
//! - The objects that stay are copied to a new pack, which is durable before the old one goes. A reader with the old one
//!   open keeps it; one that finds it gone looks the object up again. After a crash objects may be there twice: the next
//!   cycle merges them.
//!
//! Memory: one bit per object, and 40 bytes per condemned one, of which one cycle takes at most [`MAX_CONDEMNED`].

mod mark;
mod merging;

use std::collections::{BTreeSet, HashSet};

use bailey_crash::Point;
use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::cache::lock;
use crate::error::TreeError;
use crate::object::object_id;
use crate::objects::{Lookup, Objects, PackInfo, Packed, Verdict};
use crate::store::Store;
use mark::Marks;

/// Most objects that one cycle condemns.
const MAX_CONDEMNED: usize = 1 << 20;

/// How far one cycle goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thoroughness {
    /// Merges packs, if there are many.
    Merge,
    /// Removes garbage as well, where a pack has a quarter of it or is being merged.
    Usual,
    /// Removes all garbage.
    Thorough,
}

/// What one cycle did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Objects that something leads to.
    pub live: u64,
    /// Objects that the next cycle may remove.
    pub condemned: u64,
    /// Objects that were removed, extra copies included.
    pub removed: u64,
    /// Bytes that became free.
    pub freed_bytes: u64,
    /// Packs that are left.
    pub packs: u64,
    /// Somebody is still at work with what an earlier cycle condemned.
    pub held: bool,
}

impl Store {
    /// Does one cycle, and gives up this handle. `heads` is asked for every version that a branch leads to, once the
    /// cycle has begun; what it leaves out is lost. Cycles of one store take turns.
    ///
    /// # Errors
    /// When anything live is missing or damaged, `heads` fails, or storage does. Then nothing was removed.
    pub fn collect_garbage<E: From<TreeError>>(
        self,
        heads: impl FnOnce() -> Result<Vec<VersionId>, E>,
        how: Thoroughness,
    ) -> Result<GcReport, E> {
        let Self { repo, lease } = self;
        drop(lease);
        let _turn = lock(&repo.upkeep);
        let cycle = Cycle::begin(&repo.objects)?;
        let marks = match how {
            Thoroughness::Merge => None,
            Thoroughness::Usual | Thoroughness::Thorough => {
                let mut roots: Vec<ObjectId> = heads()?.iter().map(|head| object_id(head.as_str())).collect();
                roots.extend(repo.objects.leases().pins());
                Some(Marks::of(&repo.objects, &cycle.packs, &roots)?)
            }
        };
        bailey_crash::point(Point::LiveMarked);
        Ok(cycle.run(marks.as_ref(), how)?)
    }

    /// How many packs the store has, as far as is known without looking: zero before its first use.
    #[must_use]
    pub fn packs(&self) -> usize {
        self.objects().pack_count()
    }
}

struct Cycle<'a> {
    objects: &'a Objects,
    /// All packs when the cycle began.
    packs: Lookup,
    /// The epoch of the oldest lease then.
    oldest: u64,
    verdict: Verdict,
}

/// What becomes of the packs.
#[derive(Default)]
struct Plan {
    gone: BTreeSet<ObjectId>,
    copies: Vec<Packed>,
    removed: u64,
    bytes: u64,
}

impl<'a> Cycle<'a> {
    fn begin(objects: &'a Objects) -> Result<Self, TreeError> {
        let leases = objects.leases();
        let epoch = leases.advance();
        leases.drain(epoch);
        // INVARIANT: in this order. A pack that is in the snapshot and whose writer is not among the leases was written
        // for a branch that has moved by now, and the heads are asked for after that.
        let packs = objects.snapshot()?;
        let oldest = leases.oldest();
        let verdict = objects.verdict(oldest);
        Ok(Self { objects, packs, oldest, verdict })
    }

    fn run(self, marks: Option<&Marks>, how: Thoroughness) -> Result<GcReport, TreeError> {
        let mut report = GcReport { held: matches!(self.verdict, Verdict::Held), ..GcReport::default() };
        report.live = marks.map_or(0, Marks::count);
        let ripe = match (&self.verdict, marks) {
            (Verdict::Ripe(ids), Some(_)) => Some(&**ids),
            (Verdict::Ripe(_) | Verdict::Held | Verdict::None, _) => None,
        };
        let plan = self.plan(marks, ripe, how)?;
        let mut done = true;
        if !plan.gone.is_empty() || ripe.is_some() {
            let mut writer = self.objects.begin_copy()?;
            plan.copies.iter().try_for_each(|object| self.objects.copy(object, &mut writer))?;
            done = self.objects.replace(&plan.gone, writer, ripe.is_some(), self.oldest)?;
            if done {
                (report.removed, report.freed_bytes) = (plan.removed, plan.bytes);
            }
        }
        if let Some(marks) = marks
            && done
            && !matches!(self.verdict, Verdict::Held)
        {
            let ids = self.garbage(marks, ripe)?;
            report.condemned = ids.len() as u64;
            if !ids.is_empty() {
                self.objects.condemn(ids);
                bailey_crash::point(Point::Condemned);
            }
        }
        report.packs = self.objects.pack_count() as u64;
        Ok(report)
    }

    /// Packs that nobody may be about to lead a branch to.
    fn settled(&self) -> impl Iterator<Item = &PackInfo> {
        self.packs.packs().filter(|info| info.born < self.oldest)
    }

    fn plan(
        &self,
        marks: Option<&Marks>,
        ripe: Option<&HashSet<ObjectId>>,
        how: Thoroughness,
    ) -> Result<Plan, TreeError> {
        let merged = merging::choose(self.settled());
        let doomed = |id: &ObjectId| -> Result<bool, TreeError> {
            match (ripe, marks) {
                (Some(ripe), Some(marks)) if ripe.contains(id) => Ok(!marks.has(&self.packs, id)?),
                _ => Ok(false),
            }
        };
        let everywhere = ripe.is_some_and(|ripe| !ripe.is_empty()) || how == Thoroughness::Thorough;
        let mut plan = Plan::default();
        for info in self.settled() {
            let merge = merged.contains(&info.pack);
            if !merge && !everywhere {
                continue;
            }
            let objects = self.objects.packed(info)?;
            let mut stay = Vec::with_capacity(objects.len());
            let (mut dead, mut dead_bytes, mut bytes) = (0, 0, 0);
            for object in objects {
                let here = self.packs.position(&object.id)?.is_some_and(|(_, pack)| pack == info.pack);
                bytes += object.bytes;
                if here && !doomed(&object.id)? {
                    stay.push(object);
                } else {
                    (dead, dead_bytes) = (dead + 1, dead_bytes + object.bytes);
                }
            }
            let enough = dead > 0 && (how == Thoroughness::Thorough || dead_bytes >= bytes / 4);
            if merge || enough {
                plan.gone.insert(info.pack);
                plan.copies.append(&mut stay);
                (plan.removed, plan.bytes) = (plan.removed + dead, plan.bytes + dead_bytes);
            }
        }
        Ok(plan)
    }

    /// What nothing leads to, and what was not removed just now.
    fn garbage(&self, marks: &Marks, ripe: Option<&HashSet<ObjectId>>) -> Result<HashSet<ObjectId>, TreeError> {
        let settled: HashSet<ObjectId> = self.settled().map(|info| info.pack).collect();
        let mut ids = HashSet::new();
        self.packs.every(&mut |position, id, pack| {
            let old = ripe.is_some_and(|ripe| ripe.contains(id));
            if !old && settled.contains(pack) && !marks.at(position) {
                ids.insert(*id);
            }
            ids.len() < MAX_CONDEMNED
        })?;
        Ok(ids)
    }
}
