//! Token exchange (RFC 8693): a service account gets a short token of a user of a tenant that it acts for.
//!
//! The user is either proven, by a token of its own from a trusted issuer, or said to be, by its name. A proven user
//! keeps what its token grants and for no longer. One that is only named has what its own last token granted, as far as
//! the service account's token lists it too; one that was never seen has what that lists. A service account whose token
//! lists nothing names users who may nothing, and none of them is ever an `admin`. Both can be narrowed, and what is done
//! with the token carries the service's name.

use std::collections::BTreeSet;

use bailey_policy::{
    Action, CredentialKind, Entitlement, ExchangePermit, Principal, Scope, ServedTenants, ServiceAccount,
};
use bailey_protocol::api::identity::{TokenAnswer, TokenForm};
use bailey_protocol::id::{TenantId, UserId};
use bailey_protocol::path::TreePath;

use crate::api_error::ApiError;
use crate::auth::{Identity, RoleName, TokenExtras, TokenSpec, is_machine};
use crate::control::{Control, ServiceCaller};
use crate::db::Rights;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const USER: &str = "urn:bailey:token-type:user";
/// The role that no service gives.
const ADMIN: &str = "admin";
/// Most words of a scope.
const MAX_WORDS: usize = 128;

/// Of whom the new token speaks, before it is narrowed.
struct Subject {
    tenant: TenantId,
    user: UserId,
    /// Of a proven user: what its token grants.
    proven: Option<Principal>,
}

/// What a scope asks for.
#[derive(Default)]
struct Wanted {
    entitlements: BTreeSet<Entitlement>,
    roles: BTreeSet<RoleName>,
    actions: BTreeSet<Action>,
    paths: Vec<TreePath>,
    read_only: bool,
}

/// Exchanges a service account's right for a user's token.
///
/// # Errors
/// When the form does not fit, the subject does not hold, or the service does not act for that tenant.
pub async fn exchange(control: &Control, caller: &ServiceCaller, form: TokenForm) -> Result<TokenAnswer, ApiError> {
    if form.grant_type != GRANT {
        let hint = "Send `grant_type=urn:ietf:params:oauth:grant-type:token-exchange`.";
        return Err(ApiError::invalid("unsupported_grant_type", "the grant type is another", hint));
    }
    if form.requested_token_type.as_deref().is_some_and(|kind| kind != ACCESS_TOKEN) {
        let hint = "Leave `requested_token_type` out.";
        return Err(ApiError::invalid("invalid_request", "no token of that type is given", hint));
    }
    let wanted = form.scope.as_deref().map(wanted).transpose()?;
    let subject = subject(control, &form).await?;
    let judge = control.policies().current().judge_service(&caller.service, control.now_ms());
    let decision = judge.exchange(&subject.tenant, &control.tenant_facts().of(&subject.tenant));
    let permit = control.service_permit(caller, decision).await?;
    let result = async {
        let grants = match &subject.proven {
            Some(user) => proven_grants(user, wanted.as_ref())?,
            None => {
                super::write_notes(control).await?;
                let known = control.db().subject(&permit, &subject.user).await?;
                named_grants(&caller.service, known.map(|known| known.rights), wanted.as_ref())?
            }
        };
        let scope = wanted.map(|wanted| wanted.narrowing(&subject.tenant)).transpose()?.flatten();
        sign(control, caller, &permit, subject, grants, scope)
    };
    let result = result.await;
    control.service_audited(caller, &permit, result).await
}

async fn subject(control: &Control, form: &TokenForm) -> Result<Subject, ApiError> {
    match form.subject_token_type.as_str() {
        USER => {
            let fail = || {
                let hint = "Send `subject_token={tenant}/{user}`.";
                ApiError::invalid("invalid_request", "the subject is no user of a tenant", hint)
            };
            let (tenant, user) = form.subject_token.split_once('/').ok_or_else(fail)?;
            let tenant = tenant.parse().map_err(|error| fail().because(error))?;
            let user: UserId = user.parse().map_err(|error| fail().because(error))?;
            if is_machine(&user) { Err(fail()) } else { Ok(Subject { tenant, user, proven: None }) }
        }
        ACCESS_TOKEN | JWT => {
            let fail = || {
                let hint = "Send a user's own token of a trusted issuer.";
                ApiError::invalid("invalid_request", "the subject's token does not hold", hint)
            };
            let identity = control.identify(&form.subject_token).await.map_err(|error| fail().because(error))?;
            match identity {
                Identity::User(user) if user.credential.kind == CredentialKind::Token => {
                    Ok(Subject { tenant: user.tenant.clone(), user: user.user.clone(), proven: Some(user) })
                }
                // What was exchanged once, and keys, are not exchanged again: nobody could tell who acts for whom.
                Identity::User(_) | Identity::Service(_) | Identity::Operator(_) => Err(fail()),
            }
        }
        _ => {
            let hint = "Use `urn:ietf:params:oauth:token-type:access_token` or `urn:bailey:token-type:user`.";
            Err(ApiError::invalid("invalid_request", "the subject's type is unknown", hint))
        }
    }
}

fn sign(
    control: &Control,
    caller: &ServiceCaller,
    permit: &ExchangePermit,
    subject: Subject,
    grants: Grants,
    scope: Option<Scope>,
) -> Result<TokenAnswer, ApiError> {
    // INVARIANT: policy said so already; this holds even where a policy set would not.
    let served = match &caller.service.tenants {
        ServedTenants::All => true,
        ServedTenants::Only(tenants) => tenants.contains(permit.tenant()),
    };
    if !served || subject.tenant != *permit.tenant() {
        let hint = "Ask for a user of a tenant that the service account is for.";
        return Err(ApiError::new(crate::api_error::ErrorKind::Denied, "invalid_target", "another tenant", hint));
    }
    control.standing().check_user(&subject.tenant, &subject.user)?;
    let now_ms = control.now_ms();
    let mut ttl_seconds = control.config().identity.max_exchanged.as_secs();
    if let Some(user) = &subject.proven {
        let leeway = crate::auth::LEEWAY_SECONDS;
        let left = user.valid_until_ms.saturating_sub(now_ms) / 1000;
        ttl_seconds = ttl_seconds.min(left.saturating_sub(leeway)).max(1);
    }
    let Grants { roles, entitlements } = grants;
    let spec = TokenSpec { tenant: subject.tenant, user: subject.user, roles, entitlements, ttl_seconds };
    let (region, project) = subject.proven.map_or((None, None), |user| (user.region, user.project));
    let actor = caller.service.name.parse().map_err(ApiError::internal)?;
    let extras = TokenExtras { region, project, actor: Some(actor), scope };
    let token = control.issuer().mint_with(&spec, &extras, now_ms, control.rng()).map_err(|error| {
        ApiError::invalid("invalid_scope", "the token would be too large", "Ask for less.").because(error)
    })?;
    Ok(TokenAnswer {
        access_token: token.reveal().to_owned(),
        issued_token_type: ACCESS_TOKEN.to_owned(),
        token_type: "Bearer".to_owned(),
        expires_in: ttl_seconds,
    })
}

/// Roles and entitlements of the new token.
struct Grants {
    roles: BTreeSet<RoleName>,
    entitlements: BTreeSet<Entitlement>,
}

fn beyond(what: String) -> ApiError {
    ApiError::invalid("invalid_scope", what, "Ask for no more than the subject has and the service account may name.")
}

fn proven_grants(user: &Principal, wanted: Option<&Wanted>) -> Result<Grants, ApiError> {
    // A token's own roles go along: one of them may be what a policy forbids by.
    let own = user.roles.iter().map(|role| role.parse()).collect::<Result<_, _>>().map_err(ApiError::internal)?;
    narrowed(Grants { roles: own, entitlements: user.entitlements.clone() }, wanted)
}

/// What a user who is only named has: what is known of it, within what the service account's token lists.
fn named_grants(service: &ServiceAccount, known: Option<Rights>, wanted: Option<&Wanted>) -> Result<Grants, ApiError> {
    let listed = service.roles.iter().filter(|role| role.as_str() != ADMIN);
    let asked = |role: &str| wanted.is_some_and(|wanted| wanted.roles.iter().any(|asked| asked.as_str() == role));
    let (roles, entitlements): (Vec<&String>, BTreeSet<Entitlement>) = match &known {
        Some(known) => {
            let both = service.entitlements.intersection(&known.entitlements).copied().collect();
            (listed.filter(|role| known.roles.contains(*role)).collect(), both)
        }
        None => (listed.filter(|role| asked(role)).collect(), service.entitlements.clone()),
    };
    let roles = roles.into_iter().map(|role| role.parse()).collect::<Result<_, _>>().map_err(ApiError::internal)?;
    narrowed(Grants { roles, entitlements }, wanted)
}

/// All of `has`, or of its entitlements those that are asked for. To ask for more is an error.
fn narrowed(has: Grants, wanted: Option<&Wanted>) -> Result<Grants, ApiError> {
    let Some(wanted) = wanted else { return Ok(has) };
    if let Some(more) = wanted.entitlements.difference(&has.entitlements).next() {
        return Err(beyond(format!("the subject has no `{more}`")));
    }
    if let Some(more) = wanted.roles.difference(&has.roles).next() {
        return Err(beyond(format!("the subject is no `{}`", more.as_str())));
    }
    let entitlements = if wanted.entitlements.is_empty() { has.entitlements } else { wanted.entitlements.clone() };
    Ok(Grants { roles: has.roles, entitlements })
}

fn wanted(scope: &str) -> Result<Wanted, ApiError> {
    let fail = |word: &str| {
        let message = format!("`{}` is no word of a scope", word.chars().take(64).collect::<String>().escape_default());
        let hint = "Use entitlements, `role:NAME`, `action:NAME`, `path:PATH` and `read_only`.";
        ApiError::invalid("invalid_scope", message, hint)
    };
    let words: Vec<&str> = scope.split_ascii_whitespace().collect();
    if words.is_empty() || words.len() > MAX_WORDS {
        return Err(ApiError::invalid("invalid_scope", "a scope has 1 to 128 words", "Leave `scope` out."));
    }
    let mut wanted = Wanted::default();
    for word in words {
        match word.split_once(':') {
            Some(("role", name)) => drop(wanted.roles.insert(name.parse().map_err(|_unfit| fail(word))?)),
            Some(("action", name)) => drop(wanted.actions.insert(name.parse().map_err(|_unfit| fail(word))?)),
            Some(("path", path)) => wanted.paths.push(path.parse().map_err(|_unfit| fail(word))?),
            Some(_) => return Err(fail(word)),
            None if word == "read_only" => wanted.read_only = true,
            None => drop(wanted.entitlements.insert(word.parse().map_err(|_unfit| fail(word))?)),
        }
    }
    Ok(wanted)
}

impl Wanted {
    /// What a token for a tenant's user is narrowed to, where the scope says more than entitlements and roles.
    fn narrowing(self, tenant: &TenantId) -> Result<Option<Scope>, ApiError> {
        if let Some(path) = self.paths.iter().find(|path| path.tenant() != tenant) {
            let message = format!("`{path}` is not in the subject's tenant");
            return Err(ApiError::invalid("invalid_scope", message, "Name paths of that tenant."));
        }
        if self.actions.is_empty() && self.paths.is_empty() && !self.read_only {
            return Ok(None);
        }
        let paths = if self.paths.is_empty() { None } else { Some(self.paths) };
        let fits = |action: &Action| paths.is_none() || action.fits_paths();
        let actions =
            if self.actions.is_empty() { Action::ALL.iter().copied().filter(fits).collect() } else { self.actions };
        let scope = Scope { actions, paths, read_only: self.read_only };
        match scope.void_action() {
            Some(action) => {
                let message = format!("`{action}` is about the whole tenant, and a token for paths is not");
                Err(ApiError::invalid("invalid_scope", message, "Leave one of the two out."))
            }
            None => Ok(Some(scope)),
        }
    }
}
