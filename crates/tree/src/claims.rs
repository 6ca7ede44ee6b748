//! Pushed commits whose message says that a run made them.
//!
//! What a run made is said in the last lines of a message, as clients of git see it. A commit that is rebased or picked keeps
//! its message, so pushes bring such lines, by accident or on purpose. Those commits are written down here when they are taken
//! in, and for them nobody is told of a run.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use gix_hash::ObjectId;

use crate::error::TreeError;
use crate::shallow;

/// The commits of a store, one id per line; ours, ignored by git.
const FILE: &str = "bailey-claims";
/// Most commits of one store that are written down.
const MAX_CLAIMS: usize = 100_000;

/// What is written down for one store.
#[derive(Debug, Default)]
pub(crate) struct Claims(RwLock<HashSet<ObjectId>>);

impl Claims {
    pub(crate) fn read(folder: &Path) -> Result<Self, TreeError> {
        Ok(Self(RwLock::new(shallow::read_ids(folder, FILE)?)))
    }

    /// Whether a commit says of itself what only Bailey says.
    pub(crate) fn contains(&self, commit: &ObjectId) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(commit)
    }

    /// Writes commits down, durably: before anybody can see them.
    pub(crate) fn add(&self, folder: &Path, commits: &[ObjectId]) -> Result<(), TreeError> {
        if commits.is_empty() {
            return Ok(());
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.len().saturating_add(commits.len()) > MAX_CLAIMS {
            let rule =
                "too many of this tree's commits say in their message that a run made them (`Run: run_…`): reword them";
            return Err(TreeError::refused("the push", rule));
        }
        all.extend(commits);
        shallow::write_ids(folder, FILE, all.iter())
    }
}
