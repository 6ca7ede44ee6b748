//! What every request passes: an id, authentication, a net for panics, and the headers of every answer.

use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use bailey_protocol::id::RequestId;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};

use super::connection::Known;
use super::error_answer;
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Paths that need no token. Everything else does, what does not exist included.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/.well-known/jwks.json"];

/// Runs the rest of the front for one request.
pub(super) async fn pass(State(control): State<Control>, request: Request<Body>, next: Next) -> Response<Body> {
    let request_id = control.mint_request_id();
    let inner = AssertUnwindSafe(authenticated(&control, request, next, &request_id)).catch_unwind();
    let response = inner.await.unwrap_or_else(|_panic| {
        use axum::response::IntoResponse;
        ApiError::internal("a request panicked").into_response()
    });
    let mut response = error_answer::render(response, &request_id);
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
    use axum::response::IntoResponse;
    if !OPEN.contains(&request.uri().path()) {
        let caller = bearer(request.headers()).and_then(|token| {
            let principal = control.authenticate(token)?;
            Ok(Caller { principal, request: request_id.clone() })
        });
        match caller {
            Ok(caller) => {
                if let Some(known) = request.extensions().get::<Known>() {
                    known.set();
                }
                request.extensions_mut().insert(caller);
            }
            Err(error) => return error.into_response(),
        }
    }
    next.run(request).await
}

fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let refuse = |message: &str| {
        let hint = "Send `Authorization: Bearer TOKEN` once, with a token from `bailey token`.";
        Err(ApiError::new(ErrorKind::Unauthenticated, "unauthenticated", message, hint))
    };
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => refuse("the request carries no token"),
        (Some(_), Some(_)) => refuse("the request carries more than one `Authorization`"),
        (Some(value), None) => {
            let scheme_and_token = value.to_str().ok().and_then(|text| text.split_once(' '));
            match scheme_and_token {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token),
                Some(_) | None => refuse("`Authorization` is not `Bearer TOKEN`"),
            }
        }
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
            assert_eq!(bearer(&headers).ok(), expected, "{values:?}");
        }
    }
}
