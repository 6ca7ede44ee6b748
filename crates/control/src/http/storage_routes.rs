//! `/v1/tenant`, `/v1/purges`, and what operators do about tenants: their storage, and what is noted of them.

use bailey_protocol::api::identity::{TenantNoted, TenantNotes};
use bailey_protocol::id::TenantId;
use bailey_protocol::purge::{PurgeId, PurgeReceipt, PurgeRequest};
use bailey_protocol::quota::{GcSummary, TenantQuota, TenantStorage};

use super::MAX_SMALL;
use super::arguments::{Answered, Json, Named};
use crate::control::{Caller, Control, OperatorCaller};
use crate::ops::{purges, storage, tenants};

/// `GET /v1/tenant`
pub(super) async fn tenant(control: Control, caller: Caller) -> Answered<TenantStorage> {
    storage::show(&control, &caller).await.map(Json)
}

/// `POST /v1/purges`
pub(super) async fn purge(
    control: Control,
    caller: Caller,
    Json(asked): Json<PurgeRequest, MAX_SMALL>,
) -> Answered<PurgeReceipt> {
    purges::purge(&control, &caller, asked.path).await.map(Json)
}

/// `GET /v1/purges/{id}`
pub(super) async fn receipt(control: Control, caller: Caller, Named(id): Named<PurgeId>) -> Answered<PurgeReceipt> {
    purges::receipt(&control, &caller, &id).await.map(Json)
}

/// `GET /v1/operator/tenants/{tenant}/quota`
pub(super) async fn show_quota(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
) -> Answered<TenantStorage> {
    storage::show_tenant(&control, &caller, &tenant).await.map(Json)
}

/// `PUT /v1/operator/tenants/{tenant}/quota`
pub(super) async fn set_quota(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
    Json(quota): Json<TenantQuota, MAX_SMALL>,
) -> Answered<TenantStorage> {
    storage::set_quota(&control, &caller, &tenant, Some(quota)).await.map(Json)
}

/// `DELETE /v1/operator/tenants/{tenant}/quota`
pub(super) async fn reset_quota(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
) -> Answered<TenantStorage> {
    storage::set_quota(&control, &caller, &tenant, None).await.map(Json)
}

/// `POST /v1/operator/tenants/{tenant}/gc`
pub(super) async fn collect_garbage(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
) -> Answered<GcSummary> {
    storage::collect_garbage(&control, &caller, &tenant).await.map(Json)
}

/// `GET /v1/operator/tenants/{tenant}/facts`
pub(super) async fn show_facts(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
) -> Answered<TenantNoted> {
    tenants::show(&control, &caller, &tenant).await.map(Json)
}

/// `PUT /v1/operator/tenants/{tenant}/facts`
pub(super) async fn set_facts(
    control: Control,
    caller: OperatorCaller,
    Named(tenant): Named<TenantId>,
    Json(notes): Json<TenantNotes, MAX_SMALL>,
) -> Answered<TenantNoted> {
    tenants::set(&control, &caller, &tenant, notes).await.map(Json)
}
