//! `PATCH /v1/tree`, `/v1/tree-copy`, `/v1/tree-restore`, `/v1/tree-revert`, `/v1/tree-blame`.

use bailey_protocol::api::{Blame, CopyRequest, RestoreRequest, RevertRequest, TreePatch};
use bailey_protocol::path::{BranchName, Revision, TreePath};
use schemars::JsonSchema;
use serde::Deserialize;

use super::arguments::{Answered, Json, Query};
use super::tree_routes::{branch, revision};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::ops::tree::{self, Condition, ReadAsk, WriteAsk, Written};
use crate::ops::tree_copy::{self, CopyAsk};
use crate::ops::tree_edit;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PatchQuery {
    /// Branch; `main` without it.
    r#ref: Option<BranchName>,
}

/// `PATCH /v1/tree/{path}`
pub(super) async fn patch(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(query): Query<PatchQuery>,
    condition: Condition,
    Json(patch): Json<TreePatch>,
) -> Result<Written, ApiError> {
    let ask = WriteAsk { path, branch: branch(query.r#ref), condition };
    tree_edit::patch(&control, &caller, ask, patch).await
}

/// `POST /v1/tree-copy`
pub(super) async fn copy(
    control: Control,
    caller: Caller,
    condition: Condition,
    Json(request): Json<CopyRequest>,
) -> Result<Written, ApiError> {
    let CopyRequest { from, to, reference, from_ref, moves } = request;
    let to = WriteAsk { path: to, branch: branch(reference), condition };
    tree_copy::copy(&control, &caller, CopyAsk { from, revision: from_ref, to, moves }).await
}

/// `POST /v1/tree-restore`
pub(super) async fn restore(
    control: Control,
    caller: Caller,
    condition: Condition,
    Json(request): Json<RestoreRequest>,
) -> Result<Written, ApiError> {
    let RestoreRequest { path, from_version, reference } = request;
    let ask = WriteAsk { path, branch: branch(reference), condition };
    tree_edit::restore(&control, &caller, ask, from_version).await
}

/// `POST /v1/tree-revert`
pub(super) async fn revert(
    control: Control,
    caller: Caller,
    condition: Condition,
    Json(request): Json<RevertRequest>,
) -> Result<Written, ApiError> {
    let RevertRequest { path, version, reference } = request;
    let ask = WriteAsk { path, branch: branch(reference), condition };
    tree_edit::revert(&control, &caller, ask, version).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BlameQuery {
    /// Branch or version; `main` without it.
    r#ref: Option<Revision>,
}

/// `GET /v1/tree-blame/{path}`
pub(super) async fn blame(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(query): Query<BlameQuery>,
) -> Answered<Blame> {
    let ask = ReadAsk { path, revision: revision(query.r#ref) };
    tree::blame(&control, &caller, ask).await.map(Json)
}
