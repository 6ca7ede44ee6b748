//! Stores over a blob store that fails.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bailey_protocol::id::VersionId;
use bailey_protocol::quota::TenantQuota;

use super::{Repo, Store};
use crate::blob_store::{BlobName, BlobStore, Folder, RangedRead, Scratch};
use crate::cache::Caches;
use crate::ledger::{Amount, Ledger};
use crate::objects::Objects;
use crate::purge::Purged;
use crate::{CommitMeta, GcReport, Keep, Merge, Thoroughness, TreeError, TreeErrorKind};

/// Fails the call at which `fuse` reaches zero; scratch files then lie on a full disk.
#[derive(Debug)]
struct Failing {
    inner: Folder,
    fuse: Arc<AtomicI64>,
}

impl Failing {
    fn blown(&self) -> bool {
        self.fuse.fetch_sub(1, Ordering::Relaxed) == 1
    }

    fn check(&self) -> Result<(), TreeError> {
        if self.blown() {
            Err(TreeError::storage("testing", "x")(std::io::ErrorKind::StorageFull.into()))
        } else {
            Ok(())
        }
    }
}

impl BlobStore for Failing {
    fn scratch(&self) -> Result<Scratch, TreeError> {
        if self.blown() {
            let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
            return Ok(Scratch::new(full, PathBuf::from("/nonexistent/full")));
        }
        self.inner.scratch()
    }

    fn put(&self, files: Vec<(BlobName, Scratch)>) -> Result<(), TreeError> {
        self.check()?;
        self.inner.put(files)
    }

    fn open(&self, name: &BlobName) -> Result<Option<Box<dyn RangedRead>>, TreeError> {
        self.check()?;
        self.inner.open(name)
    }

    fn list(&self) -> Result<Vec<BlobName>, TreeError> {
        self.check()?;
        self.inner.list()
    }

    fn remove(&self, name: &BlobName) -> Result<(), TreeError> {
        self.check()?;
        self.inner.remove(name)
    }

    fn sweep(&self) -> Result<(), TreeError> {
        self.inner.sweep()
    }
}

fn store(root: &Path, number: u64, fuse: i64) -> (Store, Arc<AtomicI64>) {
    let folder = root.join("acme/tenant.git");
    let fuse = Arc::new(AtomicI64::new(fuse));
    let blobs = Failing { inner: Folder::new(folder.join("objects/pack")), fuse: Arc::clone(&fuse) };
    let repo = Repo {
        id: bailey_protocol::path::RepoId { tenant: "acme".parse().unwrap(), user: None },
        objects: Objects::new(
            number,
            Box::new(blobs),
            Arc::new(Caches::new()),
            Arc::new(Ledger::new(TenantQuota::UNLIMITED, Amount::default())),
            crate::lease::Leases::new(std::time::Duration::ZERO),
            HashSet::new(),
        ),
        folder,
        root: root.to_owned(),
        laid_out: std::sync::Mutex::new(false),
        refs: std::sync::Mutex::new(()),
        upkeep: std::sync::Mutex::new(()),
        purged: Purged::default(),
        claims: crate::claims::Claims::default(),
    };
    (Store::open(Arc::new(repo)), fuse)
}

/// Each a second later, so that no version is one that was purged.
fn meta() -> CommitMeta {
    static SECONDS: AtomicI64 = AtomicI64::new(1_700_000_000);
    let time_ms = u64::try_from(SECONDS.fetch_add(1, Ordering::Relaxed)).unwrap() * 1000;
    CommitMeta { author: "ana".parse().unwrap(), time_ms, message: "test".to_owned(), run: None }
}

/// Writes, reads, merges, cuts, purges and collects; every step is checked.
fn work(store: &Store) -> Result<(), TreeError> {
    let large = vec![3; 2 << 20];
    let base = store.write_file(None, "a/small", &mut &b"1"[..], 9, false, &meta())?;
    let ours = store.write_file(Some(&base), "a/large", &mut &*large, 9 << 20, false, &meta())?;
    let theirs = store.write_file(Some(&base), "b", &mut &b"2"[..], 9, false, &meta())?;
    let Merge::Merged(merged) = store.merge(Some(&ours), &theirs, &meta())? else { panic!("no conflict here") };
    for (path, content) in [("a/small", &b"1"[..]), ("a/large", &large), ("b", b"2")] {
        let mut read = Vec::new();
        std::io::Read::read_to_end(&mut store.read(&merged, path)?, &mut read).unwrap();
        assert!(read == content, "{path}");
    }
    upkeep(store, merged)
}

fn collect(store: &Store, head: &VersionId) -> Result<GcReport, TreeError> {
    store.resting(None).collect_garbage(|| Ok(vec![head.clone()]), Thoroughness::Thorough)
}

fn upkeep(store: &Store, head: VersionId) -> Result<(), TreeError> {
    let purge = store.prepare_purge("a/large", std::slice::from_ref(&head))?;
    let purged = purge.now(&head);
    store.seal_purge(purge)?;
    if let Some(cut) = store.plan_cut(std::slice::from_ref(&purged), Keep { versions: 1, since_ms: 0 })? {
        store.cut(&cut)?;
    }
    collect(store, &purged)?;
    collect(store, &purged)?;
    for (path, content) in [("a/small", &b"1"[..]), ("b", b"2")] {
        let mut read = Vec::new();
        std::io::Read::read_to_end(&mut store.read(&purged, path)?, &mut read).unwrap();
        assert!(read == content, "{path}");
    }
    Ok(())
}

#[test]
fn d05_a_failure_at_the_nth_call_is_an_error_and_the_next_try_works() {
    let mut failures = 0;
    for nth in 1.. {
        let dir = tempfile::tempdir().unwrap();
        let (failing, fuse) = store(dir.path(), 1, nth);
        let outcome = work(&failing);
        if fuse.load(Ordering::Relaxed) > 0 {
            outcome.unwrap();
            break;
        }
        // Block checksums that cannot be read are made anew, so that one failure there is survived.
        if let Err(error) = outcome {
            assert_eq!(error.kind(), TreeErrorKind::StorageFull, "call {nth}: {error}");
            failures += 1;
        }
        work(&failing).unwrap();
        let leftovers = std::fs::read_dir(failing.folder().join("objects/pack")).unwrap();
        let leftovers =
            leftovers.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("tmp_"));
        assert_eq!(leftovers.count(), 0, "call {nth}");
        work(&store(dir.path(), 2, i64::MAX).0).unwrap();
    }
    assert!(failures > 12, "{failures}");
}
