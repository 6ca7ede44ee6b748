//! One store: the reads and writes on one bare repository. What is removed, and when, is `gc`'s.

mod apply;
mod read;
mod write;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bailey_protocol::api::EntryKind;
use bailey_protocol::change::NoticeReason;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::RepoId;

use crate::cache::lock;
use crate::claims::Claims;
use crate::error::TreeError;
use crate::lease::Lease;
use crate::objects::Objects;
use crate::purge::Purged;
use crate::refs;
pub(crate) use crate::room::Room;
pub(crate) use read::{Found, kind_of};
pub use write::Upload;
pub(crate) use write::{edit_error, parents_of};

/// A handle on one repository; it cannot name any other.
///
/// INVARIANT: nothing that was there when the handle was made, or that was written through it, is removed while it or a
/// clone of it is held. Whoever makes a version holds the handle until a branch leads to it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) repo: Arc<Repo>,
    /// Keeps garbage collection from what this handle may have seen.
    pub(crate) lease: Arc<Lease>,
}

/// What all handles on one repository share.
#[derive(Debug)]
pub(crate) struct Repo {
    pub(crate) id: RepoId,
    /// The bare repository.
    pub(crate) folder: PathBuf,
    /// How far up its folders were made by us and have to be made durable.
    pub(crate) root: PathBuf,
    pub(crate) objects: Objects,
    /// Whether the folder is known to be a complete, durable repository.
    pub(crate) laid_out: Mutex<bool>,
    /// Held while refs are published.
    pub(crate) refs: Mutex<()>,
    /// Held while garbage is collected or history is cut.
    pub(crate) upkeep: Mutex<()>,
    /// What purges have taken out of history.
    pub(crate) purged: Purged,
    /// Which commits only say that a run made them.
    pub(crate) claims: Claims,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: EntryKind,
    /// Git object id, 40 hex digits: equal content, equal id.
    pub id: String,
    /// Bytes, for files and links.
    pub size: Option<u64>,
}

/// What became of a change stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The new version; `None` when nothing changed.
    pub version: Option<VersionId>,
    /// What is not in it, or not as it was: path below the mount, and why. At most [`MAX_NOTICES`].
    pub notices: Vec<(Vec<u8>, NoticeReason)>,
    /// Notices beyond those.
    pub more_notices: u64,
}

/// Most notices that are kept of one change stream.
pub const MAX_NOTICES: usize = 1000;

impl Store {
    /// The repository that this handle reaches.
    #[must_use]
    pub fn id(&self) -> &RepoId {
        &self.repo.id
    }

    /// The folder of the bare repository; it exists once something was written.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        &self.repo.folder
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.repo.objects
    }

    /// The same repository, for whoever waits for long and will need one version then: garbage collection goes on and
    /// leaves that version alone. [`Store::awake`] is for the time after.
    #[must_use]
    pub fn resting(&self, version: Option<&VersionId>) -> Self {
        let version = version.map(|version| crate::object::object_id(version.as_str()));
        Self { repo: Arc::clone(&self.repo), lease: Lease::pin(self.repo.objects.leases(), version) }
    }

    /// A handle of its own on the same repository, as [`crate::Trees::store`] would make it now.
    #[must_use]
    pub fn awake(&self) -> Self {
        Self::open(Arc::clone(&self.repo))
    }

    pub(crate) fn open(repo: Arc<Repo>) -> Self {
        let lease = Lease::take(repo.objects.leases());
        Self { repo, lease }
    }

    /// Makes the repository if it is not there yet. The first write of a process pays for its durability.
    pub(crate) fn ensure(&self) -> Result<(), TreeError> {
        let mut done = lock(&self.repo.laid_out);
        if !*done {
            refs::lay_out(&self.repo.folder, &self.repo.root)?;
            *done = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
