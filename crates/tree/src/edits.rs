//! A set of changes to a tree, collected first and applied at once: memory grows with the changes, not the tree.

use std::collections::BTreeMap;

use gix_hash::ObjectId;

use crate::error::TreeError;
use crate::name;
use crate::object::{Mode, TreeItem};
use crate::path;
use crate::staging::Staging;

/// Most memory that the names of one set of changes may take.
pub(crate) const MAX_EDIT_BYTES: usize = 256 << 20;
/// What one change costs beside its name.
const EDIT_OVERHEAD: usize = 96;

/// Changes below one folder, by stored name.
#[derive(Debug, Default)]
struct Folder {
    /// What the folder held before is dropped.
    fresh: bool,
    /// The folder itself was asked for, so that it exists even when empty.
    made: bool,
    children: BTreeMap<Vec<u8>, Edit>,
}

#[derive(Debug)]
enum Edit {
    Remove,
    Put(Mode, ObjectId),
    Folder(Folder),
}

/// Changes below one root.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    root: Folder,
    bytes: usize,
}

/// Something was put below a path that is a file by then.
#[derive(Debug)]
pub(crate) enum EditFault {
    BelowAFile,
    TooMany,
}

impl Edits {
    /// Puts a file or link, in place of whatever was there.
    pub(crate) fn put(&mut self, names: &[&[u8]], mode: Mode, id: ObjectId) -> Result<(), EditFault> {
        self.at(names, |children, name| {
            children.insert(name, Edit::Put(mode, id));
        })
    }

    /// Removes whatever is there.
    pub(crate) fn remove(&mut self, names: &[&[u8]]) -> Result<(), EditFault> {
        self.at(names, |children, name| {
            children.insert(name, Edit::Remove);
        })
    }

    /// Makes a folder, or keeps the one that is there.
    pub(crate) fn make_folder(&mut self, names: &[&[u8]]) -> Result<(), EditFault> {
        self.at(names, |children, name| match children.get_mut(&name) {
            Some(Edit::Folder(folder)) => folder.made = true,
            earlier => {
                let fresh = earlier.is_some();
                children.insert(name, Edit::Folder(Folder { fresh, made: true, children: BTreeMap::new() }));
            }
        })
    }

    fn at(
        &mut self,
        names: &[&[u8]],
        change: impl FnOnce(&mut BTreeMap<Vec<u8>, Edit>, Vec<u8>),
    ) -> Result<(), EditFault> {
        let Some((last, parents)) = names.split_last() else {
            self.root.made = true;
            return Ok(());
        };
        let mut folder = &mut self.root;
        for parent in parents {
            let stored = name::escape(parent).into_owned();
            self.bytes += cost(&folder.children, &stored);
            let child = folder.children.entry(stored).or_insert_with(|| Edit::Folder(Folder::default()));
            if matches!(child, Edit::Remove) {
                *child = Edit::Folder(Folder { fresh: true, ..Folder::default() });
            }
            folder = match child {
                Edit::Folder(folder) => folder,
                Edit::Put(..) | Edit::Remove => return Err(EditFault::BelowAFile),
            };
        }
        let stored = name::escape(last).into_owned();
        self.bytes += cost(&folder.children, &stored);
        change(&mut folder.children, stored);
        if self.bytes > MAX_EDIT_BYTES { Err(EditFault::TooMany) } else { Ok(()) }
    }

    /// The tree that results from `base`, written to `staging`.
    pub(crate) fn apply(self, staging: &mut Staging<'_>, base: &ObjectId) -> Result<ObjectId, TreeError> {
        Ok(self.root.apply(staging, Some(*base), "")?.unwrap_or(*base))
    }
}

fn cost(children: &BTreeMap<Vec<u8>, Edit>, stored: &Vec<u8>) -> usize {
    if children.contains_key(stored) { 0 } else { stored.len() + EDIT_OVERHEAD }
}

impl Folder {
    /// The resulting tree; `None` when there is and was no such folder.
    fn apply(
        self,
        staging: &mut Staging<'_>,
        base: Option<ObjectId>,
        shown: &str,
    ) -> Result<Option<ObjectId>, TreeError> {
        let base = base.filter(|_| !self.fresh);
        let old = base.map(|id| staging.objects().known_tree(&id)).transpose()?;
        let mut children = self.children;
        let mut items = Vec::new();
        for item in old.iter().flat_map(|tree| &tree.entries) {
            let kept = match children.remove(item.filename.as_slice()) {
                None => Some(item.clone()),
                Some(edit) => edit.apply(staging, Some(item), item.filename.as_slice(), shown)?,
            };
            items.extend(kept);
        }
        for (name, edit) in children {
            items.extend(edit.apply(staging, None, &name, shown)?);
        }
        if items.is_empty() && base.is_none() && !self.made {
            return Ok(None);
        }
        staging.add_tree(items).map(Some)
    }
}

impl Edit {
    fn apply(
        self,
        staging: &mut Staging<'_>,
        base: Option<&TreeItem>,
        stored: &[u8],
        parent: &str,
    ) -> Result<Option<TreeItem>, TreeError> {
        let item = |mode: Mode, oid| TreeItem { mode: mode.into(), filename: stored.into(), oid };
        match self {
            Self::Remove => Ok(None),
            Self::Put(mode, id) => Ok(Some(item(mode, id))),
            Self::Folder(folder) => {
                let shown = path::join_display(parent, stored);
                let old = base.filter(|base| base.mode.is_tree()).map(|base| base.oid);
                if base.is_some() && old.is_none() && !folder.fresh && !folder.made {
                    return Err(TreeError::NotADirectory { path: shown });
                }
                Ok(folder.apply(staging, old, &shown)?.map(|id| item(Mode::Tree, id)))
            }
        }
    }
}
