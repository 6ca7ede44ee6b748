//! Execs: one command in the sandbox each, with a cgroup of its own.
//!
//! ```text
//! forked ──report ends──▶ running ──leader reaped──▶ draining ──outputs delivered──▶ ended ──30 s──▶ forgotten
//!    └──report: failure──▶ (never was)    deadline or SIGKILL: the whole group is killed, then as above
//! ```
//!
//! The leader's end does not kill what it left in the background; the deadline does. Nobody's disconnecting ends
//! an exec. A reader that is slow stops the program, not PID 1: at most a few chunks wait for each reader.

pub mod cgroup;
pub mod environment;
pub mod filter;
pub mod identity;
pub mod input;
pub mod output;
pub mod reaper;
pub mod registry;
pub mod service;
pub mod start;
