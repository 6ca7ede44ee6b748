//! What holds of a set of policies for every request there can be, by a solver.
//!
//! Cedar's own symbolic compiler turns policies into formulas; cvc5 looks for a request that breaks what is claimed, and
//! finds one or shows that there is none. The solver is a process of its own, that is killed when it takes too long or
//! nobody waits for it: an answer that does not come is "unproven", never "proven".

mod claims;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cedar_policy::{EntityUid, EvalResult, Policy, PolicySet, RequestEnv};
use cedar_policy_symcc::solver::LocalSolver;
use cedar_policy_symcc::{CedarSymCompiler, CompiledPolicy, CompiledPolicySet, Env};
use serde::Serialize;
use tokio::process::Command;

use crate::explain::{Hints, Place};
use crate::policies::{Policies, PolicyError};

/// Longest time for one question, in milliseconds, before the solver itself gives up.
const QUESTION_MS: u64 = 10_000;

/// Where a solver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prover {
    cvc5: PathBuf,
    patience: Duration,
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// The solver does not start, or breaks off.
    #[error("the solver failed")]
    Solver {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It took too long.
    #[error("the solver took longer than {seconds} seconds")]
    TooLong {
        /// How long it had.
        seconds: u64,
    },
    /// A claim cannot be put.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// What is claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// No user of one tenant acts on what is another's, and no service account on a tenant that it does not serve.
    TenantsApart,
    /// A base rule that forbids holds, whatever the others say.
    BaseRule(String),
    /// A policy can be evaluated for every request.
    NeverErrors(String),
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was claimed.
    pub claim: Claim,
    /// Kinds of requests that it was looked at for: who, does what, on what.
    pub requests: usize,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a look at a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It holds for every request there can be.
    Proven,
    /// It does not.
    Violated {
        /// A request that shows it.
        example: Example,
    },
    /// Nothing can be said.
    Unproven {
        /// Why.
        why: String,
    },
}

/// A concrete request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Who.
    pub principal: String,
    /// Does what.
    pub action: String,
    /// On what.
    pub resource: String,
    /// Of the attributes that those policies look at which this is about, what each is: by name, such as `resource.owner`.
    pub matters: BTreeMap<String, String>,
    /// What else is known, as Cedar shows it.
    pub context: String,
    /// The entities, as Cedar's JSON.
    pub entities: serde_json::Value,
}

/// How two sets differ for one kind of request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `newly_allowed` or `newly_denied`.
    pub change: &'static str,
    /// A request that is answered otherwise.
    pub example: Example,
}

impl Prover {
    /// The solver that `named` (the variable `CVC5`) or else the search path says, if there is one.
    #[must_use]
    pub fn find(named: Option<OsString>, search: Option<&OsStr>) -> Option<Self> {
        let runnable =
            |path: &Path| path.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
        let named = named.filter(|name| !name.is_empty()).map(PathBuf::from);
        let found = match named {
            Some(named) => Some(named).filter(|path| runnable(path)),
            None => std::env::split_paths(search?).map(|folder| folder.join("cvc5")).find(|path| runnable(path)),
        };
        Some(Self { cvc5: found?, patience: Duration::from_secs(120) })
    }

    /// With another bound on the time that one proof may take.
    #[must_use]
    pub fn patient_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The claim without which a set is not put in force: [`Claim::TenantsApart`].
    ///
    /// # Errors
    /// When nothing can be said.
    pub async fn tenants_apart(&self, policies: &Policies) -> Result<Finding, ProveError> {
        self.within(async {
            let mut session = self.session()?;
            session.forbids(Claim::TenantsApart, &policies.whole()?, &claims::tenants_apart()?, policies).await
        })
        .await
    }

    /// Every claim. `told` hears of each finding as it comes. What the solver does not answer is unproven, and the rest is
    /// looked at all the same.
    ///
    /// # Errors
    /// When a claim cannot be put.
    pub async fn prove(
        &self,
        policies: &Policies,
        told: &mut (dyn FnMut(&Finding) + Send),
    ) -> Result<Vec<Finding>, PolicyError> {
        let whole = policies.whole()?;
        let mut claims = vec![(Claim::TenantsApart, claims::tenants_apart()?)];
        claims.extend(claims::base_rules()?.into_iter().map(|(name, broken)| (Claim::BaseRule(name), broken)));
        let mut findings = Vec::new();
        for (claim, broken) in claims {
            let asked = Box::pin(async { self.session()?.forbids(claim.clone(), &whole, &broken, policies).await });
            findings.push(self.found(claim.clone(), asked, told).await);
        }
        findings.extend(self.never_error(&whole, policies, told).await);
        Ok(findings)
    }

    /// What a tenant's own policies could change of that: whether each can be evaluated, and that tenants are apart. They
    /// only forbid, so that what the set keeps that they are added to is kept with them.
    ///
    /// # Errors
    /// As [`Prover::prove`].
    pub async fn prove_tenants(
        &self,
        policies: &Policies,
        told: &mut (dyn FnMut(&Finding) + Send),
    ) -> Result<Vec<Finding>, PolicyError> {
        let asked = Box::pin(self.tenants_apart(policies));
        let mut findings = vec![self.found(Claim::TenantsApart, asked, told).await];
        findings.extend(self.never_error(&policies.own_set(), policies, told).await);
        Ok(findings)
    }

    async fn never_error(
        &self,
        set: &PolicySet,
        policies: &Policies,
        told: &mut (dyn FnMut(&Finding) + Send),
    ) -> Vec<Finding> {
        let mut all: Vec<&Policy> = set.policies().collect();
        all.sort_by_key(|policy| policy.id().to_string());
        let mut findings = Vec::new();
        for policy in all {
            let claim = Claim::NeverErrors(policy.id().to_string());
            let asked = Box::pin(async { self.session()?.never_errors(policy, policies).await });
            findings.push(self.found(claim, asked, told).await);
        }
        findings
    }

    async fn found(
        &self,
        claim: Claim,
        asked: impl Future<Output = Result<Finding, ProveError>> + Send,
        told: &mut (dyn FnMut(&Finding) + Send),
    ) -> Finding {
        let finding = self.within(asked).await.unwrap_or_else(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Finding { claim, requests: 0, outcome: Outcome::Unproven { why: format!("{error}{cause}") } }
        });
        told(&finding);
        finding
    }

    /// What `new` answers otherwise than `old`, with one example for each kind of request.
    ///
    /// # Errors
    /// When nothing can be said.
    pub async fn compare(&self, new: &Policies, old: &Policies) -> Result<Vec<Difference>, ProveError> {
        self.within(async {
            let mut session = self.session()?;
            let mut differences = Vec::new();
            let (new_set, old_set) = (new.whole()?, old.whole()?);
            let looked_at = Hints::of_changes(&new_set, &old_set);
            for env in environments(new) {
                let compile = |set: &PolicySet| CompiledPolicySet::compile(set, &env, new.schema()).map_err(broke);
                let (new, old) = (compile(&new_set)?, compile(&old_set)?);
                for (change, more, less) in [("newly_allowed", &new, &old), ("newly_denied", &old, &new)] {
                    let found = session.0.check_implies_with_counterexample_opt(more, less).await.map_err(broke)?;
                    differences.extend(found.map(|found| Difference { change, example: example(&found, &looked_at) }));
                }
            }
            Ok(differences)
        })
        .await
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, ProveError>> + Send) -> Result<T, ProveError> {
        // CANCEL: the solver dies with the future that holds it.
        let outcome = tokio::time::timeout(self.patience, work).await;
        outcome.map_err(|_elapsed| ProveError::TooLong { seconds: self.patience.as_secs() })?
    }

    fn session(&self) -> Result<Session, ProveError> {
        let mut command = Command::new(&self.cvc5);
        command.args(["--lang", "smt", &format!("--tlimit-per={QUESTION_MS}")]).env_clear().kill_on_drop(true);
        let solver = LocalSolver::from_command(&mut command).map_err(broke)?;
        Ok(Session(CedarSymCompiler::new(solver).map_err(broke)?))
    }
}

/// A solver at work.
struct Session(CedarSymCompiler<LocalSolver>);

impl Session {
    /// Nothing that `broken` names is allowed by `set`.
    async fn forbids(
        &mut self,
        claim: Claim,
        set: &PolicySet,
        broken: &PolicySet,
        policies: &Policies,
    ) -> Result<Finding, ProveError> {
        let (mut requests, looked_at) = (0, Hints::of(broken.policies()));
        for env in environments(policies) {
            let compile = |set: &PolicySet| CompiledPolicySet::compile(set, &env, policies.schema()).map_err(broke);
            let (set, broken) = (compile(set)?, compile(broken)?);
            let found = self.0.check_disjoint_with_counterexample_opt(&set, &broken).await.map_err(broke)?;
            requests += 1;
            if let Some(found) = found {
                let outcome = Outcome::Violated { example: example(&found, &looked_at) };
                return Ok(Finding { claim, requests, outcome });
            }
        }
        Ok(Finding { claim, requests, outcome: Outcome::Proven })
    }

    async fn never_errors(&mut self, policy: &Policy, policies: &Policies) -> Result<Finding, ProveError> {
        let claim = Claim::NeverErrors(policy.id().to_string());
        let (mut requests, looked_at) = (0, Hints::of([policy]));
        for env in environments(policies) {
            let compiled = CompiledPolicy::compile(policy, &env, policies.schema()).map_err(broke)?;
            let found = self.0.check_never_errors_with_counterexample_opt(&compiled).await.map_err(broke)?;
            requests += 1;
            if let Some(found) = found {
                let outcome = Outcome::Violated { example: example(&found, &looked_at) };
                return Ok(Finding { claim, requests, outcome });
            }
        }
        Ok(Finding { claim, requests, outcome: Outcome::Proven })
    }
}

/// Every kind of request, in a settled order.
fn environments(policies: &Policies) -> Vec<RequestEnv> {
    let mut all: Vec<_> = policies.schema().request_envs().collect();
    all.sort_by_key(|env| (env.action().to_string(), env.principal().to_string(), env.resource().to_string()));
    all
}

fn broke(source: impl std::error::Error + Send + Sync + 'static) -> ProveError {
    ProveError::Solver { source: Box::new(source) }
}

fn example(found: &Env, looked_at: &Hints) -> Example {
    let shown = |uid: Option<&EntityUid>| uid.map(ToString::to_string).unwrap_or_default();
    let request = &found.request;
    Example {
        principal: shown(request.principal()),
        action: shown(request.action()),
        resource: shown(request.resource()),
        matters: looked_at.attributes().map(|(place, name)| (of(place, name), value(found, place, name))).collect(),
        context: request.context().map(ToString::to_string).unwrap_or_default(),
        entities: found.entities.to_json_value().unwrap_or_default(),
    }
}

fn of(place: Place, name: &str) -> String {
    format!("{}.{name}", place.as_str())
}

/// What an attribute is in an example, as policies write it.
fn value(found: &Env, place: Place, name: &str) -> String {
    let Env { request, entities } = found;
    let attribute = |uid: Option<&EntityUid>, name: &str| entities.get(uid?)?.attr(name)?.ok();
    let value = match place {
        Place::Principal => attribute(request.principal(), name),
        Place::Resource => attribute(request.resource(), name),
        Place::Context => request.context().and_then(|context| context.get(name)),
        Place::Tenant => match attribute(request.principal(), "tenant") {
            Some(EvalResult::EntityUid(tenant)) => attribute(Some(&tenant), name),
            _ => None,
        },
    };
    value.map_or_else(|| "(absent)".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests;
