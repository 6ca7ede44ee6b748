//! Threads for changes, each of which may have to wait for the lock of a store: one tenant has so few of all of them that it
//! alone keeps nobody else waiting, however many of its changes wait for each other. Eight tenants together may.

use std::time::Duration;

use bailey_protocol::id::TenantId;

use crate::api_error::{ApiError, ErrorKind};
use crate::threads::{Threads, blocking};
use crate::turns::{Turn, Turns};

/// Changes at once that are no upload: those have turns of their own.
const MOST: usize = 64;
/// How long a change waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

type Work<T> = Box<dyn FnOnce() -> Result<T, ApiError> + Send>;

/// Who may change something now.
#[derive(Debug)]
pub(crate) struct Changes {
    turns: Turns,
    threads: Threads,
}

impl Changes {
    /// On those threads.
    pub(crate) fn new(threads: Threads) -> Self {
        Self { turns: Turns::new(MOST, MOST / 8), threads }
    }

    /// Runs `work` on a thread that may block.
    ///
    /// CANCEL: once begun, the work is done even when the caller is gone.
    ///
    /// # Errors
    /// As `work`, or when the tenant has too many of them.
    pub(crate) fn make<'a, T: Send + 'static>(
        &'a self,
        tenant: &'a TenantId,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> impl Future<Output = Result<T, ApiError>> + Send + 'a {
        // What it is about is large, and would be in every future around it.
        let work: Work<T> = Box::new(work);
        async {
            match tokio::time::timeout(PATIENCE, self.turns.wait(tenant)).await {
                Ok(turn) => self.work(turn, work).await,
                Err(_elapsed) => {
                    let message = "too many changes are being made at once";
                    let hint = "Try again after the time in `Retry-After`.";
                    Err(ApiError::new(ErrorKind::Exhausted, "too_many_changes", message, hint))
                }
            }
        }
    }

    /// The same for what is not given up: it waits for its turn however long that takes.
    ///
    /// # Errors
    /// As `work`.
    pub(crate) fn finish<'a, T: Send + 'static>(
        &'a self,
        tenant: &'a TenantId,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> impl Future<Output = Result<T, ApiError>> + Send + 'a {
        let work: Work<T> = Box::new(work);
        async { self.work(self.turns.wait(tenant).await, work).await }
    }

    async fn work<T: Send + 'static>(&self, turn: Option<Turn>, work: Work<T>) -> Result<T, ApiError> {
        let turn = turn.ok_or_else(|| ApiError::internal("no turns are given any more"))?;
        blocking(self.threads.clone(), move || {
            let _turn = turn;
            work()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A thread of a lock that is held waits until it is free.
    #[test]
    fn t10_changes_that_wait_for_one_store_leave_threads_for_those_of_others() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().max_blocking_threads(16).enable_all().build().unwrap();
        let (store, changes) = (Arc::new(Mutex::new(())), Arc::new(Changes::new(Threads::of_runtime())));
        let held = store.lock().unwrap();
        let (acme, globex): (TenantId, TenantId) = ("acme".parse().unwrap(), "globex".parse().unwrap());
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let (changes, store, acme) = (Arc::clone(&changes), Arc::clone(&store), acme.clone());
                runtime.spawn(async move {
                    let work = move || {
                        drop(store.lock().unwrap());
                        Ok(())
                    };
                    changes.finish(&acme, work).await.unwrap();
                })
            })
            .collect();
        // Until all threads that acme gets are taken.
        while store_waits(&store) <= MOST / 8 {
            std::thread::yield_now();
        }
        let other = changes.make(&globex, || Ok(()));
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), other).await }).unwrap().unwrap();
        drop(held);
        for one in waiting {
            runtime.block_on(one).unwrap();
        }
    }

    /// Those that have the store: the test, the hundred, and each that is at its lock.
    fn store_waits(store: &Arc<Mutex<()>>) -> usize {
        Arc::strong_count(store)
    }

    #[tokio::test(start_paused = true)]
    async fn t10_a_change_that_gets_no_turn_for_long_is_told_to_come_again() {
        let changes = Changes::new(Threads::single(|| Duration::ZERO));
        let acme: TenantId = "acme".parse().unwrap();
        let mut turns = Vec::new();
        for _ in 0..MOST / 8 {
            turns.push(changes.turns.wait(&acme).await);
        }
        let refused = changes.make(&acme, || Ok(())).await.unwrap_err();
        assert_eq!((refused.kind, refused.code), (ErrorKind::Exhausted, "too_many_changes"));
        let finished = changes.finish(&acme, || Ok(()));
        let ((), finished) = tokio::join!(
            async {
                tokio::time::sleep(PATIENCE * 3).await;
                turns.pop();
            },
            finished
        );
        finished.unwrap();
    }
}
