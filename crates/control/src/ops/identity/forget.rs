//! Forgetting a user: everything that names it goes off the disk, and it stays disabled.
//!
//! ```text
//! disable ─▶ wait for its runs ─▶ events of its runs, its own store ─▶ the database, in one transaction ─▶ empty the log
//!            (cancelled by that)   └────────── done again by whoever asks again after a failure ──────────┘
//! ```
//!
//! What stays: who wrote the versions of the tenant's store, what files, policies, labels and names of keys say, and what
//! runs of others printed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bailey_policy::{AdminAction, TenantAction};
use bailey_protocol::api::identity::ForgottenAnswer;
use bailey_protocol::id::{TenantId, UserId};
use bailey_protocol::path::RepoId;

use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control, OperatorCaller};
use crate::db::{AuditEntry, DbError, ForgetScope};
use crate::threads::blocking;

/// Times that it is tried whether nobody is at work for the user any more.
const TRIES: usize = 200;
/// Time between two of them.
const PAUSE: Duration = Duration::from_millis(50);

/// Forgets a user of the caller's tenant.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, the caller names itself, or something of the user's does not end.
pub async fn by_admin(control: &Control, caller: &Caller, user: &UserId) -> Result<ForgottenAnswer, ApiError> {
    let asked = control.judge(caller).await?.admin(AdminAction::UserForget);
    let permit = Arc::new(control.permit(caller, asked).await?);
    if *user == caller.principal.user {
        let hint = "Have another admin, or the operator, do it.";
        let refused = Err(ApiError::invalid("own_user", "an admin cannot forget itself", hint));
        return control.audited(caller, [permit.grant()], refused).await;
    }
    let (of, caller, user) = (control.clone(), caller.clone(), user.clone());
    let task = control.own(async move {
        let result = async {
            let scope = ForgetScope::of_admin(&permit, &user).ok_or_else(wrong_permit)?;
            let (db, by) = (of.clone(), Arc::clone(&permit));
            let (tenant, whom) = (scope.tenant().clone(), user.clone());
            let disable = async move {
                let found = db.db().set_user_disabled(&by, &whom, true, db.now_ms()).await?;
                db.standing().set_disabled(&tenant, Some(&whom), found.now);
                Ok(())
            };
            super::change(&of, Some(&caller.principal.tenant), disable).await?;
            let receipt = AuditEntry::allowed(permit.grant(), "", Some(&caller.request), of.now_ms());
            carry_out(&of, scope, receipt).await
        };
        let result = result.await;
        // Where it came to its end, the receipt is on the audit.
        of.failure_audited(&caller, [permit.grant()], result).await
    });
    task.await.map_err(ApiError::internal)?
}

/// Forgets a user of a tenant, as an operator.
///
/// CANCEL: as [`by_admin`].
///
/// # Errors
/// When it is denied, or something of the user's does not end.
pub async fn by_operator(
    control: &Control,
    caller: &OperatorCaller,
    tenant: &TenantId,
    user: &UserId,
) -> Result<ForgottenAnswer, ApiError> {
    let permit = Arc::new(control.operator_may_to(caller, TenantAction::UserForget, tenant).await?);
    let (of, caller, tenant, user) = (control.clone(), caller.clone(), tenant.clone(), user.clone());
    let task = control.own(async move {
        let result = async {
            let scope = ForgetScope::of_operator(&permit, &user).ok_or_else(wrong_permit)?;
            let (db, by) = (of.clone(), Arc::clone(&permit));
            let (owner, whom) = (tenant.clone(), user.clone());
            let disable = async move {
                let found = db.db().set_disabled(&by, Some(&whom), true, db.now_ms()).await?;
                db.standing().set_disabled(&owner, Some(&whom), found.now);
                Ok(())
            };
            super::change(&of, None, disable).await?;
            let now = of.now_ms();
            let receipt = AuditEntry::by_operator(&caller.operator, &permit, "", Some(&caller.request), now);
            carry_out(&of, scope, receipt.on(&tenant)).await
        };
        let result = result.await;
        of.operator_audited(&caller, &permit, result).await
    });
    task.await.map_err(ApiError::internal)?
}

/// The rest, once the user is disabled.
async fn carry_out(control: &Control, scope: ForgetScope, receipt: AuditEntry) -> Result<ForgottenAnswer, ApiError> {
    let (tenant, user) = (scope.tenant().clone(), scope.user().clone());
    let runs = control.db().runs_of(&scope).await?;
    until(|| std::future::ready(Ok(runs.iter().all(|run| control.live().get(run).is_none())))).await?;
    let logs = control.logs().clone();
    let of = tenant.clone();
    blocking(control.threads(), move || runs.iter().try_for_each(|run| Ok(logs.remove(&of, run)?))).await?;
    remove_store(control, &RepoId { tenant: tenant.clone(), user: Some(user.clone()) }).await?;
    // What waits to be written is written now, so that it goes with the rest.
    control.write_decisions().await;
    super::write_notes(control).await?;
    let of = control.clone();
    let erase = async move {
        let _meta = of.meta_turn().await;
        let forgotten = of.db().forget_user(&scope, receipt).await?;
        let (tenant, user) = (scope.tenant(), scope.user());
        let standing = of.standing();
        standing.seen.forget(tenant, user);
        forgotten.keys.iter().for_each(|key| standing.keys.remove(key));
        standing.followed.forget(tenant, user);
        of.tree_tokens().forget(tenant, user);
        of.tree_meta().forget_user(tenant, user);
        standing.set_forgotten(user, forgotten.names);
        let keys = u64::try_from(forgotten.keys.len()).unwrap_or(u64::MAX);
        Ok(ForgottenAnswer { audit_rows: forgotten.audit_rows, runs: forgotten.runs, keys })
    };
    let answer = super::change(control, Some(&tenant), erase).await?;
    until(|| async {
        match control.db().scrub().await {
            Err(DbError::Busy { .. }) => Ok(false),
            scrubbed => Ok(scrubbed.map(|()| true)?),
        }
    })
    .await?;
    Ok(answer)
}

/// Takes the user's own store off the disk, and what was checked out of it.
async fn remove_store(control: &Control, repo: &RepoId) -> Result<(), ApiError> {
    until(|| {
        let (of, repo) = (control.clone(), repo.clone());
        blocking(control.threads(), move || {
            let lock = of.locks().of(&repo);
            let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            of.forget_checkouts(&repo);
            Ok(of.trees().remove(&repo)?)
        })
    })
    .await
}

/// Waits until `done` says so.
async fn until<F: Future<Output = Result<bool, ApiError>> + Send>(done: impl Fn() -> F) -> Result<(), ApiError> {
    for _ in 0..TRIES {
        if done().await? {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    let message = "something of the user's is still going";
    Err(ApiError::new(
        ErrorKind::Unavailable,
        "still_going",
        message,
        "It is disabled. Ask again to have it forgotten.",
    ))
}

fn wrong_permit() -> ApiError {
    ApiError::internal("a permit of something else than to forget a user")
}
