//! The use cases, one function each: every front calls these and nothing below them.
//!
//! The first step of each turns the caller's principal into permits; what follows takes nothing else. Every denial, and every
//! permit that was used, is on the audit before the caller learns the outcome.

mod below;
mod decide;
mod landing;
pub(crate) mod recovery;
mod run_changes;
mod run_owner;
pub mod runs;
mod slices;
pub mod tree;
mod tree_access;
mod tree_write;
