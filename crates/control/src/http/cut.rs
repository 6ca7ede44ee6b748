//! Bodies that end with the right to them, in either direction. Where the form of an answer has room for it, the last
//! thing that is sent says why; then it breaks off, so that nobody takes what came for the whole. An answer ends whether
//! or not anybody reads it.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bailey_protocol::api::CutOff;
use bailey_protocol::id::RequestId;
use bytes::Bytes;
use http::{Response, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::error_answer::body;
use crate::api_error::ApiError;
use crate::git::pkt::{self, PktTrack};

/// Bodies of this size or less are written at once: nothing is there to be cut.
const SMALL: u64 = 64 * 1024;
/// How long the last words have to leave before the connection breaks.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long after its end an answer may wait for a client that reads nothing, before the connection goes.
const UNREAD: Duration = Duration::from_millis(500);

type End = Pin<Box<dyn Future<Output = ApiError> + Send>>;

/// A body, for as long as `end` is not there.
struct Cut {
    body: Body,
    form: Form,
    state: State,
    /// Waits for the end of an answer. Who sends an answer does not ask for more of it while its client reads nothing.
    _watch: JoinSet<()>,
}

/// Travels with a response to the connection that it goes out on, which it may have to end.
#[derive(Debug, Clone, Default)]
pub(super) struct HangUp(Arc<OnceLock<CancellationToken>>);

impl HangUp {
    /// `close` ends the connection that `response` goes out on.
    pub(super) fn bind(response: &Response<Body>, close: &CancellationToken) {
        if let Some(Self(bound)) = response.extensions().get() {
            bound.get_or_init(|| close.clone());
        }
    }

    fn now(&self) {
        if let Some(close) = self.0.get() {
            close.cancel();
        }
    }
}

enum State {
    Going(End),
    /// The reason was sent.
    Said(Pin<Box<Sleep>>, ApiError),
    Over,
}

/// How a body says why it breaks off.
enum Form {
    /// It cannot: it is somebody's bytes.
    Bytes,
    /// As one more line.
    Ndjson(RequestId),
    /// As an event of its own.
    Sse(RequestId),
    /// As git shows it to whoever fetches.
    Git(PktTrack),
}

/// `body`, which breaks off when `end` comes.
pub(super) fn cut(body: Body, end: impl Future<Output = ApiError> + Send + 'static) -> Body {
    if is_sent_at_once(&body) {
        return body;
    }
    Body::new(Cut { body, form: Form::Bytes, state: State::Going(Box::pin(end)), _watch: JoinSet::new() })
}

/// `response`, whose body breaks off when `end` comes, and says why where it can.
pub(super) fn cut_answer(
    mut response: Response<Body>,
    request: &RequestId,
    end: impl Future<Output = ApiError> + Send + 'static,
) -> Response<Body> {
    if is_sent_at_once(response.body()) {
        return response;
    }
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    let form = match kind {
        // Where the length is told nothing can be added.
        _ if response.body().size_hint().exact().is_some() => Form::Bytes,
        Some(b"application/x-ndjson") => Form::Ndjson(request.clone()),
        Some(b"text/event-stream") => Form::Sse(request.clone()),
        Some(b"application/x-git-upload-pack-result") => Form::Git(PktTrack::default()),
        Some(_) | None => Form::Bytes,
    };
    let hang_up = response.extensions_mut().get_or_insert_default::<HangUp>().clone();
    let (tell, told) = oneshot::channel();
    let mut watch = JoinSet::new();
    watch.spawn(async move {
        if tell.send(end.await).is_ok() {
            tokio::time::sleep(UNREAD).await;
            hang_up.now();
        }
    });
    let end = async { told.await.unwrap_or_else(|_gone| ApiError::internal("nothing watches over an answer")) };
    response.map(|body| Body::new(Cut { body, form, state: State::Going(Box::pin(end)), _watch: watch }))
}

fn is_sent_at_once(body: &Body) -> bool {
    body.is_end_stream() || body.size_hint().exact().is_some_and(|bytes| bytes <= SMALL)
}

impl Form {
    fn saw(&mut self, bytes: &[u8]) {
        match self {
            Self::Git(track) => track.saw(bytes),
            Self::Bytes | Self::Ndjson(_) | Self::Sse(_) => {}
        }
    }

    /// What is sent last. Each piece of a stream is whole lines, or whole events.
    fn last_words(&self, why: &ApiError) -> Option<Bytes> {
        match self {
            Self::Bytes => None,
            Self::Ndjson(request) => {
                let mut line = serde_json::to_vec(&CutOff { cut_off: body(why, request, None) }).ok()?;
                line.push(b'\n');
                Some(line.into())
            }
            Self::Sse(request) => {
                let data = serde_json::to_string(&body(why, request, None)).ok()?;
                Some(format!("event: cut_off\ndata: {data}\n\n").into())
            }
            Self::Git(track) => {
                let mut out = track.rest()?;
                let message: String = why.message.chars().filter(|c| !c.is_control()).collect();
                pkt::band(&mut out, pkt::FATAL_BAND, format!("broken off: {message}\n").as_bytes());
                Some(out.into())
            }
        }
    }
}

impl HttpBody for Cut {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let why = match &mut this.state {
            State::Over => return Poll::Ready(None),
            State::Said(pause, _) => {
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                None
            }
            State::Going(end) => match end.as_mut().poll(context) {
                Poll::Ready(why) => Some(why),
                Poll::Pending => {
                    let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(context));
                    if let Some(Ok(frame)) = &frame
                        && let Some(bytes) = frame.data_ref()
                    {
                        this.form.saw(bytes);
                    }
                    return Poll::Ready(frame);
                }
            },
        };
        let state = std::mem::replace(&mut this.state, State::Over);
        match (state, why) {
            (State::Said(_, why), _) => Poll::Ready(Some(Err(axum::Error::new(why)))),
            (_, Some(why)) => match this.form.last_words(&why) {
                Some(words) => {
                    this.state = State::Said(Box::pin(tokio::time::sleep(LAST_WORDS)), why);
                    Poll::Ready(Some(Ok(Frame::data(words))))
                }
                // Whoever reads must not take it for the whole.
                None => Poll::Ready(Some(Err(axum::Error::new(why)))),
            },
            (State::Going(_) | State::Over, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.state {
            State::Going(_) => self.body.is_end_stream(),
            State::Said(..) => false,
            State::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
