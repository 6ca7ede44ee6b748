//! Which versions may be named by their id: those that a branch leads to, or once led to and that are still here.
//!
//! A store holds more than that for a while: what a refused push brought, and what a change made that did not land. Nobody
//! decided that these may be seen, so they are none.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, RepoId};
use bailey_tree::Store;

use super::upkeep;
use crate::api_error::ApiError;
use crate::control::Control;

/// Versions that are remembered, so that reading one again and again walks through history once.
const MAX_REMEMBERED: usize = 10_000;

/// Versions to which a branch led when they were asked for. That stays true of them: whether they are still kept, and not
/// purged, is the store's to say each time.
#[derive(Debug, Default)]
pub(crate) struct Reached(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    all: HashSet<(RepoId, VersionId)>,
    oldest_first: VecDeque<(RepoId, VersionId)>,
}

impl Reached {
    fn knows(&self, key: &(RepoId, VersionId)) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all.contains(key)
    }

    fn learn(&self, key: (RepoId, VersionId)) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.all.insert(key.clone()) {
            remembered.oldest_first.push_back(key);
        }
        if remembered.oldest_first.len() > MAX_REMEMBERED
            && let Some(oldest) = remembered.oldest_first.pop_front()
        {
            remembered.all.remove(&oldest);
        }
    }
}

/// Whether a branch of the store leads to the version. Blocks.
pub(super) fn is_reachable(control: &Control, store: &Store, asked: &VersionId) -> Result<bool, ApiError> {
    let key = (store.id().clone(), asked.clone());
    if control.reached().knows(&key) {
        return Ok(true);
    }
    let heads: Vec<VersionId> = upkeep::branches(control, store.id())?.into_iter().map(|(_, head)| head).collect();
    let reached = store.unreachable(&heads, std::slice::from_ref(asked))?.is_none();
    if reached {
        control.reached().learn(key);
    }
    Ok(reached)
}

/// The branches that lead to the version, with their heads: `main` first, where it does. Blocks.
pub(super) fn over(
    control: &Control,
    store: &Store,
    asked: &VersionId,
) -> Result<Vec<(BranchName, VersionId)>, ApiError> {
    let mut branches = upkeep::branches(control, store.id())?;
    branches.sort_by_key(|(branch, _)| *branch != BranchName::main());
    let heads: Vec<VersionId> = branches.iter().map(|(_, head)| head.clone()).collect();
    let leading = store.leading(&heads, asked)?;
    Ok(branches.into_iter().zip(leading).filter_map(|(branch, leads)| leads.then_some(branch)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let reached = Reached::default();
        let repo = RepoId { tenant: "acme".parse().unwrap(), user: None };
        let key = |n: usize| (repo.clone(), format!("{n:040x}").parse::<VersionId>().unwrap());
        for n in 0..=MAX_REMEMBERED {
            reached.learn(key(n));
            reached.learn(key(n));
        }
        assert!(!reached.knows(&key(0)) && reached.knows(&key(1)) && reached.knows(&key(MAX_REMEMBERED)));
    }
}
