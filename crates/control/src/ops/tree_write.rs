//! Changing a tree without a run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bailey_crash::Point;
use bailey_policy::{Action, Grant, PathReadPermit, PathWritePermit, ReadAction, WriteAction};
use bailey_protocol::api::{EntryKind, WriteAnswer};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use bailey_tree::{CommitMeta, Entry, Store, Upload};

use super::below::{Below, MAX_CHANGED};
use super::entering;
use super::labels::Carried;
use super::landing::{self, Landed, OnConflict, Work};
use super::tree_access::{self, Opened};
use super::unseen::Unseen;
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::pipe::PipeReader;
use crate::threads::{Threads, reading};
use crate::turns::Turn;

/// How long an upload waits for its turn.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(10);

/// What is asked about paths below one that is made of others.
pub(super) const LOOKED_AT: [Action; 4] = [Action::TreeRead, Action::TreeList, Action::TreeWrite, Action::TreeDelete];

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
    content: PipeReader,
) -> Result<Written, ApiError> {
    let allowed = Allowed::to(control.may_write(caller, WriteAction::Write, &ask.path, &ask.branch).await?);
    bailey_crash::point(Point::WriteAllowed);
    let (owner, user, permitted) = (control.clone(), caller.clone(), Arc::clone(&allowed.write));
    see_through(control, caller, allowed, async move {
        let max = owner.config().max_file_bytes;
        if length.is_some_and(|length| length > max) {
            let message = format!("the file has more than {max} bytes");
            return Err(ApiError::new(ErrorKind::TooLarge, "too_large", message, "Split it into smaller files."));
        }
        let turn = turn(&owner, &user).await?;
        let opened = tree_access::open_to_write(&owner, &permitted).await?;
        let below = Some(Below::new(&user, WriteAction::Write, vec![ask.path.clone()]));
        let change = Change::new(owner, &user, permitted, opened, ask, below, "Write");
        reading(change.threads(), content, move |mut content| {
            let _turn = turn;
            let Opened { store, path, version } = &change.opened;
            let before = change.check(store, version.as_ref())?;
            let executable = executable.unwrap_or(before.is_some_and(|entry| entry.kind == EntryKind::Executable));
            let (base, inner) = (version.as_ref(), path.inner());
            let upload = Upload { content: &mut content, length, max_bytes: max };
            let made = change.opened.named(store.write_upload(base, inner, upload, executable, &change.meta))?;
            change.puts_all(&made)?;
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
    let allowed = Allowed::to(control.may_write(caller, WriteAction::Delete, &ask.path, &ask.branch).await?);
    let (owner, user, permitted) = (control.clone(), caller.clone(), Arc::clone(&allowed.write));
    see_through(control, caller, allowed, async move {
        let turn = owner.asking_below(&user, &[Action::TreeDelete]).await?;
        let opened = tree_access::open_to_write(&owner, &permitted).await?;
        let below = Some(Below::new(&user, WriteAction::Delete, vec![ask.path.clone()]));
        let change = Change::new(owner.clone(), &user, permitted, opened, ask, below, "Delete");
        owner
            .changes()
            .make(&user.principal.tenant, move || {
                let _turn = turn;
                let Opened { store, path, version } = &change.opened;
                change.check(store, version.as_ref())?;
                let made = change.opened.named(store.delete(version.as_ref(), path.inner(), &change.meta))?;
                let made = made.ok_or_else(|| tree_access::nothing_there(path))?;
                change.land(made)
            })
            .await
    })
    .await
}

/// What was allowed for one change.
pub(super) struct Allowed {
    /// To write where it lands.
    pub(super) write: Arc<PathWritePermit>,
    /// To take away where it was.
    pub(super) delete: Option<Arc<PathWritePermit>>,
    /// To read what it is made of.
    pub(super) read: Vec<PathReadPermit>,
}

impl Allowed {
    pub(super) fn to(write: PathWritePermit) -> Self {
        Self { write: Arc::new(write), delete: None, read: Vec::new() }
    }

    pub(super) fn reading(write: PathWritePermit, read: PathReadPermit) -> Self {
        Self { read: vec![read], ..Self::to(write) }
    }

    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        let read = self.read.iter().map(PathReadPermit::grant);
        read.chain([self.write.grant()]).chain(self.delete.iter().map(|permit| permit.grant()))
    }
}

/// Does what was allowed in a task of its own, which a shutdown waits for, and puts it on the audit there: also when the
/// caller hangs up.
pub(super) async fn see_through<T: Send + 'static>(
    control: &Control,
    caller: &Caller,
    allowed: Allowed,
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let (owner, caller) = (control.clone(), caller.clone());
    let task = async move {
        let done = work.await;
        bailey_crash::point(Point::WriteLanded);
        let done = owner.audited(&caller, allowed.grants(), done).await;
        bailey_crash::point(Point::WriteAudited);
        done
    };
    control.own(task).await.map_err(ApiError::internal)?
}

/// Makes one version of what is at a path and lands it. CANCEL: as [`see_through`].
pub(super) async fn change(
    control: &Control,
    caller: &Caller,
    allowed: Allowed,
    ask: WriteAsk,
    below: Option<Below>,
    verb: &'static str,
    make: impl FnOnce(&Change) -> Result<VersionId, ApiError> + Send + 'static,
) -> Result<Written, ApiError> {
    let (owner, user, permitted) = (control.clone(), caller.clone(), Arc::clone(&allowed.write));
    see_through(control, caller, allowed, async move {
        // One path alone is no more than a question.
        let turn = if below.is_some() { owner.asking_below(&user, &LOOKED_AT).await? } else { None };
        let opened = tree_access::open_to_write(&owner, &permitted).await?;
        let change = Change::new(owner.clone(), &user, permitted, opened, ask, below, verb);
        owner
            .changes()
            .make(&user.principal.tenant, move || {
                let _turn = turn;
                change.check(&change.opened.store, change.opened.version.as_ref())?;
                let made = make(&change)?;
                change.land(made)
            })
            .await
    })
    .await
}

/// A turn among those whose content is being read.
pub(super) async fn turn(control: &Control, caller: &Caller) -> Result<Turn, ApiError> {
    let turn = control.uploads().take(&caller.principal.tenant, UPLOAD_PATIENCE).await;
    turn.ok_or_else(too_many_uploads)
}

/// One change under way.
pub(super) struct Change {
    control: Control,
    permit: Arc<PathWritePermit>,
    pub(super) opened: Opened,
    condition: Condition,
    below: Below,
    labels: Carried,
    pub(super) meta: CommitMeta,
}

impl Change {
    pub(super) fn new(
        control: Control,
        caller: &Caller,
        permit: Arc<PathWritePermit>,
        opened: Opened,
        ask: WriteAsk,
        below: Option<Below>,
        verb: &'static str,
    ) -> Self {
        let meta = CommitMeta {
            author: caller.principal.user.clone(),
            time_ms: control.now_ms(),
            // INVARIANT: no path, as a purge of one does not look into messages, and not all who see a message may see the path.
            message: verb.to_owned(),
            run: caller.principal.run.clone(),
        };
        // What enters is looked at also where no path below is asked about.
        let below = below.unwrap_or_else(|| Below::new(caller, WriteAction::Write, Vec::new()));
        Self { control, permit, opened, condition: ask.condition, below, labels: Carried::default(), meta }
    }

    /// For work on it that may block.
    pub(super) fn threads(&self) -> Threads {
        self.control.threads()
    }

    /// With labels that come along.
    pub(super) fn carrying(self, labels: Carried) -> Self {
        Self { labels, ..self }
    }

    /// What is at the path, if that is what the condition says.
    pub(super) fn check(&self, store: &Store, head: Option<&VersionId>) -> Result<Option<Entry>, ApiError> {
        let entry = store.entry(head, self.opened.path.inner())?;
        let holds = match &self.condition {
            Condition::None => true,
            Condition::Exists => entry.is_some(),
            Condition::Absent => entry.is_none(),
            Condition::Is(ids) => {
                // Whoever may not see what is there does not learn it by guessing its id either.
                let known = self.known(entry.as_ref())?.map(|entry| entry.id.as_str());
                let now = [known, head.map(VersionId::as_str)];
                ids.iter().any(|id| now.contains(&Some(id.as_str())))
            }
        };
        if holds {
            return Ok(entry);
        }
        let message = format!("`{}` is not what the condition says", self.opened.path);
        let hint = "Read it again, decide again, and send the `ETag` that it has now.";
        Err(ApiError::new(ErrorKind::Changed, "precondition_failed", message, hint))
    }

    /// The entry, if the caller may know its id: what is made of content that it may not read, it may not.
    fn known<'e>(&self, entry: Option<&'e Entry>) -> Result<Option<&'e Entry>, ApiError> {
        let (control, caller) = (&self.control, self.below.caller());
        let judge = control.wait(control.judge(caller))?;
        let (path, branch) = (&self.opened.path, self.permit.branch());
        let facts = control.path_facts(caller, path, Some(branch));
        let reads = judge.allows_read(ReadAction::Read, &facts, &Revision::Branch(branch.clone()));
        let hides = judge.decides_below(ReadAction::Read) || judge.decides_below(ReadAction::List);
        Ok(entry.filter(|entry| reads && (entry.kind != EntryKind::Directory || !hides)))
    }

    /// That a version of the store that was named by its id may be.
    pub(super) fn kept(&self, version: &VersionId) -> Result<(), ApiError> {
        tree_access::kept(&self.control, &self.opened.store, version)
    }

    /// Takes note of what is at the path and below it in `made`, where the caller may not read that on the branch.
    pub(super) fn puts_all(&self, made: &VersionId) -> Result<(), ApiError> {
        let Opened { store, path, .. } = &self.opened;
        let Some(unseen) = self.unseen()? else { return Ok(()) };
        let mut puts = BTreeSet::new();
        let at = path.inner_bytes();
        if unseen.hides(&at) {
            puts.insert(at.to_vec());
        }
        if store.entry(Some(made), path.inner())?.is_some_and(|entry| entry.kind == EntryKind::Directory) {
            store.each_path(Some(made), path.inner(), &mut |below| {
                let inner = if at.is_empty() { below.to_vec() } else { [&*at, below].join(&b'/') };
                if unseen.hides(&inner) {
                    puts.insert(inner);
                }
                puts.len() <= MAX_CHANGED
            })?;
        }
        self.below.puts().tell(puts);
        Ok(())
    }

    /// Takes note of what an archive puts.
    pub(super) fn puts(&self, paths: BTreeSet<Vec<u8>>) {
        self.below.puts().tell(paths);
    }

    /// What of the branch the caller may not read.
    pub(super) fn unseen(&self) -> Result<Option<Unseen<'_>>, ApiError> {
        Unseen::of(&self.control, self.below.caller(), self.opened.store.id(), self.permit.branch())
    }

    /// Lands `made` on the branch.
    pub(super) fn land(&self, made: VersionId) -> Result<Written, ApiError> {
        self.land_with(made, None)
    }

    /// Lands `made` on the branch, together with a version of another store.
    pub(super) fn land_with(&self, mut made: VersionId, other: Option<Work>) -> Result<Written, ApiError> {
        let Opened { store, version, .. } = &self.opened;
        if version.as_ref() == Some(&made) {
            if !self.below.puts().is_empty() {
                // Who may not read what is there does not learn that it is what was put.
                made = store.same_again(&made, &self.meta)?;
            } else if other.is_none() {
                // Nothing changed, and nothing moves.
                return self.written(self.permit.branch().clone(), made);
            }
        }
        let (base, below, meta) = (version.clone(), Some(self.below.clone()), self.meta.clone());
        let permit = Arc::clone(&self.permit);
        let labels = self.labels.clone();
        let work = Work { permit, store: store.clone(), base, made: vec![made], below, labels, meta };
        let works: Vec<Work> = [Some(work), other].into_iter().flatten().collect();
        let check = |landing: &Store, head: Option<&VersionId>| {
            if landing.id() == store.id() { self.check(landing, head).map(drop) } else { Ok(()) }
        };
        let commit = |_: &[Landed], moves| self.control.wait(self.control.db().move_refs(moves));
        let landed = landing::land(&self.control, self.below.caller(), &works, OnConflict::Refuse, &check, &commit)?;
        let landed = landed.into_iter().next().ok_or_else(|| ApiError::internal("nothing landed"))?;
        self.written(landed.branch, landed.version)
    }

    fn written(&self, branch: BranchName, version: VersionId) -> Result<Written, ApiError> {
        let Opened { store, path, .. } = &self.opened;
        let entry = store.entry(Some(&version), path.inner())?;
        let entry = self.known(entry.as_ref())?.map(|entry| entry.id.clone());
        let warnings = entering::warnings(self.below.shaped());
        Ok(Written { answer: WriteAnswer { path: path.clone(), branch, version, warnings }, entry })
    }
}

fn too_many_uploads() -> ApiError {
    let message = "too many files are being written at once";
    ApiError::new(ErrorKind::Exhausted, "too_many_uploads", message, "Try again after the time in `Retry-After`.")
}
