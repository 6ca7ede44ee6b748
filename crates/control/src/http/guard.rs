//! What every request passes: an id, authentication, a net for panics, and the headers of every answer.

use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::middleware::Next;
use axum::response::IntoResponse;
use bailey_protocol::id::RequestId;
use futures_util::FutureExt;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request, Response, header};

use super::arguments::Who;
use super::connection::Known;
use super::cut::{cut, cut_answer};
use super::git_client::GitClient;
use super::heads::{self, Ambiguous};
use super::{error_answer, openapi};
use crate::api_error::{ApiError, ErrorKind};
use crate::auth::Identity;
use crate::control::{Caller, Control, OperatorCaller, ServiceCaller};
use crate::standing::KEY_PREFIX;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Paths that need no credential. Everything else does, what does not exist included.
const OPEN: [&str; 5] = [
    "/healthz",
    "/readyz",
    "/.well-known/jwks.json",
    "/.well-known/openapi.json",
    // A signature over the message authenticates it: see `ops::identity::webhook`.
    "/v1/webhooks/identity",
];

/// Whether the caller is of the kind that a route is for.
///
/// # Errors
/// When it is another.
pub(super) fn check_kind(found: &Extensions, who: Who) -> Result<(), ApiError> {
    let fits = match who {
        Who::Anyone | Who::Signer => true,
        Who::User => found.get::<Caller>().is_some(),
        Who::Service => found.get::<ServiceCaller>().is_some(),
        Who::Operator => found.get::<OperatorCaller>().is_some(),
    };
    if fits {
        return Ok(());
    }
    let (message, hint) = match who {
        Who::Operator => ("this is for operators", "Use a token of `bailey token --operator`."),
        Who::Service => ("this is for service accounts", "Use a token of `bailey token --service`."),
        Who::Anyone | Who::Signer | Who::User => {
            ("this is for users of a tenant", "Use a user's token; a service account gets one at `POST /v1/token`.")
        }
    };
    Err(ApiError::new(ErrorKind::Denied, "wrong_identity", message, hint))
}

/// Runs the rest of the front for one request.
pub(super) async fn pass(State(control): State<Control>, mut request: Request<Body>, next: Next) -> Response<Body> {
    let request_id = control.mint_request_id();
    let git = GitClient::of(&request);
    let route = request.extensions().get::<MatchedPath>().cloned();
    let operation = route.and_then(|route| openapi::operation_of(request.method(), route.as_str()));
    git.translate(&mut request);
    let ambiguous = request.extensions().get::<Ambiguous>().copied();
    let ambiguous = ambiguous.or_else(|| heads::in_headers(request.version(), request.headers()));
    let response = match ambiguous {
        Some(ambiguous) => {
            let mut refused = ApiError::from(ambiguous).into_response();
            refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            refused
        }
        None => {
            let inner = AssertUnwindSafe(authenticated(&control, request, next, &request_id)).catch_unwind();
            inner.await.unwrap_or_else(|_panic| ApiError::internal("a request panicked").into_response())
        }
    };
    let mut response = error_answer::render(response, &request_id, operation, git.reads_text());
    git.finish(&mut response);
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(request_id.as_str()) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn authenticated(
    control: &Control,
    mut request: Request<Body>,
    next: Next,
    request_id: &RequestId,
) -> Response<Body> {
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let identity = match credential(request.headers()) {
        Ok(credential) => control.identify(credential).await,
        Err(error) => Err(error),
    };
    let identity = match identity {
        Ok(identity) => identity,
        Err(error) => return error.into_response(),
    };
    if let Some(known) = request.extensions().get::<Known>() {
        known.set(match &identity {
            Identity::User(principal) => Some(&principal.tenant),
            Identity::Service(_) | Identity::Operator(_) => None,
        });
    }
    let known = request.extensions_mut();
    match identity.clone() {
        Identity::User(principal) => drop(known.insert(Caller::new(principal, request_id.clone()))),
        Identity::Service(service) => drop(known.insert(ServiceCaller { service, request: request_id.clone() })),
        Identity::Operator(operator) => drop(known.insert(OperatorCaller { operator, request: request_id.clone() })),
    }
    while_it_holds(control, &identity, request, next, request_id).await
}

/// Runs the rest for as long as the rights of whoever asks hold: what it sends, what is done and what it is sent all end
/// with them.
async fn while_it_holds(
    control: &Control,
    identity: &Identity,
    request: Request<Body>,
    next: Next,
    request_id: &RequestId,
) -> Response<Body> {
    let end = || {
        let ended = control.end_of(identity);
        async { ApiError::from(ended.await) }
    };
    let request = request.map(|body| cut(body, end()));
    let response = tokio::select! {
        biased;
        response = next.run(request) => response,
        why = end() => return why.into_response(),
    };
    cut_answer(response, request_id, end())
}

/// The one credential that a request carries: `Authorization: Bearer`, or an API key in `X-API-KEY`.
fn credential(headers: &HeaderMap) -> Result<&str, ApiError> {
    let refuse = |message: &str| {
        let hint = "Send `Authorization: Bearer TOKEN` once, or an API key as `X-API-KEY`.";
        Err(ApiError::new(ErrorKind::Unauthenticated, "unauthenticated", message, hint))
    };
    let mut tokens = headers.get_all(header::AUTHORIZATION).iter();
    let mut keys = headers.get_all(API_KEY).iter();
    match (tokens.next(), keys.next(), tokens.next().or(keys.next())) {
        (None, None, _) => refuse("the request carries no token"),
        (Some(_), Some(_), _) | (_, _, Some(_)) => refuse("the request carries more than one credential"),
        (Some(value), None, None) => {
            let scheme_and_token = value.to_str().ok().and_then(|text| text.split_once(' '));
            match scheme_and_token {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token),
                Some(_) | None => refuse("`Authorization` is not `Bearer TOKEN`"),
            }
        }
        (None, Some(value), None) => match value.to_str() {
            Ok(key) if key.starts_with(KEY_PREFIX) => Ok(key),
            Ok(_) | Err(_) => refuse("`X-API-KEY` is not an API key"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_once_and_as_a_bearer() {
        for (values, expected) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer abc"], Some("abc")),
            (&[], None),
            (&["Bearer abc", "Bearer abc"], None),
            (&["Basic abc"], None),
            (&["Bearer"], None),
            (&["Bearerabc"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            assert_eq!(credential(&headers).ok(), expected, "{values:?}");
        }
    }

    #[test]
    fn a11_what_is_open_is_what_the_table_says() {
        let mut open: Vec<_> = crate::http::openapi::operations()
            .into_iter()
            .filter(|operation| operation.who == "anyone" || operation.who == "signer")
            .map(|operation| operation.path)
            .collect();
        open.sort();
        let mut listed = OPEN.map(str::to_owned);
        listed.sort();
        assert_eq!(open, listed);
    }
}
