//! Where packs live: a local folder today, an object store later.
//!
//! To add one: `blob_store/NAME.rs`, a constructor used by `Trees`, and `contract::run` in its tests.

#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod folder;
mod scratch;

use std::fmt;
use std::io;

use gix_hash::ObjectId;

pub use folder::Folder;
pub use scratch::Scratch;

use crate::error::TreeError;

/// Named, immutable files. A name says its content, so that two writers of one name write the same bytes.
pub trait BlobStore: fmt::Debug + Send + Sync {
    /// An empty local file to fill and then [`put`](Self::put); gone when dropped before that.
    ///
    /// # Errors
    /// When the local disk refuses.
    fn scratch(&self) -> Result<Scratch, TreeError>;

    /// Puts files under their names, in order: whoever sees one sees those before it, whole, and whoever sees an index
    /// after a crash as well. All are durable on return, save [`Part::Sums`], which readers can do without. After an error none, some or all may be there.
    ///
    /// # Errors
    /// When the store refuses.
    fn put(&self, files: Vec<(BlobName, Scratch)>) -> Result<(), TreeError>;

    /// Opens a file for ranged reads; `None` when there is none.
    ///
    /// # Errors
    /// When the store refuses.
    fn open(&self, name: &BlobName) -> Result<Option<Box<dyn RangedRead>>, TreeError>;

    /// All names, in no order. Empty when the store does not exist yet.
    ///
    /// # Errors
    /// When the store refuses.
    fn list(&self) -> Result<Vec<BlobName>, TreeError>;

    /// Removes a file; not an error when there is none. An index does not come back after a crash.
    ///
    /// # Errors
    /// When the store refuses.
    fn remove(&self, name: &BlobName) -> Result<(), TreeError>;

    /// Drops what earlier processes left half done. Called once, before any other call.
    ///
    /// # Errors
    /// When the store refuses.
    fn sweep(&self) -> Result<(), TreeError>;
}

/// An open file of a store.
pub trait RangedRead: fmt::Debug + Send + Sync {
    /// Its length.
    fn length(&self) -> u64;

    /// Fills `out` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; else what the store says.
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

/// The name of a file: the pack it belongs to and its part in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName {
    /// The checksum at the end of the pack.
    pub pack: ObjectId,
    /// Which of the pack's files.
    pub part: Part,
}

/// The files of one pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Checksums of the blocks of large files; ours, ignored by git.
    Sums,
    /// The objects.
    Pack,
    /// Where each object is. A pack without one does not count.
    Index,
}

impl Part {
    fn extension(self) -> &'static str {
        match self {
            Self::Sums => "sums",
            Self::Pack => "pack",
            Self::Index => "idx",
        }
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pack-{}.{}", self.pack, self.part.extension())
    }
}

impl BlobName {
    /// The name in a file name; `None` when it is no name of this store.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (stem, extension) = text.strip_prefix("pack-")?.split_once('.')?;
        let pack = ObjectId::from_hex(stem.as_bytes()).ok()?;
        let part = [Part::Sums, Part::Pack, Part::Index].into_iter().find(|part| part.extension() == extension)?;
        Some(Self { pack, part }).filter(|name| name.to_string() == text)
    }
}
