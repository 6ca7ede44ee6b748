//! Git objects in memory: ids, trees, and the hash that names them.
//!
//! An id is the hash of the object's kind, size and bytes, so that a file whose bytes look like a tree has another id
//! than that tree.

use bailey_protocol::id::{TreeId, VersionId};
use gix_hash::{Kind as HashKind, ObjectId};
use gix_object::WriteTo as _;
pub(crate) use gix_object::tree::{Entry as TreeItem, EntryKind as Mode};
pub(crate) use gix_object::{Kind, Tree};

use crate::error::TreeError;

/// The id of the folder without entries; it exists everywhere.
#[must_use]
pub fn empty_tree() -> TreeId {
    tree_id(&ObjectId::empty_tree(HashKind::Sha1))
}

/// Hashes one object whose size is known, piece by piece.
pub(crate) struct ObjectHasher(gix_hash::Hasher);

impl ObjectHasher {
    pub(crate) fn new(kind: Kind, size: u64) -> Self {
        let mut hasher = gix_hash::hasher(HashKind::Sha1);
        hasher.update(&gix_object::encode::loose_header(kind, size));
        Self(hasher)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Result<ObjectId, TreeError> {
        self.0.try_finalize().map_err(|_attack| TreeError::Collision)
    }
}

pub(crate) fn hash(kind: Kind, bytes: &[u8]) -> Result<ObjectId, TreeError> {
    let mut hasher = ObjectHasher::new(kind, bytes.len() as u64);
    hasher.update(bytes);
    hasher.finish()
}

/// The bytes of a tree object; `items` are put into git's order.
pub(crate) fn encode_tree(mut items: Vec<TreeItem>) -> Result<(Tree, Vec<u8>), TreeError> {
    items.sort();
    let tree = Tree { entries: items };
    let mut bytes = Vec::with_capacity(usize::try_from(tree.size()).unwrap_or(0));
    tree.write_to(&mut bytes).map_err(|fault| TreeError::corrupt("tree", fault))?;
    Ok((tree, bytes))
}

pub(crate) fn decode_tree(id: &ObjectId, bytes: &[u8]) -> Result<Tree, TreeError> {
    let tree = gix_object::TreeRef::from_bytes(bytes, HashKind::Sha1).map_err(|e| TreeError::corrupt(id, e))?;
    for entry in &tree.entries {
        if entry.mode.kind() == Mode::Commit || entry.filename.is_empty() || entry.filename.contains(&b'/') {
            return Err(TreeError::corrupt(id, "an entry that no tree of ours has"));
        }
    }
    Ok(tree.into_owned())
}

/// The entry of that stored name.
pub(crate) fn find<'a>(tree: &'a Tree, stored: &[u8]) -> Option<&'a TreeItem> {
    [false, true].into_iter().find_map(|is_tree| {
        let order =
            |item: &TreeItem| gix_object::tree::name_order(&item.filename, item.mode.is_tree(), stored, is_tree);
        let at = tree.entries.binary_search_by(order).ok()?;
        tree.entries.get(at)
    })
}

pub(crate) fn version_id(id: &ObjectId) -> VersionId {
    id.to_string().parse().expect("an object id prints as 40 hex digits")
}

pub(crate) fn tree_id(id: &ObjectId) -> TreeId {
    id.to_string().parse().expect("an object id prints as 40 hex digits")
}

/// The object id in the text of a [`VersionId`] or [`TreeId`].
pub(crate) fn object_id(hex: &str) -> ObjectId {
    ObjectId::from_hex(hex.as_bytes()).expect("version and tree ids are 40 hex digits")
}
