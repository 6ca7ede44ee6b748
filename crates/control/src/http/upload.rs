//! A request's body on its way into a store: piece by piece, never as a whole in memory.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::api_error::{ApiError, ErrorKind};
use crate::pipe::PipeWriter;

/// Bytes that buy the client one more `timeout`.
const PACE: u64 = 1024 * 1024;

/// Moves `body` into `pipe`, to its end or until nobody reads any more, which is no error here: the reader knows why.
///
/// # Errors
/// When the body breaks off, or comes slower than a mebibyte per `timeout`.
pub(super) async fn pump(mut body: Body, pipe: PipeWriter, timeout: Duration) -> Result<(), ApiError> {
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
