//! Looking at versions.

use bailey_protocol::api::{EntryKind, TreeEntry};
use bailey_protocol::id::{TreeId, VersionId};
use bailey_protocol::path::bytes_of;
use gix_hash::{Kind as HashKind, ObjectId};

use super::{Entry, Store};
use crate::blob::Blob;
use crate::commit::Commit;
use crate::error::TreeError;
use crate::object::{self, Mode, TreeItem};
use crate::{name, path};

/// What a path leads to.
pub(crate) enum Found {
    Folder(ObjectId),
    File(TreeItem),
}

impl Store {
    /// Whether this store has that version, and is to keep it.
    ///
    /// # Errors
    /// When it was purged, or storage fails.
    pub fn contains(&self, version: &VersionId) -> Result<bool, TreeError> {
        let id = object::object_id(version.as_str());
        self.repo.purged.refuse(&id)?;
        Ok(self.objects().stays(&id)? && self.objects().commit(&id)?.is_some())
    }

    /// The root folder of a version.
    ///
    /// # Errors
    /// When there is no such version here, or storage fails.
    pub fn root_tree(&self, version: &VersionId) -> Result<TreeId, TreeError> {
        Ok(object::tree_id(&self.commit_of(version)?.tree))
    }

    /// What is at `inner`, if anything. Without a version the store is empty.
    ///
    /// # Errors
    /// When there is no such version here, the path cannot be one, or storage fails.
    pub fn entry(&self, version: Option<&VersionId>, inner: &str) -> Result<Option<Entry>, TreeError> {
        let folder = |id: &ObjectId| Entry { kind: EntryKind::Directory, id: id.to_string(), size: None };
        Ok(match self.find(&self.root_of(version)?, inner)? {
            None => None,
            Some(Found::Folder(id)) => Some(folder(&id)),
            Some(Found::File(item)) => {
                let size = self.objects().file_size(&item.oid)?;
                Some(Entry { kind: kind_of(&item), id: item.oid.to_string(), size: Some(size) })
            }
        })
    }

    /// The folder at `inner`; `None` when nothing is there (see [`crate::empty_tree`] for a mount's first use).
    ///
    /// # Errors
    /// When a file is there or on the way, there is no such version here, or storage fails.
    pub fn subtree(&self, version: Option<&VersionId>, inner: &str) -> Result<Option<TreeId>, TreeError> {
        match self.find(&self.root_of(version)?, inner)? {
            None => Ok(None),
            Some(Found::Folder(id)) => Ok(Some(object::tree_id(&id))),
            Some(Found::File(_)) => Err(TreeError::NotADirectory { path: inner.to_owned() }),
        }
    }

    /// The entries of the folder at `inner`, in git's order.
    ///
    /// # Errors
    /// When nothing or a file is there, there is no such version here, or storage fails.
    pub fn list(&self, version: Option<&VersionId>, inner: &str) -> Result<Vec<TreeEntry>, TreeError> {
        let id = match self.find(&self.root_of(version)?, inner)? {
            None => return Err(TreeError::NotFound { path: inner.to_owned() }),
            Some(Found::File(_)) => return Err(TreeError::NotADirectory { path: inner.to_owned() }),
            Some(Found::Folder(id)) => id,
        };
        let tree = self.objects().known_tree(&id)?;
        tree.entries.iter().map(|item| self.listed(item)).collect()
    }

    /// Opens the file at `inner`; of a link, the target as text.
    ///
    /// # Errors
    /// When nothing or a folder is there, there is no such version here, or storage fails.
    pub fn read(&self, version: &VersionId, inner: &str) -> Result<Blob, TreeError> {
        match self.find(&self.root_of(Some(version))?, inner)? {
            None => Err(TreeError::NotFound { path: inner.to_owned() }),
            Some(Found::Folder(_)) => Err(TreeError::IsADirectory { path: inner.to_owned() }),
            Some(Found::File(item)) => {
                let executable = kind_of(&item) == EntryKind::Executable;
                Ok(Blob::new(item.oid, executable, self.objects().open_file(&item.oid)?))
            }
        }
    }

    pub(crate) fn commit_of(&self, version: &VersionId) -> Result<std::sync::Arc<Commit>, TreeError> {
        let id = object::object_id(version.as_str());
        self.repo.purged.refuse(&id)?;
        let commit = self.objects().commit(&id)?;
        commit.ok_or_else(|| TreeError::VersionNotFound { version: version.to_string() })
    }

    pub(crate) fn root_of(&self, version: Option<&VersionId>) -> Result<ObjectId, TreeError> {
        version.map_or(Ok(ObjectId::empty_tree(HashKind::Sha1)), |version| Ok(self.commit_of(version)?.tree))
    }

    /// Walks from `root` along `inner`. Links are not followed: below one there is nothing.
    pub(crate) fn find(&self, root: &ObjectId, inner: &str) -> Result<Option<Found>, TreeError> {
        let mut folder = *root;
        let real = bytes_of(inner);
        let mut names = path::parse_inner(&real)?.into_iter().peekable();
        while let Some(one) = names.next() {
            let tree = self.objects().known_tree(&folder)?;
            match object::find(&tree, &name::escape(one)) {
                None => return Ok(None),
                Some(item) if item.mode.is_tree() => folder = item.oid,
                Some(item) if names.peek().is_none() => return Ok(Some(Found::File(item.clone()))),
                Some(_) => return Ok(None),
            }
        }
        Ok(Some(Found::Folder(folder)))
    }

    fn listed(&self, item: &TreeItem) -> Result<TreeEntry, TreeError> {
        self.listed_as(item, &name::unescape(&item.filename))
    }
}

pub(crate) fn kind_of(item: &TreeItem) -> EntryKind {
    match item.mode.kind() {
        Mode::Tree | Mode::Commit => EntryKind::Directory,
        Mode::Blob => EntryKind::File,
        Mode::BlobExecutable => EntryKind::Executable,
        Mode::Link => EntryKind::Symlink,
    }
}
