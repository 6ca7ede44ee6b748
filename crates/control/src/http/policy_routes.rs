//! `/v1/policies`, `/v1/explain`, `/v1/operator/policies`.

use bailey_protocol::api::policy::{
    DryRunAnswer, DryRunRequest, ExplainAnswer, ExplainRequest, MAX_FOLDER_BYTES, PolicyState, PolicyText,
    TenantPolicy, TenantPolicyList,
};

use super::arguments::{Answered, Json, Named, Nothing};
use crate::api_error::ApiError;
use crate::control::{Caller, Control, OperatorCaller};
use crate::ops::policies;

/// Largest body about one policy: its text, escaped.
const MAX_BODY: usize = 128 * 1024;
/// Largest body with a whole folder: as large as the server follows, with every second letter escaped.
const MAX_FOLDER: usize = 2 * MAX_FOLDER_BYTES;

/// `GET /v1/policies`
pub(super) async fn list(control: Control, caller: Caller) -> Answered<TenantPolicyList> {
    policies::list(&control, &caller).await.map(Json)
}

/// `PUT /v1/policies/{name}`
pub(super) async fn put(
    control: Control,
    caller: Caller,
    Named(name): Named<String>,
    Json(text): Json<PolicyText, MAX_BODY>,
) -> Answered<TenantPolicy> {
    policies::put(&control, &caller, &name, &text.policy).await.map(Json)
}

/// `DELETE /v1/policies/{name}`
pub(super) async fn delete(control: Control, caller: Caller, Named(name): Named<String>) -> Result<Nothing, ApiError> {
    policies::delete(&control, &caller, &name).await.map(|()| Nothing)
}

/// `POST /v1/explain`
pub(super) async fn explain(
    control: Control,
    caller: Caller,
    Json(ask): Json<ExplainRequest, MAX_BODY>,
) -> Answered<ExplainAnswer> {
    policies::explain(&control, &caller, ask).await.map(Json)
}

/// `GET /v1/operator/policies`
pub(super) async fn state(control: Control, caller: OperatorCaller) -> Answered<PolicyState> {
    policies::state(&control, &caller).await.map(Json)
}

/// `POST /v1/operator/policies/dry-run`
pub(super) async fn dry_run(
    control: Control,
    caller: OperatorCaller,
    Json(ask): Json<DryRunRequest, MAX_FOLDER>,
) -> Answered<DryRunAnswer> {
    policies::dry_run(&control, &caller, ask).await.map(Json)
}
