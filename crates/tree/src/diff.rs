//! What differs between two versions, as a list of paths and, for small text, as unified diffs.

mod myers;
mod unified;

use std::io::Read as _;

use bailey_protocol::api::{Diff, DiffChange, DiffEntry};
use bailey_protocol::id::VersionId;
use bailey_protocol::path;
use gix_hash::{Kind as HashKind, ObjectId};

use crate::blob::Blob;
use crate::error::TreeError;
use crate::merge::{beside, same};
use crate::name;
use crate::object::{Mode, TreeItem};
use crate::objects::Objects;
use crate::store::{Found, Store};
pub(crate) use myers::{Budget, Hunk};

/// Largest file, on either side, that is compared line by line.
pub(crate) const MAX_TEXT: u64 = 256 << 10;
/// Most changes in one answer.
const MAX_CHANGES: usize = 1000;
/// Most bytes of unified diffs in one answer; changes after that are listed without.
const MAX_UNIFIED: usize = 4 << 20;

impl Store {
    /// What differs at and below `inner`. Paths are relative to `inner`; a file there has its own name.
    ///
    /// # Errors
    /// When a version is not here, the path is in neither, or storage fails.
    pub fn diff(&self, from: Option<&VersionId>, to: &VersionId, inner: &str) -> Result<Diff, TreeError> {
        self.diff_of(from, to, inner, &mut |_| true)
    }

    /// As [`Store::diff`], of those paths below the folder at `inner` that `shows` says `true` of.
    ///
    /// # Errors
    /// As [`Store::diff`].
    pub fn diff_of(
        &self,
        from: Option<&VersionId>,
        to: &VersionId,
        inner: &str,
        shows: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Diff, TreeError> {
        let old = self.find(&self.root_of(from)?, inner)?;
        let new = self.find(&self.root_of(Some(to))?, inner)?;
        if old.is_none() && new.is_none() {
            return Err(TreeError::NotFound { path: inner.to_owned() });
        }
        let (old, new) = (item_of(old, inner), item_of(new, inner));
        let is_file = |item: &Option<TreeItem>| item.as_ref().is_some_and(|item| !item.mode.is_tree());
        let itself = is_file(&old) || is_file(&new);
        let mut all = |_: &[u8]| true;
        let mut work = Work {
            objects: self.objects(),
            changes: Vec::new(),
            unified: 0,
            budget: Budget::default(),
            truncated: false,
            shows: if itself { &mut all } else { shows },
        };
        match (&old, &new) {
            (Some(file), _) | (_, Some(file)) if !file.mode.is_tree() => {
                work.compare(old.as_ref(), new.as_ref(), &name::unescape(&file.filename))?;
            }
            _ => work.compare(old.as_ref(), new.as_ref(), b"")?,
        }
        Ok(Diff { from: from.cloned(), to: to.clone(), changes: work.changes, truncated: work.truncated })
    }
}

pub(crate) fn item_of(found: Option<Found>, inner: &str) -> Option<TreeItem> {
    found.map(|found| match found {
        Found::File(item) => item,
        Found::Folder(oid) => TreeItem { mode: Mode::Tree.into(), filename: inner.into(), oid },
    })
}

/// The text of a file that is known to be small; `None` when it is not text.
pub(crate) fn text_of(objects: &Objects, item: &TreeItem) -> Result<Option<String>, TreeError> {
    let mut bytes = Vec::new();
    let mut content = Blob::new(item.oid, false, objects.open_file(&item.oid)?);
    content.read_to_end(&mut bytes).map_err(TreeError::storage("reading", item.oid))?;
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}

/// Which lines of `older` became which of `newer`.
pub(crate) fn changed_lines(older: &str, newer: &str, budget: &mut Budget) -> Vec<Hunk> {
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    myers::hunks(&lines(older), &lines(newer), budget)
}

/// The real path of what is stored as `name` below `parent`.
fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let real = name::unescape(name);
    if parent.is_empty() { real.into_owned() } else { [parent, b"/", &real].concat() }
}

struct Work<'a> {
    objects: &'a Objects,
    changes: Vec<DiffEntry>,
    unified: usize,
    budget: Budget,
    truncated: bool,
    shows: &'a mut dyn FnMut(&[u8]) -> bool,
}

type Side<'t> = Option<&'t TreeItem>;

impl Work<'_> {
    fn compare(&mut self, old: Side<'_>, new: Side<'_>, at: &[u8]) -> Result<(), TreeError> {
        if same(old, new) || self.truncated {
            return Ok(());
        }
        let is_folder = |side: Side<'_>| side.is_some_and(|item| item.mode.is_tree());
        match (is_folder(old), is_folder(new)) {
            (false, false) => self.file(old, new, at),
            (true, false) if new.is_some() => {
                self.compare(old, None, at)?;
                self.compare(None, new, at)
            }
            (false, true) if old.is_some() => {
                self.compare(old, None, at)?;
                self.compare(None, new, at)
            }
            _ => self.folder(old, new, at),
        }
    }

    /// Both sides are folders or missing.
    fn folder(&mut self, old: Side<'_>, new: Side<'_>, at: &[u8]) -> Result<(), TreeError> {
        let empty = ObjectId::empty_tree(HashKind::Sha1);
        let tree = |side: Side<'_>| self.objects.known_tree(&side.map_or(empty, |item| item.oid));
        let (old_tree, new_tree) = (tree(old)?, tree(new)?);
        let rows = beside([&*old_tree, &*new_tree]);
        if rows.is_empty() && (at.is_empty() || (self.shows)(at)) {
            let change = if old.is_none() { DiffChange::Added } else { DiffChange::Deleted };
            let path = path::text_of(at).into_owned();
            self.push(DiffEntry { path, change, old_size: None, new_size: None, unified: None });
        }
        for (name, [old, new]) in rows {
            self.compare(old, new, &join(at, name))?;
        }
        Ok(())
    }

    fn file(&mut self, old: Side<'_>, new: Side<'_>, at: &[u8]) -> Result<(), TreeError> {
        if !(self.shows)(at) {
            return Ok(());
        }
        let shown = path::text_of(at);
        let shown = &*shown;
        let size = |side: Side<'_>| side.map(|item| self.objects.file_size(&item.oid)).transpose();
        let (old_size, new_size) = (size(old)?, size(new)?);
        let change = match (old, new) {
            (None, _) => DiffChange::Added,
            (_, None) => DiffChange::Deleted,
            _ => DiffChange::Modified,
        };
        let small = old_size.max(new_size).is_some_and(|size| size <= MAX_TEXT);
        let only_mode = old.map(|item| item.oid) == new.map(|item| item.oid);
        let mut unified = None;
        let room = self.unified < MAX_UNIFIED && self.changes.len() < MAX_CHANGES;
        if small
            && !only_mode
            && room
            && let (Some(before), Some(after)) = (self.text(old)?, self.text(new)?)
        {
            let names = (old.is_some().then_some(shown), new.is_some().then_some(shown));
            unified = Some(unified::render(names, &before, &after, &mut self.budget));
        }
        self.unified += unified.as_ref().map_or(0, String::len);
        self.push(DiffEntry { path: shown.to_owned(), change, old_size, new_size, unified });
        Ok(())
    }

    /// The text of a small file; empty when there is none, `None` when it is not text.
    fn text(&self, side: Side<'_>) -> Result<Option<String>, TreeError> {
        side.map_or(Ok(Some(String::new())), |item| text_of(self.objects, item))
    }

    fn push(&mut self, entry: DiffEntry) {
        if self.changes.len() < MAX_CHANGES {
            self.changes.push(entry);
        } else {
            self.truncated = true;
        }
    }
}
