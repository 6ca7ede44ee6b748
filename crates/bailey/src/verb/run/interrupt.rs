//! Ctrl-C and its relatives, counted: the first asks for the run's end, the second for ours.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that ask this process to end.
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
    hangup: Signal,
    /// One came that [`Interrupts::next`] has not told yet.
    untold: bool,
}

impl Interrupts {
    /// From here on these signals do not end the process by themselves.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            untold: false,
        })
    }

    /// Waits for one. CANCEL: safe, none is lost.
    pub(crate) async fn next(&mut self) {
        if !std::mem::take(&mut self.untold) {
            self.signal().await;
        }
    }

    /// Waits for `work`, or for a second signal. The first is left for [`Interrupts::next`].
    pub(crate) async fn unless_twice<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                () = self.signal() => {
                    if std::mem::replace(&mut self.untold, true) {
                        return None;
                    }
                }
            }
        }
    }

    async fn signal(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
