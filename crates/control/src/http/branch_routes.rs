//! `/v1/forks`, `/v1/branches`, `/v1/promotions`, `/v1/protections`, `/v1/labels`, `/v1/tree-tokens`, `/v1/baselines`.

use bailey_protocol::api::{
    BaselineInfo, BaselineList, BranchInfo, BranchList, ForkRequest, LabelRequest, PathLabels, Promoted,
    PromotionRequest, Protection, ProtectionList, TreeTokenList, TreeTokenMade, TreeTokenRequest,
};
use bailey_protocol::id::{BaselineName, TokenId, UserId};
use bailey_protocol::path::{BranchName, TreePath};
use schemars::JsonSchema;
use serde::Deserialize;

use super::arguments::{Answered, Created, Json, Named, Nothing, Query};
use super::upload::Upload;
use crate::api_error::ApiError;
use crate::control::{Caller, Control, OperatorCaller};
use crate::ops::{baselines, branches, labels, promotions, protections, shares};
use crate::pipe::pipe;

/// `POST /v1/forks`
pub(super) async fn fork(
    control: Control,
    caller: Caller,
    Json(request): Json<ForkRequest>,
) -> Result<Created<BranchInfo>, ApiError> {
    branches::fork(&control, &caller, request).await.map(Created)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BranchesQuery {
    /// Begin after this one.
    after: Option<BranchName>,
    /// At most so many.
    limit: Option<u32>,
}

/// `GET /v1/branches/{path}`
pub(super) async fn list(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(page): Query<BranchesQuery>,
) -> Answered<BranchList> {
    branches::list(&control, &caller, path, page.after, page.limit).await.map(Json)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchQuery {
    /// Which branch.
    branch: BranchName,
}

/// `DELETE /v1/branches/{path}`
pub(super) async fn delete(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(BranchQuery { branch }): Query<BranchQuery>,
) -> Result<Nothing, ApiError> {
    branches::delete(&control, &caller, path, branch).await.map(|()| Nothing)
}

/// `POST /v1/promotions`
pub(super) async fn promote(
    control: Control,
    caller: Caller,
    Json(request): Json<PromotionRequest>,
) -> Answered<Promoted> {
    promotions::promote(&control, &caller, request).await.map(Json)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProtectQuery {
    /// Which branch.
    branch: BranchName,
    /// Whether who promotes must be somebody else than who made what is promoted.
    #[serde(default)]
    review: bool,
}

/// `PUT /v1/protections/{path}`
pub(super) async fn protect(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(ProtectQuery { branch, review }): Query<ProtectQuery>,
) -> Answered<Protection> {
    protections::protect(&control, &caller, path, branch, review).await.map(Json)
}

/// `DELETE /v1/protections/{path}`
pub(super) async fn unprotect(
    control: Control,
    caller: Caller,
    path: TreePath,
    Query(BranchQuery { branch }): Query<BranchQuery>,
) -> Result<Nothing, ApiError> {
    protections::unprotect(&control, &caller, path, branch).await.map(|()| Nothing)
}

/// `GET /v1/protections/{path}`
pub(super) async fn protections(control: Control, caller: Caller, path: TreePath) -> Answered<ProtectionList> {
    protections::list(&control, &caller, path).await.map(Json)
}

/// `GET /v1/labels/{path}`
pub(super) async fn show_labels(control: Control, caller: Caller, path: TreePath) -> Answered<PathLabels> {
    labels::show(&control, &caller, path).await.map(Json)
}

/// `PUT /v1/labels/{path}`
pub(super) async fn set_labels(
    control: Control,
    caller: Caller,
    path: TreePath,
    Json(request): Json<LabelRequest>,
) -> Answered<PathLabels> {
    labels::set(&control, &caller, path, request).await.map(Json)
}

/// `DELETE /v1/labels/{path}`
pub(super) async fn remove_labels(control: Control, caller: Caller, path: TreePath) -> Result<Nothing, ApiError> {
    labels::set(&control, &caller, path, LabelRequest { labels: [].into() }).await.map(|_none| Nothing)
}

/// `GET /v1/baselines`
pub(super) async fn baselines(control: Control, caller: Caller) -> Answered<BaselineList> {
    baselines::list(&control, &caller).await.map(Json)
}

/// `GET /v1/operator/baselines`
pub(super) async fn published(control: Control, caller: OperatorCaller) -> Answered<BaselineList> {
    baselines::operator_list(&control, &caller).await.map(Json)
}

/// `POST /v1/tree-tokens`
pub(super) async fn share(
    control: Control,
    caller: Caller,
    Json(request): Json<TreeTokenRequest>,
) -> Result<Created<TreeTokenMade>, ApiError> {
    shares::create(&control, &caller, request).await.map(Created)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SharesQuery {
    /// Whose, for admins; the caller's own without it.
    user: Option<UserId>,
}

/// `GET /v1/tree-tokens`
pub(super) async fn list_shares(
    control: Control,
    caller: Caller,
    Query(SharesQuery { user }): Query<SharesQuery>,
) -> Answered<TreeTokenList> {
    shares::list(&control, &caller, user).await.map(Json)
}

/// `DELETE /v1/tree-tokens/{token}`
pub(super) async fn revoke_share(
    control: Control,
    caller: Caller,
    Named(token): Named<Option<TokenId>>,
) -> Result<Nothing, ApiError> {
    shares::revoke(&control, &caller, token).await.map(|()| Nothing)
}

/// `POST /v1/operator/baselines/{name}`
pub(super) async fn publish(
    control: Control,
    caller: OperatorCaller,
    Named(name): Named<BaselineName>,
    upload: Upload,
) -> Result<Created<BaselineInfo>, ApiError> {
    let (writer, reader) = pipe();
    upload.feed(writer, baselines::publish(&control, &caller, name, reader)).await.map(Created)
}
