//! Reading a tree without a run. Changing it: [`write`].

use bailey_policy::{PathReadPermit, ReadAction};
use bailey_protocol::api::{Diff, EntryKind, History, TreeListing};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{Revision, TreePath};
use bailey_tree::Blob;

use super::decide::blocking;
use super::tree_access::{self, Opened};
pub use super::tree_write::{Condition, WriteAsk, Written, delete, write};
use crate::api_error::ApiError;
use crate::control::{Caller, Control};

/// Versions of one page, when the caller does not say.
const DEFAULT_PAGE: u32 = 50;
/// Most versions of one page.
const MAX_PAGE: u32 = 500;

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

/// Reads a file, or lists a folder (which takes the right to list as well).
///
/// # Errors
/// When it is denied or not there.
pub async fn read(control: &Control, caller: &Caller, ask: ReadAsk) -> Result<Found, ApiError> {
    let asked = control.policies().read_path(&caller.principal, ReadAction::Read, &ask.path, &ask.revision);
    let permit = control.permit(caller, asked).await?;
    let result = async {
        let opened = tree_access::open(control, &permit).await?;
        blocking(move || find(&opened)).await
    };
    let found = control.audited(caller, [permit.grant()], result.await).await?;
    if let Found::Folder(_) = &found {
        let asked = control.policies().read_path(&caller.principal, ReadAction::List, &ask.path, &ask.revision);
        let permit = control.permit(caller, asked).await?;
        control.audit(caller, [permit.grant()], "ok").await?;
    }
    Ok(found)
}

/// The versions that changed a path, newest first.
///
/// # Errors
/// When it is denied, or the branch or version does not exist.
pub async fn history(
    control: &Control,
    caller: &Caller,
    ask: ReadAsk,
    limit: Option<u32>,
    after: Option<VersionId>,
) -> Result<History, ApiError> {
    let asked = control.policies().read_path(&caller.principal, ReadAction::History, &ask.path, &ask.revision);
    let permit = control.permit(caller, asked).await?;
    let limit = usize::try_from(limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE)).map_err(ApiError::internal)?;
    let result = async {
        let Opened { store, path, version } = tree_access::open(control, &permit).await?;
        let Some(head) = version else { return Ok(History { versions: Vec::new(), next: None }) };
        blocking(move || {
            let (versions, next) = store.history(&head, path.inner(), limit, after.as_ref())?;
            Ok(History { versions, next })
        })
        .await
    };
    control.audited(caller, [permit.grant()], result.await).await
}

/// What changed at and below a path between two revisions: from the version before `ask`'s, when `from` is not said.
///
/// # Errors
/// When either side is denied or does not exist.
pub async fn diff(control: &Control, caller: &Caller, from: Option<Revision>, ask: ReadAsk) -> Result<Diff, ApiError> {
    let decide =
        |revision: &Revision| control.policies().read_path(&caller.principal, ReadAction::Diff, &ask.path, revision);
    let to_permit = control.permit(caller, decide(&ask.revision)).await?;
    let from_permit = match &from {
        Some(from) => Some(control.permit(caller, decide(from)).await?),
        None => None,
    };
    let result = async {
        let Opened { store, path, version } = tree_access::open(control, &to_permit).await?;
        let Some(to) = version else {
            return Err(ApiError::not_found("the tree has no version yet", "Write a file first."));
        };
        let from = match &from_permit {
            Some(permit) => Some(tree_access::open(control, permit).await?.version),
            None => None,
        };
        blocking(move || {
            let from = match from {
                Some(asked) => asked,
                // The first in the history of the whole store is the version itself.
                None => store.history(&to, "", 1, None)?.0.pop().and_then(|info| info.parents.into_iter().next()),
            };
            Ok(store.diff(from.as_ref(), &to, path.inner())?)
        })
        .await
    };
    let grants = from_permit.iter().map(PathReadPermit::grant).chain([to_permit.grant()]);
    control.audited(caller, grants, result.await).await
}

fn find(opened: &Opened) -> Result<Found, ApiError> {
    let (store, inner) = (&opened.store, opened.path.inner());
    let missing = || {
        let message = format!("`{}` does not exist", opened.path);
        ApiError::not_found(message, "List the folder above to see what there is.")
    };
    let Some(version) = &opened.version else {
        // A tree without a version is an empty folder.
        return if inner.is_empty() { Ok(Found::Folder(folder(opened, Vec::new()))) } else { Err(missing()) };
    };
    let entry = store.entry(Some(version), inner)?.ok_or_else(missing)?;
    let kind = match entry.kind {
        EntryKind::Directory => {
            return Ok(Found::Folder(folder(opened, store.list(Some(version), inner)?)));
        }
        EntryKind::File => FileKind::Plain,
        EntryKind::Executable => FileKind::Executable,
        EntryKind::Symlink => FileKind::Symlink,
    };
    let content = store.read(version, inner)?;
    Ok(Found::File(FileFound { id: content.id(), size: content.len(), kind, version: version.clone(), content }))
}

fn folder(opened: &Opened, entries: Vec<bailey_protocol::api::TreeEntry>) -> TreeListing {
    TreeListing { path: opened.path.clone(), version: opened.version.clone(), entries }
}
