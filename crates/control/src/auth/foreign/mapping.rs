//! From an issuer's claims to who asks here. What does not fit is refused: nothing is guessed or cut.

use std::collections::BTreeSet;

use bailey_policy::{CredentialId, CredentialKind, Entitlement, Operator, Principal, ServedTenants, ServiceAccount};
use bailey_protocol::id::TenantId;
use serde_json::{Map, Value};

use super::super::claims::{MAX_ROLES, RoleName, is_label};
use super::super::verify::{AuthError, Identity};
use super::config::{ClaimPath, IssuerConfig, MappingConfig};
use super::user_name;

/// Most values of a list of a claim.
const MAX_VALUES: usize = 256;

/// When a token holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// Since when, in seconds since 1970: its `iat`.
    pub(super) issued_s: u64,
    /// Until when, leeway included.
    pub(super) valid_until_ms: u64,
}

/// Who a token with these claims speaks for. Signature, times, issuer and audience hold already.
pub(super) fn identity(config: &IssuerConfig, claims: &Map<String, Value>, held: Held) -> Result<Identity, AuthError> {
    let Held { issued_s, valid_until_ms } = held;
    let credential = CredentialId { kind: CredentialKind::Token, id: token_id(claims) };
    let lists = |path: &ClaimPath, value: &str| Ok::<_, AuthError>(values(claims, path)?.contains(&value));
    for rule in &config.services {
        if lists(&rule.claim, &rule.value)? {
            let tenants = served(&rule.tenants);
            let name = rule.name.to_string();
            let roles = rule.roles.iter().cloned().map(String::from).collect();
            let entitlements = rule.entitlements.clone();
            return Ok(Identity::Service(ServiceAccount {
                name,
                roles,
                entitlements,
                tenants,
                valid_until_ms,
                credential,
            }));
        }
    }
    let user = user(&config.claims, claims)?;
    let roles = roles(&config.claims, claims)?;
    for rule in &config.operators {
        if lists(&rule.claim, &rule.value)? {
            let name = user.to_string();
            return Ok(Identity::Operator(Operator { name, roles, valid_until_ms, credential }));
        }
    }
    let mut principal = Principal::new(tenant(&config.claims, claims)?, user);
    principal.roles = roles;
    principal.entitlements = entitlements(&config.claims, claims)?;
    principal.region = label(claims, config.claims.region_claim.as_ref(), "region")?;
    principal.project = label(claims, config.claims.project_claim.as_ref(), "project")?;
    principal.issued_s = issued_s;
    principal.valid_until_ms = valid_until_ms;
    principal.credential = credential;
    Ok(Identity::User(principal))
}

/// Names the token in what is kept of it, where its issuer does.
fn token_id(claims: &Map<String, Value>) -> String {
    let id = claims.get("jti").and_then(Value::as_str).unwrap_or("");
    id.chars().filter(char::is_ascii_graphic).take(64).collect()
}

fn tenant(mapping: &MappingConfig, claims: &Map<String, Value>) -> Result<TenantId, AuthError> {
    let fail = || AuthError::Claim { claim: "tenant" };
    let Some(path) = &mapping.tenant_claim else { return mapping.tenant.clone().ok_or_else(fail) };
    let named = text(claims, path).ok_or_else(fail)?;
    let tenant = if mapping.tenant_names.is_empty() {
        named.parse().map_err(|_unfit| fail())?
    } else {
        mapping.tenant_names.get(named).ok_or_else(fail)?.clone()
    };
    let served = mapping.tenants.iter().any(|name| name == "*" || name == tenant.as_str());
    if served { Ok(tenant) } else { Err(fail()) }
}

fn user(mapping: &MappingConfig, claims: &Map<String, Value>) -> Result<bailey_protocol::id::UserId, AuthError> {
    let named = text(claims, &mapping.user_claim);
    let id = named.and_then(|named| user_name::to_id(&mapping.user_prefix, named));
    id.ok_or(AuthError::Claim { claim: "user" })
}

fn roles(mapping: &MappingConfig, claims: &Map<String, Value>) -> Result<BTreeSet<String>, AuthError> {
    let fail = || AuthError::Claim { claim: "roles" };
    let Some(path) = &mapping.roles_claim else { return Ok(BTreeSet::new()) };
    let named = values(claims, path)?;
    let roles: BTreeSet<RoleName> = if mapping.role_names.is_empty() {
        // A role that was left out could be one that takes away.
        named.into_iter().map(|name| name.parse().map_err(|_unfit| fail())).collect::<Result<_, _>>()?
    } else {
        named.into_iter().filter_map(|name| mapping.role_names.get(name).cloned()).collect()
    };
    if roles.len() > MAX_ROLES { Err(fail()) } else { Ok(roles.into_iter().map(String::from).collect()) }
}

fn entitlements(mapping: &MappingConfig, claims: &Map<String, Value>) -> Result<BTreeSet<Entitlement>, AuthError> {
    let claim = mapping.entitlements_claim.as_ref();
    let Some(path) = claim.filter(|path| at(claims, path).is_some()) else {
        return Ok(mapping.default_entitlements.clone());
    };
    let named = |name: &str| match mapping.entitlement_names.get(name) {
        Some(entitlement) => Some(*entitlement),
        None if mapping.entitlement_names.is_empty() => name.parse().ok(),
        None => None,
    };
    Ok(values(claims, path)?.into_iter().filter_map(named).collect())
}

fn label(
    claims: &Map<String, Value>,
    path: Option<&ClaimPath>,
    claim: &'static str,
) -> Result<Option<String>, AuthError> {
    let Some(path) = path else { return Ok(None) };
    if at(claims, path).is_none() {
        return Ok(None);
    }
    text(claims, path).filter(|text| is_label(text)).map(|text| Some(text.to_owned())).ok_or(AuthError::Claim { claim })
}

/// The tenants that a rule lists.
fn served(tenants: &[String]) -> ServedTenants {
    if tenants.iter().any(|name| name == "*") {
        return ServedTenants::All;
    }
    ServedTenants::Only(tenants.iter().filter_map(|name| name.parse().ok()).collect())
}

/// What is at `path`; an explicit null is nothing.
fn at<'a>(claims: &'a Map<String, Value>, path: &ClaimPath) -> Option<&'a Value> {
    let (first, rest) = path.names().split_first()?;
    let value = rest.iter().try_fold(claims.get(first)?, |value, name| value.as_object()?.get(name))?;
    (!value.is_null()).then_some(value)
}

fn text<'a>(claims: &'a Map<String, Value>, path: &ClaimPath) -> Option<&'a str> {
    at(claims, path)?.as_str()
}

/// The values of a list, or of a text of words. Nothing where there is no such claim.
fn values<'a>(claims: &'a Map<String, Value>, path: &ClaimPath) -> Result<Vec<&'a str>, AuthError> {
    let fail = || AuthError::Claim { claim: "list" };
    let all: Vec<&str> = match at(claims, path) {
        None => Vec::new(),
        Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_str().ok_or_else(fail)).collect::<Result<_, _>>()?
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_) | Value::Null) => return Err(fail()),
    };
    if all.len() > MAX_VALUES { Err(fail()) } else { Ok(all) }
}
