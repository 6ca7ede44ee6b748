//! The index of a large pack, searched where it lies: memory is flat, however many objects it has.

use gix_hash::ObjectId;

use crate::blob_store::{BlobName, BlobStore, RangedRead};
use crate::error::TreeError;
use crate::pack::index::{self, IndexEntry};

/// Bytes of the fixed part: the magic and 256 counters.
const FIXED: u64 = 8 + 1024;
/// Ids that are read at once at the end of a search.
const NEAR: u32 = 64;
/// Marks an offset that is in the table of 64-bit offsets.
const FAR: u32 = 0x8000_0000;

/// An index whose checksum was verified when it was opened.
#[derive(Debug)]
pub(crate) struct DiskIndex {
    name: BlobName,
    file: Box<dyn RangedRead>,
    /// How many ids start with this byte or a lower one.
    fanout: Vec<u32>,
    count: u32,
}

impl DiskIndex {
    /// Opens an index, or says what is wrong with it.
    pub(crate) fn open(blobs: &dyn BlobStore, name: &BlobName) -> Result<Result<Self, &'static str>, TreeError> {
        let Some(file) = blobs.open(name)? else {
            return Ok(Err("the file vanished"));
        };
        let length = file.length();
        if length < FIXED + 40 {
            return Ok(Err("the index is cut off"));
        }
        let mut digest = gix_hash::hasher(gix_hash::Kind::Sha1);
        let (mut at, mut piece) = (0, vec![0; 1 << 16]);
        while at < length - 20 {
            let wanted = usize::try_from(length - 20 - at).unwrap_or(usize::MAX).min(piece.len());
            let part = piece.get_mut(..wanted).unwrap_or_default();
            file.read_exact_at(at, part).map_err(TreeError::storage("reading", name))?;
            digest.update(part);
            at += wanted as u64;
        }
        let (mut head, mut tail) = (vec![0; 1032], [0; 40]);
        file.read_exact_at(0, &mut head).map_err(TreeError::storage("reading", name))?;
        file.read_exact_at(length - 40, &mut tail).map_err(TreeError::storage("reading", name))?;
        let Ok(digest) = digest.try_finalize() else {
            return Ok(Err("the index does not match its checksum"));
        };
        Ok(index::decode_frame(&head, &tail, digest.as_slice(), &name.pack).and_then(|fanout| {
            let count = fanout.last().copied().unwrap_or(0);
            let rest = length.checked_sub(FIXED + 40 + u64::from(count) * 28);
            let sound = rest.is_some_and(|far| far % 8 == 0) && fanout.is_sorted();
            if sound { Ok(Self { name: *name, file, fanout, count }) } else { Err("the index is cut off") }
        }))
    }

    pub(crate) fn pack(&self) -> ObjectId {
        self.name.pack
    }

    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Where `id` is among the ids.
    pub(crate) fn position(&self, id: &ObjectId) -> Result<Option<u32>, TreeError> {
        let first = usize::from(id.first_byte());
        let at = |byte: Option<usize>| byte.and_then(|byte| self.fanout.get(byte)).copied();
        let (mut low, mut high) = (at(first.checked_sub(1)).unwrap_or(0), at(Some(first)).unwrap_or(0));
        while high - low > NEAR {
            let middle = low + (high - low) / 2;
            match self.ids(middle, 1)?.first() {
                Some(found) if found <= id => low = middle,
                _ => high = middle,
            }
        }
        let near = self.ids(low, high - low)?;
        let found = near.binary_search(id).ok().and_then(|at| u32::try_from(at).ok());
        Ok(found.map(|at| low + at))
    }

    /// `count` ids from number `from` on.
    pub(crate) fn ids(&self, from: u32, count: u32) -> Result<Vec<ObjectId>, TreeError> {
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * 20];
        self.read(FIXED + u64::from(from) * 20, &mut bytes)?;
        Ok(bytes.chunks_exact(20).filter_map(|id| ObjectId::try_from(id).ok()).collect())
    }

    /// Offset and checksum of the object at a position.
    pub(crate) fn entry(&self, position: u32) -> Result<(u64, u32), TreeError> {
        let (count, at) = (u64::from(self.count), u64::from(position));
        let word = |from: u64| -> Result<u32, TreeError> {
            let mut four = [0; 4];
            self.read(from, &mut four)?;
            Ok(u32::from_be_bytes(four))
        };
        let crc = word(FIXED + count * 20 + at * 4)?;
        let near = word(FIXED + count * 24 + at * 4)?;
        if near < FAR {
            return Ok((u64::from(near), crc));
        }
        let mut eight = [0; 8];
        self.read(FIXED + count * 28 + u64::from(near ^ FAR) * 8, &mut eight)?;
        Ok((u64::from_be_bytes(eight), crc))
    }

    /// All entries, read at once.
    pub(crate) fn entries(&self) -> Result<Vec<IndexEntry>, TreeError> {
        let mut bytes = vec![0; usize::try_from(self.file.length()).unwrap_or(0)];
        self.read(0, &mut bytes)?;
        index::decode(&bytes, &self.name.pack).map_err(|fault| TreeError::corrupt(self.name, fault))
    }

    fn read(&self, from: u64, out: &mut [u8]) -> Result<(), TreeError> {
        self.file.read_exact_at(from, out).map_err(TreeError::storage("reading", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob_store::{Folder, Part};

    #[test]
    fn what_is_in_the_index_is_found_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Folder::new(dir.path().to_owned());
        let id = |n: u32| crate::object::hash(crate::object::Kind::Blob, &n.to_be_bytes()).unwrap();
        let pack = id(1 << 31);
        let offset = |n: u32| if n.is_multiple_of(7) { (1 << 33) + u64::from(n) } else { u64::from(n) };
        let mut entries: Vec<_> =
            (0..5000).map(|n| IndexEntry { id: id(n), offset: offset(n), crc: n ^ 0xffff }).collect();
        let name = BlobName { pack, part: Part::Index };
        let mut scratch = store.scratch().unwrap();
        scratch.append(&index::encode(&mut entries, &pack)).unwrap();
        store.put(vec![(name, scratch)]).unwrap();
        let index = DiskIndex::open(&store, &name).unwrap().unwrap();
        assert_eq!(index.len(), 5000);
        for n in 0..5000 {
            let at = index.position(&id(n)).unwrap().unwrap();
            assert_eq!(index.entry(at).unwrap(), (offset(n), n ^ 0xffff));
        }
        assert!((5000..6000).all(|n| index.position(&id(n)).unwrap().is_none()));
        assert_eq!(index.entries().unwrap(), entries);

        let file = dir.path().join(name.to_string());
        let sound = std::fs::read(&file).unwrap();
        for bit in (0..sound.len() * 8).step_by(997) {
            let mut rotten = sound.clone();
            *rotten.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            std::fs::write(&file, &rotten).unwrap();
            assert!(DiskIndex::open(&store, &name).unwrap().is_err(), "bit {bit}");
        }
        for cut in [0, 100, 1071, sound.len() - 1] {
            std::fs::write(&file, sound.get(..cut).unwrap()).unwrap();
            assert!(DiskIndex::open(&store, &name).unwrap().is_err(), "cut at {cut}");
        }
    }
}
