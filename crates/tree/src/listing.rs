//! Listing a folder in pages, with all below it if asked: memory grows with the page, not with the tree.
//!
//! Entries come in git's order, each folder before what is in it, which is the order of the bytes of their stored paths
//! with a `/` behind folders. A page ends with such a path: the next one is found from the root by a search in each
//! folder on the way, also when the tree has changed meanwhile.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use bailey_protocol::api::TreeEntry;
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{MAX_PATH_BYTES, MAX_PATH_DEPTH, text_of};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use gix_hash::ObjectId;
use gix_object::tree::name_order;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::TreeError;
use crate::name;
use crate::object::{Tree, TreeItem};
use crate::objects::Objects;
use crate::store::{Found, Store, kind_of};

/// Most globs of one listing, and most bytes of one.
const MAX_GLOBS: usize = 16;
const MAX_GLOB_BYTES: usize = 256;
/// Most entries that one page looks at: a glob that fits little answers early, with a place to go on.
const MAX_SCAN: usize = 50_000;

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct ListAsk {
    /// All below the folder, not only what is in it.
    pub recursive: bool,
    /// Only what fits one of them; everything without any.
    pub globs: Globs,
    /// Most entries of the page; at least one is looked at.
    pub limit: usize,
    /// The `next` of the page before.
    pub after: Option<String>,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Names are paths below the folder. A page may be empty and not the last.
    pub entries: Vec<TreeEntry>,
    /// The `after` of the next page, if there may be more.
    pub next: Option<String>,
}

/// Patterns for paths: `*` and `?` stay within a name, `**` is any number of folders, `[a-z]`, `{a,b}`.
#[derive(Debug, Clone, Default)]
pub struct Globs(Option<GlobSet>);

impl Globs {
    /// Compiles patterns.
    ///
    /// # Errors
    /// When one makes no sense, or they are too many or too long.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self, TreeError> {
        if patterns.is_empty() {
            return Ok(Self(None));
        }
        if patterns.len() > MAX_GLOBS {
            return Err(TreeError::TooMany { what: "the globs", limit: MAX_GLOBS as u64 });
        }
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let bad = |rule: String| TreeError::InvalidGlob { glob: pattern.to_owned(), rule };
            if pattern.is_empty() || pattern.len() > MAX_GLOB_BYTES {
                return Err(bad(format!("use 1 to {MAX_GLOB_BYTES} bytes")));
            }
            let built = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
            set.add(built.map_err(|fault| bad(fault.kind().to_string()))?);
        }
        let built = set.build();
        let built =
            built.map_err(|fault| TreeError::InvalidGlob { glob: "…".to_owned(), rule: fault.to_string() })?;
        Ok(Self(Some(built)))
    }

    fn fit(&self, path: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|set| set.is_match(Path::new(OsStr::from_bytes(path))))
    }
}

impl Store {
    /// One page of the folder at `inner`. `shows` is asked about each path of it, below the folder and in its real bytes.
    ///
    /// # Errors
    /// When nothing or a file is there, `after` is no page's, there is no such version here, or storage fails.
    pub fn list_page(
        &self,
        version: Option<&VersionId>,
        inner: &str,
        ask: &ListAsk,
        shows: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Page, TreeError> {
        let folder = self.folder_at(version, inner)?;
        let after = ask.after.as_deref().map(decode_cursor).transpose()?;
        let mut walk = Walk::begin(self.objects(), folder, ask.recursive, after.as_deref())?;
        let mut page = Page { entries: Vec::new(), next: None };
        for _ in 0..MAX_SCAN {
            let Some(item) = walk.next()? else {
                return Ok(page);
            };
            if ask.globs.fit(&walk.real) && shows(&walk.real) {
                page.entries.push(self.listed_as(&item, &walk.real)?);
            }
            if page.entries.len() >= ask.limit.max(1) {
                break;
            }
        }
        page.next = walk.cursor();
        Ok(page)
    }

    /// Shows `visit` every path below the folder at `inner`, in its real bytes, until it says `false`.
    ///
    /// # Errors
    /// When nothing or a file is there, there is no such version here, or storage fails.
    pub fn each_path(
        &self,
        version: Option<&VersionId>,
        inner: &str,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), TreeError> {
        let mut walk = Walk::begin(self.objects(), self.folder_at(version, inner)?, true, None)?;
        while walk.next()?.is_some() {
            if !visit(&walk.real) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn folder_at(&self, version: Option<&VersionId>, inner: &str) -> Result<ObjectId, TreeError> {
        match self.find(&self.root_of(version)?, inner)? {
            None => Err(TreeError::NotFound { path: inner.to_owned() }),
            Some(Found::File(_)) => Err(TreeError::NotADirectory { path: inner.to_owned() }),
            Some(Found::Folder(id)) => Ok(id),
        }
    }

    pub(crate) fn listed_as(&self, item: &TreeItem, path: &[u8]) -> Result<TreeEntry, TreeError> {
        let name = text_of(path);
        Ok(TreeEntry {
            name_base64: matches!(name, Cow::Owned(_)).then(|| STANDARD.encode(path)),
            name: name.into_owned(),
            kind: kind_of(item),
            size: if item.mode.is_tree() { None } else { Some(self.objects().file_size(&item.oid)?) },
            id: Some(item.oid.to_string()),
        })
    }
}

/// A pass over a folder. Memory is the folders on the way.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    objects: &'a Objects,
    recursive: bool,
    levels: Vec<Level>,
    /// The path of the entry at hand, as git has it, with `/` behind a folder.
    stored: Vec<u8>,
    /// The same as it is, without that `/`.
    pub(crate) real: Vec<u8>,
}

#[derive(Debug)]
struct Level {
    tree: Arc<Tree>,
    next: usize,
    /// Lengths of the folder's own paths, `/` included.
    stored: usize,
    real: usize,
}

impl<'a> Walk<'a> {
    /// Begins with the first entry behind the stored path `after`.
    pub(crate) fn begin(
        objects: &'a Objects,
        folder: ObjectId,
        recursive: bool,
        after: Option<&[u8]>,
    ) -> Result<Self, TreeError> {
        let mut walk = Self { objects, recursive, levels: Vec::new(), stored: Vec::new(), real: Vec::new() };
        walk.enter(&folder)?;
        let mut rest = after.unwrap_or_default();
        while !rest.is_empty() {
            let (name, below) = match rest.iter().position(|byte| *byte == b'/') {
                Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at + 1..)),
                None => (rest, None),
            };
            let Some(folder) = walk.seek(name, below.is_some()) else { break };
            walk.enter(&folder)?;
            rest = below.unwrap_or_default();
        }
        Ok(walk)
    }

    /// Makes the entry behind that name the next; the folder of that name, if it is to be entered.
    fn seek(&mut self, name: &[u8], folder: bool) -> Option<ObjectId> {
        let level = self.levels.last_mut()?;
        let order = |item: &TreeItem| name_order(&item.filename, item.mode.is_tree(), name, folder);
        let at = level.tree.entries.partition_point(|item| order(item).is_lt());
        let item = level.tree.entries.get(at).filter(|item| order(item).is_eq()).cloned();
        level.next = at + usize::from(item.is_some());
        let item = item.filter(|item| item.mode.is_tree() && self.recursive)?;
        self.stand_on(&item);
        Some(item.oid)
    }

    /// The next entry; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<TreeItem>, TreeError> {
        // The folder at hand comes before what is in it.
        loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let Some(item) = level.tree.entries.get(level.next).cloned() else {
                self.levels.pop();
                continue;
            };
            level.next += 1;
            self.stand_on(&item);
            if item.mode.is_tree() && self.recursive {
                self.enter(&item.oid)?;
            }
            return Ok(Some(item));
        }
    }

    fn stand_on(&mut self, item: &TreeItem) {
        let (stored, real) = self.levels.last().map_or((0, 0), |level| (level.stored, level.real));
        self.stored.truncate(stored);
        self.stored.extend_from_slice(&item.filename);
        if item.mode.is_tree() {
            self.stored.push(b'/');
        }
        self.real.truncate(real.saturating_sub(1));
        if real > 0 {
            self.real.push(b'/');
        }
        self.real.extend_from_slice(&name::unescape(&item.filename));
    }

    fn enter(&mut self, folder: &ObjectId) -> Result<(), TreeError> {
        if self.levels.len() > MAX_PATH_DEPTH {
            return Err(TreeError::corrupt(folder, "folders are nested deeper than any that is written here"));
        }
        let tree = self.objects.known_tree(folder)?;
        let real = if self.real.is_empty() { 0 } else { self.real.len() + 1 };
        self.levels.push(Level { tree, next: 0, stored: self.stored.len(), real });
        Ok(())
    }

    /// What tells where this pass is; `None` before the first entry.
    fn cursor(&self) -> Option<String> {
        (!self.stored.is_empty()).then(|| URL_SAFE_NO_PAD.encode(&self.stored))
    }
}

/// Escapes make a stored path longer than the real one, three bytes for one at most.
fn decode_cursor(text: &str) -> Result<Vec<u8>, TreeError> {
    if text.len() > 4 * MAX_PATH_BYTES + 4096 {
        return Err(TreeError::InvalidCursor);
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_cause| TreeError::InvalidCursor)?;
    if bytes.is_empty() || bytes.contains(&0) { Err(TreeError::InvalidCursor) } else { Ok(bytes) }
}
