//! What garbage collection needs of the objects: to look without being noticed, to copy, and to put packs in place of others.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use bailey_crash::Point;
use gix_hash::ObjectId;

use super::lookup::{Condemned, DiskIndex, Extent, LARGE_PACK, Lookup, PackInfo, Place};
use super::{Objects, entry_length, large_layout, read_entry, verify};
use crate::blob_store::{BlobName, Part, RangedRead, Scratch};
use crate::cache::lock;
use crate::commit::{self, Commit};
use crate::error::TreeError;
use crate::ledger::{Amount, Reservation};
use crate::object::Kind;
use crate::pack::index::{self, IndexEntry};
use crate::pack::writer::{PackWriter, Published};
use crate::pack::{TRAILER_BYTES, decode_entry_header};

/// What is condemned, as garbage collection finds it.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing.
    None,
    /// Somebody may still be at work with some of it.
    Held,
    /// These may go.
    Ripe(Arc<HashSet<ObjectId>>),
}

/// An object of a pack, and how many bytes it takes there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed {
    pub(crate) id: ObjectId,
    pub(crate) bytes: u64,
    place: Place,
}

impl Objects {
    /// All packs as they are now.
    pub(crate) fn snapshot(&self) -> Result<Lookup, TreeError> {
        self.load()?;
        let lookup = self.read_lookup();
        let snapshot = lookup.as_ref().map(Lookup::snapshot).unwrap_or_default();
        match snapshot.damage() {
            Some(fault) => Err(TreeError::corrupt("pack index", fault)),
            None => Ok(snapshot),
        }
    }

    /// How many packs there are, without looking at the disk.
    pub(crate) fn pack_count(&self) -> usize {
        self.read_lookup().as_ref().map_or(0, |lookup| lookup.packs().count())
    }

    /// A commit, past the caches.
    pub(crate) fn peek_commit(&self, id: &ObjectId) -> Result<Option<Arc<Commit>>, TreeError> {
        let Some(bytes) = self.peek(id, Kind::Commit)? else {
            return Ok(None);
        };
        Ok(Some(self.cut(id, Arc::new(commit::decode(id, &bytes)?))))
    }

    /// The verified content of an object, past the caches, and without keeping it from being removed.
    pub(crate) fn peek(&self, id: &ObjectId, kind: Kind) -> Result<Option<Vec<u8>>, TreeError> {
        self.load()?;
        let quietly = || {
            let lookup = self.read_lookup();
            lookup.as_ref().map_or(Ok(None), |lookup| lookup.find(id))
        };
        let Some((place, pack)) = self.located(id, &quietly)? else {
            return Ok(None);
        };
        let entry = read_entry(&*pack, &place)?;
        match decode_entry_header(&entry) {
            Ok((other, ..)) if other != kind => Ok(None),
            _ => verify(id, kind, &entry).map(Some),
        }
    }

    /// What earlier collections condemned; `oldest` is the epoch of the oldest lease.
    pub(crate) fn verdict(&self, oldest: u64) -> Verdict {
        let mut lookup = self.lookup.write().unwrap_or_else(PoisonError::into_inner);
        let Some(lookup) = lookup.as_mut() else { return Verdict::None };
        match &lookup.condemned {
            None => Verdict::None,
            Some(condemned) if condemned.touched.load(Ordering::SeqCst) => {
                lookup.condemned = None;
                Verdict::None
            }
            Some(condemned) if oldest < condemned.since => Verdict::Held,
            Some(condemned) => Verdict::Ripe(Arc::clone(&condemned.ids)),
        }
    }

    /// Condemns objects that nothing leads to. From now on they are written again rather than relied on.
    pub(crate) fn condemn(&self, ids: HashSet<ObjectId>) {
        let mut lookup = self.lookup.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(lookup) = lookup.as_mut() {
            // INVARIANT: under the lock, so that no lease of the new epoch has looked before.
            let since = self.leases.advance();
            lookup.condemned = Some(Condemned { ids: Arc::new(ids), since, touched: AtomicBool::new(false) });
            // INVARIANT: what the caches knew before would not be noticed.
            self.caches.forget(self.number);
        }
    }

    /// The objects of a pack, in the order in which they lie.
    pub(crate) fn packed(&self, info: &PackInfo) -> Result<Vec<Packed>, TreeError> {
        let name = BlobName { pack: info.pack, part: Part::Index };
        let mut entries = if info.objects >= LARGE_PACK {
            let index = DiskIndex::open(&*self.blobs, &name)?.map_err(|fault| TreeError::corrupt(name, fault))?;
            index.entries()?
        } else {
            self.small_index(&name)?
        };
        entries.sort_unstable_by_key(|entry| entry.offset);
        let name = BlobName { pack: info.pack, part: Part::Pack };
        let open = self.blobs.open(&name)?.ok_or_else(|| TreeError::corrupt(name, "the file is missing"))?;
        let end = open.length().saturating_sub(TRAILER_BYTES);
        let ends: Vec<u64> = entries.iter().skip(1).map(|next| next.offset).chain([end]).collect();
        let packed = entries.iter().zip(ends).map(|(entry, end)| {
            let bytes = end.saturating_sub(entry.offset);
            let (pack, objects, offset, crc) = (info.pack, info.objects, entry.offset, entry.crc);
            let place = Place { pack, objects, offset, extent: Extent::Bytes(bytes), crc };
            Packed { id: entry.id, bytes, place }
        });
        Ok(packed.collect())
    }

    fn small_index(&self, name: &BlobName) -> Result<Vec<IndexEntry>, TreeError> {
        let open = self.blobs.open(name)?.ok_or_else(|| TreeError::corrupt(name, "the file is missing"))?;
        let bytes = super::read_all(&*open, name)?.unwrap_or_default();
        index::decode(&bytes, &name.pack).map_err(|fault| TreeError::corrupt(name, fault))
    }

    /// A pack in the making to which objects are copied. It counts only when it takes the place of others.
    pub(crate) fn begin_copy(&self) -> Result<PackWriter, TreeError> {
        PackWriter::new(self.blobs.scratch()?, Reservation::unlimited())
    }

    /// Copies one object as it lies, and verifies its checksum on the way.
    pub(crate) fn copy(&self, object: &Packed, to: &mut PackWriter) -> Result<(), TreeError> {
        let (id, place) = (object.id, &object.place);
        if to.contains(&id) {
            return Ok(());
        }
        let missing = || TreeError::corrupt(place.pack, "the file is missing");
        let pack = self.pack(place)?.ok_or_else(missing)?;
        match large_layout(&*pack, place).map_err(|fault| TreeError::corrupt(id, fault))? {
            None => {
                let entry = read_entry(&*pack, place)?;
                to.add_stored(id, &entry, place.crc)
            }
            Some(layout) => {
                let table = self.block_sums(&id, place, &*pack, &layout)?;
                to.add_stored_large(id, place.crc, table.to_vec(), &mut |out| copy_bytes(&*pack, place, out))
            }
        }
    }

    /// Makes the copies durable and visible in place of the packs `gone`, whose files are removed. `false` when nothing
    /// was changed, as somebody has come across an object that is in neither. `oldest` is the lease that the caller knows.
    pub(crate) fn replace(
        &self,
        gone: &BTreeSet<ObjectId>,
        copies: PackWriter,
        ripe: bool,
        oldest: u64,
    ) -> Result<bool, TreeError> {
        let new = if copies.is_empty() { None } else { Some(copies.publish(&*self.blobs)?) };
        bailey_crash::point(Point::LiveCopied);
        let Some((removed, added, gone)) = self.swap(gone, new.as_ref(), ripe, oldest)? else {
            self.remove_packs(new.map(|new| new.pack))?;
            return Ok(false);
        };
        lock(&self.caches.packs).retain(|key| key.0 != self.number || !gone.contains(&key.1));
        if ripe {
            self.caches.forget(self.number);
        }
        self.ledger.replace(removed, added);
        bailey_crash::point(Point::PacksSwapped);
        self.remove_packs(gone)?;
        bailey_crash::point(Point::PacksRemoved);
        Ok(true)
    }

    /// Changes the look-up; `None` when it is not what the caller knows any more.
    fn swap(
        &self,
        gone: &BTreeSet<ObjectId>,
        new: Option<&Published>,
        ripe: bool,
        oldest: u64,
    ) -> Result<Option<(Amount, Amount, BTreeSet<ObjectId>)>, TreeError> {
        let mut lookup = self.lookup.write().unwrap_or_else(PoisonError::into_inner);
        let Some(lookup) = lookup.as_mut() else { return Ok(None) };
        if ripe {
            // INVARIANT: nobody can come across one between this and its removal from the look-up.
            let untouched = lookup.condemned.take().is_some_and(|it| !it.touched.load(Ordering::SeqCst));
            if !untouched {
                return Ok(None);
            }
        }
        // A pack that was written once more since then has new friends.
        let again = |info: &PackInfo| gone.contains(&info.pack) && info.born >= oldest;
        if lookup.packs().any(again) {
            return Ok(None);
        }
        // The same objects in the same order make the same pack.
        let same = |pack: &ObjectId| new.is_some_and(|new| new.pack == *pack);
        let gone: BTreeSet<ObjectId> = gone.iter().copied().filter(|pack| !same(pack)).collect();
        let leaving = lookup.packs().filter(|info| gone.contains(&info.pack)).map(PackInfo::amount);
        let removed = leaving.fold(Amount::default(), Amount::plus);
        let mut added = Amount::default();
        // INVARIANT: first what may fail. What is in neither would be lost until the next start.
        if let Some(new) = new {
            let objects = u32::try_from(new.entries.len()).unwrap_or(u32::MAX);
            let info = PackInfo { pack: new.pack, objects, bytes: new.amount.bytes, born: 0 };
            if lookup.add(&*self.blobs, info, new.entries.clone())? {
                added = new.amount;
            }
        }
        lookup.remove(&gone);
        Ok(Some((removed, added, gone)))
    }

    /// Removes the files of packs, unless one was written again meanwhile. The index first: a pack without one does not
    /// count, and is swept.
    fn remove_packs(&self, packs: impl IntoIterator<Item = ObjectId>) -> Result<(), TreeError> {
        // INVARIANT: nobody is between putting a pack and adding it to the look-up.
        let _nobody_publishes = self.publishing.write().unwrap_or_else(PoisonError::into_inner);
        for pack in packs {
            let known = |lookup: &Lookup| lookup.packs().any(|info| info.pack == pack);
            if self.read_lookup().as_ref().is_some_and(known) {
                continue;
            }
            for part in [Part::Index, Part::Pack, Part::Sums] {
                self.blobs.remove(&BlobName { pack, part })?;
                if part == Part::Index {
                    bailey_crash::point(Point::IndexRemoved);
                }
            }
        }
        Ok(())
    }
}

fn copy_bytes(pack: &dyn RangedRead, place: &Place, out: &mut Scratch) -> Result<(), TreeError> {
    let length = entry_length(pack, place).map_err(|fault| TreeError::corrupt(place.pack, fault))?;
    let (mut at, mut crc, mut buffer) = (0, flate2::Crc::new(), vec![0; 1 << 16]);
    while at < length {
        let wanted = usize::try_from(length - at).unwrap_or(usize::MAX).min(buffer.len());
        let piece = buffer.get_mut(..wanted).unwrap_or_default();
        pack.read_exact_at(place.offset + at, piece).map_err(TreeError::storage("reading", place.pack))?;
        crc.update(piece);
        out.append(piece)?;
        at += wanted as u64;
    }
    if crc.sum() == place.crc {
        Ok(())
    } else {
        Err(TreeError::corrupt(place.pack, "an object does not match its checksum"))
    }
}
