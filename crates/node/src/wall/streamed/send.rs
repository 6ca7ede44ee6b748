//! One slice on its way into a machine.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bailey_protocol::guest::{SLICE_FAILED, SLICE_TAKEN, StreamTarget};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::walk::{Take, walk};
use crate::tasks::Tasks;
use crate::transport::GuestStream;
use crate::wall::{Live, WallError};

/// Pieces between the disk and the stream.
const QUEUE: usize = 4;
/// Longest answer to a slice.
const MAX_ANSWER: u64 = 8 * 1024;
/// Longest part of a refusal that reaches the log, in characters.
const MAX_SAID: usize = 200;

/// The reader on its thread, whose writer may be gone.
struct Pieces(mpsc::Sender<Vec<u8>>);

impl Take for Pieces {
    fn take(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.0.blocking_send(bytes).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
    }
}

/// Sends the content of a folder and waits for its acknowledgement.
///
/// CANCEL: the guest sees a stream that breaks off, and the reader stops.
///
/// # Errors
/// When the folder cannot be read, or the guest does not take it.
pub(super) async fn slice(tasks: &Tasks, live: &Live, number: usize, folder: Arc<OwnedFd>) -> Result<(), WallError> {
    let (pieces, queue) = mpsc::channel(QUEUE);
    let reading = tasks.spawn_blocking(move || walk(&folder, &mut Pieces(pieces)));
    let target = StreamTarget::Slice(u32::try_from(number).unwrap_or(u32::MAX));
    let op = "take a slice";
    let mut stream = live.transport.open(target).await.map_err(|cause| WallError::Guest { op, cause: cause.into() })?;
    let written = write(&mut stream, queue).await;
    let unreadable = |cause| WallError::Unreadable { number, cause };
    match reading.await {
        Err(panicked) => return Err(unreadable(io::Error::other(panicked))),
        // What the reader saw of a guest that does not go on taking; the guest may still have said why.
        Ok(Err(cause)) if written.is_ok() || cause.kind() != io::ErrorKind::BrokenPipe => {
            return Err(unreadable(cause));
        }
        Ok(_) => {}
    }
    let said = answer(&mut stream).await;
    match said.as_deref() {
        Some(SLICE_TAKEN) if written.is_ok() => Ok(()),
        said => {
            let said = said.map_or("nothing", |said| said.strip_prefix(SLICE_FAILED).unwrap_or(said));
            let said = said.chars().take(MAX_SAID).flat_map(char::escape_default).collect();
            Err(WallError::Slice { number, said })
        }
    }
}

async fn write(stream: &mut GuestStream, mut queue: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(piece) = queue.recv().await {
        stream.write_all(&piece).await?;
    }
    stream.shutdown().await
}

/// The guest's one line, as far as it is one.
async fn answer(stream: &mut GuestStream) -> Option<String> {
    let mut line = Vec::new();
    let mut limited = stream.take(MAX_ANSWER);
    while !line.ends_with(b"\n") {
        match limited.read_buf(&mut line).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
    String::from_utf8(line).ok()?.strip_suffix('\n').map(str::to_owned)
}
