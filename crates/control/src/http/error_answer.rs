//! Errors on their way out: handlers return an [`ApiError`], and the guard, which knows the request's id, renders it.

use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use bailey_protocol::id::RequestId;
use http::{HeaderValue, Response, StatusCode, header};

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

/// Logs and renders the error behind `response`, if there is one.
pub(super) fn render(mut response: Response<Body>, request_id: &RequestId) -> Response<Body> {
    let Some(Pending(error)) = response.extensions_mut().remove::<Pending>() else { return response };
    log(&error, request_id);
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = response.status();
    match serde_json::to_vec(&error.body(request_id)) {
        Ok(body) => *answer.body_mut() = Body::from(body),
        Err(failure) => tracing::error!(request = %request_id, %failure, "an error has no JSON form"),
    }
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if error.kind == ErrorKind::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.kind.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    for name in [header::ALLOW, header::CONTENT_RANGE] {
        if let Some(value) = response.headers_mut().remove(&name) {
            headers.insert(name, value);
        }
    }
    answer
}

fn log(error: &ApiError, request_id: &RequestId) {
    let cause = error.cause_chain();
    match error.kind {
        ErrorKind::Internal | ErrorKind::StorageFull => {
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
        | ErrorKind::Changed
        | ErrorKind::RangeUnsatisfiable => {
            tracing::debug!(request = %request_id, code = error.code, cause, "request refused");
        }
    }
}
