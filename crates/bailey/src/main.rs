//! The binary people install: command line, configuration, and the wiring of control to node.
//!
//! `bailey serve` as root checks its host and becomes `bailey-jail` ([`serve::launch`]), which starts the same binary
//! again under its own uid ([`serve::supervised`]). Every other verb is a client of the HTTP API ([`verb`]), but for
//! `token`, `doctor`, `attest` and `template`, which work on the machine itself.

#![deny(clippy::print_stderr, reason = "`eprintln!` panics when nobody reads: use `note!`")]

mod attest;
mod cli;
mod client;
mod config;
mod doctor;
mod exit;
mod local;
mod progress;
mod serve;
mod stand;
mod template;
mod terminal;
mod usage;
mod verb;

use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

fn main() -> ExitCode {
    // First of all: a key or a token in this memory is for no core dump and no debugger of the same user.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        terminal::note!("bailey: cannot hide this process's memory: {error}");
        return ExitCode::from(exit::FAILED);
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    match cli::parse(&arguments) {
        Ok(cli) => verb::carry_out(cli),
        Err(error) => usage::tell(&error, &arguments),
    }
}
