//! The baseline: stock `git daemon` over the very repository that Bailey serves, and over a copy that it may write.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

pub(crate) struct Daemon {
    process: Child,
    port: u16,
    _home: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn start(stored: &Path) -> anyhow::Result<Self> {
        let home = tempfile::tempdir().context("make a folder for the daemon")?;
        std::fs::write(home.path().join(".gitconfig"), "[safe]\n\tdirectory = *\n").context("configure the daemon")?;
        std::os::unix::fs::symlink(stored, home.path().join("same.git")).context("link the repository")?;
        let copy = home.path().join("copy.git");
        let copied = Command::new("cp").arg("-a").arg(stored).arg(&copy).status().context("copy the repository")?;
        ensure!(copied.success(), "the repository was not copied");
        let port = TcpListener::bind("127.0.0.1:0").context("find a port")?.local_addr()?.port();
        let process = Command::new("git")
            .args(["daemon", "--export-all", "--enable=receive-pack", "--reuseaddr", "--listen=127.0.0.1"])
            .arg(format!("--port={port}"))
            .arg(format!("--base-path={}", home.path().display()))
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // `git` starts the daemon as its child: both are ended as one group.
            .process_group(0)
            .spawn()
            .context("start git daemon")?;
        let mut daemon = Self { process, port, _home: home };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(daemon.process.try_wait()?.is_none(), "git daemon ended at once");
            std::thread::yield_now();
        }
        Ok(daemon)
    }

    /// The repository itself.
    pub(crate) fn url(&self) -> String {
        format!("git://127.0.0.1:{}/same.git", self.port)
    }

    /// A copy of it.
    pub(crate) fn writable_url(&self) -> String {
        format!("git://127.0.0.1:{}/copy.git", self.port)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let group = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group
            && rustix::process::kill_process_group(group, rustix::process::Signal::KILL).is_ok()
        {
            drop(self.process.wait());
        }
    }
}
