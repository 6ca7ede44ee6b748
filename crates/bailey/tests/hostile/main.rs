//! The hostile suite: attacks that run inside real sandboxes, through the real server, judged by what the host sees.
//!
//! A case is named after its id in the list of threats. Its attack program lies in `attacks/`, as those of
//! `bailey attest` do. Most cases run the same program a second time in a reference bad jail ([`bare`]), where it must succeed: an attack that cannot work proves
//! nothing by failing. `BAILEY_BLESS=1` rewrites the golden file of the system call sweep.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::indexing_slicing, clippy::string_slice, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "these tests drive real processes in real time")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "arms that this host cannot show are announced")]

mod attack;
mod bare;
mod host;
mod http;
mod oracle;
mod run;
mod server;

/// How `bailey attest` looks at a sandbox.
#[path = "../../src/attest/look.rs"]
#[allow(dead_code, reason = "the command looks at more")]
mod look;
/// What it makes of what a run leaves in a mounted folder.
#[path = "../../src/attest/tree.rs"]
#[allow(dead_code, reason = "the command takes changes into a real tree")]
mod tree;

mod agent;
mod api;
mod attest;
mod compatibility;
mod crash_points;
mod faults;
mod files;
mod kernel;
mod kill_loop;
mod large_disks;
mod leaks;
mod meeting;
mod portrait;
mod posture;
mod residue;
mod resources;
mod sweep;
mod tenants;
mod told;
