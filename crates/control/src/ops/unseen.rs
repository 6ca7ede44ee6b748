//! What of a branch its writer may not read. Whether it is what the writer puts there, nothing that the writer is told may
//! depend on: neither if a version came of it, nor what policy says of it, nor what was found in it, nor a conflict.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use bailey_policy::{Judge, ReadAction};
use bailey_protocol::path::{BranchName, RepoId, Revision};

use super::below::in_store;
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::pace::Pace;

/// Decides on the paths of a branch, by the policies in force when it was made.
pub(super) struct Unseen<'a> {
    control: &'a Control,
    caller: &'a Caller,
    judge: Judge,
    repo: &'a RepoId,
    root: String,
    branch: &'a BranchName,
    pace: Pace,
}

impl<'a> Unseen<'a> {
    /// Nothing where the caller may read all that is on the branch. Blocks.
    ///
    /// # Errors
    /// When the policies cannot be read.
    pub(super) fn of(
        control: &'a Control,
        caller: &'a Caller,
        repo: &'a RepoId,
        branch: &'a BranchName,
    ) -> Result<Option<Self>, ApiError> {
        let judge = control.wait(control.quiet_judge(caller))?;
        let unseen = Self { control, caller, judge, repo, root: repo.root(), branch, pace: control.pace(caller) };
        Ok(Some(unseen).filter(|unseen| unseen.judge.decides_below(ReadAction::Read) || unseen.hides(b"")))
    }

    /// Whether the path `inner` of the store, in its real bytes, may not be read. What no policy can name may not. Blocks.
    pub(super) fn hides(&self, inner: &[u8]) -> bool {
        let Ok(path) = in_store(&self.root, self.repo, inner) else { return true };
        let facts = self.control.path_facts(self.caller, &path, Some(self.branch));
        self.pace.next();
        !self.judge.allows_read(ReadAction::Read, &facts, &Revision::Branch(self.branch.clone()))
    }
}

/// The paths of files and links that a change puts where its maker may not read, from the store's root and in their real
/// bytes. To be told once, before the change lands.
#[derive(Debug, Clone, Default)]
pub(super) struct Puts(Arc<OnceLock<BTreeSet<Vec<u8>>>>);

impl Puts {
    pub(super) fn tell(&self, paths: BTreeSet<Vec<u8>>) {
        // Whoever was first knew the same.
        let _told = self.0.set(paths);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.get().into_iter().flatten().map(Vec::as_slice)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}
