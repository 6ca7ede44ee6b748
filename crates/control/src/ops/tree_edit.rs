//! Changing parts of a file, making folders, bringing back what was, taking in archives.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bailey_policy::{ReadAction, WriteAction};
use bailey_protocol::api::{ExtractAnswer, Notice, TreeEdit, TreePatch};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{RepoId, Revision, text_of};
use bailey_tree::archive::{ExtractLimits, Format};
use bailey_tree::{Merge, Patch};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::below::{Below, MAX_CHANGED};
use super::readable::Readable;
use super::tree_access::{self, Opened};
use super::tree_write::{Allowed, Change, WriteAsk, Written, change, see_through, turn};
use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control};
use crate::pipe::PipeReader;
use crate::threads::reading;

/// Most members of an archive.
pub(super) const MAX_MEMBERS: u64 = 1_000_000;
/// Most paths in conflict that one answer names.
const MAX_CONFLICTS: usize = 20;

/// Changes parts of a file. It takes the right to read as well, since an edit tells whether a text is there.
///
/// # Errors
/// When it is denied, an edit does not fit, or the file is not what the condition says.
pub async fn patch(control: &Control, caller: &Caller, ask: WriteAsk, patch: TreePatch) -> Result<Written, ApiError> {
    let revision = Revision::Branch(ask.branch.clone());
    let allowed = may_write_and_read(control, caller, &ask, &revision).await?;
    let patches = (1..).zip(patch.edits).map(|(number, edit)| parse(number, edit)).collect::<Result<Vec<_>, _>>();
    let patches = control.failure_audited(caller, allowed.grants(), patches).await?;
    let max = control.config().max_file_bytes;
    change(control, caller, allowed, ask, None, "Edit", move |change| {
        let Opened { store, path, version } = &change.opened;
        let base = version.as_ref().ok_or_else(|| tree_access::nothing_there(path))?;
        change.opened.named(store.patch_file(base, path.inner(), &patches, patch.executable, max, &change.meta))
    })
    .await
}

/// The rights to write at a path and to read there what was or is. Where reading is denied, that writing was allowed is
/// on the audit.
async fn may_write_and_read(
    control: &Control,
    caller: &Caller,
    ask: &WriteAsk,
    revision: &Revision,
) -> Result<Allowed, ApiError> {
    let write = control.may_write(caller, WriteAction::Write, &ask.path, &ask.branch).await?;
    let read = control.may_read(caller, ReadAction::Read, &ask.path, revision).await;
    let read = control.failure_audited(caller, [write.grant()], read).await?;
    Ok(Allowed::reading(write, read))
}

/// What an edit asks for.
pub(crate) fn parse(number: usize, edit: TreeEdit) -> Result<Patch, ApiError> {
    let bad = |rule: &str| {
        let hint = "Send `old`, `old_base64` or `start` (with `length`), and `new` or `new_base64`.";
        ApiError::invalid("invalid_edit", format!("edit {number}: {rule}"), hint)
    };
    let bytes = |text: Option<String>, base64: Option<String>| match (text, base64) {
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => STANDARD.decode(base64).map(Some).map_err(|error| bad("bad base64").because(error)),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(bad("a text and its base64 exclude each other")),
    };
    let new = bytes(edit.new, edit.new_base64)?.ok_or_else(|| bad("`new` is missing"))?;
    match (bytes(edit.old, edit.old_base64)?, edit.start, edit.length) {
        (Some(old), None, None) => Ok(Patch::Text { old, new }),
        (None, Some(start), length) => {
            let end = start.checked_add(length.unwrap_or(0)).ok_or_else(|| bad("the range has no end"))?;
            Ok(Patch::Range { range: Range { start, end }, new })
        }
        (Some(_), _, _) => Err(bad("`old` and a range exclude each other")),
        (None, None, _) => Err(bad("`old` is missing")),
    }
}

/// Makes a folder, and those on the way. One that is there stays.
///
/// # Errors
/// When it is denied, something else is there, or not what the condition says.
pub async fn make_folder(control: &Control, caller: &Caller, ask: WriteAsk) -> Result<Written, ApiError> {
    let write = control.may_write(caller, WriteAction::Write, &ask.path, &ask.branch).await?;
    change(control, caller, Allowed::to(write), ask, None, "Make a folder", |change| {
        let Opened { store, path, version } = &change.opened;
        change.opened.named(store.make_folder(version.as_ref(), path.inner(), &change.meta))
    })
    .await
}

/// Makes a path what it was in a version.
///
/// # Errors
/// When reading what was or changing what is is denied, at the path or below, nothing was there, or the path is not what
/// the condition says.
pub async fn restore(control: &Control, caller: &Caller, ask: WriteAsk, from: VersionId) -> Result<Written, ApiError> {
    let then = Revision::Version(from.clone());
    let allowed = may_write_and_read(control, caller, &ask, &then).await?;
    let readable = Readable::new(control, caller, ReadAction::Read, &ask.path, &then).await;
    let readable = control.failure_audited(caller, allowed.grants(), readable).await?;
    let below = Below::writes_and_deletes(caller, vec![ask.path.clone()]);
    change(control, caller, allowed, ask, Some(below), "Restore", move |change| {
        let Opened { store, path, version } = &change.opened;
        change.kept(&from)?;
        readable.all(&readable.pace(), store, &from)?;
        let made = change.opened.named(store.restore(version.as_ref(), path.inner(), &from, &change.meta))?;
        change.puts_all(&made)?;
        Ok(made)
    })
    .await
}

/// Takes back what one version changed at and below a path. It takes the right to read what is there now as well, since it
/// tells whether that is still what the version made of it.
///
/// # Errors
/// When reading what was or is or changing it is denied, at the path or below, or what the version changed was changed
/// again since.
pub async fn revert(control: &Control, caller: &Caller, ask: WriteAsk, undone: VersionId) -> Result<Written, ApiError> {
    let then = Revision::Version(undone.clone());
    let mut allowed = may_write_and_read(control, caller, &ask, &then).await?;
    let now = Revision::Branch(ask.branch.clone());
    let read = control.may_read(caller, ReadAction::Read, &ask.path, &now).await;
    allowed.read.push(control.failure_audited(caller, allowed.grants(), read).await?);
    let readable = Readable::new(control, caller, ReadAction::Read, &ask.path, &then).await;
    let readable = control.failure_audited(caller, allowed.grants(), readable).await?;
    let readable_now = Readable::new(control, caller, ReadAction::Read, &ask.path, &now).await;
    let readable_now = control.failure_audited(caller, allowed.grants(), readable_now).await?;
    let below = Below::writes_and_deletes(caller, vec![ask.path.clone()]);
    change(control, caller, allowed, ask, Some(below), "Revert", move |change| {
        let Opened { store, path, version } = &change.opened;
        let head = version.as_ref().ok_or_else(|| tree_access::nothing_there(path))?;
        change.kept(&undone)?;
        let before = store.history(&undone, "", 1, None)?.0.pop().and_then(|info| info.parents.into_iter().next());
        let pace = readable.pace();
        readable.changed(&pace, store, before.as_ref(), &undone)?;
        readable_now.changed(&pace, store, before.as_ref(), &undone)?;
        match change.opened.named(store.revert(head, path.inner(), &undone, &change.meta))? {
            Merge::Merged(made) => Ok(made),
            Merge::Conflict(paths) => Err(conflict(store.id(), &paths)),
        }
    })
    .await
}

fn conflict(store: &RepoId, paths: &[String]) -> ApiError {
    let told: Vec<_> = paths.iter().take(MAX_CONFLICTS).map(|path| format!("`{}`", store.below(path))).collect();
    let more = paths.len().saturating_sub(MAX_CONFLICTS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!("changed again since: {}{more}", told.join(", "));
    ApiError::new(ErrorKind::Conflict, "revert_conflict", message, "Restore those paths one by one, or edit them.")
}

/// Takes an archive in below a folder, all of it or nothing.
///
/// CANCEL: what was permitted goes on, and onto the audit: it ends with the content, whole or broken off.
///
/// # Errors
/// When it is denied, the archive is refused or too large, something is in its way, or the folder is not what the
/// condition says.
pub async fn extract(
    control: &Control,
    caller: &Caller,
    ask: WriteAsk,
    format: Format,
    content: PipeReader,
) -> Result<(ExtractAnswer, Option<String>), ApiError> {
    let allowed = Allowed::to(control.may_write(caller, WriteAction::Write, &ask.path, &ask.branch).await?);
    let (owner, user, permitted) = (control.clone(), caller.clone(), Arc::clone(&allowed.write));
    see_through(control, caller, allowed, async move {
        let turn = turn(&owner, &user).await?;
        let max = owner.config().max_file_bytes;
        let limits = ExtractLimits { members: MAX_MEMBERS, file_bytes: max, bytes: owner.config().max_archive_bytes };
        let opened = tree_access::open_to_write(&owner, &permitted).await?;
        let below = Some(Below::new(&user, WriteAction::Write, vec![ask.path.clone()]));
        let change = Change::new(owner, &user, permitted, opened, ask, below, "Extract an archive");
        reading(change.threads(), content, move |mut content| {
            let _turn = turn;
            let Opened { store, path, version } = &change.opened;
            change.check(store, version.as_ref())?;
            let (base, inner) = (version.as_ref(), path.inner());
            let (unseen, mut puts) = (change.unseen()?, BTreeSet::new());
            let mut tell = |path: &[u8]| {
                if puts.len() <= MAX_CHANGED && unseen.as_ref().is_some_and(|unseen| unseen.hides(path)) {
                    puts.insert(path.to_vec());
                }
            };
            let meta = &change.meta;
            let done = store.extract_telling(base, inner, format, &mut content, &limits, meta, &mut tell);
            let done = change.opened.named(done)?;
            change.puts(puts);
            let made = done.version.ok_or_else(|| ApiError::internal("no version of an archive"))?;
            let Written { answer, entry } = change.land(made)?;
            let notice =
                |(path, reason): (Vec<u8>, _)| Notice { path: text_of(&path).into_owned(), reason, detail: None };
            let answer = ExtractAnswer {
                path: answer.path,
                branch: answer.branch,
                version: answer.version,
                members: done.members,
                bytes: done.bytes,
                notices: done.notices.into_iter().map(notice).collect(),
                more_notices: done.more_notices,
                warnings: answer.warnings,
            };
            Ok((answer, entry))
        })
        .await
    })
    .await
}
