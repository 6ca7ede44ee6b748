//! All stores of one machine, below one folder.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bailey_protocol::id::TenantId;
use bailey_protocol::path::RepoId;
use bailey_protocol::quota::{TenantQuota, TenantUsage};

use crate::blob_store::{BlobStore, Folder};
use crate::cache::{Caches, StoreNumber, lock};
use crate::claims::Claims;
use crate::error::TreeError;
use crate::lease::Leases;
use crate::ledger::{Amount, Ledger, Ledgers};
use crate::objects::Objects;
use crate::purge::Purged;
use crate::store::{Repo, Store};
use crate::{refs, shallow};

mod folders;

/// Most stores that are kept ready while nobody uses them.
const MAX_IDLE_STORES: usize = 64;
/// How long a cycle of garbage collection waits at its begin for those who are at work: most are done in a moment.
const PATIENCE: Duration = Duration::from_millis(50);

/// Where the packs of the store are that has this folder for them.
type Blobs = dyn Fn(PathBuf) -> Box<dyn BlobStore> + Send + Sync;

/// The stores in one folder: `{tenant}/tenant.git` and `{tenant}/users/{user}.git`. Clones share what is open.
#[derive(Clone)]
pub struct Trees {
    root: PathBuf,
    blobs: Arc<Blobs>,
    patience: Duration,
    caches: Arc<Caches>,
    open: Arc<Mutex<Open>>,
    ledgers: Arc<Mutex<Ledgers>>,
    /// Stores that are opened for nobody.
    shut: Arc<Mutex<BTreeSet<RepoId>>>,
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
        Self::over(root, |packs| Box::new(Folder::new(packs)), PATIENCE)
    }

    /// The same over other places for packs than local folders, each made of the folder that it stands for. Garbage
    /// collection waits that long for those who are at work: for simulations, where nobody is meanwhile.
    ///
    /// # Errors
    /// As [`Trees::open`].
    pub fn over(
        root: &Path,
        blobs: impl Fn(PathBuf) -> Box<dyn BlobStore> + Send + Sync + 'static,
        patience: Duration,
    ) -> Result<Self, TreeError> {
        fs::create_dir_all(root).map_err(TreeError::storage("creating", root.display()))?;
        let (root, blobs, caches) = (root.to_owned(), Arc::new(blobs), Arc::new(Caches::new()));
        let (open, ledgers, shut) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { root, blobs, patience, caches, open, ledgers, shut })
    }

    /// What every tenant may have for which nothing else is set.
    pub fn set_usual_quota(&self, quota: TenantQuota) {
        lock(&self.ledgers).set_usual(quota);
    }

    /// What one tenant may have, in place of the usual; `None` for the usual again. It holds from the next write on, and
    /// takes nothing away.
    pub fn set_quota(&self, tenant: &TenantId, quota: Option<TenantQuota>) {
        lock(&self.ledgers).set(tenant, quota);
    }

    /// What a tenant may have.
    #[must_use]
    pub fn quota(&self, tenant: &TenantId) -> TenantQuota {
        lock(&self.ledgers).quota(tenant)
    }

    /// What a tenant has, all its stores together.
    ///
    /// # Errors
    /// When its folders cannot be read.
    pub fn usage(&self, tenant: &TenantId) -> Result<TenantUsage, TreeError> {
        Ok(self.ledger(tenant)?.usage())
    }

    /// How many tenants were asked about since this was opened, and what they have together.
    #[must_use]
    pub fn counted(&self) -> (u64, TenantUsage) {
        lock(&self.ledgers).counted()
    }

    /// Every store on disk.
    ///
    /// # Errors
    /// When the folders cannot be read.
    pub fn all(&self) -> Result<Vec<RepoId>, TreeError> {
        folders::all(&self.root)
    }

    /// The stores that are open and have more than that many packs.
    #[must_use]
    pub fn in_use(&self, packs: usize) -> Vec<RepoId> {
        let open = lock(&self.open);
        let many = |repo: &Arc<Repo>| repo.objects.pack_count() > packs;
        open.repos.values().filter_map(Weak::upgrade).filter(many).map(|repo| repo.id.clone()).collect()
    }

    fn ledger(&self, tenant: &TenantId) -> Result<Arc<Ledger>, TreeError> {
        lock(&self.ledgers).ledger(tenant, || folders::count(&self.root, tenant))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Refuses a store to everybody until [`Trees::unshut`].
    pub fn shut(&self, id: &RepoId) {
        lock(&self.shut).insert(id.clone());
    }

    /// Opens a store again; whether it was shut.
    pub fn unshut(&self, id: &RepoId) -> bool {
        lock(&self.shut).remove(id)
    }

    /// The stores that are shut.
    #[must_use]
    pub fn all_shut(&self) -> Vec<RepoId> {
        lock(&self.shut).iter().cloned().collect()
    }

    /// Takes a store off the disk, with all its history. `false` while anybody has a handle on it: then nothing is done.
    /// What a crash leaves of it is no store, and goes with the next call. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be removed.
    pub fn remove(&self, id: &RepoId) -> Result<bool, TreeError> {
        // Before it is gone: it counts what is there.
        let ledger = self.ledger(&id.tenant)?;
        let folder = folders::of(&self.root, id);
        // No store's name ends so.
        let gone = folder.with_extension("gone");
        {
            let mut open = lock(&self.open);
            open.recent.retain(|repo| repo.id != *id);
            if open.repos.get(id).is_some_and(|known| known.strong_count() > 0) {
                return Ok(false);
            }
            open.repos.remove(id);
            clear(&gone)?;
            let used = folders::count_one(&folder)?;
            match fs::rename(&folder, &gone) {
                Ok(()) => ledger.replace(used, Amount::default()),
                Err(none) if none.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(TreeError::storage("removing", folder.display())(error)),
            }
        }
        clear(&gone)?;
        // Why it was shut is gone as well.
        self.unshut(id);
        Ok(true)
    }

    /// A handle on one store. Nothing is made on disk before the first write.
    ///
    /// # Errors
    /// When it is shut, cannot be read, or leftovers of an earlier process cannot be removed.
    pub fn store(&self, id: &RepoId) -> Result<Store, TreeError> {
        if lock(&self.shut).contains(id) {
            return Err(TreeError::Shut);
        }
        self.store_even_shut(id)
    }

    /// The same of one that may be shut: for whoever finds out whether it can be opened again.
    ///
    /// # Errors
    /// As [`Trees::store`].
    pub fn store_even_shut(&self, id: &RepoId) -> Result<Store, TreeError> {
        let mut open = lock(&self.open);
        if let Some(repo) = open.repos.get(id).and_then(Weak::upgrade) {
            open.touch(&repo);
            return Ok(Store::open(repo));
        }
        let folder = folders::of(&self.root, id);
        let blobs = (self.blobs)(folder.join("objects/pack"));
        blobs.sweep()?;
        refs::sweep(&folder)?;
        open.next += 1;
        let (caches, ledger, shallow) = (Arc::clone(&self.caches), self.ledger(&id.tenant)?, shallow::read(&folder)?);
        let repo = Arc::new(Repo {
            id: id.clone(),
            objects: Objects::new(open.next, blobs, caches, ledger, Leases::new(self.patience), shallow),
            upkeep: Mutex::new(()),
            purged: Purged::read(&folder)?,
            claims: Claims::read(&folder)?,
            folder,
            root: self.root.clone(),
            laid_out: Mutex::new(false),
            refs: Mutex::new(()),
        });
        open.remember(&repo);
        Ok(Store::open(repo))
    }
}

/// Removes a folder that may not be there.
fn clear(folder: &Path) -> Result<(), TreeError> {
    let synced =
        || folder.parent().map_or(Ok(()), |parent| fs::File::open(parent).and_then(|parent| parent.sync_all()));
    match fs::remove_dir_all(folder).and_then(|()| synced()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(TreeError::storage("removing", folder.display())(error))
        }
        Ok(()) | Err(_) => Ok(()),
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
