//! From the texts that people write to sets of policies.

use std::collections::BTreeSet;

use cedar_policy::{Effect, Policy, PolicyId, PolicySet, ValidationMode, ValidationWarning, Validator};

use crate::bounds;
use crate::policies::{MAX_NAME, MAX_TENANT_POLICY_BYTES, PolicyError};
use crate::scope::SCOPE_POLICY;

/// The base rules.
pub(crate) const BASE: &str = include_str!("base.cedar");
const BASE_FILE: &str = "base.cedar";
/// Most bytes of one operator policy file.
pub(crate) const MAX_FILE_BYTES: usize = 1024 * 1024;
/// Most different problems of a set that are told.
const MAX_PROBLEMS: usize = 20;
/// How the ids of tenants' policies begin.
const TENANT_PREFIX: &str = "tenant/";

/// The base rules as they are built in, whatever base a set in a test has.
pub(crate) fn base_rules() -> Result<PolicySet, PolicyError> {
    base(BASE)
}

/// Base rules.
pub(crate) fn base(text: &str) -> Result<PolicySet, PolicyError> {
    let mut set = PolicySet::new();
    add_file(&mut set, BASE_FILE, text)?;
    Ok(set)
}

/// That a set fits the schema, strictly.
pub(crate) fn validate(validator: &Validator, set: &PolicySet) -> Result<(), PolicyError> {
    let result = validator.validate(set, ValidationMode::Strict);
    // What can never match is not what its author meant.
    let idle = result.validation_warnings().filter(|warning| matches!(warning, ValidationWarning::ImpossiblePolicy(_)));
    // Cedar tells one for each kind of principal and each place, in no order.
    let problems: BTreeSet<String> =
        result.validation_errors().map(ToString::to_string).chain(idle.map(ToString::to_string)).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    let mut problems: Vec<String> = problems.into_iter().take(MAX_PROBLEMS).collect();
    problems.extend((more > 0).then(|| format!("and {more} more")));
    Err(PolicyError::Invalid { problems })
}

/// A tenant's policy: one whole forbid.
pub(crate) fn tenant_policy(name: &str, text: &str) -> Result<Policy, PolicyError> {
    let file = || name.to_owned();
    let fits = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !fits {
        return Err(PolicyError::Name { name: name.chars().take(64).flat_map(char::escape_default).collect() });
    }
    if text.len() > MAX_TENANT_POLICY_BYTES {
        return Err(PolicyError::TooLarge { file: file(), most: MAX_TENANT_POLICY_BYTES });
    }
    let parsed = bounds::parse(&file(), text)?;
    if parsed.templates().next().is_some() {
        return Err(PolicyError::Template { file: file() });
    }
    let mut policies = parsed.policies();
    match (policies.next(), policies.next()) {
        (Some(policy), None) if policy.effect() == Effect::Forbid => {
            Ok(policy.new_id(PolicyId::new(format!("{TENANT_PREFIX}{name}"))))
        }
        _ => Err(PolicyError::NotOneForbid { file: file() }),
    }
}

/// Adds what an operator's file holds.
pub(crate) fn add_file(set: &mut PolicySet, file: &str, text: &str) -> Result<(), PolicyError> {
    let file = || file.to_owned();
    if text.len() > MAX_FILE_BYTES {
        return Err(PolicyError::TooLarge { file: file(), most: MAX_FILE_BYTES });
    }
    let parsed = bounds::parse(&file(), text)?;
    if parsed.templates().next().is_some() {
        return Err(PolicyError::Template { file: file() });
    }
    for policy in parsed.policies() {
        let id = match policy.annotation("id") {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => format!("{}#{}", file(), policy.id()),
        };
        if id == SCOPE_POLICY || id.starts_with(TENANT_PREFIX) {
            return Err(PolicyError::DuplicateId { file: file(), id });
        }
        set.add(policy.new_id(PolicyId::new(&id))).map_err(|_taken| PolicyError::DuplicateId { file: file(), id })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::Policies;

    #[test]
    fn each_problem_of_a_policy_is_told_once_and_not_without_end() {
        let base = Policies::new(&[]).unwrap();
        let told = |conditions: Vec<String>| {
            let text = format!("forbid (principal, action, resource) when {{ {} }};", conditions.join(" || "));
            match base.with_tenant(&[("x".to_owned(), text)]).unwrap_err() {
                PolicyError::Invalid { problems } => problems,
                other => panic!("{other}"),
            }
        };
        let same = told(vec!["principal has nothing && 1 == \"1\"".to_owned(); 10]);
        assert!(!same.is_empty() && same.len() < 5, "{same:?}");
        let many = told((0..40).map(|n| format!("context.nothing{n} == 1")).collect());
        assert_eq!(many.len(), MAX_PROBLEMS + 1, "{many:?}");
        assert!(many.last().unwrap().starts_with("and ") && many.last().unwrap().ends_with(" more"), "{many:?}");
    }
}
