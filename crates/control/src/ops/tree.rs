//! Reading a tree without a run. Changing it: [`write`].

use bailey_policy::{Denied, PathReadPermit, ReadAction};
use bailey_protocol::api::{Blame, Diff, EntryKind, History, TreeListing};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{Revision, TreePath};
use bailey_tree::{Blob, Page};

use super::readable::Readable;
use super::told_history::Told;
use super::tree_access::{self, Opened};
pub use super::tree_write::{Condition, WriteAsk, Written, delete, write};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::pace::Pace;

/// Versions of one page, when the caller does not say.
const DEFAULT_PAGE: u32 = 50;
/// Most versions of one page.
const MAX_PAGE: u32 = 500;
/// Entries of one page of a listing, when the caller does not say, and the most.
const DEFAULT_ENTRIES: u32 = 1000;
const MAX_ENTRIES: u32 = 10_000;

/// What to read.
#[derive(Debug, Clone)]
pub struct ReadAsk {
    /// Where.
    pub path: TreePath,
    /// When.
    pub revision: Revision,
}

/// What is at a path.
#[derive(Debug)]
pub enum Found {
    /// A file or a link.
    File(FileFound),
    /// A folder.
    Folder(TreeListing),
}

/// A file or a link.
#[derive(Debug)]
pub struct FileFound {
    /// Its bytes; of a link, the target.
    pub content: Blob,
    /// Equal content, equal id.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// Which kind.
    pub kind: FileKind,
    /// The version that was read.
    pub version: VersionId,
}

/// Kinds of entries that have content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    Plain,
    /// A file that may be executed.
    Executable,
    /// A link.
    Symlink,
}

/// How to list a folder.
#[derive(Debug, Clone, Default)]
pub struct ListAsk {
    /// All below it, not only what is in it.
    pub recursive: bool,
    /// Only what fits.
    pub glob: Option<String>,
    /// Most entries of a page.
    pub limit: Option<u32>,
    /// The `next` of the page before.
    pub after: Option<String>,
}

/// Reads a file, or lists a folder (which takes the right to list as well): a page of what policy lets be read.
///
/// # Errors
/// When it is denied or not there.
pub async fn read(control: &Control, caller: &Caller, ask: ReadAsk, list: ListAsk) -> Result<Found, ApiError> {
    let permit = control.may_read(caller, ReadAction::Read, &ask.path, &ask.revision).await?;
    let globs = bailey_tree::Globs::new(list.glob.as_slice())?;
    let limit = list.limit.unwrap_or(DEFAULT_ENTRIES).clamp(1, MAX_ENTRIES);
    let list = bailey_tree::ListAsk {
        recursive: list.recursive,
        globs,
        limit: usize::try_from(limit).map_err(ApiError::internal)?,
        after: list.after,
    };
    let readable = Readable::new(control, caller, ReadAction::Read, &ask.path, &ask.revision).await?;
    let result = async {
        let opened = tree_access::open(control, &permit).await?;
        let asks = readable.decides() && tree_access::is_folder(control, &opened).await?;
        control.asking_many(caller, asks, move |pace| find(&opened, &list, readable, pace)).await
    };
    let found = control.audited(caller, [permit.grant()], result.await).await?;
    if let Found::Folder(_) = &found {
        let permit = control.may_read(caller, ReadAction::List, &ask.path, &ask.revision).await?;
        control.audit(caller, [permit.grant()], "ok").await?;
    }
    Ok(found)
}

/// Waits until policy no longer lets the caller read the file that it is sent. The denial is on the audit.
pub async fn until_unreadable(control: Control, caller: Caller, ask: ReadAsk) -> Denied {
    let again = || async { Ok(control.ask_to_read(&caller, ReadAction::Read, &ask.path, &ask.revision).await?.err()) };
    let denied =
        control.live_guard(Some(&caller.principal.tenant)).until_refused(caller.principal.tenant.as_str(), again).await;
    control.record_denial(&caller, &denied).await;
    denied
}

/// The versions that changed a path, newest first: those in which the caller may see something that changed there, with the
/// messages of those in which nothing that changed is hidden from them.
///
/// # Errors
/// When it is denied, or the branch or version does not exist, or the path was in none.
pub async fn history(
    control: &Control,
    caller: &Caller,
    ask: ReadAsk,
    limit: Option<u32>,
    after: Option<VersionId>,
) -> Result<History, ApiError> {
    let permit = control.may_read(caller, ReadAction::History, &ask.path, &ask.revision).await?;
    let limit = usize::try_from(limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE)).map_err(ApiError::internal)?;
    let mut told = Told::new(control, caller, &ask.path, &ask.revision).await?;
    let result = async {
        let Opened { store, path, version } = tree_access::open(control, &permit).await?;
        // What was never there is told from a store that has no version yet, and not from what may not be seen.
        let none = |path: &TreePath| {
            if path.inner().is_empty() {
                Ok(History { versions: Vec::new(), next: None })
            } else {
                Err(tree_access::nothing_there(path))
            }
        };
        let Some(head) = version else { return none(&path) };
        let (owner, asks) = (control.clone(), told.decides());
        let work = move |pace: &Pace| {
            if let Some(after) = &after {
                tree_access::kept(&owner, &store, after)?;
                // What another branch leads to was not decided on.
                if store.unreachable(std::slice::from_ref(&head), std::slice::from_ref(after))?.is_some() {
                    return Err(tree_access::no_such_version(after));
                }
            }
            let (versions, next) = store.history(&head, path.inner(), limit, after.as_ref())?;
            let versions = told.tell(pace, &store, path.inner(), versions)?;
            if versions.is_empty() && next.is_none() && after.is_none() {
                return none(&path);
            }
            Ok(History { versions, next })
        };
        control.asking_many(caller, asks, work).await
    };
    control.audited(caller, [permit.grant()], result.await).await
}

/// What changed at and below a path between two revisions: from the version before `ask`'s, when `from` is not said.
///
/// # Errors
/// When either side is denied or does not exist.
pub async fn diff(control: &Control, caller: &Caller, from: Option<Revision>, ask: ReadAsk) -> Result<Diff, ApiError> {
    // Each side is what it is on its own branch, and is content that is shown.
    let (mut permits, mut sides) = (Vec::new(), Vec::new());
    for action in [ReadAction::Diff, ReadAction::Read] {
        for revision in std::iter::once(&ask.revision).chain(&from) {
            let permit = control.may_read(caller, action, &ask.path, revision).await;
            let allowed = permits.iter().map(PathReadPermit::grant);
            let permit = control.failure_audited(caller, allowed, permit).await?;
            permits.push(permit);
            sides.push(Readable::new(control, caller, action, &ask.path, revision).await?);
        }
    }
    let result = async {
        let (to, before) = (permits.first(), permits.get(1).filter(|_| from.is_some()));
        let to = to.ok_or_else(|| ApiError::internal("a comparison that nobody allowed"))?;
        let opened = tree_access::open(control, to).await?;
        let Some(to) = opened.version.clone() else {
            return Err(ApiError::not_found("the tree has no version yet", "Write a file first."));
        };
        let from = match before {
            Some(permit) => Some(tree_access::open(control, permit).await?.version),
            None => None,
        };
        let asks = sides.iter().any(Readable::decides);
        let work = move |pace: &Pace| {
            let Opened { store, path, .. } = &opened;
            let from = match from {
                Some(asked) => asked,
                // The first in the history of the whole store is the version itself.
                None => store.history(&to, "", 1, None)?.0.pop().and_then(|info| info.parents.into_iter().next()),
            };
            let mut shows = |below: &[u8]| sides.iter_mut().all(|side| side.shows(pace, below));
            opened.named(store.diff_of(from.as_ref(), &to, path.inner(), &mut shows))
        };
        control.asking_many(caller, asks, work).await
    };
    control.audited(caller, permits.iter().map(PathReadPermit::grant), result.await).await
}

fn find(opened: &Opened, list: &bailey_tree::ListAsk, mut readable: Readable, pace: &Pace) -> Result<Found, ApiError> {
    let (store, inner) = (&opened.store, opened.path.inner());
    let missing = || tree_access::nothing_there(&opened.path);
    let Some(version) = &opened.version else {
        // A tree without a version is an empty folder.
        return if inner.is_empty() {
            Ok(Found::Folder(folder(opened, Page { entries: Vec::new(), next: None })))
        } else {
            Err(missing())
        };
    };
    let entry = store.entry(Some(version), inner)?.ok_or_else(missing)?;
    let kind = match entry.kind {
        EntryKind::Directory => {
            let page = store.list_page(Some(version), inner, list, &mut |below| readable.shows(pace, below));
            let mut page = opened.named(page)?;
            if readable.decides() {
                // A folder's id is made of all that is in it, hidden or not.
                let folders = page.entries.iter_mut().filter(|entry| entry.kind == EntryKind::Directory);
                folders.for_each(|entry| entry.id = None);
            }
            return Ok(Found::Folder(folder(opened, page)));
        }
        EntryKind::File => FileKind::Plain,
        EntryKind::Executable => FileKind::Executable,
        EntryKind::Symlink => FileKind::Symlink,
    };
    let content = opened.named(store.read(version, inner))?;
    Ok(Found::File(FileFound { id: content.id(), size: content.len(), kind, version: version.clone(), content }))
}

fn folder(opened: &Opened, page: Page) -> TreeListing {
    let Page { entries, next } = page;
    TreeListing { path: opened.path.clone(), version: opened.version.clone(), entries, next }
}

/// Which version each line of a text comes from. Messages are told as in [`history`].
///
/// # Errors
/// When it is denied, not there, or no text.
pub async fn blame(control: &Control, caller: &Caller, ask: ReadAsk) -> Result<Blame, ApiError> {
    let permit = control.may_read(caller, ReadAction::History, &ask.path, &ask.revision).await?;
    let read = control.may_read(caller, ReadAction::Read, &ask.path, &ask.revision).await;
    let read = control.failure_audited(caller, [permit.grant()], read).await?;
    let mut told = Told::new(control, caller, &ask.path, &ask.revision).await?;
    let result = async {
        let opened = tree_access::open(control, &permit).await?;
        let Some(version) = opened.version.clone() else {
            return Err(ApiError::not_found("the tree has no version yet", "Write a file first."));
        };
        let asks = told.decides();
        let work = move |pace: &Pace| {
            let blame = opened.named(opened.store.blame(&version, opened.path.inner()))?;
            Ok(Blame { versions: told.messages(pace, &opened.store, blame.versions)?, ..blame })
        };
        control.asking_many(caller, asks, work).await
    };
    control.audited(caller, [permit.grant(), read.grant()], result.await).await
}
