//! Loads policies, validates them, and asks Cedar.

use std::collections::{HashMap, HashSet};
use std::fmt;

use bailey_protocol::id::{RunId, TemplateName, TenantId, UserId};
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_protocol::wall::WallKind;
use cedar_policy::{
    ActionConstraint, AuthorizationError, Authorizer, Context, Decision, Entities, EntityId, EntityTypeName, EntityUid,
    Policy, PolicyId, PolicySet, Request, Response, RestrictedExpression, Schema, ValidationMode, Validator,
};

use crate::denied::{Action, Denied};
use crate::entities::{Facts, Words};
use crate::permit::{
    Grant, PathReadPermit, PathWritePermit, RunCancelPermit, RunCreatePermit, RunListPermit, RunReadPermit,
};
use crate::principal::Principal;

const SCHEMA: &str = include_str!("schema.cedarschema");
const BASE: &str = include_str!("base.cedar");
const BASE_FILE: &str = "base.cedar";
/// Most bytes of one operator policy file.
const MAX_FILE_BYTES: usize = 1024 * 1024;

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
    /// A file is larger than 1 MiB.
    #[error("policy file `{file}` is larger than 1 MiB")]
    TooLarge {
        /// The file.
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

/// Reads on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAction {
    /// Read a file.
    Read,
    /// List a folder.
    List,
    /// List versions.
    History,
    /// Compare versions.
    Diff,
    /// Give a slice to a run.
    Mount,
}

/// Writes on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAction {
    /// Write a file.
    Write,
    /// Delete a path.
    Delete,
    /// Commit what a run changed.
    Mount,
}

impl From<WriteAction> for Action {
    fn from(action: WriteAction) -> Self {
        match action {
            WriteAction::Write => Self::TreeWrite,
            WriteAction::Delete => Self::TreeDelete,
            WriteAction::Mount => Self::MountWrite,
        }
    }
}

/// The sandbox that a run asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlan {
    /// What isolates it.
    pub wall: WallKind,
    /// What it starts from.
    pub template: TemplateName,
    /// Whether the code may use `sudo`.
    pub root: bool,
}

/// What a decision about an existing run needs to know. It comes from the database, never from the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The run.
    pub run: RunId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Who asked for it.
    pub user: UserId,
}

/// One validated set of policies: the base rules and the operator's. Asking it is the only way to a permit.
pub struct Policies {
    set: PolicySet,
    schema: Schema,
    authorizer: Authorizer,
    words: Words,
    actions: HashMap<Action, EntityUid>,
    /// What the operator's policies are about, of each the actions.
    operator: Vec<ActionConstraint>,
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies").field("policies", &self.set.policies().count()).finish_non_exhaustive()
    }
}

impl Policies {
    /// The base rules and the operator's files, each a name and its text.
    ///
    /// # Errors
    /// When a file does not parse, ids collide, or the whole does not pass strict validation.
    pub fn new(operator: &[(String, String)]) -> Result<Self, PolicyError> {
        Self::build(BASE, operator)
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
        let (schema, _warnings) =
            Schema::from_cedarschema_str(SCHEMA).map_err(|source| PolicyError::Schema { source: Box::new(source) })?;
        let mut set = PolicySet::new();
        add_file(&mut set, BASE_FILE, base)?;
        let ours: HashSet<PolicyId> = set.policies().map(|policy| policy.id().clone()).collect();
        for (file, text) in operator {
            add_file(&mut set, file, text)?;
        }
        let theirs = set.policies().filter(|policy| !ours.contains(policy.id()));
        let operator = theirs.map(Policy::action_constraint).collect();
        let result = Validator::new(schema.clone()).validate(&set, ValidationMode::Strict);
        if !result.validation_passed() {
            let problems = result.validation_errors().map(ToString::to_string).collect();
            return Err(PolicyError::Invalid { problems });
        }
        let kind: EntityTypeName =
            "Action".parse().map_err(|source| PolicyError::Word { name: "Action", source: Box::new(source) })?;
        let action = |action: Action| EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(action.as_str()));
        let actions = Action::ALL.into_iter().map(|each| (each, action(each))).collect();
        Ok(Self { set, schema, authorizer: Authorizer::new(), words: Words::new()?, actions, operator })
    }

    /// May `principal` read `path` at `revision`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn read_path(
        &self,
        principal: &Principal,
        action: ReadAction,
        path: &TreePath,
        revision: &Revision,
    ) -> Result<PathReadPermit, Denied> {
        let action = match action {
            ReadAction::Read => Action::TreeRead,
            ReadAction::List => Action::TreeList,
            ReadAction::History => Action::TreeHistory,
            ReadAction::Diff => Action::TreeDiff,
            ReadAction::Mount => Action::MountRead,
        };
        let branch = match revision {
            Revision::Branch(branch) => Some(branch),
            Revision::Version(_) => None,
        };
        let grant = self.authorize(principal, action, path.as_str(), branch, self.words.path(path))?;
        Ok(PathReadPermit { grant, path: path.clone(), revision: revision.clone() })
    }

    /// May `principal` write `path` on `branch`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn write_path(
        &self,
        principal: &Principal,
        action: WriteAction,
        path: &TreePath,
        branch: &BranchName,
    ) -> Result<PathWritePermit, Denied> {
        let action = Action::from(action);
        let grant = self.authorize(principal, action, path.as_str(), Some(branch), self.words.path(path))?;
        Ok(PathWritePermit { grant, path: path.clone(), branch: branch.clone() })
    }

    /// Whether a decision about a folder leaves open what policy says of a path below it: whether the operator has a
    /// policy that may be about `action`. The base rules say the same of all that is below a path.
    #[must_use]
    pub fn decides_below(&self, action: WriteAction) -> bool {
        let asked = self.actions.get(&Action::from(action));
        // What is no action by itself is a group, which may hold any.
        let about = |uid: &EntityUid| asked == Some(uid) || !self.actions.values().any(|action| action == uid);
        self.operator.iter().any(|constraint| match constraint {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(uid) => about(uid),
            ActionConstraint::In(uids) => uids.iter().any(about),
        })
    }

    /// May `principal` run code in such a sandbox? Asks for `run_as_root` as well where the plan wants root.
    ///
    /// # Errors
    /// When policy denies it.
    pub fn create_run(&self, principal: &Principal, plan: &RunPlan) -> Result<RunCreatePermit, Denied> {
        let resource = format!("wall {}, template {}", plan.wall, plan.template);
        let ask = |action| self.authorize(principal, action, &resource, None, self.words.sandbox(principal, plan));
        let grant = ask(Action::RunCreate)?;
        let as_root = if plan.root { Some(ask(Action::RunAsRoot)?) } else { None };
        Ok(RunCreatePermit { grant, plan: plan.clone(), as_root })
    }

    /// May `principal` see this run?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn read_run(&self, principal: &Principal, facts: &RunFacts) -> Result<RunReadPermit, Denied> {
        let grant = self.authorize(principal, Action::RunRead, facts.run.as_str(), None, self.words.run(facts))?;
        Ok(RunReadPermit { grant, facts: facts.clone() })
    }

    /// May `principal` kill this run?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn cancel_run(&self, principal: &Principal, facts: &RunFacts) -> Result<RunCancelPermit, Denied> {
        let grant = self.authorize(principal, Action::RunCancel, facts.run.as_str(), None, self.words.run(facts))?;
        Ok(RunCancelPermit { grant, facts: facts.clone() })
    }

    /// May `principal` list its runs?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn list_runs(&self, principal: &Principal) -> Result<RunListPermit, Denied> {
        let tenant = &principal.tenant;
        let grant = self.authorize(principal, Action::RunList, tenant.as_str(), None, self.words.tenant(tenant))?;
        Ok(RunListPermit { grant })
    }

    /// One decision. Anything that goes wrong on the way is a deny.
    fn authorize(
        &self,
        principal: &Principal,
        action: Action,
        resource: &str,
        branch: Option<&BranchName>,
        target: Result<Facts, PolicyError>,
    ) -> Result<Grant, Denied> {
        let denied =
            |policies, reason, broken| Denied { action, resource: resource.to_owned(), policies, reason, broken };
        let response = target
            .and_then(|target| self.ask(principal, action, branch, target))
            .map_err(|error| denied(Vec::new(), format!("the request could not be decided: {error}"), true))?;
        let errors = Self::names(response.diagnostics().errors().map(failed_policy));
        if let Some(first) = errors.first() {
            let reason = format!("policy `{first}` could not be evaluated");
            return Err(denied(errors, reason, true));
        }
        let deciding = Self::names(response.diagnostics().reason());
        match response.decision() {
            Decision::Allow => Ok(Grant::new(principal, action, resource.to_owned(), deciding)),
            Decision::Deny => {
                let reason = self.reason(&deciding);
                Err(denied(deciding, reason, false))
            }
        }
    }

    fn ask(
        &self,
        principal: &Principal,
        action: Action,
        branch: Option<&BranchName>,
        target: Facts,
    ) -> Result<Response, PolicyError> {
        let wrong = |source: Cause| PolicyError::Facts { source };
        let who = self.words.principal(principal)?;
        let run = principal
            .run
            .as_ref()
            .map(|run| ("run".to_owned(), RestrictedExpression::new_entity_uid(self.words.run_uid(run.as_str()))));
        let branch =
            branch.map(|branch| ("branch".to_owned(), RestrictedExpression::new_string(branch.as_str().to_owned())));
        let context = Context::from_pairs(run.into_iter().chain(branch)).map_err(|source| wrong(Box::new(source)))?;
        let action = self.actions.get(&action).cloned().ok_or_else(|| wrong("unknown action".into()))?;
        let request = Request::new(who.uid, action, target.uid, context, Some(&self.schema))
            .map_err(|source| wrong(Box::new(source)))?;
        let mut entities = vec![who.entity, target.entity];
        if !entities.iter().any(|entity| entity.uid().type_name().basename() == "Tenant") {
            entities.push(self.words.tenant(&principal.tenant)?.entity);
        }
        let entities =
            Entities::from_entities(entities, Some(&self.schema)).map_err(|source| wrong(Box::new(source)))?;
        Ok(self.authorizer.is_authorized(&request, &self.set, &entities))
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
        match self.set.annotation(&PolicyId::new(first), "reason") {
            Some(reason) if !reason.is_empty() => reason.to_owned(),
            _ => format!("policy `{first}` forbids it"),
        }
    }
}

fn failed_policy(error: &AuthorizationError) -> &PolicyId {
    match error {
        AuthorizationError::PolicyEvaluationError(error) => error.policy_id(),
    }
}

fn add_file(set: &mut PolicySet, file: &str, text: &str) -> Result<(), PolicyError> {
    let file = || file.to_owned();
    if text.len() > MAX_FILE_BYTES {
        return Err(PolicyError::TooLarge { file: file() });
    }
    let parsed: PolicySet =
        text.parse().map_err(|source| PolicyError::Parse { file: file(), source: Box::new(source) })?;
    if parsed.templates().next().is_some() {
        return Err(PolicyError::Template { file: file() });
    }
    for policy in parsed.policies() {
        let id = match policy.annotation("id") {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => format!("{}#{}", file(), policy.id()),
        };
        set.add(policy.new_id(PolicyId::new(&id))).map_err(|_taken| PolicyError::DuplicateId { file: file(), id })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
