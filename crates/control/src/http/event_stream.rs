//! A run's events as a body: NDJSON as they lie in the log, or the same lines as server-sent events.

use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, Response, header};

use super::arguments::{Argument, Asked, Takes, stream_of};
use crate::admission::Slot;
use crate::api_error::ApiError;
use crate::event_log::{Batch, EventLogError, EventReader};

/// How a client wants its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// One JSON object per line.
    Ndjson,
    /// Server-sent events, with the sequence number as id.
    Sse,
}

impl Argument for Framing {
    fn declare(_takes: &mut Takes) {}

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        Ok(Self::wanted(&asked.parts.headers))
    }
}

impl Framing {
    /// What the `Accept` header asks for.
    fn wanted(headers: &HeaderMap) -> Self {
        let sse = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream"));
        if sse { Self::Sse } else { Self::Ndjson }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Sse => "text/event-stream",
        }
    }
}

/// Streams `events` to their end, and holds `room` for as long. A log that breaks off aborts the body, so that a client sees it.
pub(super) fn response(events: EventReader, room: Slot, framing: Framing, keep_alive: Duration) -> Response<Body> {
    let quiet = match framing {
        Framing::Ndjson => Duration::MAX,
        Framing::Sse => keep_alive,
    };
    let frames = stream::try_unfold((events, room), move |(mut events, room)| async move {
        // CANCEL: `next` loses nothing when the quiet time is over first.
        match tokio::time::timeout(quiet, events.next()).await {
            Ok(next) => Ok::<_, EventLogError>(next?.map(|batch| (frame(batch, framing), (events, room)))),
            Err(_elapsed) => Ok(Some((Bytes::from_static(b": still running\n\n"), (events, room)))),
        }
    });
    stream_of(framing.content_type(), Body::from_stream(frames))
}

fn frame(batch: Batch, framing: Framing) -> Bytes {
    match framing {
        Framing::Ndjson => batch.lines,
        Framing::Sse => {
            let mut out = BytesMut::with_capacity(batch.lines.len() + 256);
            let lines = batch.lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            for (seq, line) in (batch.first_seq..).zip(lines) {
                out.put_slice(format!("id: {seq}\ndata: ").as_bytes());
                out.put_slice(line);
                out.put_slice(b"\n\n");
            }
            out.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_accept_header_chooses() {
        for (accept, expected) in [
            (None, Framing::Ndjson),
            (Some("*/*"), Framing::Ndjson),
            (Some("application/x-ndjson"), Framing::Ndjson),
            (Some("text/event-stream"), Framing::Sse),
            (Some("text/html, text/event-stream;q=0.9"), Framing::Sse),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(Framing::wanted(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn server_sent_events_carry_their_number() {
        let batch = Batch { first_seq: 3, lines: Bytes::from("{\"a\":1}\n{\"b\":2}\n") };
        let text = frame(batch, Framing::Sse);
        assert_eq!(text, "id: 3\ndata: {\"a\":1}\n\nid: 4\ndata: {\"b\":2}\n\n");
    }
}
