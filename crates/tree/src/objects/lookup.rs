//! Which pack holds an object, and which objects garbage collection has condemned.
//!
//! Small packs come as short sorted runs, and runs of similar length are merged, so that a look-up is a few binary
//! searches whatever the number of packs; an object takes 48 bytes. A pack of [`LARGE_PACK`] objects or more is searched
//! in its index on disk. Garbage collection merges small packs into large ones, so that memory does not grow with a store.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gix_hash::ObjectId;

pub(crate) use super::disk_index::DiskIndex;
use crate::blob_store::{BlobName, BlobStore, Part};
use crate::error::TreeError;
use crate::ledger::Amount;
use crate::pack::MAX_IN_MEMORY;
use crate::pack::index::{self, IndexEntry};

/// Objects from which on a pack's index stays on disk.
pub(crate) const LARGE_PACK: u32 = 1 << 14;

/// Where an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: ObjectId,
    /// How many objects that pack has.
    pub(crate) objects: u32,
    pub(crate) offset: u64,
    pub(crate) extent: Extent,
    pub(crate) crc: u32,
}

/// How long the stored form of an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Bytes(u64),
    /// Up to the end of its pack.
    ToEnd,
    /// As it says itself.
    Told,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    id: ObjectId,
    pack: u32,
    crc: u32,
    offset: u64,
    /// Zero for the last object of a pack, which ends with it.
    length: u64,
}

/// A pack of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackInfo {
    pub(crate) pack: ObjectId,
    pub(crate) objects: u32,
    /// Of all its files.
    pub(crate) bytes: u64,
    /// The epoch in which it was written.
    pub(crate) born: u64,
}

impl PackInfo {
    pub(crate) fn amount(&self) -> Amount {
        Amount { bytes: self.bytes, files: u64::from(self.objects) }
    }
}

/// Objects that nothing led to when garbage collection last looked.
#[derive(Debug)]
pub(crate) struct Condemned {
    pub(crate) ids: Arc<HashSet<ObjectId>>,
    /// They may go once no lease of an earlier epoch is left.
    pub(crate) since: u64,
    /// Somebody came across one of them: they all stay, and are looked at again.
    pub(crate) touched: AtomicBool,
}

/// The number of an object within a [`Lookup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) source: usize,
    pub(crate) index: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Lookup {
    /// Rows name packs by their place here; that of a pack which is gone is free.
    packs: Vec<Option<PackInfo>>,
    free: Vec<u32>,
    /// Each sorted by id. An object that is in several packs has a row for each, the oldest first.
    runs: Vec<Arc<Vec<Row>>>,
    large: Vec<Arc<DiskIndex>>,
    /// Indexes that could not be used.
    damaged: Vec<String>,
    pub(crate) condemned: Option<Condemned>,
}

impl Lookup {
    pub(crate) fn load(blobs: &dyn BlobStore) -> Result<Self, TreeError> {
        let mut lookup = Self::default();
        let mut names = blobs.list()?;
        names.sort_unstable();
        let mut rows = Vec::new();
        for name in names.iter().filter(|name| name.part == Part::Index) {
            let bytes = size_of_pack(blobs, &names, name)?;
            match read_index(blobs, name)? {
                Ok(Index::Small(entries)) => {
                    let info = PackInfo { pack: name.pack, objects: count(&entries), bytes, born: 0 };
                    let number = lookup.number(info);
                    rows.extend(rows_of(number, entries));
                }
                Ok(Index::Large(index)) => {
                    lookup.number(PackInfo { pack: name.pack, objects: index.len(), bytes, born: 0 });
                    lookup.large.push(Arc::new(index));
                }
                Err(fault) => {
                    tracing::error!(file = %name, fault, "a pack index is damaged; its objects cannot be read");
                    lookup.damaged.push(format!("{name}: {fault}"));
                }
            }
        }
        rows.sort_by_key(|row| row.id);
        lookup.runs.push(Arc::new(rows));
        Ok(lookup)
    }

    /// Adds a pack that was just put; `false` when it was here already.
    pub(crate) fn add(
        &mut self,
        blobs: &dyn BlobStore,
        info: PackInfo,
        entries: Vec<IndexEntry>,
    ) -> Result<bool, TreeError> {
        if let Some(known) = self.packs.iter_mut().flatten().find(|known| known.pack == info.pack) {
            known.born = known.born.max(info.born);
            return Ok(false);
        }
        if info.objects >= LARGE_PACK {
            let name = BlobName { pack: info.pack, part: Part::Index };
            let index = DiskIndex::open(blobs, &name)?.map_err(|fault| TreeError::corrupt(name, fault))?;
            self.number(info);
            self.large.push(Arc::new(index));
            return Ok(true);
        }
        let number = self.number(info);
        let mut run = rows_of(number, entries);
        run.sort_by_key(|row| row.id);
        while let Some(last) = self.runs.pop_if(|last| last.len() / 2 <= run.len()) {
            let mut merged = Arc::unwrap_or_clone(last);
            merged.append(&mut run);
            merged.sort_by_key(|row| row.id);
            run = merged;
        }
        self.runs.push(Arc::new(run));
        Ok(true)
    }

    /// Forgets packs whose objects are in another that was added, or not wanted any more.
    pub(crate) fn remove(&mut self, gone: &BTreeSet<ObjectId>) {
        let numbers: BTreeSet<u32> = (0..)
            .zip(&self.packs)
            .filter_map(|(number, info)| info.filter(|info| gone.contains(&info.pack)).map(|_| number))
            .collect();
        for run in &mut self.runs {
            if run.iter().any(|row| numbers.contains(&row.pack)) {
                *run = Arc::new(run.iter().filter(|row| !numbers.contains(&row.pack)).copied().collect());
            }
        }
        self.runs.retain(|run| !run.is_empty());
        self.large.retain(|index| !gone.contains(&index.pack()));
        for number in numbers {
            if let Some(slot) = usize::try_from(number).ok().and_then(|at| self.packs.get_mut(at)) {
                *slot = None;
                self.free.push(number);
            }
        }
    }

    /// Where `id` is. Not being found is an answer only while every index could be read.
    pub(crate) fn find(&self, id: &ObjectId) -> Result<Option<Place>, TreeError> {
        if let Some(place) = self.find_row(id).and_then(|(_, row)| self.place_of(row)) {
            return Ok(Some(place));
        }
        for index in &self.large {
            if let Some(at) = index.position(id)? {
                let (offset, crc) = index.entry(at)?;
                let (pack, objects) = (index.pack(), index.len());
                return Ok(Some(Place { pack, objects, offset, extent: Extent::Told, crc }));
            }
        }
        match self.damaged.first() {
            Some(fault) => Err(TreeError::corrupt("pack index", fault)),
            None => Ok(None),
        }
    }

    /// The number of `id`, and its pack.
    pub(crate) fn position(&self, id: &ObjectId) -> Result<Option<(Position, ObjectId)>, TreeError> {
        if let Some((position, row)) = self.find_row(id) {
            return Ok(self.place_of(row).map(|place| (position, place.pack)));
        }
        for (number, index) in self.large.iter().enumerate() {
            if let Some(at) = index.position(id)? {
                let index_in = usize::try_from(at).unwrap_or(usize::MAX);
                return Ok(Some((Position { source: self.runs.len() + number, index: index_in }, index.pack())));
            }
        }
        Ok(None)
    }

    /// How many objects each source of positions has.
    pub(crate) fn sources(&self) -> Vec<usize> {
        let large = self.large.iter().map(|index| usize::try_from(index.len()).unwrap_or(usize::MAX));
        self.runs.iter().map(|run| run.len()).chain(large).collect()
    }

    /// Id and pack of every object, by position, until `each` says to stop.
    pub(crate) fn every(&self, each: &mut dyn FnMut(Position, &ObjectId, &ObjectId) -> bool) -> Result<(), TreeError> {
        for (source, run) in self.runs.iter().enumerate() {
            for (index, row) in run.iter().enumerate() {
                let Some(place) = self.place_of(row) else { continue };
                if !each(Position { source, index }, &row.id, &place.pack) {
                    return Ok(());
                }
            }
        }
        for (number, large) in self.large.iter().enumerate() {
            let (source, mut from) = (self.runs.len() + number, 0);
            while from < large.len() {
                let count = (large.len() - from).min(1 << 12);
                for (index, id) in large.ids(from, count)?.iter().enumerate() {
                    let index = usize::try_from(from).unwrap_or(usize::MAX) + index;
                    if !each(Position { source, index }, id, &large.pack()) {
                        return Ok(());
                    }
                }
                from += count;
            }
        }
        Ok(())
    }

    pub(crate) fn packs(&self) -> impl Iterator<Item = &PackInfo> {
        self.packs.iter().flatten()
    }

    /// What is here now, to look at while it changes.
    pub(crate) fn snapshot(&self) -> Self {
        Self {
            packs: self.packs.clone(),
            free: Vec::new(),
            runs: self.runs.clone(),
            large: self.large.clone(),
            damaged: self.damaged.clone(),
            condemned: None,
        }
    }

    /// Why nothing can be said about what is missing, if so.
    pub(crate) fn damage(&self) -> Option<&String> {
        self.damaged.first()
    }

    /// Whether `id` is condemned. Whoever looks at such an object keeps it, and those that it may lead to.
    pub(crate) fn touch(&self, id: &ObjectId) {
        if let Some(condemned) = &self.condemned
            && condemned.ids.contains(id)
        {
            condemned.touched.store(true, Ordering::SeqCst);
        }
    }

    pub(crate) fn is_condemned(&self, id: &ObjectId) -> bool {
        self.condemned.as_ref().is_some_and(|condemned| condemned.ids.contains(id))
    }

    fn find_row(&self, id: &ObjectId) -> Option<(Position, &Row)> {
        self.runs.iter().enumerate().find_map(|(source, run)| {
            let index = run.partition_point(|row| row.id < *id);
            run.get(index).filter(|row| row.id == *id).map(|row| (Position { source, index }, row))
        })
    }

    fn place_of(&self, row: &Row) -> Option<Place> {
        let info = self.packs.get(usize::try_from(row.pack).ok()?)?.as_ref()?;
        let extent = if row.length == 0 { Extent::ToEnd } else { Extent::Bytes(row.length) };
        Some(Place { pack: info.pack, objects: info.objects, offset: row.offset, extent, crc: row.crc })
    }

    fn number(&mut self, info: PackInfo) -> u32 {
        if let Some(number) = self.free.pop()
            && let Some(slot) = usize::try_from(number).ok().and_then(|at| self.packs.get_mut(at))
        {
            *slot = Some(info);
            return number;
        }
        self.packs.push(Some(info));
        u32::try_from(self.packs.len() - 1).unwrap_or(u32::MAX)
    }
}

fn rows_of(pack: u32, mut entries: Vec<IndexEntry>) -> Vec<Row> {
    entries.sort_unstable_by_key(|entry| entry.offset);
    let ends: Vec<u64> = entries.iter().skip(1).map(|next| next.offset).chain([0]).collect();
    let row = |(entry, end): (IndexEntry, u64)| Row {
        id: entry.id,
        pack,
        crc: entry.crc,
        offset: entry.offset,
        length: end.saturating_sub(entry.offset),
    };
    entries.into_iter().zip(ends).map(row).collect()
}

fn count(entries: &[IndexEntry]) -> u32 {
    u32::try_from(entries.len()).unwrap_or(u32::MAX)
}

enum Index {
    Small(Vec<IndexEntry>),
    Large(DiskIndex),
}

/// An index, or what is wrong with it.
fn read_index(blobs: &dyn BlobStore, name: &BlobName) -> Result<Result<Index, &'static str>, TreeError> {
    let Some(file) = blobs.open(name)? else {
        return Ok(Err("the file vanished"));
    };
    if file.length() > 1072 + 28 * u64::from(LARGE_PACK) {
        return Ok(DiskIndex::open(blobs, name)?.map(Index::Large));
    }
    let Some(length) = usize::try_from(file.length()).ok().filter(|length| *length as u64 <= MAX_IN_MEMORY) else {
        return Ok(Err("the file is larger than any that is written here"));
    };
    let mut bytes = vec![0; length];
    file.read_exact_at(0, &mut bytes).map_err(TreeError::storage("reading", name))?;
    Ok(index::decode(&bytes, &name.pack).map(Index::Small))
}

/// Bytes of a pack's files, of which `names` are in order.
fn size_of_pack(blobs: &dyn BlobStore, names: &[BlobName], index: &BlobName) -> Result<u64, TreeError> {
    let mut bytes = 0;
    for part in [Part::Sums, Part::Pack, Part::Index] {
        let name = BlobName { part, ..*index };
        if names.binary_search(&name).is_ok() {
            bytes += blobs.open(&name)?.map_or(0, |file| file.length());
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob_store::Folder;

    #[test]
    fn many_packs_are_found_in_few_runs_and_can_go() {
        let blobs = Folder::new("/nonexistent".into());
        let id = |n: u32| crate::object::hash(crate::object::Kind::Blob, &n.to_be_bytes()).unwrap();
        let mut lookup = Lookup::default();
        for n in 0..2000 {
            let entry = |k: u32| IndexEntry { id: id(3 * n + k), offset: u64::from(12 + 10 * k), crc: k };
            let info = PackInfo { pack: id(1_000_000 + n), objects: 3, bytes: 9, born: 0 };
            assert!(lookup.add(&blobs, info, vec![entry(2), entry(0), entry(1)]).unwrap());
            assert!(!lookup.add(&blobs, info, vec![entry(2)]).unwrap(), "known");
        }
        assert!(lookup.runs.len() <= 13, "{}", lookup.runs.len());
        for n in 0..2000 {
            let place = lookup.find(&id(3 * n + 1)).unwrap().unwrap();
            let extent = Extent::Bytes(10);
            assert_eq!(place, Place { pack: id(1_000_000 + n), objects: 3, offset: 22, extent, crc: 1 });
            assert_eq!(lookup.find(&id(3 * n + 2)).unwrap().unwrap().extent, Extent::ToEnd);
        }
        assert_eq!(lookup.find(&id(9_999_999)).unwrap(), None);
        lookup.remove(&(0..1000).map(|n| id(1_000_000 + n)).collect());
        assert_eq!((lookup.packs().count(), lookup.free.len()), (1000, 1000));
        assert_eq!(lookup.find(&id(1)).unwrap(), None);
        assert!(lookup.find(&id(3 * 1500)).unwrap().is_some());
        lookup.damaged.push("x".to_owned());
        assert!(lookup.find(&id(9_999_999)).is_err());
    }
}
