//! Those who follow.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bailey_protocol::limits::MAX_EVENT_LINE;
use bytes::{Bytes, BytesMut};
use tokio::sync::watch;

use super::{CHUNK, EventLogError, Progress};
use crate::threads::Threads;

/// Whole lines of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Sequence number of the first line.
    pub first_seq: u64,
    /// The lines, each with its line end.
    pub lines: Bytes,
}

/// Follows one log to its last event.
#[derive(Debug)]
pub struct EventReader {
    file: Arc<File>,
    threads: Threads,
    progress: watch::Receiver<Progress>,
    offset: u64,
    /// Sequence number of the last line handed out or skipped.
    seq: u64,
    after: u64,
    /// The start of a line whose end was not read yet.
    rest: BytesMut,
}

impl EventReader {
    pub(super) fn new(file: File, threads: Threads, after: u64, progress: watch::Receiver<Progress>) -> Self {
        Self { file: Arc::new(file), threads, progress, offset: 0, seq: 0, after, rest: BytesMut::new() }
    }

    /// The next lines, as soon as there are any; `None` after the last event.
    ///
    /// CANCEL: safe; a dropped future loses nothing.
    ///
    /// # Errors
    /// When the file cannot be read, or the owner went away before the last event.
    pub async fn next(&mut self) -> Result<Option<Batch>, EventLogError> {
        loop {
            let progress = *self.progress.borrow_and_update();
            if self.offset < progress.bytes {
                if let Some(batch) = self.read(progress.bytes).await? {
                    return Ok(Some(batch));
                }
            } else if progress.over {
                return Ok(None);
            } else {
                self.progress.changed().await.map_err(|_closed| EventLogError::Broken)?;
            }
        }
    }

    /// Reads up to a chunk; `None` when no whole line came that the reader asked for.
    async fn read(&mut self, limit: u64) -> Result<Option<Batch>, EventLogError> {
        let want = usize::try_from(limit - self.offset).unwrap_or(CHUNK).min(CHUNK);
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let read = self.threads.spawn(move || {
            let mut bytes = vec![0; want];
            let count = file.read_at(&mut bytes, offset)?;
            bytes.truncate(count);
            Ok(bytes)
        });
        let bytes = read.await.map_err(|_panicked| EventLogError::Broken)?.map_err(EventLogError::Read)?;
        if bytes.is_empty() || self.rest.len() + bytes.len() > MAX_EVENT_LINE + CHUNK {
            return Err(EventLogError::Broken);
        }
        self.offset += bytes.len() as u64;
        let Some(last_end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.rest.extend_from_slice(&bytes);
            return Ok(None);
        };
        let (whole, begun) = bytes.split_at(last_end + 1);
        self.rest.extend_from_slice(whole);
        let lines = std::mem::take(&mut self.rest).freeze();
        self.rest.extend_from_slice(begun);
        Ok(self.skip(lines))
    }

    /// Counts `lines` and drops those that the reader already has.
    fn skip(&mut self, mut lines: Bytes) -> Option<Batch> {
        let first = self.seq + 1;
        self.seq += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        if self.seq <= self.after {
            return None;
        }
        let surplus = usize::try_from((self.after + 1).saturating_sub(first)).unwrap_or(0);
        if surplus > 0 {
            let end = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(surplus - 1)?.0;
            drop(lines.split_to(end + 1));
        }
        Some(Batch { first_seq: first + surplus as u64, lines })
    }
}
