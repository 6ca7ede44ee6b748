//! `bailey-jail`: the only root process of Bailey. Supervisor of the server and launcher of cages.
//!
//! Single-threaded and synchronous; speaks to no network (it only binds the server's listener); resolves no name in
//! a folder that a tenant or guest controls; believes nothing that the server says. Started as `bailey-jail FD`,
//! where FD is a memfd with a [`SupervisorConfig`](bailey_protocol::jail::SupervisorConfig).
//!
//! Reading order: [`supervisor`] (the loop), [`fleet`] (all cages), [`cage`] (one), [`ground`] (the jail's own root).
#![deny(clippy::indexing_slicing, clippy::string_slice)]

mod cage;
mod cgroup;
mod clock;
mod config;
mod disks;
mod fault;
mod files;
mod fleet;
mod ground;
mod host;
mod ledger;
mod log;
mod parent;
mod poller;
mod server;
mod start;
mod supervisor;
mod sweep;
mod template;
mod uids;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let result = config::read(&arguments).and_then(|told| start::start(&told)).and_then(supervisor::run);
    match result {
        Ok(code) => ExitCode::from(code),
        Err(refusal) => {
            log::line("error", "refused", &[("step", &refusal.step), ("reason", &refusal.message)]);
            ExitCode::FAILURE
        }
    }
}
