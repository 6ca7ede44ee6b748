//! Checksums of the blocks of large files, so that a range can be verified without reading the whole file.
//!
//! ```text
//! "BLYSUM\0" 01 | per file: object id (20) | sums (u32) | CRC-32 of each block, then of the frame (u32) | SHA-1 of all before
//! ```
//! Big-endian. A block's checksum covers its header; the frame is what comes before the first block and after the last. A reader that misses the file, or finds it damaged, makes the
//! table again while it verifies the whole object.

use gix_hash::{Kind as HashKind, ObjectId};

const MAGIC: &[u8; 8] = b"BLYSUM\0\x01";

pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

pub(crate) fn encode(tables: &[(ObjectId, Vec<u32>)]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (id, sums) in tables {
        bytes.extend_from_slice(id.as_slice());
        bytes.extend_from_slice(&u32::try_from(sums.len()).unwrap_or(u32::MAX).to_be_bytes());
        sums.iter().for_each(|sum| bytes.extend_from_slice(&sum.to_be_bytes()));
    }
    let checksum = plain_sha1(&bytes);
    bytes.extend_from_slice(&checksum);
    bytes
}

/// The table of one file, if the whole of `bytes` is sound.
pub(crate) fn find(bytes: &[u8], wanted: &ObjectId) -> Option<Vec<u32>> {
    let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(20)?)?;
    if plain_sha1(body) != checksum {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    loop {
        let (id, tail) = rest.split_at_checked(20)?;
        let (count, tail) = tail.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*count)).ok()?.checked_mul(4)?;
        let (sums, tail) = tail.split_at_checked(length)?;
        if id == wanted.as_slice() {
            let sum = |four: &[u8]| four.first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four));
            return Some(sums.chunks(4).map(sum).collect());
        }
        rest = tail;
    }
}

/// SHA-1 of bytes as such; a collision attack in one of our own files is a damaged file.
pub(crate) fn plain_sha1(bytes: &[u8]) -> Vec<u8> {
    let mut hasher = gix_hash::hasher(HashKind::Sha1);
    hasher.update(bytes);
    hasher.try_finalize().map_or_else(|_attack| Vec::new(), |id| id.as_slice().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_frozen_and_every_flip_is_seen() {
        let id = |byte: u8| ObjectId::from_bytes_or_panic(&[byte; 20]);
        let mut bytes = encode(&[(id(1), vec![1, 2]), (id(2), vec![0xdead_beef])]);
        let mut frozen = b"BLYSUM\0\x01".to_vec();
        frozen.extend([1; 20].iter().chain(b"\0\0\0\x02\0\0\0\x01\0\0\0\x02").chain(&[2; 20]));
        frozen.extend(b"\0\0\0\x01\xde\xad\xbe\xef");
        assert_eq!(bytes.get(..bytes.len() - 20).unwrap(), frozen);
        assert_eq!(find(&bytes, &id(2)), Some(vec![0xdead_beef]));
        assert_eq!(find(&bytes, &id(3)), None);
        for bit in 0..bytes.len() * 8 {
            *bytes.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            assert_eq!(find(&bytes, &id(1)), None, "bit {bit}");
            *bytes.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
        }
        for cut in 0..bytes.len() {
            assert_eq!(find(bytes.get(..cut).unwrap(), &id(1)), None);
        }
    }
}
