//! A set of changes to a tree, collected first and applied at once: memory grows with the changes, not the tree.

use std::collections::BTreeMap;

use bailey_protocol::path::text_of;
use gix_hash::ObjectId;

use crate::error::TreeError;
use crate::name;
use crate::object::{self, Mode, TreeItem};
use crate::objects::Objects;
use crate::staging::Staging;

/// Most memory that the names of one set of changes may take.
pub(crate) const MAX_EDIT_BYTES: usize = 256 << 20;
/// What one change costs beside its name.
const EDIT_OVERHEAD: usize = 96;

/// Changes below one folder, by stored name.
#[derive(Debug, Default)]
struct Folder {
    /// What the folder holds beside the changes; `None` where it is new.
    base: Option<ObjectId>,
    /// The folder exists even when nothing is in it.
    made: bool,
    children: BTreeMap<Vec<u8>, Edit>,
}

#[derive(Debug)]
enum Edit {
    Remove,
    Put(Mode, ObjectId),
    Folder(Folder),
}

/// Changes below one root, each of which means what it would mean if those before it had been made.
#[derive(Debug)]
pub(crate) struct Edits<'a> {
    objects: &'a Objects,
    root: Folder,
    bytes: usize,
}

/// Why a change cannot be made.
#[derive(Debug)]
pub(crate) enum EditFault {
    /// Something on the way is a file or link.
    BelowAFile,
    /// The changes take more memory than they may.
    TooMany,
    /// The tree could not be read.
    Tree(TreeError),
}

/// What is at a path once the changes so far are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Nothing,
    /// A folder, old or new.
    Folder,
    /// A file or link from before the changes.
    Old,
    /// A file or link that they put there.
    New(Mode, ObjectId),
    /// Something on the way is a file or link from before the changes.
    BelowOld,
    /// Something on the way is a file or link that they put there.
    BelowNew,
}

/// A step of [`Edits::standing`].
enum At<'e> {
    /// With what changes in it, and what it was before.
    Folder(Option<&'e Folder>, Option<ObjectId>),
    Nothing,
    Old,
    New(Mode, ObjectId),
}

impl<'a> Edits<'a> {
    /// What is at a path by now.
    pub(crate) fn standing(&self, names: &[&[u8]]) -> Result<Standing, EditFault> {
        let mut at = At::Folder(Some(&self.root), self.root.base);
        for name in names {
            at = match at {
                At::Folder(edits, base) => self.below(edits, base, &name::escape(name))?,
                At::Nothing => return Ok(Standing::Nothing),
                At::Old => return Ok(Standing::BelowOld),
                At::New(..) => return Ok(Standing::BelowNew),
            };
        }
        Ok(match at {
            At::Folder(..) => Standing::Folder,
            At::Nothing => Standing::Nothing,
            At::Old => Standing::Old,
            At::New(mode, id) => Standing::New(mode, id),
        })
    }

    fn below<'e>(&self, edits: Option<&'e Folder>, base: Option<ObjectId>, stored: &[u8]) -> Result<At<'e>, EditFault> {
        match edits.and_then(|folder| folder.children.get(stored)) {
            Some(Edit::Remove) => return Ok(At::Nothing),
            Some(Edit::Put(mode, id)) => return Ok(At::New(*mode, *id)),
            Some(Edit::Folder(folder)) => return Ok(At::Folder(Some(folder), folder.base)),
            None => {}
        }
        let tree = base.map(|id| self.objects.known_tree(&id)).transpose().map_err(EditFault::Tree)?;
        Ok(match tree.as_ref().and_then(|tree| object::find(tree, stored)) {
            None => At::Nothing,
            Some(item) if item.mode.is_tree() => At::Folder(None, Some(item.oid)),
            Some(_) => At::Old,
        })
    }

    pub(crate) fn new(objects: &'a Objects, root: ObjectId) -> Self {
        Self { objects, root: Folder { base: Some(root), made: true, children: BTreeMap::new() }, bytes: 0 }
    }

    /// Puts a file or link, in place of whatever was there. Missing folders on the way are made.
    pub(crate) fn put(&mut self, names: &[&[u8]], mode: Mode, id: ObjectId) -> Result<(), EditFault> {
        check(names, matches!(mode, Mode::Blob | Mode::BlobExecutable))?;
        let Some((folder, name)) = self.parent(names, true)? else {
            return Ok(());
        };
        folder.children.insert(name, Edit::Put(mode, id));
        Ok(())
    }

    /// Removes whatever is there; nothing may be.
    pub(crate) fn remove(&mut self, names: &[&[u8]]) -> Result<(), EditFault> {
        match self.parent(names, false) {
            Ok(Some((folder, name))) => {
                folder.children.insert(name, Edit::Remove);
                Ok(())
            }
            Ok(None) | Err(EditFault::BelowAFile) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Makes a folder in place of a file, or keeps the one that is there. Missing folders on the way are made.
    pub(crate) fn make_folder(&mut self, names: &[&[u8]]) -> Result<(), EditFault> {
        check(names, false)?;
        let objects = self.objects;
        let Some((folder, name)) = self.parent(names, true)? else {
            return Ok(());
        };
        match folder.children.get_mut(&name) {
            Some(Edit::Folder(folder)) => folder.made = true,
            Some(other) => *other = Edit::Folder(Folder { made: true, ..Folder::default() }),
            None => {
                let base = folder.base_of(objects, &name)?.filter(|item| item.mode.is_tree()).map(|item| item.oid);
                folder.children.insert(name, Edit::Folder(Folder { base, made: true, ..Folder::default() }));
            }
        }
        Ok(())
    }

    /// The changes of the folder that holds the last of `names`, and that name as stored; `None` for the root itself.
    fn parent(&mut self, names: &[&[u8]], make: bool) -> Result<Option<(&mut Folder, Vec<u8>)>, EditFault> {
        let Some((last, parents)) = names.split_last() else {
            return Ok(None);
        };
        let mut folder = &mut self.root;
        for parent in parents {
            let stored = name::escape(parent).into_owned();
            self.bytes += cost(&folder.children, &stored);
            if !folder.children.contains_key(&stored) {
                let base = match folder.base_of(self.objects, &stored)? {
                    None => None,
                    Some(item) if item.mode.is_tree() => Some(item.oid),
                    Some(_) => return Err(EditFault::BelowAFile),
                };
                folder.children.insert(stored.clone(), Edit::Folder(Folder { base, ..Folder::default() }));
            }
            folder = match folder.children.get_mut(&stored) {
                Some(Edit::Folder(folder)) => folder,
                Some(removed @ Edit::Remove) if make => {
                    *removed = Edit::Folder(Folder::default());
                    match removed {
                        Edit::Folder(folder) => folder,
                        Edit::Remove | Edit::Put(..) => return Err(EditFault::BelowAFile),
                    }
                }
                Some(Edit::Remove | Edit::Put(..)) | None => return Err(EditFault::BelowAFile),
            };
            folder.made |= make;
        }
        let stored = name::escape(last).into_owned();
        self.bytes += cost(&folder.children, &stored);
        if self.bytes > MAX_EDIT_BYTES {
            return Err(EditFault::TooMany);
        }
        Ok(Some((folder, stored)))
    }

    /// The tree that results, written to `staging`.
    pub(crate) fn apply(self, staging: &mut Staging<'_>) -> Result<ObjectId, TreeError> {
        let empty = ObjectId::empty_tree(gix_hash::Kind::Sha1);
        Ok(self.root.apply(staging)?.unwrap_or(empty))
    }
}

/// That no folder or link gets a name that only a file can have.
fn check(names: &[&[u8]], is_file: bool) -> Result<(), EditFault> {
    if !name::misuses_gits_file(names.iter().copied(), is_file) {
        return Ok(());
    }
    let path = text_of(&names.join(&b'/')).into_owned();
    Err(EditFault::Tree(TreeError::InvalidPath { path, rule: name::ONLY_A_FILE }))
}

fn cost(children: &BTreeMap<Vec<u8>, Edit>, stored: &Vec<u8>) -> usize {
    if children.contains_key(stored) { 0 } else { stored.len() + EDIT_OVERHEAD }
}

impl Folder {
    /// What the folder held under that name before all changes.
    fn base_of(&self, objects: &Objects, stored: &[u8]) -> Result<Option<TreeItem>, EditFault> {
        let tree = self.base.map(|id| objects.known_tree(&id)).transpose().map_err(EditFault::Tree)?;
        Ok(tree.and_then(|tree| object::find(&tree, stored).cloned()))
    }

    /// The resulting tree; `None` when there is and was no such folder.
    fn apply(self, staging: &mut Staging<'_>) -> Result<Option<ObjectId>, TreeError> {
        let old = self.base.map(|id| staging.objects().known_tree(&id)).transpose()?;
        let mut children = self.children;
        let mut items = Vec::new();
        for item in old.iter().flat_map(|tree| &tree.entries) {
            match children.remove(item.filename.as_slice()) {
                None => items.push(item.clone()),
                Some(edit) => items.extend(edit.apply(staging, item.filename.as_slice())?),
            }
        }
        for (name, edit) in children {
            items.extend(edit.apply(staging, &name)?);
        }
        if items.is_empty() && self.base.is_none() && !self.made {
            return Ok(None);
        }
        staging.add_tree(items).map(Some)
    }
}

impl Edit {
    fn apply(self, staging: &mut Staging<'_>, stored: &[u8]) -> Result<Option<TreeItem>, TreeError> {
        let item = |mode: Mode, oid| TreeItem { mode: mode.into(), filename: stored.into(), oid };
        Ok(match self {
            Self::Remove => None,
            Self::Put(mode, id) => Some(item(mode, id)),
            Self::Folder(folder) => folder.apply(staging)?.map(|id| item(Mode::Tree, id)),
        })
    }
}
