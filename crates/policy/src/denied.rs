//! What a deny says.

use crate::action::Action;
use crate::explain::Change;
use crate::policies::Answer;

/// A refusal, with what decided it. It says nothing about whether the resource exists: that was never asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{action}` on `{resource}` is denied: {reason}")]
pub struct Denied {
    /// What was asked for.
    pub action: Action,
    /// On what, as the caller named it.
    pub resource: String,
    /// Ids of the policies that decided, sorted; empty when no policy permitted it.
    pub policies: Vec<String>,
    /// For people.
    pub reason: String,
    /// Set when a policy could not be evaluated: an operator has to look.
    pub broken: bool,
    /// The smallest set of changes with which it would be allowed, where one was found. Never for what is another
    /// tenant's or user's.
    pub flip: Vec<Change>,
}

impl Denied {
    pub(crate) fn answered(action: Action, resource: &str, answer: Answer) -> Self {
        let Answer { policies, reason, broken, .. } = answer;
        Self { action, resource: resource.to_owned(), policies, reason, broken, flip: Vec::new() }
    }

    /// A refusal that no policy made: what was asked cannot be put to one.
    #[must_use]
    pub fn unasked(action: Action, resource: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            action,
            resource: resource.into(),
            policies: Vec::new(),
            reason: reason.into(),
            broken: false,
            flip: vec![],
        }
    }
}
