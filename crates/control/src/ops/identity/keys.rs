//! API keys of a tenant: what a program carries instead of a token.

use std::collections::BTreeSet;
use std::sync::Arc;

use bailey_policy::{Action, AdminAction, AdminPermit, CredentialKind, Entitlement, Principal, Scope};
use bailey_protocol::api::identity::{KeyCreated, KeyInfo, KeyList, KeyRequest};
use bailey_protocol::id::KeyId;

use crate::api_error::{ApiError, ErrorKind};
use crate::auth::{RoleName, is_machine};
use crate::control::{Caller, Control};
use crate::db::{KeyGrants, KeyRecord, MAX_IDENTITY_PAGE, NewKey};
use crate::secret_value::SecretValue;
use crate::standing::KEY_PREFIX;

/// Keys of one page, when the caller does not say.
const DEFAULT_PAGE: u32 = 100;
/// Longest life of a key, in seconds.
const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;
/// Longest name of a key, in characters.
const MAX_NAME: usize = 100;
/// Most paths of a key.
const MAX_PATHS: usize = 64;

/// What a key is for that does not say: the daily work, nothing that admins or reviewers do.
const ORDINARY: [Action; 17] = [
    Action::TreeRead,
    Action::TreeList,
    Action::TreeHistory,
    Action::TreeDiff,
    Action::TreeWrite,
    Action::TreeDelete,
    Action::TreeFork,
    Action::TreeClone,
    Action::TreePush,
    Action::MountRead,
    Action::MountWrite,
    Action::RunCreate,
    Action::RunAsRoot,
    Action::RunRead,
    Action::RunList,
    Action::RunCancel,
    Action::PolicyExplain,
];

/// Makes a key. Its value is in the answer and nowhere else.
///
/// # Errors
/// When it is denied, or asks for more than its creator has.
pub async fn create(control: &Control, caller: &Caller, request: KeyRequest) -> Result<KeyCreated, ApiError> {
    let permit = control.permit(caller, control.judge(caller).await?.admin(AdminAction::KeyCreate)).await?;
    let permit = Arc::new(permit);
    let result = match plan(control, caller, request) {
        Ok((new, value)) => make(control, &permit, &caller.principal, new, value).await,
        Err(error) => Err(error),
    };
    control.audited(caller, [permit.grant()], result).await
}

async fn make(
    control: &Control,
    permit: &Arc<AdminPermit>,
    creator: &Principal,
    new: NewKey,
    value: SecretValue,
) -> Result<KeyCreated, ApiError> {
    let record = KeyRecord {
        id: new.id.clone(),
        tenant: permit.tenant().clone(),
        name: new.name.clone(),
        user: new.user.clone(),
        creator: creator.user.clone(),
        grants: new.grants.clone(),
        created_ms: new.created_ms,
        expires_ms: new.expires_ms,
        revoked_ms: None,
        last_used_ms: None,
    };
    let answer = KeyCreated { key: info(record.clone()), value: value.reveal().to_owned() };
    let (of, permit, creator) = (control.clone(), Arc::clone(permit), creator.clone());
    let tenant = creator.tenant.clone();
    let work = async move {
        // Followed first: what its maker loses from now on is noted.
        of.standing().followed.follow(&creator.tenant, &creator.user, None);
        super::write_notes(&of).await?;
        let hash = new.hash;
        let known = of.db().create_key(&permit, new).await?;
        of.standing().followed.follow(&creator.tenant, &creator.user, known);
        of.standing().keys.insert(hash, record);
        Ok(())
    };
    super::change(control, Some(&tenant), work).await?;
    Ok(answer)
}

/// Keys of the caller's tenant.
///
/// # Errors
/// When it is denied.
pub async fn list(
    control: &Control,
    caller: &Caller,
    after: Option<KeyId>,
    limit: Option<u32>,
) -> Result<KeyList, ApiError> {
    let permit = control.permit(caller, control.judge(caller).await?.admin(AdminAction::KeyList)).await?;
    super::write_notes(control).await?;
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_IDENTITY_PAGE);
    let result = async {
        let keys: Vec<KeyInfo> =
            control.db().keys(&permit, limit, after.as_ref()).await?.into_iter().map(info).collect();
        let whole_page = u32::try_from(keys.len()).is_ok_and(|count| count == limit);
        let next = if whole_page { keys.last().map(|last| last.id.clone()) } else { None };
        Ok(KeyList { keys, next })
    };
    control.audited(caller, [permit.grant()], result.await).await
}

/// Ends a key, and everything that goes on by it.
///
/// # Errors
/// When it is denied, or the tenant has no such key.
pub async fn revoke(control: &Control, caller: &Caller, key: Option<&KeyId>) -> Result<(), ApiError> {
    let permit = control.permit(caller, control.judge(caller).await?.admin(AdminAction::KeyRevoke)).await?;
    let permit = Arc::new(permit);
    let (of, by, key) = (control.clone(), Arc::clone(&permit), key.cloned());
    let work = async move {
        let key = key.ok_or_else(not_found)?;
        if !of.db().revoke_key(&by, &key, of.now_ms()).await? {
            return Err(not_found());
        }
        of.standing().keys.remove(&key);
        of.standing().changed();
        Ok(())
    };
    let result = super::change(control, Some(&caller.principal.tenant), work).await;
    control.audited(caller, [permit.grant()], result).await
}

/// The key does not exist, or is another tenant's: nobody can tell which.
fn not_found() -> ApiError {
    ApiError::not_found("there is no such key", "List the keys with GET /v1/keys.")
}

fn plan(control: &Control, caller: &Caller, request: KeyRequest) -> Result<(NewKey, SecretValue), ApiError> {
    let creator = &caller.principal;
    if creator.credential.kind != CredentialKind::Token {
        let hint = "Use a token of your own.";
        return Err(ApiError::new(ErrorKind::Denied, "key_by_key", "keys are made with a token, not with a key", hint));
    }
    let invalid = |message: &str, hint: &'static str| ApiError::invalid("invalid_key", message, hint);
    let name = request.name.trim();
    if !(1..=MAX_NAME).contains(&name.chars().count()) || name.chars().any(char::is_control) {
        return Err(invalid("`name` has 1 to 100 characters", "Say what the key is for."));
    }
    if !(1..=MAX_TTL_SECONDS).contains(&request.ttl_seconds) {
        return Err(invalid("`ttl_seconds` is 1 to 31622400", "Choose how long the key is good for."));
    }
    // Another person's folder and runs are not an admin's to hand out.
    let user = request.user.clone().unwrap_or_else(|| creator.user.clone());
    if user != creator.user && !is_machine(&user) {
        let hint = "Leave `user` out, or name a machine user: `+` and a name, which only keys can be.";
        return Err(invalid("a key acts as its creator or as a machine user", hint));
    }
    if control.standing().check_user(&creator.tenant, &user).is_err() {
        let message = format!("`{user}` is disabled, so that no key of its would hold");
        return Err(ApiError::new(ErrorKind::Conflict, "key_user_disabled", message, "Enable it first."));
    }
    let value = SecretValue::generate(KEY_PREFIX, control.rng()).map_err(ApiError::internal)?;
    let now_ms = control.now_ms();
    let new = NewKey {
        id: KeyId::mint(now_ms, control.rng().bytes().map_err(ApiError::internal)?),
        hash: value.hash(),
        name: name.to_owned(),
        user,
        grants: grants(creator, &request)?,
        created_ms: now_ms,
        expires_ms: now_ms.saturating_add(request.ttl_seconds.saturating_mul(1000)),
    };
    Ok((new, value))
}

/// What the key may do: a part of what its creator may.
fn grants(creator: &Principal, request: &KeyRequest) -> Result<KeyGrants, ApiError> {
    let invalid = |message: String| ApiError::invalid("invalid_key", message, "Correct the field.");
    let beyond = |what: &str, name: &str| {
        let message = format!("the {what} `{}` is not yours to give", name.escape_default());
        ApiError::new(ErrorKind::Denied, "beyond_creator", message, "Ask for no more than you have.")
    };
    let mut roles = BTreeSet::new();
    for role in &request.roles {
        let role: RoleName = role.parse().map_err(|error: crate::auth::RoleError| invalid(error.to_string()))?;
        if !creator.roles.contains(role.as_str()) {
            return Err(beyond("role", role.as_str()));
        }
        roles.insert(String::from(role));
    }
    let mut entitlements = BTreeSet::new();
    for name in request.entitlements.iter().flatten() {
        let entitlement: Entitlement =
            name.parse().map_err(|error: bailey_policy::principal::UnknownEntitlement| invalid(error.to_string()))?;
        if !creator.entitlements.contains(&entitlement) {
            return Err(beyond("entitlement", name));
        }
        entitlements.insert(entitlement);
    }
    if request.entitlements.is_none() {
        entitlements.clone_from(&creator.entitlements);
    }
    Ok(KeyGrants {
        roles,
        entitlements,
        scope: scope(creator, request)?,
        region: creator.region.clone(),
        project: creator.project.clone(),
    })
}

fn scope(creator: &Principal, request: &KeyRequest) -> Result<Scope, ApiError> {
    let invalid = |message: String| ApiError::invalid("invalid_key", message, "Correct the field.");
    let actions = match &request.actions {
        Some(names) => names
            .iter()
            .map(|name| name.parse::<Action>().map_err(|error| invalid(error.to_string())))
            .collect::<Result<_, _>>()?,
        // What is about the whole tenant is nothing for a key for paths.
        None => ORDINARY.into_iter().filter(|action| request.paths.is_none() || action.fits_paths()).collect(),
    };
    let paths = request.paths.clone();
    if let Some(paths) = &paths {
        if paths.is_empty() || paths.len() > MAX_PATHS {
            return Err(invalid(format!("`paths` names 1 to {MAX_PATHS} paths")));
        }
        if let Some(path) = paths.iter().find(|path| *path.tenant() != creator.tenant) {
            return Err(invalid(format!("`{path}` is not in your tenant")));
        }
    }
    let scope = Scope { actions, paths, read_only: request.read_only };
    match scope.void_action() {
        Some(action) => {
            let message = format!("`{action}` is about the whole tenant, and a key for `paths` is not");
            Err(ApiError::invalid("invalid_key", message, "Make two keys: one for paths, one for the whole tenant."))
        }
        None => Ok(scope),
    }
}

fn info(record: KeyRecord) -> KeyInfo {
    let KeyGrants { roles, entitlements, scope, .. } = record.grants;
    KeyInfo {
        id: record.id,
        name: record.name,
        user: record.user,
        creator: record.creator,
        roles: roles.into_iter().collect(),
        entitlements: entitlements.iter().map(ToString::to_string).collect(),
        actions: scope.actions.iter().map(ToString::to_string).collect(),
        paths: scope.paths,
        read_only: scope.read_only,
        created_ms: record.created_ms,
        expires_ms: record.expires_ms,
        revoked_ms: record.revoked_ms,
        last_used_ms: record.last_used_ms,
    }
}
