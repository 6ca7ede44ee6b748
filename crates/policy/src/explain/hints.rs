//! What policies compare attributes with, read from their own text once.

use std::collections::BTreeSet;

use cedar_policy::{Policy, PolicyId, PolicySet};
use serde_json::Value as Json;

use crate::request::Value;

/// Where an attribute stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Principal,
    Resource,
    Tenant,
    Context,
}

impl Place {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Resource => "resource",
            Self::Tenant => "principal.tenant",
            Self::Context => "context",
        }
    }
}

/// What one comparison says of one attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hint {
    policy: String,
    pub(super) place: Place,
    pub(super) name: String,
    /// Values that it is compared with.
    pub(super) literals: BTreeSet<Value>,
    /// Attributes that it is compared with.
    pub(super) same_as: Vec<(Place, String)>,
    /// Whether it is compared with whoever asks.
    pub(super) principal: bool,
}

/// What all policies of a set say of attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hints(Vec<Hint>);

/// What one comparison mentions.
#[derive(Debug, Default)]
struct Mentioned {
    attributes: Vec<(Place, String)>,
    literals: BTreeSet<Value>,
    principal: bool,
}

impl Hints {
    /// Takes in what a policy says, by its JSON.
    pub(crate) fn take(&mut self, policy: &PolicyId, json: &Json) {
        walk(json, policy.as_ref(), &mut self.0);
    }

    /// Of some policies. Without its JSON one gives no hints.
    pub(crate) fn of<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Self {
        let mut all = Self::default();
        for policy in policies {
            if let Ok(json) = policy.to_json() {
                all.take(policy.id(), &json);
            }
        }
        all
    }

    /// Of those policies that one set has and the other has not, or otherwise.
    pub(crate) fn of_changes(one: &PolicySet, other: &PolicySet) -> Self {
        let not_in = |set: &PolicySet, policy: &&Policy| {
            set.policy(policy.id()).is_none_or(|known| known.to_json().ok() != policy.to_json().ok())
        };
        let changed = one.policies().filter(|policy| not_in(other, policy));
        Self::of(changed.chain(other.policies().filter(|policy| not_in(one, policy))))
    }

    /// What is looked at, and what that is compared with.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = (Place, &str)> {
        self.0.iter().map(|hint| (hint.place, hint.name.as_str()))
    }

    pub(crate) fn joined<'a>(parts: impl Iterator<Item = &'a Self>) -> Self {
        Self(parts.flat_map(|part| part.0.iter().cloned()).collect())
    }

    /// Those of `first` before those of other policies.
    pub(super) fn in_order<'a>(&'a self, first: &'a [String]) -> impl Iterator<Item = &'a Hint> {
        let named = move |hint: &&Hint| first.contains(&hint.policy);
        let rest = move |hint: &&Hint| !first.contains(&hint.policy);
        self.0.iter().filter(named).chain(self.0.iter().filter(rest))
    }
}

const JOINS: [&str; 5] = ["&&", "||", "!", "if-then-else", "conditions"];

/// Goes down to each comparison: what is not joined from other conditions.
fn walk(json: &Json, policy: &str, hints: &mut Vec<Hint>) {
    match json {
        Json::Array(items) => items.iter().for_each(|item| walk(item, policy, hints)),
        Json::Object(fields) => {
            for (name, below) in fields {
                let joined = JOINS.contains(&name.as_str())
                    || matches!(name.as_str(), "body" | "left" | "right" | "arg" | "if" | "then" | "else");
                if joined {
                    walk(below, policy, hints);
                } else if !matches!(name.as_str(), "principal" | "action" | "resource" | "annotations") {
                    let mut mentioned = Mentioned::default();
                    mention(name, below, &mut mentioned);
                    add(mentioned, policy, hints);
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

fn add(mentioned: Mentioned, policy: &str, hints: &mut Vec<Hint>) {
    let Mentioned { attributes, literals, principal } = mentioned;
    for (place, name) in &attributes {
        let same_as = attributes.iter().filter(|other| (other.0, &other.1) != (*place, name)).cloned().collect();
        let (policy, name, literals) = (policy.to_owned(), name.clone(), literals.clone());
        hints.push(Hint { policy, place: *place, name, literals, same_as, principal });
    }
}

/// Collects what stands in an expression, `operator` being its outermost.
fn mention(operator: &str, json: &Json, found: &mut Mentioned) {
    match (operator, json) {
        ("Value", value) => found.literals.extend(literal(value)),
        ("Var", Json::String(variable)) if variable == "principal" => found.principal = true,
        ("." | "has", Json::Object(fields)) => {
            let attribute = fields.get("attr").and_then(Json::as_str);
            match (place(fields.get("left")), attribute) {
                (Some(place), Some(attribute)) => found.attributes.push((place, attribute.to_owned())),
                (None, _) | (_, None) => each(json, found),
            }
        }
        ("like", Json::Object(fields)) => {
            each(json, found);
            if let Some(Json::Array(parts)) = fields.get("pattern") {
                let text = parts.iter().filter_map(|part| part.get("Literal")?.as_str()).collect();
                found.literals.insert(Value::Text(text));
            }
        }
        (_, json) => each(json, found),
    }
}

fn each(json: &Json, found: &mut Mentioned) {
    match json {
        Json::Array(items) => items.iter().for_each(|item| each(item, found)),
        Json::Object(fields) => fields.iter().for_each(|(name, below)| mention(name, below, found)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Which of the things that a request knows attributes of an expression stands for.
fn place(expression: Option<&Json>) -> Option<Place> {
    let expression = expression?;
    match expression.get("Var").and_then(Json::as_str) {
        Some("principal") => return Some(Place::Principal),
        Some("resource") => return Some(Place::Resource),
        Some("context") => return Some(Place::Context),
        Some(_) | None => {}
    }
    let through = expression.get(".")?;
    let of = through.get("left")?.get("Var")?.as_str()?;
    (through.get("attr")?.as_str()? == "tenant" && of != "context").then_some(Place::Tenant)
}

fn literal(json: &Json) -> Option<Value> {
    match json {
        Json::Bool(value) => Some(Value::Bool(*value)),
        Json::Number(value) => value.as_i64().map(Value::Long),
        Json::String(value) => Some(Value::Text(value.clone())),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}
