//! Ctrl-C and its relatives, counted: the first asks for the run's end, the second for ours.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that ask this process to end.
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
    hangup: Signal,
}

impl Interrupts {
    /// From here on these signals do not end the process by themselves.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one. CANCEL: safe, none is lost.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
