//! A change stream from a guest that may never come to an end of it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a guest may be waited for altogether, and how much longer for every so many bytes.
const FIRST: Duration = Duration::from_secs(120);
const PER_PIECE: Duration = Duration::from_secs(1);
const PIECE: u64 = 1024 * 1024;

/// A stream whose reader's waits add up to a limited time.
#[derive(Debug)]
pub(super) struct Paced<R> {
    source: R,
    left: Duration,
    /// Bytes since time was added last.
    bytes: u64,
    /// Since when the reader waits, and until when it does.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<R> Paced<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, left: FIRST, bytes: 0, waiting: None }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Paced<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.source).poll_read(cx, buffer) {
            if let Some((since, _)) = this.waiting.take() {
                this.left = this.left.saturating_sub(since.elapsed());
            }
            let came = buffer.filled().len().saturating_sub(before);
            this.bytes = this.bytes.saturating_add(u64::try_from(came).unwrap_or(u64::MAX));
            while this.bytes >= PIECE {
                this.bytes -= PIECE;
                this.left = this.left.saturating_add(PER_PIECE);
            }
            return Poll::Ready(read);
        }
        let left = this.left;
        let (_, until) = this.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(now + left)))
        });
        until.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_dribbles_is_given_up_and_one_that_delivers_is_not() {
        let (mut guest, ours) = duplex(64);
        let dribble = async {
            loop {
                tokio::time::sleep(Duration::from_secs(20)).await;
                if guest.write_all(b"x").await.is_err() {
                    return;
                }
            }
        };
        let mut stream = Paced::new(ours);
        let begun = Instant::now();
        let read = async {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await
        };
        let broke = tokio::select! { read = read => read, () = dribble => Ok(0) };
        assert_eq!(broke.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), FIRST);
        let (mut guest, ours) = duplex(64 * 1024);
        let whole = vec![7; 64 * 1024];
        let deliver = async {
            for _ in 0..16 * 400 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                guest.write_all(&whole).await.unwrap();
            }
            drop(guest);
        };
        let mut stream = Paced::new(ours);
        let mut bytes = Vec::new();
        let (read, ()) = tokio::join!(stream.read_to_end(&mut bytes), deliver);
        assert_eq!(read.unwrap(), 64 * 1024 * 16 * 400);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_the_reader_takes_for_itself_is_not_the_guests() {
        let (mut guest, ours) = duplex(64);
        let mut stream = Paced::new(ours);
        guest.write_all(b"xy").await.unwrap();
        for byte in [b'x', b'y'] {
            tokio::time::sleep(FIRST * 2).await;
            assert_eq!(stream.read_u8().await.unwrap(), byte);
        }
    }
}
