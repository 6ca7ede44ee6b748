//! Applying what a run changed.

use std::io::Read;

use bailey_protocol::change::NoticeReason;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;

use super::read::Found;
use super::write::parents_of;
use super::{Applied, MAX_NOTICES, Store};
use crate::changes::{ChangeReader, Record};
use crate::commit::CommitMeta;
use crate::edits::{EditFault, Edits, MAX_EDIT_BYTES};
use crate::error::TreeError;
use crate::name;
use crate::object::Mode;
use crate::path;
use crate::room::Room;
use crate::staging::Staging;

impl Store {
    /// Applies a change stream below `inner` and makes a version of the result. All of the stream counts, or nothing:
    /// one that is broken or cut off changes nothing. Memory grows with the number of changes, not with their content.
    ///
    /// # Errors
    /// When the stream is not a whole, valid one, `inner` is not a folder, there is no such base here, or storage fails.
    pub fn apply_changes(
        &self,
        base: Option<&VersionId>,
        inner: &str,
        stream: &mut dyn Read,
        meta: &CommitMeta,
    ) -> Result<Applied, TreeError> {
        let root = self.root_of(base)?;
        let real = bytes_of(inner);
        let mount = path::parse_inner(&real)?;
        self.check_parents(&root, inner)?;
        if let Some(Found::File(_)) = self.find(&root, inner)? {
            return Err(TreeError::NotADirectory { path: inner.to_owned() });
        }
        self.ensure()?;
        let mut intake = Intake {
            staging: Staging::begin(self.objects())?,
            edits: Edits::new(self.objects(), root),
            mount,
            room: Room::below(&self.repo.id, inner),
            notices: Vec::new(),
            more_notices: 0,
        };
        let mut reader = ChangeReader::new(stream);
        while intake.take(&mut reader)? {}
        let Intake { mut staging, edits, notices, more_notices, .. } = intake;
        let tree = edits.apply(&mut staging)?;
        let version = if tree == root { None } else { Some(staging.commit(&tree, &parents_of(base), meta)?) };
        Ok(Applied { version, notices, more_notices })
    }
}

/// The changes of one stream so far.
struct Intake<'a> {
    staging: Staging<'a>,
    edits: Edits<'a>,
    mount: Vec<&'a [u8]>,
    room: Room,
    notices: Vec<(Vec<u8>, NoticeReason)>,
    more_notices: u64,
}

impl Intake<'_> {
    /// Takes one record; `false` after the last.
    fn take(&mut self, reader: &mut ChangeReader<'_>) -> Result<bool, TreeError> {
        match reader.next()? {
            Record::End => return Ok(false),
            Record::Notice { path, reason } => self.notice(path, reason),
            Record::File { path, size, .. } if self.refuses(&path, true).is_some() => {
                reader.skip(size)?;
                self.refuse(path, true);
            }
            Record::Directory { path } | Record::Symlink { path, .. } if self.refuses(&path, false).is_some() => {
                self.refuse(path, false);
            }
            Record::Directory { path } => {
                let done = self.edits.make_folder(&below(&self.mount, &path));
                done.map_err(|fault| edit_error(fault, reader))?;
            }
            Record::Delete { path } => {
                let done = self.edits.remove(&below(&self.mount, &path));
                done.map_err(|fault| edit_error(fault, reader))?;
            }
            Record::Symlink { path, target } => {
                let id = self.staging.add_file(target.len() as u64, &mut target.as_slice())?;
                let done = self.edits.put(&below(&self.mount, &path), Mode::Link, id);
                done.map_err(|fault| edit_error(fault, reader))?;
            }
            Record::File { path, executable, size } => {
                let staged = self.staging.add_file(size, &mut reader.content());
                let id = staged.map_err(|error| reader.content_error(error))?;
                let mode = if executable { Mode::BlobExecutable } else { Mode::Blob };
                let done = self.edits.put(&below(&self.mount, &path), mode, id);
                done.map_err(|fault| edit_error(fault, reader))?;
            }
        }
        Ok(true)
    }

    /// Why the tree cannot have that path, if so.
    fn refuses(&self, path: &[u8], is_file: bool) -> Option<NoticeReason> {
        let names = path.split(|byte| *byte == b'/');
        let misused = || name::misuses_gits_file(names, is_file).then_some(NoticeReason::Reserved);
        self.room.refuses(path).or_else(misused)
    }

    fn refuse(&mut self, path: Vec<u8>, is_file: bool) {
        if let Some(reason) = self.refuses(&path, is_file) {
            self.notice(path, reason);
        }
    }

    fn notice(&mut self, path: Vec<u8>, reason: NoticeReason) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push((path, reason));
        } else {
            self.more_notices += 1;
        }
    }
}

fn below<'p>(mount: &[&'p [u8]], path: &'p [u8]) -> Vec<&'p [u8]> {
    mount.iter().copied().chain(path.split(|byte| *byte == b'/')).collect()
}

fn edit_error(fault: EditFault, reader: &ChangeReader<'_>) -> TreeError {
    match fault {
        EditFault::BelowAFile => reader.fault("something below a file"),
        EditFault::Tree(error) => error,
        EditFault::TooMany => TreeError::TooLarge { what: "the set of changed names", limit: MAX_EDIT_BYTES as u64 },
    }
}
