//! `/v1/tree`, `/v1/tree-history`, `/v1/tree-diff`.

use std::pin::pin;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, Revision};
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri, header};
use serde::Deserialize;

use super::{conditions, content, query, routes, tree_path, upload};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::ops::tree::{self, Found, ReadAsk, WriteAsk};
use crate::pipe::pipe;

pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("bailey-version");

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReadQuery {
    r#ref: Option<Revision>,
}

/// `GET /v1/tree/{path}`
pub(super) async fn read(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let path = tree_path::parse(uri.path(), "/v1/tree")?;
    let query: ReadQuery = query::parse(&uri)?;
    let ask = ReadAsk { path, revision: revision(query.r#ref) };
    match tree::read(&control, &caller, ask).await? {
        Found::File(file) => content::answer(file, &headers),
        Found::Folder(listing) => {
            let mut response = routes::json(&listing)?;
            if let Some(version) = &listing.version {
                insert_version(response.headers_mut(), version);
            }
            Ok(response)
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WriteQuery {
    r#ref: Option<BranchName>,
    executable: Option<bool>,
}

/// `PUT /v1/tree/{path}`
pub(super) async fn write(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, ApiError> {
    let path = tree_path::parse(uri.path(), "/v1/tree")?;
    let query: WriteQuery = query::parse(&uri)?;
    let condition = conditions::parse(&headers)?;
    content::refuse_ranges(&headers)?;
    let ask = WriteAsk { path, branch: branch(query.r#ref), condition };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let (writer, reader) = pipe();
    let mut outcome = pin!(tree::write(&control, &caller, ask, query.executable, length, reader));
    let pumped = pin!(upload::pump(body, writer, control.config().http.body_timeout));
    // A refusal is answered at once, not after the body.
    let outcome = tokio::select! {
        biased;
        outcome = &mut outcome => outcome,
        sent = pumped => match sent {
            Ok(()) => outcome.await,
            Err(error) => {
                // The writer went with the pump, so the operation ends by itself and changes nothing.
                let _changed_nothing = outcome.await.is_err();
                Err(error)
            }
        },
    }?;
    let mut response = routes::json(&outcome.answer)?;
    if let Some(id) = outcome.entry {
        response.headers_mut().insert(header::ETAG, conditions::tag(&id)?);
    }
    insert_version(response.headers_mut(), &outcome.answer.version);
    Ok(response)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DeleteQuery {
    r#ref: Option<BranchName>,
}

/// `DELETE /v1/tree/{path}`
pub(super) async fn delete(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let path = tree_path::parse(uri.path(), "/v1/tree")?;
    let query: DeleteQuery = query::parse(&uri)?;
    let condition = conditions::parse(&headers)?;
    let ask = WriteAsk { path, branch: branch(query.r#ref), condition };
    let outcome = tree::delete(&control, &caller, ask).await?;
    let mut response = routes::json(&outcome.answer)?;
    insert_version(response.headers_mut(), &outcome.answer.version);
    Ok(response)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HistoryQuery {
    r#ref: Option<Revision>,
    limit: Option<u32>,
    after: Option<VersionId>,
}

/// `GET /v1/tree-history/{path}`
pub(super) async fn history(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response<Body>, ApiError> {
    let path = tree_path::parse(uri.path(), "/v1/tree-history")?;
    let query: HistoryQuery = query::parse(&uri)?;
    let ask = ReadAsk { path, revision: revision(query.r#ref) };
    routes::json(&tree::history(&control, &caller, ask, query.limit, query.after).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DiffQuery {
    from: Option<Revision>,
    to: Option<Revision>,
}

/// `GET /v1/tree-diff/{path}`
pub(super) async fn diff(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response<Body>, ApiError> {
    let path = tree_path::parse(uri.path(), "/v1/tree-diff")?;
    let query: DiffQuery = query::parse(&uri)?;
    let ask = ReadAsk { path, revision: revision(query.to) };
    routes::json(&tree::diff(&control, &caller, query.from, ask).await?)
}

fn revision(asked: Option<Revision>) -> Revision {
    asked.unwrap_or_else(|| Revision::Branch(BranchName::main()))
}

fn branch(asked: Option<BranchName>) -> BranchName {
    asked.unwrap_or_else(BranchName::main)
}

pub(super) fn insert_version(headers: &mut HeaderMap, version: &VersionId) {
    if let Ok(value) = HeaderValue::from_str(version.as_str()) {
        headers.insert(VERSION_HEADER, value);
    }
}
