//! One client's connection: its socket with a deadline on unread answers, and the register of all of them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bailey_protocol::id::TenantId;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::heads::Heads;

/// Most bytes that are read at once while heads are looked at.
const MAX_PIECE: usize = 64 * 1024;
/// One connection for so many is open beyond the limit, while others make room.
const MORE: usize = 8;

/// A socket whose peer must read: when it leaves everything unread for `timeout`, writing fails.
#[derive(Debug)]
pub struct Socket {
    inner: TokioIo<TcpStream>,
    timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    heads: Heads,
}

impl Socket {
    /// Guards `stream`.
    #[must_use]
    pub fn new(stream: TcpStream, timeout: Duration) -> Self {
        Self { inner: TokioIo::new(stream), timeout, stalled: None, heads: Heads::default() }
    }

    /// The heads of the requests that it reads.
    pub(super) fn heads(&self) -> Heads {
        self.heads.clone()
    }

    fn guard<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + timeout)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.heads.are_over() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let stream = self.inner.inner();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let mut piece = vec![0; buf.remaining().min(MAX_PIECE)];
            match stream.try_read(&mut piece) {
                Ok(count) => {
                    let piece = piece.get(..count).unwrap_or_default();
                    self.heads.saw(piece);
                    buf.put_slice(piece);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.guard(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.guard(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Who first showed a token on this connection that holds: a tenant, or whoever belongs to none (`None`).
#[derive(Debug, Clone, Default)]
pub struct Known(Arc<OnceLock<Option<TenantId>>>);

impl Known {
    /// Remembers the first.
    pub fn set(&self, tenant: Option<&TenantId>) {
        self.0.get_or_init(|| tenant.cloned());
    }

    fn get(&self) -> Option<&Option<TenantId>> {
        self.0.get()
    }
}

/// All open connections, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Register(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    open: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    close: CancellationToken,
    retire: CancellationToken,
}

/// A connection's place in the register, given back on drop.
#[derive(Debug)]
pub struct Registered {
    register: Register,
    id: u64,
    /// See [`Known`].
    pub known: Known,
    /// Fires when the connection must make room, or what it is sent must end unread.
    pub close: CancellationToken,
    /// Fires when it must make room as soon as nothing is asked or answered on it.
    pub retire: CancellationToken,
}

impl Register {
    /// Takes a place. When `limit` are open, the oldest that never showed a token has to go. Where all did, the tenant with
    /// the most has to let its oldest go that rests: until that is through there may be some more, and beyond those this
    /// one is refused.
    pub fn enter(&self, limit: usize) -> Option<Registered> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.open.len() >= limit {
            let oldest = entries.open.iter().find(|(_, entry)| entry.known.get().is_none()).map(|(id, _)| *id);
            match oldest.and_then(|oldest| entries.open.remove(&oldest)) {
                Some(entry) => entry.close.cancel(),
                None if entries.open.len() >= limit + limit.div_ceil(MORE) => return None,
                None => entries.heaviest()?.retire.cancel(),
            }
        }
        let id = entries.next;
        entries.next += 1;
        let (known, close, retire) = (Known::default(), CancellationToken::new(), CancellationToken::new());
        entries.open.insert(id, Entry { known: known.clone(), close: close.clone(), retire: retire.clone() });
        Some(Registered { register: self.clone(), id, known, close, retire })
    }
}

impl Entries {
    /// The oldest connection that nobody has asked to go yet, of the tenant with the most of those.
    fn heaviest(&self) -> Option<&Entry> {
        let mut counts: HashMap<&Option<TenantId>, (usize, &Entry)> = HashMap::new();
        for entry in self.open.values().filter(|entry| !entry.retire.is_cancelled()) {
            if let Some(tenant) = entry.known.get() {
                counts.entry(tenant).or_insert((0, entry)).0 += 1;
            }
        }
        counts.into_values().max_by_key(|(count, _)| *count).map(|(_, oldest)| oldest)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.register.0.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w01_who_never_showed_a_token_makes_room_first() {
        let register = Register::default();
        let first = register.enter(2).unwrap();
        let second = register.enter(2).unwrap();
        first.known.set(None);
        let third = register.enter(2).unwrap();
        assert!(second.close.is_cancelled() && !first.close.is_cancelled() && !first.retire.is_cancelled());
        third.known.set(None);
        // One more, while the oldest finishes what it does.
        let fourth = register.enter(2).unwrap();
        assert!(first.retire.is_cancelled() && !third.retire.is_cancelled());
        fourth.known.set(None);
        assert!(register.enter(2).is_none());
        drop(first);
        assert!(register.enter(2).is_some());
    }

    #[test]
    fn w01_the_tenant_with_the_most_connections_makes_room() {
        let register = Register::default();
        let (acme, globex): (TenantId, TenantId) = ("acme".parse().unwrap(), "globex".parse().unwrap());
        let calm = register.enter(4).unwrap();
        calm.known.set(Some(&globex));
        let greedy: Vec<_> = (0..3).map(|_| register.enter(4).unwrap()).collect();
        greedy.iter().for_each(|one| one.known.set(Some(&acme)));
        let _newcomer = register.enter(4).unwrap();
        assert!(greedy[0].retire.is_cancelled() && !greedy[1].retire.is_cancelled() && !calm.retire.is_cancelled());
    }
}
