//! Writing the change stream.

use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;

use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::limits::{MAX_CHANGE_RECORDS, MAX_CHANGE_STREAM};

use super::layer::read_full;
use super::walk::WalkError;

/// The stream so far.
pub(super) struct Output {
    to: BufWriter<std::fs::File>,
    record: Vec<u8>,
    records: u64,
    /// Bytes of content so far.
    bytes: u64,
    /// Bytes of content that the stream may carry.
    most: u64,
    /// Inside a file's content, where no record can follow any more.
    broken: bool,
}

impl Output {
    /// `disk` is the size of the file system that holds the upper layer. Only holes and second names can make its
    /// content larger than that, and neither may cost the host more than the sandbox was granted.
    pub(super) fn new(to: OwnedFd, disk: u64) -> Self {
        let to = BufWriter::with_capacity(64 * 1024, to.into());
        // Room for the records that follow.
        let most = MAX_CHANGE_STREAM.saturating_sub(64 * 1024 * 1024).min(disk);
        Self { to, record: Vec::new(), records: 0, bytes: 0, most, broken: false }
    }

    /// Whether a file of this size still fits.
    pub(super) fn fits(&self, size: u64) -> bool {
        size.saturating_add(self.bytes) <= self.most
    }

    /// Writes a record's header.
    pub(super) fn write(&mut self, header: &Header<'_>) -> Result<(), WalkError> {
        if self.records >= MAX_CHANGE_RECORDS {
            return Err(WalkError::TooMany);
        }
        if self.records == 0 {
            self.raw(MAGIC)?;
        }
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        header.encode(&mut record)?;
        self.raw(&record)?;
        self.record = record;
        self.records += 1;
        Ok(())
    }

    /// Writes a file's content after its header.
    pub(super) fn content(&mut self, file: &OwnedFd, size: u64, buffer: &mut [u8]) -> Result<(), WalkError> {
        self.broken = true;
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let part = buffer.get_mut(..most).unwrap_or_default();
            if read_full(file, part).map_err(|errno| WalkError::Read { errno, path: Vec::new() })? < most {
                return Err(WalkError::Shrunk);
            }
            self.raw(part)?;
            self.bytes = self.bytes.saturating_add(u64::try_from(most).unwrap_or(u64::MAX));
            left -= u64::try_from(most).unwrap_or(left);
        }
        self.broken = false;
        Ok(())
    }

    /// Ends the stream, with what went wrong if something did.
    pub(super) fn finish(&mut self, result: &Result<(), WalkError>) -> io::Result<()> {
        if self.broken {
            return Ok(());
        }
        if self.records == 0 {
            self.to.write_all(MAGIC)?;
        }
        let message;
        let last = match result {
            Ok(()) => Header::End { records: self.records },
            Err(error) => {
                message = error.to_string().chars().take(500).collect::<String>();
                Header::Failed { message: &message }
            }
        };
        let mut record = Vec::new();
        last.encode(&mut record).map_err(io::Error::other)?;
        self.to.write_all(&record)?;
        self.to.flush()
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<(), WalkError> {
        self.to.write_all(bytes).map_err(|error| {
            self.broken = true;
            WalkError::Write(error)
        })
    }
}
