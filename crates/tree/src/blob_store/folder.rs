//! Packs in a local folder, which is git's own `objects/pack`.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bailey_crash::Point;

use super::{BlobName, BlobStore, Part, RangedRead, Scratch};
use crate::error::TreeError;

/// What unfinished files start with; git ignores such names too.
pub(crate) const TEMPORARY: &str = "tmp_";

/// Numbers temporary files in this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A name for an unfinished file or folder, new in this process.
pub(crate) fn temporary_name() -> String {
    format!("{TEMPORARY}{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A new, empty file in `folder` under a temporary name.
pub(crate) fn scratch_in(folder: &Path) -> Result<Scratch, TreeError> {
    loop {
        let path = folder.join(temporary_name());
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return Ok(Scratch::new(file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(TreeError::storage("creating", path.display())(error)),
        }
    }
}

/// Makes the names in `folder` durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), TreeError> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(TreeError::storage("syncing", folder.display()))
}

/// A [`BlobStore`] in a folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The store in `path`, which may not exist yet; it must before the first [`BlobStore::scratch`].
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn names(&self) -> Result<Vec<String>, TreeError> {
        let listed = fs::read_dir(&self.path).and_then(|entries| {
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<_>>()
        });
        match listed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(TreeError::storage("listing", self.path.display())),
        }
    }

    /// Whether there was one.
    fn remove_file(&self, name: &str) -> Result<bool, TreeError> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|()| true).map_err(TreeError::storage("removing", name)),
        }
    }
}

impl BlobStore for Folder {
    fn scratch(&self) -> Result<Scratch, TreeError> {
        scratch_in(&self.path)
    }

    fn put(&self, mut files: Vec<(BlobName, Scratch)>) -> Result<(), TreeError> {
        bailey_crash::point(Point::ObjectsWritten);
        for (name, scratch) in &mut files {
            scratch.settle(name.part != Part::Sums)?;
        }
        bailey_crash::point(Point::ObjectsSynced);
        for (name, scratch) in files {
            // INVARIANT: also when the power goes, an index is there only with its pack. One without would vouch for
            // objects that nobody has, and whoever wrote them again would be told that they are there.
            if name.part == Part::Index {
                sync_folder(&self.path)?;
            }
            scratch.publish(&self.path.join(name.to_string()))?;
            bailey_crash::point(Point::PackNamed);
        }
        sync_folder(&self.path)?;
        bailey_crash::point(Point::FolderSynced);
        Ok(())
    }

    fn open(&self, name: &BlobName) -> Result<Option<Box<dyn RangedRead>>, TreeError> {
        let opened = File::open(self.path.join(name.to_string())).and_then(|file| {
            let length = file.metadata()?.len();
            Ok(OpenFile { file, length })
        });
        match opened {
            Ok(open) => Ok(Some(Box::new(open))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TreeError::storage("opening", name)(error)),
        }
    }

    fn list(&self) -> Result<Vec<BlobName>, TreeError> {
        Ok(self.names()?.iter().filter_map(|name| BlobName::parse(name)).collect())
    }

    fn remove(&self, name: &BlobName) -> Result<(), TreeError> {
        let removed = self.remove_file(&name.to_string())?;
        // INVARIANT: as in `put`, for whoever removes the index first. Also where there is none any more: whoever removed
        // it may not have come as far as here.
        if name.part == Part::Index && (removed || self.path.exists()) {
            sync_folder(&self.path)?;
        }
        Ok(())
    }

    /// Removes temporary files, and packs whose index was not published: nobody was told of those.
    fn sweep(&self) -> Result<(), TreeError> {
        let names = self.names()?;
        let indexes: HashSet<&str> = names.iter().map(String::as_str).collect();
        let is_orphan = |name: &&String| {
            BlobName::parse(name).is_some_and(|blob| {
                let index = BlobName { part: Part::Index, ..blob }.to_string();
                !indexes.contains(index.as_str())
            })
        };
        if names.iter().any(|name| is_orphan(&name)) {
            // INVARIANT: as in `put`. An index that was removed may still come back, and has to find its pack then.
            sync_folder(&self.path)?;
        }
        let mut swept = 0_u32;
        for name in names.iter().filter(|name| is_orphan(name) || name.starts_with(TEMPORARY)) {
            self.remove_file(name)?;
            swept += 1;
        }
        if swept > 0 {
            tracing::info!(swept, folder = %self.path.display(), "removed unfinished packs");
        }
        Ok(())
    }
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    length: u64,
}

impl RangedRead for OpenFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob_store::contract;

    #[test]
    fn a_folder_keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        contract::run(&Folder::new(dir.path().to_owned()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the index is left");
    }

    #[test]
    fn other_names_are_not_ours() {
        for odd in [
            "pack-.pack",
            "pack-0.idx",
            "tmp_1_2",
            "pack-A.pack",
            "../x",
            "pack-1111111111111111111111111111111111111111.rev",
        ] {
            assert_eq!(BlobName::parse(odd), None, "{odd}");
        }
        let upper = format!("pack-{}.pack", "A".repeat(40));
        assert_eq!(BlobName::parse(&upper), None);
        assert!(BlobName::parse(&upper.to_lowercase()).is_some());
    }

    #[test]
    fn a_folder_that_does_not_exist_is_empty() {
        let store = Folder::new(PathBuf::from("/nonexistent/bailey"));
        assert_eq!(store.list().unwrap(), []);
        store.sweep().unwrap();
        assert!(store.scratch().is_err());
    }
}
