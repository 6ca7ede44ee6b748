//! The guest: PID 1 of a sandbox, the collector of what a run changed, and the shim behind `sudo`.
//!
//! It runs next to hostile code and is itself not believed by the node. It holds no secret, knows no host path, and
//! opens no file that it was not asked for. As PID 1 it is one thread: Landlock and seccomp are per thread, and so
//! no pool of blocking threads exists. Start with [`agent`] (what the node talks to), then [`exec`] (how a command
//! is started, followed and killed), [`files`], [`sudo`] and [`collect`]; [`machine`] is what the guest does by itself
//! where it is the first program of a machine, and no jail does it from outside.
#![deny(clippy::indexing_slicing, clippy::string_slice)]

pub mod agent;
mod beneath;
pub mod collect;
pub mod descriptor;
pub mod exec;
pub mod files;
pub mod machine;
pub mod sudo;
