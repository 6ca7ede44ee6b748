//! All stores of one machine, below one folder.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use bailey_protocol::path::RepoId;

use crate::blob_store::{BlobStore, Folder};
use crate::cache::{Caches, StoreNumber, lock};
use crate::error::TreeError;
use crate::objects::Objects;
use crate::refs;
use crate::store::{Repo, Store};

/// Most stores that are kept ready while nobody uses them.
const MAX_IDLE_STORES: usize = 64;

/// The stores in one folder: `{tenant}/tenant.git` and `{tenant}/users/{user}.git`. Clones share what is open.
#[derive(Clone)]
pub struct Trees {
    root: PathBuf,
    caches: Arc<Caches>,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    /// One entry per repository in use, so that all handles on it share one [`Repo`].
    repos: HashMap<RepoId, Weak<Repo>>,
    /// The most recently asked for, last one last.
    recent: VecDeque<Arc<Repo>>,
    next: StoreNumber,
}

impl Trees {
    /// Opens the stores below `root`, which is made if need be. No other process may have it open.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(root: &Path) -> Result<Self, TreeError> {
        fs::create_dir_all(root).map_err(TreeError::storage("creating", root.display()))?;
        Ok(Self { root: root.to_owned(), caches: Arc::new(Caches::new()), open: Arc::default() })
    }

    /// A handle on one store. Nothing is made on disk before the first write.
    ///
    /// # Errors
    /// When leftovers of an earlier process cannot be removed.
    pub fn store(&self, id: &RepoId) -> Result<Store, TreeError> {
        let mut open = lock(&self.open);
        if let Some(repo) = open.repos.get(id).and_then(Weak::upgrade) {
            open.touch(&repo);
            return Ok(Store { repo });
        }
        let folder = self.folder(id);
        let blobs = Folder::new(folder.join("objects/pack"));
        blobs.sweep()?;
        refs::sweep(&folder)?;
        open.next += 1;
        let repo = Arc::new(Repo {
            id: id.clone(),
            objects: Objects::new(open.next, Box::new(blobs), Arc::clone(&self.caches)),
            folder,
            root: self.root.clone(),
            laid_out: Mutex::new(false),
            refs: Mutex::new(()),
        });
        open.remember(&repo);
        Ok(Store { repo })
    }

    fn folder(&self, id: &RepoId) -> PathBuf {
        let tenant = self.root.join(id.tenant.as_str());
        match &id.user {
            None => tenant.join("tenant.git"),
            Some(user) => tenant.join("users").join(format!("{user}.git")),
        }
    }
}

impl Open {
    fn remember(&mut self, repo: &Arc<Repo>) {
        self.repos.retain(|_, known| known.strong_count() > 0);
        self.repos.insert(repo.id.clone(), Arc::downgrade(repo));
        self.touch(repo);
    }

    fn touch(&mut self, repo: &Arc<Repo>) {
        self.recent.retain(|known| !Arc::ptr_eq(known, repo));
        self.recent.push_back(Arc::clone(repo));
        if self.recent.len() > MAX_IDLE_STORES {
            self.recent.pop_front();
        }
    }
}

impl fmt::Debug for Trees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trees").field("root", &self.root).finish_non_exhaustive()
    }
}
