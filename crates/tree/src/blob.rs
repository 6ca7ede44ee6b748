//! A file's content as a seekable stream of verified bytes.

use std::io::{self, Read, Seek, SeekFrom};

use gix_hash::ObjectId;

use crate::error::TreeError;
use crate::objects::{FileSource, read_block};
use crate::pack::stored::{BLOCK, BLOCK_HEADER};
use crate::pack::sums;

/// The content of a file (or the target of a link). Every byte was checked against what was written; damage is an
/// [`io::ErrorKind::InvalidData`] error in place of the bytes. Memory is flat: at most 1 MiB, whatever the size.
#[derive(Debug)]
pub struct Blob {
    id: ObjectId,
    length: u64,
    executable: bool,
    source: FileSource,
    position: u64,
    /// The block at hand, header included, and its number.
    block: Vec<u8>,
    number: Option<u64>,
}

impl Blob {
    pub(crate) fn new(id: ObjectId, executable: bool, source: FileSource) -> Self {
        let length = match &source {
            FileSource::Memory(bytes) => bytes.len() as u64,
            FileSource::Blocks { layout, .. } => layout.size,
        };
        Self { id, length, executable, source, position: 0, block: Vec::new(), number: None }
    }

    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The git object id, 40 hex digits: equal content, equal id.
    #[must_use]
    pub fn id(&self) -> String {
        self.id.to_string()
    }

    /// Whether the file may be executed.
    #[must_use]
    pub fn executable(&self) -> bool {
        self.executable
    }

    fn load(&mut self, number: u64) -> Result<(), TreeError> {
        let FileSource::Blocks { pack, layout, sums } = &self.source else {
            return Ok(());
        };
        self.number = None;
        read_block(&**pack, layout, number, &mut self.block)?;
        let expected = usize::try_from(number).ok().and_then(|at| sums.get(at));
        if expected != Some(&sums::crc32(&self.block)) {
            return Err(TreeError::corrupt(self.id, format!("block {number} does not match its checksum")));
        }
        self.number = Some(number);
        Ok(())
    }
}

impl Read for Blob {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.length || out.is_empty() {
            return Ok(0);
        }
        let number = self.position / BLOCK;
        if matches!(self.source, FileSource::Blocks { .. }) && self.number != Some(number) {
            self.load(number).map_err(|damage| io::Error::new(io::ErrorKind::InvalidData, damage))?;
        }
        let (bytes, from) = match &self.source {
            FileSource::Memory(bytes) => (bytes, self.position),
            FileSource::Blocks { .. } => (&self.block, self.position % BLOCK + BLOCK_HEADER),
        };
        let rest = usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
        let count = rest.len().min(out.len());
        if let (Some(to), Some(from)) = (out.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Blob {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = target.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}
