//! One store: the reads and writes on one bare repository. Lifetimes of versions are the caller's: nothing is removed.

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
use crate::error::TreeError;
use crate::objects::Objects;
use crate::refs;
pub(crate) use read::Found;

/// A handle on one repository; it cannot name any other.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) repo: Arc<Repo>,
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
