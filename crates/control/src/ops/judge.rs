//! From a caller to a judge, and from a path to its facts.

use bailey_policy::{
    Action, At, Denied, Judge, LeadingBranch, PathFacts, PathReadPermit, PathWritePermit, ReadAction, WriteAction,
};
use bailey_protocol::path::{BranchName, RepoId, Revision, TreePath};

use super::reachable;
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::pace::{Pace, Place};
use crate::threads::blocking;

/// Branches that lead to a version which are asked about in one go.
const LEADING_AT_ONCE: usize = 16;

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
        let judge = policies.judge(&principal, now).knowing(known);
        Ok(match caller.wall {
            Some(wall) => judge.behind(wall),
            None => judge,
        })
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
        let asked = self.decided(caller, action, (path, revision), true).await?;
        self.permit(caller, asked).await
    }

    /// What policy says of that, and not on the audit. For what goes on and is judged again: it is none of what was asked
    /// for, and that it takes no place of a request's is fine where there are only so many of its kind.
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
        self.decided(caller, action, (path, revision), false).await
    }

    async fn decided(
        &self,
        caller: &Caller,
        action: ReadAction,
        (path, revision): (&TreePath, &Revision),
        asked_for: bool,
    ) -> Result<Result<PathReadPermit, Denied>, ApiError> {
        let facts = self.path_facts(caller, path, branch_of(revision));
        let judge = if asked_for { self.judge(caller).await? } else { self.quiet_judge(caller).await? };
        let leading = self.leading(caller, &judge, &[action.into()], path, revision).await?;
        if leading.is_empty() {
            return Ok(judge.read_path(action, &facts, revision));
        }
        // Thousands of branches may be asked about, which nobody else waits for.
        let revision = revision.clone();
        self.asking_many(caller, asked_for, move |pace| {
            let at = narrowed(pace, &judge, action, &facts, At { revision: &revision, leading: &leading });
            Ok(judge.read_path(action, &facts, at))
        })
        .await
    }

    /// A place among the requests that ask about many paths. To be had before any lock.
    ///
    /// CANCEL: none is taken.
    ///
    /// # Errors
    /// When the tenant has too many of them.
    pub(crate) async fn asking(&self, caller: &Caller) -> Result<Place, ApiError> {
        let turn = self.paces().enter(&caller.principal.tenant, &caller.principal.user).await;
        turn.ok_or_else(|| {
            let message = "policy is being asked about too many paths at once";
            let hint = "Try again after the time in `Retry-After`, or ask about fewer paths.";
            ApiError::new(ErrorKind::Exhausted, "too_many_checks", message, hint)
        })
    }

    /// Runs `work`, which may ask policy about many paths, on a thread that may block; in a place of its own, if it takes one.
    ///
    /// CANCEL: the work goes on, but what it asks from then on is denied without being asked: it is over soon, and gives
    /// its place back.
    ///
    /// # Errors
    /// As `work`, or when the tenant has too many of them.
    pub(crate) async fn asking_many<T: Send + 'static>(
        &self,
        caller: &Caller,
        takes_place: bool,
        work: impl FnOnce(&Pace) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = if takes_place { Some(self.asking(caller).await?) } else { None };
        let pace = self.pace(caller);
        let _awaited = pace.awaited();
        blocking(self.threads(), move || {
            let _place = place;
            work(&pace)
        })
        .await
    }

    /// A place for what changes something, if there is anything to ask about below the path.
    ///
    /// # Errors
    /// When the tenant has too many of them.
    pub(crate) async fn asking_below(&self, caller: &Caller, actions: &[Action]) -> Result<Option<Place>, ApiError> {
        let judge = self.judge(caller).await?;
        if !actions.iter().any(|action| judge.decides_below(*action)) {
            return Ok(None);
        }
        self.asking(caller).await.map(Some)
    }

    /// For asking about many paths in a caller's name.
    pub(crate) fn pace(&self, caller: &Caller) -> Pace {
        self.paces().pace(&caller.principal.tenant)
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
        blocking(self.threads(), move || {
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

/// The same with fewer branches that lead to it, by which the decision is the same: some of which one allows it, or the first
/// where none does, who says why. They may be thousands, and each is a question. Blocks.
pub(super) fn narrowed<'a>(pace: &Pace, judge: &Judge, action: ReadAction, facts: &PathFacts, at: At<'a>) -> At<'a> {
    pace.next();
    if at.leading.len() <= LEADING_AT_ONCE {
        return at;
    }
    let mut some = at.leading.chunks(LEADING_AT_ONCE).map(|leading| At { leading, ..at });
    let first = some.next().unwrap_or(at);
    std::iter::once(first)
        .chain(some)
        .find(|at| {
            pace.next();
            !pace.is_awaited() || judge.allows_read(action, facts, *at)
        })
        .unwrap_or(first)
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
