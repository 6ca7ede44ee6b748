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
    _data: tempfile::TempDir,
}

/// What the bench needs to know of a run.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) parked: bool,
}

/// The release binary beside which the static ones lie.
fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_bailey"))
}

impl Server {
    pub(crate) async fn start(parked: usize) -> anyhow::Result<Self> {
        let data = tempfile::tempdir().context("make a data folder")?;
        let config = data.path().join("config.toml");
        std::fs::write(&config, format!("parked = {parked}\n")).context("write the configuration")?;
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
        let token = Command::new(binary())
            .args(["token", "--tenant", "bench", "--user", "bench", "--role", "member", "--data"])
            .arg(data.path().join("data"))
            .output()
            .await
            .context("ask for a token")?;
        ensure!(token.status.success(), "no token: {}", String::from_utf8_lossy(&token.stderr));
        let token = String::from_utf8(token.stdout)?.trim().to_owned();
        Ok(Self { process, url, token, client: reqwest::Client::new(), _data: data })
    }

    /// One run, from the request's first byte to the last event.
    pub(crate) async fn run(&self, command: &[&str]) -> anyhow::Result<Run> {
        let request = self.client.post(format!("{}/v1/runs", self.url)).bearer_auth(&self.token);
        let response = request.json(&json!({ "command": command })).send().await?;
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
                RunEventKind::Ended(result) => {
                    let Ending::Exited { code } = result.ending else { bail!("ended: {:?}", result.ending) };
                    return Ok(Run { code, parked: was_parked });
                }
                RunEventKind::Failed { error, message, .. } => bail!("{error}: {message}"),
            }
        }
        bail!("the stream broke off without an ending")
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let id = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        let id = id.context("the server is gone already")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM).context("end the server")?;
        let status = self.process.wait().await?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}
