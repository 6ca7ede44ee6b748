//! Where the content of some paths of a version turns up in another: git knows no renames, so that what is moved comes as
//! a path that goes and another that has the same.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use bailey_protocol::id::VersionId;
use gix_hash::{Kind as HashKind, ObjectId};

use crate::changed_paths::take;
use crate::error::TreeError;
use crate::store::{Found, Store};

/// Most steps of one search: entries looked at, marks given and marks found.
const MAX_STEPS: u64 = 4_000_000;

/// Takes a path and the marks of its content.
pub type MarkVisitor<'a> = dyn FnMut(&[u8], &BTreeSet<usize>) -> ControlFlow<()> + 'a;

/// Content that is looked for, each with the marks of those who look for it, and how far the search may go on. A search
/// that met its bound ends at once without an error: whoever asks looks at [`Contents::is_cut_short`].
#[derive(Debug)]
pub struct Contents {
    marks: HashMap<ObjectId, BTreeSet<usize>>,
    steps_left: u64,
}

impl Default for Contents {
    fn default() -> Self {
        Self { marks: HashMap::new(), steps_left: MAX_STEPS }
    }
}

impl Contents {
    /// Whether there was too much to look at, so that not all was found.
    pub fn is_cut_short(&self) -> bool {
        self.steps_left == 0
    }

    /// How many steps it took so far.
    pub fn steps(&self) -> u64 {
        MAX_STEPS - self.steps_left
    }

    fn step(&mut self, steps: usize) -> bool {
        take(Cell::from_mut(&mut self.steps_left), steps)
    }

    /// Whether that was not looked for as `mark` before.
    fn add(&mut self, id: ObjectId, mark: usize) -> bool {
        // Nothing is in an empty file or folder that could be told by it.
        let is_empty = id.is_empty_tree() || id == ObjectId::empty_blob(HashKind::Sha1);
        self.step(1) && !is_empty && self.marks.entry(id).or_default().insert(mark) && self.step(1)
    }
}

impl Store {
    /// Has whatever `version` holds at and below `inner`, if anything, looked for as `mark`: its files, its links and whole
    /// folders. A folder that is looked for so already is not gone into again.
    ///
    /// # Errors
    /// When the version is not here, or storage fails.
    pub fn look_for(
        &self,
        contents: &mut Contents,
        version: &VersionId,
        inner: &str,
        mark: usize,
    ) -> Result<(), TreeError> {
        if !contents.step(inner.split('/').count()) {
            return Ok(());
        }
        let mut folders = match self.find(&self.root_of(Some(version))?, inner)? {
            None => Vec::new(),
            Some(Found::File(item)) => {
                contents.add(item.oid, mark);
                Vec::new()
            }
            Some(Found::Folder(id)) => Vec::from_iter(contents.add(id, mark).then_some(id)),
        };
        while let Some(folder) = folders.pop().filter(|_| !contents.is_cut_short()) {
            for item in &self.objects().known_tree(&folder)?.entries {
                if contents.add(item.oid, mark) && item.mode.is_tree() {
                    folders.push(item.oid);
                }
            }
        }
        Ok(())
    }

    /// Shows `visit` each path of `to` that is new or another in `from` and has one of `contents`, with its marks: from the
    /// store's root, in its real bytes, each folder before what is in it. Where `visit` breaks, the search is cut short.
    ///
    /// # Errors
    /// When a version is not here, or storage fails.
    pub fn turned_up(
        &self,
        contents: &mut Contents,
        from: Option<&VersionId>,
        to: &VersionId,
        visit: &mut MarkVisitor<'_>,
    ) -> Result<(), TreeError> {
        if contents.marks.is_empty() || !contents.step(1) {
            return Ok(());
        }
        let Contents { marks, steps_left } = contents;
        let steps_left = Cell::from_mut(steps_left);
        self.changed_items(from, to, "", steps_left, &mut |path, now| {
            let Some(marks) = now.and_then(|item| marks.get(&item.oid)) else {
                return ControlFlow::Continue(());
            };
            if !take(steps_left, marks.len()) || visit(path, marks).is_break() {
                steps_left.set(0);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })
    }
}
