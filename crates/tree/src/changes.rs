//! Reads the change stream (`protocol::change`): the one parser of what a run left behind. Every byte is hostile.
//!
//! It yields checked records and nothing else: each path is a valid relative path, each size was held against the
//! stream's limit before a byte of content is taken, and `End` comes only when the count in it is right. It never
//! allocates what a length field asks for beyond 4 KiB.

use std::io::{self, BufRead as _, BufReader, Read};

use bailey_protocol::change::{MAGIC, NoticeReason, tag};
use bailey_protocol::limits::{MAX_CHANGE_RECORDS, MAX_CHANGE_STREAM};
use bailey_protocol::path::MAX_PATH_BYTES;

use crate::error::TreeError;
use crate::path;

/// Longest target of a link that Linux can make.
const MAX_TARGET_BYTES: usize = 4095;

/// One checked record. Paths are relative, never empty, and made of valid names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Directory {
        path: Vec<u8>,
    },
    /// Exactly `size` bytes must be taken by [`ChangeReader::content`] before the next record.
    File {
        path: Vec<u8>,
        executable: bool,
        size: u64,
    },
    Symlink {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    Delete {
        path: Vec<u8>,
    },
    /// Any path, for people only.
    Notice {
        path: Vec<u8>,
        reason: NoticeReason,
    },
    End,
}

/// A reader over one stream. Bytes after the end record are not looked at.
pub(crate) struct ChangeReader<'a> {
    source: BufReader<&'a mut dyn Read>,
    offset: u64,
    records: u64,
    started: bool,
}

impl<'a> ChangeReader<'a> {
    pub(crate) fn new(source: &'a mut dyn Read) -> Self {
        Self { source: BufReader::with_capacity(64 << 10, source), offset: 0, records: 0, started: false }
    }

    /// The next record. After an error or `End` the reader is of no more use.
    pub(crate) fn next(&mut self) -> Result<Record, TreeError> {
        if !self.started {
            self.started = true;
            if self.array::<8>()? != *MAGIC {
                return Err(self.fault("not a change stream of a version that is known here"));
            }
        }
        let [tag] = self.array()?;
        let record = match tag {
            tag::DIRECTORY => Record::Directory { path: self.path()? },
            tag::FILE => {
                let path = self.path()?;
                let executable = match self.array()? {
                    [0] => false,
                    [1] => true,
                    _ => return Err(self.fault("unknown flags")),
                };
                let size = u64::from_be_bytes(self.array()?);
                if size > MAX_CHANGE_STREAM.saturating_sub(self.offset) {
                    return Err(TreeError::TooLarge { what: "the change stream", limit: MAX_CHANGE_STREAM });
                }
                Record::File { path, executable, size }
            }
            tag::SYMLINK => Record::Symlink { path: self.path()?, target: self.target()? },
            tag::DELETE => Record::Delete { path: self.path()? },
            tag::NOTICE => {
                let path = self.field()?;
                let [byte] = self.array()?;
                let reason = NoticeReason::from_byte(byte).ok_or_else(|| self.fault("unknown reason"))?;
                Record::Notice { path, reason }
            }
            tag::END => {
                if u64::from_be_bytes(self.array()?) != self.records {
                    return Err(self.fault("the number of records is not the one announced"));
                }
                return Ok(Record::End);
            }
            tag::FAILED => {
                let message = self.field()?;
                return Err(TreeError::CollectFailed { message: printable(&message) });
            }
            _ => return Err(self.fault("unknown record")),
        };
        self.records += 1;
        if self.records > MAX_CHANGE_RECORDS {
            return Err(self.fault("too many records"));
        }
        Ok(record)
    }

    /// The content of the file whose record came last.
    pub(crate) fn content(&mut self) -> impl Read + '_ {
        Content(self)
    }

    /// Skips the content of the file whose record came last.
    pub(crate) fn skip(&mut self, mut size: u64) -> Result<(), TreeError> {
        while size > 0 {
            let held = self.source.fill_buf().map_err(|source| TreeError::Input { source })?.len();
            if held == 0 {
                return Err(self.fault("it ends before its end record"));
            }
            let step = usize::try_from(size).unwrap_or(usize::MAX).min(held);
            self.source.consume(step);
            self.offset += step as u64;
            size -= step as u64;
        }
        Ok(())
    }

    /// An error at the place reached.
    pub(crate) fn fault(&self, fault: &'static str) -> TreeError {
        TreeError::InvalidStream { offset: self.offset, fault }
    }

    /// What reading content failed with: the stream's end is the stream's fault.
    pub(crate) fn content_error(&self, error: TreeError) -> TreeError {
        match error {
            TreeError::Input { source } if source.kind() == io::ErrorKind::UnexpectedEof => {
                self.fault("it ends before its end record")
            }
            other => other,
        }
    }

    fn path(&mut self) -> Result<Vec<u8>, TreeError> {
        let path = self.field()?;
        match path::parse(&path) {
            Ok(names) if !names.is_empty() => Ok(path),
            Ok(_) => Err(self.fault("an empty path")),
            Err(_rule) => Err(self.fault("a path that no tree can hold")),
        }
    }

    fn target(&mut self) -> Result<Vec<u8>, TreeError> {
        let target = self.field()?;
        if target.is_empty() || target.len() > MAX_TARGET_BYTES || target.contains(&0) {
            return Err(self.fault("a link that no tree can hold"));
        }
        Ok(target)
    }

    fn field(&mut self) -> Result<Vec<u8>, TreeError> {
        let length = usize::from(u16::from_be_bytes(self.array()?));
        if length > MAX_PATH_BYTES {
            return Err(self.fault("a field longer than 4096 bytes"));
        }
        let mut field = vec![0; length];
        self.fill(&mut field)?;
        Ok(field)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TreeError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), TreeError> {
        if out.len() as u64 > MAX_CHANGE_STREAM.saturating_sub(self.offset) {
            return Err(TreeError::TooLarge { what: "the change stream", limit: MAX_CHANGE_STREAM });
        }
        match self.source.read_exact(out) {
            Ok(()) => {
                self.offset += out.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.fault("it ends before its end record"))
            }
            Err(source) => Err(TreeError::Input { source }),
        }
    }
}

struct Content<'r, 's>(&'r mut ChangeReader<'s>);

impl Read for Content<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.0.source.read(out)?;
        self.0.offset += count as u64;
        Ok(count)
    }
}

/// A guest's text, fit for a log.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(500).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests;
