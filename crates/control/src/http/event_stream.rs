//! A run's events as a body: NDJSON as they lie in the log, or the same lines as server-sent events.

use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{self, Stream};
use http::{HeaderMap, Response, header};

use super::arguments::{Argument, Asked, Takes, stream_of};
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

/// Streams `events` to their end, and holds `room` for as long. A log that breaks off aborts the body, so that a client
/// sees it.
///
/// # Errors
/// When the log has broken off already: then there is an answer that says so, and none that begins.
pub(super) async fn response<R: Send + 'static>(
    mut events: EventReader,
    room: R,
    framing: Framing,
    keep_alive: Duration,
) -> Result<Response<Body>, EventLogError> {
    // CANCEL: `next` loses nothing when it is not ready.
    let first = tokio::select! {
        biased;
        first = events.next() => Some(first?),
        () = std::future::ready(()) => None,
    };
    let body = Body::from_stream(frames(first, events, room, framing, keep_alive));
    Ok(stream_of(framing.content_type(), body))
}

/// `first` are the lines that were read, or the end that was seen, if any was.
fn frames<R>(
    first: Option<Option<Batch>>,
    events: EventReader,
    room: R,
    framing: Framing,
    keep_alive: Duration,
) -> impl Stream<Item = Result<Bytes, EventLogError>> {
    let quiet = match framing {
        Framing::Ndjson => Duration::MAX,
        Framing::Sse => keep_alive,
    };
    stream::try_unfold((true, first, events, room), move |(is_first, first, mut events, room)| async move {
        if is_first {
            // An answer whose body fails before anything was sent has no head either: who sends it gets to that first.
            tokio::task::yield_now().await;
        }
        // CANCEL: `next` loses nothing when the quiet time is over first.
        let next = match first {
            Some(first) => Ok(Ok(first)),
            None => tokio::time::timeout(quiet, events.next()).await,
        };
        match next {
            Ok(next) => Ok(next?.map(|batch| (frame(batch, framing), (false, None, events, room)))),
            Err(_elapsed) => Ok(Some((Bytes::from_static(b": still running\n\n"), (false, None, events, room)))),
        }
    })
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

    /// A log whose writer is gone.
    async fn broken(while_it_is_read: impl AsyncFn(EventReader, crate::event_log::EventWriter)) {
        let folder = tempfile::tempdir().unwrap();
        let logs = crate::event_log::EventLogs::open(folder.path()).unwrap();
        let (tenant, run) = ("acme".parse().unwrap(), bailey_protocol::id::RunId::mint(1, [7; 10]));
        let writer = logs.create(&tenant, &run).unwrap();
        let reader = logs.follow(&tenant, &run, 0, writer.progress()).unwrap();
        while_it_is_read(reader, writer).await;
    }

    #[tokio::test]
    async fn events_that_are_broken_off_already_are_an_error_and_later_ones_break_the_body() {
        broken(async |reader, writer| {
            drop(writer);
            let answer = response(reader, (), Framing::Ndjson, Duration::from_secs(1)).await;
            assert!(matches!(answer.unwrap_err(), EventLogError::Broken));
        })
        .await;
        broken(async |reader, writer| {
            let answer = response(reader, (), Framing::Ndjson, Duration::from_secs(1)).await.unwrap();
            drop(writer);
            let mut body = answer.into_body();
            let first = futures_util::poll!(http_body_util::BodyExt::frame(&mut body));
            assert!(first.is_pending(), "the head goes out before the body fails: {first:?}");
            assert!(http_body_util::BodyExt::frame(&mut body).await.unwrap().is_err());
        })
        .await;
    }

    #[test]
    fn server_sent_events_carry_their_number() {
        let batch = Batch { first_seq: 3, lines: Bytes::from("{\"a\":1}\n{\"b\":2}\n") };
        let text = frame(batch, Framing::Sse);
        assert_eq!(text, "id: 3\ndata: {\"a\":1}\n\nid: 4\ndata: {\"b\":2}\n\n");
    }
}
