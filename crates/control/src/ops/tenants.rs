//! What operators note of tenants for policies: region and plan.

use std::sync::Arc;

use bailey_policy::{OperatorPermit, TenantAction, TenantFacts};
use bailey_protocol::api::identity::{TenantNoted, TenantNotes};
use bailey_protocol::id::TenantId;

use crate::api_error::ApiError;
use crate::auth::is_label;
use crate::control::{Control, OperatorCaller};

/// What is noted of a tenant.
///
/// # Errors
/// When it is denied.
pub async fn show(control: &Control, caller: &OperatorCaller, tenant: &TenantId) -> Result<TenantNoted, ApiError> {
    let permit = control.operator_may_to(caller, TenantAction::FactsRead, tenant).await?;
    let result = noted(control, &permit, tenant).await;
    control.operator_audited(caller, &permit, result).await
}

/// Notes something of a tenant in place of what was noted before. It holds from the next decision on, and what goes on
/// is judged again at once.
///
/// # Errors
/// When it is denied, or a text is none that can be noted.
pub async fn set(
    control: &Control,
    caller: &OperatorCaller,
    tenant: &TenantId,
    notes: TenantNotes,
) -> Result<TenantNoted, ApiError> {
    let permit = Arc::new(control.operator_may_to(caller, TenantAction::FactsSet, tenant).await?);
    let result = if [&notes.region, &notes.plan].into_iter().flatten().all(|text| is_label(text)) {
        let (owner, permit, tenant) = (control.clone(), Arc::clone(&permit), tenant.clone());
        let work = async move {
            // One at a time, so that memory follows the database.
            let _turn = owner.tenant_facts().turn.lock().await;
            let facts = TenantFacts { region: notes.region, plan: notes.plan };
            owner.db().set_tenant_facts(&permit, facts.clone()).await?;
            owner.tenant_facts().set(&tenant, facts);
            owner.judge_again(&tenant);
            noted(&owner, &permit, &tenant).await
        };
        control.own(work).await.map_err(ApiError::internal)?
    } else {
        let message = "a region and a plan have 1 to 128 bytes, none of them of a control character";
        Err(ApiError::invalid("invalid_facts", message, "Leave out what is not known."))
    };
    control.operator_audited(caller, &permit, result).await
}

async fn noted(control: &Control, permit: &OperatorPermit, tenant: &TenantId) -> Result<TenantNoted, ApiError> {
    let known = control.knows_tenant(permit).await?;
    let TenantFacts { region, plan } = control.tenant_facts().of(tenant);
    Ok(TenantNoted { tenant: tenant.clone(), region, plan, known })
}
