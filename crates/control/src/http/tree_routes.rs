//! `/v1/tree`, `/v1/tree-history`, `/v1/tree-diff`.

use axum::body::Body;
use bailey_protocol::api::{Diff, ExtractAnswer, History, WriteAnswer};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_tree::archive::Format;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::arguments::{Answer, Answered, Content, Given, HeaderNote, Json, Query, describe};
use super::content::{self, Reading};
use super::cut::cut_answer;
use super::upload::Upload;
use super::{archives, conditions};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::ops::tree::{self, Condition, Found, ListAsk, ReadAsk, WriteAsk, Written};
use crate::ops::tree_edit;
use crate::pipe::pipe;

const VERSION_HEADER: HeaderName = HeaderName::from_static("bailey-version");
/// What the head of an answer with content carries.
pub(super) const READ: &[HeaderNote] = &[
    ("ETag", "What is there, for `If-Match`; of a file."),
    ("Bailey-Version", "The version that was read."),
    ("Bailey-Kind", "`file`, `executable` or `symlink`; of a file."),
    ("Content-Range", "Which part it is, with 206."),
];
/// What the head of an answer to a change carries.
const WROTE: &[HeaderNote] =
    &[("ETag", "What is there now; of a single entry."), ("Bailey-Version", "The version that the change made.")];

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReadQuery {
    /// Branch or version; `main` without it.
    r#ref: Option<Revision>,
    /// Of a folder: at most this many entries; 1,000 without it, 10,000 at most.
    limit: Option<u32>,
    /// Of a folder: go on after this `next`.
    after: Option<String>,
    /// Of a folder: all below it, not only what is in it.
    recursive: Option<bool>,
    /// Of a folder: only paths that fit; `*` and `?` stay within a name, `**` is any number of folders, also `[a-z]`, `{a,b}`.
    glob: Option<String>,
}

/// `GET /v1/tree/{path}`
pub(super) async fn read(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(query): Query<ReadQuery>,
    reading: Reading,
) -> Result<Response<Body>, ApiError> {
    let ReadQuery { r#ref, limit, after, recursive, glob } = query;
    let ask = ReadAsk { path, revision: revision(r#ref) };
    if let Some(format) = reading.archive() {
        return archives::answer(&control, &caller, ask, format).await;
    }
    let list = ListAsk { recursive: recursive.unwrap_or(false), glob, limit, after };
    match tree::read(&control, &caller, ask.clone(), list).await? {
        Found::File(file) => {
            let (answer, request) = (content::answer(control.threads(), file, &reading)?, caller.request.clone());
            let until = async { ApiError::from(tree::until_unreadable(control, caller, ask).await) };
            Ok(cut_answer(answer, &request, until))
        }
        Found::Folder(listing) => {
            let version = listing.version.clone();
            let mut response = Json::<_>(listing).response();
            if let Some(version) = &version {
                insert_version(response.headers_mut(), version);
            }
            Ok(response)
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WriteQuery {
    /// Branch; `main` without it.
    r#ref: Option<BranchName>,
    /// Whether the file may be executed; as it was without it.
    executable: Option<bool>,
    /// `folder` makes a folder.
    r#type: Option<EntryType>,
    /// Takes the body in as an archive, below the path.
    extract: Option<ArchiveFormat>,
}

/// What a `PUT` makes when it is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EntryType {
    /// A folder.
    Folder,
}

/// Formats of archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ArchiveFormat {
    /// Tar, gzipped or not.
    Tar,
    /// Zip.
    Zip,
}

/// `PUT /v1/tree/{path}`
pub(super) async fn write(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(query): Query<WriteQuery>,
    condition: Condition,
    upload: Upload,
) -> Result<Put, ApiError> {
    let ask = WriteAsk { path, branch: branch(query.r#ref), condition };
    let (writer, reader) = pipe();
    match (query.r#type, query.extract, query.executable) {
        (Some(EntryType::Folder), None, None) => tree_edit::make_folder(&control, &caller, ask).await.map(Put::Written),
        (None, Some(format), None) => {
            let format = match format {
                ArchiveFormat::Tar => Format::Tar,
                ArchiveFormat::Zip => Format::Zip,
            };
            let work = tree_edit::extract(&control, &caller, ask, format, reader);
            upload.feed(writer, work).await.map(|(answer, entry)| Put::Extracted(answer, entry))
        }
        (None, None, executable) => {
            let length = upload.length;
            let work = tree::write(&control, &caller, ask, executable, length, reader);
            upload.feed(writer, work).await.map(Put::Written)
        }
        (Some(_), _, _) | (None, Some(_), Some(_)) => {
            let message = "`type`, `extract` and `executable` exclude each other";
            Err(ApiError::invalid("invalid_query", message, "Remove all but one of them."))
        }
    }
}

/// What a `PUT` made.
pub(super) enum Put {
    /// A file or a folder.
    Written(Written),
    /// What an archive holds, and the tag of the folder.
    Extracted(ExtractAnswer, Option<String>),
}

impl Answer for Put {
    fn declare(given: &mut Vec<Given>) {
        Written::declare(given);
        given.push(Given { status: 200, content: Some(Content::Json(describe::<ExtractAnswer>)), headers: WROTE });
    }

    fn response(self) -> Response<Body> {
        match self {
            Self::Written(written) => written.response(),
            Self::Extracted(answer, entry) => {
                let version = answer.version.clone();
                changed(Json::<_>(answer).response(), &version, entry.as_deref())
            }
        }
    }
}

impl Answer for Written {
    fn declare(given: &mut Vec<Given>) {
        given.push(Given { status: 200, content: Some(Content::Json(describe::<WriteAnswer>)), headers: WROTE });
    }

    fn response(self) -> Response<Body> {
        let version = self.answer.version.clone();
        changed(Json::<_>(self.answer).response(), &version, self.entry.as_deref())
    }
}

/// The answer to a change, with the tag of what is there now.
fn changed(mut response: Response<Body>, version: &VersionId, entry: Option<&str>) -> Response<Body> {
    if let Some(tag) = entry.and_then(|id| conditions::tag(id).ok()) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    insert_version(response.headers_mut(), version);
    response
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DeleteQuery {
    /// Branch; `main` without it.
    r#ref: Option<BranchName>,
}

/// `DELETE /v1/tree/{path}`
pub(super) async fn delete(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(query): Query<DeleteQuery>,
    condition: Condition,
) -> Result<Written, ApiError> {
    tree::delete(&control, &caller, WriteAsk { path, branch: branch(query.r#ref), condition }).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HistoryQuery {
    /// Branch or version; `main` without it.
    r#ref: Option<Revision>,
    /// At most this many.
    limit: Option<u32>,
    /// Go on after this version.
    after: Option<VersionId>,
}

/// `GET /v1/tree-history/{path}`
pub(super) async fn history(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(query): Query<HistoryQuery>,
) -> Answered<History> {
    let ask = ReadAsk { path, revision: revision(query.r#ref) };
    tree::history(&control, &caller, ask, query.limit, query.after).await.map(Json)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DiffQuery {
    /// The older side; what `to` grew from without it.
    from: Option<Revision>,
    /// The newer side; `main` without it.
    to: Option<Revision>,
}

/// `GET /v1/tree-diff/{path}`
pub(super) async fn diff(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(query): Query<DiffQuery>,
) -> Answered<Diff> {
    let ask = ReadAsk { path, revision: revision(query.to) };
    tree::diff(&control, &caller, query.from, ask).await.map(Json)
}

pub(super) fn revision(asked: Option<Revision>) -> Revision {
    asked.unwrap_or_else(|| Revision::Branch(BranchName::main()))
}

pub(super) fn branch(asked: Option<BranchName>) -> BranchName {
    asked.unwrap_or_else(BranchName::main)
}

pub(super) fn insert_version(headers: &mut HeaderMap, version: &VersionId) {
    if let Ok(value) = HeaderValue::from_str(version.as_str()) {
        headers.insert(VERSION_HEADER, value);
    }
}
