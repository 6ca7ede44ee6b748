//! One committer at a time per store: from reading the head of a branch to publishing where it moved.
//!
//! The database's compare-and-swap is what makes a lost update impossible. The lock makes it rare to have to merge
//! twice, and keeps the refs that stock git reads from going backwards.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bailey_protocol::path::RepoId;

/// The locks of all stores in use.
#[derive(Debug, Default)]
pub(crate) struct StoreLocks(Mutex<HashMap<RepoId, Weak<Mutex<()>>>>);

/// Entries beyond which those that nobody holds are cleared away.
const CLEAR_ABOVE: usize = 1024;

impl StoreLocks {
    /// The lock of one store. It is for blocking threads only: it is held while a disk works.
    #[must_use]
    pub(crate) fn of(&self, repo: &RepoId) -> Arc<Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(repo).and_then(Weak::upgrade) {
            return lock;
        }
        if locks.len() >= CLEAR_ABOVE {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(Mutex::new(()));
        locks.insert(repo.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_store_has_one_lock_and_unused_ones_go() {
        let locks = StoreLocks::default();
        let repo = |n: usize| RepoId { tenant: format!("t{n}").parse().unwrap(), user: None };
        let held = locks.of(&repo(0));
        assert!(Arc::ptr_eq(&held, &locks.of(&repo(0))));
        assert!(!Arc::ptr_eq(&held, &locks.of(&repo(1))));
        for n in 0..2 * CLEAR_ABOVE {
            drop(locks.of(&repo(n)));
        }
        assert!(locks.0.lock().unwrap().len() <= CLEAR_ABOVE);
        assert!(Arc::ptr_eq(&held, &locks.of(&repo(0))));
    }
}
