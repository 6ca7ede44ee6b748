//! A thread that owns a connection and does jobs on it, in order. In a simulation whoever asks does its job itself.
//!
//! ```text
//! wait ──job──▶ begin ──▶ each waiting job, in a savepoint of its own ──▶ commit (one fsync) ──▶ answer all ──▶ wait
//! ```
//!
//! A job that fails is undone alone. A commit that fails answers its error to everybody in it, and nothing of it stays.
//! What cannot be done in a transaction is done after the commit of those it waited with.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bailey_crash::Point;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use crate::db::{DbError, DbFuture};

/// Jobs that may wait; more callers wait outside.
const QUEUE: usize = 1024;
/// Most jobs of one commit.
const BATCH: usize = 256;
/// How long a caller waits for a place in the queue.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does its work (unless there is nothing to do it on), and gives what answers the caller once the commit is known.
type Work = Box<dyn FnOnce(Result<&Connection, DbError>) -> Answer + Send>;

struct Job {
    /// Outside of any transaction.
    alone: bool,
    work: Work,
}

struct Answer {
    error: Option<DbError>,
    send: Box<dyn FnOnce(Option<DbError>) + Send>,
}

/// A handle to the thread.
#[derive(Debug)]
pub(super) struct Worker {
    to: To,
    thread: Option<JoinHandle<()>>,
}

/// Where jobs go.
#[derive(Debug)]
enum To {
    Thread(mpsc::Sender<Job>),
    /// No thread: each job is done where it is asked for, in a transaction of its own if it `writes`.
    Here {
        db: Mutex<Connection>,
        writes: bool,
    },
    Nowhere,
}

impl Worker {
    pub(super) fn writer(db: Connection) -> Result<Self, DbError> {
        Self::start("db-writer", move |mut jobs| {
            let mut batch = Vec::with_capacity(BATCH);
            while jobs.blocking_recv_many(&mut batch, BATCH) > 0 {
                carry_out(&db, batch.drain(..));
            }
        })
    }

    pub(super) fn reader(db: Connection) -> Result<Self, DbError> {
        Self::start("db-reader", move |mut jobs| {
            while let Some(job) = jobs.blocking_recv() {
                ((job.work)(Ok(&db)).send)(None);
            }
        })
    }

    fn start(name: &str, work: impl FnOnce(mpsc::Receiver<Job>) + Send + 'static) -> Result<Self, DbError> {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(waiting))
            .map_err(|error| DbError::Storage { operation: "start the database", source: Arc::new(error) })?;
        Ok(Self { to: To::Thread(jobs), thread: Some(thread) })
    }

    /// Without a thread: for simulations.
    pub(super) fn here(db: Connection, writes: bool) -> Self {
        Self { to: To::Here { db: Mutex::new(db), writes }, thread: None }
    }

    /// Has `work` done on the thread.
    ///
    /// CANCEL: once queued, the work is done even when the caller is gone.
    pub(super) fn call<'a, T: Send + 'static>(
        &'a self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, DbFault> + Send + 'static,
    ) -> DbFuture<'a, T> {
        self.queue(operation, false, work)
    }

    /// The same, in no transaction.
    pub(super) fn call_alone<'a, T: Send + 'static>(
        &'a self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, DbFault> + Send + 'static,
    ) -> DbFuture<'a, T> {
        self.queue(operation, true, work)
    }

    fn queue<'a, T: Send + 'static>(
        &'a self,
        operation: &'static str,
        alone: bool,
        work: impl FnOnce(&Connection) -> Result<T, DbFault> + Send + 'static,
    ) -> DbFuture<'a, T> {
        Box::pin(async move {
            let (tx, rx) = oneshot::channel();
            let work: Work = Box::new(move |db| {
                let result = db.and_then(|db| work(db).map_err(|fault| fault.at(operation)));
                let error = result.as_ref().err().cloned();
                let send = Box::new(move |failed: Option<DbError>| {
                    // The caller may be gone.
                    drop(tx.send(failed.map_or(result, Err)));
                });
                Answer { error, send }
            });
            match &self.to {
                To::Thread(jobs) => match tokio::time::timeout(PATIENCE, jobs.send(Job { alone, work })).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_closed)) => return Err(DbError::Closed { operation }),
                    Err(_elapsed) => return Err(DbError::Busy { operation }),
                },
                To::Here { db, writes } => {
                    let job = Job { alone: alone || !writes, work };
                    carry_out(&db.lock().unwrap_or_else(PoisonError::into_inner), [job]);
                }
                To::Nowhere => return Err(DbError::Closed { operation }),
            }
            rx.await.unwrap_or(Err(DbError::Closed { operation }))
        })
    }
}

impl Worker {
    /// Does what is queued, takes nothing more, and waits for the end of the thread.
    pub(super) fn stop(&mut self) {
        self.to = To::Nowhere;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own thread.
            drop(thread.join());
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

fn carry_out(db: &Connection, batch: impl IntoIterator<Item = Job>) {
    let (alone, together): (Vec<Job>, Vec<Job>) = batch.into_iter().partition(|job| job.alone);
    if !together.is_empty() {
        commit(db, together);
    }
    alone.into_iter().for_each(|job| ((job.work)(Ok(db)).send)(None));
}

fn commit(db: &Connection, batch: Vec<Job>) {
    let mut failed = run_sql(db, "BEGIN IMMEDIATE").err();
    let mut answers = Vec::with_capacity(BATCH);
    for job in batch {
        failed = failed.or_else(|| run_sql(db, "SAVEPOINT job").err());
        // INVARIANT: after a failure nothing more is done, as outside a transaction it would stay.
        let answer = (job.work)(failed.clone().map_or(Ok(db), Err));
        if failed.is_none() {
            failed = close_job(db, answer.error);
        }
        answers.push(answer.send);
    }
    if failed.is_none() {
        bailey_crash::point(Point::TransactionFull);
        failed = run_sql(db, "COMMIT").err();
        bailey_crash::point(Point::TransactionDone);
    }
    if failed.is_some() && !db.is_autocommit() {
        // Nothing more can be done here: the next BEGIN fails, and says so to its callers.
        drop(run_sql(db, "ROLLBACK"));
    }
    for send in answers {
        send(failed.clone());
    }
}

/// Keeps or undoes one job. An error here is one of the whole batch.
fn close_job(db: &Connection, error: Option<DbError>) -> Option<DbError> {
    match error {
        None => run_sql(db, "RELEASE job").err(),
        // SQLite ends a whole transaction by itself on some errors, such as a full disk.
        Some(error) if db.is_autocommit() => Some(error),
        Some(_) => run_sql(db, "ROLLBACK TO job").and_then(|()| run_sql(db, "RELEASE job")).err(),
    }
}

fn run_sql(db: &Connection, sql: &str) -> Result<(), DbError> {
    db.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(|error| storage("commit", error))?;
    Ok(())
}

/// Why a job failed, before it is known as which operation.
#[derive(Debug)]
pub(super) enum DbFault {
    /// As it is.
    Plain(DbError),
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// A stored value is not what this crate writes.
    Corrupt(String),
}

impl DbFault {
    pub(super) fn at(self, operation: &'static str) -> DbError {
        match self {
            Self::Plain(error) => error,
            Self::Sql(error) => storage(operation, error),
            Self::Corrupt(detail) => DbError::Corrupt { operation, detail },
        }
    }
}

impl From<rusqlite::Error> for DbFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<DbError> for DbFault {
    fn from(error: DbError) -> Self {
        Self::Plain(error)
    }
}

pub(super) fn storage(operation: &'static str, error: rusqlite::Error) -> DbError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => DbError::Full { operation },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DbError::Busy { operation },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            DbError::Corrupt { operation, detail: error.to_string() }
        }
        _ => DbError::Storage { operation, source: Arc::new(error) },
    }
}

/// A stored text as the value it was.
pub(super) fn parse<T>(text: &str) -> Result<T, DbFault>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| DbFault::Corrupt(error.to_string()))
}

/// A time as SQLite keeps it.
pub(super) fn stored(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// A time as it was.
pub(super) fn loaded(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}
