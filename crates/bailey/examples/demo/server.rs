//! A real server, and the real command line against it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal};

use crate::canary::Canary;
use crate::scene;

/// Ends with the demo, also when that fails.
pub(crate) struct Server {
    binary: PathBuf,
    data: PathBuf,
    url: String,
    process: Child,
    stopped: bool,
}

/// Who speaks to it.
pub(crate) struct User<'a> {
    server: &'a Server,
    token: String,
}

impl Server {
    pub(crate) fn start(binary: PathBuf, folder: &Path, canary: &Canary) -> anyhow::Result<Self> {
        let data = folder.join("data");
        let mut process = Command::new(&binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .env("BAILEY_DEMO_SECRET", &canary.text)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join("server.log"))?)
            .spawn()
            .context("start `bailey serve`")?;
        let mut lines = BufReader::new(process.stdout.take().context("the server's output")?).lines();
        let url = loop {
            let Some(line) = lines.next().transpose()? else {
                let log = std::fs::read_to_string(folder.join("server.log")).unwrap_or_default();
                bail!("the server ended before it listened: {log}");
            };
            if let Some(url) = line.strip_prefix("listening on ") {
                break url.to_owned();
            }
        };
        Ok(Self { binary, data, url, process, stopped: false })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap_or("")
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The supervisor's process.
    pub(crate) fn jail_pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn user(&self, tenant: &str, name: &str) -> anyhow::Result<User<'_>> {
        let output = Command::new(&self.binary)
            .args(["token", "--tenant", tenant, "--user", name, "--role", "member", "--data"])
            .arg(&self.data)
            .output()
            .context("start `bailey token`")?;
        ensure!(output.status.success(), "no token: {}", String::from_utf8_lossy(&output.stderr));
        Ok(User { server: self, token: String::from_utf8(output.stdout)?.trim().to_owned() })
    }

    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.stopped = true;
        self.terminate();
        let status = self.process.wait().context("wait for the server")?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    fn terminate(&self) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        // It may be gone already, which is what is wanted.
        pid.map(|pid| rustix::process::kill_process(pid, Signal::TERM).ok());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.stopped {
            self.terminate();
            self.process.wait().ok();
        }
    }
}

impl User<'_> {
    /// The command, not started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.server.binary);
        command.args(arguments).env("BAILEY_URL", &self.server.url).env("BAILEY_TOKEN", &self.token);
        command.stdin(Stdio::null());
        command
    }

    /// Runs it and gives all that it said.
    pub(crate) fn quietly(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.command(arguments).output().context("start `bailey`")
    }

    /// Runs it before the audience, which sees output as it comes; it must end with this code.
    pub(crate) fn openly(&self, arguments: &[&str], code: i32) -> anyhow::Result<()> {
        scene::typed(arguments);
        let status = self.command(arguments).status().context("start `bailey`")?;
        ensure!(status.code() == Some(code), "`bailey {}` ended with {status}, not {code}", arguments.join(" "));
        Ok(())
    }

    /// Runs it before the audience; it must fail, and say this.
    pub(crate) fn refused(&self, arguments: &[&str], word: &str) -> anyhow::Result<()> {
        scene::typed(arguments);
        let output = self.quietly(arguments)?;
        scene::output(&output.stderr);
        ensure!(!output.status.success(), "`bailey {}` was not refused", arguments.join(" "));
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(said.contains(word), "the refusal does not name `{word}`: {said}");
        Ok(())
    }
}
