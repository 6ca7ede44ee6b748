//! What a key or a tree token is narrowed to. It only ever takes away: policy is asked about its user all the same.

use std::collections::BTreeSet;

use bailey_protocol::path::TreePath;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::denied::Denied;
use crate::facts::RunFacts;
use crate::principal::CredentialId;

/// The name that a denial by a scope carries where a policy's id stands. No policy can have it.
pub const SCOPE_POLICY: &str = "credential-scope";

/// What a credential may be used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Actions it is for; none named is none allowed.
    pub actions: BTreeSet<Action>,
    /// Paths it is for, with what is below each in the same store. `None` is every path of its user's.
    pub paths: Option<Vec<TreePath>>,
    /// Whether it only looks, whatever actions are named.
    pub read_only: bool,
}

impl Scope {
    /// An action that it names and that its paths make void: a scope that has one says something else than was meant.
    #[must_use]
    pub fn void_action(&self) -> Option<Action> {
        self.paths.as_ref()?;
        self.actions.iter().copied().find(|action| !action.fits_paths())
    }

    /// Whether it may refuse `action` on what is below a path that it was asked about for another action. A path that
    /// it covers it covers with all that is below, so that paths make no difference.
    pub(crate) fn decides_below(&self, action: Action) -> bool {
        !self.actions.contains(&action) || (self.read_only && !action.reads())
    }

    /// Whether a credential of this scope may look at a run of its user's at all. What was narrowed to paths may where it
    /// made the run, or where all that the run was given of the tree lies in them. A run without mounts shows what came
    /// with its request, of which nobody knows where it was from.
    pub(crate) fn shows(&self, credential: &CredentialId, run: &RunFacts) -> bool {
        match (&self.paths, &run.origin) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(_), Some(origin)) => {
                let within = !origin.mounts.is_empty() && origin.mounts.iter().all(|path| self.covers(Some(path)));
                origin.credential == *credential || within
            }
        }
    }

    /// As [`Scope::refusal`], about a run.
    pub(crate) fn run_refusal(&self, action: Action, credential: &CredentialId, run: &RunFacts) -> Option<Denied> {
        let hidden = || {
            let reason = "the credential is not for the paths of this run";
            (!self.shows(credential, run)).then(|| refused(action, run.run.as_str(), reason))
        };
        self.refusal(action, run.run.as_str(), None).or_else(hidden)
    }

    /// `None` where the scope covers it.
    pub(crate) fn refusal(&self, action: Action, resource: &str, path: Option<&TreePath>) -> Option<Denied> {
        let reason = if !self.actions.contains(&action) {
            "the credential is not for this action"
        } else if self.read_only && !action.reads() {
            "the credential is for reading only"
        } else if self.paths.is_some() && !action.fits_paths() {
            "the credential is for paths, and this is about the whole tenant"
        } else if !self.covers(path) {
            "the credential is not for this path"
        } else {
            return None;
        };
        Some(refused(action, resource, reason))
    }

    /// A run is told apart by [`Scope::shows`], where there is one.
    fn covers(&self, path: Option<&TreePath>) -> bool {
        match (&self.paths, path) {
            (Some(prefixes), Some(path)) => prefixes.iter().any(|prefix| prefix.holds(path)),
            (None, _) | (Some(_), None) => true,
        }
    }
}

fn refused(action: Action, resource: &str, reason: &str) -> Denied {
    Denied { policies: vec![SCOPE_POLICY.to_owned()], ..Denied::unasked(action, resource, reason) }
}
