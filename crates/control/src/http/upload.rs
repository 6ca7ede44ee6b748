//! A request's body on its way into a store: piece by piece, never as a whole in memory.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use http::header;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::arguments::{Argument, Asked, Content, Takes};
use crate::api_error::{ApiError, ErrorKind};
use crate::pipe::PipeWriter;

/// Bytes that buy the client one more `timeout`.
const PACE: u64 = 1024 * 1024;

/// A whole file, archive or pack, as it comes. The table says of which media types.
pub(super) struct Upload {
    body: Body,
    /// Bytes, where the client says how many.
    pub(super) length: Option<u64>,
    timeout: Duration,
}

impl Argument for Upload {
    fn declare(takes: &mut Takes) {
        takes.takes_body(Content::Bytes(&["application/octet-stream"]), None);
        // Those who send take turns.
        takes.errors.insert(429);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        let headers = &asked.parts.headers;
        if headers.contains_key(header::CONTENT_RANGE) {
            let hint = "Send the whole file without `Content-Range`.";
            return Err(ApiError::invalid("range_not_allowed", "a part of a file cannot be written", hint));
        }
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Self { body: asked.body(), length, timeout: asked.control.config().http.body_timeout })
    }
}

impl Upload {
    /// Carries out `work`, which reads the other end of `pipe`, while the body moves into it.
    ///
    /// # Errors
    /// As `work`'s, or as [`pump`]'s: then `work` was given half of the body and has changed nothing.
    pub(super) async fn feed<T>(
        self,
        pipe: PipeWriter,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let mut work = pin!(work);
        let pumped = pin!(pump(self.body, pipe, self.timeout));
        // A refusal is answered at once, not after the body.
        tokio::select! {
            biased;
            outcome = &mut work => outcome,
            sent = pumped => match sent {
                Ok(()) => work.await,
                Err(error) => {
                    // The writer went with the pump, so the operation ends by itself and changes nothing.
                    let _changed_nothing = work.await.is_err();
                    Err(error)
                }
            },
        }
    }
}

/// Moves `body` into `pipe`, to its end or until nobody reads any more, which is no error here: the reader knows why.
///
/// # Errors
/// When the body breaks off, or comes slower than a mebibyte per `timeout`.
async fn pump(mut body: Body, pipe: PipeWriter, timeout: Duration) -> Result<(), ApiError> {
    let (mut received, mut paid) = (0_u64, 0_u64);
    let mut deadline = Instant::now() + timeout;
    loop {
        let frame = tokio::time::timeout_at(deadline, body.frame()).await.map_err(|_elapsed| {
            let message = format!("the body came slower than 1 MiB in {} s", timeout.as_secs());
            ApiError::new(ErrorKind::TooSlow, "body_too_slow", message, "Send the body without pauses.")
        })?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            ApiError::invalid("body_broken", "the body stopped before its end", "Send the whole body.").because(error)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len() as u64;
        while received >= paid + PACE {
            paid += PACE;
            deadline = Instant::now() + timeout;
        }
        let waited = Instant::now();
        if pipe.send(data).await.is_err() {
            return Ok(());
        }
        // Time that the disk took is not the client's.
        deadline += waited.elapsed();
    }
    let _reader_gone = pipe.finish().await.is_err();
    Ok(())
}
