//! How much all logs together may hold: beyond it the oldest go, so that output never fills the host's disk.
//!
//! A run whose log is gone is still listed, and its stream is its last event, from the database.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bailey_protocol::id::RunId;

use super::{EventLogError, EventLogs};

/// The folder is looked through once per this part of the budget.
const LOOKS_PER_BUDGET: u64 = 64;

/// What has been written since the folder was last looked through.
#[derive(Debug)]
pub(super) struct Unseen(AtomicU64);

impl Default for Unseen {
    /// What an earlier life left has not been seen.
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl EventLogs {
    /// Takes note that a log of `grown` bytes is over; says whether it is time to [`EventLogs::trim`].
    #[must_use]
    pub fn is_trim_due(&self, grown: u64, budget: u64) -> bool {
        let add = |unseen: u64| Some(unseen.saturating_add(grown));
        let before = self.unseen.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).unwrap_or(u64::MAX);
        before.saturating_add(grown) >= budget / LOOKS_PER_BUDGET
    }

    /// Removes the oldest logs until all together hold at most `budget` bytes; those that `is_live` stay. Answers how
    /// many went. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be read or a log not removed.
    pub fn trim(&self, budget: u64, is_live: impl Fn(&RunId) -> bool) -> Result<usize, EventLogError> {
        self.unseen.0.store(0, Ordering::Relaxed);
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(EventLogError::Read)? {
            let entry = entry.map_err(EventLogError::Read)?;
            let name = entry.file_name();
            let run = name.to_str().and_then(|name| name.strip_suffix(".ndjson")).and_then(|run| run.parse().ok());
            let Some(run): Option<RunId> = run else { continue };
            match entry.metadata() {
                Ok(metadata) => logs.push((run, metadata.len())),
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(EventLogError::Read(cause)),
            }
        }
        // Ids sort by creation.
        logs.sort_unstable();
        let mut held = logs.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let mut gone = 0;
        for (run, bytes) in logs {
            if held <= budget {
                break;
            }
            if !is_live(&run) {
                self.remove(&run)?;
                held = held.saturating_sub(bytes);
                gone += 1;
            }
        }
        Ok(gone)
    }
}
