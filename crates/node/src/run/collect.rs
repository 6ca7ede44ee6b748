//! What a run changed below one mount, as the collector writes it. The bytes are passed on unread.

use std::time::Duration;

use bailey_protocol::limits::MAX_CHANGE_STREAM;
use bailey_protocol::node::NodeFault;
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tracing::error;

use crate::fault;
use crate::wall::{Changes, Live, Wall};

/// Bytes read at once.
const PIECE: usize = 64 * 1024;

/// A change stream on its way.
pub(super) struct ChangeStream {
    source: Changes,
    buffer: BytesMut,
    left: u64,
    /// Longest wait for the next bytes.
    within: Duration,
}

/// What comes next of it.
pub(super) enum Piece {
    Bytes(Bytes),
    End,
}

/// Starts the collector of one mount; `None` if nothing changed there.
pub(super) async fn open(
    wall: &dyn Wall,
    live: &Live,
    mount: u32,
    within: Duration,
) -> Result<Option<ChangeStream>, NodeFault> {
    let source = wall.collect(live, mount).await.map_err(|cause| fault::of_wall(&cause, "collect the changes"))?;
    Ok(source.map(|source| ChangeStream { source, buffer: BytesMut::new(), left: MAX_CHANGE_STREAM, within }))
}

impl ChangeStream {
    /// CANCEL: bytes that came are in the buffer.
    pub(super) async fn next(&mut self) -> Result<Piece, NodeFault> {
        if self.buffer.is_empty() {
            self.buffer.reserve(PIECE);
            match timeout(self.within, self.source.read_buf(&mut self.buffer)).await {
                Ok(Ok(0)) => return Ok(Piece::End),
                Ok(Ok(_)) => {}
                Ok(Err(cause)) => {
                    error!(%cause, "change stream broke");
                    return Err(fault::uncollected());
                }
                Err(_elapsed) => {
                    error!("collector gives no sign of life");
                    return Err(fault::uncollected());
                }
            }
        }
        let piece = self.buffer.split().freeze();
        self.left = match self.left.checked_sub(u64::try_from(piece.len()).unwrap_or(u64::MAX)) {
            Some(left) => left,
            None => return Err(fault::invalid("the changes of a mount exceed the size that one run may make")),
        };
        Ok(Piece::Bytes(piece))
    }
}
