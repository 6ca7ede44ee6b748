//! The one duplex byte stream to a guest, split into streams by yamux.
//!
//! The node is the client. A guest may hold at most [`MAX_STREAMS`] streams and [`STREAM_WINDOW`] bytes of the host's
//! memory; frames it sends are checked by [`guard`] before yamux sees them. Streams that the guest opens have no use
//! yet: they are closed, and a guest that goes on opening them is cut off.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use bailey_protocol::guest::StreamTarget;
use bailey_protocol::limits::{MAX_STREAMS, STREAM_WINDOW};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;
use yamux::{Config, Connection, Mode};

use crate::tasks::Tasks;

mod guard;

use guard::Guard;

/// Streams of its own that a guest may try to open before it is cut off.
const MAX_REFUSED: u32 = 64;

/// A byte stream to one target in the guest.
pub type GuestStream = Compat<yamux::Stream>;

/// Why no stream to a guest could be had.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The connection is gone: the guest died or broke the protocol.
    #[error("the stream to the guest is gone")]
    Gone,
    /// The header line could not be written.
    #[error("the guest did not take the stream's header")]
    Header(#[source] io::Error),
}

/// A connection to a guest. Dropping it closes it, and the guest's agent ends.
#[derive(Debug)]
pub struct Transport {
    opens: mpsc::Sender<oneshot::Sender<yamux::Stream>>,
    closed: CancellationToken,
    _driver: AbortOnDropHandle<()>,
}

impl Transport {
    /// Takes over the host's end of the stream.
    #[must_use]
    pub fn start(stream: UnixStream, tasks: &Tasks) -> Self {
        let (opens, queue) = mpsc::channel(4);
        let closed = CancellationToken::new();
        let done = closed.clone().drop_guard();
        let driver = tasks.spawn(async move {
            let _done = done;
            let mut config = Config::default();
            config.set_max_num_streams(MAX_STREAMS);
            config.set_max_connection_receive_window(Some(STREAM_WINDOW));
            drive(Connection::new(Guard::new(stream), config, Mode::Client), queue).await;
        });
        Self { opens, closed, _driver: AbortOnDropHandle::new(driver) }
    }

    /// Opens a stream to a target.
    ///
    /// # Errors
    /// When the connection is gone.
    pub async fn open(&self, target: StreamTarget) -> Result<GuestStream, TransportError> {
        let (give, take) = oneshot::channel();
        self.opens.send(give).await.map_err(|_closed| TransportError::Gone)?;
        let mut stream = take.await.map_err(|_dropped| TransportError::Gone)?.compat();
        stream.write_all(target.to_line().as_bytes()).await.map_err(TransportError::Header)?;
        Ok(stream)
    }

    /// Whether the connection is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Resolves when the connection is gone.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// Moves bytes until the connection ends, opening streams on request.
async fn drive(mut connection: Connection<Guard>, mut queue: mpsc::Receiver<oneshot::Sender<yamux::Stream>>) {
    let mut refused = 0;
    let mut wanted: Option<oneshot::Sender<yamux::Stream>> = None;
    poll_fn(|cx| {
        loop {
            if wanted.is_none()
                && let Poll::Ready(Some(give)) = queue.poll_recv(cx)
            {
                wanted = Some(give);
            }
            if wanted.is_some()
                && let Poll::Ready(opened) = connection.poll_new_outbound(cx)
            {
                let (Some(give), Ok(stream)) = (wanted.take(), opened) else { return Poll::Ready(()) };
                drop(give.send(stream));
                continue;
            }
            match connection.poll_next_inbound(cx) {
                Poll::Ready(Some(Ok(_refused_stream))) if refused < MAX_REFUSED => refused += 1,
                Poll::Ready(Some(Ok(_))) => {
                    debug!("guest opened too many streams");
                    return Poll::Ready(());
                }
                Poll::Ready(Some(Err(cause))) => {
                    debug!(%cause, "stream to the guest broke");
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}
