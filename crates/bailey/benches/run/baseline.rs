//! The baseline: a bare bubblewrap over the same template, mounted once.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde::Deserialize;
use tokio::process::Command;

/// The template's image, mounted read-only until dropped.
pub(crate) struct Template {
    at: tempfile::TempDir,
}

#[derive(Deserialize)]
struct Prepared {
    image: std::path::PathBuf,
}

impl Template {
    pub(crate) fn mount() -> anyhow::Result<Self> {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_bailey"))
            .args(["template", "prepare", "--json"])
            .output()
            .context("run `bailey template prepare`")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let prepared: Prepared = serde_json::from_slice(&output.stdout).context("read what was prepared")?;
        let at = tempfile::tempdir()?;
        call(
            "mount",
            &["-t".as_ref(), "erofs".as_ref(), "-o".as_ref(), "ro,loop".as_ref(), &prepared.image, at.path()],
        )?;
        Ok(Self { at })
    }

    /// A bubblewrap that lacks the command.
    pub(crate) fn command(&self) -> Command {
        let mut bwrap = Command::new("bwrap");
        bwrap.args(["--unshare-all", "--ro-bind"]).arg(self.at.path()).args(["/", "--proc", "/proc", "--dev", "/dev"]);
        bwrap
    }

    /// One command in a fresh bubblewrap, from fork to exit; with a folder bound where that is said.
    pub(crate) async fn run(&self, command: &[&str], bind: Option<(&Path, &str)>) -> anyhow::Result<()> {
        let mut bwrap = self.command();
        if let Some((folder, at)) = bind {
            bwrap.arg("--bind").arg(folder).arg(at);
        }
        let status =
            bwrap.args(command).stdin(Stdio::null()).stdout(Stdio::null()).status().await.context("start bwrap")?;
        ensure!(status.success(), "bwrap ended with {status}");
        Ok(())
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        if let Err(error) = call("umount", &[self.at.path()]) {
            eprintln!("the template's mount is left behind: {error:#}");
        }
    }
}

fn call(program: &str, arguments: &[&Path]) -> anyhow::Result<()> {
    let status =
        std::process::Command::new(program).args(arguments).status().with_context(|| format!("start {program}"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
