//! `make demo`: one run over one tenant's files, and the empty room.
//!
//! Starts a server of its own on a free port with a temporary data folder, and uses the same command line as anyone
//! would. Exits with 0 only if everything that it says holds.

mod canary;
mod room;
mod scene;
mod server;
mod stand_in;
mod story;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let outcome = match (arguments.next(), arguments.next()) {
        (Some(mode), Some(folder)) if mode == stand_in::MODE => stand_in::play(&PathBuf::from(folder)),
        (Some(binary), None) => play(PathBuf::from(binary)),
        _ => Err(anyhow::anyhow!("usage: demo PATH-OF-BAILEY")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(binary: PathBuf) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let supervisor_canary = canary::Canary::fresh("server's environment")?;
    scene::title("A server of its own");
    let server = server::Server::start(binary, folder.path(), &supervisor_canary)?;
    scene::say(&format!("listening on {}, data in {}", server.url(), folder.path().display()));
    story::play(&server)?;
    let held = room::play(&server, folder.path(), supervisor_canary)?;
    server.stop()?;
    anyhow::ensure!(held, "not everything held");
    Ok(())
}
