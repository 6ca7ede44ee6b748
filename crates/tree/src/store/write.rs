//! Changing one path.

use std::io::Read;

use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;

use super::Store;
use super::read::Found;
use crate::commit::CommitMeta;
use crate::edits::{EditFault, Edits, MAX_EDIT_BYTES};
use crate::error::TreeError;
use crate::ledger::Room;
use crate::object::{Mode, object_id};
use crate::pack::LARGE;
use crate::path;
use crate::staging::Staging;

/// What is to become a file.
#[expect(missing_debug_implementations, reason = "a reader has nothing to show")]
pub struct Upload<'a> {
    /// The bytes.
    pub content: &'a mut dyn Read,
    /// How many there are, where that is known.
    pub length: Option<u64>,
    /// How many there may be.
    pub max_bytes: u64,
}

impl Store {
    /// Puts a file at `inner`, making folders on the way and replacing a file or link that is there. Returns `base`
    /// when that has the very file already. Memory is flat.
    ///
    /// # Errors
    /// When a folder is there, a file or link is on the way, the content is longer than `max_bytes` or breaks off,
    /// there is no such base here, or storage fails.
    pub fn write_file(
        &self,
        base: Option<&VersionId>,
        inner: &str,
        content: &mut dyn Read,
        max_bytes: u64,
        executable: bool,
        meta: &CommitMeta,
    ) -> Result<VersionId, TreeError> {
        self.write_upload(base, inner, Upload { content, length: None, max_bytes }, executable, meta)
    }

    /// As [`Store::write_file`]. Content whose length is known is written once, any other twice.
    ///
    /// # Errors
    /// As [`Store::write_file`], and when the content has another length.
    pub fn write_upload(
        &self,
        base: Option<&VersionId>,
        inner: &str,
        upload: Upload<'_>,
        executable: bool,
        meta: &CommitMeta,
    ) -> Result<VersionId, TreeError> {
        let real = bytes_of(inner);
        let names = path::parse_inner(&real)?;
        let root = self.root_of(base)?;
        if let Some(Found::Folder(_)) = self.find(&root, inner)? {
            return Err(TreeError::IsADirectory { path: inner.to_owned() });
        }
        self.check_parents(&root, inner)?;
        self.check_room(inner)?;
        self.ensure()?;
        let mut staging = Staging::begin(self.objects())?;
        let id = self.stage_content(&mut staging, upload)?;
        let mode = if executable { Mode::BlobExecutable } else { Mode::Blob };
        let mut edits = Edits::new(self.objects(), root);
        edits.put(&names, mode, id).map_err(|fault| edit_error(fault, inner))?;
        let tree = edits.apply(&mut staging)?;
        match base {
            Some(base) if tree == root => Ok(base.clone()),
            _ => staging.commit(&tree, &parents_of(base), meta),
        }
    }

    /// A version that holds what `base` holds: for a change of which nobody is to learn that it changed nothing.
    ///
    /// # Errors
    /// When there is no such base here, or storage fails.
    pub fn same_again(&self, base: &VersionId, meta: &CommitMeta) -> Result<VersionId, TreeError> {
        let root = self.root_of(Some(base))?;
        Staging::begin(self.objects())?.commit(&root, &parents_of(Some(base)), meta)
    }

    /// Removes what is at `inner`; its folder stays, even if empty. `None` when nothing was there.
    ///
    /// # Errors
    /// When there is no such base here, or storage fails.
    pub fn delete(
        &self,
        base: Option<&VersionId>,
        inner: &str,
        meta: &CommitMeta,
    ) -> Result<Option<VersionId>, TreeError> {
        let real = bytes_of(inner);
        let names = path::parse_inner(&real)?;
        let root = self.root_of(base)?;
        if names.is_empty() {
            return Err(TreeError::InvalidPath { path: inner.to_owned(), rule: "the root of a tree stays" });
        }
        if base.is_none() || self.find(&root, inner)?.is_none() {
            return Ok(None);
        }
        self.ensure()?;
        let mut staging = Staging::within(self.objects(), Room::Freeing)?;
        let mut edits = Edits::new(self.objects(), root);
        edits.remove(&names).map_err(|fault| edit_error(fault, inner))?;
        let tree = edits.apply(&mut staging)?;
        staging.commit(&tree, &parents_of(base), meta).map(Some)
    }

    /// That nothing on the way to `inner` is a file or link.
    pub(crate) fn check_parents(&self, root: &gix_hash::ObjectId, inner: &str) -> Result<(), TreeError> {
        let mut cuts = inner.match_indices('/').filter_map(|(at, _)| inner.get(..at));
        cuts.try_for_each(|parent| match self.find(root, parent)? {
            Some(Found::File(_)) => Err(TreeError::NotADirectory { path: parent.to_owned() }),
            Some(Found::Folder(_)) | None => Ok(()),
        })
    }

    /// Git hashes a file's size before its bytes: what does not fit into memory waits in a scratch file.
    fn stage_content(&self, staging: &mut Staging<'_>, upload: Upload<'_>) -> Result<gix_hash::ObjectId, TreeError> {
        let Upload { content, length, max_bytes } = upload;
        let too_large = || TreeError::TooLarge { what: "the file", limit: max_bytes };
        let input = |source| TreeError::Input { source };
        if let Some(length) = length {
            if length > max_bytes {
                return Err(too_large());
            }
            self.objects().ledger().check_file(length)?;
            let id = staging.add_file(length, content)?;
            return match content.read(&mut [0]).map_err(input)? {
                0 => Ok(id),
                _ => Err(input(std::io::ErrorKind::InvalidData.into())),
            };
        }
        let mut content = content.take(max_bytes.saturating_add(1));
        let mut head = Vec::new();
        content.by_ref().take(LARGE).read_to_end(&mut head).map_err(input)?;
        if head.len() as u64 > max_bytes {
            return Err(too_large());
        }
        if (head.len() as u64) < LARGE {
            return staging.add_file(head.len() as u64, &mut head.as_slice());
        }
        let mut scratch = self.objects().scratch()?;
        let mut piece = head;
        while !piece.is_empty() {
            self.objects().ledger().check_file(scratch.length() + piece.len() as u64)?;
            scratch.append(&piece)?;
            if scratch.length() > max_bytes {
                return Err(too_large());
            }
            piece.clear();
            content.by_ref().take(64 << 10).read_to_end(&mut piece).map_err(input)?;
        }
        let size = scratch.length();
        staging.add_file(size, &mut scratch.reader()?)
    }
}

pub(crate) fn parents_of(base: Option<&VersionId>) -> Vec<gix_hash::ObjectId> {
    base.iter().map(|base| object_id(base.as_str())).collect()
}

pub(crate) fn edit_error(fault: EditFault, inner: &str) -> TreeError {
    match fault {
        EditFault::BelowAFile => TreeError::NotADirectory { path: inner.to_owned() },
        EditFault::Tree(error) => error,
        EditFault::TooMany => TreeError::TooLarge { what: "the set of changed names", limit: MAX_EDIT_BYTES as u64 },
    }
}
