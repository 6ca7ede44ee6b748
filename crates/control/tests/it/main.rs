//! Control over real HTTP, with a real database, real policies and real trees, and a node that follows a script.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test fails by panicking")]
#![allow(missing_debug_implementations, unreachable_pub, reason = "nobody outside uses a test's types")]

mod below;
mod client;
mod hostile;
mod node;
mod restart;
mod run_commit;
mod runs;
mod tenancy;
mod tree;
mod world;
