//! The use cases, one function each: every front calls these and nothing below them.
//!
//! The first step of each turns the caller's principal into permits; what follows takes nothing else. Every denial, and every
//! permit that was used, is on the audit before the caller learns the outcome.

pub mod audit;
pub mod baselines;
mod below;
pub mod branches;
mod crossing;
pub(crate) mod decide;
mod entering;
pub mod git;
pub mod git_push;
pub mod identity;
mod judge;
pub mod labels;
mod landing;
pub mod metrics;
pub(crate) mod mountable;
pub mod policies;
pub mod promotions;
pub mod protections;
pub mod purges;
pub(crate) mod reachable;
mod readable;
pub(crate) mod recovery;
mod run_changes;
mod run_owner;
pub mod runs;
pub mod shares;
mod slices;
pub mod storage;
pub mod tenants;
mod told_history;
pub mod tree;
mod tree_access;
pub mod tree_archive;
pub mod tree_copy;
pub mod tree_edit;
mod tree_write;
mod unseen;
pub mod upkeep;
