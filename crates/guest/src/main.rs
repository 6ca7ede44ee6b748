//! The binary's three modes: `init` (PID 1), `collect`, and the `sudo` shim, which is told by its own name.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use bailey_guest::{agent, collect, sudo};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if name.as_bytes().ends_with(b"sudo") {
        return sudo::shim::main(arguments.collect());
    }
    let mode = arguments.next().unwrap_or_default();
    let result = match mode.as_bytes() {
        b"init" => agent::main(),
        b"collect" => collect::main(),
        _ => Err(anyhow::anyhow!("usage: bailey-guest init|collect")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bailey-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}
