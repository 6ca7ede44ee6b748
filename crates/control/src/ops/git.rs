//! Git over HTTP: what a client may see and fetch. Pushes are in [`super::git_push`].
//!
//! A clone is a whole store with all its history, so it is one decision about the store's root, and where policies
//! decide below it, one about each path that any version has: a clone is refused rather than served in part.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bailey_policy::{ClonePermit, Denied, Grant, Judge, PushPermit, ReadAction, StoreScope};
use bailey_protocol::git::{GitJob, GitProtocol, GitSpec, GitUpdate};
use bailey_protocol::id::VersionId;
use bailey_protocol::limits::Limits;
use bailey_protocol::node::{Ending, NodeFault, NodeFaultKind};
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_protocol::wall::WallKind;
use bailey_tree::Store;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::below::{named, unnamed};
use super::tree_access;
use crate::admission::Slot;
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::git::advertise::{self, Service};
use crate::git::fetch::{self, FetchRequest};
use crate::git::pkt;
use crate::live_guard::LiveGuard;
use crate::node_link::{GIT_IN_FLIGHT, StartGit};
use crate::threads::blocking;

/// How long a request waits for a thread that reads it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most paths that policy is asked about for one clone. Where there are more, it is refused.
const MAX_JUDGED: usize = 50_000;

/// A store that its caller may fetch, and push to where that was asked.
#[derive(Debug)]
pub(super) struct Access {
    clone: ClonePermit,
    push: Option<PushPermit>,
    pub(super) scope: StoreScope,
    pub(super) store: Store,
    pub(super) heads: Vec<(BranchName, VersionId)>,
    /// Room for the exchange, from before anything is looked at.
    slot: Arc<Slot>,
    /// From before anything was decided.
    guard: LiveGuard,
}

impl Access {
    /// What was allowed, for the audit.
    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        [self.clone.grant()].into_iter().chain(self.push.as_ref().map(PushPermit::grant))
    }
}

/// The answer to a fetch.
#[derive(Debug)]
pub enum Fetched {
    /// All of it.
    Whole(Vec<u8>),
    /// What git says, as it says it.
    Stream(GitStream, Box<Watched>),
}

/// A fetch that is being answered, and when it has to be decided on again.
#[derive(Debug)]
pub struct Watched {
    guard: LiveGuard,
    repo: TreePath,
    store: Store,
    heads: Vec<(BranchName, VersionId)>,
}

impl Watched {
    /// Waits until policy no longer lets the caller fetch the store. The denial is on the audit.
    ///
    /// CANCEL: a check of many paths that is under way goes on.
    pub async fn until_unreadable(self, control: Control, caller: Caller) -> Denied {
        let Self { guard, repo, store, heads } = &self;
        let again = || async {
            let judge = control.judge(&caller).await?;
            if let Err(denied) = judge.clone_store(&control.path_facts(&caller, repo, None)) {
                return Ok(Some(denied));
            }
            let (owner, asker, root) = (control.clone(), caller.clone(), repo.clone());
            let (store, heads) = (store.clone(), heads.clone());
            blocking(control.threads(), move || hidden(&owner, &asker, &judge, &root, &store, &heads)).await
        };
        let denied = guard.clone().until_refused(caller.principal.tenant.as_str(), again).await;
        control.record_denial(&caller, &denied).await;
        denied
    }
}

/// The output of git on its way to a client. When it is dropped, git is killed.
#[derive(Debug)]
pub struct GitStream {
    first: Option<Bytes>,
    updates: mpsc::Receiver<GitUpdate>,
    _slot: Arc<Slot>,
    /// Held so that nothing is taken from under git.
    _store: Store,
}

impl GitStream {
    /// The next piece; `None` after the last.
    ///
    /// # Errors
    /// When git did not come to its end.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        match self.updates.recv().await {
            Some(GitUpdate::Output { data }) => Some(Ok(data)),
            Some(GitUpdate::Ended { ending: Ending::Exited { code: 0 }, .. }) => None,
            // Git has told its client on the wire what it had to tell.
            Some(GitUpdate::Ended { ending, .. }) => {
                tracing::debug!(?ending, "git did not end well");
                Some(Err(io::ErrorKind::ConnectionAborted.into()))
            }
            Some(GitUpdate::Failed { .. }) | None => Some(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

/// What there is to fetch, or to push to: the answer to `info/refs`.
///
/// # Errors
/// When it is denied, or the store cannot be read.
pub(crate) async fn advertise(
    control: &Control,
    caller: &Caller,
    repo: &TreePath,
    service: Service,
    protocol: GitProtocol,
) -> Result<Vec<u8>, ApiError> {
    let access = open(control, caller, repo, service).await?;
    let answer = Ok(advertise::advertisement(service, protocol, &access.heads, &access.store.cut_versions()));
    control.audited(caller, access.grants(), answer).await
}

/// Answers a `git-upload-pack` request.
///
/// # Errors
/// When it is denied, not understood, or there is no room for git.
pub async fn fetch(
    control: &Control,
    caller: &Caller,
    repo: &TreePath,
    protocol: GitProtocol,
    body: Vec<u8>,
) -> Result<Fetched, ApiError> {
    let access = open(control, caller, repo, Service::Fetch).await?;
    let answer = serve(control, &access, protocol, body).await;
    control.audited(caller, access.grants(), answer).await
}

async fn serve(control: &Control, access: &Access, protocol: GitProtocol, body: Vec<u8>) -> Result<Fetched, ApiError> {
    let hint = "Use a current git; see docs/git.md for what is served.";
    let request = fetch::parse(protocol, &body)
        .map_err(|error| ApiError::invalid("invalid_git_request", error.to_string(), hint))?;
    let wants = match request {
        FetchRequest::Probe => return Ok(Fetched::Whole(Vec::new())),
        FetchRequest::ListRefs(asked) => return Ok(Fetched::Whole(advertise::list(&asked, &access.heads))),
        FetchRequest::Wants(wants) => wants,
    };
    let (store, heads) = (access.store.clone(), access.heads.iter().map(|(_, head)| head.clone()).collect::<Vec<_>>());
    if let Some(missing) = blocking(control.threads(), move || Ok(store.unreachable(&heads, &wants)?)).await? {
        return Ok(Fetched::Whole(pkt::error(&format!("no branch here leads to {missing}: fetch again"))));
    }
    let limits = limits(control, 0);
    let (to_git, mut updates) = start(control, access, GitJob::UploadPack { protocol }, limits).await?;
    let sending = async {
        // Git may answer before it has read everything, and is told the rest all the same.
        for piece in Bytes::from(body).chunks(64 * 1024) {
            if to_git.send(Bytes::copy_from_slice(piece)).await.is_err() {
                break;
            }
        }
        drop(to_git);
    };
    let ((), first) = tokio::join!(sending, updates.recv());
    let first = match first {
        Some(GitUpdate::Output { data }) => Some(data),
        Some(GitUpdate::Ended { ending: Ending::Exited { code: 0 }, .. }) => return Ok(Fetched::Whole(Vec::new())),
        Some(GitUpdate::Ended { ending, said }) => return Err(not_well(ending, &said)),
        Some(GitUpdate::Failed { fault }) => return Err(failed(fault)),
        None => return Err(ApiError::internal("the node dropped a git exchange")),
    };
    let (repo, store, heads) = (access.clone.path().clone(), access.store.clone(), access.heads.clone());
    let watched = Box::new(Watched { guard: access.guard.clone(), repo, store: store.clone(), heads });
    Ok(Fetched::Stream(GitStream { first, updates, _slot: Arc::clone(&access.slot), _store: store }, watched))
}

/// Reads a request on a thread that may block, of which there are only so many.
///
/// # Errors
/// As `read` says, or when too many are being read.
pub(crate) async fn read_whole(
    control: &Control,
    caller: &Caller,
    read: impl FnOnce() -> Result<Vec<u8>, ApiError> + Send + 'static,
) -> Result<Vec<u8>, ApiError> {
    let turn = control.uploads().take(&caller.principal.tenant, PATIENCE).await.ok_or_else(busy)?;
    blocking(control.threads(), move || {
        let _turn = turn;
        read()
    })
    .await
}

fn busy() -> ApiError {
    let message = "too many fetches and pushes are going at once";
    ApiError::new(ErrorKind::Exhausted, "too_many_git", message, "Try again after the time in `Retry-After`.")
}

/// Decides, and opens the store.
pub(super) async fn open(
    control: &Control,
    caller: &Caller,
    repo: &TreePath,
    service: Service,
) -> Result<Access, ApiError> {
    let guard = control.early_guard(&caller.principal.tenant);
    let judge = control.judge(caller).await?;
    let facts = control.path_facts(caller, repo, None);
    let clone = control.permit(caller, judge.clone_store(&facts)).await?;
    let push = match service {
        Service::Fetch => None,
        Service::Push => Some(control.permit(caller, judge.push(&facts)).await?),
    };
    let scope = clone.scope()?;
    // Judging all of history is work for a thread, as git itself is.
    let slot = control.git_admission().try_enter(&scope.repo().tenant).map_err(|error| busy().because(error))?;
    let store = control.trees().store(scope.repo())?;
    let heads = control.db().heads(&scope).await?;
    tree_access::settled(control, scope.repo()).await;
    if control.path_facts(caller, repo, None) != facts {
        let message = format!("the labels of `{repo}` changed while it was opened");
        return Err(ApiError::new(ErrorKind::Conflict, "labels_changed", message, "Ask again."));
    }
    let (owner, asker, root) = (control.clone(), caller.clone(), repo.clone());
    let (opened, all) = (store.clone(), heads.clone());
    if let Some(denied) =
        blocking(control.threads(), move || hidden(&owner, &asker, &judge, &root, &opened, &all)).await?
    {
        control.permit::<()>(caller, Err(denied)).await?;
    }
    Ok(Access { clone, push, scope, store, heads, slot: Arc::new(slot), guard })
}

/// A path of the store, in all its history, that the caller may not read on some branch. History is walked through once,
/// however many branches there are, so each path is asked about on each of them. Blocks.
fn hidden(
    control: &Control,
    caller: &Caller,
    judge: &Judge,
    root: &TreePath,
    store: &Store,
    heads: &[(BranchName, VersionId)],
) -> Result<Option<Denied>, ApiError> {
    let actions = [ReadAction::Read, ReadAction::List, ReadAction::History];
    let actions: Vec<ReadAction> = actions.into_iter().filter(|action| judge.decides_below(*action)).collect();
    let Some(first) = actions.first().copied().filter(|_| !heads.is_empty()) else {
        return Ok(None);
    };
    let unasked = |path: &str, reason: &str| Denied::unasked(first.into(), path.to_owned(), reason.to_owned());
    let all: Vec<VersionId> = heads.iter().map(|(_, head)| head.clone()).collect();
    let (mut denied, mut count, pace) = (None, 0, control.pace(caller));
    let whole = store.every_path(&all, &mut |inner| {
        count += heads.len();
        denied = match named(root, inner) {
            _ if count > MAX_JUDGED => Some(unasked(root.as_str(), "it has too many paths to ask policy about each")),
            Err(shown) => Some(unnamed(first.into(), &shown)),
            Ok(path) => heads.iter().find_map(|(branch, _)| {
                pace.next();
                let (facts, revision) =
                    (control.path_facts(caller, &path, Some(branch)), Revision::Branch(branch.clone()));
                actions.iter().find_map(|action| judge.read_path(*action, &facts, &revision).err())
            }),
        };
        if denied.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if !whole && denied.is_none() {
        denied = Some(unasked(root.as_str(), "its history is too long to ask policy about each path"));
    }
    Ok(denied)
}

/// What git may use: `pack` bytes of disk, which are memory as well.
pub(super) fn limits(control: &Control, pack: u64) -> Limits {
    let config = control.config().git;
    let disk_bytes = pack.saturating_add(pack / 8).saturating_add(64 << 20);
    Limits {
        cpu_millis: 2000,
        memory_bytes: config.memory_bytes.saturating_add(disk_bytes),
        disk_bytes,
        timeout_ms: u64::try_from(config.timeout.as_millis()).unwrap_or(u64::MAX),
        output_bytes: u64::MAX,
        ..Limits::default()
    }
}

/// Has the node start git: what it reads goes into the sender, what it says comes out of the receiver.
pub(super) async fn start(
    control: &Control,
    access: &Access,
    job: GitJob,
    limits: Limits,
) -> Result<(mpsc::Sender<Bytes>, mpsc::Receiver<GitUpdate>), ApiError> {
    let runs = &control.config().runs;
    let repo = access.scope.repo().clone();
    let spec = GitSpec {
        tenant: repo.tenant.clone(),
        repo,
        wall: WallKind::Container,
        template: runs.default_template.clone(),
        job,
        limits,
    };
    let (to_git, input) = mpsc::channel(GIT_IN_FLIGHT);
    let (updates, told) = mpsc::channel(GIT_IN_FLIGHT);
    control.git().send(StartGit { spec, input, updates }).await.map_err(ApiError::internal)?;
    Ok((to_git, told))
}

/// An exchange that the node could not carry out.
pub(super) fn failed(fault: NodeFault) -> ApiError {
    let hint = "Try again in a few seconds.";
    match fault.kind {
        NodeFaultKind::Exhausted => ApiError::new(ErrorKind::Exhausted, "node_exhausted", "no room for git now", hint),
        NodeFaultKind::Unavailable => {
            ApiError::new(ErrorKind::Unavailable, "node_unavailable", "git is not served now", hint)
        }
        NodeFaultKind::Invalid | NodeFaultKind::Internal => ApiError::internal(fault),
    }
}

/// A git that ended before it said anything.
fn not_well(ending: Ending, said: &Bytes) -> ApiError {
    ApiError::internal(format!("git ended as {ending:?}: {}", String::from_utf8_lossy(said)))
}
