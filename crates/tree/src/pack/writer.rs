//! Writes one pack into a scratch file, object by object, in flat memory.

use std::collections::HashSet;
use std::io::{Read, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use gix_hash::ObjectId;

use super::stored::{Adler32, BLOCK, ZLIB_HEADER, block_header};
use super::{LARGE, encode_entry_header, encode_header, index, sums};
use crate::blob_store::{BlobName, BlobStore, Part, Scratch};
use crate::error::TreeError;
use crate::ledger::{Amount, Reservation};
use crate::object::{Kind, ObjectHasher, hash};

/// A pack in the making.
#[derive(Debug)]
pub(crate) struct PackWriter {
    scratch: Scratch,
    entries: Vec<index::IndexEntry>,
    seen: HashSet<ObjectId>,
    sums: Vec<(ObjectId, Vec<u32>)>,
    reservation: Reservation,
}

/// A pack that is in the store.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) pack: ObjectId,
    pub(crate) entries: Vec<index::IndexEntry>,
    /// What its files take.
    pub(crate) amount: Amount,
    /// To be settled once the pack counts.
    pub(crate) reservation: Reservation,
}

impl PackWriter {
    pub(crate) fn new(mut scratch: Scratch, reservation: Reservation) -> Result<Self, TreeError> {
        scratch.append(&encode_header(0))?;
        Ok(Self { scratch, entries: Vec::new(), seen: HashSet::new(), sums: Vec::new(), reservation })
    }

    /// Takes room for what is here and `more` bytes.
    fn cover(&mut self, more: usize) -> Result<(), TreeError> {
        let bytes = self.scratch.length().saturating_add(more as u64);
        self.reservation.cover(Amount { bytes, files: self.entries.len() as u64 + 1 })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains(&self, id: &ObjectId) -> bool {
        self.seen.contains(id)
    }

    /// Bytes written so far.
    pub(crate) fn length(&self) -> u64 {
        self.scratch.length()
    }

    /// Bytes that were written before: an object's stored form.
    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, TreeError> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.scratch.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Adds an object, which is not here yet, in deflated form.
    pub(crate) fn add(&mut self, kind: Kind, id: ObjectId, bytes: &[u8]) -> Result<(), TreeError> {
        let header = encode_entry_header(kind, bytes.len() as u64);
        let mut encoder = ZlibEncoder::new(header, Compression::fast());
        let entry = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let entry = entry.map_err(TreeError::storage("deflating", id))?;
        self.add_stored(id, &entry, sums::crc32(&entry))
    }

    /// Adds an object, which is not here yet, in its stored form.
    pub(crate) fn add_stored(&mut self, id: ObjectId, entry: &[u8], crc: u32) -> Result<(), TreeError> {
        self.cover(entry.len())?;
        let offset = self.scratch.length();
        self.scratch.append(entry)?;
        self.push(id, offset, crc);
        Ok(())
    }

    /// Adds a large file, which is not here yet, in its stored form piece by piece, with its blocks' checksums.
    pub(crate) fn add_stored_large(
        &mut self,
        id: ObjectId,
        crc: u32,
        table: Vec<u32>,
        copy: &mut dyn FnMut(&mut Scratch) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let offset = self.scratch.length();
        copy(&mut self.scratch)?;
        self.push(id, offset, crc);
        self.sums.push((id, table));
        Ok(())
    }

    /// Adds a file of exactly `size` bytes, unless `known` has it. Large ones pass through in blocks.
    pub(crate) fn add_file(
        &mut self,
        size: u64,
        content: &mut dyn Read,
        known: &dyn Fn(&ObjectId) -> Result<bool, TreeError>,
    ) -> Result<ObjectId, TreeError> {
        self.reservation.check_file(size)?;
        if size >= LARGE {
            return self.add_large(size, content, known);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        content.take(size).read_to_end(&mut bytes).map_err(|source| TreeError::Input { source })?;
        if bytes.len() as u64 != size {
            return Err(TreeError::Input { source: std::io::ErrorKind::UnexpectedEof.into() });
        }
        let id = hash(Kind::Blob, &bytes)?;
        if !self.contains(&id) && !known(&id)? {
            self.add(Kind::Blob, id, &bytes)?;
        }
        Ok(id)
    }

    fn add_large(
        &mut self,
        size: u64,
        mut content: &mut dyn Read,
        known: &dyn Fn(&ObjectId) -> Result<bool, TreeError>,
    ) -> Result<ObjectId, TreeError> {
        let offset = self.scratch.length();
        let mut crc = flate2::Crc::new();
        let mut append = |scratch: &mut Scratch, bytes: &[u8]| {
            crc.update(bytes);
            scratch.append(bytes)
        };
        let mut framing = encode_entry_header(Kind::Blob, size);
        framing.extend_from_slice(&ZLIB_HEADER);
        append(&mut self.scratch, &framing)?;
        let (mut hasher, mut adler) = (ObjectHasher::new(Kind::Blob, size), Adler32::new());
        let mut block = Vec::new();
        let (mut rest, mut table) = (size, Vec::new());
        while rest > 0 {
            let length = rest.min(BLOCK);
            rest -= length;
            block.clear();
            block.extend_from_slice(&block_header(length, rest == 0));
            let start = block.len();
            (&mut content).take(length).read_to_end(&mut block).map_err(|source| TreeError::Input { source })?;
            let bytes = block.get(start..).unwrap_or_default();
            if bytes.len() as u64 != length {
                return Err(TreeError::Input { source: std::io::ErrorKind::UnexpectedEof.into() });
            }
            hasher.update(bytes);
            adler.update(bytes);
            table.push(sums::crc32(&block));
            let needed = self.scratch.length().saturating_add(block.len() as u64);
            self.reservation.cover(Amount { bytes: needed, files: self.entries.len() as u64 + 1 })?;
            append(&mut self.scratch, &block)?;
        }
        append(&mut self.scratch, &adler.sum().to_be_bytes())?;
        framing.extend_from_slice(&adler.sum().to_be_bytes());
        table.push(sums::crc32(&framing));
        let id = hasher.finish()?;
        if self.contains(&id) || known(&id)? {
            self.scratch.truncate(offset)?;
        } else {
            self.push(id, offset, crc.sum());
            self.sums.push((id, table));
        }
        Ok(id)
    }

    fn push(&mut self, id: ObjectId, offset: u64, crc: u32) {
        self.seen.insert(id);
        self.entries.push(index::IndexEntry { id, offset, crc });
    }

    /// Completes the pack and puts it, with its index, into `store`.
    pub(crate) fn publish(mut self, store: &dyn BlobStore) -> Result<Published, TreeError> {
        let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.scratch.patch(0, &encode_header(count))?;
        let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
        self.scratch.read_back(|piece| hasher.update(piece))?;
        let pack = hasher.try_finalize().map_err(|_attack| TreeError::Collision)?;
        self.scratch.append(pack.as_slice())?;
        let mut index = store.scratch()?;
        index.append(&index::encode(&mut self.entries, &pack))?;
        let name = |part| BlobName { pack, part };
        let mut files = Vec::new();
        if !self.sums.is_empty() {
            let mut scratch = store.scratch()?;
            scratch.append(&sums::encode(&self.sums))?;
            files.push((name(Part::Sums), scratch));
        }
        files.push((name(Part::Pack), self.scratch));
        files.push((name(Part::Index), index));
        let bytes = files.iter().map(|(_, scratch)| scratch.length()).sum();
        let amount = Amount { bytes, files: self.entries.len() as u64 };
        self.reservation.cover(amount)?;
        store.put(files)?;
        Ok(Published { pack, entries: self.entries, amount, reservation: self.reservation })
    }
}
