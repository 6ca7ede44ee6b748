//! `/v1/runs`.

use axum::body::Body;
use bailey_policy::RunFacts;
use bailey_protocol::api::{RunAccepted, RunList, RunRequest, RunSummary};
use bailey_protocol::id::RunId;
use http::{HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::arguments::{Answer as _, Answered, Argument, Asked, HeaderNote, Json, Named, Nothing, Query, Takes};
use super::cut::cut_answer;
use super::event_stream::{self, Framing};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::db::{IdempotencyKey, IdempotencyKeyError};
use crate::ops::runs::{self, Followed};

/// Names the run in the head of an event stream, before the first event.
const RUN_HEADER: &str = "bailey-run";
/// Says what a request is shaped like: credentials of which kinds, and where.
const WARNING_HEADER: &str = "bailey-warning";
/// What the head of an answer to a new run carries.
pub(super) const CREATED: &[HeaderNote] =
    &[("Bailey-Run", "The run."), ("Bailey-Warning", "A credential that the request seems to hold, and where.")];

/// `POST /v1/runs`
pub(super) async fn create(
    control: Control,
    caller: Caller,
    key: Option<IdempotencyKey>,
    framing: Framing,
    Json(request): Json<RunRequest>,
) -> Result<Response<Body>, ApiError> {
    let detach = request.detach;
    let created = runs::create(&control, &caller, request, key).await?;
    let run = created.run.clone();
    let warnings = created.warnings.clone();
    let mut response = if detach {
        let mut response = Json::<_>(RunAccepted { run: run.clone() }).response();
        *response.status_mut() = StatusCode::ACCEPTED;
        response
    } else {
        let followed = runs::follow(&control, &caller, created).await?;
        watched(control, caller, followed, framing).await?
    };
    if let Ok(value) = HeaderValue::from_str(run.as_str()) {
        response.headers_mut().insert(RUN_HEADER, value);
    }
    for value in warnings.iter().filter_map(|warning| HeaderValue::from_str(warning).ok()) {
        response.headers_mut().append(WARNING_HEADER, value);
    }
    Ok(response)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    /// Go on after this run.
    after: Option<RunId>,
    /// At most this many; 50 without it.
    limit: Option<u32>,
}

/// `GET /v1/runs`
pub(super) async fn list(control: Control, caller: Caller, Query(page): Query<ListQuery>) -> Answered<RunList> {
    runs::list(&control, &caller, page.after, page.limit).await.map(Json)
}

/// `GET /v1/runs/{run}`
pub(super) async fn show(control: Control, caller: Caller, Named(run): Named<RunId>) -> Answered<RunSummary> {
    runs::get(&control, &caller, &run).await.map(Json)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EventsQuery {
    /// Go on after the event of this number; `Last-Event-ID` says the same.
    after: Option<u64>,
}

/// `GET /v1/runs/{run}/events`
pub(super) async fn events(
    control: Control,
    caller: Caller,
    Named(run): Named<RunId>,
    Query(query): Query<EventsQuery>,
    resumed: Resumed,
    framing: Framing,
) -> Result<Response<Body>, ApiError> {
    let after = query.after.or(resumed.0).unwrap_or(0);
    let followed = runs::events(&control, &caller, &run, after).await?;
    watched(control, caller, followed, framing).await
}

/// A run's events, for as long as policy lets the caller see the run.
async fn watched(
    control: Control,
    caller: Caller,
    followed: Followed,
    framing: Framing,
) -> Result<Response<Body>, ApiError> {
    let Followed { events, room, facts } = followed;
    let (request, keep_alive) = (caller.request.clone(), control.config().http.keep_alive);
    let unseen = |facts: RunFacts| async { ApiError::from(runs::until_unseen(control, caller, facts).await) };
    let response = event_stream::response(events, room, framing, keep_alive).await?;
    Ok(cut_answer(response, &request, unseen(facts)))
}

/// `POST /v1/runs/{run}/cancel`
pub(super) async fn cancel(
    control: Control,
    caller: Caller,
    Named(run): Named<RunId>,
) -> Result<Nothing<202>, ApiError> {
    runs::cancel(&control, &caller, &run).await.map(|()| Nothing)
}

/// The number of the event that a client of server-sent events saw last. What is no number is none.
pub(super) struct Resumed(Option<u64>);

impl Argument for Resumed {
    fn declare(takes: &mut Takes) {
        takes.headers.push(("Last-Event-ID", "Go on after the event of this number."));
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        let value = asked.parts.headers.get("last-event-id");
        Ok(Self(value.and_then(|value| value.to_str().ok()?.parse().ok())))
    }
}

impl Argument for Option<IdempotencyKey> {
    fn declare(takes: &mut Takes) {
        let what = "1 to 255 visible ASCII characters: the same request with the same key is carried out once.";
        takes.headers.push(("Idempotency-Key", what));
        takes.errors.insert(409);
    }

    async fn take(asked: &mut Asked) -> Result<Self, ApiError> {
        let hint = "Send one `Idempotency-Key` of 1 to 255 visible ASCII characters.";
        let refuse = || ApiError::invalid("invalid_idempotency_key", "the `Idempotency-Key` cannot be used", hint);
        let mut values = asked.parts.headers.get_all("idempotency-key").iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(refuse()),
            (Some(value), None) => {
                let text = value.to_str().map_err(|error| refuse().because(error))?;
                text.parse().map(Some).map_err(|error: IdempotencyKeyError| refuse().because(error))
            }
        }
    }
}
