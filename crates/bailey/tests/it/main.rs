//! The real binaries, end to end: what a user types and what comes of it. Needs root, for the cages.
//!
//! Each test starts its own server on a free loopback port with a temporary data folder; the template cache is the
//! host's. The static `bailey-jail` and `bailey-guest` have to lie beside `bailey` (`make test` puts them there).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod attest;
mod audit;
mod branches;
mod broken;
mod budget;
mod cli;
mod doctor;
mod git;
mod gvisor;
mod host;
mod identity;
mod lifecycle;
mod microvm;
mod policies;
mod readme;
mod run;
mod server;
mod storage;
mod typos;
mod verbs;
