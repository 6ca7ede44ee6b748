//! The tree: bare git repositories, one per tenant and one per user, that stock git reads as they lie.
//!
//! Owns objects, packs and the folder layout; knows nothing of branches (control's database holds them and calls
//! [`Store::publish_refs`]), of permissions, or of runs. Every version that a call returns is on disk. Bytes are
//! verified against their object id before they are served. A [`Store`] reaches its own repository only. Links are
//! data here: nothing in this crate follows one. Exactly one process may have a root open.
//!
//! Start with [`Trees`], then [`Store`]; what lies on disk is described in `pack`.
#![deny(clippy::indexing_slicing, clippy::string_slice)]

mod blob;
pub mod blob_store;
mod cache;
mod changed_paths;
mod changes;
mod checkout;
mod commit;
mod diff;
mod edits;
mod error;
mod history;
mod merge;
mod name;
mod object;
mod objects;
mod pack;
mod path;
mod refs;
mod staging;
mod store;
mod trees;

pub use blob::Blob;
pub use commit::CommitMeta;
pub use error::{TreeError, TreeErrorKind};
pub use merge::Merge;
pub use object::empty_tree;
pub use store::{Applied, Entry, MAX_NOTICES, Store};
pub use trees::Trees;
