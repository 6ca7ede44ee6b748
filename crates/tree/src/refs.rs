//! The parts of a bare repository that are not objects: its folders, `HEAD`, `config` and `packed-refs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bailey_crash::Point;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::BranchName;

use crate::blob_store::folder::{TEMPORARY, scratch_in, sync_folder};
use crate::cache::lock;
use crate::error::TreeError;
use crate::store::Store;

const HEAD: &str = "ref: refs/heads/main\n";
/// Git must not repack what it reads here: its deltas are not for us.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n[gc]\n\tauto = 0\n";

impl Store {
    /// Writes all branches for stock git to see; branches not named are gone. Calls on one store take turns.
    ///
    /// # Errors
    /// When a version is not here, one branch is a folder of another, or storage fails. Then the refs stay as they were.
    pub fn publish_refs(&self, refs: &[(BranchName, VersionId)]) -> Result<(), TreeError> {
        let refs: BTreeMap<&str, &VersionId> = refs.iter().map(|(name, version)| (name.as_str(), version)).collect();
        check_names(&refs)?;
        for version in refs.values() {
            self.commit_of(version)?;
        }
        self.ensure()?;
        let mut text = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
        for (name, version) in refs {
            text.push_str(&format!("{version} refs/heads/{name}\n"));
        }
        let _turn = lock(&self.repo.refs);
        replace(&self.repo.folder, "packed-refs", text.as_bytes())
    }
}

/// Git keeps `a` and `a/b` in the same place.
fn check_names(refs: &BTreeMap<&str, &VersionId>) -> Result<(), TreeError> {
    for name in refs.keys() {
        let parents = name.match_indices('/').filter_map(|(at, _)| name.get(..at));
        if let Some(parent) = parents.into_iter().find(|parent| refs.contains_key(parent)) {
            return Err(TreeError::BranchConflict { first: parent.to_owned(), second: (*name).to_owned() });
        }
    }
    Ok(())
}

/// Makes `folder` a bare repository, and it and its parents up to `root` durable. `HEAD` comes last.
pub(crate) fn lay_out(folder: &Path, root: &Path) -> Result<(), TreeError> {
    for part in ["objects/info", "objects/pack", "refs/heads", "refs/tags"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).map_err(TreeError::storage("creating", part.display()))?;
    }
    if !folder.join("HEAD").exists() {
        replace(folder, "config", CONFIG.as_bytes())?;
        replace(folder, "HEAD", HEAD.as_bytes())?;
    }
    sync_folder(&folder.join("objects"))?;
    let parents = folder.ancestors().take_while(|parent| parent.starts_with(root));
    parents.into_iter().try_for_each(sync_folder)
}

/// Removes what a killed process left in `folder`.
pub(crate) fn sweep(folder: &Path) -> Result<(), TreeError> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            fs::remove_file(entry.path()).map_err(TreeError::storage("removing", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Replaces a file at once: a reader sees the old or the new, whole.
pub(crate) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), TreeError> {
    let mut scratch = scratch_in(folder)?;
    scratch.append(bytes)?;
    scratch.settle(true)?;
    bailey_crash::point(Point::FileSynced);
    scratch.publish(&folder.join(name))
}
