//! What comes out of an exec, and who reads it.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use rustix::io::Errno;
use serde_json::json;
use tokio::io::Interest;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::registry::Exit;
use crate::agent::connect::envelope;
use crate::descriptor::{Watched, watch};

/// Largest piece of a pipe's output in one event.
const PIPE_CHUNK: usize = 32 * 1024;
/// Largest piece of a terminal's output in one event.
const TERMINAL_CHUNK: usize = 16 * 1024;
/// Events that wait for one reader.
const QUEUE: usize = 4;
/// How long one of several readers may hold the others up before it is dropped.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an output that something in the background holds open is read after the leader's end.
const AFTER_EXIT: Duration = Duration::from_millis(100);

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A terminal's screen.
    Pty,
}

/// The node's side of a pseudo terminal.
#[derive(Debug)]
pub struct Terminal(Watched);

impl Terminal {
    /// Takes the master end.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn new(master: OwnedFd) -> io::Result<Self> {
        Ok(Self(watch(master, Interest::READABLE | Interest::WRITABLE)?))
    }

    /// The descriptor.
    #[must_use]
    pub fn master(&self) -> &Watched {
        &self.0
    }
}

/// Where an output is read.
#[derive(Debug)]
pub enum Source {
    /// A pipe's reading end.
    Pipe(Watched),
    /// A terminal.
    Terminal(Rc<Terminal>),
}

impl Source {
    /// A pipe's reading end.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn pipe(from: OwnedFd) -> io::Result<Self> {
        Ok(Self::Pipe(watch(from, Interest::READABLE)?))
    }

    fn descriptor(&self) -> &Watched {
        match self {
            Self::Pipe(from) => from,
            Self::Terminal(terminal) => terminal.master(),
        }
    }
}

/// The readers of an exec's events. Each has a short queue; the slowest sets the pace.
#[derive(Debug, Default)]
pub struct Feed(RefCell<Vec<mpsc::Sender<Bytes>>>);

impl Feed {
    /// A new reader, who first gets `first`.
    pub fn subscribe(&self, first: Bytes) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        // Room for one event is there: the queue is new.
        if sender.try_send(first).is_ok() {
            self.0.borrow_mut().push(sender);
        }
        receiver
    }

    /// Hands an event to every reader, and waits for the slow ones. With nobody there it is dropped: an exec never
    /// stops because its callers went away.
    pub async fn publish(&self, event: &Bytes) {
        let readers = self.0.borrow().clone();
        for reader in readers {
            if reader.try_send(event.clone()).is_err() && !self.wait_for(&reader, event).await {
                self.0.borrow_mut().retain(|other| !other.same_channel(&reader));
            }
        }
    }

    /// Whether the reader took the event. A lone reader has all the time there is.
    async fn wait_for(&self, reader: &mpsc::Sender<Bytes>, event: &Bytes) -> bool {
        loop {
            match timeout(PATIENCE, reader.reserve()).await {
                Ok(Ok(room)) => {
                    room.send(event.clone());
                    return true;
                }
                Ok(Err(_gone)) => return false,
                Err(_late) if self.0.borrow().len() > 1 => return false,
                Err(_late) => {}
            }
        }
    }

    /// Hands out the last events and forgets the readers.
    pub async fn finish(&self, last: &[Bytes]) {
        for event in last {
            self.publish(event).await;
        }
        self.0.borrow_mut().clear();
    }
}

/// Reads one output and publishes it, until it ends, or the leader has ended and everything that it wrote was read.
/// What background processes write later is read and dropped, so that they neither block nor die of it.
pub async fn pump(source: Source, channel: Channel, feed: &Feed, mut exit: watch::Receiver<Option<Exit>>) {
    let chunk = if channel == Channel::Pty { TERMINAL_CHUNK } else { PIPE_CHUNK };
    let mut buffer = vec![0_u8; chunk];
    // Once the leader has ended: bytes that were in the pipe then, and when to stop waiting for more.
    let mut last: Option<(u64, Instant)> = None;
    loop {
        if last.is_none() && exit.borrow_and_update().is_some() {
            let waiting = rustix::io::ioctl_fionread(source.descriptor()).unwrap_or(u64::MAX);
            last = Some((waiting, Instant::now() + AFTER_EXIT));
        }
        if last.is_some_and(|(owed, until)| owed == 0 && Instant::now() >= until) {
            break;
        }
        match rustix::io::read(source.descriptor().get_ref(), &mut *buffer) {
            // A terminal says EIO when its last user has closed it.
            Ok(0) | Err(Errno::IO) => return,
            Ok(read) => {
                if let Some((owed, _)) = &mut last {
                    *owed = owed.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
                }
                feed.publish(&data_event(channel, buffer.get(..read).unwrap_or_default())).await;
            }
            Err(Errno::AGAIN) => {
                if let Some((owed, _)) = &mut last {
                    *owed = 0;
                }
                wait(&source, &mut exit, last.map(|(_, until)| until)).await;
            }
            Err(Errno::INTR) => {}
            Err(_broken) => return,
        }
    }
    drop(buffer);
    tokio::task::spawn_local(drain(source));
}

/// Waits until there may be something to read, the leader ended, or `until`.
async fn wait(source: &Source, exit: &mut watch::Receiver<Option<Exit>>, until: Option<Instant>) {
    let readable = async {
        if let Ok(mut ready) = source.descriptor().readable().await {
            ready.clear_ready();
        }
    };
    match until {
        None => tokio::select! {
            () = readable => {}
            // The sender lives in the exec, which outlives its pumps.
            _changed = exit.changed() => {}
        },
        Some(until) => tokio::select! {
            () = readable => {}
            () = sleep_until(until) => {}
        },
    }
}

async fn drain(source: Source) {
    let mut buffer = [0_u8; 4096];
    loop {
        match rustix::io::read(source.descriptor().get_ref(), &mut buffer) {
            Ok(0) => return,
            // One buffer at a time: a flood from the background must not starve the others.
            Ok(_) => tokio::task::yield_now().await,
            Err(Errno::AGAIN) => match source.descriptor().readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_broken) => return,
            },
            Err(Errno::INTR) => {}
            Err(_closed) => return,
        }
    }
}

fn data_event(channel: Channel, bytes: &[u8]) -> Bytes {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    let data = match channel {
        Channel::Stdout => json!({ "stdout": text }),
        Channel::Stderr => json!({ "stderr": text }),
        Channel::Pty => json!({ "pty": text }),
    };
    envelope(&json!({ "event": { "data": data } }))
}
