//! `/v1/runs`.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use bailey_protocol::api::{RunAccepted, RunRequest};
use bailey_protocol::id::RunId;
use bailey_protocol::limits::MAX_API_BODY;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use serde::Deserialize;

use super::event_stream::{self, Framing};
use super::query::{self, NoQuery};
use super::{json, routes};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::db::{IdempotencyKey, IdempotencyKeyError};
use crate::ops::runs;

/// Names the run in the head of an event stream, before the first event.
const RUN_HEADER: &str = "bailey-run";

/// `POST /v1/runs`
pub(super) async fn create(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, ApiError> {
    query::parse::<NoQuery>(&uri)?;
    let key = idempotency_key(&headers)?;
    let http = control.config().http;
    let request: RunRequest = json::read(&headers, body, MAX_API_BODY, http.body_timeout).await?;
    let detach = request.detach;
    let created = runs::create(&control, &caller, request, key).await?;
    let run = created.run.clone();
    let mut response = if detach {
        let mut response = routes::json(&RunAccepted { run: run.clone() })?;
        *response.status_mut() = StatusCode::ACCEPTED;
        response
    } else {
        let events = runs::follow(&control, &caller, created).await?;
        event_stream::response(events, Framing::wanted(&headers), http.keep_alive)
    };
    if let Ok(value) = HeaderValue::from_str(run.as_str()) {
        response.headers_mut().insert(RUN_HEADER, value);
    }
    Ok(response)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ListQuery {
    after: Option<RunId>,
    limit: Option<u32>,
}

/// `GET /v1/runs`
pub(super) async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response<Body>, ApiError> {
    let query: ListQuery = query::parse(&uri)?;
    routes::json(&runs::list(&control, &caller, query.after, query.limit).await?)
}

/// `GET /v1/runs/{run}`
pub(super) async fn show(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(run): Path<String>,
    uri: Uri,
) -> Result<Response<Body>, ApiError> {
    query::parse::<NoQuery>(&uri)?;
    routes::json(&runs::get(&control, &caller, &run_id(&run)?).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EventsQuery {
    after: Option<u64>,
}

/// `GET /v1/runs/{run}/events`
pub(super) async fn events(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(run): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let query: EventsQuery = query::parse(&uri)?;
    let resumed = || headers.get("last-event-id")?.to_str().ok()?.parse().ok();
    let after = query.after.or_else(resumed).unwrap_or(0);
    let events = runs::events(&control, &caller, &run_id(&run)?, after).await?;
    Ok(event_stream::response(events, Framing::wanted(&headers), control.config().http.keep_alive))
}

/// `POST /v1/runs/{run}/cancel`
pub(super) async fn cancel(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(run): Path<String>,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    query::parse::<NoQuery>(&uri)?;
    runs::cancel(&control, &caller, &run_id(&run)?).await?;
    Ok(StatusCode::ACCEPTED)
}

/// What is no id at all is answered like an id that does not exist.
fn run_id(text: &str) -> Result<RunId, ApiError> {
    text.parse().map_err(|_unparsable| ApiError::run_not_found())
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ApiError> {
    let hint = "Send one `Idempotency-Key` of 1 to 255 visible ASCII characters.";
    let refuse = || ApiError::invalid("invalid_idempotency_key", "the `Idempotency-Key` cannot be used", hint);
    let mut values = headers.get_all("idempotency-key").iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(refuse()),
        (Some(value), None) => {
            let text = value.to_str().map_err(|error| refuse().because(error))?;
            text.parse().map(Some).map_err(|error: IdempotencyKeyError| refuse().because(error))
        }
    }
}
