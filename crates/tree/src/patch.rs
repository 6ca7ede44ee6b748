//! Changing parts of a file. The file passes through twice, once to find the places and once to be written, so that
//! memory is flat whatever its size.

use std::collections::VecDeque;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::ops::Range;

use bailey_protocol::api::EntryKind;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;

use crate::blob::Blob;
use crate::commit::CommitMeta;
use crate::error::TreeError;
use crate::object::{Mode, object_id};
use crate::path;
use crate::staging::Staging;
use crate::store::{Found, Store, kind_of};

/// Most patches of one edit.
pub const MAX_PATCHES: usize = 16;

/// One change within a file. All of one edit are about the file as it was before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    /// `new` in place of `old`, which is in the file exactly once.
    Text {
        /// Not empty.
        old: Vec<u8>,
        /// What comes instead.
        new: Vec<u8>,
    },
    /// `new` in place of a range of bytes, which lies within the file and may be empty.
    Range {
        /// The bytes.
        range: Range<u64>,
        /// What comes instead.
        new: Vec<u8>,
    },
}

impl Store {
    /// Edits the file at `inner` and sets whether it may be executed, if told. Returns `base` when that changes nothing.
    ///
    /// # Errors
    /// When no file is there, a patch does not fit or overlaps another, the result is longer than `max_bytes`, there is
    /// no such base here, or storage fails.
    pub fn patch_file(
        &self,
        base: &VersionId,
        inner: &str,
        patches: &[Patch],
        executable: Option<bool>,
        max_bytes: u64,
        meta: &CommitMeta,
    ) -> Result<VersionId, TreeError> {
        if patches.len() > MAX_PATCHES {
            return Err(TreeError::TooMany { what: "the patches", limit: MAX_PATCHES as u64 });
        }
        let root = self.root_of(Some(base))?;
        let item = match self.find(&root, inner)? {
            None => return Err(TreeError::NotFound { path: inner.to_owned() }),
            Some(Found::Folder(_)) => return Err(TreeError::IsADirectory { path: inner.to_owned() }),
            Some(Found::File(item)) => item,
        };
        if kind_of(&item) == EntryKind::Symlink {
            return Err(TreeError::InvalidPath { path: inner.to_owned(), rule: "it is a link, which has no parts" });
        }
        let mut blob = Blob::new(item.oid, false, self.objects().open_file(&item.oid)?);
        let places = places(&mut blob, patches)?;
        let cut: u64 = places.iter().map(|(range, _)| range.end - range.start).sum();
        let added: u64 = places.iter().map(|(_, new)| new.len() as u64).sum();
        let size = (blob.len() - cut).saturating_add(added);
        if size > max_bytes {
            return Err(TreeError::TooLarge { what: "the file", limit: max_bytes });
        }
        let mut staging = Staging::begin(self.objects())?;
        let id = staging.add_file(size, &mut Spliced::new(blob, places))?;
        let mode = match executable {
            None => item.mode.kind(),
            Some(true) => Mode::BlobExecutable,
            Some(false) => Mode::Blob,
        };
        let mut edits = crate::edits::Edits::new(self.objects(), root);
        edits
            .put(&path::parse_inner(&bytes_of(inner))?, mode, id)
            .map_err(|fault| crate::store::edit_error(fault, inner))?;
        let tree = edits.apply(&mut staging)?;
        if tree == root { Ok(base.clone()) } else { staging.commit(&tree, &[object_id(base.as_str())], meta) }
    }
}

type Place<'p> = (Range<u64>, &'p [u8]);

/// Where each patch goes, in the order of the file.
fn places<'p>(blob: &mut Blob, patches: &'p [Patch]) -> Result<Vec<Place<'p>>, TreeError> {
    let size = blob.len();
    let mut finders = Vec::new();
    let mut places = Vec::new();
    for (number, patch) in (1..).zip(patches) {
        let fault = |fault| TreeError::Edit { number, fault };
        match patch {
            Patch::Text { old, .. } if old.is_empty() => return Err(fault("`old` is empty")),
            Patch::Text { old, new } => finders.push((number, Finder::new(old), new.as_slice())),
            Patch::Range { range, .. } if range.start > range.end || range.end > size => {
                return Err(fault("the range does not lie within the file"));
            }
            Patch::Range { range, new } => places.push((number, range.clone(), new.as_slice())),
        }
    }
    if !finders.is_empty() {
        search(blob, &mut finders)?;
    }
    for (number, finder, new) in finders {
        let fault = |fault| TreeError::Edit { number, fault };
        match (finder.first, finder.more) {
            (None, _) => return Err(fault("`old` is not in the file")),
            (Some(_), true) => {
                return Err(fault("`old` is in the file more than once: send more of what surrounds it"));
            }
            (Some(start), false) => places.push((number, start..start + finder.needle.len() as u64, new)),
        }
    }
    places.sort_by_key(|(number, range, _)| (range.start, range.end, *number));
    let mut end = 0;
    for (number, range, _) in &places {
        if range.start < end {
            return Err(TreeError::Edit { number: *number, fault: "it overlaps another edit" });
        }
        end = range.end;
    }
    Ok(places.into_iter().map(|(_, range, new)| (range, new)).collect())
}

fn search(blob: &mut Blob, finders: &mut [(usize, Finder<'_>, &[u8])]) -> Result<(), TreeError> {
    let mut piece = vec![0; 64 << 10];
    let mut at = 0;
    loop {
        let count = blob.read(&mut piece).map_err(|damage| TreeError::corrupt("a file", damage))?;
        if count == 0 {
            return Ok(());
        }
        let read = piece.get(..count).unwrap_or_default();
        for (_, finder, _) in &mut *finders {
            finder.feed(at, read);
        }
        at += count as u64;
    }
}

/// Finds one text in a stream: Knuth, Morris and Pratt's, which looks at each byte once whatever both texts are.
struct Finder<'p> {
    needle: &'p [u8],
    /// How much of the needle's start is also the end of its first so many bytes.
    borders: Vec<u32>,
    matched: usize,
    first: Option<u64>,
    more: bool,
}

impl<'p> Finder<'p> {
    fn new(needle: &'p [u8]) -> Self {
        let mut finder = Self { needle, borders: vec![0], matched: 0, first: None, more: false };
        for byte in needle.iter().skip(1) {
            finder.step(*byte);
            finder.borders.push(u32::try_from(finder.matched).unwrap_or(u32::MAX));
        }
        finder.matched = 0;
        finder
    }

    fn step(&mut self, byte: u8) {
        while self.matched > 0 && self.needle.get(self.matched) != Some(&byte) {
            self.matched = self.borders.get(self.matched - 1).map_or(0, |border| *border as usize);
        }
        self.matched += usize::from(self.needle.get(self.matched) == Some(&byte));
    }

    /// Takes the bytes that begin at `at`.
    fn feed(&mut self, at: u64, bytes: &[u8]) {
        for (offset, byte) in (at..).zip(bytes) {
            self.step(*byte);
            if self.matched == self.needle.len() {
                self.more |= self.first.is_some();
                self.first = self.first.or(Some((offset + 1).saturating_sub(self.needle.len() as u64)));
            }
        }
    }
}

/// The file with its changes.
struct Spliced<'p> {
    old: Blob,
    rest: VecDeque<Segment<'p>>,
}

enum Segment<'p> {
    Old(Range<u64>),
    New(&'p [u8]),
}

impl<'p> Spliced<'p> {
    fn new(old: Blob, places: Vec<Place<'p>>) -> Self {
        let mut rest = VecDeque::new();
        let mut at = 0;
        for (range, new) in places {
            rest.push_back(Segment::Old(at..range.start));
            rest.push_back(Segment::New(new));
            at = range.end;
        }
        rest.push_back(Segment::Old(at..old.len()));
        Self { old, rest }
    }
}

impl Read for Spliced<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(segment) = self.rest.front_mut() {
            let count = match segment {
                Segment::New(bytes) => bytes.read(out)?,
                Segment::Old(range) => {
                    let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(out.len());
                    self.old.seek(SeekFrom::Start(range.start))?;
                    let count = self.old.read(out.get_mut(..wanted).unwrap_or_default())?;
                    range.start += count as u64;
                    count
                }
            };
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            self.rest.pop_front();
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_found_as_often_as_it_is_there(
            hay in "[ab]{0,60}", needle in "[ab]{1,6}", cut in 0_usize..60,
        ) {
            let mut finder = Finder::new(needle.as_bytes());
            let (first, second) = hay.as_bytes().split_at(cut.min(hay.len()));
            finder.feed(0, first);
            finder.feed(first.len() as u64, second);
            let found: Vec<_> =
                (0..hay.len()).filter(|at| hay.as_bytes().get(*at..).is_some_and(|rest| rest.starts_with(needle.as_bytes()))).collect();
            prop_assert_eq!(finder.first, found.first().map(|at| *at as u64));
            prop_assert_eq!(finder.more, found.len() > 1);
        }
    }
}
