//! The tree: bare git repositories, one per tenant and one per user, that stock git reads as they lie.
//!
//! Owns objects, packs and the folder layout; knows nothing of branches (control's database holds them and calls
//! [`Store::publish_refs`]), of permissions, or of runs. Every version that a call returns is on disk. Bytes are
//! verified against their object id before they are served. A [`Store`] reaches its own repository only. Links are
//! data here: nothing in this crate follows one. Exactly one process may have a root open.
//!
//! Start with [`Trees`], then [`Store`]; what lies on disk is described in `pack`.
#![deny(clippy::indexing_slicing, clippy::string_slice)]

mod ancestry;
pub mod archive;
mod blame;
mod blob;
pub mod blob_store;
mod bring;
mod cache;
mod changed_paths;
mod changes;
mod checkout;
mod claims;
mod commit;
mod contents;
mod copy;
mod diff;
mod edits;
mod error;
mod extent;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gc;
mod history;
mod import;
mod lease;
mod ledger;
mod listing;
mod merge;
mod name;
mod object;
mod objects;
mod pack;
mod patch;
mod path;
mod published;
mod purge;
mod pushed;
mod reach;
mod refs;
mod retention;
mod revert;
mod room;
mod shallow;
mod staging;
mod store;
mod taken_over;
mod trees;

pub use blob::Blob;
pub use bring::Brought;
pub use changed_paths::PathVisitor;
pub use checkout::CheckoutGrowth;
pub use commit::CommitMeta;
pub use contents::{Contents, MarkVisitor};
pub use copy::Source;
pub use error::{TreeError, TreeErrorKind};
pub use gc::{GcReport, Thoroughness};
pub use listing::{Globs, ListAsk, Page};
pub use merge::{Hides, Merge};
pub use object::empty_tree;
pub use patch::{MAX_PATCHES, Patch};
pub use purge::Purge;
pub use pushed::{PushLimits, Pushed};
pub use reach::Grown;
pub use retention::{Cut, Keep};
pub use store::{Applied, Entry, MAX_NOTICES, Store, Upload};
pub use taken_over::TakenOver;
pub use trees::Trees;
