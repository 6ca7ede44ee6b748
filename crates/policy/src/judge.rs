//! The decisions about a user's requests. One judge asks one set of policies, at one time, about one user: what it
//! allowed was allowed together. Those who are no tenant's user: [`system`].

mod system;
mod tokens;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bailey_protocol::id::{UserId, VersionId};
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_protocol::wall::WallKind;

use crate::action::{Action, kinds_of_action};
use crate::denied::Denied;
use crate::explain::{self, Effort, Explanation};
use crate::facts::{At, LeadingBranch, PathFacts, RunFacts, RunPlan, TenantFacts};
use crate::permit::{
    AdminPermit, ClonePermit, ExplainPermit, ForkPermit, Grant, LabelPermit, PathReadPermit, PathWritePermit,
    PromotePermit, ProtectPermit, PurgePermit, PushPermit, RunCancelPermit, RunCreatePermit, RunListPermit,
    RunReadPermit,
};
use crate::policies::Policies;
use crate::principal::Principal;
use crate::request::{Request, Subject, Value};
use crate::subjects::{self, text};

pub use system::{OperatorJudge, ServiceJudge, SystemAction, TenantAction};

kinds_of_action! {
    /// Reads on a path.
    ReadAction {
        /// Read a file.
        Read = TreeRead,
        /// List a folder.
        List = TreeList,
        /// List versions, or who wrote which line.
        History = TreeHistory,
        /// Compare versions.
        Diff = TreeDiff,
        /// Give a slice to a run.
        Mount = MountRead,
    }
}

kinds_of_action! {
    /// Writes on a path.
    WriteAction {
        /// Write a file, make a folder, be the target of a copy, get an earlier content back.
        Write = TreeWrite,
        /// Delete a path.
        Delete = TreeDelete,
        /// Commit what a run changed.
        Mount = MountWrite,
    }
}

kinds_of_action! {
    /// What a tenant's admins may.
    AdminAction {
        /// List users.
        UserList = UserList,
        /// Disable a user.
        UserDisable = UserDisable,
        /// Forget a user.
        UserForget = UserForget,
        /// Enable a user again.
        UserEnable = UserEnable,
        /// Make an API key.
        KeyCreate = KeyCreate,
        /// List API keys.
        KeyList = KeyList,
        /// Revoke an API key.
        KeyRevoke = KeyRevoke,
        /// Read the tenant's policies.
        PolicyRead = PolicyRead,
        /// Change the tenant's policies.
        PolicyWrite = PolicyWrite,
        /// Read the tenant's audit.
        AuditRead = AuditRead,
        /// See what is known of the tenant.
        TenantRead = TenantRead,
    }
}

/// What lets content in.
const ENTERS: [Action; 4] = [Action::TreeWrite, Action::MountWrite, Action::TreePush, Action::RunCreate];

/// What gives a run a slice.
const MOUNTS: [Action; 2] = [Action::MountRead, Action::MountWrite];

/// Asks one set of policies about one user's requests at one time. Made by [`Policies::judge`].
#[derive(Clone)]
pub struct Judge {
    policies: Policies,
    principal: Principal,
    tenant: TenantFacts,
    now_ms: u64,
    /// What the content that would enter is shaped like.
    credential_shaped: BTreeSet<String>,
    /// What isolates the run that asks for mounts.
    wall: WallKind,
    witness: Option<Witness>,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").field("principal", &self.principal).finish_non_exhaustive()
    }
}

type Pairs = Vec<(&'static str, Value)>;

/// Told of each request: what was asked can be put to other policies later.
pub type Witness = Arc<dyn Fn(&Request) + Send + Sync>;

impl Judge {
    pub(crate) fn new(policies: Policies, principal: Principal, now_ms: u64) -> Self {
        Self {
            policies,
            principal,
            tenant: TenantFacts::default(),
            now_ms,
            credential_shaped: BTreeSet::new(),
            wall: WallKind::Container,
            witness: None,
        }
    }

    /// With what the operator noted of the principal's tenant.
    #[must_use]
    pub fn knowing(self, tenant: TenantFacts) -> Self {
        Self { tenant, ..self }
    }

    /// About content in which these rules found what is shaped like a credential.
    #[must_use]
    pub fn holding<'a>(self, rules: impl IntoIterator<Item = &'a str>) -> Self {
        Self { credential_shaped: rules.into_iter().map(str::to_owned).collect(), ..self }
    }

    /// About mounts of a run behind `wall`; without this, of one behind the weakest.
    #[must_use]
    pub fn behind(self, wall: WallKind) -> Self {
        Self { wall, ..self }
    }

    /// Tells `witness` of each decision.
    #[must_use]
    pub fn before(self, witness: Witness) -> Self {
        Self { witness: Some(witness), ..self }
    }

    /// Who asks.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// May it read `path` then? A version takes the right to read without a branch and, where a policy looks at the branch,
    /// as one of those that lead to it.
    ///
    /// # Errors
    /// When policy denies it.
    pub fn read_path<'a>(
        &self,
        action: ReadAction,
        path: &PathFacts,
        at: impl Into<At<'a>>,
    ) -> Result<PathReadPermit, Denied> {
        let (action, at) = (action.into(), at.into());
        let grant = self.on_path(action, path, branch_of(at.revision, "branch"))?;
        let on_branch = self.as_a_leading_branch(action, path, at, |one| {
            (PathFacts { protected: one.protected, ..path.clone() }, on_branch(&one.branch))
        })?;
        let grant = on_branch.unwrap_or(grant);
        let (path, labels) = (path.path.clone(), path.labels.clone());
        Ok(PathReadPermit { grant, path, revision: at.revision.clone(), labels })
    }

    /// What is allowed as one of the branches that lead to a version; nothing to allow where no policy looks at those.
    fn as_a_leading_branch(
        &self,
        action: Action,
        path: &PathFacts,
        at: At<'_>,
        as_one: impl Fn(&LeadingBranch) -> (PathFacts, Pairs),
    ) -> Result<Option<Grant>, Denied> {
        if !self.takes_leading(action, at.revision) {
            return Ok(None);
        }
        let allows = |one: &&LeadingBranch| {
            let (facts, context) = as_one(one);
            self.allows(&self.request(action, subjects::path(&facts), context))
        };
        // Where none does, the first says why.
        let Some(one) = at.leading.iter().find(allows).or(at.leading.first()) else {
            let reason = "a policy looks at the branch, and none leads to this version";
            return Err(Denied::unasked(action, path.path.as_str(), reason));
        };
        let (facts, context) = as_one(one);
        self.on_path(action, &facts, context).map(Some)
    }

    /// Whether it takes the branches that lead to `revision` to decide on `action`.
    #[must_use]
    pub fn takes_leading(&self, action: impl Into<Action>, revision: &Revision) -> bool {
        matches!(revision, Revision::Version(_)) && self.policies.looks_at_branch(action.into())
    }

    /// Whether a policy besides the base rules may answer otherwise about `action` on another branch.
    #[must_use]
    pub fn looks_at_branch(&self, action: impl Into<Action>) -> bool {
        self.policies.looks_at_branch(action.into())
    }

    /// May it write `path` on `branch`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn write_path(
        &self,
        action: WriteAction,
        path: &PathFacts,
        branch: &BranchName,
    ) -> Result<PathWritePermit, Denied> {
        let grant = self.on_path(action.into(), path, on_branch(branch))?;
        Ok(PathWritePermit { grant, path: path.path.clone(), branch: branch.clone() })
    }

    /// Whether a decision about a folder leaves open what policy says of a path below it: whether there is a policy
    /// besides the base rules that may be about `action`, or the credential is not for it. The base rules say the same of
    /// all that is below a path.
    #[must_use]
    pub fn decides_below(&self, action: impl Into<Action>) -> bool {
        let action = action.into();
        let scope = self.principal.scope.as_ref();
        self.policies.decides_below(action) || scope.is_some_and(|scope| scope.decides_below(action))
    }

    /// As [`Judge::read_path`], where nobody is told why not: finding out what would change a denial takes far longer
    /// than the denial.
    #[must_use]
    pub fn allows_read<'a>(&self, action: ReadAction, path: &PathFacts, at: impl Into<At<'a>>) -> bool {
        let (action, at) = (action.into(), at.into());
        let allows = |path: &PathFacts, context| self.allows(&self.request(action, subjects::path(path), context));
        let as_one = |one: &LeadingBranch| {
            allows(&PathFacts { protected: one.protected, ..path.clone() }, on_branch(&one.branch))
        };
        self.scope_refusal(action, path.path.as_str(), Some(&path.path)).is_none()
            && allows(path, branch_of(at.revision, "branch"))
            && (!self.takes_leading(action, at.revision) || at.leading.iter().any(as_one))
    }

    /// Paths strictly below `path` that a policy besides the base rules speaks of: who puts a file or link at `path` is
    /// to be asked about them as well, as then nothing can be there.
    #[must_use]
    pub fn mentioned_below(&self, path: &TreePath) -> Vec<TreePath> {
        self.policies.mentioned_below(path)
    }

    /// The set that is asked.
    #[must_use]
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// May it make `branch` in the store whose root is `path`, as `from` is? A version is judged as in
    /// [`Judge::read_path`].
    ///
    /// # Errors
    /// When policy denies it.
    pub fn fork<'a>(
        &self,
        path: &PathFacts,
        branch: &BranchName,
        from: impl Into<At<'a>>,
    ) -> Result<ForkPermit, Denied> {
        let from = from.into();
        let context = |source: Pairs| on_branch(branch).into_iter().chain(source).collect();
        let grant = self.on_path(Action::TreeFork, path, context(branch_of(from.revision, "from")))?;
        let as_one = |one: &LeadingBranch| (path.clone(), context(vec![("from", text(one.branch.as_str()))]));
        let grant = self.as_a_leading_branch(Action::TreeFork, path, from, as_one)?.unwrap_or(grant);
        Ok(ForkPermit { grant, path: path.path.clone(), branch: branch.clone(), from: from.revision.clone() })
    }

    /// May it make `branch` in the store whose root is `path`, as a folder that is published for everybody?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn fork_baseline(
        &self,
        path: &PathFacts,
        branch: &BranchName,
        published: VersionId,
    ) -> Result<ForkPermit, Denied> {
        let grant = self.on_path(Action::TreeFork, path, on_branch(branch))?;
        let (path, branch) = (path.path.clone(), branch.clone());
        Ok(ForkPermit { grant, path, branch, from: Revision::Version(published) })
    }

    /// May it bring what `from` changed into `into`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn promote(&self, path: &PathFacts, from: &BranchName, into: &BranchName) -> Result<PromotePermit, Denied> {
        let context = vec![("branch", text(into.as_str())), ("from", text(from.as_str()))];
        let grant = self.on_path(Action::TreePromote, path, context)?;
        Ok(PromotePermit { grant, path: path.path.clone(), source: from.clone(), target: into.clone() })
    }

    /// May it protect `branch`, or end that?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn protect(&self, path: &PathFacts, branch: &BranchName) -> Result<ProtectPermit, Denied> {
        let grant = self.on_path(Action::TreeProtect, path, on_branch(branch))?;
        Ok(ProtectPermit { grant, path: path.path.clone(), branch: branch.clone() })
    }

    /// May it change the labels of `path`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn label(&self, path: &PathFacts) -> Result<LabelPermit, Denied> {
        let grant = self.on_path(Action::TreeLabel, path, Vec::new())?;
        Ok(LabelPermit { grant, path: path.path.clone() })
    }

    /// May it take `path` out of all history?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn purge(&self, path: &PathFacts) -> Result<PurgePermit, Denied> {
        let grant = self.on_path(Action::TreePurge, path, Vec::new())?;
        Ok(PurgePermit { grant, path: path.path.clone() })
    }

    /// May it fetch the whole store whose root is `path`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn clone_store(&self, path: &PathFacts) -> Result<ClonePermit, Denied> {
        let grant = self.on_path(Action::TreeClone, path, Vec::new())?;
        Ok(ClonePermit { grant, path: path.path.clone() })
    }

    /// May it push to the store whose root is `path`? Each changed path takes a decision of its own.
    ///
    /// # Errors
    /// When policy denies it.
    pub fn push(&self, path: &PathFacts) -> Result<PushPermit, Denied> {
        let grant = self.on_path(Action::TreePush, path, Vec::new())?;
        Ok(PushPermit { grant, path: path.path.clone() })
    }

    /// May it run code in such a sandbox? Asks for `run_as_root` as well where the plan wants root.
    ///
    /// # Errors
    /// When policy denies it.
    pub fn create_run(&self, plan: &RunPlan) -> Result<RunCreatePermit, Denied> {
        let resource = format!("wall {}, template {}", plan.wall, plan.template);
        let target = subjects::sandbox(&self.principal, plan);
        let ask = |action| self.decide(action, &resource, None, target.clone(), Vec::new());
        let grant = ask(Action::RunCreate)?;
        let as_root = if plan.root { Some(ask(Action::RunAsRoot)?) } else { None };
        Ok(RunCreatePermit { grant, plan: plan.clone(), as_root })
    }

    /// May it see this run?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn read_run(&self, facts: &RunFacts) -> Result<RunReadPermit, Denied> {
        Ok(RunReadPermit { grant: self.on_run(Action::RunRead, facts)?, facts: facts.clone() })
    }

    /// May it kill this run?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn cancel_run(&self, facts: &RunFacts) -> Result<RunCancelPermit, Denied> {
        Ok(RunCancelPermit { grant: self.on_run(Action::RunCancel, facts)?, facts: facts.clone() })
    }

    /// May it list its runs?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn list_runs(&self) -> Result<RunListPermit, Denied> {
        let grant = self.on_own_tenant(Action::RunList, Vec::new())?;
        Ok(RunListPermit { grant, scope: self.principal.scope.clone() })
    }

    /// May it do this to its own tenant?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn admin(&self, action: AdminAction) -> Result<AdminPermit, Denied> {
        Ok(AdminPermit { grant: self.on_own_tenant(action.into(), Vec::new())?, action })
    }

    /// May it ask why `subject`, a user of its tenant, is allowed or denied something?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn explain(&self, subject: &UserId) -> Result<ExplainPermit, Denied> {
        let link = subjects::user_link(&self.principal.tenant, subject);
        let grant = self.on_own_tenant(Action::PolicyExplain, vec![("subject", link)])?;
        Ok(ExplainPermit { grant, subject: subject.clone() })
    }

    /// Why it may do `action` to `path` on `branch`, or may not.
    #[must_use]
    pub fn explain_path(&self, action: Action, path: &PathFacts, branch: Option<&BranchName>) -> Explanation {
        let mut context: Pairs = branch.map(|branch| ("branch", text(branch.as_str()))).into_iter().collect();
        if action == Action::TreePromote {
            context.extend(branch.map(|branch| ("from", text(branch.as_str()))));
        }
        self.explained(action, path.path.as_str(), Some(&path.path), subjects::path(path), context)
    }

    /// Why it may run code in such a sandbox, or may not.
    #[must_use]
    pub fn explain_plan(&self, action: Action, plan: &RunPlan) -> Explanation {
        self.explained(action, "new", None, subjects::sandbox(&self.principal, plan), Vec::new())
    }

    /// Why it may do `action` to a run, or may not.
    #[must_use]
    pub fn explain_run(&self, action: Action, facts: &RunFacts) -> Explanation {
        match self.run_refusal(action, facts) {
            Some(denied) => Explanation::by_scope(denied),
            None => self.explained(action, facts.run.as_str(), None, subjects::run(facts), Vec::new()),
        }
    }

    /// Why it may do `action` to its tenant, or may not.
    #[must_use]
    pub fn explain_tenant(&self, action: Action) -> Explanation {
        let tenant = &self.principal.tenant;
        let context = match action {
            Action::PolicyExplain => vec![("subject", subjects::user_link(tenant, &self.principal.user))],
            _ => Vec::new(),
        };
        self.explained(action, tenant.as_str(), None, subjects::tenant(tenant, &self.tenant), context)
    }

    fn explained(
        &self,
        action: Action,
        resource: &str,
        path: Option<&TreePath>,
        target: Subject,
        context: Pairs,
    ) -> Explanation {
        match self.scope_refusal(action, resource, path) {
            Some(denied) => Explanation::by_scope(denied),
            None => {
                let request = self.request(action, target, context);
                let effort = if request.is_on_own() { Effort::Full } else { Effort::None };
                explain::explain(&self.asked(action), &request, effort)
            }
        }
    }

    fn on_path(&self, action: Action, path: &PathFacts, context: Pairs) -> Result<Grant, Denied> {
        self.decide(action, path.path.as_str(), Some(&path.path), subjects::path(path), context)
    }

    fn on_run(&self, action: Action, facts: &RunFacts) -> Result<Grant, Denied> {
        match self.run_refusal(action, facts) {
            Some(denied) => Err(denied),
            None => self.decide(action, facts.run.as_str(), None, subjects::run(facts), Vec::new()),
        }
    }

    fn on_own_tenant(&self, action: Action, context: Pairs) -> Result<Grant, Denied> {
        let tenant = &self.principal.tenant;
        self.decide(action, tenant.as_str(), None, subjects::tenant(tenant, &self.tenant), context)
    }

    fn scope_refusal(&self, action: Action, resource: &str, path: Option<&TreePath>) -> Option<Denied> {
        self.principal.scope.as_ref()?.refusal(action, resource, path)
    }

    fn run_refusal(&self, action: Action, run: &RunFacts) -> Option<Denied> {
        self.principal.scope.as_ref()?.run_refusal(action, &self.principal.credential, run)
    }

    /// The set that is asked about `action`. A tenant's own policies say nothing of who may read and change them: it
    /// cannot lock itself out.
    fn asked(&self, action: Action) -> Policies {
        match action {
            Action::PolicyRead | Action::PolicyWrite => self.policies.platform(),
            _ => self.policies.clone(),
        }
    }

    fn request(&self, action: Action, target: Subject, mut context: Pairs) -> Request {
        context.extend(self.principal.run.as_ref().map(|run| ("run", subjects::run_link(run.as_str()))));
        if ENTERS.contains(&action) {
            let rules = self.credential_shaped.iter().map(|rule| text(rule));
            context.push(("credential_shaped", Value::Set(rules.collect())));
        }
        if MOUNTS.contains(&action) {
            context.push(("wall", text(self.wall.as_str())));
        }
        context.push(("time", Value::Time(self.now_ms)));
        context.push(("credential", text(self.principal.credential.kind.as_str())));
        Request {
            principal: subjects::user(&self.principal),
            action,
            resource: target,
            tenant: Some(subjects::tenant(&self.principal.tenant, &self.tenant)),
            context: context.into_iter().map(|(name, value)| (name.into(), value)).collect(),
        }
    }

    /// Where nobody is told who denies it.
    fn allows(&self, request: &Request) -> bool {
        self.tell(request);
        self.asked(request.action).allows(request)
    }

    fn tell(&self, request: &Request) {
        if let Some(witness) = &self.witness {
            witness(request);
        }
    }

    fn decide(
        &self,
        action: Action,
        resource: &str,
        path: Option<&TreePath>,
        target: Subject,
        context: Pairs,
    ) -> Result<Grant, Denied> {
        if let Some(denied) = self.scope_refusal(action, resource, path) {
            return Err(denied);
        }
        let request = self.request(action, target, context);
        self.tell(&request);
        let answer = self.asked(action).ask(&request);
        if answer.allowed {
            return Ok(Grant::new(&self.principal, action, resource.to_owned(), answer.policies));
        }
        // Of what is another tenant's or user's, nothing is told.
        let flip = if request.is_on_own() && !answer.broken {
            explain::explain(&self.asked(action), &request, Effort::Inline).changes
        } else {
            Vec::new()
        };
        Err(Denied { flip, ..Denied::answered(action, resource, answer) })
    }
}

fn on_branch(branch: &BranchName) -> Pairs {
    vec![("branch", text(branch.as_str()))]
}

fn branch_of(revision: &Revision, name: &'static str) -> Pairs {
    match revision {
        Revision::Branch(branch) => vec![(name, text(branch.as_str()))],
        Revision::Version(_) => Vec::new(),
    }
}
