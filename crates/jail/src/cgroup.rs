//! Control groups: which hierarchies this host has, and one folder per cage in each that is needed.
//!
//! Controllers are found one by one: on a hybrid host some live in v1 hierarchies and some in the v2 tree. The jail
//! mounts its own instance of each hierarchy, so that it depends on no path of the host. Groups are
//! `bailey/{ledger id}/{name}`. The v2 tree carries every group whatever its controllers, because it is the one
//! that kills. A group's limits are its cage's; its CPU weight is a part of its tenant's: see [`weight`].

pub(crate) mod ceiling;
pub(crate) mod detect;
pub(crate) mod facts;
pub(crate) mod group;
pub(crate) mod tree;
pub(crate) mod weight;
