//! Finds and reads one store's objects, and verifies every byte before it is used.

mod disk_index;
mod lookup;
mod sweep;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use gix_hash::ObjectId;

use crate::blob_store::{BlobName, BlobStore, Part, RangedRead, Scratch};
use crate::cache::{Caches, Key, StoreNumber, lock};
use crate::commit::{self, Commit};
use crate::error::TreeError;
use crate::lease::Leases;
use crate::ledger::{Ledger, Reservation, Room};
use crate::object::{self, Kind, Tree};
use crate::pack::stored::{Adler32, BLOCK_HEADER, Layout, block_header};
use crate::pack::writer::{PackWriter, Published};
use crate::pack::{
    LARGE, MAX_ENTRY_HEADER, MAX_IN_MEMORY, TRAILER_BYTES, decode_entry_header, encode_header, inflate, sums,
};
use lookup::Extent;
pub(crate) use lookup::{Lookup, PackInfo, Place, Position};
pub(crate) use sweep::{Packed, Verdict};

/// The objects of one store.
#[derive(Debug)]
pub(crate) struct Objects {
    number: StoreNumber,
    blobs: Box<dyn BlobStore>,
    caches: Arc<Caches>,
    /// `None` until the first look-up.
    lookup: RwLock<Option<Lookup>>,
    loading: Mutex<()>,
    /// Held for reading from putting a pack to adding it to the look-up.
    publishing: RwLock<()>,
    /// The account of the store's tenant.
    ledger: Arc<Ledger>,
    /// Who is at work here.
    leases: Arc<Leases>,
    /// Commits whose parents are no longer kept.
    shallow: RwLock<Arc<HashSet<ObjectId>>>,
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
    pub(crate) fn new(
        number: StoreNumber,
        blobs: Box<dyn BlobStore>,
        caches: Arc<Caches>,
        ledger: Arc<Ledger>,
        leases: Leases,
        shallow: HashSet<ObjectId>,
    ) -> Self {
        Self {
            number,
            blobs,
            caches,
            lookup: RwLock::new(None),
            loading: Mutex::new(()),
            publishing: RwLock::new(()),
            ledger,
            leases: Arc::new(leases),
            shallow: RwLock::new(Arc::new(shallow)),
        }
    }

    /// What this store's entries of the shared caches are found by.
    pub(crate) fn key(&self, id: &ObjectId) -> Key {
        (self.number, *id)
    }

    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    pub(crate) fn begin(&self, room: Room) -> Result<PackWriter, TreeError> {
        PackWriter::new(self.blobs.scratch()?, Reservation::open(&self.ledger, room))
    }

    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(crate) fn leases(&self) -> &Arc<Leases> {
        &self.leases
    }

    /// Commits whose parents are no longer kept.
    pub(crate) fn shallow(&self) -> Arc<HashSet<ObjectId>> {
        Arc::clone(&self.shallow.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_shallow(&self, commits: HashSet<ObjectId>) {
        *self.shallow.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(commits);
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
        let _publishing = self.publishing.read().unwrap_or_else(PoisonError::into_inner);
        let Published { pack, entries, amount, reservation } = pack.publish(&*self.blobs)?;
        let objects = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let info = PackInfo { pack, objects, bytes: amount.bytes, born: self.leases.epoch() };
        if let Some(lookup) = self.lookup.write().unwrap_or_else(PoisonError::into_inner).as_mut()
            && lookup.add(&*self.blobs, info, entries)?
        {
            reservation.settle(amount);
        }
        Ok(())
    }

    /// Whether an object need not be written again. Damage elsewhere is no reason to refuse a write.
    pub(crate) fn has(&self, id: &ObjectId) -> Result<bool, TreeError> {
        self.load()?;
        let lookup = self.read_lookup();
        // INVARIANT: what is condemned is written again, so that it may go.
        let keeps = |lookup: &Lookup| !lookup.is_condemned(id) && lookup.find(id).is_ok_and(|place| place.is_some());
        Ok(lookup.as_ref().is_some_and(keeps))
    }

    /// Whether an object is here at all; asking changes nothing.
    pub(crate) fn exists(&self, id: &ObjectId) -> Result<bool, TreeError> {
        self.load()?;
        self.read_lookup().as_ref().map_or(Ok(false), |lookup| Ok(lookup.find(id)?.is_some()))
    }

    /// Whether an object is here to stay: known, and not condemned.
    pub(crate) fn stays(&self, id: &ObjectId) -> Result<bool, TreeError> {
        self.load()?;
        let lookup = self.read_lookup();
        lookup.as_ref().map_or(Ok(false), |lookup| Ok(!lookup.is_condemned(id) && lookup.find(id)?.is_some()))
    }

    /// What an object is; `None` when this store has none of that id.
    pub(crate) fn kind(&self, id: &ObjectId) -> Result<Option<Kind>, TreeError> {
        let Some((place, pack)) = self.located(id, &|| self.place(id))? else {
            return Ok(None);
        };
        let length = entry_length(&*pack, &place).unwrap_or(0).min(MAX_ENTRY_HEADER);
        let mut header = vec![0; usize::try_from(length).unwrap_or(0)];
        pack.read_exact_at(place.offset, &mut header).map_err(TreeError::storage("reading", place.pack))?;
        let (kind, ..) = decode_entry_header(&header).map_err(|fault| TreeError::corrupt(id, fault))?;
        Ok(Some(kind))
    }

    /// A commit; `None` when this store has no commit of that id.
    pub(crate) fn commit(&self, id: &ObjectId) -> Result<Option<Arc<Commit>>, TreeError> {
        // INVARIANT: the cache does not answer for what is gone.
        if self.place(id)?.is_none() {
            return Ok(None);
        }
        let key = (self.number, *id);
        let cached = lock(&self.caches.commits).get(&key);
        let commit = match cached {
            Some(commit) => commit,
            None => {
                let Some(bytes) = self.read(id, Kind::Commit)? else {
                    return Ok(None);
                };
                let commit = Arc::new(commit::decode(id, &bytes)?);
                lock(&self.caches.commits).put(key, Arc::clone(&commit), bytes.len() + 200);
                commit
            }
        };
        Ok(Some(self.cut(id, commit)))
    }

    /// A commit as it is where history ends with it.
    fn cut(&self, id: &ObjectId, commit: Arc<Commit>) -> Arc<Commit> {
        if !self.shallow().contains(id) {
            return commit;
        }
        let mut last = (*commit).clone();
        last.parents.clear();
        Arc::new(last)
    }

    /// The bytes of a commit; `None` when this store has no commit of that id.
    pub(crate) fn commit_bytes(&self, id: &ObjectId) -> Result<Option<Vec<u8>>, TreeError> {
        self.read(id, Kind::Commit)
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
        let Some((place, pack)) = self.located(id, &|| self.place(id))? else {
            return Ok(None);
        };
        let entry = read_entry(&*pack, &place)?;
        match decode_entry_header(&entry) {
            Ok((other, ..)) if other != kind => verify(id, other, &entry).map(|_content| None),
            _ => verify(id, kind, &entry).map(Some),
        }
    }

    fn open_known(&self, id: &ObjectId) -> Result<(Place, Arc<dyn RangedRead>), TreeError> {
        let found = self.located(id, &|| self.place(id))?;
        found.ok_or_else(|| TreeError::corrupt(id, "a file is missing from the store"))
    }

    /// Where an object is, with its pack opened. Garbage collection may move it in between: then it is elsewhere.
    fn located(&self, id: &ObjectId, place: Search<'_>) -> Result<Option<Located>, TreeError> {
        let mut missing = None;
        loop {
            let Some(place) = place()? else {
                return Ok(None);
            };
            if let Some(pack) = self.pack(&place)? {
                return Ok(Some((place, pack)));
            }
            if missing.replace(place) == Some(place) {
                return Err(TreeError::corrupt(id, "the file that has it is missing"));
            }
        }
    }

    /// Opens a pack, whose frame must be the one that its name and index tell; `None` when its file is not there.
    fn pack(&self, place: &Place) -> Result<Option<Arc<dyn RangedRead>>, TreeError> {
        let key = (self.number, place.pack);
        if let Some(open) = lock(&self.caches.packs).get(&key) {
            return Ok(Some(open));
        }
        let name = BlobName { pack: place.pack, part: Part::Pack };
        let Some(open) = self.blobs.open(&name)? else {
            return Ok(None);
        };
        let (mut header, mut trailer) = ([0; 12], [0; 20]);
        let end = open.length().checked_sub(TRAILER_BYTES).ok_or_else(|| TreeError::corrupt(name, "it is cut off"))?;
        let read = open.read_exact_at(0, &mut header).and_then(|()| open.read_exact_at(end, &mut trailer));
        read.map_err(TreeError::storage("reading", name))?;
        if header != encode_header(place.objects) || trailer != place.pack.as_slice() {
            return Err(TreeError::corrupt(name, "its frame is not the one that was written"));
        }
        let open: Arc<dyn RangedRead> = Arc::from(open);
        lock(&self.caches.packs).put(key, Arc::clone(&open), 1);
        Ok(Some(open))
    }

    fn place(&self, id: &ObjectId) -> Result<Option<Place>, TreeError> {
        self.load()?;
        let lookup = self.read_lookup();
        lookup.as_ref().map_or(Ok(None), |lookup| {
            lookup.touch(id);
            lookup.find(id)
        })
    }

    fn read_lookup(&self) -> RwLockReadGuard<'_, Option<Lookup>> {
        self.lookup.read().unwrap_or_else(PoisonError::into_inner)
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

/// Where an object is, and its pack, open.
type Located = (Place, Arc<dyn RangedRead>);
/// Looks an object up, once more when it has moved.
type Search<'a> = &'a dyn Fn() -> Result<Option<Place>, TreeError>;

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
fn entry_length(pack: &dyn RangedRead, place: &Place) -> Result<u64, &'static str> {
    let cut = "the pack is cut off";
    let end = pack.length().checked_sub(TRAILER_BYTES).ok_or(cut)?;
    let length = match place.extent {
        Extent::Bytes(length) => length,
        Extent::ToEnd => end.checked_sub(place.offset).ok_or(cut)?,
        Extent::Told => told_length(pack, place, end)?,
    };
    let whole = place.offset.checked_add(length).is_some_and(|last| last <= end);
    if whole { Ok(length) } else { Err(cut) }
}

/// The length of an object from its own bytes: by arithmetic where it is stored, else by inflating it.
fn told_length(pack: &dyn RangedRead, place: &Place, end: u64) -> Result<u64, &'static str> {
    let unreadable = "the object cannot be read";
    let room = end.checked_sub(place.offset).ok_or("the pack is cut off")?;
    let mut header = vec![0; usize::try_from(room.min(16)).unwrap_or(16)];
    pack.read_exact_at(place.offset, &mut header).map_err(|_cause| unreadable)?;
    let (kind, size, used) = decode_entry_header(header.get(..10).unwrap_or(&header))?;
    let framing = used as u64 + 2 + size.div_ceil(crate::pack::stored::BLOCK).saturating_mul(BLOCK_HEADER) + 4;
    let stored = size.saturating_add(framing);
    if kind == Kind::Blob && size >= LARGE {
        return Ok(stored);
    }
    // Deflate adds no more than its framing to what it cannot make smaller.
    let most = stored.saturating_add(64).min(room).min(MAX_IN_MEMORY);
    let mut bytes = vec![0; usize::try_from(most).unwrap_or(0)];
    pack.read_exact_at(place.offset, &mut bytes).map_err(|_cause| unreadable)?;
    let deflated = crate::pack::deflated_length(bytes.get(used..).unwrap_or_default(), size)?;
    Ok(used as u64 + deflated)
}

/// The stored form of an object that is read as a whole, exactly as written.
pub(crate) fn read_entry(pack: &dyn RangedRead, place: &Place) -> Result<Vec<u8>, TreeError> {
    let length = entry_length(pack, place).map_err(|fault| TreeError::corrupt(place.pack, fault))?;
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
    let length = entry_length(pack, place)?;
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
