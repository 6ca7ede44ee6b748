//! Tree tokens: hand out a part of the caller's own rights, for some minutes.

use bailey_policy::{AdminAction, AdminPermit, CredentialId, CredentialKind, Grant, Principal, UnsharePermit};
use bailey_protocol::api::{TreeTokenList, TreeTokenMade, TreeTokenRequest};
use bailey_protocol::id::{TokenId, UserId};

use super::tree_access;
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::db::{ShareGrants, TokenScope, TreeTokenRow};
use crate::secret_value::SecretValue;
use crate::tree_tokens::TOKEN_PREFIX;

/// Longest life of a token, in minutes.
const MAX_MINUTES: u32 = 24 * 60;

/// Makes a token. Its value is in the answer and nowhere else.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, or the caller is itself narrowed.
pub async fn create(control: &Control, caller: &Caller, request: TreeTokenRequest) -> Result<TreeTokenMade, ApiError> {
    let facts = control.path_facts(caller, &request.path, None);
    let permit = control.permit(caller, control.judge(caller).await?.share(&facts)).await?;
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let result = async {
            permit.scope()?;
            let (row, value) = plan(&owner, &caller, request)?;
            let known = tree_access::is_there(&owner, &caller, &row.path).await?;
            let _turn = owner.meta_turn().await;
            let followed = &owner.standing().followed;
            // Followed first: what its maker loses from now on is noted.
            followed.follow(&row.tenant, &row.user, None);
            super::identity::write_notes(&owner).await?;
            let has = owner.db().create_tree_token(&permit, value.hash(), row.clone()).await?;
            followed.follow(&row.tenant, &row.user, has);
            owner.tree_tokens().insert(value.hash(), row.clone(), owner.now_ms());
            Ok(TreeTokenMade { token: value.reveal().to_owned(), about: row.about(), known })
        };
        let result = result.await;
        owner.audited(&caller, [permit.grant()], result).await
    };
    control.own(task).await.map_err(ApiError::internal)?
}

fn plan(
    control: &Control,
    caller: &Caller,
    request: TreeTokenRequest,
) -> Result<(TreeTokenRow, SecretValue), ApiError> {
    let who = &caller.principal;
    if who.scope.is_some() {
        let message = "a key or tree token hands out no tree token";
        return Err(ApiError::new(ErrorKind::Denied, "key_by_key", message, "Use a token of your own."));
    }
    let TreeTokenRequest { path, mode, minutes } = request;
    if !(1..=MAX_MINUTES).contains(&minutes) {
        let message = format!("`minutes` is {minutes}: use 1 to {MAX_MINUTES}");
        return Err(ApiError::invalid("invalid_minutes", message, "Make another token when this one is over."));
    }
    let now_ms = control.now_ms();
    let row = TreeTokenRow {
        id: TokenId::mint(now_ms, control.rng().bytes().map_err(ApiError::internal)?),
        tenant: who.tenant.clone(),
        user: who.user.clone(),
        path,
        mode,
        grants: ShareGrants {
            roles: who.roles.clone(),
            entitlements: who.entitlements.clone(),
            region: who.region.clone(),
            project: who.project.clone(),
            actor: who.actor.clone(),
        },
        created_ms: now_ms,
        // What was handed out ends with what it was made by at the latest.
        expires_ms: now_ms.saturating_add(u64::from(minutes) * 60_000).min(who.valid_until_ms),
    };
    Ok((row, SecretValue::generate(TOKEN_PREFIX, control.rng()).map_err(ApiError::internal)?))
}

/// Tokens that hold: the caller's, or another user's where the caller may list the tenant's keys.
///
/// # Errors
/// When it is denied.
pub async fn list(control: &Control, caller: &Caller, user: Option<UserId>) -> Result<TreeTokenList, ApiError> {
    let Principal { tenant, user: own, .. } = &caller.principal;
    let user = user.as_ref().unwrap_or(own);
    let tokens = || Ok(TreeTokenList { tokens: control.tree_tokens().of(tenant, user, control.now_ms()) });
    let judge = control.judge(caller).await?;
    if user != own {
        let permit = control.permit(caller, judge.admin(AdminAction::KeyList)).await?;
        return control.audited(caller, [permit.grant()], tokens()).await;
    }
    let facts = control.path_facts(caller, &format!("/tenants/{tenant}").parse()?, None);
    let permit = control.permit(caller, judge.unshare(&facts)).await?;
    control.audited(caller, [permit.grant()], tokens()).await
}

/// Ends a token of the caller's, or of another user's where the caller may revoke the tenant's keys, and everything that
/// goes on by it.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, or there is no such token that the caller could end.
pub async fn revoke(control: &Control, caller: &Caller, id: Option<TokenId>) -> Result<(), ApiError> {
    let who = &caller.principal;
    let found = id.and_then(|id| control.tree_tokens().find(&who.tenant, &id));
    let row = found.ok_or_else(not_found)?;
    let judge = control.judge(caller).await?;
    let permit = if row.user == who.user {
        let facts = control.path_facts(caller, &row.path, None);
        MayEnd::Own(control.permit(caller, judge.unshare(&facts)).await?)
    } else {
        MayEnd::Others(
            control.permit(caller, judge.admin(AdminAction::KeyRevoke)).await.map_err(|_denied| not_found())?,
        )
    };
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let result = async {
            let scope = permit.scope(&row.user).ok_or_else(not_found)?;
            let _turn = owner.meta_turn().await;
            owner.db().revoke_tree_token(&scope, &row.id).await?;
            owner.tree_tokens().remove(&row.tenant, &row.id);
            let credential = CredentialId { kind: CredentialKind::TreeToken, id: row.id.to_string() };
            owner.standing().revoke(credential, row.expires_ms);
            Ok(())
        };
        let result = result.await;
        owner.audited(&caller, [permit.grant()], result).await
    };
    control.own(task).await.map_err(ApiError::internal)?
}

/// What lets a token end.
enum MayEnd {
    Own(UnsharePermit),
    Others(AdminPermit),
}

impl MayEnd {
    fn scope(&self, user: &UserId) -> Option<TokenScope> {
        match self {
            Self::Own(permit) => Some(TokenScope::own(permit)),
            Self::Others(permit) => TokenScope::of_admin(permit, user),
        }
    }

    fn grant(&self) -> &Grant {
        match self {
            Self::Own(permit) => permit.grant(),
            Self::Others(permit) => permit.grant(),
        }
    }
}

/// The token does not exist, or is somebody else's: nobody can tell which.
fn not_found() -> ApiError {
    ApiError::not_found("there is no such tree token", "List yours with GET /v1/tree-tokens.")
}
