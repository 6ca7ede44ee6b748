//! A look at every yamux frame header before yamux acts on it.
//!
//! The library answers some violations with a farewell and goes on; here each one ends the connection at once, so
//! that a guest that breaks the protocol is lost in time and not at its deadline. Both directions are buffered, since
//! the library reads and writes header and body apart.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::io::{AsyncRead, AsyncWrite};
use tokio::io::{AsyncBufRead, AsyncWrite as TokioAsyncWrite, BufStream};
use tokio::net::UnixStream;

const HEADER: usize = 12;
const BUFFER: usize = 64 * 1024;
/// The window that every stream has, and so the largest body that can be right.
const MAX_BODY: u32 = yamux::DEFAULT_CREDIT;
const DATA: u8 = 0;
const GO_AWAY: u8 = 3;
const KNOWN_FLAGS: u16 = 0xf;

/// The guest's socket, watched.
#[derive(Debug)]
pub(super) struct Guard {
    socket: BufStream<UnixStream>,
    watch: Watch,
}

impl Guard {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket: BufStream::with_capacity(BUFFER, BUFFER, socket), watch: Watch::default() }
    }
}

/// Where in the sequence of frames the next byte lies.
#[derive(Debug, Default)]
pub(super) struct Watch {
    header: [u8; HEADER],
    filled: usize,
    body_left: u32,
}

impl Watch {
    /// Follows `bytes`; fails on the first header that a correct guest cannot send.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            if self.body_left > 0 {
                let skipped = usize::try_from(self.body_left).unwrap_or(usize::MAX).min(bytes.len());
                self.body_left -= u32::try_from(skipped).unwrap_or(self.body_left);
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let room = self.header.get_mut(self.filled..).unwrap_or_default();
            let taken = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(taken);
            for (to, from) in room.iter_mut().zip(now) {
                *to = *from;
            }
            self.filled += taken;
            bytes = later;
            if self.filled == HEADER {
                self.filled = 0;
                self.body_left = check(self.header)?;
            }
        }
        Ok(())
    }
}

/// The length of the body that follows a header.
fn check(header: [u8; HEADER]) -> Result<u32, &'static str> {
    let [version, kind, flags_high, flags_low, _, _, _, _, length @ ..] = header;
    let flags = u16::from_be_bytes([flags_high, flags_low]);
    let length = u32::from_be_bytes(length);
    if version != 0 {
        return Err("unknown version of the stream protocol");
    }
    if kind > GO_AWAY || flags & !KNOWN_FLAGS != 0 {
        return Err("unknown kind of frame");
    }
    if kind != DATA {
        return Ok(0);
    }
    if length > MAX_BODY { Err("frame larger than any window") } else { Ok(length) }
}

impl AsyncRead for Guard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let ready = ready!(Pin::new(&mut this.socket).poll_fill_buf(cx))?;
        let taken = ready.len().min(into.len());
        let bytes = ready.get(..taken).unwrap_or_default();
        if let Err(violation) = this.watch.follow(bytes) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, violation)));
        }
        if let Some(to) = into.get_mut(..taken) {
            to.copy_from_slice(bytes);
        }
        Pin::new(&mut this.socket).consume(taken);
        Poll::Ready(Ok(taken))
    }
}

impl AsyncWrite for Guard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
