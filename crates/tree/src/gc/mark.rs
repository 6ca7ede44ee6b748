//! Which objects something leads to.

use std::collections::HashSet;

use gix_hash::ObjectId;

use crate::error::TreeError;
use crate::object::{Kind, Mode, decode_tree};
use crate::objects::{Lookup, Objects, Position};

/// One bit per object of a [`Lookup`].
#[derive(Debug)]
pub(super) struct Marks {
    bits: Vec<Vec<u64>>,
    count: u64,
    /// Objects that were written meanwhile.
    young: HashSet<ObjectId>,
}

impl Marks {
    /// Marks everything that `roots` lead to. All of it has to be there; commits and folders are read and verified.
    pub(super) fn of(objects: &Objects, packs: &Lookup, roots: &[ObjectId]) -> Result<Self, TreeError> {
        let bits = packs.sources().into_iter().map(|length| vec![0; length.div_ceil(64)]).collect();
        let mut marks = Self { bits, count: 0, young: HashSet::new() };
        let mut todo: Vec<(Kind, ObjectId)> = roots.iter().map(|root| (Kind::Commit, *root)).collect();
        while let Some((kind, id)) = todo.pop() {
            if !marks.visit(objects, packs, kind, &id)? {
                continue;
            }
            match kind {
                Kind::Commit => {
                    let commit = objects.peek_commit(&id)?.ok_or_else(|| missing(&id, "a version"))?;
                    todo.extend(commit.parents.iter().map(|parent| (Kind::Commit, *parent)));
                    todo.push((Kind::Tree, commit.tree));
                }
                Kind::Tree if id.is_empty_tree() => {}
                Kind::Tree => {
                    let bytes = objects.peek(&id, Kind::Tree)?.ok_or_else(|| missing(&id, "a folder"))?;
                    let below = decode_tree(&id, &bytes)?;
                    todo.extend(below.entries.iter().map(|item| match item.mode.kind() {
                        Mode::Tree => (Kind::Tree, item.oid),
                        _ => (Kind::Blob, item.oid),
                    }));
                }
                Kind::Blob | Kind::Tag => {}
            }
        }
        Ok(marks)
    }

    /// Marks one object; `false` when it was marked before.
    fn visit(&mut self, objects: &Objects, packs: &Lookup, kind: Kind, id: &ObjectId) -> Result<bool, TreeError> {
        if let Some((position, _)) = packs.position(id)? {
            let bit = 1 << (position.index % 64);
            let word = self.bits.get_mut(position.source).and_then(|bits| bits.get_mut(position.index / 64));
            let word = word.ok_or_else(|| missing(id, "an object"))?;
            let new = *word & bit == 0;
            *word |= bit;
            self.count += u64::from(new);
            return Ok(new);
        }
        // Git has the empty folder everywhere.
        if !id.is_empty_tree() && kind == Kind::Blob && !objects.exists(id)? {
            return Err(missing(id, "a file"));
        }
        Ok(self.young.insert(*id))
    }

    /// Whether the object at `position` is marked.
    pub(super) fn at(&self, position: Position) -> bool {
        let word = self.bits.get(position.source).and_then(|bits| bits.get(position.index / 64));
        word.is_none_or(|word| word & (1 << (position.index % 64)) != 0)
    }

    /// Whether an object of `packs` is marked.
    pub(super) fn has(&self, packs: &Lookup, id: &ObjectId) -> Result<bool, TreeError> {
        Ok(packs.position(id)?.is_none_or(|(position, _)| self.at(position)))
    }

    pub(super) fn count(&self) -> u64 {
        self.count + self.young.len() as u64
    }
}

fn missing(id: &ObjectId, what: &str) -> TreeError {
    TreeError::corrupt(id, format!("{what} is missing from the store; nothing is removed"))
}
