//! Stock git over one bare repository, in a sandbox that serves this one exchange.
//!
//! The repository is a read-only mount. Git reads no configuration but the repository's own, which the tree wrote, and
//! runs no hook: there is none in a bare repository of ours, none in the scratch one, and `core.hooksPath` leads
//! nowhere. What a client sends is only ever seen by git inside the sandbox and by the tree's own parser.
//!
//! ```text
//! claim ─▶ init ─▶ start ─▶ bytes in, bytes out, in each other's pace ─▶ ended ─▶ destroyed
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bailey_protocol::git::{GitJob, GitProtocol, GitSpec, GitUpdate, MAX_SAID, REPO_PATH};
use bailey_protocol::guest::{GENERATION, InitRequest};
use bailey_protocol::node::{Ending, NodeFault, OutputStream};
use bailey_protocol::path::{RepoId, SandboxPath};
use bailey_tree::Trees;
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, error};

use crate::agent::{Agent, Exec, ExecEvent, Program, feed_from};
use crate::fault;
use crate::machine::Machine;
use crate::node::Host;
use crate::share;
use crate::wall::{BoxFuture, ClaimMount, ClaimOrder};

/// Opens the folder of a bare repository (`O_PATH`), which is made if missing.
pub type Repos = Arc<dyn Fn(&RepoId) -> Result<OwnedFd, RepoError> + Send + Sync>;

/// Why a repository's folder could not be opened.
pub type RepoError = Box<dyn std::error::Error + Send + Sync>;

/// The repositories of `trees`.
#[must_use]
pub fn repos_of(trees: Trees) -> Repos {
    Arc::new(move |repo| {
        let store = trees.store(repo)?;
        store.prepare()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(store.folder(), flags, Mode::empty()).map_err(io::Error::from)?)
    })
}

/// Largest piece of output in one update.
const MAX_OUTPUT: usize = 32 * 1024;

/// Every git command: no hooks, large files streamed and never compared, and the repository belongs to who it may.
const CONFIG: [&str; 6] = [
    "core.hooksPath=/dev/null",
    "core.bigFileThreshold=8m",
    "safe.directory=*",
    "uploadpack.allowAnySHA1InWant=false",
    "pack.threads=1",
    "pack.compression=1",
];

/// Takes a pack in beside the repository's objects and writes out what is new, whole: `$1` is the size limit, the rest
/// are the tips. Objects that a branch has already are left out.
const UNPACK: &str = r#"
set -eu
most=$1
shift
git init --quiet --bare --template= /tmp/scratch
cd /tmp/scratch
echo /repo/objects >objects/info/alternates
if [ -e /repo/shallow ]; then cp /repo/shallow shallow; fi
git index-pack --stdin --fix-thin --strict "--max-input-size=$most" >/dev/null
{
    printf '%s\n' "$@"
    sed -n 's/^\([0-9a-f]\{40\}\) .*/^\1/p' /repo/packed-refs 2>/dev/null || :
} | git pack-objects --revs --stdout --quiet --no-reuse-delta --depth=0 --window=0
"#;

/// A sandbox that holds the repository.
struct Claimed {
    machine: Machine,
    deadline: Instant,
}

/// Carries out one exchange; resolves after its last update. CANCEL: the sandbox is destroyed behind.
pub(crate) async fn serve(
    host: Arc<Host>,
    spec: GitSpec,
    input: mpsc::Receiver<Bytes>,
    updates: mpsc::Sender<GitUpdate>,
) {
    let ending = host.ending.clone();
    let exchange = async {
        let mut claimed = claim(Arc::clone(&host), spec.clone()).await?;
        converse(&host, &spec, &mut claimed, input, &updates).await
    };
    let last = tokio::select! {
        last = exchange => last,
        () = ending.cancelled() => Err(fault::unavailable()),
        () = host.wall_lost() => Err(fault::unavailable()),
        () = updates.closed() => return,
    };
    let last = last.unwrap_or_else(|fault| GitUpdate::Failed { fault });
    debug!(tenant = %spec.tenant, ?last, "git exchange over");
    drop(updates.send(last).await);
}

/// Claims a sandbox in a task of its own. CANCEL: the sandbox is destroyed as soon as the claim is through.
async fn claim(host: Arc<Host>, spec: GitSpec) -> Result<Claimed, NodeFault> {
    let (give, take) = oneshot::channel();
    let within = host.deadlines.claim;
    let tasks = host.tasks.clone();
    tasks.spawn(async move {
        drop(give.send(claim_whole(&host, &spec).await));
    });
    match timeout(within, take).await {
        Ok(Ok(claimed)) => claimed,
        Ok(Err(_dropped)) => Err(fault::unavailable()),
        Err(_elapsed) => Err(fault::exhausted()),
    }
}

async fn claim_whole(host: &Host, spec: &GitSpec) -> Result<Claimed, NodeFault> {
    let unknown = || fault::invalid(format!("there is no git behind wall `{}` here", spec.wall));
    let template = host.templates.get(&spec.template).ok_or_else(unknown)?;
    let pool = host.pools.get(&(spec.wall, template.clone())).ok_or_else(unknown)?;
    let (repos, repo) = (Arc::clone(&host.repos), spec.repo.clone());
    let opened = host.tasks.spawn_blocking(move || repos(&repo)).await;
    let lower = match opened {
        Ok(Ok(folder)) => Arc::new(folder),
        Ok(Err(cause)) => {
            error!(cause = &*cause as &dyn std::error::Error, "repository not opened");
            return Err(fault::broken());
        }
        Err(_panicked) => return Err(fault::broken()),
    };
    let machine = match pool.take() {
        Some(machine) => machine,
        None => pool.recipe().make().await.map_err(|cause| fault::of_machine(&cause))?,
    };
    let deadline = Instant::now() + Duration::from_millis(spec.limits.timeout_ms);
    let mounts = vec![ClaimMount { at: repo_path(), writable: false, lower }];
    let order = ClaimOrder { share: share::of(&spec.tenant), limits: spec.limits, mounts };
    let live = machine.live();
    let claiming = machine.hold().wall().claim(&live, order);
    claiming.await.map_err(|cause| fault::of_wall(&cause, "mount the repository"))?;
    Ok(Claimed { machine, deadline })
}

fn repo_path() -> SandboxPath {
    REPO_PATH.parse().expect("the path of the repository is one")
}

/// Starts git and moves bytes until it is over.
async fn converse(
    host: &Host,
    spec: &GitSpec,
    claimed: &mut Claimed,
    input: mpsc::Receiver<Bytes>,
    updates: &mpsc::Sender<GitUpdate>,
) -> Result<GitUpdate, NodeFault> {
    let deadline = claimed.deadline;
    let (exec, feed) = match timeout(host.deadlines.agent, start(host, spec, claimed, input)).await {
        Ok(started) => started?,
        Err(_elapsed) => return Err(fault::broken()),
    };
    let mut exchange = Exchange { exec, feed: Some(feed), outbox: VecDeque::new(), said: Vec::new() };
    let ending = tokio::select! {
        ending = exchange.run(updates) => ending,
        () = sleep_until(deadline) => Ending::Timeout,
        () = claimed.machine.died() => Ending::GuestLost,
    };
    let said = Bytes::from(std::mem::take(&mut exchange.said));
    Ok(GitUpdate::Ended { ending, said })
}

async fn start(
    host: &Host,
    spec: &GitSpec,
    claimed: &mut Claimed,
    input: mpsc::Receiver<Bytes>,
) -> Result<(Exec, BoxFuture<'static, ()>), NodeFault> {
    let lost = |cause: crate::agent::AgentError| {
        error!(cause = &cause as &dyn std::error::Error, "git not started");
        fault::broken()
    };
    let mut agent = claimed.machine.take_agent().ok_or_else(fault::broken)?;
    let init = InitRequest {
        generation: GENERATION,
        env: environment(&spec.job),
        mounts: vec![repo_path()],
        root: false,
        open_files: spec.limits.open_files,
    };
    agent.init(&init).await.map_err(lost)?;
    let program = Program::new(&command(&spec.job), None, true).ok_or_else(fault::broken)?;
    let exec = agent.start(&program).await.map_err(lost)?;
    let (pid, tasks, transport) = (exec.pid(), host.tasks.clone(), Arc::clone(claimed.machine.transport()));
    let feed = Box::pin(async move {
        let fed = match Agent::connect(&transport, &tasks).await {
            Ok(agent) => feed_from(agent, pid, input).await,
            Err(cause) => Err(cause),
        };
        if let Err(cause) = fed {
            debug!(cause = &cause as &dyn std::error::Error, "git's input not taken");
        }
    });
    Ok((exec, feed))
}

/// Configuration by the environment alone; none of the system's, none of a user's.
fn environment(job: &GitJob) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        // What a delta or a header claims is refused before memory is asked for it.
        ("GIT_ALLOC_LIMIT", "600m"),
        ("LC_ALL", "C"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    env.insert("GIT_CONFIG_COUNT".to_owned(), CONFIG.len().to_string());
    for (number, setting) in CONFIG.iter().enumerate() {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        env.insert(format!("GIT_CONFIG_KEY_{number}"), key.to_owned());
        env.insert(format!("GIT_CONFIG_VALUE_{number}"), value.to_owned());
    }
    let version = match job {
        GitJob::UploadPack { protocol: GitProtocol::V1 } => Some("version=1"),
        GitJob::UploadPack { protocol: GitProtocol::V2 } => Some("version=2"),
        GitJob::UploadPack { protocol: GitProtocol::V0 } | GitJob::Unpack { .. } => None,
    };
    env.extend(version.map(|version| ("GIT_PROTOCOL".to_owned(), version.to_owned())));
    env
}

fn command(job: &GitJob) -> Vec<String> {
    match job {
        GitJob::UploadPack { .. } => {
            ["git", "upload-pack", "--stateless-rpc", "--strict", REPO_PATH].map(str::to_owned).to_vec()
        }
        GitJob::Unpack { tips, max_bytes } => {
            let mut command = ["sh", "-c", UNPACK, "unpack"].map(str::to_owned).to_vec();
            command.push(max_bytes.to_string());
            command.extend(tips.iter().map(ToString::to_string));
            command
        }
    }
}

/// A running git.
struct Exchange {
    exec: Exec,
    feed: Option<BoxFuture<'static, ()>>,
    outbox: VecDeque<Bytes>,
    said: Vec<u8>,
}

impl Exchange {
    /// Moves bytes until git is over. While the other side takes no output, none is read: git waits.
    async fn run(&mut self, updates: &mpsc::Sender<GitUpdate>) -> Ending {
        let mut ended = None;
        loop {
            let Self { exec, feed, outbox, said } = self;
            if let (true, Some(ending)) = (outbox.is_empty(), ended) {
                return ending;
            }
            tokio::select! {
                biased;
                permit = updates.reserve(), if !outbox.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(data) = outbox.pop_front() {
                            permit.send(GitUpdate::Output { data });
                        }
                    }
                    Err(_closed) => return Ending::Cancelled,
                },
                event = exec.next(), if outbox.is_empty() && ended.is_none() => match event {
                    Ok(ExecEvent::Output(OutputStream::Stdout, mut data)) => {
                        while !data.is_empty() {
                            outbox.push_back(data.split_to(data.len().min(MAX_OUTPUT)));
                        }
                    }
                    Ok(ExecEvent::Output(OutputStream::Stderr, data)) => keep_last(said, &data),
                    Ok(ExecEvent::Ended(ending)) => ended = Some(ending),
                    Err(cause) => {
                        debug!(cause = &cause as &dyn std::error::Error, "git's sandbox lost");
                        return Ending::GuestLost;
                    }
                },
                () = some(feed) => *feed = None,
            }
        }
    }
}

/// The last of what git says.
fn keep_last(said: &mut Vec<u8>, data: &[u8]) {
    said.extend_from_slice(data);
    let beyond = said.len().saturating_sub(MAX_SAID);
    said.drain(..beyond);
}

async fn some(feed: &mut Option<BoxFuture<'static, ()>>) {
    match feed {
        Some(feed) => feed.await,
        None => std::future::pending().await,
    }
}
