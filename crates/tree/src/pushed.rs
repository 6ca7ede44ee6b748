//! Taking in objects that others made: what a push brings.
//!
//! Everything about a pushed pack is hostile. It is read once, as a stream: no deltas, every size bounded before its
//! bytes come, every id made anew here. Then all of it has to be what this store could have written itself: strict
//! trees and commits, names that are in no need of an escape, paths that fit, and nothing that refers to what is
//! neither in the pack nor in this store already. Only after that does it become visible, as one pack of our own.
//!
//! ```text
//! read (pack_stream) ─▶ shape of each object (shape) ─▶ closure from the tips (closure) ─▶ Pushed ─▶ publish
//! ```

mod closure;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod pack_stream;
mod shape;

use std::collections::HashMap;
use std::io::Read;

use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::error::TreeError;
use crate::ledger::Room;
use crate::object::{self, Kind, object_id};
use crate::objects::Objects;
use crate::pack;
use crate::pack::writer::PackWriter;
use crate::store::Store;
use closure::Closure;
use pack_stream::PackStream;

/// Largest folder that can be pushed, as git stores it.
const MAX_TREE_BYTES: u64 = 64 << 20;
/// Largest commit that can be pushed.
const MAX_COMMIT_BYTES: u64 = 1 << 20;
/// Most commits that are looked at to see whether a version grew from another.
const MAX_ANCESTORS: usize = 2_000_000;

/// How much one push may bring.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all objects together, inflated.
    pub total_bytes: u64,
    /// Objects.
    pub objects: u32,
}

/// Objects that were found sound and are not in the store yet. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct Pushed {
    store: Store,
    fresh: Fresh,
    bytes: u64,
}

/// New objects in a pack that nobody sees yet.
#[derive(Debug)]
struct Fresh {
    pack: PackWriter,
    places: HashMap<ObjectId, FreshPlace>,
    /// Commits with their first parents.
    commits: Vec<(ObjectId, Option<ObjectId>)>,
    /// Those that say that a run made them.
    claims: Vec<ObjectId>,
}

#[derive(Debug, Clone, Copy)]
struct FreshPlace {
    kind: Kind,
    offset: u64,
    length: u64,
    /// Bytes of the object itself.
    size: u64,
}

impl Store {
    /// Reads a pack whose objects are what `tips` need and this store does not have. All of it is sound, or nothing of
    /// it is kept. Memory grows with the number of objects, not with their content.
    ///
    /// # Errors
    /// When the pack is not a whole one without deltas, is larger than allowed, holds what a tree cannot hold or what no
    /// tip needs, lacks what a tip needs, or storage fails.
    pub fn take_in(&self, pack: &mut dyn Read, tips: &[VersionId], limits: &PushLimits) -> Result<Pushed, TreeError> {
        self.prepare()?;
        let mut fresh = Fresh {
            pack: self.objects().begin(Room::Quota)?,
            places: HashMap::new(),
            commits: Vec::new(),
            claims: Vec::new(),
        };
        let mut stream = PackStream::open(pack, limits)?;
        while let Some((kind, size)) = stream.next_header()? {
            fresh.take(self.objects(), &mut stream, kind, size, limits)?;
        }
        stream.finish()?;
        let mut closure = Closure::new(self.objects(), &mut fresh, &self.repo.id);
        closure.run(tips)?;
        let commits = fresh.places.iter().filter(|(_, place)| place.kind == Kind::Commit).map(|(id, _)| *id);
        for id in commits.collect::<Vec<_>>() {
            self.repo.purged.refuse(&id)?;
            fresh.parents(self.objects(), &id)?.iter().try_for_each(|parent| self.repo.purged.refuse(parent))?;
        }
        let bytes = fresh.pack.length();
        Ok(Pushed { store: self.clone(), fresh, bytes })
    }

    /// Makes the repository if it is not there yet, empty: for those who need its folder.
    ///
    /// # Errors
    /// When storage fails.
    pub fn prepare(&self) -> Result<(), TreeError> {
        self.ensure()
    }
}

impl Pushed {
    /// Bytes that the store grows by.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if self.fresh.places.is_empty() { 0 } else { self.bytes }
    }

    /// Objects that the store does not have.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.fresh.places.len()
    }

    /// The new versions, each with its first parent.
    #[must_use]
    pub fn commits(&self) -> Vec<(VersionId, Option<VersionId>)> {
        let fresh = |(id, parent): &(ObjectId, Option<ObjectId>)| {
            (object::version_id(id), parent.as_ref().map(object::version_id))
        };
        self.fresh.commits.iter().map(fresh).collect()
    }

    /// Whether `new` is `old` or grew from it.
    ///
    /// # Errors
    /// When either is not there, or storage fails.
    pub fn descends(&mut self, new: &VersionId, old: &VersionId) -> Result<bool, TreeError> {
        let old = object_id(old.as_str());
        let mut seen = std::collections::HashSet::new();
        let mut next = std::collections::VecDeque::from([object_id(new.as_str())]);
        while let Some(id) = next.pop_front() {
            if id == old {
                return Ok(true);
            }
            if !seen.insert(id) {
                continue;
            }
            if seen.len() > MAX_ANCESTORS {
                return Ok(false);
            }
            next.extend(self.fresh.parents(self.store.objects(), &id)?);
        }
        Ok(false)
    }

    /// Makes the objects durable and visible to readers of the store. Nothing points to them yet.
    ///
    /// # Errors
    /// When storage fails.
    pub fn publish(self) -> Result<(), TreeError> {
        self.store.repo.claims.add(&self.store.repo.folder, &self.fresh.claims)?;
        self.store.objects().publish(self.fresh.pack)
    }
}

impl Fresh {
    /// Takes one object off the stream.
    fn take(
        &mut self,
        known: &Objects,
        stream: &mut PackStream<'_>,
        kind: Kind,
        size: u64,
        limits: &PushLimits,
    ) -> Result<(), TreeError> {
        let (what, most) = match kind {
            Kind::Blob => ("a pushed file", limits.file_bytes),
            Kind::Tree => ("a pushed folder", MAX_TREE_BYTES),
            Kind::Commit => ("a pushed commit", MAX_COMMIT_BYTES),
            Kind::Tag => return Err(TreeError::refused("a tag", "tags are not kept here: push branches")),
        };
        if size > most {
            return Err(TreeError::TooLarge { what, limit: most });
        }
        let offset = self.pack.length();
        let (mut first_parent, mut claims) = (None, false);
        let id = if kind == Kind::Blob {
            let id = self.pack.add_file(size, &mut stream.content(size), &|id| known.has(id));
            id.map_err(|error| stream.fault().unwrap_or(error))?
        } else {
            let bytes = stream.whole(size)?;
            let id = object::hash(kind, &bytes)?;
            match kind {
                Kind::Tree => drop(shape::tree(&id, &bytes)?),
                Kind::Commit => {
                    let links = shape::commit(&id, &bytes)?;
                    (first_parent, claims) = (links.parents.first().copied(), links.claims_a_run);
                }
                Kind::Blob | Kind::Tag => {}
            }
            if !self.pack.contains(&id) && !known.has(&id)? {
                self.pack.add(kind, id, &bytes)?;
            }
            id
        };
        stream.end_of_object()?;
        let length = self.pack.length() - offset;
        if length > 0 {
            self.places.insert(id, FreshPlace { kind, offset, length, size });
            if kind == Kind::Commit {
                self.commits.push((id, first_parent));
                self.claims.extend(claims.then_some(id));
            }
        }
        Ok(())
    }

    fn kind(&self, id: &ObjectId) -> Option<Kind> {
        self.places.get(id).map(|place| place.kind)
    }

    /// The bytes of a folder or commit that came with the pack.
    fn read(&mut self, id: &ObjectId, kind: Kind) -> Result<Option<Vec<u8>>, TreeError> {
        let Some(place) = self.places.get(id).filter(|place| place.kind == kind) else {
            return Ok(None);
        };
        let entry = self.pack.read(place.offset, place.length)?;
        let (_, bytes) = pack::inflate(&entry).map_err(|fault| TreeError::corrupt(id, fault))?;
        Ok(Some(bytes))
    }

    /// The parents of a commit, new or known.
    fn parents(&mut self, known: &Objects, id: &ObjectId) -> Result<Vec<ObjectId>, TreeError> {
        if let Some(bytes) = self.read(id, Kind::Commit)? {
            return Ok(shape::commit(id, &bytes)?.parents);
        }
        match known.commit(id)? {
            Some(commit) => Ok(commit.parents.clone()),
            None => Err(TreeError::VersionNotFound { version: id.to_string() }),
        }
    }
}
