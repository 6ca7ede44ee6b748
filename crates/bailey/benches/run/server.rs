//! A release server with a temporary data folder, and runs on it over HTTP.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use bailey_protocol::api::{RunEvent, RunEventKind};
use bailey_protocol::node::Ending;
use futures_util::StreamExt as _;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub(crate) struct Server {
    process: Child,
    url: String,
    token: String,
    client: reqwest::Client,
    data: tempfile::TempDir,
}

/// What the bench needs to know of a run.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) parked: bool,
}

/// A server with disks for [`Server::run_on`], and nothing parked.
pub(crate) const LARGE_DISKS: &str = "parked = 0\n[large_disks]\ncount = 2\nbytes = 1073741824\ninodes = 20000\n";

/// The release binary beside which the static ones lie.
fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_bailey"))
}

impl Server {
    pub(crate) async fn start(parked: usize) -> anyhow::Result<Self> {
        let data = tempfile::tempdir().context("make a data folder")?;
        Self::start_on(data, &format!("parked = {parked}\n")).await
    }

    /// With this configuration, on data that may be there already.
    pub(crate) async fn start_on(data: tempfile::TempDir, settings: &str) -> anyhow::Result<Self> {
        let config = data.path().join("config.toml");
        std::fs::write(&config, settings).context("write the configuration")?;
        let mut process = Command::new(binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&config)
            .arg("--data")
            .arg(data.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start `bailey serve`")?;
        let stdout = process.stdout.take().context("the server has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let url = loop {
            let line = lines.next_line().await?.context("the server ended before it listened")?;
            if let Some(url) = line.strip_prefix("listening on ") {
                break url.to_owned();
            }
        };
        let client = reqwest::Client::new();
        let mut server = Self { process, url, token: String::new(), client, data };
        server.token = server.token_of("bench").await?;
        Ok(server)
    }

    /// A token of one more tenant's user.
    pub(crate) async fn token_of(&self, tenant: &str) -> anyhow::Result<String> {
        let token = Command::new(binary())
            .args(["token", "--tenant", tenant, "--user", "bench", "--role", "member", "--data"])
            .arg(self.data.path().join("data"))
            .output()
            .await
            .context("ask for a token")?;
        ensure!(token.status.success(), "no token: {}", String::from_utf8_lossy(&token.stderr));
        Ok(String::from_utf8(token.stdout)?.trim().to_owned())
    }

    /// Puts a tar archive into a folder of the tenant's tree.
    pub(crate) async fn extract(&self, folder: &str, tar: Vec<u8>) -> anyhow::Result<()> {
        let below = if folder.is_empty() { String::new() } else { format!("/{folder}") };
        let url = format!("{}/v1/tree/tenants/bench{below}?extract=tar", self.url);
        let response = self.client.put(url).bearer_auth(&self.token).body(tar).send().await?;
        ensure!(response.status().is_success(), "{}: {}", response.status(), response.text().await?);
        Ok(())
    }

    /// A new branch of the tenant's tree.
    pub(crate) async fn fork(&self, branch: &str) -> anyhow::Result<()> {
        let body = json!({ "path": "/tenants/bench", "branch": branch });
        let request = self.client.post(format!("{}/v1/forks", self.url)).bearer_auth(&self.token);
        let response = request.json(&body).send().await?;
        ensure!(response.status().is_success(), "{}: {}", response.status(), response.text().await?);
        Ok(())
    }

    /// One run, from the request's first byte to the last event.
    pub(crate) async fn run(&self, command: &[&str], mount: Option<(&str, &str)>) -> anyhow::Result<Run> {
        let mounts = mount.map(|(folder, at)| json!({ "path": format!("/tenants/bench/{folder}"), "at": at }));
        let body = json!({ "command": command, "mounts": Vec::from_iter(mounts) });
        match self.try_run(&self.token, &body).await? {
            Some((Ending::Exited { code }, parked)) => Ok(Run { code, parked }),
            Some((ending, _)) => bail!("ended: {ending:?}"),
            None => bail!("the server has no room for a run"),
        }
    }

    /// A run of `true` with so large a disk and a little memory.
    pub(crate) async fn run_on(&self, disk_bytes: u64) -> anyhow::Result<()> {
        let limits = json!({ "memory_bytes": 256 << 20, "disk_bytes": disk_bytes, "disk_inodes": 20_000 });
        let ending = self.try_run(&self.token, &json!({ "command": ["true"], "limits": limits })).await?;
        ensure!(matches!(ending, Some((Ending::Exited { code: 0 }, false))), "{ending:?}");
        Ok(())
    }

    /// A run of that token's user: how it ended and whether it was parked; nothing if it was refused for want of room.
    pub(crate) async fn try_run(
        &self,
        token: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<Option<(Ending, bool)>> {
        let request = self.client.post(format!("{}/v1/runs", self.url)).bearer_auth(token);
        let response = request.json(body).send().await?;
        if [429, 503].contains(&response.status().as_u16()) {
            ensure!(response.headers().contains_key("retry-after"), "a refusal without `Retry-After`");
            return Ok(None);
        }
        ensure!(response.status().is_success(), "{}: {}", response.status(), response.text().await?);
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            body.extend_from_slice(&chunk?);
        }
        let mut was_parked = false;
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: RunEvent = serde_json::from_slice(line)?;
            match event.kind {
                RunEventKind::Started { parked, .. } => was_parked = parked,
                RunEventKind::Stdout(_) | RunEventKind::Stderr(_) => {}
                RunEventKind::Ended(result) => return Ok(Some((result.ending, was_parked))),
                RunEventKind::Failed { error, message, .. } => bail!("{error}: {message}"),
            }
        }
        bail!("the stream broke off without an ending")
    }

    /// The command line of the server's one user.
    pub(crate) fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(binary());
        command.env("BAILEY_URL", &self.url).env("BAILEY_TOKEN", &self.token);
        command
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Its process, the jail's.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// Ends it, and gives its data back.
    pub(crate) async fn stop(mut self) -> anyhow::Result<tempfile::TempDir> {
        let id = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        let id = id.context("the server is gone already")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM).context("end the server")?;
        let status = self.process.wait().await?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(self.data)
    }
}
