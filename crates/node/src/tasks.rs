//! The group that every task of a node belongs to.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// Spawns tasks that [`Tasks::finished`] waits for. Cheap to clone; usable from `drop`.
#[derive(Debug, Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    handle: Handle,
    /// Whether blocking work has threads of its own.
    threads: bool,
}

impl Tasks {
    /// A group on the current runtime.
    ///
    /// # Panics
    /// When called outside a runtime.
    #[must_use]
    pub fn new() -> Self {
        Self { tracker: TaskTracker::new(), handle: Handle::current(), threads: true }
    }

    /// The same, where blocking work is a task like any other, done as a whole: for simulations.
    ///
    /// # Panics
    /// As [`Tasks::new`].
    #[must_use]
    pub fn single() -> Self {
        Self { threads: false, ..Self::new() }
    }

    /// Starts a task in the group.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn_on(future, &self.handle)
    }

    /// Runs blocking work in the group.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if self.threads { self.tracker.spawn_blocking_on(work, &self.handle) } else { self.spawn(async { work() }) }
    }

    /// Waits until no task of the group is left. Tasks may still be added meanwhile.
    pub async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}
