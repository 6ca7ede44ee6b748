//! What crosses a trust boundary: ids, paths, specs, messages, the change stream, error codes and limits.
//!
//! Every value here is parsed once at the edge and cannot be wrong afterwards. The crate does no I/O, reads no
//! clock and draws no randomness: callers hand those in. Start with [`path`], then [`node`].
#![deny(clippy::indexing_slicing, clippy::string_slice)]

pub mod api;
pub mod audit;
pub mod change;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod git;
pub mod guest;
pub mod id;
pub mod jail;
pub mod label;
pub mod limits;
pub mod node;
pub mod path;
pub mod purge;
pub mod quota;
pub mod wall;
