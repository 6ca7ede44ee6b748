//! A folder of a tree for an attack to change, and what the tree takes of it.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use bailey_node::checkout::Source as _;
use bailey_protocol::api::EntryKind;
use bailey_protocol::id::VersionId;
use bailey_protocol::node::SliceMount;
use bailey_protocol::path::RepoId;
use bailey_tree::{CommitMeta, Trees};

const FOLDER: &str = "data";
const MOST: u64 = 4096;

/// A version with a folder that is mounted.
pub(crate) struct Slice {
    trees: Trees,
    repo: RepoId,
    version: VersionId,
    pub(crate) mount: SliceMount,
}

impl Slice {
    pub(crate) fn new(trees: &Trees, tenant: &str) -> anyhow::Result<Self> {
        let repo = RepoId { tenant: tenant.parse()?, user: None };
        let store = trees.store(&repo)?;
        let mut version = None;
        for name in ["kept", "folder/inner"] {
            let path = format!("{FOLDER}/{name}");
            version = Some(store.write_file(version.as_ref(), &path, &mut &b"kept\n"[..], MOST, false, &meta()?)?);
        }
        let version = version.context("nothing was written")?;
        let tree = store.subtree(Some(&version), FOLDER)?.context("the folder is not there")?;
        let mount = SliceMount { repo: repo.clone(), tree, at: "/data".parse()?, writable: true };
        Ok(Self { trees: trees.clone(), repo, version, mount })
    }

    /// Takes what a run changed, writes it as a folder at `to`, and says what is not what it has to be.
    pub(crate) fn take(&self, changes: &[u8], to: &Path) -> anyhow::Result<Vec<String>> {
        let store = self.trees.store(&self.repo)?;
        let applied = store.apply_changes(Some(&self.version), FOLDER, &mut &*changes, &meta()?)?;
        let version = applied.version.context("the run left nothing")?;
        let entries = store.list(Some(&version), FOLDER)?;
        let mut found = wrong(entries.iter().map(|entry| (entry.name.as_str(), entry.kind)));
        let tree = store.subtree(Some(&version), FOLDER)?.context("the folder is gone")?;
        self.trees.write(&self.repo, &tree, to).map_err(|error| anyhow::anyhow!("write the folder: {error}"))?;
        for entry in fs::read_dir(to)? {
            let entry = entry?;
            let meta = fs::symlink_metadata(entry.path())?;
            found.extend(wrong_on_disk(&entry.file_name().to_string_lossy(), &meta));
        }
        Ok(found)
    }
}

fn meta() -> anyhow::Result<CommitMeta> {
    Ok(CommitMeta { author: "attest".parse()?, time_ms: 0, message: "attest".to_owned(), run: None })
}

/// What an attack may have made of the folder's entries, but did not have to.
pub(crate) fn wrong<'a>(entries: impl Iterator<Item = (&'a str, EntryKind)>) -> Vec<String> {
    let mut left = false;
    let mut found = Vec::new();
    for (name, kind) in entries {
        left |= name == "left";
        let fine = match kind {
            EntryKind::File | EntryKind::Executable => ["kept", "left", "bits"].contains(&name),
            EntryKind::Symlink => name == "folder" || name.starts_with("link-"),
            EntryKind::Directory => name == "folder",
        };
        if !fine {
            found.push(format!("`{name}` came into the tree as {kind:?}"));
        }
    }
    if !left {
        found.push("what the run left last is not in the tree".to_owned());
    }
    found
}

/// What a file of the folder may not be, once it is on the host's disk.
pub(crate) fn wrong_on_disk(name: &str, meta: &fs::Metadata) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let kind = meta.file_type();
    let bits = meta.permissions().mode() & 0o7000;
    let plain = kind.is_file() || kind.is_dir() || kind.is_symlink();
    (!plain || bits != 0).then(|| format!("`{name}` lies on the host's disk as {kind:?} with mode bits {bits:o}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tree_may_not_hold_is_told() {
        let with = |name: &'static str, kind| wrong([("left", EntryKind::File), (name, kind)].into_iter());
        assert_eq!(with("link-0", EntryKind::Symlink), Vec::<String>::new());
        assert_eq!(with("bits", EntryKind::Executable), Vec::<String>::new());
        for (name, kind) in [
            ("link-hard-0", EntryKind::File),
            ("link-folder-0", EntryKind::Directory),
            ("memory", EntryKind::File),
            ("fifo", EntryKind::File),
            ("kept", EntryKind::Symlink),
        ] {
            assert_eq!(with(name, kind).len(), 1, "{name}");
        }
        assert_eq!(wrong(std::iter::empty()).len(), 1, "nothing left is no proof");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(wrong_on_disk("file", &fs::symlink_metadata(&file).unwrap()), None);
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
        assert!(wrong_on_disk("file", &fs::symlink_metadata(&file).unwrap()).is_some());
        assert!(wrong_on_disk("null", &fs::symlink_metadata("/dev/null").unwrap()).is_some());
    }
}
