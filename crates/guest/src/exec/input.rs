//! What goes into an exec: its standard input, or its terminal's keyboard.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::sync::mpsc;

use super::output::Terminal;
use crate::agent::connect::{Code, RpcError};
use crate::descriptor::{Watched, watch};

/// Messages that wait to be written; the next sender waits too.
const QUEUE: usize = 4;

/// A queue in front of the program's input, so that writes keep their order and their senders feel a full pipe.
#[derive(Debug)]
pub struct Input(RefCell<Option<mpsc::Sender<Bytes>>>);

impl Input {
    /// There is none: the program reads from `/dev/null`.
    #[must_use]
    pub fn closed() -> Self {
        Self(RefCell::new(None))
    }

    /// A pipe's writing end.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn pipe(to: OwnedFd) -> io::Result<Self> {
        let to = watch(to, Interest::WRITABLE)?;
        let (sender, mut queue) = mpsc::channel::<Bytes>(QUEUE);
        tokio::task::spawn_local(async move {
            while let Some(bytes) = queue.recv().await {
                // The program closed its end: what is left in the queue has no reader.
                if write_all(&to, &bytes).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self(RefCell::new(Some(sender))))
    }

    /// A terminal's keyboard. It ends with the terminal.
    #[must_use]
    pub fn keyboard(terminal: Rc<Terminal>) -> Self {
        let (sender, mut queue) = mpsc::channel::<Bytes>(QUEUE);
        tokio::task::spawn_local(async move {
            while let Some(bytes) = queue.recv().await {
                if write_all(terminal.master(), &bytes).await.is_err() {
                    return;
                }
            }
        });
        Self(RefCell::new(Some(sender)))
    }

    /// Queues bytes; waits while the program does not read.
    ///
    /// # Errors
    /// When the input is closed, by the caller or by the program.
    pub async fn send(&self, bytes: Bytes) -> Result<(), RpcError> {
        let sender = self.0.borrow().clone();
        let closed = || RpcError::new(Code::FailedPrecondition, "standard input is closed");
        sender.ok_or_else(closed)?.send(bytes).await.map_err(|_gone| closed())
    }

    /// Closes the input after what is queued.
    pub fn close(&self) {
        self.0.borrow_mut().take();
    }
}

async fn write_all(to: &Watched, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut ready = to.writable().await?;
        match rustix::io::write(to.get_ref(), bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
