//! That a push is whole: from its tips everything is there, fits the tree, and nothing came that no tip needs.

use std::collections::{HashMap, HashSet, VecDeque};

use bailey_protocol::path::{RepoId, text_of};
use gix_hash::ObjectId;

use super::{Fresh, shape};
use crate::error::TreeError;
use crate::extent::{MAX_CONTENT, MAX_ENTRIES};
use crate::name;
use crate::object::{Kind, TreeItem};
use crate::objects::Objects;
use crate::store::Room;

/// Folders that are looked at, each counted once for every length of the path to it.
const MAX_FOLDERS: usize = 5_000_000;
/// Deeper folders are not measured. None that fits is as deep.
const MAX_DEPTH: usize = 1000;

/// Most versions that are gone through to find out which of them needs what came. Those that no branch leads to come
/// first, and are few.
const MAX_KNOWN: usize = 500;

pub(super) struct Closure<'a> {
    known: &'a Objects,
    fresh: &'a mut Fresh,
    room: Room,
    /// New objects that something refers to.
    reached: HashSet<ObjectId>,
    /// Folders that fit: at that depth, below a path of that length.
    fitting: HashSet<(ObjectId, usize, usize)>,
    names: usize,
    path: Vec<u8>,
    /// What new folders hold on all their levels.
    measured: HashMap<ObjectId, Held>,
}

/// Entries and bytes at all paths below a folder, where the same object may be many times.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    entries: u64,
    bytes: u64,
}

impl<'a> Closure<'a> {
    pub(super) fn new(known: &'a Objects, fresh: &'a mut Fresh, repo: &RepoId) -> Self {
        let (reached, fitting) = (HashSet::new(), HashSet::new());
        let (room, measured) = (Room::below(repo, ""), HashMap::new());
        Self { known, fresh, room, reached, fitting, names: 0, path: Vec::new(), measured }
    }

    pub(super) fn run(&mut self, tips: &[bailey_protocol::id::VersionId]) -> Result<(), TreeError> {
        let mut next: Vec<ObjectId> = tips.iter().map(|tip| crate::object::object_id(tip.as_str())).collect();
        let mut roots = Vec::new();
        while let Some(id) = next.pop() {
            let Some(bytes) = self.fresh.read(&id, Kind::Commit)? else {
                self.known_commit(&id)?;
                continue;
            };
            if !self.reached.insert(id) {
                continue;
            }
            let links = shape::commit(&id, &bytes)?;
            // What is as it was in the first parent was looked at there.
            let before = links.parents.first().map(|parent| self.tree_of(parent)).transpose()?;
            self.folder(&links.tree, before.as_ref())?;
            roots.push(links.tree);
            next.extend(links.parents);
        }
        self.through_known(tips, &mut roots)?;
        roots.iter().try_for_each(|root| self.bound(root))?;
        if self.is_whole() {
            Ok(())
        } else {
            Err(TreeError::refused("the pack", "it brings objects that no branch needs"))
        }
    }

    fn is_whole(&self) -> bool {
        self.reached.len() == self.fresh.places.len()
    }

    /// Goes on to what versions need that were here before. Of what a refused push left, garbage collection condemns a part
    /// while it leaves a version alone that needs it: the part comes anew, and the version does not.
    fn through_known(
        &mut self,
        tips: &[bailey_protocol::id::VersionId],
        roots: &mut Vec<ObjectId>,
    ) -> Result<(), TreeError> {
        let mut next: VecDeque<ObjectId> = tips.iter().map(|tip| crate::object::object_id(tip.as_str())).collect();
        let mut seen = HashSet::new();
        while let Some(id) = next.pop_front().filter(|_| !self.is_whole() && seen.len() < MAX_KNOWN) {
            if !seen.insert(id) {
                continue;
            }
            let (tree, parents) = match self.fresh.read(&id, Kind::Commit)? {
                Some(bytes) => {
                    self.reached.insert(id);
                    let links = shape::commit(&id, &bytes)?;
                    (links.tree, links.parents)
                }
                None => {
                    let known = self.known.commit(&id)?.ok_or_else(|| missing("commit", &id))?;
                    (known.tree, known.parents.clone())
                }
            };
            let before = parents.first().map(|parent| self.tree_of(parent)).transpose()?;
            self.folder(&tree, before.as_ref())?;
            roots.push(tree);
            next.extend(parents);
        }
        Ok(())
    }

    /// That a version's files are not more than a tree may have: some folders within each other, each of them there many
    /// times, are a few bytes to push and no disk could hold them.
    fn bound(&mut self, root: &ObjectId) -> Result<(), TreeError> {
        let held = self.measure(root, 0)?;
        if held.entries > MAX_ENTRIES {
            return Err(TreeError::TooMany { what: "entries of the pushed tree", limit: MAX_ENTRIES });
        }
        if held.bytes > MAX_CONTENT {
            return Err(TreeError::TooLarge { what: "the pushed tree with all its files", limit: MAX_CONTENT });
        }
        Ok(())
    }

    /// Bytes are those that the push itself puts somewhere: of folders that were here before, only entries are counted.
    fn measure(&mut self, folder: &ObjectId, depth: usize) -> Result<Held, TreeError> {
        if let Some(held) = self.measured.get(folder) {
            return Ok(*held);
        }
        if depth > MAX_DEPTH {
            return Err(TreeError::refused("the push", "its folders are nested too deep"));
        }
        let Some(bytes) = self.fresh.read(folder, Kind::Tree)? else {
            return Ok(Held { entries: self.known.extent(folder)?.entries, bytes: 0 });
        };
        let mut held = Held::default();
        for item in shape::tree(folder, &bytes)? {
            let below = if item.mode.is_tree() {
                self.measure(&item.oid, depth + 1)?
            } else {
                let fresh = self.fresh.places.get(&item.oid).map(|place| place.size);
                Held { entries: 0, bytes: fresh.map_or_else(|| self.known.file_size(&item.oid), Ok)? }
            };
            held.entries = held.entries.saturating_add(1).saturating_add(below.entries);
            held.bytes = held.bytes.saturating_add(below.bytes);
        }
        self.measured.insert(*folder, held);
        Ok(held)
    }

    fn known_commit(&self, id: &ObjectId) -> Result<(), TreeError> {
        match self.known.commit(id)? {
            Some(_) => Ok(()),
            None => Err(missing("commit", id)),
        }
    }

    /// The root of a commit, new or known.
    fn tree_of(&mut self, id: &ObjectId) -> Result<ObjectId, TreeError> {
        if let Some(bytes) = self.fresh.read(id, Kind::Commit)? {
            return Ok(shape::commit(id, &bytes)?.tree);
        }
        Ok(self.known.commit(id)?.ok_or_else(|| missing("commit", id))?.tree)
    }

    /// Looks at a folder and all below it that is not the same at the same place in `before`.
    fn folder(&mut self, id: &ObjectId, before: Option<&ObjectId>) -> Result<(), TreeError> {
        if before == Some(id) || !self.fitting.insert((*id, self.names, self.path.len())) {
            return Ok(());
        }
        if self.fitting.len() > MAX_FOLDERS {
            return Err(TreeError::refused("the push", "it changes too many folders at once"));
        }
        let (items, is_fresh) = self.items(id)?;
        let before = match before {
            Some(before) => self.items(before)?.0,
            None => Vec::new(),
        };
        let parent = self.path.len();
        for item in &items {
            if same(&before, item).is_some_and(|old| old.oid == item.oid && old.mode == item.mode) {
                continue;
            }
            self.enter(&item.filename, is_fresh)?;
            if is_fresh && !item.mode.is_blob() && name::is_gits_file(&item.filename) {
                let path = text_of(&self.path).into_owned();
                return Err(TreeError::refused(path, name::ONLY_A_FILE));
            }
            if item.mode.is_tree() {
                let old = same(&before, item).filter(|old| old.mode.is_tree()).map(|old| old.oid);
                self.folder(&item.oid, old.as_ref())?;
            } else if is_fresh {
                self.file(&item.oid)?;
            }
            self.path.truncate(parent);
            self.names -= 1;
        }
        Ok(())
    }

    /// Goes to an entry, whose path must be one that a tree can hold.
    fn enter(&mut self, stored: &[u8], is_fresh: bool) -> Result<(), TreeError> {
        let real = name::unescape(stored);
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&real);
        self.names += 1;
        let refused = |path: &[u8], rule: &'static str| {
            TreeError::refused(text_of(path).chars().take(300).collect::<String>(), rule)
        };
        if is_fresh {
            shape::name(stored).map_err(|rule| refused(&self.path, rule))?;
        }
        match self.room.refuses(&self.path) {
            None => Ok(()),
            Some(bailey_protocol::change::NoticeReason::Reserved) => {
                Err(refused(&self.path, "`users` at the root of a tenant names its users' own trees"))
            }
            Some(_) => Err(refused(&self.path, "its path has more than 4096 bytes or 256 names")),
        }
    }

    /// The entries of a folder, and whether it came with the pack.
    fn items(&mut self, id: &ObjectId) -> Result<(Vec<TreeItem>, bool), TreeError> {
        if let Some(bytes) = self.fresh.read(id, Kind::Tree)? {
            self.reached.insert(*id);
            return Ok((shape::tree(id, &bytes)?, true));
        }
        match self.known.tree(id)? {
            Some(tree) => Ok((tree.entries.clone(), false)),
            None => Err(missing("folder", id)),
        }
    }

    /// That a file is there, and is one.
    fn file(&mut self, id: &ObjectId) -> Result<(), TreeError> {
        let kind = match self.fresh.kind(id) {
            Some(kind) => {
                self.reached.insert(*id);
                Some(kind)
            }
            None => self.known.kind(id)?,
        };
        if kind == Some(Kind::Blob) { Ok(()) } else { Err(missing("file", id)) }
    }
}

/// The entry of the same stored name and sort of thing.
fn same<'i>(items: &'i [TreeItem], wanted: &TreeItem) -> Option<&'i TreeItem> {
    let at = items.binary_search_by(|item| item.cmp(wanted)).ok()?;
    items.get(at).filter(|item| item.filename == wanted.filename)
}

fn missing(what: &str, id: &ObjectId) -> TreeError {
    TreeError::refused(format!("{what} {id}"), "it is neither in the push nor in this tree")
}
