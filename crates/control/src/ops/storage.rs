//! What tenants may keep, and what they do.

use std::sync::Arc;

use bailey_policy::{AdminAction, TenantAction};
use bailey_protocol::id::TenantId;
use bailey_protocol::quota::{GcSummary, TenantQuota, TenantStorage};

use super::upkeep;
use crate::api_error::ApiError;
use crate::control::{Caller, Control, OperatorCaller};
use crate::threads::blocking;

/// What the caller's tenant may keep, and what it does.
///
/// # Errors
/// When it is denied.
pub async fn show(control: &Control, caller: &Caller) -> Result<TenantStorage, ApiError> {
    let asked = control.judge(caller).await?.admin(AdminAction::TenantRead);
    let permit = control.permit(caller, asked).await?;
    let result = storage_of(control, permit.tenant(), true).await;
    control.audited(caller, [permit.grant()], result).await
}

/// What a tenant may keep, and what it does, for an operator.
///
/// # Errors
/// When it is denied.
pub async fn show_tenant(
    control: &Control,
    caller: &OperatorCaller,
    tenant: &TenantId,
) -> Result<TenantStorage, ApiError> {
    let permit = control.operator_may_to(caller, TenantAction::QuotaRead, tenant).await?;
    let result = async { storage_of(control, tenant, control.knows_tenant(&permit).await?).await };
    let result = result.await;
    control.operator_audited(caller, &permit, result).await
}

/// Sets what a tenant may keep; `None` for the usual. It holds from the next write on, and takes nothing away at once:
/// upkeep lets versions go that are too many.
///
/// # Errors
/// When it is denied, or no tenant can have such a quota.
pub async fn set_quota(
    control: &Control,
    caller: &OperatorCaller,
    tenant: &TenantId,
    quota: Option<TenantQuota>,
) -> Result<TenantStorage, ApiError> {
    let action = if quota.is_some() { TenantAction::QuotaSet } else { TenantAction::QuotaReset };
    let permit = Arc::new(control.operator_may_to(caller, action, tenant).await?);
    let wrong = quota.and_then(|quota| quota.check().err());
    let result = match wrong {
        Some(rule) => Err(ApiError::invalid("invalid_quota", rule, "Correct the quota as the message says.")),
        None => {
            let (owner, permit, tenant) = (control.clone(), Arc::clone(&permit), tenant.clone());
            let work = async move {
                // One at a time, so that the trees follow the database.
                let _turn = owner.upkeep().quotas.lock().await;
                owner.db().set_quota(&permit, quota).await?;
                owner.trees().set_quota(&tenant, quota);
                let known = owner.knows_tenant(&permit).await?;
                storage_of(&owner, &tenant, known).await
            };
            control.own(work).await.map_err(ApiError::internal)?
        }
    };
    control.operator_audited(caller, &permit, result).await
}

/// One cycle of upkeep over every store of a tenant, all garbage included.
///
/// # Errors
/// When it is denied, nobody of such a tenant was ever seen, or a store is damaged: then nothing of it is removed.
pub async fn collect_garbage(
    control: &Control,
    caller: &OperatorCaller,
    tenant: &TenantId,
) -> Result<GcSummary, ApiError> {
    let permit = control.operator_may_to(caller, TenantAction::GarbageCollect, tenant).await?;
    let result = async {
        if !control.knows_tenant(&permit).await? {
            return Err(ApiError::unknown_tenant(tenant));
        }
        let (owner, of) = (control.clone(), tenant.clone());
        blocking(control.threads(), move || upkeep::collect_tenant(&owner, &of)).await
    };
    let result = result.await;
    control.operator_audited(caller, &permit, result).await
}

async fn storage_of(control: &Control, tenant: &TenantId, known: bool) -> Result<TenantStorage, ApiError> {
    let (owner, tenant) = (control.clone(), tenant.clone());
    blocking(control.threads(), move || {
        let (quota, usage) = (owner.trees().quota(&tenant), owner.trees().usage(&tenant)?);
        Ok(TenantStorage { tenant, quota, usage, known })
    })
    .await
}
