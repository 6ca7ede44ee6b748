//! Protections and labels in memory, so that no decision waits for the database.
//!
//! Filled at start and changed right after the database was, before anybody is answered: by whoever holds the store's
//! lock, or in a task that outlives its request. Labels hold for a path on every branch and version of its store, and
//! for all that is below it there; a tenant's root is not above its users' folders, which are stores of their own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use bailey_protocol::api::{LabelledPath, Protection};
use bailey_protocol::id::{TenantId, UserId};
use bailey_protocol::label::Label;
use bailey_protocol::path::{BranchName, RepoId, TreePath};

use crate::db::{FORGOTTEN, LabelRow, ProtectionRow, TreeMetaRows};

/// What is known of all trees.
#[derive(Debug, Default)]
pub(crate) struct TreeMeta {
    stores: RwLock<HashMap<RepoId, StoreMeta>>,
    /// Goes up with each change of a label, in whatever store.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct StoreMeta {
    /// By path in the store; the root is the empty path.
    labels: BTreeMap<String, BTreeSet<Label>>,
    /// Another one after each change of a label; a store that is not here has none.
    generation: u64,
    protections: BTreeMap<BranchName, Protection>,
    /// Changes on their way whose labels are not here yet.
    coming: usize,
}

impl TreeMeta {
    pub(crate) fn new(rows: TreeMetaRows) -> Self {
        let meta = Self::default();
        rows.protections.into_iter().for_each(|row| meta.protect(row));
        meta.add_labels(&rows.labels);
        meta
    }

    /// The labels that hold for `path`: its own and those of the folders above it.
    pub(crate) fn labels(&self, path: &TreePath) -> BTreeSet<Label> {
        self.read(path.repo(), |store| {
            let mut found = BTreeSet::new();
            for above in upwards(path.inner()) {
                found.extend(store.labels.get(above).into_iter().flatten().cloned());
            }
            found
        })
    }

    /// The labels that hold for anything at or below `path`: those of whoever reads all of it.
    pub(crate) fn labels_of_slice(&self, path: &TreePath) -> BTreeSet<Label> {
        let mut found = self.labels(path);
        self.read(path.repo(), |store| {
            found.extend(store.below(path.inner()).flat_map(|(_, labels)| labels.iter().cloned()));
        });
        found
    }

    /// The labels of the folders above `path`.
    pub(crate) fn labels_above(&self, path: &TreePath) -> BTreeSet<Label> {
        self.read(path.repo(), |store| {
            let above = upwards(path.inner()).filter(|above| *above != path.inner());
            above.flat_map(|above| store.labels.get(above).into_iter().flatten().cloned()).collect()
        })
    }

    /// The path's own labels.
    pub(crate) fn own_labels(&self, path: &TreePath) -> BTreeSet<Label> {
        self.read(path.repo(), |store| store.labels.get(path.inner()).cloned().unwrap_or_default())
    }

    /// Paths strictly below `path` with labels of their own, in order, at most `most`.
    pub(crate) fn labelled_below(&self, path: &TreePath, most: usize) -> Vec<LabelledPath> {
        let root = root_of(path);
        self.read(path.repo(), |store| {
            let named = store.below(path.inner()).filter_map(|(inner, labels)| {
                let path = format!("{root}/{inner}").parse().ok()?;
                Some(LabelledPath { path, labels: labels.clone() })
            });
            named.take(most).collect()
        })
    }

    /// How many paths of the store have labels of their own.
    pub(crate) fn labelled(&self, repo: &RepoId) -> usize {
        self.read(repo, |store| store.labels.len())
    }

    pub(crate) fn protection(&self, repo: &RepoId, branch: &BranchName) -> Option<Protection> {
        self.read(repo, |store| store.protections.get(branch).cloned())
    }

    pub(crate) fn protections(&self, repo: &RepoId) -> Vec<Protection> {
        self.read(repo, |store| store.protections.values().cloned().collect())
    }

    /// Which labels of a store a decision was made with. Zero is none at all.
    pub(crate) fn generation(&self, repo: &RepoId) -> u64 {
        self.read(repo, |store| store.generation)
    }

    pub(crate) fn protect(&self, row: ProtectionRow) {
        let ProtectionRow { repo, branch, review, by, since_ms } = row;
        let protection = Protection { branch: branch.clone(), review, by: by.to_string(), since_ms };
        self.change(&repo, |store| drop(store.protections.insert(branch, protection)));
    }

    pub(crate) fn unprotect(&self, repo: &RepoId, branch: &BranchName) {
        self.change(repo, |store| drop(store.protections.remove(branch)));
    }

    pub(crate) fn set_labels(&self, path: &TreePath, labels: BTreeSet<Label>) {
        self.change_labels(path.repo(), |store| {
            if labels.is_empty() {
                store.labels.remove(path.inner());
            } else {
                store.labels.insert(path.inner().to_owned(), labels);
            }
        });
    }

    /// Takes all labels from `path` and what is below it.
    pub(crate) fn forget_labels(&self, path: &TreePath) {
        let prefix = format!("{}/", path.inner());
        self.change_labels(path.repo(), |store| {
            store.labels.retain(|inner, _| inner != path.inner() && !inner.starts_with(&prefix));
        });
    }

    /// Forgets a user: what is noted of its own store, and that it protected branches of its tenant's.
    pub(crate) fn forget_user(&self, tenant: &TenantId, user: &UserId) {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|repo, _| repo.tenant != *tenant || repo.user.as_ref() != Some(user));
        let of_tenant = stores.iter_mut().filter(|(repo, _)| repo.tenant == *tenant);
        for protection in of_tenant.flat_map(|(_, store)| store.protections.values_mut()) {
            if protection.by == user.as_str() {
                FORGOTTEN.clone_into(&mut protection.by);
            }
        }
    }

    pub(crate) fn add_labels(&self, rows: &[LabelRow]) {
        for row in rows {
            self.change_labels(&row.repo, |store| {
                store.labels.entry(row.inner.clone()).or_default().extend(row.labels.iter().cloned());
            });
        }
    }

    fn change_labels(&self, repo: &RepoId, make: impl FnOnce(&mut StoreMeta)) {
        let generation = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        self.change(repo, |store| {
            make(store);
            store.generation = generation;
        });
    }

    /// From now on until the guard goes, changes are on their way to these stores whose labels are not known here.
    pub(crate) fn coming(&self, rows: &[LabelRow]) -> Coming<'_> {
        let repos: Vec<RepoId> = rows.iter().map(|row| row.repo.clone()).collect();
        repos.iter().for_each(|repo| self.change(repo, |store| store.coming += 1));
        Coming { meta: self, repos }
    }

    /// Whether the labels of what a branch of the store leads to may not be known here yet. They are once the turn to change
    /// labels is free.
    pub(crate) fn is_coming(&self, repo: &RepoId) -> bool {
        self.read(repo, |store| store.coming > 0)
    }

    fn read<T: Default>(&self, repo: &RepoId, look: impl FnOnce(&StoreMeta) -> T) -> T {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        stores.get(repo).map(look).unwrap_or_default()
    }

    fn change(&self, repo: &RepoId, make: impl FnOnce(&mut StoreMeta)) {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        let store = stores.entry(repo.clone()).or_default();
        make(store);
        if store.labels.is_empty() && store.protections.is_empty() && store.coming == 0 {
            stores.remove(repo);
        }
    }
}

/// See [`TreeMeta::coming`].
#[derive(Debug)]
pub(crate) struct Coming<'a> {
    meta: &'a TreeMeta,
    repos: Vec<RepoId>,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        for repo in &self.repos {
            self.meta.change(repo, |store| store.coming = store.coming.saturating_sub(1));
        }
    }
}

impl StoreMeta {
    fn below<'a>(&'a self, inner: &str) -> impl Iterator<Item = (&'a str, &'a BTreeSet<Label>)> + use<'a> {
        let prefix = if inner.is_empty() { String::new() } else { format!("{inner}/") };
        let from: Bound<&str> = Bound::Excluded(&prefix);
        let rows = self.labels.range::<str, _>((from, Bound::Unbounded));
        let rows: Vec<_> = rows.take_while(|(path, _)| path.starts_with(&prefix)).collect();
        rows.into_iter().map(|(path, labels)| (path.as_str(), labels))
    }
}

/// A path in a store, each folder above it, and the root.
fn upwards(inner: &str) -> impl Iterator<Item = &str> {
    let folders = inner.match_indices('/').filter_map(|(at, _)| inner.get(..at));
    let itself = if inner.is_empty() { None } else { Some(inner) };
    std::iter::once("").chain(folders).chain(itself)
}

/// The root of the path's store.
pub(crate) fn root_of(path: &TreePath) -> &str {
    path.as_str().strip_suffix(path.inner()).unwrap_or(path.as_str()).trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str, labels: &[&str]) -> LabelRow {
        let path: TreePath = path.parse().unwrap();
        LabelRow { repo: path.repo().clone(), inner: path.inner().to_owned(), labels: set(labels) }
    }

    fn set(labels: &[&str]) -> BTreeSet<Label> {
        labels.iter().map(|label| label.parse().unwrap()).collect()
    }

    #[test]
    fn a_label_holds_for_its_path_and_all_below_it_in_the_same_store() {
        let rows = [
            row("/tenants/acme/a", &["one"]),
            row("/tenants/acme/a/b", &["two"]),
            row("/tenants/acme/a.b", &["three"]),
            row("/tenants/acme/users/ana", &["own"]),
            row("/tenants/globex", &["all"]),
        ];
        let meta = TreeMeta::new(TreeMetaRows { labels: rows.to_vec(), ..TreeMetaRows::default() });
        for (path, at, slice) in [
            ("/tenants/acme", &[][..], &["one", "two", "three"][..]),
            ("/tenants/acme/a", &["one"], &["one", "two"]),
            ("/tenants/acme/a/b", &["one", "two"], &["one", "two"]),
            ("/tenants/acme/a/b/c", &["one", "two"], &["one", "two"]),
            ("/tenants/acme/a/bc", &["one"], &["one"]),
            ("/tenants/acme/ab", &[], &[]),
            ("/tenants/acme/users/ana", &["own"], &["own"]),
            ("/tenants/acme/users/ana/x", &["own"], &["own"]),
            ("/tenants/acme/users/bob/x", &[], &[]),
            ("/tenants/globex/x/y", &["all"], &["all"]),
        ] {
            let path = path.parse().unwrap();
            assert_eq!(meta.labels(&path), set(at), "{path}");
            assert_eq!(meta.labels_of_slice(&path), set(slice), "{path}");
        }
        let below = meta.labelled_below(&"/tenants/acme/a".parse().unwrap(), 9);
        assert_eq!(below.len(), 1);
        assert_eq!(below[0].path.as_str(), "/tenants/acme/a/b");
        let row = row("/tenants/initech/x", &["one"]);
        let coming = meta.coming(std::slice::from_ref(&row));
        assert!(
            meta.is_coming(&row.repo)
                && !meta.is_coming(&RepoId { user: Some("x".parse().unwrap()), ..row.repo.clone() })
        );
        drop(coming);
        assert!(!meta.is_coming(&row.repo));
        let [acme, globex] = ["/tenants/acme", "/tenants/globex"].map(|path| path.parse::<TreePath>().unwrap());
        let of = |path: &TreePath| meta.generation(path.repo());
        let before = (of(&acme), of(&globex));
        meta.set_labels(&"/tenants/acme/a".parse().unwrap(), set(&[]));
        assert!(meta.labels(&"/tenants/acme/a/x".parse().unwrap()).is_empty());
        assert!(of(&acme) > before.0 && of(&globex) == before.1, "of that store alone");
        meta.forget_labels(&globex);
        assert_eq!(of(&globex), 0);
        meta.set_labels(&globex, set(&["again"]));
        assert!(of(&globex) > before.1, "never the same again");
    }
}
