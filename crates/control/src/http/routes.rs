//! Every route of the native API, one line each.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::{HeaderValue, Response, header};

use super::{guard, run_routes, tree_routes};
use crate::api_error::{ApiError, ErrorKind};
use crate::control::Control;

/// The whole front.
pub fn router(control: Control) -> Router {
    Router::new()
        .route("/v1/runs", post(run_routes::create).get(run_routes::list))
        .route("/v1/runs/{run}", get(run_routes::show))
        .route("/v1/runs/{run}/events", get(run_routes::events))
        .route("/v1/runs/{run}/cancel", post(run_routes::cancel))
        .route("/v1/tree/{*path}", get(tree_routes::read).put(tree_routes::write).delete(tree_routes::delete))
        .route("/v1/tree-history/{*path}", get(tree_routes::history))
        .route("/v1/tree-diff/{*path}", get(tree_routes::diff))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/.well-known/jwks.json", get(keys))
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_route)
        .layer(axum::middleware::from_fn_with_state(control.clone(), guard::pass))
        .with_state(control)
}

/// A JSON answer.
pub(super) fn json(value: &impl serde::Serialize) -> Result<Response<Body>, ApiError> {
    serde_json::to_string(value).map(json_text).map_err(ApiError::internal)
}

fn json_text(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn healthy() -> &'static str {
    "ok\n"
}

async fn ready(State(control): State<Control>) -> Result<&'static str, ApiError> {
    control.refuse_while_draining()?;
    Ok("ok\n")
}

async fn keys(State(control): State<Control>) -> Response<Body> {
    json_text(control.public_keys().to_owned())
}

async fn wrong_method(request: Request) -> Response<Body> {
    let message = format!("`{}` does not fit this path", request.method());
    let hint = "The `Allow` header names the methods that do.";
    ApiError::new(ErrorKind::MethodNotAllowed, "method_not_allowed", message, hint).into_response()
}

async fn no_route() -> Response<Body> {
    ApiError::not_found("there is no such route", "See the API's documentation: paths start with `/v1/`.")
        .into_response()
}
