//! Disabling and enabling. What is answered is on disk, and holds from that moment on, for what is under way as well.

use std::sync::Arc;

use bailey_policy::{AdminAction, SystemAction, TenantAction};
use bailey_protocol::api::identity::{DisabledAnswer, TenantInfo, TenantList, UserInfo, UserList};
use bailey_protocol::id::{TenantId, UserId};

use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control, OperatorCaller};
use crate::db::{Disabled, MAX_IDENTITY_PAGE, SubjectRecord, TenantRecord};

/// Rows of one page, when the caller does not say.
const DEFAULT_PAGE: u32 = 100;

/// Users of the caller's tenant who were seen or are disabled.
///
/// # Errors
/// When it is denied.
pub async fn users(
    control: &Control,
    caller: &Caller,
    after: Option<UserId>,
    limit: Option<u32>,
) -> Result<UserList, ApiError> {
    let permit = control.permit(caller, control.judge(caller).await?.admin(AdminAction::UserList)).await?;
    // What was seen a moment ago is part of it.
    super::write_notes(control).await?;
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_IDENTITY_PAGE);
    let result = control.db().users(&permit, limit, after.as_ref()).await;
    control.audited(caller, [permit.grant()], result.map(|found| user_list(found, limit)).map_err(Into::into)).await
}

/// The same of any tenant, for an operator. The tenant's audit tells of it.
///
/// # Errors
/// When it is denied, or nobody of such a tenant was ever seen or is disabled.
pub async fn tenants_users(
    control: &Control,
    caller: &OperatorCaller,
    tenant: &TenantId,
    after: Option<UserId>,
    limit: Option<u32>,
) -> Result<UserList, ApiError> {
    let permit = control.operator_may_to(caller, TenantAction::UserList, tenant).await?;
    super::write_notes(control).await?;
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_IDENTITY_PAGE);
    let result = async {
        let found = control.db().users_of(&permit, limit, after.as_ref()).await?;
        if found.is_empty() && !control.knows_tenant(&permit).await? {
            return Err(ApiError::unknown_tenant(tenant));
        }
        Ok(user_list(found, limit))
    };
    control.operator_audited(caller, &permit, result.await).await
}

/// Disables or enables a user of the caller's tenant.
///
/// # Errors
/// When it is denied, or the caller names itself.
pub async fn set_user(
    control: &Control,
    caller: &Caller,
    user: &UserId,
    disabled: bool,
) -> Result<DisabledAnswer, ApiError> {
    let action = if disabled { AdminAction::UserDisable } else { AdminAction::UserEnable };
    let permit = Arc::new(control.permit(caller, control.judge(caller).await?.admin(action)).await?);
    let result = if disabled && *user == caller.principal.user {
        let hint = "Have another admin, or the operator, do it.";
        Err(ApiError::invalid("own_user", "an admin cannot disable itself", hint))
    } else {
        let (of, permit, user) = (control.clone(), Arc::clone(&permit), user.clone());
        let work = async move {
            // So that whoever was seen a moment ago is known. What cannot be written stops nobody from being disabled.
            drop(super::write_notes(&of).await);
            let found = of.db().set_user_disabled(&permit, &user, disabled, of.now_ms()).await?;
            of.standing().set_disabled(permit.tenant(), Some(&user), found.now);
            if found.now && !disabled {
                let hint = "Ask the operator to enable it: `bailey user enable USER --tenant TENANT`.";
                let message = format!("an operator disabled `{user}`, which no admin undoes");
                return Err(ApiError::new(ErrorKind::Denied, "disabled_by_operator", message, hint));
            }
            Ok(answer(found))
        };
        super::change(control, Some(&caller.principal.tenant), work).await
    };
    control.audited(caller, [permit.grant()], result).await
}

/// Tenants of whom anybody was seen, or that are disabled.
///
/// # Errors
/// When it is denied.
pub async fn tenants(
    control: &Control,
    caller: &OperatorCaller,
    after: Option<TenantId>,
    limit: Option<u32>,
) -> Result<TenantList, ApiError> {
    let permit = control.operator_may(caller, SystemAction::TenantList).await?;
    super::write_notes(control).await?;
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_IDENTITY_PAGE);
    let result = async {
        let records = control.db().tenants(&permit, limit, after.as_ref()).await?;
        let tenants: Vec<TenantInfo> = records.into_iter().map(tenant_info).collect();
        let next = if is_full(tenants.len(), limit) { tenants.last().map(|last| last.tenant.clone()) } else { None };
        Ok(TenantList { tenants, next })
    };
    control.operator_audited(caller, &permit, result.await).await
}

/// Disables or enables a tenant, or one user of it, as an operator.
///
/// # Errors
/// When it is denied.
pub async fn set_tenant(
    control: &Control,
    caller: &OperatorCaller,
    tenant: &TenantId,
    user: Option<&UserId>,
    disabled: bool,
) -> Result<DisabledAnswer, ApiError> {
    let action = match (user, disabled) {
        (None, true) => TenantAction::Disable,
        (None, false) => TenantAction::Enable,
        (Some(_), true) => TenantAction::UserDisable,
        (Some(_), false) => TenantAction::UserEnable,
    };
    let permit = Arc::new(control.operator_may_to(caller, action, tenant).await?);
    let result = {
        let (of, permit, tenant, user) = (control.clone(), Arc::clone(&permit), tenant.clone(), user.cloned());
        let work = async move {
            drop(super::write_notes(&of).await);
            let found = of.db().set_disabled(&permit, user.as_ref(), disabled, of.now_ms()).await?;
            of.standing().set_disabled(&tenant, user.as_ref(), found.now);
            Ok(answer(found))
        };
        super::change(control, None, work).await
    };
    control.operator_audited(caller, &permit, result).await
}

fn answer(found: Disabled) -> DisabledAnswer {
    DisabledAnswer { disabled: found.now, changed: found.changed, known: Some(found.known) }
}

fn user_list(records: Vec<SubjectRecord>, limit: u32) -> UserList {
    let users: Vec<UserInfo> = records.into_iter().map(user_info).collect();
    let next = if is_full(users.len(), limit) { users.last().map(|last| last.user.clone()) } else { None };
    UserList { users, next }
}

fn is_full(count: usize, limit: u32) -> bool {
    u32::try_from(count).is_ok_and(|count| count == limit)
}

fn user_info(record: SubjectRecord) -> UserInfo {
    let SubjectRecord { user, seen, disabled_since_ms } = record;
    let mut info = UserInfo {
        user,
        roles: Vec::new(),
        entitlements: Vec::new(),
        first_seen_ms: None,
        last_seen_ms: None,
        valid_until_ms: None,
        disabled_since_ms,
    };
    if let Some(seen) = seen {
        info.roles = seen.rights.roles.into_iter().collect();
        info.entitlements = seen.rights.entitlements.iter().map(ToString::to_string).collect();
        info.first_seen_ms = Some(seen.first_ms);
        info.last_seen_ms = Some(seen.last_ms);
        info.valid_until_ms = Some(seen.rights.valid_until_ms);
    }
    info
}

fn tenant_info(record: TenantRecord) -> TenantInfo {
    let TenantRecord { tenant, users, last_seen_ms, disabled_since_ms } = record;
    TenantInfo { tenant, users, last_seen_ms, disabled_since_ms }
}
