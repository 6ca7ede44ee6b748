//! What handlers are called with and what they answer, each declared once: by the type of an argument the handler takes it,
//! the guard refuses what is not taken, and the document tells it.
//!
//! An argument of a new kind is an `impl` of [`Argument`], in the file that parses it.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams, Request};
use axum::response::IntoResponse as _;
use bailey_protocol::api::identity::{AccountKind, UnknownAccountKind};
use bailey_protocol::id::{BaselineName, KeyId, RunId, TenantId, TokenId, UserId};
use bailey_protocol::limits::MAX_API_BODY;
use bailey_protocol::path::TreePath;
use bailey_protocol::purge::PurgeId;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, Uri, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{MAX_SMALL, guard, json, query, tree_path};
use crate::api_error::ApiError;
use crate::control::{Caller, Control, OperatorCaller, ServiceCaller};

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Anybody, without a credential.
    Anyone,
    /// Whoever holds the key of a signature over the body, without another credential.
    Signer,
    /// A user of a tenant: with a token, an API key or a tree token.
    User,
    /// A service account.
    Service,
    /// An operator.
    Operator,
}

/// Gives a type's schema.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What a body or an answer holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// One JSON object.
    Json(Describe),
    /// One form.
    Form(Describe),
    /// JSON objects, one for each line.
    Lines(Describe),
    /// The same, or as server-sent events.
    Events(Describe),
    /// Bytes of these media types.
    Bytes(&'static [&'static str]),
}

/// A header's name, and what it is for.
pub(crate) type HeaderNote = (&'static str, &'static str);

/// A success, and what it carries.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) status: u16,
    pub(crate) content: Option<Content>,
    pub(crate) headers: &'static [HeaderNote],
}

/// What a route takes, as its handler's arguments say.
#[derive(Debug)]
pub(crate) struct Takes {
    pub(crate) who: Who,
    /// Names in the path, beside the rest of it.
    pub(crate) segments: usize,
    /// Takes the rest of the path.
    pub(crate) rest: bool,
    pub(crate) query: Option<Describe>,
    /// Whether a query is passed over, whatever is in it.
    pub(crate) any_query: bool,
    pub(crate) headers: Vec<HeaderNote>,
    pub(crate) body: Option<Content>,
    /// Largest body, in bytes, where one is known.
    pub(crate) max_body: Option<usize>,
    /// Whether errors are told as text to those who show nothing else.
    pub(crate) text_errors: bool,
    /// Statuses that taking them may come to.
    pub(crate) errors: BTreeSet<u16>,
}

impl Takes {
    pub(super) fn nothing() -> Self {
        Self {
            who: Who::Anyone,
            segments: 0,
            rest: false,
            query: None,
            any_query: false,
            headers: Vec::new(),
            body: None,
            max_body: None,
            text_errors: false,
            errors: [400, 500].into(),
        }
    }

    fn credential_of(&mut self, who: Who) {
        self.who = who;
        // Each decision is written down, for which the disk may have no room.
        self.errors.extend([401, 403, 503, 507]);
    }

    /// Takes a body of at most this size, where that is known beforehand.
    pub(super) fn takes_body(&mut self, content: Content, max: Option<usize>) {
        self.body = Some(content);
        self.max_body = max;
        self.errors.extend([408, 413]);
        if !matches!(content, Content::Bytes(_)) {
            self.errors.insert(415);
        }
    }

    pub(super) fn signed(&mut self, header: HeaderNote) {
        self.credential_of(Who::Signer);
        self.headers.push(header);
    }
}

/// A request, as arguments are taken from it, one after the other.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) control: Control,
    pub(super) parts: Parts,
    /// What the path begins with, where a handler takes the rest.
    front: &'static str,
    segments: Option<std::vec::IntoIter<String>>,
    body: Option<Body>,
}

impl Asked {
    /// A request that came by `route`, as the router writes it.
    pub(super) fn new(control: Control, route: &'static str, request: Request) -> Self {
        let (parts, body) = request.into_parts();
        let front = route.split("/{*").next().unwrap_or(route);
        Self { control, parts, front, segments: None, body: Some(body) }
    }

    /// # Errors
    /// When the caller is of another kind, or the query is more than is taken.
    pub(super) fn check(&self, who: Who, has_query: bool) -> Result<(), ApiError> {
        guard::check_kind(&self.parts.extensions, who)?;
        if !has_query {
            query::parse::<query::NoQuery>(&self.parts.uri)?;
        }
        Ok(())
    }

    /// The body, which one argument takes.
    pub(super) fn body(&mut self) -> Body {
        self.body.take().unwrap_or_default()
    }

    async fn segment(&mut self) -> Result<String, ApiError> {
        if self.segments.is_none() {
            let named = RawPathParams::from_request_parts(&mut self.parts, &()).await.map_err(|error| {
                let hint = "Escape each byte once, as UTF-8.";
                ApiError::invalid("path_not_utf8", "the path is not UTF-8", hint).because(error)
            })?;
            let values: Vec<String> = named.iter().map(|(_, value)| value.to_owned()).collect();
            self.segments = Some(values.into_iter());
        }
        // INVARIANT: a test compares what is taken with what the path has.
        let next = self.segments.as_mut().and_then(Iterator::next);
        next.ok_or_else(|| ApiError::internal("a handler takes more names than its path has"))
    }

    fn extension<T: Clone + Send + Sync + 'static>(&self) -> Result<T, ApiError> {
        let missing = || ApiError::internal("a caller of another kind came through");
        self.parts.extensions.get::<T>().cloned().ok_or_else(missing)
    }
}

/// What a handler is called with.
pub(super) trait Argument: Sized + Send {
    /// Says what it takes.
    fn declare(takes: &mut Takes);

    /// Takes it.
    fn take(asked: &mut Asked) -> impl Future<Output = Result<Self, ApiError>> + Send;
}

impl Argument for Control {
    fn declare(_takes: &mut Takes) {}

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        Ok(asked.control.clone())
    }
}

macro_rules! caller {
    ($type:ty, $who:expr) => {
        impl Argument for $type {
            fn declare(takes: &mut Takes) {
                takes.credential_of($who);
            }

            async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
                asked.extension()
            }
        }
    };
}

caller!(Caller, Who::User);
caller!(ServiceCaller, Who::Service);
caller!(OperatorCaller, Who::Operator);

impl Argument for Uri {
    fn declare(takes: &mut Takes) {
        takes.rest = true;
        takes.errors.insert(404);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        Ok(asked.parts.uri.clone())
    }
}

/// The rest of the path.
impl Argument for TreePath {
    fn declare(takes: &mut Takes) {
        takes.rest = true;
        takes.errors.insert(404);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        tree_path::parse(asked.parts.uri.path(), asked.front)
    }
}

/// What a path names in its next segment.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) T);

impl<T: Segment> Argument for Named<T> {
    fn declare(takes: &mut Takes) {
        takes.segments += 1;
        takes.errors.insert(404);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        T::parse(&asked.segment().await?).map(Self)
    }
}

/// What a segment of a path may be.
pub(super) trait Segment: Sized + Send {
    /// # Errors
    /// When it is not one.
    fn parse(text: &str) -> Result<Self, ApiError>;
}

macro_rules! segment {
    ($type:ty, $text:ident => $parse:expr) => {
        impl Segment for $type {
            fn parse($text: &str) -> Result<Self, ApiError> {
                $parse
            }
        }
    };
}

segment!(String, text => Ok(text.to_owned()));
segment!(TenantId, text => Ok(text.parse()?));
segment!(UserId, text => Ok(text.parse()?));
segment!(BaselineName, text => Ok(text.parse()?));
// What is no id at all is answered like an id that does not exist; where the operation decides when, it gets none.
segment!(RunId, text => text.parse().map_err(|_unparsable| ApiError::run_not_found()));
segment!(PurgeId, text => text.parse().map_err(|_unparsable| ApiError::purge_not_found()));
segment!(Option<KeyId>, text => Ok(text.parse().ok()));
segment!(Option<TokenId>, text => Ok(text.parse().ok()));
segment!(AccountKind, text => text.parse().map_err(|error: UnknownAccountKind| {
    ApiError::invalid("invalid_request", error.to_string(), "Use `service` or `operator`.")
}));

/// The query's parameters.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + JsonSchema + Send> Argument for Query<T> {
    fn declare(takes: &mut Takes) {
        takes.query = Some(T::json_schema);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        query::parse(&asked.parts.uri).map(Self)
    }
}

/// Any query, which means nothing: whoever only looks whether a server is there may add something that no cache knows.
#[derive(Debug)]
pub(super) struct AnyQuery;

impl Argument for AnyQuery {
    fn declare(takes: &mut Takes) {
        takes.any_query = true;
    }

    async fn take(_asked: &mut Asked) -> Result<Self, ApiError> {
        Ok(Self)
    }
}

/// One JSON object: a body of at most `MAX` bytes, or an answer.
#[derive(Debug)]
pub(super) struct Json<T, const MAX: usize = MAX_API_BODY>(pub(super) T);

impl<T: DeserializeOwned + JsonSchema + Send, const MAX: usize> Argument for Json<T, MAX> {
    fn declare(takes: &mut Takes) {
        takes.takes_body(Content::Json(describe::<T>), Some(MAX));
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        let (body, timeout) = (asked.body(), asked.control.config().http.body_timeout);
        let small =
            MAX <= MAX_SMALL || json::declared(&asked.parts.headers).is_some_and(|bytes| bytes <= MAX_SMALL as u64);
        // Operators and services are few, and trusted not to fill the server's memory.
        let tenant = asked.parts.extensions.get::<Caller>().filter(|_| !small).map(|caller| &caller.principal.tenant);
        let _turn = match tenant {
            Some(tenant) => Some(asked.control.large_bodies().take(tenant, timeout).await.ok_or_else(json::too_many)?),
            None => None,
        };
        json::read(&asked.parts.headers, body, MAX, timeout).await.map(Self)
    }
}

/// What a handler answers.
pub(super) trait Answer {
    /// Says what a success is. A plain [`Response`] leaves that to the table.
    fn declare(given: &mut Vec<Given>);

    /// The answer.
    fn response(self) -> Response<Body>;
}

/// What most handlers answer.
pub(super) type Answered<T> = Result<Json<T>, ApiError>;

impl<T: Answer> Answer for Result<T, ApiError> {
    fn declare(given: &mut Vec<Given>) {
        T::declare(given);
    }

    fn response(self) -> Response<Body> {
        match self {
            Ok(answer) => answer.response(),
            Err(error) => error.into_response(),
        }
    }
}

impl Answer for Response<Body> {
    fn declare(_given: &mut Vec<Given>) {}

    fn response(self) -> Response<Body> {
        self
    }
}

impl<T: Serialize + JsonSchema> Answer for Json<T> {
    fn declare(given: &mut Vec<Given>) {
        given.push(Given { status: 200, content: Some(Content::Json(describe::<T>)), headers: &[] });
    }

    fn response(self) -> Response<Body> {
        match serde_json::to_string(&self.0) {
            Ok(text) => text_of("application/json", text),
            Err(error) => ApiError::internal(error).into_response(),
        }
    }
}

/// Something that was made.
#[derive(Debug)]
pub(super) struct Created<T>(pub(super) T);

impl<T: Serialize + JsonSchema> Answer for Created<T> {
    fn declare(given: &mut Vec<Given>) {
        given.push(Given { status: 201, content: Some(Content::Json(describe::<T>)), headers: &[] });
    }

    fn response(self) -> Response<Body> {
        let mut response = Json::<T>(self.0).response();
        if response.status().is_success() {
            *response.status_mut() = StatusCode::CREATED;
        }
        response
    }
}

/// It is done, or with `STATUS` 202 will be, and there is nothing to say.
#[derive(Debug)]
pub(super) struct Nothing<const STATUS: u16 = 204>;

impl<const STATUS: u16> Answer for Nothing<STATUS> {
    fn declare(given: &mut Vec<Given>) {
        given.push(Given { status: STATUS, content: None, headers: &[] });
    }

    fn response(self) -> Response<Body> {
        let status = StatusCode::from_u16(STATUS);
        status
            .map_or_else(|error| ApiError::internal(error).into_response(), axum::response::IntoResponse::into_response)
    }
}

/// A text of a media type.
pub(super) fn text_of(kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Lines or events as they come.
pub(super) fn stream_of(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // Proxies that collect answers would hold back what is meant to be live.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub(super) fn describe<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A function of arguments.
pub(super) trait Handler<T: 'static>: Clone + Send + Sync + 'static {
    /// Says what it takes and what it answers.
    fn declare(takes: &mut Takes, given: &mut Vec<Given>);

    /// Takes its arguments, in their order, and answers.
    fn handle(self, asked: Asked) -> impl Future<Output = Result<Response<Body>, ApiError>> + Send;
}

macro_rules! handler {
    ($($argument:ident),*) => {
        impl<F, Fut, $($argument),*> Handler<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output: Answer> + Send,
            $($argument: Argument + 'static,)*
        {
            fn declare(takes: &mut Takes, given: &mut Vec<Given>) {
                $($argument::declare(takes);)*
                let _takes_none = takes;
                <Fut::Output as Answer>::declare(given);
            }

            #[allow(non_snake_case, unused_mut, unused_variables, reason = "arguments are named as their types are")]
            async fn handle(self, mut asked: Asked) -> Result<Response<Body>, ApiError> {
                $(let $argument = $argument::take(&mut asked).await?;)*
                Ok(self($($argument),*).await.response())
            }
        }
    };
}

handler!();
handler!(A);
handler!(A, B);
handler!(A, B, C);
handler!(A, B, C, D);
handler!(A, B, C, D, E);
handler!(A, B, C, D, E, G);
handler!(A, B, C, D, E, G, H);
