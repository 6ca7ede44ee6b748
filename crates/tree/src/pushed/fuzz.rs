//! Packs that somebody pushes, as bytes and as objects.
//!
//! A pack's input is its bytes behind the 20 of the tip, without the checksum at the end, which is put there. Objects
//! come one behind the other, each a letter (`c`, `t`, `b` or `g`), a big-endian `u16` length and that many bytes, and are
//! made a pack of. [`MARK`] and a number stand for the id of the object of that number before it: so mutations of one
//! leave what refers to it in order.

use std::io::Write as _;

use bailey_protocol::id::VersionId;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use gix_hash::ObjectId;

use super::{PushLimits, shape};
use crate::fuzz::{Case, each};
use crate::object::{self, Kind};
use crate::pack::encode_entry_header;
use crate::{TreeError, commit};

/// Small enough to be reached.
const LIMITS: PushLimits = PushLimits { file_bytes: 16 << 10, total_bytes: 64 << 10, objects: 64 };
const MAGIC: &[u8] = b"PACK\0\0\0\x02";
/// Stands for an id: in a folder these and one byte, in a commit these in hex and two digits.
pub(crate) const MARK: [u8; 19] = [0xee; 19];

/// A pack, as it is.
pub fn packs(data: &[u8]) {
    push_pack(data);
}

/// A pack of objects, for all commits among them.
pub fn objects(data: &[u8]) {
    push_objects(data);
}

/// Whether the pack is let in.
pub(crate) fn push_pack(data: &[u8]) -> bool {
    let Some((tip, body)) = data.split_at_checked(20) else { return false };
    let Ok(tip) = ObjectId::try_from(tip) else { return false };
    push(&closed(body.to_vec()), &[object::version_id(&tip)])
}

/// Whether a pack of the objects is let in.
pub(crate) fn push_objects(data: &[u8]) -> bool {
    let mut ids: Vec<ObjectId> = Vec::new();
    let (mut entries, mut tips) = (Vec::new(), Vec::new());
    let mut rest = data;
    while let Some((kind, bytes, behind)) = next(rest) {
        rest = behind;
        let bytes = linked(kind, bytes, &ids);
        let id = object::hash(kind, &bytes).expect("a hash of a few bytes");
        shaped(kind, &id, &bytes);
        if !ids.contains(&id) {
            entries.extend(entry(kind, &bytes));
            ids.push(id);
            tips.extend((kind == Kind::Commit).then(|| object::version_id(&id)));
        }
    }
    let count = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    push(&closed([MAGIC, &count.to_be_bytes(), &entries].concat()), &tips)
}

fn next(data: &[u8]) -> Option<(Kind, &[u8], &[u8])> {
    let (&[kind, high, low], rest) = data.split_first_chunk()?;
    let kind = match kind {
        b'c' => Kind::Commit,
        b't' => Kind::Tree,
        b'g' => Kind::Tag,
        _ => Kind::Blob,
    };
    let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    let (bytes, rest) = rest.split_at_checked(length)?;
    Some((kind, bytes, rest))
}

/// The bytes with ids in place of marks.
fn linked(kind: Kind, bytes: &[u8], ids: &[ObjectId]) -> Vec<u8> {
    let hex: String = MARK.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        let number =
            rest.strip_prefix(&MARK).and_then(|tail| tail.split_first()).map(|(n, tail)| (usize::from(*n), tail));
        let digits = rest.strip_prefix(hex.as_bytes()).and_then(|tail| tail.split_at_checked(2));
        let digits = digits.and_then(|(two, tail)| Some((std::str::from_utf8(two).ok()?.parse::<usize>().ok()?, tail)));
        match (number, digits) {
            (Some((number, tail)), _) if kind == Kind::Tree && number < ids.len() => {
                out.extend(ids.get(number).map(ObjectId::as_slice).unwrap_or_default());
                rest = tail;
            }
            (_, Some((number, tail))) if kind == Kind::Commit && number < ids.len() => {
                out.extend(ids.get(number).map(ToString::to_string).unwrap_or_default().into_bytes());
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// A folder that is let in is read as what it is; a commit can be read.
fn shaped(kind: Kind, id: &ObjectId, bytes: &[u8]) {
    let folder = object::decode_tree(id, bytes);
    if let Ok(items) = shape::tree(id, bytes) {
        let (_, again) = object::encode_tree(items.clone()).expect("a folder of a few entries");
        assert_eq!(again, bytes, "a folder has two spellings");
        if kind == Kind::Tree && items.iter().all(|item| shape::name(&item.filename).is_ok()) {
            assert_eq!(folder.expect("what git can read").entries, items);
        }
    }
    if let Ok(links) = shape::commit(id, bytes) {
        let read = commit::decode(id, bytes).expect("what git can read");
        assert_eq!((read.tree, &read.parents), (links.tree, &links.parents));
        assert_eq!(read.run.is_some(), links.claims_a_run);
    }
}

pub(crate) fn entry(kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(encode_entry_header(kind, bytes.len() as u64), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory does not fail")
}

pub(crate) fn closed(mut pack: Vec<u8>) -> Vec<u8> {
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(&pack);
    if let Ok(sum) = hasher.try_finalize() {
        pack.extend_from_slice(sum.as_slice());
    }
    pack
}

/// What is let in is no more than is allowed, and each version of it can be read and written out.
fn push(pack: &[u8], tips: &[VersionId]) -> bool {
    let taken = each(|case| {
        let mut source = pack;
        let pushed = case.store.take_in(&mut source, tips, &LIMITS)?;
        assert!(pushed.objects() <= LIMITS.objects as usize);
        let commits = pushed.commits();
        assert!(tips.iter().all(|tip| *tip == case.base || commits.iter().any(|(id, _)| id == tip)));
        pushed.publish()?;
        published(case, commits.iter().map(|(id, _)| id))
    });
    taken.is_some()
}

fn published<'v>(case: &Case, versions: impl Iterator<Item = &'v VersionId>) -> Result<(), TreeError> {
    for version in versions {
        assert!(case.store.contains(version)?);
        case.read(version);
    }
    Ok(())
}
