//! Bounded caches of what has been read and verified, shared by all stores of one [`crate::Trees`].

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gix_hash::ObjectId;

use crate::blob_store::RangedRead;
use crate::commit::Commit;
use crate::extent::Extent;
use crate::object::Tree;

/// The number that sets one store's entries apart from every other's.
pub(crate) type StoreNumber = u64;
/// What entries are found by: never by the object's id alone, which would show one tenant what another has.
pub(crate) type Key = (StoreNumber, ObjectId);

/// All caches. Their limits hold for all stores together.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) packs: Mutex<Cache<Key, Arc<dyn RangedRead>>>,
    pub(crate) trees: Mutex<Cache<Key, Arc<Tree>>>,
    pub(crate) commits: Mutex<Cache<Key, Arc<Commit>>>,
    pub(crate) sizes: Mutex<Cache<Key, u64>>,
    pub(crate) sums: Mutex<Cache<Key, Arc<Vec<u32>>>>,
    pub(crate) extents: Mutex<Cache<Key, Extent>>,
    pub(crate) contents: Mutex<Cache<Key, u64>>,
}

impl Caches {
    pub(crate) fn new() -> Self {
        Self {
            packs: Mutex::new(Cache::new(256)),
            trees: Mutex::new(Cache::new(64 << 20)),
            commits: Mutex::new(Cache::new(16 << 20)),
            sizes: Mutex::new(Cache::new(256 << 10)),
            sums: Mutex::new(Cache::new(16 << 20)),
            extents: Mutex::new(Cache::new(256 << 10)),
            contents: Mutex::new(Cache::new(256 << 10)),
        }
    }
}

impl Caches {
    /// Drops all that was read of one store.
    pub(crate) fn forget(&self, store: StoreNumber) {
        let other = |key: &Key| key.0 != store;
        lock(&self.packs).retain(other);
        lock(&self.trees).retain(other);
        lock(&self.commits).retain(other);
        lock(&self.sizes).retain(other);
        lock(&self.sums).retain(other);
        lock(&self.extents).retain(other);
        lock(&self.contents).retain(other);
    }
}

/// Locks, also after a panic elsewhere: what is guarded here is never left half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A map of at most `limit` total weight. Two generations: the older is dropped when the younger is half full.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    young: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
    weight: usize,
    limit: usize,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), weight: 0, limit }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, weight) = self.old.remove(key)?;
        self.put(key.clone(), value.clone(), weight);
        Some(value)
    }

    /// Drops the entries whose key is not one to keep.
    pub(crate) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.old.retain(|key, _| keep(key));
        self.young.retain(|key, _| keep(key));
        self.weight = self.young.values().map(|(_, weight)| weight).sum();
    }

    pub(crate) fn put(&mut self, key: K, value: V, weight: usize) {
        if self.weight.saturating_add(weight) > self.limit / 2 {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        if weight <= self.limit / 2 {
            self.weight = self.weight.saturating_add(weight);
            self.young.insert(key, (value, weight));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_keeps_what_is_used_and_stays_below_its_limit() {
        let mut cache = Cache::new(10);
        cache.put("used", 0, 1);
        for round in 0..100 {
            cache.put(if round % 2 == 0 { "a" } else { "b" }, round, 3);
            assert_eq!(cache.get(&"used"), Some(0), "round {round}");
            let held: usize = cache.young.values().chain(cache.old.values()).map(|(_, weight)| weight).sum();
            assert!(held <= 10);
        }
        cache.put("huge", 1, 100);
        assert_eq!(cache.get(&"huge"), None);
    }
}
