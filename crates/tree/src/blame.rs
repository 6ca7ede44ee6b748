//! Which version each line of a text comes from.

use bailey_protocol::api::{Blame, BlameSpan, VersionInfo};
use bailey_protocol::id::VersionId;
use gix_hash::ObjectId;

use crate::commit::Commit;
use crate::diff::{self, Budget, Hunk};
use crate::error::TreeError;
use crate::history::describe;
use crate::object::{TreeItem, object_id, version_id};
use crate::store::{Found, Store};

/// Largest file that is blamed.
const MAX_TEXT: u64 = diff::MAX_TEXT;
/// Most lines of it.
const MAX_LINES: usize = 50_000;
/// Most versions that one call looks at, and most of them in which the file is another.
const MAX_SCAN: usize = 20_000;
const MAX_TEXTS: usize = 2_000;

impl Store {
    /// Says of each line of the text at `inner` which version, along the parents that the text came through, put it
    /// there. Lines whose origin is further back than one call looks have none. Names are not followed: a moved file
    /// begins where it was moved.
    ///
    /// # Errors
    /// When no file is there, it is no text or too large, a version is not here, or storage fails.
    pub fn blame(&self, version: &VersionId, inner: &str) -> Result<Blame, TreeError> {
        let mut at = object_id(version.as_str());
        let mut commit = self.commit_of(version)?;
        let mut item = match self.find(&commit.tree, inner)? {
            None => return Err(TreeError::NotFound { path: inner.to_owned() }),
            Some(Found::Folder(_)) => return Err(TreeError::IsADirectory { path: inner.to_owned() }),
            Some(Found::File(item)) => item,
        };
        if self.objects().file_size(&item.oid)? > MAX_TEXT {
            return Err(TreeError::TooLarge { what: "the text", limit: MAX_TEXT });
        }
        let no_text = TreeError::InvalidPath { path: inner.to_owned(), rule: "it is no text" };
        let mut text = diff::text_of(self.objects(), &item)?.ok_or(no_text)?;
        let lines = text.split_inclusive('\n').count();
        if lines > MAX_LINES {
            return Err(TreeError::TooMany { what: "the lines of the text", limit: MAX_LINES as u64 });
        }
        let mut work = Work::new(lines);
        let mut budget = Budget::default();
        let mut texts = 0;
        for _ in 0..MAX_SCAN {
            if work.open.is_empty() || texts > MAX_TEXTS || budget.spent() {
                break;
            }
            let Some((parent, before)) = self.came_from(&commit, inner, &item)? else {
                work.settle_all(&at, &commit);
                break;
            };
            if before.oid != item.oid {
                texts += 1;
                let Some(older) = self.older_text(&before)? else {
                    work.settle_all(&at, &commit);
                    break;
                };
                work.pass(&diff::changed_lines(&older, &text, &mut budget), &at, &commit);
                text = older;
            }
            (at, item) = (parent, before);
            commit = self.commit_of(&version_id(&at))?;
        }
        let blame = work.done(version, inner);
        let versions = blame.versions.into_iter().map(|version| self.told(version)).collect();
        Ok(Blame { versions, ..blame })
    }

    /// The parent that the file at `inner` came through, and the file there: one that has the same, or else the first
    /// that has any.
    fn came_from(
        &self,
        commit: &Commit,
        inner: &str,
        item: &TreeItem,
    ) -> Result<Option<(ObjectId, TreeItem)>, TreeError> {
        let mut other = None;
        for parent in &commit.parents {
            let root = self.commit_of(&version_id(parent))?.tree;
            match self.find(&root, inner)? {
                Some(Found::File(before)) if before.oid == item.oid => return Ok(Some((*parent, before))),
                Some(Found::File(before)) if other.is_none() => other = Some((*parent, before)),
                Some(Found::File(_) | Found::Folder(_)) | None => {}
            }
        }
        Ok(other)
    }

    fn older_text(&self, item: &TreeItem) -> Result<Option<String>, TreeError> {
        if self.objects().file_size(&item.oid)? > MAX_TEXT { Ok(None) } else { diff::text_of(self.objects(), item) }
    }
}

/// Lines that have no origin yet, by their number in the text of the version at hand, and those that have.
struct Work {
    /// Number at hand and number in the newest text; in order of both.
    open: Vec<(usize, usize)>,
    /// By the number in the newest text: which of `versions`.
    origins: Vec<Option<usize>>,
    versions: Vec<VersionInfo>,
}

impl Work {
    fn new(lines: usize) -> Self {
        let open = (0..lines).map(|line| (line, line)).collect();
        Self { open, origins: vec![None; lines], versions: Vec::new() }
    }

    /// Goes to the older text of a version, whose `hunks` lead from it to the newer one.
    fn pass(&mut self, hunks: &[Hunk], at: &ObjectId, commit: &Commit) {
        let mut hunks = hunks.iter().peekable();
        let mut shift = 0_isize;
        let mut made = Vec::new();
        let mut open = Vec::with_capacity(self.open.len());
        for (line, newest) in std::mem::take(&mut self.open) {
            while let Some((old, new)) = hunks.next_if(|(_, new)| new.end <= line) {
                shift += old.len().cast_signed() - new.len().cast_signed();
            }
            match hunks.peek() {
                Some((_, new)) if new.contains(&line) => made.push(newest),
                _ => open.push((line.saturating_add_signed(shift), newest)),
            }
        }
        self.open = open;
        self.settle(made, at, commit);
    }

    /// All that is open comes from this version.
    fn settle_all(&mut self, at: &ObjectId, commit: &Commit) {
        let open = std::mem::take(&mut self.open);
        self.settle(open.into_iter().map(|(_, newest)| newest).collect(), at, commit);
    }

    fn settle(&mut self, lines: Vec<usize>, at: &ObjectId, commit: &Commit) {
        if lines.is_empty() {
            return;
        }
        let number = self.versions.len();
        self.versions.push(describe(at, commit));
        for line in lines {
            if let Some(origin) = self.origins.get_mut(line) {
                *origin = Some(number);
            }
        }
    }

    fn done(self, version: &VersionId, inner: &str) -> Blame {
        let lines = self.origins.len() as u64;
        let mut spans: Vec<BlameSpan> = Vec::new();
        for (number, origin) in (1..).zip(self.origins) {
            let origin = origin.and_then(|at| self.versions.get(at)).map(|info| info.version.clone());
            match spans.last_mut() {
                Some(last) if last.version == origin => last.lines += 1,
                _ => spans.push(BlameSpan { first: number, lines: 1, version: origin }),
            }
        }
        Blame { path: inner.to_owned(), version: version.clone(), lines, spans, versions: self.versions }
    }
}
