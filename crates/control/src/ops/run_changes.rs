//! What a run changed: from the node's change streams to versions on branches.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bailey_crash::Point;
use bailey_policy::WriteAction;
use bailey_protocol::api::{NewVersion, Notice, RunResult};
use bailey_protocol::change::NoticeReason;
use bailey_protocol::id::VersionId;
use bailey_protocol::label::Label;
use bailey_protocol::limits::MAX_CHANGE_STREAM;
use bailey_protocol::node::{Ending, RunUpdate};
use bailey_protocol::path::{RepoId, TreePath, text_of};
use bailey_tree::{Applied, CommitMeta, MAX_NOTICES};

use super::below::Below;
use super::entering;
use super::labels::Carried;
use super::landing::{self, Landed, OnConflict, Work};
use super::run_owner::{Going, failure, record_end};
use super::slices::Slice;
use crate::api_error::ApiError;
use crate::db::{RefMove, RunEnd, RunFailure};
use crate::pipe::{PipeWriter, pipe};
use crate::threads::reading;

/// Most bytes of the paths of a result's notices, so that the last event's line holds them however JSON escapes them.
const MAX_NOTICE_BYTES: usize = 512 * 1024;

/// What all mounts of a run brought.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Per store: the versions that its mounts made, each grown from the one before, and which mounts those were.
    pub(super) works: HashMap<RepoId, Chain>,
    pub(super) notices: Vec<Notice>,
    /// Of the notices' paths.
    notice_bytes: usize,
    pub(super) more_notices: u64,
}

impl Collected {
    /// Keeps a notice while there is room, else counts it.
    fn take(&mut self, notice: Notice) {
        let bytes = self.notice_bytes + notice.path.len();
        if self.notices.len() < MAX_NOTICES && bytes <= MAX_NOTICE_BYTES {
            self.notice_bytes = bytes;
            self.notices.push(notice);
        } else {
            self.more_notices += 1;
        }
    }
}

/// Versions of one store, each with the index of its mount.
pub(super) type Chain = Vec<(usize, VersionId)>;

impl Going {
    /// Turns the change stream of each writable mount into a version that nothing points to yet.
    pub(super) async fn collect(&mut self, ending: &Ending) -> Result<Collected, RunFailure> {
        let mut collected = Collected::default();
        self.slices.iter_mut().for_each(Slice::awake);
        for index in 0..self.slices.len() {
            let Some(slice) = self.slices.get(index).filter(|slice| slice.write.is_some()) else { continue };
            let (path, repo) = (slice.path.clone(), slice.store.id().clone());
            let base = collected.works.get(&repo).and_then(|chain| chain.last()).map(|(_, version)| version.clone());
            let applied = self.apply(index, base, ending).await?;
            collected.more_notices += applied.more_notices;
            for (inside, reason) in applied.notices {
                collected.take(notice(&path, &inside, reason));
            }
            if let Some(version) = applied.version {
                collected.works.entry(repo).or_default().push((index, version));
            }
        }
        match self.next().await? {
            RunUpdate::Done => Ok(collected),
            RunUpdate::Failed { fault } => Err(self.failed(fault)),
            RunUpdate::Started { .. }
            | RunUpdate::Output { .. }
            | RunUpdate::Stopped { .. }
            | RunUpdate::Changes { .. }
            | RunUpdate::ChangesEnd { .. } => Err(self.broken("an update out of order after the changes")),
        }
    }

    /// Applies one mount's change stream, on top of `base` where an earlier mount of the store made one.
    async fn apply(&mut self, index: usize, base: Option<VersionId>, ending: &Ending) -> Result<Applied, RunFailure> {
        let Some(slice) = self.slices.get(index) else { return Err(self.broken("a mount that is not there")) };
        let (store, path) = (slice.store.clone(), slice.path.clone());
        let base = base.or_else(|| slice.version.clone());
        let meta = self.meta();
        let (writer, reader) = pipe();
        let inner = path.inner().to_owned();
        let applying = reading(self.control.threads(), reader, move |mut reader| {
            let base = base.map(|base| store.current(&base)).transpose()?;
            Ok(store.apply_changes(base.as_ref(), &inner, &mut reader, &meta)?)
        });
        let (fed, applied) = tokio::join!(self.feed(index, writer), applying);
        fed?;
        bailey_crash::point(Point::ChangesApplied);
        applied.map_err(|error| self.lost(&path, ending, &error))
    }

    /// Moves one mount's stream into `writer`; the rest of it goes nowhere once the reader has given up.
    async fn feed(&mut self, index: usize, writer: PipeWriter) -> Result<(), RunFailure> {
        let mut writer = Some(writer);
        let mut left = MAX_CHANGE_STREAM;
        loop {
            match self.next().await? {
                RunUpdate::Changes { mount, data } if is(mount, index) => {
                    left =
                        left.checked_sub(data.len() as u64).ok_or_else(|| self.broken("an endless change stream"))?;
                    if let Some(open) = &writer
                        && open.send(data).await.is_err()
                    {
                        writer = None;
                    }
                }
                RunUpdate::ChangesEnd { mount } if is(mount, index) => {
                    if let Some(open) = writer {
                        // Should the reader be gone, it says itself why.
                        let _reader_gone = open.finish().await.is_err();
                    }
                    return Ok(());
                }
                RunUpdate::Failed { fault } => return Err(self.failed(fault)),
                RunUpdate::Started { .. }
                | RunUpdate::Output { .. }
                | RunUpdate::Stopped { .. }
                | RunUpdate::Changes { .. }
                | RunUpdate::ChangesEnd { .. }
                | RunUpdate::Done => return Err(self.broken("an update out of order among the changes")),
            }
        }
    }

    /// Puts the versions on their branches, or on the run's side branch, and records the run's end: in one transaction,
    /// so that a crash leaves both or neither.
    pub(super) async fn land(&self, result: RunResult, works: HashMap<RepoId, Chain>) -> Result<RunResult, RunFailure> {
        let mut chains: Vec<Chain> = works.into_values().collect();
        chains.sort_unstable();
        let pieces: Option<Vec<Work>> = chains.iter().map(|chain| self.work(chain)).collect();
        let pieces = pieces.ok_or_else(|| self.broken("work without a mount"))?;
        let paths = chains.iter().map(|chain| chain.iter().filter_map(|(index, _)| self.path(*index)).collect());
        let paths: Vec<Vec<(usize, TreePath)>> = paths.collect();
        let ending = result.ending;
        let (control, run, permit) = (self.control.clone(), self.run.clone(), Arc::clone(&self.permit));
        let caller = self.caller.clone();
        let shown = paths.iter().flatten().next().map(|(_, path)| path.clone());
        let landing = self.control.changes().finish(&self.caller.principal.tenant, move || {
            let result = RunResult { notices: shaped(&pieces, &paths, result.notices.clone())?, ..result };
            let told = |landed: &[Landed]| RunResult { versions: versions(&paths, landed), ..result.clone() };
            let commit = |landed: &[Landed], moves: Vec<RefMove>| {
                let end = RunEnd::Ended(told(landed));
                control.wait(record_end(&control, &permit, &run, &end, &moves))
            };
            let landed =
                landing::land(&control, &caller, &pieces, OnConflict::SideBranch(&run), &|_, _| Ok(()), &commit)?;
            Ok(told(&landed))
        });
        landing.await.map_err(|error| match shown {
            Some(path) => self.lost(&path, &ending, &error),
            None => self.broken("work without a mount"),
        })
    }

    fn work(&self, chain: &Chain) -> Option<Work> {
        let slice = self.slices.get(chain.first()?.0)?;
        Some(Work {
            permit: slice.write.clone()?,
            store: slice.store.clone(),
            base: slice.version.clone(),
            made: chain.iter().map(|(_, version)| version.clone()).collect(),
            below: Some(Below::new(&self.caller, WriteAction::Mount, self.folders(chain)?)),
            labels: Carried::by_run(self.labels(), self.folders(chain)?),
            meta: self.meta(),
        })
    }

    fn folders(&self, chain: &Chain) -> Option<Vec<TreePath>> {
        chain.iter().map(|(index, _)| Some(self.path(*index)?.1)).collect()
    }

    /// The labels of all that the run could read, when it was mounted or now.
    fn labels(&self) -> BTreeSet<Label> {
        let meta = self.control.tree_meta();
        let slices = self.slices.iter();
        slices.flat_map(|slice| slice.labels.iter().cloned().chain(meta.labels_of_slice(&slice.path))).collect()
    }

    fn path(&self, index: usize) -> Option<(usize, TreePath)> {
        Some((index, self.slices.get(index)?.path.clone()))
    }

    fn meta(&self) -> CommitMeta {
        CommitMeta {
            author: self.user().clone(),
            time_ms: self.control.now_ms(),
            message: format!("Run {}", self.run),
            run: Some(self.run.clone()),
        }
    }

    /// What the code changed is gone: that is no success, however the program ended.
    fn lost(&self, path: &TreePath, ending: &Ending, error: &ApiError) -> RunFailure {
        tracing::error!(run = %self.run, %error, cause = error.cause_chain(), "changes not kept");
        let message = format!("{}, but what it changed below `{path}` could not be kept: {error}", what_it_did(ending));
        // The quota is the tenant's own matter, and a code of its own.
        let code = if error.code == "quota_exceeded" { error.code } else { "commit_failed" };
        failure(code, message, &error.hint)
    }
}

/// One per mount that changed, in the order of the mounts.
fn versions(paths: &[Vec<(usize, TreePath)>], landed: &[Landed]) -> Vec<NewVersion> {
    let pairs = paths.iter().zip(landed);
    let mut versions: Vec<_> = pairs.flat_map(|(chain, landed)| chain.iter().map(move |at| (at, landed))).collect();
    versions.sort_unstable_by_key(|((index, _), _)| *index);
    let version = |((_, path), landed): (&(usize, TreePath), &Landed)| NewVersion {
        path: path.clone(),
        branch: landed.branch.clone(),
        version: landed.version.clone(),
        outcome: landed.outcome,
        reason: landed.reason.clone(),
        conflicts: landed.conflicts.clone(),
        labels: landed.labels.clone(),
    };
    versions.into_iter().map(version).collect()
}

fn is(mount: u32, index: usize) -> bool {
    usize::try_from(mount) == Ok(index)
}

fn notice(path: &TreePath, inside: &[u8], reason: NoticeReason) -> Notice {
    Notice { path: format!("{path}/{}", text_of(inside)), reason, detail: None }
}

/// The notices, and one for each file that came and holds what is shaped like a credential. Reads that content. Blocks.
fn shaped(
    pieces: &[Work],
    paths: &[Vec<(usize, TreePath)>],
    mut notices: Vec<Notice>,
) -> Result<Vec<Notice>, ApiError> {
    for (piece, mounts) in pieces.iter().zip(paths) {
        let (Some(below), Some(to), Some((_, mount))) = (&piece.below, piece.made.last(), mounts.first()) else {
            continue;
        };
        below.look(&piece.store, piece.base.as_ref(), to)?;
        let root = mount.as_str().strip_suffix(mount.inner()).unwrap_or(mount.as_str()).trim_end_matches('/');
        notices.extend(entering::notices(below.shaped(), root));
    }
    Ok(notices)
}

fn what_it_did(ending: &Ending) -> String {
    match ending {
        Ending::Exited { code } => format!("the program exited with code {code}"),
        Ending::Signaled { signal } => format!("the program was ended by signal {signal}"),
        Ending::Timeout => "the program ran out of time".to_owned(),
        Ending::Oom => "the program ran out of memory".to_owned(),
        Ending::OutputLimit => "the program wrote more output than it may".to_owned(),
        Ending::Cancelled => "the run was cancelled".to_owned(),
        Ending::GuestLost => "the sandbox was lost".to_owned(),
        Ending::NodeRestarted => "the node restarted".to_owned(),
    }
}
