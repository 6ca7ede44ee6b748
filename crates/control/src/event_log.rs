//! The events of each run, one file per run in a folder per tenant, one JSON line per event.
//!
//! The run's owner appends; any number of readers follow by offset. A reader that is slow, or gone, costs neither
//! memory nor the run's pace: the file is the buffer. Line `n` holds the event with sequence number `n`.
//!
//! The database, not this file, says how a run ended: a log that a crash cut short is completed from there.

mod reader;
mod retention;
mod writer;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bailey_protocol::api::{RunEvent, RunEventKind};
use bailey_protocol::id::{RunId, TenantId};
use bailey_protocol::limits::MAX_EVENT_LINE;
use tokio::sync::watch;

use crate::threads::Threads;

pub use reader::{Batch, EventReader};
pub use writer::EventWriter;

/// What a log's name ends in, after the run's id.
const SUFFIX: &str = ".ndjson";
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// Why events cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum EventLogError {
    /// The folder of logs cannot be made.
    #[error("cannot make the folder of event logs")]
    MakeFolder(#[source] io::Error),
    /// A log cannot be made or opened.
    #[error("cannot open the event log of `{run}`")]
    Open {
        /// Whose log.
        run: RunId,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// A log cannot be taken away.
    #[error("cannot remove the event log of `{run}`")]
    Remove {
        /// Whose log.
        run: RunId,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// A line cannot be added.
    #[error("cannot append to an event log")]
    Append(#[source] io::Error),
    /// A log cannot be read.
    #[error("cannot read an event log")]
    Read(#[source] io::Error),
    /// An event has no JSON form, or its line would be too long.
    #[error("cannot encode event {seq}")]
    Encode {
        /// Its place.
        seq: u64,
    },
    /// The owner went away before the last event, or the file is not a log.
    #[error("the event log stops before its last event")]
    Broken,
}

/// How far a log has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes that hold whole lines.
    pub bytes: u64,
    /// Whether the last event is among them.
    pub over: bool,
}

/// The folder of all logs.
#[derive(Debug, Clone)]
pub struct EventLogs {
    folder: PathBuf,
    threads: Threads,
    /// Held while a log is completed, so that two readers do not both do it.
    completing: Arc<Mutex<()>>,
    unseen: Arc<retention::Unseen>,
}

impl EventLogs {
    /// Opens the folder, making it where it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(folder: &Path) -> Result<Self, EventLogError> {
        make_folder(folder)?;
        let (completing, unseen) = (Arc::default(), Arc::default());
        Ok(Self { folder: folder.to_owned(), threads: Threads::of_runtime(), completing, unseen })
    }

    /// The same, read and written on `threads`.
    #[must_use]
    pub fn on(self, threads: Threads) -> Self {
        Self { threads, ..self }
    }

    /// Starts the log of a new run.
    ///
    /// # Errors
    /// When a log of that name exists or the file cannot be made.
    pub fn create(&self, tenant: &TenantId, run: &RunId) -> Result<EventWriter, EventLogError> {
        let file = self.open_to_append(tenant, run, OpenOptions::new().create_new(true))?;
        Ok(EventWriter::new(file, self.threads.clone(), 0, 0))
    }

    /// Takes away the log of a run, if there is one. Blocks.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(&self, tenant: &TenantId, run: &RunId) -> Result<(), EventLogError> {
        match std::fs::remove_file(self.path(tenant, run)) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                Err(EventLogError::Remove { run: run.clone(), cause })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Gives the log of a run that is over its last event, should a crash have kept it from getting there. A line cut
    /// short is removed. Blocks.
    ///
    /// # Errors
    /// When the file cannot be read, cut, made or appended to.
    pub fn complete(
        &self,
        tenant: &TenantId,
        run: &RunId,
        time_ms: u64,
        last: RunEventKind,
    ) -> Result<Progress, EventLogError> {
        let _turn = self.completing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = self.tail(tenant, run)?
            && tail.over
        {
            return Ok(Progress { bytes: tail.bytes, over: true });
        }
        let mut writer = self.recover(tenant, run)?;
        writer.append_blocking(time_ms, vec![last])?;
        Ok(*writer.progress().borrow())
    }

    fn recover(&self, tenant: &TenantId, run: &RunId) -> Result<EventWriter, EventLogError> {
        let file = self.open_to_append(tenant, run, OpenOptions::new().create(true))?;
        let tail = Tail::of(&file)?;
        file.set_len(tail.bytes).map_err(EventLogError::Append)?;
        Ok(EventWriter::new(file, self.threads.clone(), tail.bytes, tail.seq))
    }

    /// Reads the log of a run that is going, from the event after `after`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn follow(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: u64,
        progress: watch::Receiver<Progress>,
    ) -> Result<EventReader, EventLogError> {
        Ok(EventReader::new(self.open_to_read(tenant, run)?, self.threads.clone(), after, progress))
    }

    /// What a log holds; `None` when there is no file.
    fn tail(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Tail>, EventLogError> {
        match self.open_to_read(tenant, run) {
            Ok(file) => Tail::of(&file).map(Some),
            Err(EventLogError::Open { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(other) => Err(other),
        }
    }

    fn open_to_read(&self, tenant: &TenantId, run: &RunId) -> Result<File, EventLogError> {
        File::open(self.path(tenant, run)).map_err(|cause| EventLogError::Open { run: run.clone(), cause })
    }

    fn path(&self, tenant: &TenantId, run: &RunId) -> PathBuf {
        self.folder.join(tenant.as_str()).join(format!("{run}{SUFFIX}"))
    }

    fn open_to_append(&self, tenant: &TenantId, run: &RunId, options: &mut OpenOptions) -> Result<File, EventLogError> {
        let path = self.path(tenant, run);
        make_folder(&self.folder.join(tenant.as_str()))?;
        let file = options.read(true).append(true).mode(0o600).open(path);
        file.map_err(|cause| EventLogError::Open { run: run.clone(), cause })
    }
}

fn make_folder(folder: &Path) -> Result<(), EventLogError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(EventLogError::MakeFolder)
}

/// The end of a log as it lies on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tail {
    /// Bytes up to the last line's end.
    bytes: u64,
    /// Sequence number of the last whole line; 0 for none.
    seq: u64,
    /// Whether that line is `ended` or `failed`.
    over: bool,
}

impl Tail {
    fn of(file: &File) -> Result<Self, EventLogError> {
        let mut tail = Self::default();
        let (mut offset, mut line) = (0, Vec::new());
        let mut last = Vec::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = file.read_at(&mut chunk, offset).map_err(EventLogError::Read)?;
            if count == 0 {
                break;
            }
            offset += count as u64;
            for piece in chunk.get(..count).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(piece);
                if line.len() > MAX_EVENT_LINE {
                    return Err(EventLogError::Broken);
                }
                if piece.ends_with(b"\n") {
                    tail.bytes += line.len() as u64;
                    tail.seq += 1;
                    std::mem::swap(&mut last, &mut line);
                    line.clear();
                }
            }
        }
        tail.over = is_last(&last);
        Ok(tail)
    }
}

/// Whether a line is an event after which nothing comes.
fn is_last(line: &[u8]) -> bool {
    serde_json::from_slice::<RunEvent>(line).is_ok_and(|event| event.kind.is_last())
}

#[cfg(test)]
mod tests;
