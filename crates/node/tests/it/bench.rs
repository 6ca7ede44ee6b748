//! A node, a caller and their clock, for tests on any wall.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bailey_node::checkout::{FillError, Source};
use bailey_node::{CheckoutRoom, Deadlines, Machines, Node, NodeConfig};
use bailey_protocol::id::{RunId, SandboxId, TemplateDigest, TreeId};
use bailey_protocol::limits::{LargeDisks, Limits};
use bailey_protocol::node::{Ending, NodeFault, OutputStream, RunSpec, RunStarted, RunStopped, RunUpdate, SliceMount};
use bailey_protocol::path::{RepoId, TreePath};
use bailey_protocol::wall::WallKind;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::fake_wall::FakeWall;

/// Longest that anything in a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn digest() -> TemplateDigest {
    "a".repeat(64).parse().unwrap()
}

/// Fresh ids.
pub(crate) fn mint() -> Arc<dyn Fn() -> SandboxId + Send + Sync> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Arc::new(|| {
        let mut random = [0; 10];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).unwrap();
        SandboxId::mint(NEXT.fetch_add(1, Ordering::Relaxed), random)
    })
}

/// Folders with one file that names the tree.
struct Named;

impl Source for Named {
    fn write(&self, _: &RepoId, tree: &TreeId, path: &Path) -> Result<(), FillError> {
        std::fs::create_dir(path)?;
        Ok(std::fs::write(path.join("tree"), tree.as_str())?)
    }

    fn room(&self, _: &RepoId, tree: &TreeId) -> Result<u64, FillError> {
        Ok(u64::try_from(tree.as_str().len())?)
    }
}

pub(crate) fn source() -> Arc<dyn Source> {
    Arc::new(Named)
}

pub(crate) fn config(checkouts: &Path, parked: usize) -> NodeConfig {
    NodeConfig {
        source: source(),
        repos: Arc::new(|_repo| Err("no repositories here".into())),
        checkouts: checkouts.to_owned(),
        checkout_room: CheckoutRoom { most: 1 << 30, kept: 1 << 30 },
        templates: BTreeMap::from([("base".parse().unwrap(), digest())]),
        parked,
        machines: Machines::none(),
        limits: Limits::default(),
        large_disks: Some(LargeDisks { count: 2, bytes: 1 << 30, inodes: 10_000 }),
        ceiling: Limits { timeout_ms: 600_000, output_bytes: 1 << 30, ..Limits::default() },
        deadlines: Deadlines { agent: Duration::from_millis(500), ..Deadlines::default() },
        mint: mint(),
    }
}

/// A node over a fake wall.
pub(crate) struct Bench {
    pub(crate) node: Node,
    pub(crate) wall: Arc<FakeWall>,
    _checkouts: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(wall: Arc<FakeWall>, parked: usize) -> Self {
        let checkouts = tempfile::tempdir().unwrap();
        let config = config(checkouts.path(), parked);
        let node = Node::with_walls(vec![wall.clone()], wall.tasks.clone(), config).unwrap();
        Self { node, wall, _checkouts: checkouts }
    }

    pub(crate) async fn run(&self, spec: RunSpec) -> Told {
        run(&self.node, spec, CancellationToken::new()).await
    }

    /// Waits until no sandbox exists.
    pub(crate) async fn empty(&self) {
        eventually("every sandbox is destroyed", || self.wall.alive() == 0).await;
    }
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, poll).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

pub(crate) fn spec(command: &[&str]) -> RunSpec {
    let mut random = [0; 10];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).unwrap();
    RunSpec {
        run: RunId::mint(1, random),
        tenant: "acme".parse().unwrap(),
        wall: WallKind::Container,
        template: "base".parse().unwrap(),
        command: command.iter().map(|&arg| arg.to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: None,
        stdin: Vec::new(),
        files: Vec::new(),
        root: false,
        mounts: Vec::new(),
        limits: Limits::default(),
    }
}

pub(crate) fn repo() -> RepoId {
    "/tenants/acme".parse::<TreePath>().unwrap().repo().clone()
}

pub(crate) fn mount(digit: char, at: &str, writable: bool) -> SliceMount {
    SliceMount { repo: repo(), tree: digit.to_string().repeat(40).parse().unwrap(), at: at.parse().unwrap(), writable }
}

/// All that a caller was told of a run, checked for its order.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) started: Option<RunStarted>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) stopped: Option<RunStopped>,
    pub(crate) changes: BTreeMap<u32, Vec<u8>>,
    pub(crate) fault: Option<NodeFault>,
    done: bool,
    ended_mounts: Vec<u32>,
}

impl Told {
    pub(crate) fn hear(&mut self, update: RunUpdate) {
        assert!(!self.done && self.fault.is_none(), "an update after the last: {update:?}");
        match update {
            RunUpdate::Started { started } => {
                assert!(self.started.is_none() && self.stopped.is_none());
                self.started = Some(started);
            }
            RunUpdate::Output { stream, data } => {
                assert!(self.started.is_some() && self.stopped.is_none(), "output out of order");
                assert!(!data.is_empty() && data.len() <= 32 * 1024);
                match stream {
                    OutputStream::Stdout => self.stdout.extend_from_slice(&data),
                    OutputStream::Stderr => self.stderr.extend_from_slice(&data),
                }
            }
            RunUpdate::Stopped { stopped } => assert!(self.stopped.replace(stopped).is_none()),
            RunUpdate::Changes { mount, data } => {
                assert!(self.stopped.is_some() && !self.ended_mounts.contains(&mount));
                self.changes.entry(mount).or_default().extend_from_slice(&data);
            }
            RunUpdate::ChangesEnd { mount } => {
                assert!(self.ended_mounts.last().is_none_or(|last| *last < mount));
                self.ended_mounts.push(mount);
            }
            RunUpdate::Done => {
                assert!(self.stopped.is_some());
                self.done = true;
            }
            RunUpdate::Failed { fault } => self.fault = Some(fault),
        }
    }

    /// How the run ended. Fails unless it ended whole.
    pub(crate) fn ending(&self) -> Ending {
        assert!(self.done, "not done: {self:?}");
        self.stopped.as_ref().unwrap().ending
    }

    pub(crate) fn stopped(&self) -> &RunStopped {
        self.stopped.as_ref().unwrap_or_else(|| panic!("not stopped: {self:?}"))
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.done || self.fault.is_some()
    }
}

/// Runs, listening all the time.
pub(crate) async fn run(node: &Node, spec: RunSpec, cancel: CancellationToken) -> Told {
    run_hearing(node, spec, cancel, |_output| {}).await
}

/// The same, calling `heard` with all output of the program whenever there is more.
pub(crate) async fn run_hearing(
    node: &Node,
    spec: RunSpec,
    cancel: CancellationToken,
    mut hear: impl FnMut(&[u8]),
) -> Told {
    let (updates, mut heard) = mpsc::channel(8);
    let listen = async {
        let mut told = Told::default();
        while let Some(update) = heard.recv().await {
            let more = matches!(update, RunUpdate::Output { .. });
            told.hear(update);
            if more {
                hear(&told.stdout);
            }
        }
        assert!(told.is_whole(), "the updates broke off: {told:?}");
        told
    };
    let both = async { tokio::join!(node.run(spec, updates, cancel), listen).1 };
    tokio::time::timeout(PATIENCE, both).await.expect("the run hangs")
}
