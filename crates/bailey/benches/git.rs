//! What git over HTTP costs, against `git daemon` serving the same repository, in the same loop.
//!
//! Prints a table and writes `bench/results/git.json`. Needs root and the release binaries (`make bench`).

#![allow(clippy::print_stdout, reason = "the table is this program's output")]

#[path = "git/daemon.rs"]
mod daemon;
#[allow(dead_code, reason = "the other benches use the rest of it")]
#[path = "run/report.rs"]
mod report;
#[path = "git/server.rs"]
mod server;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use daemon::Daemon;
use report::{Report, Row, Samples};
use server::Server;
use tokio::time::Instant;

/// Pairs of one exchange and one baseline, taken in turns so that both see the same noise.
const PAIRS: usize = 60;
const WARM_UP: usize = 3;
const BASELINE: &str = "git daemon, same repository";

fn main() -> anyhow::Result<()> {
    let mut server = Server::start(4)?;
    let work = tempfile::tempdir().context("make a folder to work in")?;
    let mut report = Report::default();
    for (name, files, bytes, pairs) in [("small", 100, 1000, PAIRS), ("64 MiB", 64, 1 << 20, PAIRS / 6)] {
        let repo = format!("bench/users/{}", if files == 100 { "small" } else { "large" });
        let url = server.url(&repo)?;
        let first = work.path().join(name.replace(' ', ""));
        fill(&server, &url, &first, files, bytes)?;
        let stored = server.folder(&repo);
        let daemon = Daemon::start(&stored)?;
        report.push(clones(&server, &url, &daemon, work.path(), name, pairs)?);
        if files == 100 {
            report.push(pushes(&server, &url, &daemon, work.path())?);
        }
    }
    print!("{}", report.table());
    report.write("git.json")
}

fn clones(server: &Server, url: &str, daemon: &Daemon, work: &Path, name: &str, pairs: usize) -> anyhow::Result<Row> {
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    for turn in 0..WARM_UP + pairs {
        let times = [(daemon.url(), &mut bare), (url.to_owned(), &mut ours)].map(|(url, samples)| {
            let to = work.join("clone");
            let start = Instant::now();
            git(server, work, &["clone", "-q", "--bare", &url, "clone"])?;
            let time = start.elapsed();
            std::fs::remove_dir_all(&to).context("remove the clone")?;
            if turn >= WARM_UP {
                samples.push(time);
            }
            anyhow::Ok(())
        });
        times.into_iter().collect::<anyhow::Result<()>>()?;
    }
    let note = "the client's own time is in both".to_owned();
    Ok(Row::latency(format!("git clone, {name}"), &ours, BASELINE, &bare, None, note))
}

/// One commit of one file each; the daemon pushes into a copy, as it moves refs by itself.
fn pushes(server: &Server, url: &str, daemon: &Daemon, work: &Path) -> anyhow::Result<Row> {
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    let copies = [("to-daemon", daemon.writable_url()), ("to-us", url.to_owned())];
    for (folder, url) in &copies {
        git(server, work, &["clone", "-q", url, folder])?;
    }
    for turn in 0..WARM_UP + PAIRS {
        for ((folder, _), samples) in copies.iter().zip([&mut bare, &mut ours]) {
            let folder = work.join(folder);
            std::fs::write(folder.join("changed"), turn.to_string()).context("change a file")?;
            git(server, &folder, &["add", "-A"])?;
            git(server, &folder, &["commit", "-qm", "change"])?;
            let start = Instant::now();
            git(server, &folder, &["push", "-q", "origin", "HEAD:refs/heads/main"])?;
            let time: Duration = start.elapsed();
            if turn >= WARM_UP {
                samples.push(time);
            }
        }
    }
    let note = "the client's own time is in both".to_owned();
    Ok(Row::latency("git push of one commit".to_owned(), &ours, BASELINE, &bare, None, note))
}

/// Pushes a first commit of so many files.
fn fill(server: &Server, url: &str, folder: &Path, files: usize, bytes: usize) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).context("make a repository")?;
    git(server, folder, &["init", "-q"])?;
    let mut state = 88_172_645_463_325_252_u64;
    for number in 0..files {
        let content: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .take(bytes / 8)
        .flatten()
        .collect();
        std::fs::write(folder.join(format!("file{number}")), content).context("write a file")?;
    }
    git(server, folder, &["add", "-A"])?;
    git(server, folder, &["commit", "-qm", "first"])?;
    git(server, folder, &["push", "-q", url, "HEAD:refs/heads/main"])
}

fn git(server: &Server, folder: &Path, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("git")
        .args(["-c", &format!("http.extraHeader=Authorization: Bearer {}", server.token())])
        .args(["-c", "user.name=b", "-c", "user.email=b@x", "-c", "safe.directory=*", "-c", "gc.auto=0"])
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .context("start git")?;
    ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
