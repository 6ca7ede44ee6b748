//! Archives as answers: written by a thread as fast as the client reads, a few pieces ahead and no more.

use std::io::{self, Write};

use axum::body::Body;
use bailey_tree::archive::Format;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, header};
use tokio::sync::mpsc;

use super::cut::cut_answer;
use super::tree_routes::insert_version;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::ops::tree::ReadAsk;
use crate::ops::tree_archive;

/// Bytes of a piece, and pieces that may wait.
const PIECE: usize = 128 * 1024;
const WAITING: usize = 4;

const TAR: &str = "application/x-tar";
const ZIP: &str = "application/zip";

/// The archive that a request asks for, by the first media type of its `Accept`.
pub(super) fn wanted(headers: &HeaderMap) -> Option<Format> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    match accept.split([',', ';']).next()?.trim() {
        TAR => Some(Format::Tar),
        ZIP => Some(Format::Zip),
        _ => None,
    }
}

/// Answers with a folder as an archive. What breaks on the way breaks the answer off: half of it is never the whole.
///
/// # Errors
/// When it is denied or not there.
pub(super) async fn answer(
    control: &Control,
    caller: &Caller,
    ask: ReadAsk,
    format: Format,
) -> Result<Response<Body>, ApiError> {
    let packing = tree_archive::pack(control, caller, ask, format).await?;
    let (tx, rx) = mpsc::channel::<io::Result<Bytes>>(WAITING);
    let mut response = Response::new(Body::from_stream(stream::unfold(rx, |mut rx| async move {
        let piece = rx.recv().await?;
        Some((piece, rx))
    })));
    let headers = response.headers_mut();
    let kind = match format {
        Format::Tar => TAR,
        Format::Zip => ZIP,
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    insert_version(headers, packing.version());
    let (request, owner, asker, watched) = (caller.request.clone(), control.clone(), caller.clone(), packing.watched());
    tokio::task::spawn_blocking(move || {
        let mut out = Outflow { tx, piece: BytesMut::with_capacity(PIECE) };
        if let Err(error) = packing.write(&mut out) {
            // A client that hangs up ends it the same way.
            tracing::info!(%request, %error, cause = error.cause_chain(), "an archive broke off");
            let _hung_up = out.tx.blocking_send(Err(io::ErrorKind::BrokenPipe.into())).is_err();
        }
    });
    let until = async { ApiError::from(watched.until_unreadable(owner, asker).await) };
    Ok(cut_answer(response, &caller.request, until))
}

/// The writing end. INVARIANT: it ends the answer only by being dropped after the last flush, or by an error.
struct Outflow {
    tx: mpsc::Sender<io::Result<Bytes>>,
    piece: BytesMut,
}

impl Outflow {
    fn send(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        if piece.is_empty() {
            return Ok(());
        }
        self.tx.blocking_send(Ok(piece)).map_err(|_hung_up| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Outflow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE - self.piece.len().min(PIECE));
        self.piece.extend_from_slice(bytes.get(..count).unwrap_or_default());
        if self.piece.len() >= PIECE {
            self.send()?;
            self.piece.reserve(PIECE);
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
