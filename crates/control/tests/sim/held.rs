//! Who reads a version slowly, as a clone does, or makes one that waits for its branch, as a push does, while old versions
//! are let go and garbage is collected all the time. What a handle on a store holds is there until it is let go of.

use std::time::Duration;

use bailey_protocol::id::VersionId;
use bailey_protocol::path::RepoId;
use bailey_tree::{CommitMeta, Store, TreeError, TreeErrorKind};
use http::Method;

use crate::client::Client;

/// Cycles of garbage collection in one life.
const CYCLES: u64 = 8;
/// How often something is held meanwhile.
const TIMES: u64 = 2;
/// Longest pauses between two cycles, and between two looks at what is held: some cycles long.
const CYCLE_MS: u64 = 10;
const LOOK_MS: u64 = 40;

impl Client {
    /// Collects garbage again and again.
    pub async fn keep_collecting(mut self) {
        for _ in 0..CYCLES {
            self.rest(CYCLE_MS).await;
            self.collect_garbage().await;
        }
    }

    /// Holds one version after another.
    pub async fn hold(mut self) {
        for _ in 0..TIMES {
            self.rest(LOOK_MS).await;
            self.hold_one().await;
        }
    }

    async fn rest(&mut self, most_ms: u64) {
        let pause = Duration::from_millis(self.dice.below(most_ms));
        tokio::time::sleep(pause).await;
    }

    async fn hold_one(&mut self) -> Option<()> {
        let repo = RepoId { tenant: "acme".parse().unwrap(), user: None };
        let trees = self.life.trees.clone();
        // INVARIANT: before the branch is looked at, as whoever holds a version has to.
        let store = self.look("a store", || trees.store(&repo)).await?;
        let answer = self.ask(Method::GET, "/v1/tree-history/tenants/acme?limit=1", "").await?;
        let head: VersionId = answer.json()["versions"][0]["version"].as_str()?.parse().unwrap();
        if self.dice.one_in(2) { self.read_slowly(&store, &head).await } else { self.make_slowly(&store, &head).await }
    }

    /// Everything that is in a version, one look at a time.
    async fn read_slowly(&mut self, store: &Store, version: &VersionId) -> Option<()> {
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let what = format!("folder `{folder}` of {version}");
            for entry in self.look(&what, || store.list(Some(version), &folder)).await? {
                let path = if folder.is_empty() { entry.name } else { format!("{folder}/{}", entry.name) };
                if entry.size.is_none() {
                    folders.push(path);
                    continue;
                }
                let what = format!("file `{path}` of {version}");
                self.look(&what, || read(store, version, &path)).await?;
            }
        }
        Some(())
    }

    /// Two versions, one on the other, of which no branch ever knows.
    async fn make_slowly(&mut self, store: &Store, head: &VersionId) -> Option<()> {
        let meta = CommitMeta {
            author: "ana".parse().unwrap(),
            time_ms: self.story.fate.now_ms(),
            message: "Push".to_owned(),
            run: None,
        };
        let (mut made, content) = (head.clone(), self.content());
        for path in ["pushed/first", "pushed/second"] {
            let write = || store.write_file(Some(&made), path, &mut content.as_bytes(), u64::MAX, false, &meta);
            made = self.look(&format!("{path} on {made}"), write).await?;
        }
        for path in ["pushed/first", "pushed/second"] {
            let what = format!("file `{path}` of {made}");
            let found = self.look(&what, || read(store, &made, path)).await?;
            if found != content {
                self.story.model().fault(format!("{what} was made as {content} and is {found}"));
            }
        }
        self.read_slowly(store, &made).await
    }

    /// Looks at what is held, after a while; `None` where that failed as it may.
    async fn look<T>(&mut self, what: &str, look: impl FnOnce() -> Result<T, TreeError>) -> Option<T> {
        self.rest(LOOK_MS).await;
        let fate = &self.story.fate;
        fate.step();
        let before = fate.failed();
        let found = look();
        if fate.is_dead() {
            return std::future::pending().await;
        }
        fate.note(|| format!("held {what}: {}", found.is_ok()));
        match found {
            Ok(found) => Some(found),
            Err(error) if fate.failed() > before || error.kind() == TreeErrorKind::QuotaExceeded => {
                fate.note(|| format!("held {what} gives {error}"));
                None
            }
            Err(error) => {
                self.story.model().fault(format!("what is held is gone: {what}: {error}"));
                None
            }
        }
    }
}

fn read(store: &Store, version: &VersionId, path: &str) -> Result<String, TreeError> {
    let content = std::io::read_to_string(store.read(version, path)?);
    content.map_err(|source| TreeError::Storage { operation: "reading", name: path.to_owned(), source })
}
