//! The one who appends.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use bailey_protocol::api::{RunEvent, RunEventKind};
use bailey_protocol::limits::MAX_EVENT_LINE;
use tokio::sync::watch;

use super::{EventLogError, Progress};
use crate::threads::Threads;

/// Appends to one log. Dropping it before the last event makes every reader's stream visibly broken.
#[derive(Debug)]
pub struct EventWriter {
    file: Arc<File>,
    threads: Threads,
    progress: watch::Sender<Progress>,
    seq: u64,
}

impl EventWriter {
    pub(super) fn new(file: File, threads: Threads, bytes: u64, seq: u64) -> Self {
        let (progress, _) = watch::channel(Progress { bytes, over: false });
        Self { file: Arc::new(file), threads, progress, seq }
    }

    /// What readers wait on.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Appends events that happened at `time_ms`, in one write, and tells the readers.
    ///
    /// CANCEL: a dropped future may leave the lines written but unannounced; the owner never drops it.
    ///
    /// # Errors
    /// When an event cannot be encoded or the disk refuses.
    pub async fn append(&mut self, time_ms: u64, kinds: Vec<RunEventKind>) -> Result<(), EventLogError> {
        let lines = self.encode(time_ms, kinds)?;
        let file = Arc::clone(&self.file);
        let writing = self.threads.spawn(move || ((&*file).write_all(&lines.text), lines.grown));
        let (written, grown) = writing.await.map_err(|_panicked| EventLogError::Broken)?;
        written.map_err(EventLogError::Append)?;
        self.announce(grown);
        Ok(())
    }

    /// As [`EventWriter::append`], on a thread that may block.
    ///
    /// # Errors
    /// As there.
    pub fn append_blocking(&mut self, time_ms: u64, kinds: Vec<RunEventKind>) -> Result<(), EventLogError> {
        let lines = self.encode(time_ms, kinds)?;
        (&*self.file).write_all(&lines.text).map_err(EventLogError::Append)?;
        self.announce(lines.grown);
        Ok(())
    }

    fn encode(&mut self, time_ms: u64, kinds: Vec<RunEventKind>) -> Result<Lines, EventLogError> {
        let mut text = Vec::with_capacity(256);
        let mut over = false;
        for kind in kinds {
            self.seq += 1;
            over |= kind.is_last();
            let start = text.len();
            let event = RunEvent { seq: self.seq, time_ms, kind };
            let encoded = serde_json::to_writer(&mut text, &event);
            text.push(b'\n');
            if encoded.is_err() || text.len() - start > MAX_EVENT_LINE {
                return Err(EventLogError::Encode { seq: self.seq });
            }
        }
        let grown = Progress { bytes: text.len() as u64, over };
        Ok(Lines { text, grown })
    }

    fn announce(&self, grown: Progress) {
        self.progress.send_modify(|progress| {
            progress.bytes += grown.bytes;
            progress.over |= grown.over;
        });
    }
}

struct Lines {
    text: Vec<u8>,
    grown: Progress,
}
