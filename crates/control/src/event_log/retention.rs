//! How much all logs together may hold: beyond it old ones go, so that output never fills the host's disk.
//!
//! A run whose log is gone is still listed, and its stream is its last event, from the database.

use std::collections::BinaryHeap;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use bailey_protocol::id::{RunId, TenantId};

use super::{EventLogError, EventLogs, SUFFIX};

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

    /// Removes logs until all together hold at most `budget` bytes: each time the oldest of the tenant that holds most,
    /// so that what one tenant writes takes nothing from the others. Those that `is_live` stay, and do not count. Answers
    /// how many went. Blocks.
    ///
    /// # Errors
    /// When a folder cannot be read or a log not removed.
    pub fn trim(&self, budget: u64, is_live: impl Fn(&RunId) -> bool) -> Result<usize, EventLogError> {
        self.unseen.0.store(0, Ordering::Relaxed);
        let mut tenants = BinaryHeap::new();
        for tenant in names::<TenantId>(&self.folder, "")? {
            let mut logs = self.logs_of(&tenant)?;
            logs.retain(|(run, _)| !is_live(run));
            // Ids sort by creation: the oldest is the last.
            logs.sort_unstable_by(|one, other| other.cmp(one));
            tenants.push((sum(&logs), tenant, logs));
        }
        let mut held = tenants.iter().fold(0, |held: u64, (bytes, ..)| held.saturating_add(*bytes));
        let mut gone = 0;
        while held > budget
            && let Some((bytes, tenant, mut logs)) = tenants.pop()
        {
            let Some((run, size)) = logs.pop() else { continue };
            self.remove(&tenant, &run)?;
            held = held.saturating_sub(size);
            gone += 1;
            tenants.push((bytes.saturating_sub(size), tenant, logs));
        }
        Ok(gone)
    }

    /// Takes away logs that hold nothing: a crash came between the log and the record of its run. Of a run that is
    /// recorded nothing is lost, as a log that is not there gets its end all the same. For the start, before any run.
    /// Answers how many went. Blocks.
    ///
    /// # Errors
    /// When a folder cannot be read or a log not removed.
    pub fn sweep(&self) -> Result<usize, EventLogError> {
        let mut gone = 0;
        for tenant in names::<TenantId>(&self.folder, "")? {
            for (run, _) in self.logs_of(&tenant)?.into_iter().filter(|(_, bytes)| *bytes == 0) {
                self.remove(&tenant, &run)?;
                gone += 1;
            }
        }
        Ok(gone)
    }

    fn logs_of(&self, tenant: &TenantId) -> Result<Vec<(RunId, u64)>, EventLogError> {
        let mut logs = Vec::new();
        for run in names(&self.folder.join(tenant.as_str()), SUFFIX)? {
            match std::fs::metadata(self.path(tenant, &run)) {
                Ok(metadata) => logs.push((run, metadata.len())),
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(EventLogError::Read(cause)),
            }
        }
        Ok(logs)
    }
}

fn sum(logs: &[(RunId, u64)]) -> u64 {
    logs.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

/// What in a folder has a name of ours.
fn names<T: FromStr>(folder: &Path, suffix: &str) -> Result<Vec<T>, EventLogError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(EventLogError::Read)? {
        let name = entry.map_err(EventLogError::Read)?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(suffix)?.parse().ok()));
    }
    Ok(names)
}
