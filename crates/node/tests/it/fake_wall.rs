//! A wall without isolation: every sandbox is a scripted guest in this process.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailey_node::tasks::Tasks;
use bailey_node::wall::{BoxFuture, Capabilities, Changes, ClaimOrder, Hold, Live, Parked, Wall, WallError};
use bailey_protocol::id::{SandboxId, TemplateDigest};
use bailey_protocol::jail::StopFacts;
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::WallKind;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::guest::{self, Script, Written};

pub(crate) struct FakeWall {
    pub(crate) tasks: Tasks,
    pub(crate) written: Written,
    /// Ends the wall, as a lost jail does.
    pub(crate) lost: CancellationToken,
    script: Script,
    behaviour: Behaviour,
    sandboxes: Mutex<HashMap<SandboxId, Sandbox>>,
    parks: AtomicUsize,
    orders: Mutex<Vec<(SandboxId, ClaimOrder)>>,
    destroyed: Mutex<Vec<SandboxId>>,
    /// Sandboxes with a large disk, and how many there were at most.
    large: Mutex<(HashSet<SandboxId>, usize)>,
}

/// What the wall itself does.
#[derive(Clone, Default)]
pub(crate) struct Behaviour {
    pub(crate) facts: StopFacts,
    pub(crate) changes: Vec<u8>,
    pub(crate) park_takes: Duration,
    pub(crate) claim_takes: Duration,
    pub(crate) claim_fails: bool,
    pub(crate) collect_fails: bool,
}

struct Sandbox {
    guest: AbortHandle,
    life: Option<OwnedFd>,
}

impl std::fmt::Debug for FakeWall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeWall")
    }
}

impl FakeWall {
    pub(crate) fn new(script: Script, behaviour: Behaviour) -> Arc<Self> {
        Arc::new(Self {
            tasks: Tasks::new(),
            written: Written::default(),
            lost: CancellationToken::new(),
            script,
            behaviour,
            sandboxes: Mutex::default(),
            parks: AtomicUsize::new(0),
            orders: Mutex::default(),
            destroyed: Mutex::default(),
            large: Mutex::default(),
        })
    }

    pub(crate) fn alive(&self) -> usize {
        self.sandboxes.lock().unwrap().len()
    }

    pub(crate) fn parks(&self) -> usize {
        self.parks.load(Ordering::SeqCst)
    }

    pub(crate) fn orders(&self) -> Vec<(SandboxId, ClaimOrder)> {
        self.orders.lock().unwrap().clone()
    }

    pub(crate) fn destroyed(&self) -> Vec<SandboxId> {
        self.destroyed.lock().unwrap().clone()
    }

    pub(crate) fn most_large(&self) -> usize {
        self.large.lock().unwrap().1
    }

    /// Kills all guests, as something outside the node might.
    pub(crate) fn kill_all(&self) {
        for sandbox in self.sandboxes.lock().unwrap().values_mut() {
            sandbox.guest.abort();
            sandbox.life = None;
        }
    }
}

fn overdue() -> WallError {
    WallError::Overdue { op: "test" }
}

impl Wall for FakeWall {
    fn capabilities(&self) -> Capabilities {
        Capabilities { kind: WallKind::Container, accelerated: None }
    }

    fn park(
        self: Arc<Self>,
        sandbox: SandboxId,
        template: TemplateDigest,
        limits: Limits,
    ) -> BoxFuture<'static, Result<Parked, WallError>> {
        Box::pin(async move {
            tokio::time::sleep(self.behaviour.park_takes).await;
            self.parks.fetch_add(1, Ordering::SeqCst);
            if limits.wants_large_disk() {
                let mut large = self.large.lock().unwrap();
                large.0.insert(sandbox.clone());
                large.1 = large.1.max(large.0.len());
            }
            let (stream, theirs) = UnixStream::pair().unwrap();
            let guest = self.tasks.spawn(guest::play(theirs, Arc::clone(&self.script), Arc::clone(&self.written)));
            let (death, life) = StdUnixStream::pair().unwrap();
            let state = Sandbox { guest: guest.abort_handle(), life: Some(life.into()) };
            assert!(self.sandboxes.lock().unwrap().insert(sandbox.clone(), state).is_none(), "an id was used twice");
            let hold = Hold::new(sandbox, Arc::clone(&self) as Arc<dyn Wall>, self.tasks.clone());
            Ok(Parked {
                hold,
                template,
                fences: vec!["fake".to_owned()],
                stream,
                death: death.into(),
                warm: Vec::new(),
            })
        })
    }

    fn claim<'a>(&'a self, live: &'a Live, order: ClaimOrder) -> BoxFuture<'a, Result<Vec<String>, WallError>> {
        Box::pin(async move {
            tokio::time::sleep(self.behaviour.claim_takes).await;
            self.orders.lock().unwrap().push((live.sandbox.clone(), order));
            if self.behaviour.claim_fails { Err(overdue()) } else { Ok(Vec::new()) }
        })
    }

    fn stop<'a>(&'a self, live: &'a Live) -> BoxFuture<'a, Result<StopFacts, WallError>> {
        Box::pin(async move {
            let mut sandboxes = self.sandboxes.lock().unwrap();
            let sandbox = sandboxes.get_mut(&live.sandbox).unwrap();
            sandbox.guest.abort();
            sandbox.life = None;
            Ok(self.behaviour.facts)
        })
    }

    fn collect<'a>(&'a self, _live: &'a Live, _mount: u32) -> BoxFuture<'a, Result<Option<Changes>, WallError>> {
        Box::pin(async move {
            if self.behaviour.collect_fails {
                return Err(overdue());
            }
            let changes = self.behaviour.changes.clone();
            Ok((!changes.is_empty()).then(|| Box::pin(std::io::Cursor::new(changes)) as Changes))
        })
    }

    fn destroy<'a>(&'a self, sandbox: &'a SandboxId) -> BoxFuture<'a, Result<(), WallError>> {
        Box::pin(async move {
            let gone = self.sandboxes.lock().unwrap().remove(sandbox).expect("destroyed twice or never made");
            gone.guest.abort();
            self.large.lock().unwrap().0.remove(sandbox);
            self.destroyed.lock().unwrap().push(sandbox.clone());
            Ok(())
        })
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.lost.cancelled())
    }
}
