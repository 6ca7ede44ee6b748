//! Why a request is answered as it is: the policies that decided, and the fewest attributes whose change would turn the
//! answer around. Found by asking again with values changed to what the policies themselves compare with, so that what
//! it says is true; what it did not find may still exist, and it says how far it looked.

mod hints;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use hints::{Hints, Place};

use crate::denied::Denied;
use crate::policies::Policies;
use crate::request::{Attributes, Request, Value};

/// Most that all questions within the answer to a denied request weigh.
const INLINE_WEIGHT: usize = 40_000;

/// How far to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Not at all: who decided, and no more.
    None,
    /// Within the answer to a request that was denied.
    Inline,
    /// Because somebody asked.
    Full,
}

impl Effort {
    /// Most questions put, and most attributes changed at once. A question takes some 20 µs, by a tenant's policies of the
    /// largest `weight` a hundred times that and more: of those, fewer are put on the way to an answer.
    fn bounds(self, weight: usize) -> (usize, usize) {
        match self {
            Self::None => (0, 0),
            Self::Inline => ((INLINE_WEIGHT / weight.max(1)).clamp(4, 48), 1),
            Self::Full => (5000, 3),
        }
    }
}

/// One attribute that would have to be another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Such as `principal.roles`.
    pub attribute: String,
    /// What it is, if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// What it would be, if it were there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_be: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.would_be {
            Some(value) => write!(f, "`{}` were {value}", self.attribute),
            None => write!(f, "`{}` were absent", self.attribute),
        }
    }
}

/// Why a request is answered as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Ids of the policies that decided.
    pub policies: Vec<String>,
    /// For people, why it is denied.
    pub reason: String,
    /// The smallest set of changes found that turns the answer around; empty when none was found.
    pub changes: Vec<Change>,
    /// How far it was looked.
    pub searched: Searched,
}

/// How far it was looked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Searched {
    /// Single changes that were tried: each value that a policy compares an attribute with, and some beside it.
    pub candidates: usize,
    /// Most attributes changed at once.
    pub at_once: usize,
    /// Questions put.
    pub asked: usize,
    /// Whether all of that was tried, or the bound on questions came first.
    pub complete: bool,
}

impl Explanation {
    pub(crate) fn by_scope(denied: Denied) -> Self {
        let Denied { policies, reason, .. } = denied;
        Self { allowed: false, policies, reason, changes: Vec::new(), searched: Searched::default() }
    }
}

/// A change that can be tried.
struct Candidate {
    place: Place,
    name: String,
    to: Option<Value>,
    /// What to call the new value, where it stands for any other.
    shown: Option<&'static str>,
}

/// Explains what `policies` say to `request`.
#[must_use]
pub fn explain(policies: &Policies, request: &Request, effort: Effort) -> Explanation {
    let answer = policies.ask(request);
    let (most, at_once) = effort.bounds(policies.weight_of_tenants());
    let mut search = Search { policies, request, wanted: !answer.allowed, left: most, asked: 0 };
    let candidates = if answer.broken { Vec::new() } else { candidates(&policies.hints(), request, &answer.policies) };
    let mut found = None;
    let mut deepest = 0;
    for size in 1..=at_once.min(candidates.len()) {
        deepest = size;
        found = search.combine(&candidates, size, 0, &mut Vec::new());
        if found.is_some() || search.left == 0 {
            break;
        }
    }
    let changes = found.unwrap_or_default().into_iter().map(|candidate| change(request, candidate)).collect();
    let complete = search.left > 0;
    let searched = Searched { candidates: candidates.len(), at_once: deepest, asked: search.asked, complete };
    Explanation { allowed: answer.allowed, policies: answer.policies, reason: answer.reason, changes, searched }
}

struct Search<'a> {
    policies: &'a Policies,
    request: &'a Request,
    wanted: bool,
    left: usize,
    asked: usize,
}

impl Search<'_> {
    /// The first `size` candidates, each of another attribute, that turn the answer around together.
    fn combine<'c>(
        &mut self,
        candidates: &'c [Candidate],
        size: usize,
        from: usize,
        chosen: &mut Vec<&'c Candidate>,
    ) -> Option<Vec<&'c Candidate>> {
        if chosen.len() == size {
            return self.turns(chosen).then(|| chosen.clone());
        }
        for (index, candidate) in candidates.iter().enumerate().skip(from) {
            if self.left == 0 {
                return None;
            }
            if chosen.iter().any(|other| (other.place, &other.name) == (candidate.place, &candidate.name)) {
                continue;
            }
            chosen.push(candidate);
            let found = self.combine(candidates, size, index + 1, chosen);
            chosen.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn turns(&mut self, chosen: &[&Candidate]) -> bool {
        self.left = self.left.saturating_sub(1);
        self.asked += 1;
        let mut changed = self.request.clone();
        for candidate in chosen {
            let Some(attributes) = attributes_mut(&mut changed, candidate.place) else { return false };
            match &candidate.to {
                Some(value) => drop(attributes.insert(Cow::Owned(candidate.name.clone()), value.clone())),
                None => drop(attributes.remove(candidate.name.as_str())),
            }
        }
        if self.wanted {
            return self.policies.allows(&changed);
        }
        let answer = self.policies.ask(&changed);
        !answer.broken && !answer.allowed
    }
}

fn attributes(request: &Request, place: Place) -> Option<&Attributes> {
    match place {
        Place::Principal => Some(&request.principal.attributes),
        Place::Resource => Some(&request.resource.attributes),
        Place::Tenant => request.tenant.as_ref().map(|tenant| &tenant.attributes),
        Place::Context => Some(&request.context),
    }
}

fn attributes_mut(request: &mut Request, place: Place) -> Option<&mut Attributes> {
    match place {
        Place::Principal => Some(&mut request.principal.attributes),
        Place::Resource => Some(&mut request.resource.attributes),
        Place::Tenant => request.tenant.as_mut().map(|tenant| &mut tenant.attributes),
        Place::Context => Some(&mut request.context),
    }
}

fn change(request: &Request, candidate: &Candidate) -> Change {
    let now = attributes(request, candidate.place).and_then(|all| all.get(candidate.name.as_str()));
    let would_be = candidate.to.as_ref().map(|value| match candidate.shown {
        Some(shown) => shown.to_owned(),
        None => value.to_string(),
    });
    let attribute = format!("{}.{}", candidate.place.as_str(), candidate.name);
    Change { attribute, now: now.map(ToString::to_string), would_be }
}

/// Whose tenant and which tenant is no attribute that could be another: those are what the request is about.
fn fixed(place: Place, name: &str) -> bool {
    matches!((place, name), (Place::Principal | Place::Resource | Place::Tenant, "tenant"))
}

/// What can be tried, with what the deciding policies look at first.
fn candidates(hints: &Hints, request: &Request, deciding: &[String]) -> Vec<Candidate> {
    let mut all = Vec::new();
    for hint in hints.in_order(deciding) {
        let Some(known) = attributes(request, hint.place) else { continue };
        if fixed(hint.place, &hint.name) {
            continue;
        }
        let now = known.get(hint.name.as_str());
        for (to, shown) in values(request, now, hint) {
            let new = |other: &Candidate| (other.place, &other.name, &other.to) != (hint.place, &hint.name, &to);
            if to.as_ref() != now && all.iter().all(new) {
                all.push(Candidate { place: hint.place, name: hint.name.clone(), to, shown });
            }
        }
    }
    all
}

type Tried = (Option<Value>, Option<&'static str>);

fn values(request: &Request, now: Option<&Value>, hint: &hints::Hint) -> Vec<Tried> {
    let mut values: Vec<Tried> = Vec::new();
    let literals = hint.literals.iter().cloned();
    let other = hint.same_as.iter().filter_map(|(place, name)| attributes(request, *place)?.get(name.as_str()));
    let others = other.cloned().chain(hint.principal.then(|| Value::Link(request.principal.link.clone())));
    for literal in literals.chain(others) {
        match (now, literal) {
            (Some(Value::Set(held)), literal @ (Value::Text(_) | Value::Link(_))) => {
                let mut held = held.clone();
                if !held.remove(&literal) {
                    held.insert(literal);
                }
                values.push((Some(Value::Set(held)), None));
            }
            (Some(Value::Long(_)) | None, Value::Long(near)) => {
                let near = [near, near.saturating_sub(1), near.saturating_add(1)];
                values.extend(near.map(|value| (Some(Value::Long(value)), None)));
            }
            (_, literal) => values.push((Some(literal), None)),
        }
    }
    match now {
        Some(Value::Bool(value)) => values.push((Some(Value::Bool(!value)), None)),
        Some(Value::Text(_)) => values.push((Some(Value::Text("-".to_owned())), Some("another"))),
        // Rules about the time of day are the usual ones.
        Some(Value::Time(time)) => {
            let hours = (1..24).map(|hours| time.saturating_add(hours * 3_600_000));
            values.extend(hours.map(|time| (Some(Value::Time(time)), None)));
        }
        Some(Value::Long(_) | Value::Link(_) | Value::Set(_)) | None => {}
    }
    if now.is_some() {
        values.push((None, None));
    }
    values
}

#[cfg(test)]
mod tests;
