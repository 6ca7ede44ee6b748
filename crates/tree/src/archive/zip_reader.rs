//! Reads the members of a zip that lies in a scratch file. What cannot be sought through cannot be checked first.

use std::io::{self, BufReader, Read};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::entry::{MAX_TARGET, Member, MemberKind, check_target, clean, mode, refuse};
use super::ratio::is_bomb;
use super::zip_directory::{self, Listed};
use crate::blob_store::Scratch;
use crate::error::TreeError;

/// A zip whose directory was checked.
pub(super) struct ZipReader<'a> {
    file: &'a Scratch,
    members: std::vec::IntoIter<Listed>,
}

impl<'a> ZipReader<'a> {
    /// Checks all of the archive but the content of members.
    pub(super) fn open(file: &'a Scratch, max_members: u64) -> Result<Self, TreeError> {
        let members = zip_directory::read(file, max_members)?;
        let all = members.iter().fold(0_u64, |all, member| all.saturating_add(member.size));
        if is_bomb(file.length(), all) {
            return Err(refuse(b"(all)", "the archive unpacks to more than 250 times its size"));
        }
        Ok(Self { file, members: members.into_iter() })
    }

    /// The next member and, of a file, its content.
    pub(super) fn next(&mut self) -> Result<Option<(Member, ZipContent<'a>)>, TreeError> {
        let Some(listed) = self.members.next() else {
            return Ok(None);
        };
        let folder = listed.name.ends_with(b"/");
        let path = clean(&listed.name, folder)?;
        let bits = u64::from(listed.mode.unwrap_or(0));
        let kind = bits & 0o170_000;
        let (executable, notice) = mode(bits);
        let size = listed.size;
        let name = listed.name.clone();
        let mut content = ZipContent::new(self.file, listed);
        let kind = match kind {
            0 | 0o040_000 if folder => {
                if size > 0 {
                    return Err(refuse(&name, "content where there can be none"));
                }
                content.check_end(&name)?;
                MemberKind::Folder
            }
            0 | 0o100_000 if !folder => MemberKind::File { size, executable },
            0o120_000 if !folder => {
                if size > MAX_TARGET {
                    return Err(refuse(&name, "a link to a place that no link can name"));
                }
                let mut target = Vec::new();
                content.read_to_end(&mut target).map_err(|error| read_error(&name, error))?;
                content.check_end(&name)?;
                check_target(&name, &target)?;
                // A link's mode means nothing.
                return Ok(Some((Member { path, kind: MemberKind::Link { target }, notice: None }, content)));
            }
            _ => return Err(refuse(&name, "neither a file, nor a folder, nor a link")),
        };
        Ok(Some((Member { path, kind, notice }, content)))
    }
}

/// What a failed read of a member means.
pub(super) fn read_error(name: &[u8], error: io::Error) -> TreeError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
            refuse(name, "its content is damaged")
        }
        _ => TreeError::Input { source: error },
    }
}

/// A part of a file.
struct Section<'a> {
    file: &'a Scratch,
    at: u64,
    end: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(out.len());
        self.file.read_exact_at(self.at, out.get_mut(..wanted).unwrap_or_default()).map_err(io::Error::other)?;
        self.at += wanted as u64;
        Ok(wanted)
    }
}

enum Packing<'a> {
    Stored(BufReader<Section<'a>>),
    Deflated(DeflateDecoder<BufReader<Section<'a>>>),
}

/// The content of a member, which has exactly the size that was told.
pub(super) struct ZipContent<'a> {
    packing: Packing<'a>,
    told: Listed,
    left: u64,
    crc: Crc,
}

impl<'a> ZipContent<'a> {
    fn new(file: &'a Scratch, told: Listed) -> Self {
        let section = BufReader::new(Section { file, at: told.start, end: told.start.saturating_add(told.packed) });
        let packing =
            if told.deflated { Packing::Deflated(DeflateDecoder::new(section)) } else { Packing::Stored(section) };
        Self { packing, left: told.size, told, crc: Crc::new() }
    }

    fn inner(&mut self) -> &mut dyn Read {
        match &mut self.packing {
            Packing::Stored(inner) => inner,
            Packing::Deflated(inner) => inner,
        }
    }

    /// That all was read, nothing is left, and the checksum is right.
    pub(super) fn check_end(&mut self, name: &[u8]) -> Result<(), TreeError> {
        let more = self.inner().read(&mut [0]).map_err(|error| read_error(name, error))?;
        let used = match &self.packing {
            Packing::Stored(_) => self.told.packed,
            Packing::Deflated(inner) => inner.total_in(),
        };
        if more > 0 || self.left > 0 || used != self.told.packed {
            return Err(refuse(name, "its content has another size than it says"));
        }
        if self.crc.sum() != self.told.crc {
            return Err(refuse(name, "its content does not match its checksum"));
        }
        Ok(())
    }
}

impl Read for ZipContent<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let out = out.get_mut(..wanted).unwrap_or_default();
        if out.is_empty() {
            return Ok(0);
        }
        let count = self.inner().read(out)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.crc.update(out.get(..count).unwrap_or_default());
        self.left -= count as u64;
        Ok(count)
    }
}
