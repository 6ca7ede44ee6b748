//! An archive as a new version: all of it, or nothing.

use std::io::{self, BufReader, Read};

use bailey_protocol::change::NoticeReason;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;
use flate2::bufread::MultiGzDecoder;
use gix_hash::ObjectId;

use super::Format;
use super::entry::{Member, MemberKind, refuse};
use super::ratio::{Counted, Guarded, is_gzip};
use super::tar_reader::TarReader;
use super::zip_reader::{ZipReader, read_error};
use crate::commit::CommitMeta;
use crate::edits::{EditFault, Edits, MAX_EDIT_BYTES, Standing};
use crate::error::TreeError;
use crate::object::Mode;
use crate::path;
use crate::room::Room;
use crate::staging::Staging;
use crate::store::{Found, MAX_NOTICES, Store, parents_of};

/// How much may come in at once.
#[derive(Debug, Clone, Copy)]
pub struct ExtractLimits {
    /// Members.
    pub members: u64,
    /// Bytes of the largest file.
    pub file_bytes: u64,
    /// Bytes of all files, and of a zip as it is sent.
    pub bytes: u64,
}

/// What came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extracted {
    /// The new version; the base where nothing changed.
    pub version: Option<VersionId>,
    /// Files, links and folders of the archive.
    pub members: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// What is not in the version as it was in the archive. At most [`MAX_NOTICES`].
    pub notices: Vec<(Vec<u8>, NoticeReason)>,
    /// Notices beyond those.
    pub more_notices: u64,
}

impl Store {
    /// Puts the members of an archive below `inner`, which is made if need be. What is there stays, but for files and
    /// links that the archive has too; a folder never gives way to a file, nor a file to a folder. See [`super`] for
    /// what is refused.
    ///
    /// # Errors
    /// When the archive is refused, too large or breaks off, something is in the way, there is no such base here, or
    /// storage fails. Then nothing was changed.
    pub fn extract(
        &self,
        base: Option<&VersionId>,
        inner: &str,
        format: Format,
        content: &mut dyn Read,
        limits: &ExtractLimits,
        meta: &CommitMeta,
    ) -> Result<Extracted, TreeError> {
        self.extract_telling(base, inner, format, content, limits, meta, &mut |_path| {})
    }

    /// The same, which tells each path of a file or link that the archive puts, from the store's root and in its real
    /// bytes, whether or not it is there already.
    ///
    /// # Errors
    /// As [`Store::extract`].
    #[expect(clippy::too_many_arguments, reason = "those of the plain form, and who is told")]
    pub fn extract_telling(
        &self,
        base: Option<&VersionId>,
        inner: &str,
        format: Format,
        content: &mut dyn Read,
        limits: &ExtractLimits,
        meta: &CommitMeta,
        tell: &mut dyn FnMut(&[u8]),
    ) -> Result<Extracted, TreeError> {
        let real = bytes_of(inner);
        let mount = path::parse_inner(&real)?;
        let root = self.root_of(base)?;
        self.check_parents(&root, inner)?;
        self.check_room(inner)?;
        if let Some(Found::File(_)) = self.find(&root, inner)? {
            return Err(TreeError::NotADirectory { path: inner.to_owned() });
        }
        self.ensure()?;
        let mut intake = Intake {
            staging: Staging::begin(self.objects())?,
            edits: Edits::new(self.objects(), root),
            room: Room::below(self.id(), inner),
            mount,
            limits,
            tell,
            done: Extracted { version: None, members: 0, bytes: 0, notices: Vec::new(), more_notices: 0 },
        };
        if !intake.mount.is_empty() {
            let mount = intake.mount.clone();
            intake.edits.make_folder(&mount).map_err(|fault| edit_fault(&real, fault))?;
        }
        match format {
            Format::Tar => intake.tar(content)?,
            Format::Zip => intake.zip(self, content)?,
        }
        let Intake { mut staging, edits, mut done, .. } = intake;
        let tree = edits.apply(&mut staging)?;
        done.version = match base {
            Some(base) if tree == root => Some(base.clone()),
            _ => Some(staging.commit(&tree, &parents_of(base), meta)?),
        };
        Ok(done)
    }
}

struct Intake<'a> {
    staging: Staging<'a>,
    edits: Edits<'a>,
    room: Room,
    mount: Vec<&'a [u8]>,
    limits: &'a ExtractLimits,
    tell: &'a mut dyn FnMut(&[u8]),
    done: Extracted,
}

impl Intake<'_> {
    fn tar(&mut self, content: &mut dyn Read) -> Result<(), TreeError> {
        let (counted, packed) = Counted::new(content);
        let mut input = BufReader::with_capacity(64 << 10, counted);
        if is_gzip(&mut input).map_err(|source| TreeError::Input { source })? {
            let unpacked = Guarded::new(MultiGzDecoder::new(input), packed);
            self.members(TarReader::new(BufReader::with_capacity(64 << 10, unpacked)))
        } else {
            self.members(TarReader::new(input))
        }
    }

    fn members<R: Read>(&mut self, mut tar: TarReader<R>) -> Result<(), TreeError> {
        while let Some(member) = tar.next_member()? {
            let size = self.admit(&member)?;
            let id = match member.kind {
                MemberKind::File { .. } => {
                    let staged = self.staging.add_file(size, &mut tar.content());
                    Some(staged.map_err(|error| match error {
                        TreeError::Input { source } => tar.read_error(source),
                        other => other,
                    })?)
                }
                _ => None,
            };
            self.place(member, id)?;
        }
        Ok(())
    }

    fn zip(&mut self, store: &Store, content: &mut dyn Read) -> Result<(), TreeError> {
        let limit = self.limits.bytes;
        let mut scratch = store.objects().scratch()?;
        let mut content = content.take(limit.saturating_add(1));
        let mut piece = vec![0; 64 << 10];
        loop {
            let count = match content.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(TreeError::Input { source }),
            };
            scratch.append(piece.get(..count).unwrap_or_default())?;
        }
        if scratch.length() > limit {
            return Err(TreeError::TooLarge { what: "the archive", limit });
        }
        scratch.settle(false)?;
        let mut zip = ZipReader::open(&scratch, self.limits.members)?;
        while let Some((member, mut content)) = zip.next()? {
            let size = self.admit(&member)?;
            let id = match member.kind {
                MemberKind::File { .. } => {
                    let staged = self.staging.add_file(size, &mut content);
                    let id = staged.map_err(|error| match error {
                        TreeError::Input { source } => read_error(&member.path, source),
                        other => other,
                    })?;
                    content.check_end(&member.path)?;
                    Some(id)
                }
                _ => None,
            };
            self.place(member, id)?;
        }
        Ok(())
    }

    /// Checks a member against the limits before any of its content is read; the size of a file.
    fn admit(&mut self, member: &Member) -> Result<u64, TreeError> {
        self.done.members += 1;
        if self.done.members > self.limits.members {
            return Err(TreeError::TooMany { what: "the members of the archive", limit: self.limits.members });
        }
        if !member.path.is_empty() {
            match self.room.refuses(&member.path) {
                None => {}
                Some(NoticeReason::Reserved) => {
                    return Err(refuse(&member.path, "`users` at a tenant's root is where users' own trees are"));
                }
                Some(_) => return Err(refuse(&member.path, "a path longer or deeper than a tree may hold")),
            }
        }
        let MemberKind::File { size, .. } = member.kind else {
            return Ok(0);
        };
        if size > self.limits.file_bytes {
            return Err(TreeError::TooLarge { what: "a file of the archive", limit: self.limits.file_bytes });
        }
        self.done.bytes = self.done.bytes.saturating_add(size);
        if self.done.bytes > self.limits.bytes {
            return Err(TreeError::TooLarge { what: "what is in the archive", limit: self.limits.bytes });
        }
        Ok(size)
    }

    fn place(&mut self, member: Member, id: Option<ObjectId>) -> Result<(), TreeError> {
        let Member { path, kind, notice } = member;
        let names: Vec<&[u8]> = self.mount.iter().copied().chain(split(&path)).collect();
        let standing = self.edits.standing(&names).map_err(|fault| edit_fault(&path, fault))?;
        match standing {
            Standing::BelowNew => return Err(refuse(&path, "below a file or link of the archive")),
            Standing::BelowOld => return Err(refuse(&path, "below a file or link that is in the tree")),
            Standing::New(..) => return Err(refuse(&path, "the same name twice")),
            Standing::Nothing | Standing::Folder | Standing::Old => {}
        }
        let put = |intake: &mut Self, mode, id| {
            if matches!(standing, Standing::Folder) {
                return Err(refuse(&path, "a folder is in its place"));
            }
            (intake.tell)(&names.join(&b'/'));
            intake.edits.put(&names, mode, id).map_err(|fault| edit_fault(&path, fault))
        };
        match (kind, id) {
            (MemberKind::Folder, _) if path.is_empty() => {}
            (MemberKind::Folder, _) => {
                if matches!(standing, Standing::Old) {
                    return Err(refuse(&path, "a file or link is in its place"));
                }
                self.edits.make_folder(&names).map_err(|fault| edit_fault(&path, fault))?;
            }
            (MemberKind::File { executable, .. }, Some(id)) => {
                put(self, if executable { Mode::BlobExecutable } else { Mode::Blob }, id)?;
            }
            (MemberKind::Link { target }, _) => {
                let id = self.staging.add_file(target.len() as u64, &mut target.as_slice())?;
                put(self, Mode::Link, id)?;
            }
            (MemberKind::HardLink { target }, _) => {
                let first: Vec<&[u8]> = self.mount.iter().copied().chain(split(&target)).collect();
                match self.edits.standing(&first).map_err(|fault| edit_fault(&path, fault))? {
                    Standing::New(mode, id) if mode != Mode::Link => put(self, mode, id)?,
                    _ => return Err(refuse(&path, "a second name of what is no earlier file of the archive")),
                }
            }
            (MemberKind::Nothing, _) | (MemberKind::File { .. }, None) => {}
        }
        if let Some(reason) = notice {
            if self.done.notices.len() < MAX_NOTICES {
                self.done.notices.push((path, reason));
            } else {
                self.done.more_notices += 1;
            }
        }
        Ok(())
    }
}

fn split(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

fn edit_fault(member: &[u8], fault: EditFault) -> TreeError {
    match fault {
        EditFault::BelowAFile => refuse(member, "below a file or link"),
        EditFault::TooMany => TreeError::TooLarge { what: "the set of names", limit: MAX_EDIT_BYTES as u64 },
        EditFault::Tree(error) => error,
    }
}
