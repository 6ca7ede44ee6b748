//! What would be seen on a branch of what may not be seen where it comes from. A rule about a branch is one about what is
//! on it: a fork or promotion gives that another name, under which the rule says nothing of it.

use std::ops::ControlFlow;

use bailey_policy::{Action, At, Denied, Judge, PathFacts, ReadAction};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_tree::Store;

use super::below::{named, unnamed};
use super::judge::{branch_of, narrowed};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::pace::Pace;

/// Most paths that policy is asked about. Where there are more, it is denied.
const MAX_JUDGED: usize = 50_000;
/// What a branch is looked at for.
pub(super) const LOOKS: [ReadAction; 5] =
    [ReadAction::Read, ReadAction::List, ReadAction::History, ReadAction::Diff, ReadAction::Mount];

/// What comes from one place in a store to a branch of it.
pub(super) struct Crossing<'a> {
    pub(super) control: &'a Control,
    pub(super) caller: &'a Caller,
    /// As it is when that happens.
    pub(super) judge: &'a Judge,
    /// The store's root.
    pub(super) root: &'a TreePath,
    /// Where it comes from.
    pub(super) from: At<'a>,
    /// Where it goes.
    pub(super) to: &'a BranchName,
}

impl Crossing<'_> {
    /// A path of `version`, in all its history, that may be looked at on the branch it comes to and not where it comes
    /// from. Where no policy looks at the branch, there is none. Blocks.
    ///
    /// # Errors
    /// When the version cannot be read.
    pub(super) fn shown(&self, store: &Store, version: &VersionId) -> Result<Option<Denied>, ApiError> {
        let actions: Vec<ReadAction> = LOOKS.into_iter().filter(|action| self.judge.looks_at_branch(*action)).collect();
        let Some(first) = actions.first().copied() else { return Ok(None) };
        let unasked = |path: &str, reason: &str| Denied::unasked(Action::from(first), path, reason);
        let pace = self.control.pace(self.caller);
        let (mut denied, mut count) = (self.at(&pace, &actions, self.root), 0);
        if denied.is_some() {
            return Ok(denied);
        }
        let whole = store.every_path(std::slice::from_ref(version), &mut |inner| {
            count += 1;
            denied = match named(self.root, inner) {
                _ if count > MAX_JUDGED => {
                    Some(unasked(self.root.as_str(), "it has too many paths to ask policy about each"))
                }
                Err(shown) => Some(unnamed(first.into(), &shown)),
                Ok(path) => self.at(&pace, &actions, &path),
            };
            if denied.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if !whole && denied.is_none() {
            denied = Some(unasked(self.root.as_str(), "its history is too long to ask policy about each path"));
        }
        Ok(denied)
    }

    /// Why one path may not be looked at where it comes from, if it may be where it goes.
    fn at(&self, pace: &Pace, actions: &[ReadAction], path: &TreePath) -> Option<Denied> {
        let on = |branch| -> PathFacts { self.control.path_facts(self.caller, path, branch) };
        let (here, there, to) = (on(branch_of(self.from.revision)), on(Some(self.to)), self.to.clone());
        let to = Revision::Branch(to);
        actions.iter().find_map(|action| {
            let from = narrowed(pace, self.judge, *action, &here, self.from);
            let denied = !self.judge.allows_read(*action, &here, from);
            let shown = denied && self.judge.allows_read(*action, &there, &to);
            if shown { self.judge.read_path(*action, &here, from).err() } else { None }
        })
    }
}
