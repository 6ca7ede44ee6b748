//! Conditions that are looked at before Cedar is asked.
//!
//! Most forbids of an operator's say at their very beginning what they are about: `resource.path like "…"`, or
//! `resource.labels.contains("…")`. Where that does not hold, Cedar looks at nothing else of the policy, which neither
//! matches nor is in error. So does this, on the request's own values, for the few forms that it understands; of any other
//! it says nothing, and Cedar is asked. The base rules are always asked of Cedar.

use cedar_policy::Policy;
use serde_json::Value as Json;

use crate::request::{Attributes, Kind, Request, Value};

/// What a policy looks at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Guard {
    Has(Attribute),
    Equals(Attribute, Value),
    Contains(Attribute, Value),
    /// What stands between the wildcards of a pattern.
    Like(Attribute, Vec<String>),
    Either(Box<Guard>, Box<Guard>),
}

/// One attribute of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    of: Of,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Principal,
    Resource,
    Context,
    /// `principal.tenant`
    Tenant,
}

impl Guard {
    /// What `policy` looks at first, where that is understood.
    pub(crate) fn of(policy: &Policy) -> Option<Self> {
        let json = policy.to_json().ok()?;
        let first = json.get("conditions")?.as_array()?.first()?;
        (first.get("kind")?.as_str()? == "when").then(|| first.get("body").and_then(expression)).flatten()
    }

    /// Whether it certainly does not hold.
    pub(crate) fn fails(&self, request: &Request) -> bool {
        match self {
            // Its tenant is known of a user alone.
            Self::Has(Attribute { of: Of::Tenant, .. }) if request.principal.link.kind != Kind::User => false,
            Self::Has(Attribute { of, name }) => {
                of.attributes(request).is_some_and(|attributes| !attributes.contains_key(name.as_str()))
            }
            Self::Equals(attribute, literal) => match attribute.value(request) {
                Some(value) => std::mem::discriminant(value) == std::mem::discriminant(literal) && value != literal,
                None => false,
            },
            Self::Contains(attribute, literal) => match attribute.value(request) {
                Some(Value::Set(values)) => !values.contains(literal),
                Some(_) | None => false,
            },
            Self::Like(attribute, parts) => match attribute.value(request) {
                Some(Value::Text(text)) => !matches(parts, text),
                Some(_) | None => false,
            },
            Self::Either(one, other) => one.fails(request) && other.fails(request),
        }
    }
}

impl Attribute {
    fn value<'a>(&self, request: &'a Request) -> Option<&'a Value> {
        self.of.attributes(request)?.get(self.name.as_str())
    }
}

impl Of {
    fn attributes(self, request: &Request) -> Option<&Attributes> {
        match self {
            Self::Principal => Some(&request.principal.attributes),
            Self::Resource => Some(&request.resource.attributes),
            Self::Context => Some(&request.context),
            // Where it is the resource, that is what Cedar is given.
            Self::Tenant => {
                let tenant = request.tenant.as_ref().filter(|tenant| tenant.link != request.resource.link)?;
                let own = request.principal.attributes.get("tenant");
                (own == Some(&Value::Link(tenant.link.clone()))).then_some(&tenant.attributes)
            }
        }
    }
}

fn expression(json: &Json) -> Option<Guard> {
    let (operator, operands) = json.as_object()?.iter().next()?;
    let operand = |name: &str| operands.get(name);
    match operator.as_str() {
        // The first is looked at first, and alone where it does not hold.
        "&&" => expression(operand("left")?),
        "||" => {
            let (one, other) = (expression(operand("left")?)?, expression(operand("right")?)?);
            Some(Guard::Either(Box::new(one), Box::new(other)))
        }
        "has" => {
            let name = operand("attr")?.as_str()?.to_owned();
            Some(Guard::Has(Attribute { of: of(operand("left")?)?, name }))
        }
        "==" => Some(Guard::Equals(attribute(operand("left")?)?, literal(operand("right")?)?)),
        "contains" => Some(Guard::Contains(attribute(operand("left")?)?, literal(operand("right")?)?)),
        "like" => Some(Guard::Like(attribute(operand("left")?)?, parts(operand("pattern")?)?)),
        _ => None,
    }
}

fn attribute(json: &Json) -> Option<Attribute> {
    let access = json.get(".")?;
    Some(Attribute { of: of(access.get("left")?)?, name: access.get("attr")?.as_str()?.to_owned() })
}

fn of(json: &Json) -> Option<Of> {
    match json.get("Var").and_then(Json::as_str) {
        Some("principal") => Some(Of::Principal),
        Some("resource") => Some(Of::Resource),
        Some("context") => Some(Of::Context),
        Some(_) => None,
        None => {
            let attribute = attribute(json)?;
            (attribute.of == Of::Principal && attribute.name == "tenant").then_some(Of::Tenant)
        }
    }
}

fn literal(json: &Json) -> Option<Value> {
    match json.get("Value")? {
        Json::Bool(value) => Some(Value::Bool(*value)),
        Json::Number(value) => value.as_i64().map(Value::Long),
        Json::String(value) => Some(Value::Text(value.clone())),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

/// A pattern, cut at its wildcards.
fn parts(json: &Json) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    for element in json.as_array()? {
        match (element.as_str(), element.get("Literal").and_then(Json::as_str)) {
            (Some("Wildcard"), _) => parts.push(String::new()),
            (None, Some(literal)) => parts.last_mut()?.push_str(literal),
            _ => return None,
        }
    }
    Some(parts)
}

fn matches(parts: &[String], text: &str) -> bool {
    let [first, middle @ .., last] = parts else {
        return parts.first().is_some_and(|whole| whole == text);
    };
    let ends = text.strip_prefix(first.as_str()).and_then(|rest| rest.strip_suffix(last.as_str()));
    let Some(mut rest) = ends else { return false };
    middle.iter().all(|part| match rest.split_once(part.as_str()) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => part.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::case::CaseFile;
    use crate::policies::Policies;

    fn set(condition: &str) -> (Policies, Option<Guard>) {
        let scope = r#"principal, action == Action::"tree_read", resource"#;
        let text = format!("forbid ({scope}) when {{ {condition} }};");
        let policy = text.parse::<cedar_policy::PolicySet>().unwrap().policies().next().unwrap().clone();
        let set = Policies::new(&[]).unwrap().with_tenant(&[("own".to_owned(), text)]).unwrap();
        (set, Guard::of(&policy))
    }

    /// The request of one case.
    fn request(path: &str, more: &str) -> Request {
        let text = format!(
            r#"{{"case": [{{"name": "x", "principal": {{"tenant": "acme", "user": "ana", "roles": ["x"]}},
                "action": "tree_read", "tenant": {{"plan": "free"}}, "expect": "allow", {more}
                "resource": {{"path": {{"at": {path:?}, "labels": ["draft"]}}}}}}]}}"#
        );
        serde_json::from_str::<CaseFile>(&text).unwrap().cases.first().unwrap().request().unwrap()
    }

    #[test]
    fn a_guard_fails_only_where_cedar_says_no() {
        let request = request("/tenants/acme/d/x", r#""context": {"branch": "main"},"#);
        for (condition, fails) in [
            (r#"resource.path like "/tenants/acme/e/*""#, true),
            (r#"resource.path like "/tenants/acme/d/*""#, false),
            (r#"resource.path like "*/x" || resource.path like "*/y""#, false),
            (r#"resource.path like "*/z" || resource.path like "*/y""#, true),
            (r#"resource.labels.contains("final") && principal.roles.contains("x")"#, true),
            (r#"resource.labels.contains("draft") && principal.roles.contains("y")"#, false),
            (r#"context has run && principal.name == "ana""#, true),
            (r#"context has branch && context.branch == "x""#, false),
            (r#"principal.tenant has region"#, true),
            (r#"principal.tenant has plan && principal.tenant.plan == "x""#, false),
            (r#"principal.name == "bob""#, true),
            (r#"principal.name == "ana""#, false),
            ("resource.protected == true", true),
        ] {
            let (policies, guard) = set(condition);
            let guard = guard.expect(condition);
            assert_eq!(guard.fails(&request), fails, "{condition}");
            // Every answer of a test is compared with what all policies say together.
            assert!(!fails || policies.ask(&request).allowed, "{condition}");
        }
        for condition in [
            "true",
            "resource.protected",
            r#"!(resource.path like "x")"#,
            r#"resource.path like "x" || true"#,
            r#"resource.tenant has plan && resource.tenant.plan == "x""#,
            r#"principal.tenant == Tenant::"x""#,
            r#"["x"].contains(principal.name)"#,
            r#"(if true then principal.name else "x") == "x""#,
        ] {
            assert_eq!(set(condition).1, None, "{condition}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn patterns_match_what_cedar_says(
            pattern in proptest::collection::vec(prop_oneof!["[ab/é]{1,2}", Just("*".to_owned())], 0..6),
            text in "(/[abé]{1,3}){1,3}",
        ) {
            let request = request(&format!("/tenants/acme{text}"), r#""context": {"branch": "main"},"#);
            for pattern in [pattern.concat(), format!("/tenants/acme{}", pattern.concat()), format!("*{}", pattern.concat())] {
                let (policies, guard) = set(&format!("resource.path like {pattern:?}"));
                let allowed = policies.ask(&request).allowed;
                prop_assert_eq!(guard.unwrap().fails(&request), allowed, "{} {}", pattern, text);
            }
        }
    }
}
