//! Bytes from a task to a blocking reader, through a bounded channel.
//!
//! The end is said aloud: a writer that is dropped before [`PipeWriter::finish`] is an error for the reader, so that
//! half of something is never taken for the whole.

use std::collections::VecDeque;
use std::io::{self, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// Pieces in flight.
const CAPACITY: usize = 8;

/// A connected pair.
#[must_use]
pub fn pipe() -> (PipeWriter, PipeReader) {
    let (tx, rx) = mpsc::channel(CAPACITY);
    (PipeWriter { tx }, PipeReader { rx, gathered: None, piece: Bytes::new(), over: false })
}

/// The reader is gone: it has failed, and says why itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reader of a pipe is gone")]
pub struct ReaderGone;

/// The async end.
#[derive(Debug)]
pub struct PipeWriter {
    tx: mpsc::Sender<Bytes>,
}

/// The blocking end.
#[derive(Debug)]
pub struct PipeReader {
    rx: mpsc::Receiver<Bytes>,
    /// What [`PipeReader::gather`] has received.
    gathered: Option<VecDeque<Bytes>>,
    piece: Bytes,
    over: bool,
}

impl PipeWriter {
    /// Hands over one piece, waiting for room.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub async fn send(&self, piece: Bytes) -> Result<(), ReaderGone> {
        // INVARIANT: an empty piece is the end.
        if piece.is_empty() { Ok(()) } else { self.tx.send(piece).await.map_err(|_closed| ReaderGone) }
    }

    /// Says that this was all.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub async fn finish(self) -> Result<(), ReaderGone> {
        self.tx.send(Bytes::new()).await.map_err(|_closed| ReaderGone)
    }
}

impl PipeReader {
    /// Receives everything at once, so that reading waits for nothing. It may be any size: for simulations.
    pub(crate) async fn gather(&mut self) {
        let mut gathered = VecDeque::new();
        while let Some(piece) = self.rx.recv().await {
            let is_last = piece.is_empty();
            gathered.push_back(piece);
            if is_last {
                break;
            }
        }
        self.gathered = Some(gathered);
    }

    fn next(&mut self) -> Option<Bytes> {
        match &mut self.gathered {
            Some(gathered) => gathered.pop_front(),
            None => self.rx.blocking_recv(),
        }
    }
}

impl Read for PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.over {
            match self.next() {
                Some(piece) if piece.is_empty() => self.over = true,
                Some(piece) => self.piece = piece,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let count = buf.len().min(self.piece.len());
        if let Some(target) = buf.get_mut(..count) {
            self.piece.copy_to_slice(target);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_goes_in_comes_out_and_ends() {
        let (writer, mut reader) = pipe();
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        });
        for piece in ["ab", "", "cde"] {
            writer.send(Bytes::from(piece)).await.unwrap();
        }
        writer.finish().await.unwrap();
        assert_eq!(read.await.unwrap().unwrap(), b"abcde");
    }

    #[tokio::test]
    async fn a_writer_that_stops_early_is_an_error() {
        let (writer, mut reader) = pipe();
        writer.send(Bytes::from("ab")).await.unwrap();
        drop(writer);
        let read = tokio::task::spawn_blocking(move || reader.read_to_end(&mut Vec::new()));
        assert_eq!(read.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }
}
