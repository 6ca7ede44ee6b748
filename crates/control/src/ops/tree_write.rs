//! Changing a tree without a run.

use std::sync::Arc;
use std::time::Duration;

use bailey_policy::{PathWritePermit, WriteAction};
use bailey_protocol::api::{EntryKind, WriteAnswer};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, TreePath};
use bailey_tree::{CommitMeta, Entry, Store};
use tokio::runtime::Handle;

use super::below::Below;
use super::decide::blocking;
use super::landing::{self, Landed, OnConflict, Work};
use super::tree_access::{self, Opened};
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::pipe::PipeReader;

/// How long an upload waits for its turn.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(10);

/// What to change.
#[derive(Debug, Clone)]
pub struct WriteAsk {
    /// Where.
    pub path: TreePath,
    /// On which branch.
    pub branch: BranchName,
    /// Only if.
    pub condition: Condition,
}

/// What a change is based on. An id is an entry's (its `ETag`), or the version of the branch's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// Something is there.
    Exists,
    /// Nothing is there.
    Absent,
    /// One of these is there.
    Is(Vec<String>),
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// For the caller.
    pub answer: WriteAnswer,
    /// The id of what is there now, if anything.
    pub entry: Option<String>,
}

/// Writes a whole file.
///
/// CANCEL: what was permitted goes on, and onto the audit: it ends with the content, whole or broken off.
///
/// # Errors
/// When it is denied, too large, or not what the condition says.
pub async fn write(
    control: &Control,
    caller: &Caller,
    ask: WriteAsk,
    executable: Option<bool>,
    length: Option<u64>,
    mut content: PipeReader,
) -> Result<Written, ApiError> {
    let asked = control.policies().write_path(&caller.principal, WriteAction::Write, &ask.path, &ask.branch);
    let permit = Arc::new(control.permit(caller, asked).await?);
    let (owner, user, permitted) = (control.clone(), caller.clone(), Arc::clone(&permit));
    see_through(control, caller, permit, async move {
        let max = owner.config().max_file_bytes;
        if length.is_some_and(|length| length > max) {
            let message = format!("the file has more than {max} bytes");
            return Err(ApiError::new(ErrorKind::TooLarge, "too_large", message, "Split it into smaller files."));
        }
        let turn = tokio::time::timeout(UPLOAD_PATIENCE, Arc::clone(owner.uploads()).acquire_owned()).await;
        let turn = turn.map_err(|_elapsed| too_many_uploads())?.map_err(ApiError::internal)?;
        let opened = tree_access::open_to_write(&owner, &permitted).await?;
        let change = Change::new(owner, &user, permitted, opened, ask, None, "Write");
        blocking(move || {
            let _turn = turn;
            let Opened { store, path, version } = &change.opened;
            let before = change.check(store, version.as_ref())?;
            let executable = executable.unwrap_or(before.is_some_and(|entry| entry.kind == EntryKind::Executable));
            let (base, inner) = (version.as_ref(), path.inner());
            let made = store.write_file(base, inner, &mut content, max, executable, &change.meta)?;
            change.land(made)
        })
        .await
    })
    .await
}

/// Deletes a file, a link, or a folder with all below it.
///
/// CANCEL: what was permitted goes on, and onto the audit.
///
/// # Errors
/// When it is denied, not there, or not what the condition says.
pub async fn delete(control: &Control, caller: &Caller, ask: WriteAsk) -> Result<Written, ApiError> {
    let asked = control.policies().write_path(&caller.principal, WriteAction::Delete, &ask.path, &ask.branch);
    let permit = Arc::new(control.permit(caller, asked).await?);
    let (owner, user, permitted) = (control.clone(), caller.clone(), Arc::clone(&permit));
    see_through(control, caller, permit, async move {
        let opened = tree_access::open_to_write(&owner, &permitted).await?;
        let below = Below::new(&owner, &user, WriteAction::Delete, vec![ask.path.clone()]);
        let change = Change::new(owner, &user, permitted, opened, ask, below, "Delete");
        blocking(move || {
            let Opened { store, path, version } = &change.opened;
            change.check(store, version.as_ref())?;
            let made = store.delete(version.as_ref(), path.inner(), &change.meta)?;
            let made = made.ok_or_else(|| {
                let message = format!("`{path}` does not exist");
                ApiError::not_found(message, "List the folder above to see what there is.")
            })?;
            change.land(made)
        })
        .await
    })
    .await
}

/// Does what `permit` allows in a task of its own, which a shutdown waits for, and puts it on the audit there: also when
/// the caller hangs up.
async fn see_through(
    control: &Control,
    caller: &Caller,
    permit: Arc<PathWritePermit>,
    work: impl Future<Output = Result<Written, ApiError>> + Send + 'static,
) -> Result<Written, ApiError> {
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move { owner.audited(&caller, [permit.grant()], work.await).await };
    control.own(task).await.map_err(ApiError::internal)?
}

/// One change under way.
struct Change {
    control: Control,
    permit: Arc<PathWritePermit>,
    opened: Opened,
    condition: Condition,
    below: Option<Below>,
    meta: CommitMeta,
}

impl Change {
    fn new(
        control: Control,
        caller: &Caller,
        permit: Arc<PathWritePermit>,
        opened: Opened,
        ask: WriteAsk,
        below: Option<Below>,
        verb: &str,
    ) -> Self {
        let meta = CommitMeta {
            author: caller.principal.user.clone(),
            time_ms: control.now_ms(),
            message: format!("{verb} {}", ask.path),
            run: caller.principal.run.clone(),
        };
        Self { control, permit, opened, condition: ask.condition, below, meta }
    }

    /// What is at the path, if that is what the condition says.
    fn check(&self, store: &Store, head: Option<&VersionId>) -> Result<Option<Entry>, ApiError> {
        let entry = store.entry(head, self.opened.path.inner())?;
        let holds = match &self.condition {
            Condition::None => true,
            Condition::Exists => entry.is_some(),
            Condition::Absent => entry.is_none(),
            Condition::Is(ids) => {
                let now = [entry.as_ref().map(|entry| entry.id.as_str()), head.map(VersionId::as_str)];
                ids.iter().any(|id| now.contains(&Some(id.as_str())))
            }
        };
        if holds {
            return Ok(entry);
        }
        let message = format!("`{}` is not what the condition says", self.opened.path);
        let hint = "Read it again, decide again, and send the new `ETag`.";
        Err(ApiError::new(ErrorKind::Changed, "precondition_failed", message, hint))
    }

    fn land(&self, made: VersionId) -> Result<Written, ApiError> {
        let Opened { store, path, version } = &self.opened;
        let (base, below, meta) = (version.clone(), self.below.clone(), self.meta.clone());
        let permit = Arc::clone(&self.permit);
        let work = [Work { permit, store: store.clone(), base, made: vec![made], below, meta }];
        let check = |store: &Store, head: Option<&VersionId>| self.check(store, head).map(drop);
        let commit = |_: &[Landed], moves| Handle::current().block_on(self.control.db().move_refs(moves));
        let landed = landing::land(&self.control, &work, OnConflict::Refuse, &check, &commit)?;
        let landed = landed.into_iter().next().ok_or_else(|| ApiError::internal("nothing landed"))?;
        let entry = store.entry(Some(&landed.version), path.inner())?.map(|entry| entry.id);
        let answer = WriteAnswer { path: path.clone(), branch: landed.branch, version: landed.version };
        Ok(Written { answer, entry })
    }
}

fn too_many_uploads() -> ApiError {
    let message = "too many files are being written at once";
    ApiError::new(ErrorKind::Exhausted, "too_many_uploads", message, "Try again after the time in `Retry-After`.")
}
