//! Which pack holds an object: one sorted table over all indexes, made when a store is first read.
//!
//! New packs come as short runs, and runs of similar length are merged, so that a look-up is a few binary searches
//! whatever the number of packs. An object takes 48 bytes.

use gix_hash::ObjectId;

use crate::blob_store::{BlobName, BlobStore, Part};
use crate::error::TreeError;
use crate::pack::MAX_IN_MEMORY;
use crate::pack::index::{self, IndexEntry};

/// Where an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: ObjectId,
    /// How many objects that pack has.
    pub(crate) objects: u32,
    pub(crate) offset: u64,
    /// Zero for the last object of a pack, which ends with it.
    pub(crate) length: u64,
    pub(crate) crc: u32,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    id: ObjectId,
    pack: u32,
    crc: u32,
    offset: u64,
    length: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Lookup {
    /// Each with the number of its objects.
    packs: Vec<(ObjectId, u32)>,
    /// Each sorted by id.
    runs: Vec<Vec<Row>>,
    /// Indexes that could not be used.
    damaged: Vec<String>,
}

impl Lookup {
    pub(crate) fn load(blobs: &dyn BlobStore) -> Result<Self, TreeError> {
        let mut lookup = Self::default();
        let mut names = blobs.list()?;
        names.sort_unstable();
        let mut rows = Vec::new();
        for name in names.into_iter().filter(|name| name.part == Part::Index) {
            match read_index(blobs, &name)? {
                Ok(entries) => {
                    let number = lookup.number(name.pack, entries.len());
                    rows.extend(rows_of(number, entries));
                }
                Err(fault) => {
                    tracing::error!(file = %name, fault, "a pack index is damaged; its objects cannot be read");
                    lookup.damaged.push(format!("{name}: {fault}"));
                }
            }
        }
        rows.sort_by_key(|row| row.id);
        rows.dedup_by_key(|row| row.id);
        lookup.runs.push(rows);
        Ok(lookup)
    }

    /// Adds a pack that was just put.
    pub(crate) fn add(&mut self, pack: ObjectId, entries: Vec<IndexEntry>) {
        let number = self.number(pack, entries.len());
        let mut run = rows_of(number, entries);
        run.sort_by_key(|row| row.id);
        while let Some(mut last) = self.runs.pop_if(|last| last.len() / 2 <= run.len()) {
            last.append(&mut run);
            last.sort_by_key(|row| row.id);
            last.dedup_by_key(|row| row.id);
            run = last;
        }
        self.runs.push(run);
    }

    /// Where `id` is. Not being found is an answer only while every index could be read.
    pub(crate) fn find(&self, id: &ObjectId) -> Result<Option<Place>, TreeError> {
        let row = self.runs.iter().find_map(|run| {
            let at = run.binary_search_by_key(id, |row| row.id).ok()?;
            run.get(at)
        });
        let place = row.and_then(|row| {
            let (pack, objects) = *self.packs.get(usize::try_from(row.pack).ok()?)?;
            Some(Place { pack, objects, offset: row.offset, length: row.length, crc: row.crc })
        });
        match (place, self.damaged.first()) {
            (None, Some(fault)) => Err(TreeError::corrupt("pack index", fault)),
            (place, _) => Ok(place),
        }
    }

    fn number(&mut self, pack: ObjectId, objects: usize) -> u32 {
        self.packs.push((pack, u32::try_from(objects).unwrap_or(u32::MAX)));
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

/// The entries of an index, or what is wrong with it.
fn read_index(blobs: &dyn BlobStore, name: &BlobName) -> Result<Result<Vec<IndexEntry>, &'static str>, TreeError> {
    let Some(file) = blobs.open(name)? else {
        return Ok(Err("the file vanished"));
    };
    let Some(length) = usize::try_from(file.length()).ok().filter(|length| *length as u64 <= MAX_IN_MEMORY) else {
        return Ok(Err("the file is larger than any that is written here"));
    };
    let mut bytes = vec![0; length];
    file.read_exact_at(0, &mut bytes).map_err(TreeError::storage("reading", name))?;
    Ok(index::decode(&bytes, &name.pack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_packs_are_found_in_few_runs() {
        let id = |n: u32| crate::object::hash(crate::object::Kind::Blob, &n.to_be_bytes()).unwrap();
        let mut lookup = Lookup::default();
        for n in 0..2000 {
            let entry = |k: u32| IndexEntry { id: id(3 * n + k), offset: u64::from(12 + 10 * k), crc: k };
            lookup.add(id(1_000_000 + n), vec![entry(2), entry(0), entry(1)]);
        }
        assert!(lookup.runs.len() <= 13, "{}", lookup.runs.len());
        for n in 0..2000 {
            let place = lookup.find(&id(3 * n + 1)).unwrap().unwrap();
            assert_eq!(place, Place { pack: id(1_000_000 + n), objects: 3, offset: 22, length: 10, crc: 1 });
            assert_eq!(lookup.find(&id(3 * n + 2)).unwrap().unwrap().length, 0);
        }
        assert_eq!(lookup.find(&id(9_999_999)).unwrap(), None);
        lookup.damaged.push("x".to_owned());
        assert!(lookup.find(&id(9_999_999)).is_err());
    }
}
