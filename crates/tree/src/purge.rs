//! Taking a path out of all history.
//!
//! ```text
//! prepare: new versions without the path ──▶ the caller moves all branches at once ──▶ seal: the old versions are refused
//!                                                                                  ──▶ garbage collection removes them
//! ```
//!
//! The new versions are written while everybody works; only what was added since is written under the caller's lock.
//! A crash before the branches move leaves garbage; one after it is made good by sealing again. Versions that are not
//! affected keep their ids. Whoever is at work on an old version is told what that has become ([`Store::current`]).

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bailey_protocol::id::VersionId;
use bailey_protocol::path::bytes_of;
use gix_hash::ObjectId;

use crate::cache::lock;
use crate::edits::{EditFault, Edits};
use crate::error::TreeError;
use crate::ledger::Room;
use crate::object::{Kind, object_id, version_id};
use crate::staging::Staging;
use crate::store::Store;
use crate::{path, shallow};

/// The purged versions of a store, one id per line; ours, ignored by git.
const FILE: &str = "bailey-purged";
/// Purges that are remembered for those who were at work meanwhile. Others are refused.
const REMEMBERED: usize = 8;

/// What purges have taken out of a store.
#[derive(Debug, Default)]
pub(crate) struct Purged {
    ids: RwLock<HashSet<ObjectId>>,
    recent: Mutex<Vec<Arc<Purge>>>,
}

impl Purged {
    pub(crate) fn read(folder: &Path) -> Result<Self, TreeError> {
        Ok(Self { ids: RwLock::new(shallow::read_ids(folder, FILE)?), recent: Mutex::default() })
    }

    /// # Errors
    /// When the version was purged.
    pub(crate) fn refuse(&self, id: &ObjectId) -> Result<(), TreeError> {
        if self.ids.read().unwrap_or_else(PoisonError::into_inner).contains(id) {
            return Err(TreeError::VersionExpired { version: id.to_string() });
        }
        Ok(())
    }
}

/// A history without a path, beside the one with it.
#[derive(Debug, Default)]
pub struct Purge {
    inner: String,
    became: HashMap<ObjectId, ObjectId>,
    /// Versions that never had the path.
    same: HashSet<ObjectId>,
    /// The epoch in which the branches moved.
    epoch: u64,
}

impl Purge {
    /// Which version became which.
    pub fn became(&self) -> impl Iterator<Item = (VersionId, VersionId)> {
        self.became.iter().map(|(old, new)| (version_id(old), version_id(new)))
    }

    /// How many versions had the path, or grew from one that did.
    #[must_use]
    pub fn len(&self) -> usize {
        self.became.len()
    }

    /// Whether no version had the path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.became.is_empty()
    }

    /// What a version became: itself, when it never had the path.
    #[must_use]
    pub fn now(&self, version: &VersionId) -> VersionId {
        self.became.get(&object_id(version.as_str())).map_or_else(|| version.clone(), version_id)
    }
}

impl Store {
    /// Writes what the history of `heads` would be without `inner`. Nothing leads there yet: the caller holds this handle,
    /// keeps everybody else from moving branches, has [`Store::extend_purge`] write what was added meanwhile, moves all
    /// branches, then calls [`Store::seal_purge`].
    ///
    /// # Errors
    /// When the path cannot be one or is the root, a version is missing, or storage fails.
    pub fn prepare_purge(&self, inner: &str, heads: &[VersionId]) -> Result<Purge, TreeError> {
        if path::parse_inner(&bytes_of(inner))?.is_empty() {
            return Err(TreeError::InvalidPath { path: inner.to_owned(), rule: "the root of a tree stays" });
        }
        let mut purge = Purge { inner: inner.to_owned(), ..Purge::default() };
        self.extend_purge(&mut purge, heads)?;
        Ok(purge)
    }

    /// The same for `heads` that the branches have moved to since: what was written before is not written again.
    ///
    /// # Errors
    /// As [`Store::prepare_purge`].
    pub fn extend_purge(&self, purge: &mut Purge, heads: &[VersionId]) -> Result<(), TreeError> {
        let heads: Vec<ObjectId> = heads.iter().map(|head| object_id(head.as_str())).collect();
        self.rewrite(purge, &heads)
    }

    /// From now on the old versions are refused, and [`Store::current`] knows the new ones.
    ///
    /// # Errors
    /// When they cannot be written down: they are refused by this process, and the caller calls
    /// [`Store::refuse_purged`] until it can.
    pub fn seal_purge(&self, purge: Purge) -> Result<(), TreeError> {
        let leases = self.objects().leases();
        leases.repin(&purge.became);
        let old: Vec<ObjectId> = purge.became.keys().copied().collect();
        {
            let mut recent = lock(&self.repo.purged.recent);
            // Every lease from before is of an earlier epoch.
            recent.push(Arc::new(Purge { epoch: leases.advance(), ..purge }));
            let extra = recent.len().saturating_sub(REMEMBERED);
            recent.drain(..extra);
        }
        self.refuse_versions(old.into_iter())
    }

    /// Refuses versions that a purge took out, as after a crash before [`Store::seal_purge`].
    ///
    /// # Errors
    /// When storage fails.
    pub fn refuse_purged(&self, versions: &[VersionId]) -> Result<(), TreeError> {
        self.refuse_versions(versions.iter().map(|version| object_id(version.as_str())))
    }

    /// How many of `versions` still lie on disk.
    ///
    /// # Errors
    /// When storage fails.
    pub fn count_present(&self, versions: &[VersionId]) -> Result<usize, TreeError> {
        let mut present = 0;
        for version in versions {
            present += usize::from(self.objects().exists(&object_id(version.as_str()))?);
        }
        Ok(present)
    }

    /// What a version is now that purges may have gone over it: for those who made it, or who started from it, before.
    ///
    /// # Errors
    /// When too many purges have gone over it, or storage fails.
    pub fn current(&self, version: &VersionId) -> Result<VersionId, TreeError> {
        let recent: Vec<Arc<Purge>> = lock(&self.repo.purged.recent).clone();
        let mut id = object_id(version.as_str());
        for purge in recent {
            if let Some(new) = purge.became.get(&id) {
                id = *new;
            } else if self.lease.is_before(purge.epoch) {
                let mut more = Purge { inner: purge.inner.clone(), ..Purge::default() };
                more.became.clone_from(&purge.became);
                more.same.clone_from(&purge.same);
                self.rewrite(&mut more, &[id])?;
                id = more.became.get(&id).copied().unwrap_or(id);
            }
        }
        self.repo.purged.refuse(&id)?;
        Ok(version_id(&id))
    }

    fn refuse_versions(&self, ids: impl Iterator<Item = ObjectId>) -> Result<(), TreeError> {
        let mut known = self.repo.purged.ids.write().unwrap_or_else(PoisonError::into_inner);
        // INVARIANT: refused from here on, whatever the disk says.
        known.extend(ids);
        if known.is_empty() {
            return Ok(());
        }
        self.ensure()?;
        shallow::write_ids(&self.repo.folder, FILE, known.iter())
    }

    /// Adds to `purge` what `heads` and all before them become.
    fn rewrite(&self, purge: &mut Purge, heads: &[ObjectId]) -> Result<(), TreeError> {
        self.ensure()?;
        let mut staging = Staging::within(self.objects(), Room::Counted)?;
        let (mut trees, mut claims) = (HashMap::new(), Vec::new());
        let mut todo: Vec<(ObjectId, bool)> = heads.iter().map(|head| (*head, false)).collect();
        while let Some((id, parents_done)) = todo.pop() {
            if purge.became.contains_key(&id) || purge.same.contains(&id) {
                continue;
            }
            let commit = self.objects().peek_commit(&id)?;
            let commit = commit.ok_or_else(|| TreeError::corrupt(id, "a version is missing from the store"))?;
            if !parents_done {
                todo.push((id, true));
                todo.extend(commit.parents.iter().map(|parent| (*parent, false)));
                continue;
            }
            let tree = match trees.get(&commit.tree) {
                Some(tree) => *tree,
                None => {
                    let tree = self.without(&mut staging, commit.tree, &purge.inner)?;
                    trees.insert(commit.tree, tree);
                    tree
                }
            };
            let parents: Vec<ObjectId> =
                commit.parents.iter().map(|parent| purge.became.get(parent).copied().unwrap_or(*parent)).collect();
            if tree == commit.tree && parents == commit.parents {
                purge.same.insert(id);
                continue;
            }
            let bytes = self.objects().commit_bytes(&id)?.unwrap_or_default();
            let new = staging.add(Kind::Commit, &with(&bytes, &tree, &parents))?;
            if self.repo.claims.contains(&id) {
                claims.push(new);
            }
            purge.became.insert(id, new);
        }
        self.repo.claims.add(&self.repo.folder, &claims)?;
        staging.finish()
    }

    fn without(&self, staging: &mut Staging<'_>, tree: ObjectId, inner: &str) -> Result<ObjectId, TreeError> {
        if self.find(&tree, inner)?.is_none() {
            return Ok(tree);
        }
        let mut edits = Edits::new(self.objects(), tree);
        edits.remove(&path::parse_inner(&bytes_of(inner))?).map_err(|fault| match fault {
            EditFault::Tree(error) => error,
            EditFault::BelowAFile | EditFault::TooMany => TreeError::corrupt(tree, "the path cannot be removed"),
        })?;
        edits.apply(staging)
    }
}

/// A commit with another tree and other parents, and else as it was. Signatures go: they would not hold.
fn with(commit: &[u8], tree: &ObjectId, parents: &[ObjectId]) -> Vec<u8> {
    let mut out = format!("tree {tree}\n").into_bytes();
    parents.iter().for_each(|parent| out.extend_from_slice(format!("parent {parent}\n").as_bytes()));
    let end = commit.windows(2).position(|two| two == b"\n\n").map_or(commit.len(), |at| at + 1);
    let (head, rest) = commit.split_at_checked(end).unwrap_or((commit, b""));
    let mut dropped = false;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let goes = |name: &&[u8]| line.starts_with(name);
        let names: [&[u8]; 4] = [b"tree ", b"parent ", b"gpgsig", b"mergetag "];
        dropped = if line.starts_with(b" ") { dropped } else { names.iter().any(goes) };
        if !dropped {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_keeps_all_but_tree_parents_and_signature() {
        let id = |byte| ObjectId::from_bytes_or_panic(&[byte; 20]);
        let old = format!(
            "tree {}\nparent {}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\ngpgsig -----\n line\n end\nx-odd y\n\n\
             tree of life\n\nparent\n",
            id(1),
            id(2)
        );
        let new = with(old.as_bytes(), &id(3), &[id(4), id(5)]);
        let expected = format!(
            "tree {}\nparent {}\nparent {}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\nx-odd y\n\n\
             tree of life\n\nparent\n",
            id(3),
            id(4),
            id(5)
        );
        assert_eq!(String::from_utf8(new).unwrap(), expected);
    }
}
