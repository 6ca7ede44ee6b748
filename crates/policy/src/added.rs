//! What the policies besides the base rules may be about, and what they look at. Read from their text: what is not
//! understood counts as looking.

use cedar_policy::{ActionConstraint, Policy};
use serde_json::Value;

use crate::vocabulary::ActionWords;

/// Attributes that say on which branch something is asked.
const OF_A_BRANCH: [&str; 3] = ["branch", "from", "protected"];

/// One policy that is not a base rule.
#[derive(Debug, Clone)]
pub(crate) struct Added {
    about: ActionConstraint,
    looks_at_branch: bool,
}

impl Added {
    pub(crate) fn of(policy: &Policy, json: &Value) -> Self {
        Self { about: policy.action_constraint(), looks_at_branch: looks_at_branch(json) }
    }

    pub(crate) fn is_about(&self, action: &ActionWords) -> bool {
        action.fits(&self.about)
    }

    /// Whether its answer may be another on another branch.
    pub(crate) fn looks_at_branch(&self) -> bool {
        self.looks_at_branch
    }
}

fn looks_at_branch(json: &Value) -> bool {
    match json {
        Value::Array(items) => items.iter().any(looks_at_branch),
        Value::Object(fields) => fields.iter().any(|(operator, below)| match (operator.as_str(), below) {
            ("." | "has", Value::Object(access)) => {
                let other = access.get("attr").and_then(Value::as_str).is_some_and(|name| !OF_A_BRANCH.contains(&name));
                // Of the context, an attribute of another name says nothing of the branch.
                let left = access.get("left");
                !other || (!left.is_some_and(is_context) && left.is_some_and(looks_at_branch))
            }
            _ => is_context(json) || looks_at_branch(below),
        }),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The context as a whole, which a policy may compare or choose.
fn is_context(json: &Value) -> bool {
    json.get("Var").and_then(Value::as_str) == Some("context")
}

#[cfg(test)]
mod tests {
    use cedar_policy::PolicySet;

    use super::*;

    fn looks(condition: &str) -> bool {
        let text = format!("forbid (principal, action, resource) when {{ {condition} }};");
        let set: PolicySet = text.parse().unwrap();
        let policy = set.policies().next().unwrap();
        Added::of(policy, &policy.to_json().unwrap()).looks_at_branch()
    }

    #[test]
    fn a_policy_that_looks_at_the_branch_is_known_however_it_is_written() {
        for condition in [
            r#"context.branch == "secret""#,
            r#"context has branch && context["branch"] like "secret/*""#,
            "context has branch",
            "!(context has branch)",
            "resource.protected",
            r#"principal.name == "x" || (if true then resource.protected else false)"#,
            r#"context has from && ["secret"].contains(context.from)"#,
            r#"(if principal.name == "x" then context else context).branch == "secret""#,
            r#"context == {"branch": "secret"}"#,
            r#"{"c": context}.c.credential == "token""#,
        ] {
            assert!(looks(condition), "{condition}");
        }
        for condition in [
            "true",
            r#"resource.path == "/tenants/a/branch""#,
            r#"context.credential == "branch" && context has run"#,
            r#"resource.labels.contains("protected")"#,
            r#"principal.tenant.plan == "from""#,
        ] {
            assert!(!looks(condition), "{condition}");
        }
    }
}
