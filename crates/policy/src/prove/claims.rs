//! What must never be allowed, as policies: a set keeps a claim when it allows nothing that its policies match.

use cedar_policy::{Effect, Policy, PolicyId, PolicySet};

use crate::load::base_rules as rules;
use crate::policies::PolicyError;

const TENANTS_APART: &str = r#"
    permit (principal is User, action, resource)
    unless { resource.tenant == principal.tenant };
    permit (principal is ServiceAccount, action, resource)
    unless { principal.any_tenant || principal.tenants.contains(resource) };
"#;

/// What one tenant's user, or a service account that does not serve the tenant, does to what is another's.
pub(super) fn tenants_apart() -> Result<PolicySet, PolicyError> {
    TENANTS_APART
        .parse()
        .map_err(|source| PolicyError::Parse { file: "tenants apart".to_owned(), source: Box::new(source) })
}

/// What each base rule forbids, by its name.
pub(super) fn base_rules() -> Result<Vec<(String, PolicySet)>, PolicyError> {
    let rules = rules()?;
    let mut forbids: Vec<&Policy> = rules.policies().filter(|policy| policy.effect() == Effect::Forbid).collect();
    forbids.sort_by_key(|policy| policy.id().to_string());
    forbids.into_iter().map(|policy| Ok((policy.id().to_string(), matched(policy)?))).collect()
}

/// A permit of all that `policy` matches.
fn matched(policy: &Policy) -> Result<PolicySet, PolicyError> {
    let unusable =
        |source: Box<dyn std::error::Error + Send + Sync>| PolicyError::Parse { file: policy.id().to_string(), source };
    let mut json = policy.to_json().map_err(|source| unusable(Box::new(source)))?;
    if let Some(effect) = json.get_mut("effect") {
        *effect = serde_json::Value::String("permit".to_owned());
    }
    let permit =
        Policy::from_json(Some(PolicyId::new("matched")), json).map_err(|source| unusable(Box::new(source)))?;
    PolicySet::from_policies([permit]).map_err(|source| unusable(Box::new(source)))
}
