//! Reads a change stream that may hold folders, files and links only.

use bailey_protocol::change::{MAGIC, tag};
use bailey_protocol::limits::{MAX_CHANGE_RECORDS, MAX_CHANGE_STREAM};
use bailey_protocol::path::{MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_DEPTH};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use super::SliceError;

/// One checked record. Paths are relative, not empty, and lead only downwards.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Directory {
        path: Vec<u8>,
    },
    /// Exactly `left` bytes must be taken by [`SliceReader::content`] before the next record.
    File {
        path: Vec<u8>,
        executable: bool,
        left: u64,
    },
    Symlink {
        path: Vec<u8>,
        target: Vec<u8>,
    },
}

/// A reader over one stream.
pub(super) struct SliceReader<R> {
    source: R,
    records: u64,
    bytes: u64,
    /// Bytes of the last piece of content, taken off when the next one is asked for.
    held: usize,
    started: bool,
}

impl<R: AsyncBufRead + Unpin> SliceReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, records: 0, bytes: 0, held: 0, started: false }
    }

    /// The next record; `None` once the stream has ended as it says.
    pub(super) async fn next(&mut self) -> Result<Option<Record>, SliceError> {
        self.release();
        if !std::mem::replace(&mut self.started, true) && self.array::<8>().await? != *MAGIC {
            return Err(SliceError::Invalid("it is of no version that is known here"));
        }
        let [tag] = self.array().await?;
        let record = match tag {
            tag::DIRECTORY => Record::Directory { path: self.path().await? },
            tag::FILE => {
                let path = self.path().await?;
                let executable = match self.array().await? {
                    [0] => false,
                    [1] => true,
                    _ => return Err(SliceError::Invalid("unknown flags")),
                };
                let left = u64::from_be_bytes(self.array().await?);
                self.bytes = self.bytes.saturating_add(left);
                if self.bytes > MAX_CHANGE_STREAM {
                    return Err(SliceError::Invalid("it is too large"));
                }
                Record::File { path, executable, left }
            }
            tag::SYMLINK => Record::Symlink { path: self.path().await?, target: self.target().await? },
            tag::END => {
                if u64::from_be_bytes(self.array().await?) != self.records {
                    return Err(SliceError::Invalid("the number of records is not the one announced"));
                }
                if !self.source.fill_buf().await.map_err(SliceError::Broken)?.is_empty() {
                    return Err(SliceError::Invalid("it goes on after its end"));
                }
                return Ok(None);
            }
            _ => return Err(SliceError::Invalid("a record that no slice has")),
        };
        self.records += 1;
        if self.records > MAX_CHANGE_RECORDS {
            return Err(SliceError::Invalid("too many records"));
        }
        Ok(Some(record))
    }

    /// A piece of the content of the file whose record came last, at most `left` bytes and at least one.
    pub(super) async fn content(&mut self, left: u64) -> Result<&[u8], SliceError> {
        self.release();
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let held = self.source.fill_buf().await.map_err(SliceError::Broken)?;
        let piece = held.get(..most).unwrap_or(held);
        if piece.is_empty() {
            return Err(SliceError::Broken(std::io::ErrorKind::UnexpectedEof.into()));
        }
        self.held = piece.len();
        Ok(piece)
    }

    fn release(&mut self) {
        self.source.consume(std::mem::take(&mut self.held));
    }

    async fn path(&mut self) -> Result<Vec<u8>, SliceError> {
        let path = self.field().await?;
        let names = path.split(|byte| *byte == b'/');
        let valid = |name: &[u8]| {
            !name.is_empty() && name != b"." && name != b".." && !name.contains(&0) && name.len() <= MAX_NAME_BYTES
        };
        if names.clone().count() > MAX_PATH_DEPTH || !names.clone().all(valid) {
            return Err(SliceError::Invalid("a path that does not lead downwards"));
        }
        Ok(path)
    }

    async fn target(&mut self) -> Result<Vec<u8>, SliceError> {
        let target = self.field().await?;
        if target.is_empty() || target.len() >= MAX_PATH_BYTES || target.contains(&0) {
            return Err(SliceError::Invalid("a link that cannot be"));
        }
        Ok(target)
    }

    async fn field(&mut self) -> Result<Vec<u8>, SliceError> {
        let length = usize::from(u16::from_be_bytes(self.array().await?));
        if length > MAX_PATH_BYTES {
            return Err(SliceError::Invalid("a field longer than 4096 bytes"));
        }
        let mut field = vec![0; length];
        self.source.read_exact(&mut field).await.map_err(SliceError::Broken)?;
        Ok(field)
    }

    async fn array<const N: usize>(&mut self) -> Result<[u8; N], SliceError> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).await.map_err(SliceError::Broken)?;
        Ok(bytes)
    }
}
