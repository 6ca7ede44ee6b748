//! Where work goes that may block: to threads of the runtime; in a simulation, to the one thread that there is.
//!
//! Everything that blocks passes here, so that nothing happens at the same time in a simulation; but for archives on their
//! way out, which wait for their clients.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

use crate::api_error::ApiError;
use crate::control::Control;
use crate::pipe::PipeReader;

/// Threads that may block. Clones are the same.
#[derive(Clone)]
pub struct Threads(Option<Arc<Single>>);

/// One thread for everything.
struct Single {
    /// How long a piece of work waits for its turn.
    pause: Box<dyn Fn() -> Duration + Send + Sync>,
    /// While a piece of work waits for a future: nothing else goes on.
    waiting: AtomicBool,
}

impl Threads {
    /// Those that the runtime keeps for it.
    #[must_use]
    pub fn of_runtime() -> Self {
        Self(None)
    }

    /// None but the one that asks: a piece of work is done as a whole, after a `pause` in which others go on. For
    /// simulations.
    #[must_use]
    pub fn single(pause: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Single { pause: Box::new(pause), waiting: AtomicBool::new(false) })))
    }

    pub(crate) fn is_single(&self) -> bool {
        self.0.is_some()
    }

    /// Runs `work` on a thread that may block.
    ///
    /// CANCEL: once begun, the work is done even when the caller is gone.
    ///
    /// # Errors
    /// When it panics.
    pub(crate) async fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match &self.0 {
            None => begin(work).await,
            // It is a part of the work that waits for it.
            Some(single) if single.waiting.load(Ordering::Relaxed) => Ok(work()),
            Some(single) => begin_after((single.pause)(), work).await,
        }
    }

    /// What comes of `future`, for work on such a thread.
    ///
    /// # Panics
    /// In a simulation, when it does not come at once: whatever it waits for goes on in no other thread.
    #[expect(clippy::expect_used, reason = "a simulation that hangs has to say so; a server never comes here")]
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        match &self.0 {
            None => Handle::current().block_on(future),
            Some(single) => {
                let outer = single.waiting.swap(true, Ordering::Relaxed);
                let outcome = future.now_or_never();
                single.waiting.store(outer, Ordering::Relaxed);
                outcome.expect("blocking work of a simulation waits for what only another thread could do")
            }
        }
    }
}

/// Runs `work` on one of `threads`.
///
/// CANCEL: once begun, the work is done even when the caller is gone.
///
/// # Errors
/// As `work`, and when it panics.
pub(crate) async fn blocking<T: Send + 'static>(
    threads: Threads,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    threads.spawn(work).await.map_err(ApiError::internal)?
}

/// The same for work that reads `input` while that comes; where there is one thread only, once it has come.
///
/// # Errors
/// As [`blocking`].
pub(crate) async fn reading<T: Send + 'static>(
    threads: Threads,
    mut input: PipeReader,
    work: impl FnOnce(PipeReader) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if threads.is_single() {
        input.gather().await;
    }
    blocking(threads, move || work(input)).await
}

fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn_blocking(work)
}

#[expect(clippy::disallowed_methods, reason = "it is done whoever waits for it, as on a thread")]
fn begin_after<T: Send + 'static>(pause: Duration, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        work()
    })
}

impl Control {
    /// What comes of `future`, for work that blocks.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.threads().wait(future)
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_single() { "Threads(single)" } else { "Threads" })
    }
}
