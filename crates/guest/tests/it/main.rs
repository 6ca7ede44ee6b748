//! The guest from outside: the real binary as PID 1 of a pid namespace, driven over yamux as the node does.
//! Needs root and a cgroup 2 mount; says so and passes where either is missing.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests may spawn and measure")]

mod collect;
mod compat;
mod exec;
mod fences;
mod files;
mod filter;
mod guest;
mod machine;
mod sudo;
