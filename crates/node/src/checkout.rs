//! Slices of the tree as read-only folders, made once each and kept while there is room.
//!
//! A folder is named by its store and its tree's id, so its content never changes while anybody has it. One that nobody
//! has may become that of another tree of the same store, where the two differ little: what a run changed is little, and
//! the next one mounts what came of it. Folders of different stores are never shared, even where the content is the same. Nothing here is synced to disk, so what an earlier life left is
//! thrown away at the start. A folder that a run holds is never removed.
//!
//! Room is asked for before the first byte of a folder is written: what nobody has makes room, and where that is not enough
//! the folder waits until others are let go of. One tenant's folders that are held take at most a part of it all.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bailey_protocol::id::{TenantId, TreeId};
use bailey_protocol::path::RepoId;
use bailey_tree::{CheckoutGrowth, Trees};
use rustix::fs::{Mode, OFlags};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::tasks::Tasks;

#[cfg(test)]
mod tests;

/// Bytes that an entry takes beside its content, about.
const ENTRY: i64 = 4096;
/// Most folders that are kept: each holds a descriptor of the server, however small it is.
const MOST_FOLDERS: usize = 1024;

/// Folders that are looked at for one that can be made the wanted one.
const MOST_LOOKED_AT: usize = 8;
/// One part of so many of a folder may differ for it to be changed rather than made anew: a new one leaves the other there.
const NEAR_PART: u64 = 16;

/// What one tenant's folders take while they are held is at most one part of so many of all room.
const SHARES: u64 = 4;
/// How long a folder waits for room.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many bytes folders may take.
#[derive(Debug, Clone, Copy)]
pub struct CheckoutRoom {
    /// All of them; a quarter of it those of one tenant that are held by its runs.
    pub most: u64,
    /// Above which those go that nobody has.
    pub kept: u64,
}

/// Where the content of folders comes from.
pub trait Source: Send + Sync {
    /// Writes a tree of a store as a new folder, whole or not at all.
    ///
    /// # Errors
    /// When it is not there, or storage fails.
    fn write(&self, repo: &RepoId, tree: &TreeId, path: &Path) -> Result<(), FillError>;

    /// Bytes that this folder takes on a disk, about.
    ///
    /// # Errors
    /// When it is not there, is more than is written to a disk, or storage fails.
    fn room(&self, repo: &RepoId, tree: &TreeId) -> Result<u64, FillError>;

    /// Whether [`Source::change`] would touch so few entries that it is worth it.
    ///
    /// # Errors
    /// When a tree is not there, or storage fails.
    fn is_near(&self, _repo: &RepoId, _from: &TreeId, _to: &TreeId) -> Result<bool, FillError> {
        Ok(false)
    }

    /// Makes a folder with the content of one tree one with that of another.
    ///
    /// # Errors
    /// When it cannot be done. The folder is of no use then.
    fn change(&self, _repo: &RepoId, _from: &TreeId, _to: &TreeId, _path: &Path) -> Result<CheckoutGrowth, FillError> {
        Err("folders from here are not changed".into())
    }
}

/// Why a folder could not be written.
pub type FillError = Box<dyn std::error::Error + Send + Sync>;

impl Source for Trees {
    fn write(&self, repo: &RepoId, tree: &TreeId, path: &Path) -> Result<(), FillError> {
        Ok(self.store(repo)?.checkout(tree, path)?)
    }

    fn room(&self, repo: &RepoId, tree: &TreeId) -> Result<u64, FillError> {
        let store = self.store(repo)?;
        store.check_extent(tree)?;
        let blocks = store.checkout_entries(tree)?.saturating_add(1).saturating_mul(ENTRY.unsigned_abs());
        Ok(store.checkout_content(tree)?.saturating_add(blocks))
    }

    fn is_near(&self, repo: &RepoId, from: &TreeId, to: &TreeId) -> Result<bool, FillError> {
        let store = self.store(repo)?;
        Ok(store.is_near(from, to, store.checkout_entries(to)? / NEAR_PART)?)
    }

    fn change(&self, repo: &RepoId, from: &TreeId, to: &TreeId, path: &Path) -> Result<CheckoutGrowth, FillError> {
        Ok(self.store(repo)?.change_checkout(from, to, path)?)
    }
}

/// Why there is no folder.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CheckoutError {
    /// The tree could not be written out.
    #[error("tree `{tree}` could not be checked out")]
    Fill {
        /// Which.
        tree: TreeId,
        /// Why.
        #[source]
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The host's file system failed.
    #[error("checkout folder: could not {step}")]
    Disk {
        /// What was done.
        step: &'static str,
        /// Why it failed.
        #[source]
        cause: Arc<io::Error>,
    },
    /// It is more than what one tenant's folders may take.
    #[error("tree `{tree}` takes {bytes} bytes on disk, more than {most}")]
    TooLarge {
        /// Which.
        tree: TreeId,
        /// What it takes.
        bytes: u64,
        /// What it may take.
        most: u64,
    },
    /// Others hold what room there is.
    #[error("no room for a checkout of tree `{tree}`")]
    NoRoom {
        /// Which.
        tree: TreeId,
    },
    /// The task that made the folder is gone.
    #[error("checkout of tree `{tree}` was broken off")]
    BrokenOff {
        /// Which.
        tree: TreeId,
    },
}

/// A folder with the content of a tree; it stays while this value is held.
pub struct Slice {
    /// `Some` until the drop.
    folder: Option<Arc<Folder>>,
    fd: Arc<OwnedFd>,
    shared: Arc<Shared>,
}

impl Slice {
    /// The folder, opened with `O_PATH`.
    #[must_use]
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }
}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slice({:?})", self.folder)
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.folder = None;
        self.shared.evict();
        self.shared.freed.notify_waiters();
    }
}

#[derive(Debug)]
struct Folder {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    bytes: u64,
}

/// The folders of one node.
#[derive(Clone)]
pub struct Checkouts {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    room: CheckoutRoom,
    source: Arc<dyn Source>,
    tasks: Tasks,
    state: Mutex<State>,
    /// Told when somebody let go of a folder.
    freed: Notify,
}

type Key = (RepoId, TreeId);
type Made = Option<Result<Arc<Folder>, CheckoutError>>;

#[derive(Default)]
struct State {
    entries: HashMap<Key, Entry>,
    bytes: u64,
    clock: u64,
    trashed: u64,
    /// To be thrown away as soon as nobody holds them.
    doomed: HashSet<Key>,
}

enum Entry {
    Making {
        made: watch::Receiver<Made>,
        /// Bytes that are set aside for it.
        room: u64,
    },
    Ready {
        folder: Arc<Folder>,
        used: u64,
    },
}

impl std::fmt::Debug for Checkouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checkouts({})", self.shared.root.display())
    }
}

impl Checkouts {
    /// A store below `root`, which is made if missing and emptied behind.
    ///
    /// # Errors
    /// When the folder cannot be made or emptied.
    pub fn open(root: &Path, room: CheckoutRoom, source: Arc<dyn Source>, tasks: Tasks) -> io::Result<Self> {
        fs::create_dir_all(trash(root))?;
        let (state, freed) = (Mutex::default(), Notify::new());
        let shared = Shared { root: root.to_owned(), room, source, tasks, state, freed };
        let checkouts = Self { shared: Arc::new(shared) };
        let stale: Vec<PathBuf> = list(&trash(root))?;
        let graves = stale.iter().filter_map(|path| path.file_name()?.to_str()?.parse::<u64>().ok());
        checkouts.shared.lock().trashed = graves.max().unwrap_or(0);
        for path in list(root)? {
            if path != trash(root) {
                checkouts.shared.discard(&mut checkouts.shared.lock(), &path)?;
            }
        }
        for path in stale {
            checkouts.shared.remove_behind(path);
        }
        Ok(checkouts)
    }

    /// The folder with the content of a tree.
    ///
    /// CANCEL: the folder is made all the same and stays for the next caller.
    ///
    /// # Errors
    /// See [`CheckoutError`]. The next call tries again.
    pub async fn get(&self, repo: &RepoId, tree: &TreeId) -> Result<Slice, CheckoutError> {
        let folder = self.folder(repo, tree).await?;
        Ok(Slice { fd: Arc::clone(&folder.fd), folder: Some(folder), shared: Arc::clone(&self.shared) })
    }

    async fn folder(&self, repo: &RepoId, tree: &TreeId) -> Result<Arc<Folder>, CheckoutError> {
        let key = (repo.clone(), tree.clone());
        let mut made = {
            let mut state = self.shared.lock();
            state.clock += 1;
            let now = state.clock;
            match state.entries.get_mut(&key) {
                Some(Entry::Ready { folder, used }) => {
                    *used = now;
                    return Ok(Arc::clone(folder));
                }
                Some(Entry::Making { made, .. }) => made.clone(),
                None => {
                    let (done, made) = watch::channel(None);
                    state.entries.insert(key.clone(), Entry::Making { made: made.clone(), room: 0 });
                    // INVARIANT: whatever happens to the task, the entry does not stay in `Making`.
                    let making = Making { shared: Arc::clone(&self.shared), key };
                    self.shared.tasks.spawn(making.bring(done));
                    made
                }
            }
        };
        match made.wait_for(Option::is_some).await.map(|made| made.clone()) {
            Ok(Some(made)) => made,
            Ok(None) | Err(_) => Err(CheckoutError::BrokenOff { tree: tree.clone() }),
        }
    }

    /// Throws away every folder of a store: at once, or when the last run that holds it is done.
    pub fn forget(&self, repo: &RepoId) {
        {
            let mut state = self.shared.lock();
            let State { entries, doomed, .. } = &mut *state;
            doomed.extend(entries.iter().filter(|((store, _), _)| store == repo).map(|(key, _)| key.clone()));
        }
        self.shared.evict();
    }

    /// Bytes of all folders.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().bytes
    }
}

/// A folder on its way; its entry is removed when this is dropped before it is there.
struct Making {
    shared: Arc<Shared>,
    key: Key,
}

impl Making {
    /// Makes the folder once there is room for it, tells everyone who waits, then clears away what is too much.
    async fn bring(self, done: watch::Sender<Made>) {
        let shared = Arc::clone(&self.shared);
        let made = self.make().await;
        done.send_replace(Some(made));
        drop(done);
        shared.evict();
        shared.freed.notify_waiters();
    }

    async fn make(self) -> Result<Arc<Folder>, CheckoutError> {
        let (tree, broken_off) = (self.key.1.clone(), CheckoutError::BrokenOff { tree: self.key.1.clone() });
        let (shared, key) = (Arc::clone(&self.shared), self.key.clone());
        let room = self.shared.tasks.spawn_blocking(move || shared.source.room(&key.0, &key.1));
        let room = room.await.map_err(|_panicked| broken_off.clone())?;
        let room = room.map_err(|cause| CheckoutError::Fill { tree: tree.clone(), cause: Arc::from(cause) })?;
        let most = self.shared.room.most / SHARES;
        if room > most {
            return Err(CheckoutError::TooLarge { tree, bytes: room, most });
        }
        timeout(PATIENCE, self.wait_for(room)).await.map_err(|_elapsed| CheckoutError::NoRoom { tree })?;
        let tasks = self.shared.tasks.clone();
        tasks.spawn_blocking(move || self.write()).await.unwrap_or(Err(broken_off))
    }

    /// Sets room aside as soon as there is some. CANCEL: none is set aside.
    async fn wait_for(&self, bytes: u64) {
        loop {
            let mut freed = std::pin::pin!(self.shared.freed.notified());
            freed.as_mut().enable();
            if self.shared.set_aside(&self.key, bytes) {
                return;
            }
            freed.await;
        }
    }

    /// Blocks.
    fn write(self) -> Result<Arc<Folder>, CheckoutError> {
        let Self { shared, key } = &self;
        let folder = shared.changed(key).map_or_else(|| shared.write(key), Ok)?;
        let mut state = shared.lock();
        state.clock += 1;
        let entry = Entry::Ready { folder: Arc::clone(&folder), used: state.clock };
        state.bytes = state.bytes.saturating_add(folder.bytes);
        state.entries.insert(key.clone(), entry);
        Ok(folder)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if matches!(state.entries.get(&self.key), Some(Entry::Making { .. })) {
            state.entries.remove(&self.key);
        }
    }
}

impl Shared {
    /// Sets bytes aside for a folder that is to be made, if there is room for it, or is once those are gone that nobody has.
    fn set_aside(&self, key: &Key, bytes: u64) -> bool {
        let mut state = self.lock();
        let (all, own) = state.taken(&key.0.tenant);
        if own.saturating_add(bytes) > self.room.most / SHARES {
            return false;
        }
        let coming = all.saturating_sub(state.bytes).saturating_add(bytes);
        self.evict_above(&mut state, self.room.most.saturating_sub(coming));
        if state.bytes.saturating_add(coming) > self.room.most {
            return false;
        }
        if let Some(Entry::Making { room, .. }) = state.entries.get_mut(key) {
            *room = bytes;
        }
        true
    }

    /// The folder of a tree that differs little and that nobody has, made that of this one.
    fn changed(&self, (repo, tree): &Key) -> Option<Arc<Folder>> {
        let failed = |cause: FillError| warn!(cause = &*cause, %tree, "checkout not made of another");
        let near = |from: &TreeId| {
            let near = self.source.is_near(repo, from, tree);
            // Garbage collection takes away what no branch leads to any more: of its folder nothing can be made.
            near.unwrap_or_else(|cause| {
                debug!(cause = &*cause, %from, "checkout cannot be compared");
                false
            })
        };
        let from = self.idle(repo).into_iter().find(near)?;
        let (grave, folder) = self.take(&(repo.clone(), from.clone()))?;
        let path = self.parent(repo).join(tree.as_str());
        let changed = self.source.change(repo, &from, tree, &grave);
        match changed.and_then(|grown| Ok((grown, fs::rename(&grave, &path)?))) {
            Ok((grown, ())) => {
                let grown = grown.bytes.saturating_add(grown.entries.saturating_mul(ENTRY));
                let bytes = folder.bytes.saturating_add_signed(grown);
                Some(Arc::new(Folder { fd: Arc::clone(&folder.fd), path, bytes }))
            }
            Err(cause) => {
                failed(cause);
                self.remove_behind(grave);
                None
            }
        }
    }

    /// Trees of a store whose folders nobody has, the last used first.
    fn idle(&self, repo: &RepoId) -> Vec<TreeId> {
        let state = self.lock();
        let idle = state.entries.iter().filter_map(|(key, entry)| match entry {
            Entry::Ready { folder, used } if key.0 == *repo && state.is_idle(key, folder) => Some((*used, &key.1)),
            Entry::Ready { .. } | Entry::Making { .. } => None,
        });
        let mut idle: Vec<(u64, &TreeId)> = idle.collect();
        idle.sort_unstable_by_key(|(used, _)| std::cmp::Reverse(*used));
        idle.into_iter().take(MOST_LOOKED_AT).map(|(_, tree)| tree.clone()).collect()
    }

    /// Takes a folder out of the map, and out of the place where one of its tree is made, if nobody has it.
    fn take(&self, key: &Key) -> Option<(PathBuf, Arc<Folder>)> {
        let mut state = self.lock();
        match state.entries.get(key) {
            Some(Entry::Ready { folder, .. }) if state.is_idle(key, folder) => {}
            Some(Entry::Ready { .. } | Entry::Making { .. }) | None => return None,
        }
        let Some(Entry::Ready { folder, .. }) = state.entries.remove(key) else { return None };
        state.bytes = state.bytes.saturating_sub(folder.bytes);
        match self.bury(&mut state, &folder.path) {
            Ok(grave) => Some((grave, folder)),
            Err(cause) => {
                warn!(%cause, "checkout not moved");
                None
            }
        }
    }

    fn write(&self, (repo, tree): &Key) -> Result<Arc<Folder>, CheckoutError> {
        let disk = |step| move |cause: io::Error| CheckoutError::Disk { step, cause: Arc::new(cause) };
        let parent = self.parent(repo);
        fs::create_dir_all(&parent).map_err(disk("make the store's folder"))?;
        let path = parent.join(tree.as_str());
        let written = self.source.write(repo, tree, &path);
        written.map_err(|cause| CheckoutError::Fill { tree: tree.clone(), cause: Arc::from(cause) })?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|errno| disk("open the folder")(io::Error::from(errno)))?;
        let bytes = measure(&path).map_err(disk("measure the folder"))?;
        Ok(Arc::new(Folder { fd: Arc::new(fd), path, bytes }))
    }

    /// Users' stores lie apart from the tenant's own, so that no user's name can stand for it.
    fn parent(&self, repo: &RepoId) -> PathBuf {
        let tenant = self.root.join(repo.tenant.as_str());
        match &repo.user {
            Some(user) => tenant.join("users").join(user.as_str()),
            None => tenant.join("tenant"),
        }
    }

    /// Removes the folders that nobody may use any more, then those that were not used for longest until the rest fits.
    fn evict(&self) {
        let mut state = self.lock();
        let idle = |entry: Option<&Entry>| match entry {
            Some(Entry::Ready { folder, .. }) => Arc::strong_count(folder) == 1,
            Some(Entry::Making { .. }) => false,
            None => true,
        };
        let ready: Vec<Key> = state.doomed.iter().filter(|key| idle(state.entries.get(key))).cloned().collect();
        for key in ready {
            state.doomed.remove(&key);
            self.remove(&mut state, &key);
        }
        self.evict_above(&mut state, self.room.kept);
    }

    /// Removes folders that nobody has, those first that were not used for longest, until the rest fits.
    fn evict_above(&self, state: &mut State, most_bytes: u64) {
        while state.bytes > most_bytes || state.entries.len() > MOST_FOLDERS {
            // Only the map holds it, and the map is locked: nobody can get hold of it any more.
            let idle = state.entries.iter().filter_map(|(key, entry)| match entry {
                Entry::Ready { folder, used } if Arc::strong_count(folder) == 1 => Some((*used, key)),
                Entry::Ready { .. } | Entry::Making { .. } => None,
            });
            let Some(oldest) = idle.min_by_key(|(used, _)| *used).map(|(_, key)| key.clone()) else { break };
            self.remove(state, &oldest);
        }
    }

    /// Takes one folder that only the map holds out of it and off the disk.
    fn remove(&self, state: &mut State, key: &Key) {
        if let Some(Entry::Ready { folder, .. }) = state.entries.remove(key) {
            state.bytes = state.bytes.saturating_sub(folder.bytes);
            // The lock is held until the place is free for a new checkout of the same tree.
            if let Err(cause) = self.discard(state, &folder.path) {
                warn!(%cause, "checkout not removed");
            }
        }
    }

    /// Moves a folder out of the way and removes it behind.
    fn discard(&self, state: &mut State, path: &Path) -> io::Result<()> {
        self.bury(state, path).map(|grave| self.remove_behind(grave))
    }

    /// Moves a folder out of the way, to where a later life of the node throws it away.
    fn bury(&self, state: &mut State, path: &Path) -> io::Result<PathBuf> {
        state.trashed += 1;
        let grave = trash(&self.root).join(state.trashed.to_string());
        fs::rename(path, &grave)?;
        Ok(grave)
    }

    fn remove_behind(&self, path: PathBuf) {
        self.tasks.spawn_blocking(move || {
            if let Err(cause) = remove(&path) {
                warn!(%cause, "checkout not removed");
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Bytes of all folders, those on their way included, and of those that a tenant's runs hold.
    fn taken(&self, tenant: &TenantId) -> (u64, u64) {
        self.entries.iter().fold((0, 0), |(all, own), (key, entry)| {
            let (bytes, is_held) = match entry {
                Entry::Ready { folder, .. } => (folder.bytes, Arc::strong_count(folder) > 1),
                Entry::Making { room, .. } => (*room, true),
            };
            let held = if is_held && key.0.tenant == *tenant { bytes } else { 0 };
            (all.saturating_add(bytes), own.saturating_add(held))
        })
    }

    /// Whether nobody but the map has the folder, nor will: the map is locked. What is doomed is not to be made anything of.
    fn is_idle(&self, key: &Key, folder: &Arc<Folder>) -> bool {
        Arc::strong_count(folder) == 1 && !self.doomed.contains(key)
    }
}

fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// No tenant's name begins with a dot.
fn trash(root: &Path) -> PathBuf {
    root.join(".trash")
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Bytes below a folder, with a block for every entry; follows no link.
fn measure(folder: &Path) -> io::Result<u64> {
    let mut bytes = ENTRY.unsigned_abs();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            bytes = bytes.saturating_add(ENTRY.unsigned_abs());
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                bytes = bytes.saturating_add(metadata.len());
            }
        }
    }
    Ok(bytes)
}
