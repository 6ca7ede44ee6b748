//! Service accounts and operators disabled and enabled, by name: a token of theirs that leaked is worth nothing then.

use std::sync::Arc;

use bailey_policy::SystemAction;
use bailey_protocol::api::identity::{AccountKind, AccountList, DisabledAnswer};
use bailey_protocol::id::UserId;

use crate::api_error::ApiError;
use crate::control::{Control, OperatorCaller};

/// Service accounts and operators that are disabled.
///
/// # Errors
/// When it is denied.
pub async fn list(control: &Control, caller: &OperatorCaller) -> Result<AccountList, ApiError> {
    let permit = control.operator_may(caller, SystemAction::AccountList).await?;
    let disabled = control.db().disabled_accounts(&permit).await.map_err(ApiError::from);
    control.operator_audited(caller, &permit, disabled.map(|disabled| AccountList { disabled })).await
}

/// Disables or enables one: every token of its name, and of a service account every token that it exchanged.
///
/// # Errors
/// When it is denied, or an operator would disable itself.
pub async fn set(
    control: &Control,
    caller: &OperatorCaller,
    kind: AccountKind,
    name: &UserId,
    disabled: bool,
) -> Result<DisabledAnswer, ApiError> {
    let action = if disabled { SystemAction::AccountDisable } else { SystemAction::AccountEnable };
    let decision = control.judge_operator(caller).system_about(action, &format!("{kind}/{name}"));
    let permit = Arc::new(control.operator_permit(caller, decision).await?);
    let result = if disabled && kind == AccountKind::Operator && name.as_str() == caller.operator.name {
        Err(ApiError::invalid("own_account", "an operator cannot disable itself", "Have another operator do it."))
    } else {
        let (of, permit, name) = (control.clone(), Arc::clone(&permit), name.clone());
        let work = async move {
            let changed = of.db().set_account_disabled(&permit, kind, &name, disabled, of.now_ms()).await?;
            of.standing().set_account_disabled(kind, &name, disabled);
            // Nobody keeps a list of accounts: their tokens name them.
            Ok(DisabledAnswer { disabled, changed, known: None })
        };
        super::change(control, None, work).await
    };
    control.operator_audited(caller, &permit, result).await
}
