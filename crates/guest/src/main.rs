//! The binary's modes: `init` (PID 1 of a cage), `machine` (the first program of a machine), `collect`, and the `sudo`
//! shim, which is told by its own name. A kernel that starts its first program gives it no mode: the name `init` does.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use bailey_guest::{agent, collect, machine, sudo};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if name.as_bytes().ends_with(b"sudo") {
        return sudo::shim::main(arguments.collect());
    }
    let mode = arguments.next().unwrap_or_default();
    let result = match mode.as_bytes() {
        b"init" => agent::main(),
        b"machine" => machine::main(arguments.next().is_some_and(|word| word == "--stdio")),
        b"" if name.as_bytes().ends_with(b"/init") => machine::main(false),
        b"collect" => collect::main(),
        _ => Err(anyhow::anyhow!("usage: bailey-guest init|machine [--stdio]|collect")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bailey-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}
