//! From a caller to a judge, and from a path to its facts.

use bailey_policy::{
    Action, At, Denied, Judge, LeadingBranch, PathFacts, PathReadPermit, PathWritePermit, ReadAction, WriteAction,
};
use bailey_protocol::path::{BranchName, RepoId, Revision, TreePath};

use super::decide::blocking;
use super::reachable;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};

impl Control {
    /// Decides what the caller asks for, by the policies in force now. What belongs together is asked of one judge.
    ///
    /// # Errors
    /// When the tenant's own policies cannot be read: nothing is decided without them.
    pub(crate) async fn judge(&self, caller: &Caller) -> Result<Judge, ApiError> {
        Ok(self.quiet_judge(caller).await?.before(self.decisions().witness(self.now_ms())))
    }

    /// The same, for what the caller did not ask for: it is none of what was decided.
    ///
    /// # Errors
    /// As [`Control::judge`].
    pub(crate) async fn quiet_judge(&self, caller: &Caller) -> Result<Judge, ApiError> {
        let now = self.now_ms();
        let policies = self.policies_of(&caller.principal.tenant).await?;
        let known = self.tenant_facts().of(&caller.principal.tenant);
        let principal = self.standing().narrowed(&caller.principal);
        Ok(policies.judge(&principal, now).knowing(known))
    }

    /// What the store knows of `path` on `branch` (none where a version is named). Of another tenant's path, and of
    /// another user's, it knows nothing: the base rules deny it, whatever is there, and the denial names no label's policy.
    pub(crate) fn path_facts(&self, caller: &Caller, path: &TreePath, branch: Option<&BranchName>) -> PathFacts {
        if !is_own(caller, path.repo()) {
            return PathFacts::plain(path.clone());
        }
        PathFacts {
            path: path.clone(),
            labels: self.tree_meta().labels(path),
            protected: branch.is_some_and(|branch| self.tree_meta().protection(path.repo(), branch).is_some()),
        }
    }

    /// The permit to read `path` at `revision`. A denial is on the audit before it is answered.
    ///
    /// # Errors
    /// When it is denied.
    pub async fn may_read(
        &self,
        caller: &Caller,
        action: ReadAction,
        path: &TreePath,
        revision: &Revision,
    ) -> Result<PathReadPermit, ApiError> {
        let asked = self.ask_to_read(caller, action, path, revision).await?;
        self.permit(caller, asked).await
    }

    /// What policy says of that, and not on the audit.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub(crate) async fn ask_to_read(
        &self,
        caller: &Caller,
        action: ReadAction,
        path: &TreePath,
        revision: &Revision,
    ) -> Result<Result<PathReadPermit, Denied>, ApiError> {
        let facts = self.path_facts(caller, path, branch_of(revision));
        let judge = self.judge(caller).await?;
        let leading = self.leading(caller, &judge, &[action.into()], path, revision).await?;
        if leading.is_empty() {
            return Ok(judge.read_path(action, &facts, revision));
        }
        // Thousands of branches may be asked about, which nobody else waits for.
        let revision = revision.clone();
        blocking(move || Ok(judge.read_path(action, &facts, At { revision: &revision, leading: &leading }))).await
    }

    /// The branches that lead to `revision` in the path's store, where it is a version and it takes them to decide on one
    /// of `actions`. Of a store that is not the caller's, none: the base rules deny it, whatever is there.
    pub(crate) async fn leading(
        &self,
        caller: &Caller,
        judge: &Judge,
        actions: &[Action],
        path: &TreePath,
        revision: &Revision,
    ) -> Result<Vec<LeadingBranch>, ApiError> {
        let Revision::Version(version) = revision else { return Ok(Vec::new()) };
        let repo = path.repo();
        if !is_own(caller, repo) || !actions.iter().any(|action| judge.takes_leading(*action, revision)) {
            return Ok(Vec::new());
        }
        let (owner, repo, version) = (self.clone(), repo.clone(), version.clone());
        blocking(move || {
            let store = owner.trees().store(&repo)?;
            let over = reachable::over(&owner, &store, &version)?.into_iter().map(|(branch, _)| branch);
            let protected = |branch: &BranchName| owner.tree_meta().protection(&repo, branch).is_some();
            Ok(over.map(|branch| LeadingBranch { protected: protected(&branch), branch }).collect())
        })
        .await
    }

    /// The permit to write `path` on `branch`. A denial is on the audit before it is answered.
    ///
    /// # Errors
    /// When it is denied.
    pub(crate) async fn may_write(
        &self,
        caller: &Caller,
        action: WriteAction,
        path: &TreePath,
        branch: &BranchName,
    ) -> Result<PathWritePermit, ApiError> {
        let facts = self.path_facts(caller, path, Some(branch));
        let asked = self.judge(caller).await?.write_path(action, &facts, branch);
        self.permit(caller, asked).await
    }
}

/// Whether a store is the caller's tenant's, or the caller's own.
fn is_own(caller: &Caller, repo: &RepoId) -> bool {
    let who = &caller.principal;
    repo.tenant == who.tenant && repo.user.as_ref().is_none_or(|user| *user == who.user)
}

/// The branch that is named, where one is.
pub(super) fn branch_of(revision: &Revision) -> Option<&BranchName> {
    match revision {
        Revision::Branch(branch) => Some(branch),
        Revision::Version(_) => None,
    }
}
