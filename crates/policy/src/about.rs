//! Of one set of policies, those that are about one action, prepared for being asked.
//!
//! Most of what Cedar takes for a policy it takes before it looks at a condition: it puts scope and conditions together
//! anew each time. So the forbids of many policies are joined once into a single one, the *screen*, whose condition is
//! theirs with `||` between. Cedar evaluates it as it does them: where it does not match, none of them does, and none is
//! in error. Where it does, they are asked one by one, as a denial names those that made it.

use std::collections::{BTreeSet, HashSet};

use cedar_policy::{Effect, EntityTypeName, Policy, PolicyId, PolicySet, PrincipalConstraint, ResourceConstraint};
use serde_json::{Value, json};

use crate::bounds;
use crate::guard::Guard;
use crate::policies::PolicyError;
use crate::request::Request;
use crate::vocabulary::ActionWords;

/// Fewest forbids that are worth a screen.
const MANY: usize = 3;
/// Most forbids that are asked one by one before it is better to ask the screen.
const FEW: usize = 6;
/// The screen's name, which nobody sees, as what it denies is asked of the others, and which no policy can have.
const SCREEN: &str = "tenant//screen";

/// What a set says about one action.
#[derive(Debug)]
pub(crate) struct About {
    /// Each policy that may be about it.
    all: PolicySet,
    /// Allows what `all` allows, by the same permits.
    screen: Option<PolicySet>,
    /// Forbids, each by itself, with what it looks at first: where that does not hold, it need not be asked.
    guarded: Vec<(Guard, PolicySet)>,
    /// All others.
    rest: Option<PolicySet>,
}

impl About {
    /// Nothing, where no policy of `set` is about the action. The base rules, which are `base`, are asked of Cedar in any
    /// case.
    pub(crate) fn of(set: &PolicySet, base: &HashSet<PolicyId>, action: &ActionWords) -> Option<Self> {
        let fits = |policy: &&Policy| action.fits(&policy.action_constraint()) && scope(policy, action) != Fit::Never;
        let policies: Vec<&Policy> = set.policies().filter(fits).collect();
        if policies.is_empty() {
            return None;
        }
        // The whole says the same.
        let all = PolicySet::from_policies(policies.iter().copied().cloned()).unwrap_or_else(|_taken| set.clone());
        let prepared = bounds::on_own_stack(|| {
            let (mut guarded, mut unguarded) = (Vec::new(), Vec::new());
            for policy in &policies {
                let may_go = joins(policy, action) && !base.contains(policy.id());
                match may_go.then(|| Guard::of(policy)).flatten() {
                    Some(guard) => guarded.push((guard, screen(&[*policy], action)?)),
                    None => unguarded.push(*policy),
                }
            }
            let rest = if guarded.is_empty() { None } else { Some(screen(&unguarded, action)?) };
            let many = policies.iter().filter(|policy| joins(policy, action)).count() >= MANY;
            let screen = if many { Some(screen(&policies, action)?) } else { None };
            Ok((screen, guarded, rest))
        });
        // Without them it is only slower.
        let (screen, guarded, rest) = prepared.unwrap_or_default();
        Some(Self { all, screen, guarded, rest })
    }

    /// Each policy that may be about the action.
    pub(crate) fn all(&self) -> &PolicySet {
        &self.all
    }

    /// What is asked first about `request`: what these allow together, [`About::all`] allows by the same policies, and
    /// nothing else is.
    pub(crate) fn first(&self, request: &Request) -> Vec<&PolicySet> {
        if let Some(rest) = &self.rest {
            let left = self.guarded.iter().filter(|(guard, _)| !guard.fails(request)).map(|(_, set)| set);
            let sets: Vec<&PolicySet> = std::iter::once(rest).chain(left).take(FEW + 2).collect();
            if sets.len() <= FEW + 1 {
                return sets;
            }
        }
        vec![self.screen.as_ref().unwrap_or(&self.all)]
    }
}

/// Whether who asks, and what about, are always such as a policy is about, once its action is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Never,
    Sometimes,
    Always,
}

impl Fit {
    fn of(kind: &EntityTypeName, kinds: &BTreeSet<EntityTypeName>) -> Self {
        match (kinds.contains(kind), kinds.len()) {
            (false, _) => Self::Never,
            (true, 1) => Self::Always,
            (true, _) => Self::Sometimes,
        }
    }
}

fn scope(policy: &Policy, action: &ActionWords) -> Fit {
    let principal = match policy.principal_constraint() {
        PrincipalConstraint::Any => Fit::Always,
        PrincipalConstraint::Is(kind) => Fit::of(&kind, &action.principals),
        PrincipalConstraint::In(_) | PrincipalConstraint::Eq(_) | PrincipalConstraint::IsIn(_, _) => Fit::Sometimes,
    };
    let resource = match policy.resource_constraint() {
        ResourceConstraint::Any => Fit::Always,
        ResourceConstraint::Is(kind) => Fit::of(&kind, &action.resources),
        ResourceConstraint::In(_) | ResourceConstraint::Eq(_) | ResourceConstraint::IsIn(_, _) => Fit::Sometimes,
    };
    principal.min(resource)
}

/// Whether a policy is a forbid that is told by its conditions alone, once its action is.
fn joins(policy: &Policy, action: &ActionWords) -> bool {
    policy.effect() == Effect::Forbid && scope(policy, action) == Fit::Always
}

/// These policies, with their forbids joined where that can be.
fn screen(policies: &[&Policy], action: &ActionWords) -> Result<PolicySet, PolicyError> {
    let unusable =
        |source: Box<dyn std::error::Error + Send + Sync>| PolicyError::Parse { file: SCREEN.to_owned(), source };
    let (joined, alone): (Vec<&Policy>, Vec<&Policy>) =
        policies.iter().copied().partition(|policy| joins(policy, action));
    if joined.len() < MANY {
        let all = PolicySet::from_policies(policies.iter().copied().cloned());
        return all.map_err(|error| unusable(Box::new(error)));
    }
    let conditions = joined.iter().map(|policy| condition(policy)).collect::<Result<Vec<_>, _>>();
    let conditions = conditions.map_err(|error| unusable(Box::new(error)))?;
    let any = json!({ "op": "All" });
    let one = json!({
        "effect": "forbid", "principal": any, "action": any, "resource": any,
        "conditions": [{ "kind": "when", "body": any_of(conditions) }],
    });
    let one = Policy::from_json(Some(PolicyId::new(SCREEN)), one).map_err(|error| unusable(Box::new(error)))?;
    let policies = std::iter::once(one).chain(alone.iter().copied().cloned());
    PolicySet::from_policies(policies).map_err(|error| unusable(Box::new(error)))
}

/// What has to hold besides the scope for a policy to match.
fn condition(policy: &Policy) -> Result<Value, cedar_policy::PolicyToJsonError> {
    let mut json = policy.to_json()?;
    let clauses = json.get_mut("conditions").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
    let holds = |mut clause: Value| {
        let body = clause.get_mut("body").map(Value::take).unwrap_or_default();
        match clause.get("kind").and_then(Value::as_str) {
            Some("when") => body,
            Some("unless") => json!({ "!": { "arg": body } }),
            // It is no condition, so that no screen comes of it.
            Some(_) | None => Value::Null,
        }
    };
    let all = clauses.into_iter().map(holds).reduce(|left, right| json!({ "&&": { "left": left, "right": right } }));
    Ok(all.unwrap_or_else(|| json!({ "Value": true })))
}

/// No deeper than it has to be: what reads it goes down on the stack.
fn any_of(mut conditions: Vec<Value>) -> Value {
    match conditions.len() {
        0 => json!({ "Value": false }),
        1 => conditions.remove(0),
        many => {
            let right = conditions.split_off(many / 2);
            json!({ "||": { "left": any_of(conditions), "right": any_of(right) } })
        }
    }
}
