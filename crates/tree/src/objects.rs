//! Finds and reads one store's objects, and verifies every byte before it is used.

mod lookup;

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gix_hash::ObjectId;

use crate::blob_store::{BlobName, BlobStore, Part, RangedRead, Scratch};
use crate::cache::{Caches, StoreNumber, lock};
use crate::commit::{self, Commit};
use crate::error::TreeError;
use crate::object::{self, Kind, Tree};
use crate::pack::stored::{Adler32, BLOCK_HEADER, Layout, block_header};
use crate::pack::writer::{PackWriter, Published};
use crate::pack::{
    LARGE, MAX_ENTRY_HEADER, MAX_IN_MEMORY, TRAILER_BYTES, decode_entry_header, encode_header, inflate, sums,
};
use lookup::Lookup;
pub(crate) use lookup::Place;

/// The objects of one store.
#[derive(Debug)]
pub(crate) struct Objects {
    number: StoreNumber,
    blobs: Box<dyn BlobStore>,
    caches: Arc<Caches>,
    /// `None` until the first look-up.
    lookup: RwLock<Option<Lookup>>,
    loading: Mutex<()>,
}

/// A file, ready to be read.
#[derive(Debug)]
pub(crate) enum FileSource {
    /// Verified content.
    Memory(Vec<u8>),
    /// A large file whose blocks are verified one by one.
    Blocks { pack: Arc<dyn RangedRead>, layout: Layout, sums: Arc<Vec<u32>> },
}

impl Objects {
    pub(crate) fn new(number: StoreNumber, blobs: Box<dyn BlobStore>, caches: Arc<Caches>) -> Self {
        Self { number, blobs, caches, lookup: RwLock::new(None), loading: Mutex::new(()) }
    }

    pub(crate) fn begin(&self) -> Result<PackWriter, TreeError> {
        PackWriter::new(self.blobs.scratch()?)
    }

    /// A local file for content whose size is not known yet.
    pub(crate) fn scratch(&self) -> Result<Scratch, TreeError> {
        self.blobs.scratch()
    }

    /// Makes the objects of `pack` durable and visible.
    pub(crate) fn publish(&self, pack: PackWriter) -> Result<(), TreeError> {
        if pack.is_empty() {
            return Ok(());
        }
        self.load()?;
        let Published { pack, entries } = pack.publish(&*self.blobs)?;
        if let Some(lookup) = self.lookup.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            lookup.add(pack, entries);
        }
        Ok(())
    }

    /// Whether an object need not be written again. Damage elsewhere is no reason to refuse a write.
    pub(crate) fn has(&self, id: &ObjectId) -> Result<bool, TreeError> {
        self.load()?;
        let lookup = self.lookup.read().unwrap_or_else(PoisonError::into_inner);
        Ok(lookup.as_ref().is_some_and(|lookup| lookup.find(id).is_ok_and(|place| place.is_some())))
    }

    /// A commit; `None` when this store has no commit of that id.
    pub(crate) fn commit(&self, id: &ObjectId) -> Result<Option<Arc<Commit>>, TreeError> {
        let key = (self.number, *id);
        if let Some(commit) = lock(&self.caches.commits).get(&key) {
            return Ok(Some(commit));
        }
        let Some(bytes) = self.read(id, Kind::Commit)? else {
            return Ok(None);
        };
        let commit = Arc::new(commit::decode(id, &bytes)?);
        lock(&self.caches.commits).put(key, Arc::clone(&commit), bytes.len() + 200);
        Ok(Some(commit))
    }

    /// A tree; `None` when this store has no tree of that id.
    pub(crate) fn tree(&self, id: &ObjectId) -> Result<Option<Arc<Tree>>, TreeError> {
        if id.is_empty_tree() {
            return Ok(Some(Arc::new(Tree::empty())));
        }
        let key = (self.number, *id);
        if let Some(tree) = lock(&self.caches.trees).get(&key) {
            return Ok(Some(tree));
        }
        let Some(bytes) = self.read(id, Kind::Tree)? else {
            return Ok(None);
        };
        let tree = Arc::new(object::decode_tree(id, &bytes)?);
        lock(&self.caches.trees).put(key, Arc::clone(&tree), bytes.len() + tree.entries.len() * 64);
        Ok(Some(tree))
    }

    /// A tree that a commit or tree of this store refers to.
    pub(crate) fn known_tree(&self, id: &ObjectId) -> Result<Arc<Tree>, TreeError> {
        self.tree(id)?.ok_or_else(|| TreeError::corrupt(id, "a folder is missing from the store"))
    }

    /// The size of a file that a tree of this store refers to.
    pub(crate) fn file_size(&self, id: &ObjectId) -> Result<u64, TreeError> {
        let key = (self.number, *id);
        if let Some(size) = lock(&self.caches.sizes).get(&key) {
            return Ok(size);
        }
        let (place, pack) = self.open_known(id)?;
        let size = match large_layout(&*pack, &place).map_err(|fault| TreeError::corrupt(id, fault))? {
            Some(layout) => layout.size,
            None => {
                let entry = read_entry(&*pack, &place)?;
                match decode_entry_header(&entry) {
                    Ok((Kind::Blob, size, _)) => size,
                    Ok(_) => return Err(TreeError::corrupt(id, "not a file")),
                    Err(fault) => return Err(TreeError::corrupt(id, fault)),
                }
            }
        };
        lock(&self.caches.sizes).put(key, size, 1);
        Ok(size)
    }

    /// Opens a file that a tree of this store refers to.
    pub(crate) fn open_file(&self, id: &ObjectId) -> Result<FileSource, TreeError> {
        let (place, pack) = self.open_known(id)?;
        let Some(layout) = large_layout(&*pack, &place).map_err(|fault| TreeError::corrupt(id, fault))? else {
            let entry = read_entry(&*pack, &place)?;
            return verify(id, Kind::Blob, &entry).map(FileSource::Memory);
        };
        let sums = self.block_sums(id, &place, &*pack, &layout)?;
        Ok(FileSource::Blocks { pack, layout, sums })
    }

    /// The table of a large file's block checksums: as written with it, or made anew by verifying the whole.
    fn block_sums(
        &self,
        id: &ObjectId,
        place: &Place,
        pack: &dyn RangedRead,
        layout: &Layout,
    ) -> Result<Arc<Vec<u32>>, TreeError> {
        let key = (self.number, *id);
        if let Some(table) = lock(&self.caches.sums).get(&key) {
            return Ok(table);
        }
        let name = BlobName { pack: place.pack, part: Part::Sums };
        let table = match self.blobs.open(&name)? {
            Some(file) => read_all(&*file, &name)?.and_then(|bytes| sums::find(&bytes, id)),
            None => None,
        };
        let framing = read_framing(pack, place, layout)?;
        let whole = |table: &Vec<u32>| table.len() as u64 == layout.blocks() + 1;
        let table = match table.filter(whole) {
            Some(table) if table.last() == Some(&sums::crc32(&framing)) => table,
            Some(_) => return Err(TreeError::corrupt(id, "the frame of the object does not match its checksum")),
            None => {
                tracing::warn!(file = %name, object = %id, "block checksums are missing or damaged; verifying the whole");
                verify_blocks(id, pack, layout, &framing)?
            }
        };
        let table = Arc::new(table);
        lock(&self.caches.sums).put(key, Arc::clone(&table), table.len() * 4);
        Ok(table)
    }

    /// The verified content of an object that is read as a whole; `None` when there is no such object of that kind.
    fn read(&self, id: &ObjectId, kind: Kind) -> Result<Option<Vec<u8>>, TreeError> {
        let Some(place) = self.place(id)? else {
            return Ok(None);
        };
        let pack = self.pack(&place)?;
        let entry = read_entry(&*pack, &place)?;
        match decode_entry_header(&entry) {
            Ok((other, ..)) if other != kind => verify(id, other, &entry).map(|_content| None),
            _ => verify(id, kind, &entry).map(Some),
        }
    }

    fn open_known(&self, id: &ObjectId) -> Result<(Place, Arc<dyn RangedRead>), TreeError> {
        let place = self.place(id)?.ok_or_else(|| TreeError::corrupt(id, "a file is missing from the store"))?;
        let pack = self.pack(&place)?;
        Ok((place, pack))
    }

    /// Opens a pack, whose frame must be the one that its name and index tell.
    fn pack(&self, place: &Place) -> Result<Arc<dyn RangedRead>, TreeError> {
        let key = (self.number, place.pack);
        if let Some(open) = lock(&self.caches.packs).get(&key) {
            return Ok(open);
        }
        let name = BlobName { pack: place.pack, part: Part::Pack };
        let open = self.blobs.open(&name)?.ok_or_else(|| TreeError::corrupt(name, "the file is missing"))?;
        let (mut header, mut trailer) = ([0; 12], [0; 20]);
        let end = open.length().checked_sub(TRAILER_BYTES).ok_or_else(|| TreeError::corrupt(name, "it is cut off"))?;
        let read = open.read_exact_at(0, &mut header).and_then(|()| open.read_exact_at(end, &mut trailer));
        read.map_err(TreeError::storage("reading", name))?;
        if header != encode_header(place.objects) || trailer != place.pack.as_slice() {
            return Err(TreeError::corrupt(name, "its frame is not the one that was written"));
        }
        let open: Arc<dyn RangedRead> = Arc::from(open);
        lock(&self.caches.packs).put(key, Arc::clone(&open), 1);
        Ok(open)
    }

    fn place(&self, id: &ObjectId) -> Result<Option<Place>, TreeError> {
        self.load()?;
        let lookup = self.lookup.read().unwrap_or_else(PoisonError::into_inner);
        lookup.as_ref().map_or(Ok(None), |lookup| lookup.find(id))
    }

    /// Reads all indexes, once.
    fn load(&self) -> Result<(), TreeError> {
        let loaded = || self.lookup.read().unwrap_or_else(PoisonError::into_inner).is_some();
        if loaded() {
            return Ok(());
        }
        let _one = lock(&self.loading);
        if !loaded() {
            let lookup = Lookup::load(&*self.blobs)?;
            *self.lookup.write().unwrap_or_else(PoisonError::into_inner) = Some(lookup);
        }
        Ok(())
    }
}

/// A whole small file of the store; `None` when it is too large to be sound.
fn read_all(file: &dyn RangedRead, name: &BlobName) -> Result<Option<Vec<u8>>, TreeError> {
    let Some(length) = usize::try_from(file.length()).ok().filter(|length| *length as u64 <= MAX_IN_MEMORY) else {
        return Ok(None);
    };
    let mut bytes = vec![0; length];
    file.read_exact_at(0, &mut bytes).map_err(TreeError::storage("reading", name))?;
    Ok(Some(bytes))
}

/// How long an object's stored form is. The last one of a pack ends at the pack's checksum.
fn entry_length(pack: &dyn RangedRead, place: &Place) -> Option<u64> {
    let end = pack.length().checked_sub(TRAILER_BYTES)?;
    let length = if place.length == 0 { end.checked_sub(place.offset)? } else { place.length };
    (place.offset.checked_add(length)? <= end).then_some(length)
}

/// The stored form of an object that is read as a whole, exactly as written.
fn read_entry(pack: &dyn RangedRead, place: &Place) -> Result<Vec<u8>, TreeError> {
    let length = entry_length(pack, place).ok_or_else(|| TreeError::corrupt(place.pack, "the pack is cut off"))?;
    if length > MAX_IN_MEMORY {
        return Err(TreeError::corrupt(place.pack, "an object is larger than any that is written here"));
    }
    let mut entry = vec![0; usize::try_from(length).unwrap_or(0)];
    pack.read_exact_at(place.offset, &mut entry).map_err(TreeError::storage("reading", place.pack))?;
    if sums::crc32(&entry) != place.crc {
        return Err(TreeError::corrupt(place.pack, "an object does not match its checksum"));
    }
    Ok(entry)
}

fn verify(id: &ObjectId, kind: Kind, entry: &[u8]) -> Result<Vec<u8>, TreeError> {
    let (stored, content) = inflate(entry).map_err(|fault| TreeError::corrupt(id, fault))?;
    if stored != kind || object::hash(kind, &content)? != *id {
        return Err(TreeError::corrupt(id, "the content does not match its id"));
    }
    Ok(content)
}

/// The layout of a large file; `None` for any object that is kept otherwise.
fn large_layout(pack: &dyn RangedRead, place: &Place) -> Result<Option<Layout>, &'static str> {
    let length = entry_length(pack, place).ok_or("the pack is cut off")?;
    if length <= LARGE {
        return Ok(None);
    }
    let mut header = [0; 16];
    pack.read_exact_at(place.offset, &mut header).map_err(|_cause| "the object cannot be read")?;
    let (kind, size, used) = decode_entry_header(header.get(..10).unwrap_or_default())?;
    debug_assert!(used as u64 <= MAX_ENTRY_HEADER);
    let framed = header.get(used..).is_some_and(|rest| rest.starts_with(&crate::pack::stored::ZLIB_HEADER));
    let layout = Layout::new(place.offset, used as u64, length, size);
    Ok(layout.filter(|_| framed && kind == Kind::Blob))
}

/// Reads one block of a large file, header included, into `out`.
pub(crate) fn read_block(
    pack: &dyn RangedRead,
    layout: &Layout,
    number: u64,
    out: &mut Vec<u8>,
) -> Result<(), TreeError> {
    let damaged = || TreeError::corrupt(format!("block {number} of a large file"), "it is not as it was written");
    let (start, length) = layout.block(number).ok_or_else(damaged)?;
    out.clear();
    out.resize(usize::try_from(length + BLOCK_HEADER).unwrap_or(0), 0);
    pack.read_exact_at(start, out).map_err(TreeError::storage("reading", "a large file"))?;
    let last = number + 1 == layout.blocks();
    if out.starts_with(&block_header(length, last)) { Ok(()) } else { Err(damaged()) }
}

/// What surrounds the blocks of a large file: the bytes before the first, then the checksum after the last.
fn read_framing(pack: &dyn RangedRead, place: &Place, layout: &Layout) -> Result<Vec<u8>, TreeError> {
    let before = usize::try_from(layout.first - place.offset).unwrap_or(0);
    let mut framing = vec![0; before + 4];
    let (head, tail) = framing.split_at_mut_checked(before).unwrap_or_default();
    let read = pack.read_exact_at(place.offset, head).and_then(|()| pack.read_exact_at(layout.end(), tail));
    read.map_err(TreeError::storage("reading", place.pack))?;
    Ok(framing)
}

fn verify_blocks(id: &ObjectId, pack: &dyn RangedRead, layout: &Layout, framing: &[u8]) -> Result<Vec<u32>, TreeError> {
    let (mut hasher, mut adler) = (object::ObjectHasher::new(Kind::Blob, layout.size), Adler32::new());
    let (mut block, mut table) = (Vec::new(), Vec::new());
    for number in 0..layout.blocks() {
        read_block(pack, layout, number, &mut block)?;
        let content = block.get(5..).unwrap_or_default();
        hasher.update(content);
        adler.update(content);
        table.push(sums::crc32(&block));
    }
    table.push(sums::crc32(framing));
    if hasher.finish()? == *id && framing.ends_with(&adler.sum().to_be_bytes()) {
        Ok(table)
    } else {
        Err(TreeError::corrupt(id, "the content does not match its id"))
    }
}
