//! Errors on their way out: handlers return an [`ApiError`], and the guard, which knows the request's id, renders it.

use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use bailey_protocol::api::ErrorBody;
use bailey_protocol::id::RequestId;
use http::{HeaderValue, Response, StatusCode, header};

use super::openapi;
use crate::api_error::{ApiError, ErrorKind};

/// An error that still has to be rendered.
#[derive(Debug, Clone)]
struct Pending(Arc<ApiError>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(Pending(Arc::new(self)));
        response
    }
}

/// What is told of `error`, to whoever asked for `operation`.
pub(super) fn body(error: &ApiError, request_id: &RequestId, operation: Option<&str>) -> ErrorBody {
    let see = openapi::named_in(&error.hint);
    let see = see.into_iter().map(str::to_owned).collect();
    ErrorBody { operation: operation.map(str::to_owned), see, ..error.body(request_id) }
}

/// Logs and renders the error behind `response`, if there is one: as JSON, or as text for those who show nothing else.
pub(super) fn render(
    mut response: Response<Body>,
    request_id: &RequestId,
    operation: Option<&str>,
    as_text: bool,
) -> Response<Body> {
    let Some(Pending(error)) = response.extensions_mut().remove::<Pending>() else { return response };
    log(&error, request_id);
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = response.status();
    let body = body(&error, request_id, operation);
    let kind = if as_text { "text/plain; charset=utf-8" } else { "application/json" };
    if as_text {
        let policies: String = body.policies.iter().map(|policy| format!("policy {policy}\n")).collect();
        let text = format!("{}: {}\n{policies}{}\nrequest {}\n", body.error, body.message, body.hint, body.request_id);
        *answer.body_mut() = Body::from(text);
    } else {
        match serde_json::to_vec(&body) {
            Ok(body) => *answer.body_mut() = Body::from(body),
            Err(failure) => tracing::error!(request = %request_id, %failure, "an error has no JSON form"),
        }
    }
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if error.kind == ErrorKind::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    for name in [header::ALLOW, header::CONTENT_RANGE, header::CONNECTION] {
        if let Some(value) = response.headers_mut().remove(&name) {
            headers.insert(name, value);
        }
    }
    answer
}

fn log(error: &ApiError, request_id: &RequestId) {
    let cause = error.cause_chain();
    match error.kind {
        // A tenant's own quota is no matter of the operator's.
        ErrorKind::StorageFull if error.code == "quota_exceeded" => {
            tracing::debug!(request = %request_id, code = error.code, cause, "request refused");
        }
        ErrorKind::Internal | ErrorKind::StorageFull => {
            tracing::error!(request = %request_id, code = error.code, cause, "request failed");
        }
        ErrorKind::Unavailable if error.code == "storage_failed" => {
            tracing::error!(request = %request_id, code = error.code, cause, "request failed");
        }
        ErrorKind::Unavailable | ErrorKind::Exhausted => {
            tracing::warn!(request = %request_id, code = error.code, cause, "request turned away");
        }
        ErrorKind::Invalid
        | ErrorKind::TooLarge
        | ErrorKind::UnsupportedMedia
        | ErrorKind::Unauthenticated
        | ErrorKind::Denied
        | ErrorKind::NotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::TooSlow
        | ErrorKind::Conflict
        | ErrorKind::Gone
        | ErrorKind::Changed
        | ErrorKind::RangeUnsatisfiable => {
            tracing::debug!(request = %request_id, code = error.code, cause, "request refused");
        }
    }
}
