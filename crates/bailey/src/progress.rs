//! Says on standard error what takes long. Work of less than two seconds says nothing.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use tokio::time::Instant;

use crate::terminal::{self, note};

/// Runs `work`; once two seconds have passed, and every ten after, says that it is still doing `what`.
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, wait) = channel::<()>();
        scope.spawn(move || {
            let mut seconds = 0_u64;
            let mut pause = 2;
            while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(Duration::from_secs(pause)) {
                seconds += pause;
                match seconds {
                    2 => note!("bailey: {what} …"),
                    _ => note!("bailey: {what} … {seconds} s"),
                }
                pause = if seconds == 2 { 8 } else { 10 };
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Says how much was moved, once that takes long.
pub(crate) struct Meter {
    what: &'static str,
    bytes: u64,
    next: Instant,
}

impl Meter {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, bytes: 0, next: Instant::now() + Duration::from_secs(2) }
    }

    /// So many bytes more.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if Instant::now() >= self.next {
            self.next = Instant::now() + Duration::from_secs(10);
            note!("bailey: {} … {}", self.what, terminal::size(self.bytes));
        }
    }
}
