//! A store for each input, in a folder of this thread's that goes with it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use bailey_protocol::id::VersionId;
use bailey_protocol::path::RepoId;
use bailey_protocol::quota::TenantUsage;

use crate::error::TreeError;
use crate::{CommitMeta, ListAsk, Store, Trees, path};

/// What was in the store before.
const KEPT: &str = "keep";

static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

struct Scratch {
    folder: PathBuf,
    trees: Trees,
    stores: u64,
    case: Option<Case>,
}

impl Scratch {
    fn new() -> Self {
        let own = format!("bailey-fuzz-{}-{}", std::process::id(), THREADS.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(own);
        let trees = Trees::open(&folder.join("trees")).expect("a temporary folder can be written");
        Self { folder, trees, stores: 0, case: None }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.case = None;
        std::fs::remove_dir_all(&self.folder).expect("a temporary folder can be removed");
    }
}

/// One store with one version, in which one file is.
pub(crate) struct Case {
    pub(crate) store: Store,
    pub(crate) base: VersionId,
    trees: Trees,
    out: PathBuf,
}

/// Hands `input` a store. What it refuses has to leave nothing in there; after what it takes, the next has another.
pub(crate) fn each<T>(input: impl FnOnce(&Case) -> Result<T, TreeError>) -> Option<T> {
    SCRATCH.with_borrow_mut(|scratch| {
        let case = scratch.case.take().unwrap_or_else(|| {
            scratch.stores += 1;
            Case::new(&scratch.trees, scratch.stores, scratch.folder.join("out"))
        });
        let before = case.usage();
        match input(&case) {
            Ok(taken) => {
                let id = case.store.id().clone();
                drop(case);
                scratch.trees.remove(&id).expect("a store can be removed");
                Some(taken)
            }
            Err(_refused) => {
                assert_eq!(case.usage(), before, "what is refused leaves something behind");
                scratch.case = Some(case);
                None
            }
        }
    })
}

pub(crate) fn meta() -> CommitMeta {
    let author = "ana".parse().expect("a user's id");
    CommitMeta { author, time_ms: 1_700_000_000_000, message: "fuzz".to_owned(), run: None }
}

impl Case {
    fn new(trees: &Trees, number: u64, out: PathBuf) -> Self {
        let tenant = format!("t{number}").parse().expect("a tenant's id");
        let store = trees.store(&RepoId { tenant, user: None }).expect("a new store");
        let base = store.write_file(None, KEPT, &mut &b"kept"[..], 100, false, &meta()).expect("a first file");
        Self { store, base, trees: trees.clone(), out }
    }

    fn usage(&self) -> TenantUsage {
        self.trees.usage(&self.store.id().tenant).expect("a store can be counted")
    }

    /// That all that a version has is below `inside`, besides what was there before.
    pub(crate) fn stays(&self, version: &VersionId, inside: &str) {
        let entry = |version| self.store.entry(Some(version), KEPT).expect("a version that is there");
        assert_eq!(entry(version), entry(&self.base));
        for path in self.read(version) {
            let below = path == inside.as_bytes() || path.starts_with(format!("{inside}/").as_bytes());
            assert!(below || path == KEPT.as_bytes(), "\"{}\"", path.escape_ascii());
        }
    }

    /// Every path of a version, each one that can be, in which all files can be read; and all of it as a folder.
    pub(crate) fn read(&self, version: &VersionId) -> Vec<Vec<u8>> {
        let mut paths = Vec::new();
        let mut visit = |path: &[u8]| {
            let names = path::parse(path).expect("a path that a tree can hold");
            assert!(!names.is_empty(), "a path without a name");
            paths.push(path.to_vec());
            true
        };
        self.store.each_path(Some(version), "", &mut visit).expect("what was taken in can be listed");
        let ask = ListAsk { recursive: true, limit: 1000, ..ListAsk::default() };
        let page = self.store.list_page(Some(version), "", &ask, &mut |_| true).expect("what was taken in is a page");
        assert!(page.next.is_some() || page.entries.len() == paths.len(), "two listings, two answers");
        self.check_out(version);
        paths
    }

    /// All that is written lies in the folder that is asked for, whatever the names are.
    fn check_out(&self, version: &VersionId) {
        let tree = self.store.root_tree(version).expect("a version has a root");
        match self.store.checkout(&tree, &self.out.join("version")) {
            Ok(()) => {}
            // More than a folder is made of, or a name that this file system does not have.
            Err(TreeError::TooLarge { .. } | TreeError::TooMany { .. } | TreeError::Storage { .. }) => {}
            Err(other) => unreachable!("{other:?}"),
        }
        let written = std::fs::read_dir(&self.out).into_iter().flatten().map(|entry| entry.expect("an entry"));
        assert!(written.into_iter().all(|entry| entry.file_name() == "version"), "it wrote beside its folder");
        drop(std::fs::remove_dir_all(&self.out));
    }
}
