//! Git's pack format, version 2, as far as we write it: whole objects, no deltas.
//!
//! Files of one pack, all named by its checksum: `.pack` (the objects), `.idx` (git's index, version 2) and, when it
//! holds large files, `.sums` (ours: a CRC-32 for every block of them, see [`sums`]). A file of at least [`LARGE`]
//! bytes is kept uncompressed, in deflate's stored blocks of one size, so that any range of it is found by
//! arithmetic; see [`stored`]. Everything else is deflated. The same objects in the same order give the same bytes.

pub(crate) mod index;
pub(crate) mod stored;
pub(crate) mod sums;
pub(crate) mod writer;

use std::io::Read as _;

use flate2::read::ZlibDecoder;

use crate::object::Kind;

/// Files of this size and above are kept in stored blocks.
pub(crate) const LARGE: u64 = 1 << 20;
/// Objects other than large files are read into memory; this is the largest stored form that is.
pub(crate) const MAX_IN_MEMORY: u64 = 256 << 20;
/// Bytes of the checksum after the last object.
pub(crate) const TRAILER_BYTES: u64 = 20;
/// Longest header of one object.
pub(crate) const MAX_ENTRY_HEADER: u64 = 10;

pub(crate) fn encode_header(objects: u32) -> [u8; 12] {
    let mut header = *b"PACK\0\0\0\x02\0\0\0\0";
    for (to, from) in header.iter_mut().skip(8).zip(objects.to_be_bytes()) {
        *to = from;
    }
    header
}

/// The bytes before an object's deflated content: its kind and size.
pub(crate) fn encode_entry_header(kind: Kind, size: u64) -> Vec<u8> {
    let code: u8 = match kind {
        Kind::Commit => 1,
        Kind::Tree => 2,
        Kind::Blob => 3,
        Kind::Tag => 4,
    };
    let low = |value: u64, mask: u8| value.to_le_bytes().first().copied().unwrap_or(0) & mask;
    let mut bytes = vec![(code << 4) | low(size, 0x0f)];
    let mut rest = size >> 4;
    while rest > 0 {
        if let Some(last) = bytes.last_mut() {
            *last |= 0x80;
        }
        bytes.push(low(rest, 0x7f));
        rest >>= 7;
    }
    bytes
}

/// Kind, size and the number of bytes that say so.
pub(crate) fn decode_entry_header(bytes: &[u8]) -> Result<(Kind, u64, usize), &'static str> {
    let mut bytes = bytes.iter().copied();
    let first = bytes.next().ok_or("the object's header is cut off")?;
    let kind = match (first >> 4) & 7 {
        1 => Kind::Commit,
        2 => Kind::Tree,
        3 => Kind::Blob,
        4 => Kind::Tag,
        _ => return Err("an object of a kind that is never written here"),
    };
    let (mut size, mut shift, mut used, mut last) = (u64::from(first & 0x0f), 4_u32, 1, first);
    while last & 0x80 != 0 {
        last = bytes.next().ok_or("the object's header is cut off")?;
        let part = u64::from(last & 0x7f);
        let placed = part.checked_shl(shift).filter(|placed| placed >> shift == part);
        size |= placed.ok_or("the object's size is out of range")?;
        (shift, used) = (shift + 7, used + 1);
    }
    Ok((kind, size, used))
}

/// Kind and content of the object whose stored form is exactly `entry`.
pub(crate) fn inflate(entry: &[u8]) -> Result<(Kind, Vec<u8>), &'static str> {
    let (kind, size, used) = decode_entry_header(entry)?;
    let deflated = entry.get(used..).unwrap_or_default();
    let capacity = usize::try_from(size.min(LARGE)).unwrap_or(0);
    let mut content = Vec::with_capacity(capacity);
    let mut decoder = ZlibDecoder::new(deflated);
    let read = decoder.by_ref().take(size.saturating_add(1)).read_to_end(&mut content);
    read.map_err(|_cause| "the object does not inflate")?;
    if content.len() as u64 != size || decoder.total_in() != deflated.len() as u64 {
        return Err("the object has another size than its header says");
    }
    Ok((kind, content))
}

/// How many bytes at the start of `bytes` deflate to exactly `size`.
pub(crate) fn deflated_length(bytes: &[u8], size: u64) -> Result<u64, &'static str> {
    let mut decoder = ZlibDecoder::new(bytes);
    let copied = std::io::copy(&mut decoder.by_ref().take(size.saturating_add(1)), &mut std::io::sink());
    match copied {
        Ok(length) if length == size => Ok(decoder.total_in()),
        Ok(_) => Err("the object has another size than its header says"),
        Err(_cause) => Err("the object does not inflate"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entry_headers_come_back(size: u64) {
            let bytes = encode_entry_header(Kind::Tree, size);
            prop_assert!(bytes.len() as u64 <= MAX_ENTRY_HEADER);
            prop_assert_eq!(decode_entry_header(&bytes), Ok((Kind::Tree, size, bytes.len())));
        }

        #[test]
        fn hostile_entries_are_errors_not_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(inflate(&bytes));
        }
    }

    #[test]
    fn deltas_and_endless_sizes_are_refused() {
        assert!(decode_entry_header(&[0x60]).is_err());
        assert!(decode_entry_header(&[0xb0; 32]).is_err());
        assert!(decode_entry_header(&[]).is_err());
    }
}
