//! Connect's JSON codec: errors, envelopes, and answers that stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

/// Largest request message, in bytes: the largest standard input as base64, and room around it.
pub const MAX_MESSAGE: usize = 2 * bailey_protocol::limits::MAX_STDIN_BYTES;

/// Every answer's body. It stays on its thread; an error cuts the answer off.
pub type AnswerBody = Pin<Box<dyn Body<Data = Bytes, Error = io::Error>>>;
/// Every answer.
pub type Answer = Response<AnswerBody>;

/// Connect's codes, as far as they are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request makes no sense.
    InvalidArgument,
    /// The time that the caller gave is over.
    DeadlineExceeded,
    /// There is no such thing.
    NotFound,
    /// It is there already.
    AlreadyExists,
    /// It may not be done.
    PermissionDenied,
    /// No room.
    ResourceExhausted,
    /// Not now.
    FailedPrecondition,
    /// No such method.
    Unimplemented,
    /// The guest failed.
    Internal,
    /// No such user.
    Unauthenticated,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
        }
    }
}

/// What a method answers when it fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// What kind of failure it is.
    pub code: Code,
    /// For the caller to read.
    pub message: String,
}

impl RpcError {
    /// An error with this code and text.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A system call about `path` failed.
    #[must_use]
    pub fn from_errno(errno: rustix::io::Errno, doing: &str, path: &[u8]) -> Self {
        use rustix::io::Errno;
        let code = match errno {
            Errno::NOENT => Code::NotFound,
            Errno::EXIST | Errno::NOTEMPTY => Code::AlreadyExists,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Code::PermissionDenied,
            Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE | Errno::NOMEM => Code::ResourceExhausted,
            Errno::NOTDIR | Errno::ISDIR | Errno::LOOP | Errno::INVAL | Errno::NAMETOOLONG => Code::InvalidArgument,
            _ => Code::Internal,
        };
        Self::new(code, format!("{doing} `{}`: {errno}", String::from_utf8_lossy(path)))
    }

    fn to_json(&self) -> serde_json::Value {
        json!({ "code": self.code.name(), "message": self.message })
    }

    /// The error as the answer of a method with one answer.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        let mut answer = json_answer(&self.to_json());
        *answer.status_mut() = self.code.status();
        answer
    }
}

/// A JSON document as an answer.
#[must_use]
pub fn json_answer(value: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(value).unwrap_or_else(|_unserializable| b"{}".to_vec());
    let mut answer = Response::new(full(bytes));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// An answer with a status and nothing else.
#[must_use]
pub fn empty_answer(status: StatusCode) -> Answer {
    let mut answer = Response::new(full(Vec::new()));
    *answer.status_mut() = status;
    answer
}

/// A whole body.
#[must_use]
pub fn full(bytes: Vec<u8>) -> AnswerBody {
    Box::pin(Full::new(Bytes::from(bytes)).map_err(|never: std::convert::Infallible| match never {}))
}

/// Reads the one message of a method with one request.
///
/// # Errors
/// When it is too large, the stream breaks, or it is not the JSON that the method takes.
pub async fn read_unary<T: DeserializeOwned>(body: hyper::body::Incoming) -> Result<T, RpcError> {
    let bytes = read_limited(body).await?;
    parse(if bytes.is_empty() { b"{}" } else { &bytes })
}

/// Reads the one message of a method that streams its answers.
///
/// # Errors
/// As [`read_unary`], or when the envelope is not one message.
pub async fn read_enveloped<T: DeserializeOwned>(body: hyper::body::Incoming) -> Result<T, RpcError> {
    let mut bytes = BytesMut::from(read_limited(body).await?);
    let message = split_envelope(&mut bytes)?.ok_or_else(|| invalid("the request ends inside its envelope"))?;
    parse(&message)
}

/// Takes the first whole message off `bytes`; `None` while it is incomplete.
///
/// # Errors
/// When the message is compressed or larger than [`MAX_MESSAGE`].
pub fn split_envelope(bytes: &mut BytesMut) -> Result<Option<Bytes>, RpcError> {
    let Some((&[flags, a, b, c, d], _)) = bytes.split_first_chunk::<5>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if flags & 1 != 0 {
        return Err(RpcError::new(Code::Unimplemented, "compressed messages are not supported"));
    }
    if length > MAX_MESSAGE {
        return Err(RpcError::new(Code::ResourceExhausted, format!("a message may have {MAX_MESSAGE} bytes")));
    }
    if bytes.len() < 5 + length {
        return Ok(None);
    }
    let _header = bytes.split_to(5);
    Ok(Some(bytes.split_to(length).freeze()))
}

/// Parses a message.
///
/// # Errors
/// When it is not what the method takes.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RpcError> {
    serde_json::from_slice(bytes).map_err(|error| invalid(format!("parse the request: {error}")))
}

async fn read_limited(body: hyper::body::Incoming) -> Result<Bytes, RpcError> {
    let read = Limited::new(body, MAX_MESSAGE + 5).collect().await;
    Ok(read.map_err(|error| invalid(format!("read the request: {error}")))?.to_bytes())
}

/// The caller's fault.
#[must_use]
pub fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::new(Code::InvalidArgument, message)
}

/// One message in its envelope.
#[must_use]
pub fn envelope(message: &impl Serialize) -> Bytes {
    enveloped(0, message)
}

/// The last message of a stream of answers.
#[must_use]
pub fn end_of_stream(result: Result<(), RpcError>) -> Bytes {
    match result {
        Ok(()) => enveloped(2, &json!({})),
        Err(error) => enveloped(2, &json!({ "error": error.to_json() })),
    }
}

fn enveloped(flags: u8, message: &impl Serialize) -> Bytes {
    let mut bytes = vec![flags, 0, 0, 0, 0];
    if serde_json::to_writer(&mut bytes, message).is_err() {
        bytes.truncate(5);
        bytes.extend_from_slice(b"{}");
    }
    let length = u32::try_from(bytes.len().saturating_sub(5)).unwrap_or(u32::MAX);
    if let Some(field) = bytes.get_mut(1..5) {
        let mut field = field;
        field.put_u32(length);
    }
    bytes.into()
}

/// Messages that are sent as they come; the channel's end is the body's end.
#[derive(Debug)]
pub struct Messages {
    messages: mpsc::Receiver<Bytes>,
    /// When to say that the stream is alive, how often, and how.
    keepalive: (Pin<Box<Sleep>>, Duration, Bytes),
    /// When the caller no longer wants to hear anything.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Messages {
    /// Sends what comes through `messages`, and `keepalive` after every `interval` without one.
    #[must_use]
    pub fn new(messages: mpsc::Receiver<Bytes>, interval: Duration, keepalive: Bytes) -> Self {
        Self { messages, keepalive: (Box::pin(tokio::time::sleep(interval)), interval, keepalive), deadline: None }
    }

    /// Ends the stream, and nothing else, after this time.
    #[must_use]
    pub fn until(mut self, timeout: Option<Duration>) -> Self {
        self.deadline = timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)));
        self
    }
}

impl Body for Messages {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if this.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
            this.deadline = None;
            this.messages.close();
            while this.messages.try_recv().is_ok() {}
            let late = RpcError::new(Code::DeadlineExceeded, "the caller's time is over");
            return Poll::Ready(Some(Ok(Frame::data(end_of_stream(Err(late))))));
        }
        let (timer, interval, keepalive) = &mut this.keepalive;
        let next = match this.messages.poll_recv(cx) {
            Poll::Ready(next) => next,
            Poll::Pending => match timer.as_mut().poll(cx) {
                Poll::Ready(()) => Some(keepalive.clone()),
                Poll::Pending => return Poll::Pending,
            },
        };
        timer.as_mut().reset(Instant::now() + *interval);
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A stream of answers.
#[must_use]
pub fn stream_answer(body: impl Body<Data = Bytes, Error = io::Error> + 'static) -> Answer {
    let body: AnswerBody = Box::pin(body);
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/connect+json"));
    answer
}

/// A stream of answers that fails before its first.
#[must_use]
pub fn failed_stream(error: RpcError) -> Answer {
    stream_answer(full(end_of_stream(Err(error)).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_are_split_and_hostile_lengths_refused() {
        let mut bytes = BytesMut::from(&[&envelope(&1)[..], &envelope(&"two")[..], &[0, 0, 0, 0][..]].concat()[..]);
        assert_eq!(split_envelope(&mut bytes).unwrap().unwrap(), &b"1"[..]);
        assert_eq!(split_envelope(&mut bytes).unwrap().unwrap(), &b"\"two\""[..]);
        assert_eq!(split_envelope(&mut bytes).unwrap(), None);
        bytes.extend_from_slice(&[9, b'x']);
        assert_eq!(split_envelope(&mut bytes).unwrap(), None);
        let huge = &mut BytesMut::from(&[0, 0xff, 0xff, 0xff, 0xff, 1][..]);
        assert_eq!(split_envelope(huge).unwrap_err().code, Code::ResourceExhausted);
        let compressed = &mut BytesMut::from(&[1, 0, 0, 0, 0][..]);
        assert_eq!(split_envelope(compressed).unwrap_err().code, Code::Unimplemented);
    }
}
