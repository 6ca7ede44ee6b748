//! The runs that are going in this life of the server: where their events have got to, and how to cancel them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bailey_protocol::id::RunId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::event_log::Progress;

/// One run that is going.
#[derive(Debug, Clone)]
pub(crate) struct LiveRun {
    /// What readers of its log wait on.
    pub(crate) progress: watch::Receiver<Progress>,
    /// Asks the node to end it.
    pub(crate) cancel: CancellationToken,
}

/// All of them. Clones share the map. Who is allowed to see one was decided before anybody looks here.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveRuns(Arc<Mutex<HashMap<RunId, LiveRun>>>);

/// A run's place in the map, given back on drop.
#[derive(Debug)]
pub(crate) struct Listed {
    runs: LiveRuns,
    run: RunId,
}

impl LiveRuns {
    /// Lists a run until the answer is dropped.
    #[must_use]
    pub(crate) fn list(&self, run: &RunId, live: LiveRun) -> Listed {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(run.clone(), live);
        Listed { runs: self.clone(), run: run.clone() }
    }

    /// The run, while it is going.
    #[must_use]
    pub(crate) fn get(&self, run: &RunId) -> Option<LiveRun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(run).cloned()
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.runs.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.run);
    }
}
