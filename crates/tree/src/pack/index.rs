//! Git's pack index, version 2: written from what a pack got, read back as one checked array.

use gix_hash::ObjectId;

use super::sums::plain_sha1;

/// One object of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) id: ObjectId,
    /// Where its stored form starts.
    pub(crate) offset: u64,
    /// CRC-32 of its stored form.
    pub(crate) crc: u32,
}

const MAGIC: &[u8; 8] = b"\xfftOc\0\0\0\x02";
/// Bytes before the first id: the magic and 256 counters.
const FIXED: usize = 8 + 1024;

/// The index's bytes; `entries` are put in order of their ids.
pub(crate) fn encode(entries: &mut [IndexEntry], pack: &ObjectId) -> Vec<u8> {
    entries.sort_unstable_by_key(|entry| entry.id);
    let mut bytes = Vec::with_capacity(FIXED + entries.len() * 28 + 40);
    bytes.extend_from_slice(MAGIC);
    for first in 0..=255_u8 {
        let up_to = entries.partition_point(|entry| entry.id.first_byte() <= first);
        bytes.extend_from_slice(&u32::try_from(up_to).unwrap_or(u32::MAX).to_be_bytes());
    }
    entries.iter().for_each(|entry| bytes.extend_from_slice(entry.id.as_slice()));
    entries.iter().for_each(|entry| bytes.extend_from_slice(&entry.crc.to_be_bytes()));
    let mut far: Vec<u64> = Vec::new();
    for entry in entries.iter() {
        let near = u32::try_from(entry.offset).ok().filter(|offset| *offset < FAR);
        let word = near.unwrap_or_else(|| {
            far.push(entry.offset);
            FAR | u32::try_from(far.len() - 1).unwrap_or(u32::MAX)
        });
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    far.iter().for_each(|offset| bytes.extend_from_slice(&offset.to_be_bytes()));
    bytes.extend_from_slice(pack.as_slice());
    let checksum = plain_sha1(&bytes);
    bytes.extend_from_slice(&checksum);
    bytes
}

/// Marks an offset that is in the table of 64-bit offsets.
const FAR: u32 = 0x8000_0000;

/// Every object of a pack, from the index's bytes.
pub(crate) fn decode(bytes: &[u8], pack: &ObjectId) -> Result<Vec<IndexEntry>, &'static str> {
    let cut = "the index is cut off";
    let (body, checksum) = bytes.len().checked_sub(20).and_then(|at| bytes.split_at_checked(at)).ok_or(cut)?;
    if plain_sha1(body) != checksum {
        return Err("the index does not match its checksum");
    }
    let body = body.strip_suffix(pack.as_slice()).ok_or("the index is of another pack")?;
    let body = body.strip_prefix(MAGIC).ok_or("not a pack index of version 2")?;
    let (fanout, body) = body.split_at_checked(1024).ok_or(cut)?;
    let count = fanout.last_chunk::<4>().and_then(|four| usize::try_from(u32::from_be_bytes(*four)).ok()).ok_or(cut)?;
    let (ids, body) = count.checked_mul(20).and_then(|at| body.split_at_checked(at)).ok_or(cut)?;
    let (crcs, body) = count.checked_mul(4).and_then(|at| body.split_at_checked(at)).ok_or(cut)?;
    let (offsets, far) = count.checked_mul(4).and_then(|at| body.split_at_checked(at)).ok_or(cut)?;
    let words = crcs.chunks(4).zip(offsets.chunks(4));
    ids.chunks(20)
        .zip(words)
        .map(|(id, (crc, offset))| {
            let id = ObjectId::try_from(id).map_err(|_cause| cut)?;
            let word = |four: &[u8]| four.first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four));
            let offset = match word(offset) {
                near if near < FAR => u64::from(near),
                mark => {
                    let at = usize::try_from(mark ^ FAR).ok().and_then(|at| at.checked_mul(8)).ok_or(cut)?;
                    let eight = far.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(cut)?;
                    u64::from_be_bytes(*eight)
                }
            };
            Ok(IndexEntry { id, offset, crc: word(crc) })
        })
        .collect()
}

/// The counters of an index whose frame (the fixed head, and the pack's and its own checksum) is sound.
pub(crate) fn decode_frame(head: &[u8], tail: &[u8], digest: &[u8], pack: &ObjectId) -> Result<Vec<u32>, &'static str> {
    let (named, checksum) = tail.split_at_checked(20).ok_or("the index is cut off")?;
    if checksum != digest {
        return Err("the index does not match its checksum");
    }
    if named != pack.as_slice() {
        return Err("the index is of another pack");
    }
    let counters = head.strip_prefix(MAGIC).ok_or("not a pack index of version 2")?;
    Ok(counters
        .chunks_exact(4)
        .map(|four| four.first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four)))
        .collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(seed: [u8; 20]) -> ObjectId {
        ObjectId::from_bytes_or_panic(&seed)
    }

    proptest! {
        #[test]
        fn an_index_comes_back(seeds in proptest::collection::btree_map(any::<[u8; 20]>(), (any::<u64>(), any::<u32>()), 0..40)) {
            let mut entries: Vec<_> =
                seeds.iter().map(|(seed, (offset, crc))| IndexEntry { id: id(*seed), offset: offset >> 1, crc: *crc }).collect();
            let bytes = encode(&mut entries, &id([9; 20]));
            prop_assert_eq!(decode(&bytes, &id([9; 20])), Ok(entries));
            prop_assert!(decode(&bytes, &id([8; 20])).is_err());
        }

        #[test]
        fn hostile_indexes_are_errors_not_panics(mut body in proptest::collection::vec(any::<u8>(), 0..1400), framed: bool) {
            if framed {
                body.splice(0..0, MAGIC.iter().copied());
                body.extend([9; 20]);
                body.extend(plain_sha1(&body));
            }
            drop(decode(&body, &id([9; 20])));
        }
    }
}
