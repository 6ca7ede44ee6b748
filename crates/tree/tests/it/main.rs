//! The tree as its callers and stock git see it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests fail by panicking")]
#![allow(clippy::disallowed_methods, clippy::cast_possible_truncation, reason = "a test measures, and makes noise")]

mod archives;
mod basics;
mod branches;
mod damage;
/// The faulty disk of control's tests.
#[path = "../../../control/tests/it/disk.rs"]
#[allow(missing_debug_implementations, unreachable_pub, reason = "nobody outside uses a test's types")]
mod disk;
mod gc;
mod hostile;
mod long;
mod model;
mod pushed;
mod quota;
mod removal_faults;
mod together;
mod verbs;
mod zips;

use std::path::Path;
use std::process::Command;

use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, RepoId};
use bailey_tree::{CommitMeta, Store, Trees};

/// A folder of stores that goes away with the test.
struct Bench {
    dir: tempfile::TempDir,
    trees: Trees,
    store: Store,
}

fn tenant(name: &str) -> RepoId {
    RepoId { tenant: name.parse().unwrap(), user: None }
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let trees = Trees::open(&dir.path().join("trees")).unwrap();
        let store = trees.store(&tenant("acme")).unwrap();
        Self { dir, trees, store }
    }

    /// The same folder as a new process sees it.
    fn reopen(&mut self) {
        self.trees = Trees::open(&self.dir.path().join("trees")).unwrap();
        self.store = self.trees.store(&tenant("acme")).unwrap();
    }

    fn write(&self, base: Option<&VersionId>, path: &str, content: &[u8]) -> VersionId {
        self.store.write_file(base, path, &mut &*content, u64::MAX, false, &meta()).unwrap()
    }

    fn read(&self, version: &VersionId, path: &str) -> Vec<u8> {
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut self.store.read(version, path).unwrap(), &mut content).unwrap();
        content
    }

    /// Publishes `main` and has git check everything.
    fn fsck(&self, main: &VersionId) {
        self.store.publish_refs(&[(BranchName::main(), main.clone())]).unwrap();
        let output = git_output(self.store.folder(), &["fsck", "--full", "--strict", "--no-dangling"]);
        assert_eq!(output, "", "git fsck");
    }
}

fn meta() -> CommitMeta {
    CommitMeta { author: "ana".parse().unwrap(), time_ms: 1_700_000_000_000, message: "test".to_owned(), run: None }
}

/// What git prints on both streams; it must succeed.
fn git_output(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-c")
        .arg("safe.directory=*")
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git is installed");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "git {args:?}: {text}");
    text
}

/// A change stream of these records; each may carry content.
fn stream(records: &[(Header<'_>, &[u8])]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (header, content) in records {
        header.encode(&mut bytes).unwrap();
        bytes.extend_from_slice(content);
    }
    Header::End { records: records.len() as u64 }.encode(&mut bytes).unwrap();
    bytes
}

fn file<'a>(path: &'a [u8], content: &'a [u8]) -> (Header<'a>, &'a [u8]) {
    (Header::File { path, executable: false, size: content.len() as u64 }, content)
}
