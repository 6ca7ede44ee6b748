//! Loads policies, validates them, and asks Cedar.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use bailey_protocol::path::TreePath;
use cedar_policy::{
    AuthorizationError, Authorizer, Decision, Entities, PolicyId, PolicySet, PolicyToJsonError, Response, Schema,
};

use crate::about::About;
use crate::action::Action;
use crate::added::Added;
use crate::bounds;
use crate::explain::Hints;
use crate::judge::{Judge, OperatorJudge, ServiceJudge};
use crate::load;
use crate::mentions::Mentions;
use crate::principal::{Operator, Principal, ServiceAccount};
use crate::request::Request;
use crate::vocabulary::Vocabulary;
use crate::weight;

/// Most bytes of one policy of a tenant.
pub const MAX_TENANT_POLICY_BYTES: usize = 16 * 1024;
/// Most policies of one tenant.
pub const MAX_TENANT_POLICIES: usize = 64;
/// Most bytes of all policies of one tenant.
pub const MAX_TENANT_BYTES: usize = 256 * 1024;
/// Most that all policies of one tenant weigh: see [`weight`].
pub const MAX_TENANT_WEIGHT: usize = 10_000;
/// Memory that a tenant's policies take in any case, and for each letter of their text.
const TENANT_BYTES: usize = 4096;
const BYTES_PER_LETTER: usize = 48;
/// Longest name of a tenant's policy.
pub(crate) const MAX_NAME: usize = 63;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a set of policies cannot be used, or a question cannot be put.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The built-in schema does not parse.
    #[error("the schema does not parse")]
    Schema {
        /// Why.
        source: Cause,
    },
    /// A word of the schema is not a Cedar name.
    #[error("`{name}` is not a word of the schema")]
    Word {
        /// The word.
        name: &'static str,
        /// Why.
        source: Cause,
    },
    /// A file is not Cedar.
    #[error("policy file `{file}` does not parse: {source}")]
    Parse {
        /// The file.
        file: String,
        /// Why.
        source: Cause,
    },
    /// A policy is nested deeper, or has more operators, than is parsed.
    #[error("`{file}` holds a policy that is nested too deep or has too many operators: write several")]
    TooDeep {
        /// The file.
        file: String,
    },
    /// There is no room to read policies in.
    #[error("there is no room to read policies in")]
    Stack {
        /// Why.
        source: Cause,
    },
    /// A file is too large.
    #[error("policy file `{file}` is larger than {most} bytes")]
    TooLarge {
        /// The file.
        file: String,
        /// The most that it may have.
        most: usize,
    },
    /// A tenant has too many policies.
    #[error("a tenant has at most {MAX_TENANT_POLICIES} policies of {MAX_TENANT_BYTES} bytes together")]
    TooMany,
    /// A tenant's policies take too long to evaluate.
    #[error(
        "the policies of a tenant would take too long to ask: make them fewer or simpler, above all what stands behind the \
         `*` of a `like`"
    )]
    TooHeavy,
    /// A tenant's policy has a name that does not fit.
    #[error("`{name}` is not a policy name: use 1 to {MAX_NAME} of a-z, 0-9 and `-`")]
    Name {
        /// The name.
        name: String,
    },
    /// A tenant's policy is not one forbid.
    #[error("policy `{file}` is not one `forbid`: a tenant's policy takes away, and has a name of its own")]
    NotOneForbid {
        /// Its name.
        file: String,
    },
    /// A file holds a template: only whole policies are supported.
    #[error("policy file `{file}` holds a template (`?principal` or `?resource`): write a whole policy")]
    Template {
        /// The file.
        file: String,
    },
    /// Two policies share an id.
    #[error("policy id `{id}` in `{file}` is taken: give each policy an `@id` of its own")]
    DuplicateId {
        /// The file.
        file: String,
        /// The id.
        id: String,
    },
    /// The set does not pass strict validation.
    #[error("the policies do not fit the schema: {}", problems.join("; "))]
    Invalid {
        /// One line for each problem.
        problems: Vec<String>,
    },
    /// Facts do not fit the schema.
    #[error("the facts of a request do not fit the schema")]
    Facts {
        /// Why.
        source: Cause,
    },
}

/// What a set of policies says to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Ids of the policies that decided, sorted; where one could not be evaluated, of those that could not.
    pub policies: Vec<String>,
    /// For people, why it is denied.
    pub reason: String,
    /// Set when a policy could not be evaluated, or the request does not fit the schema.
    pub broken: bool,
}

impl Answer {
    fn undecided(error: &PolicyError) -> Self {
        let reason = format!("the request could not be decided: {error}");
        Self { allowed: false, policies: Vec::new(), reason, broken: true }
    }
}

/// One validated set of policies: the base rules and the operator's, with or without a tenant's own. Asking it is the
/// only way to a permit. Clones share it.
#[derive(Clone)]
pub struct Policies {
    platform: Arc<Rules>,
    /// They only forbid, so that they are asked by themselves: what either forbids is denied.
    own: Option<TenantPolicies>,
}

/// A tenant's own policies, which go with any set of the platform's. Clones share them.
#[derive(Clone)]
pub struct TenantPolicies {
    rules: Arc<Rules>,
    bytes: usize,
}

impl TenantPolicies {
    /// Some bytes of memory that they take, once they were asked about a few actions.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// That they may be written. What is kept already is in force whatever it weighs: without it nothing is decided.
    ///
    /// # Errors
    /// When they are too heavy.
    fn check_weight(&self) -> Result<(), PolicyError> {
        if self.rules.weight > MAX_TENANT_WEIGHT { Err(PolicyError::TooHeavy) } else { Ok(()) }
    }
}

/// Policies, and what is known of them.
struct Rules {
    set: PolicySet,
    /// Which of them are base rules.
    base: HashSet<PolicyId>,
    vocabulary: Arc<Vocabulary>,
    /// Of the set's policies besides the base rules, what they may be about.
    added: Vec<Added>,
    /// Which paths those speak of.
    mentions: Mentions,
    /// What the set's policies look at.
    hints: Hints,
    weight: usize,
    /// For each action, once it is asked for, what is about it. Most policies are about a few actions, and one that is about
    /// another costs a question all the same.
    by_action: HashMap<Action, OnceLock<Option<Box<About>>>>,
}

impl fmt::Debug for TenantPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantPolicies").field("policies", &self.rules.set.policies().count()).finish_non_exhaustive()
    }
}

impl Rules {
    /// `base` are those of the set that are base rules.
    fn new(
        set: PolicySet,
        base: HashSet<PolicyId>,
        vocabulary: Arc<Vocabulary>,
    ) -> Result<Self, Box<PolicyToJsonError>> {
        let (mut all, mut mentions, mut hints, mut weight) = (Vec::new(), Mentions::default(), Hints::default(), 0);
        for policy in set.policies() {
            let json = policy.to_json().map_err(Box::new)?;
            hints.take(policy.id(), &json);
            weight += weight::weight(&json);
            if !base.contains(policy.id()) {
                all.push(Added::of(policy, &json));
                mentions.take(&json);
            }
        }
        let by_action = Action::ALL.iter().map(|action| (*action, OnceLock::new())).collect();
        Ok(Self { set, base, vocabulary, added: all, mentions, hints, weight, by_action })
    }

    fn about(&self, action: Action) -> Result<Option<&About>, PolicyError> {
        let words = self.vocabulary.action(action)?;
        let about = self
            .by_action
            .get(&action)
            .map(|about| about.get_or_init(|| About::of(&self.set, &self.base, words).map(Box::new)));
        Ok(about.and_then(Option::as_deref))
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies").field("policies", &self.count()).finish_non_exhaustive()
    }
}

impl Policies {
    /// The base rules and the operator's files, each a name and its text.
    ///
    /// # Errors
    /// When a file does not parse, ids collide, or the whole does not pass strict validation.
    pub fn new(operator: &[(String, String)]) -> Result<Self, PolicyError> {
        Self::build(load::BASE, operator)
    }

    /// A set whose base rules are `base`: shows in tests what still holds without ours.
    ///
    /// # Errors
    /// As [`Policies::new`].
    #[cfg(any(test, feature = "weakened"))]
    pub fn weakened(base: &str, operator: &[(String, String)]) -> Result<Self, PolicyError> {
        Self::build(base, operator)
    }

    fn build(base: &str, operator: &[(String, String)]) -> Result<Self, PolicyError> {
        bounds::on_own_stack(|| Self::read(base, operator))
    }

    fn read(base: &str, operator: &[(String, String)]) -> Result<Self, PolicyError> {
        let vocabulary = Vocabulary::new()?;
        let mut set = load::base(base)?;
        let ours: HashSet<PolicyId> = set.policies().map(|policy| policy.id().clone()).collect();
        for (file, text) in operator {
            load::add_file(&mut set, file, text)?;
        }
        load::validate(&vocabulary.validator, &set)?;
        let rules = Rules::new(set, ours, Arc::new(vocabulary)).map_err(unreadable)?;
        Ok(Self { platform: Arc::new(rules), own: None })
    }

    /// This set with a tenant's own policies, each a name and its text. They only forbid, and are asked about nothing
    /// but requests of that tenant's users; their ids are `tenant/NAME`.
    ///
    /// # Errors
    /// When one does not parse, is more or less than one whole forbid, does not pass strict validation, or they are
    /// too many or too large.
    pub fn with_tenant(&self, policies: &[(String, String)]) -> Result<Self, PolicyError> {
        let own = self.tenants(policies)?;
        own.as_ref().map_or(Ok(()), TenantPolicies::check_weight)?;
        Ok(self.beside(own))
    }

    /// A tenant's own policies for [`Policies::beside`]; none where there are none.
    ///
    /// # Errors
    /// As [`Policies::with_tenant`].
    pub fn tenants(&self, policies: &[(String, String)]) -> Result<Option<TenantPolicies>, PolicyError> {
        if policies.is_empty() {
            return Ok(None);
        }
        let bytes: usize = policies.iter().map(|(_, text)| text.len()).sum();
        if policies.len() > MAX_TENANT_POLICIES || bytes > MAX_TENANT_BYTES {
            return Err(PolicyError::TooMany);
        }
        bounds::on_own_stack(|| self.read_tenants(policies).map(Some))
    }

    fn read_tenants(&self, policies: &[(String, String)]) -> Result<TenantPolicies, PolicyError> {
        let mut set = PolicySet::new();
        for (name, text) in policies {
            let policy = load::tenant_policy(name, text)?;
            let id = policy.id().to_string();
            // No id of the operator's begins as theirs do.
            set.add(policy).map_err(|_taken| PolicyError::DuplicateId { file: name.clone(), id })?;
        }
        // Validation is about one policy at a time: the others have passed it.
        let vocabulary = Arc::clone(&self.platform.vocabulary);
        load::validate(&vocabulary.validator, &set)?;
        let rules = Rules::new(set, HashSet::new(), vocabulary).map_err(unreadable)?;
        let text: usize = policies.iter().map(|(_, text)| text.len()).sum();
        Ok(TenantPolicies { rules: Arc::new(rules), bytes: TENANT_BYTES + text * BYTES_PER_LETTER })
    }

    /// This set, with a tenant's own policies in place of those that it had.
    #[must_use]
    pub fn beside(&self, own: Option<TenantPolicies>) -> Self {
        Self { platform: Arc::clone(&self.platform), own }
    }

    /// Without the tenant's own policies.
    pub(crate) fn platform(&self) -> Self {
        self.beside(None)
    }

    /// The sets that are asked: the platform's, and the tenant's own where it has some.
    fn parts(&self) -> impl Iterator<Item = &Rules> {
        std::iter::once(&*self.platform).chain(self.own.as_ref().map(|own| &*own.rules))
    }

    /// Whether `other` is this very set, not one that says the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let own = match (&self.own, &other.own) {
            (Some(own), Some(other)) => Arc::ptr_eq(&own.rules, &other.rules),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        own && Arc::ptr_eq(&self.platform, &other.platform)
    }

    /// Paths strictly below `path`, in the same store, that a policy besides the base rules is about.
    pub(crate) fn mentioned_below(&self, path: &TreePath) -> Vec<TreePath> {
        let all: BTreeSet<TreePath> = self.parts().flat_map(|part| part.mentions.below(path)).collect();
        all.into_iter().collect()
    }

    /// All that is in force for everybody, in the order of ids: equal for equal sets.
    #[must_use]
    pub fn text(&self) -> String {
        let policies = self.platform.set.policies();
        let by_id: std::collections::BTreeMap<_, _> =
            policies.map(|policy| (policy.id().to_string(), policy.to_string())).collect();
        by_id.into_iter().map(|(id, text)| format!("{id}\0{text}\0")).collect()
    }

    /// How many policies there are, base rules included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts().map(|part| part.set.policies().count()).sum()
    }

    /// All policies in one set: says the same as the parts.
    pub(crate) fn whole(&self) -> Result<PolicySet, PolicyError> {
        let all = self.parts().flat_map(|part| part.set.policies().cloned());
        PolicySet::from_policies(all).map_err(|source| PolicyError::Facts { source: Box::new(source) })
    }

    /// The tenant's own policies in one set.
    pub(crate) fn own_set(&self) -> PolicySet {
        self.own.as_ref().map(|own| own.rules.set.clone()).unwrap_or_default()
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.platform.vocabulary.schema()
    }

    /// What a tenant's own policies weigh, where it has some.
    pub(crate) fn weight_of_tenants(&self) -> usize {
        self.own.as_ref().map_or(0, |own| own.rules.weight)
    }

    /// What all policies look at.
    pub(crate) fn hints(&self) -> Hints {
        Hints::joined(self.parts().map(|part| &part.hints))
    }

    /// Asks this set about requests of `principal` at the time `now_ms`.
    #[must_use]
    pub fn judge(&self, principal: &Principal, now_ms: u64) -> Judge {
        Judge::new(self.clone(), principal.clone(), now_ms)
    }

    /// Asks this set about requests of `operator` at the time `now_ms`.
    #[must_use]
    pub fn judge_operator(&self, operator: &Operator, now_ms: u64) -> OperatorJudge {
        OperatorJudge { policies: self.clone(), operator: operator.clone(), now_ms }
    }

    /// Asks this set about requests of `service` at the time `now_ms`.
    #[must_use]
    pub fn judge_service(&self, service: &ServiceAccount, now_ms: u64) -> ServiceJudge {
        ServiceJudge { policies: self.clone(), service: service.clone(), now_ms }
    }

    pub(crate) fn decides_below(&self, action: Action) -> bool {
        self.added_about(action).next().is_some()
    }

    /// Whether a policy besides the base rules may answer otherwise about `action` on another branch.
    pub(crate) fn looks_at_branch(&self, action: Action) -> bool {
        self.added_about(action).any(Added::looks_at_branch)
    }

    /// None where the action is not in the schema: then it is denied by itself.
    fn added_about(&self, action: Action) -> impl Iterator<Item = &Added> {
        let words = self.platform.vocabulary.action(action).ok();
        self.parts().flat_map(|part| &part.added).filter(move |added| words.is_some_and(|words| added.is_about(words)))
    }

    /// What this set says to `request`. Anything that goes wrong on the way is a deny.
    #[must_use]
    pub fn ask(&self, request: &Request) -> Answer {
        let answer = self.put(request, Wanted::Who).unwrap_or_else(|error| Answer::undecided(&error));
        #[cfg(test)]
        assert_eq!(answer, self.ask_the_whole(request), "the parts answer as the whole does: {request:?}");
        answer
    }

    /// Whether this set allows `request`, where nobody is told who denies it.
    pub(crate) fn allows(&self, request: &Request) -> bool {
        let allowed = self.put(request, Wanted::Whether).is_ok_and(|answer| answer.allowed);
        #[cfg(test)]
        assert_eq!(allowed, self.ask_the_whole(request).allowed, "the parts allow what the whole does: {request:?}");
        allowed
    }

    /// As [`Policies::allows`], and not compared with anything.
    #[cfg(test)]
    pub(crate) fn decides(&self, request: &Request) -> bool {
        self.put(request, Wanted::Whether).is_ok_and(|answer| answer.allowed)
    }

    #[cfg(test)]
    fn ask_the_whole(&self, request: &Request) -> Answer {
        let whole = self.whole().unwrap();
        match self.question(request) {
            Ok(question) => self.answer(&[question.put(&whole)]),
            Err(error) => Answer::undecided(&error),
        }
    }

    fn put(&self, request: &Request, wanted: Wanted) -> Result<Answer, PolicyError> {
        let question = self.question(request)?;
        let parts = self.parts().map(|part| part.about(request.action)).collect::<Result<Vec<_>, _>>()?;
        let parts = || parts.iter().flatten();
        let first = parts().flat_map(|about| about.first(request)).map(|set| question.put(set));
        let screened = self.answer(&first.collect::<Vec<_>>());
        if screened.allowed || wanted == Wanted::Whether {
            return Ok(screened);
        }
        Ok(self.answer(&parts().map(|about| question.put(about.all())).collect::<Vec<_>>()))
    }

    fn question(&self, request: &Request) -> Result<Question<'_>, PolicyError> {
        let Vocabulary { validator, authorizer, words, .. } = &*self.platform.vocabulary;
        let action = self.platform.vocabulary.action(request.action)?;
        let asked = words.request(request, action, validator.schema())?;
        Ok(Question { authorizer, asked, entities: words.entities(request, action)? })
    }

    /// A forbid of any part denies, and an error in any.
    fn answer(&self, parts: &[Response]) -> Answer {
        let errors = Self::names(parts.iter().flat_map(|part| part.diagnostics().errors()).map(failed_policy));
        if let Some(first) = errors.first() {
            let reason = format!("policy `{first}` could not be evaluated");
            return Answer { allowed: false, policies: errors, reason, broken: true };
        }
        let by = |decision| {
            let parts = parts.iter().filter(move |part| part.decision() == decision);
            Self::names(parts.flat_map(|part| part.diagnostics().reason()))
        };
        let (permits, forbids) = (by(Decision::Allow), by(Decision::Deny));
        if forbids.is_empty() && !permits.is_empty() {
            return Answer { allowed: true, policies: permits, reason: String::new(), broken: false };
        }
        Answer { allowed: false, reason: self.reason(&forbids), policies: forbids, broken: false }
    }

    fn names<'a>(ids: impl Iterator<Item = &'a PolicyId>) -> Vec<String> {
        let mut names: Vec<_> = ids.map(ToString::to_string).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn reason(&self, deciding: &[String]) -> String {
        let Some(first) = deciding.first() else {
            return "no policy permits it".to_owned();
        };
        let id = PolicyId::new(first);
        match self.parts().find_map(|part| part.set.annotation(&id, "reason")) {
            Some(reason) if !reason.is_empty() => reason.to_owned(),
            _ => format!("policy `{first}` forbids it"),
        }
    }
}

/// A request as Cedar sees it.
struct Question<'a> {
    authorizer: &'a Authorizer,
    asked: cedar_policy::Request,
    entities: Entities,
}

impl Question<'_> {
    fn put(&self, set: &PolicySet) -> Response {
        self.authorizer.is_authorized(&self.asked, set, &self.entities)
    }
}

/// What is to be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Whether,
    Who,
}

fn failed_policy(error: &AuthorizationError) -> &PolicyId {
    match error {
        AuthorizationError::PolicyEvaluationError(error) => error.policy_id(),
    }
}

fn unreadable(source: Box<PolicyToJsonError>) -> PolicyError {
    PolicyError::Facts { source }
}

#[cfg(test)]
mod tests;
