//! Descriptors that the one thread waits for.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A non-blocking descriptor, watched.
pub type Watched = AsyncFd<OwnedFd>;

/// Makes a descriptor non-blocking and watches it.
///
/// # Errors
/// When it cannot be watched, as regular files cannot.
#[expect(deprecated, reason = "sound for an `OwnedFd`, whose number never changes; its successor does not know that")]
pub fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<Watched> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    AsyncFd::with_interest(descriptor, interest)
}

/// Time between two looks for whether somebody is at the other end.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A stream in both directions, over one descriptor or two, of whatever kind: a socket, pipes, a serial port.
#[derive(Debug)]
pub struct Duplex {
    input: Watched,
    /// The input's descriptor if there is no other.
    output: Option<Watched>,
}

impl Duplex {
    /// One descriptor for both directions.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn socket(stream: OwnedFd) -> io::Result<Self> {
        Ok(Self { input: watch(stream, Interest::READABLE | Interest::WRITABLE)?, output: None })
    }

    /// One for each.
    ///
    /// # Errors
    /// When one cannot be watched.
    pub fn pair(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        Ok(Self { input: watch(input, Interest::READABLE)?, output: Some(watch(output, Interest::WRITABLE)?) })
    }

    /// Waits until somebody is at the other end. A serial port tells so only when it is asked.
    pub async fn peer(&self) {
        loop {
            let mut asked = [PollFd::new(self.input.get_ref(), PollFlags::IN)];
            let answered = poll(&mut asked, Some(&Timespec::default()));
            if answered.is_ok() && !asked.iter().any(|port| port.revents().contains(PollFlags::HUP)) {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl AsyncRead for Duplex {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.input.poll_read_ready(cx))?;
            let read = guard.try_io(|input| Ok(rustix::io::read(input.get_ref(), buffer.initialize_unfilled())?));
            if let Ok(read) = read {
                return Poll::Ready(read.map(|count| buffer.advance(count)));
            }
        }
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.output.as_ref().unwrap_or(&self.input).poll_write_ready(cx))?;
            if let Ok(written) = guard.try_io(|output| Ok(rustix::io::write(output.get_ref(), bytes)?)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The other end sees it when this process ends.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
