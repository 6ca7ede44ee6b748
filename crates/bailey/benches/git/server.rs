//! A release server with a temporary data folder, for git clients.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

pub(crate) struct Server {
    process: Child,
    url: String,
    token: String,
    data: tempfile::TempDir,
}

fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_bailey"))
}

impl Server {
    pub(crate) fn start(parked: usize) -> anyhow::Result<Self> {
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
            .spawn()
            .context("start `bailey serve`")?;
        let stdout = process.stdout.take().context("the server has no stdout")?;
        let mut server = Self { process, url: String::new(), token: String::new(), data };
        for line in BufReader::new(stdout).lines() {
            if let Some(url) = line?.strip_prefix("listening on ") {
                url.clone_into(&mut server.url);
                break;
            }
        }
        ensure!(!server.url.is_empty(), "the server ended before it listened");
        Ok(server)
    }

    /// The address of one user's repository, `bench/users/NAME`; that user's token is used from now on.
    pub(crate) fn url(&mut self, repo: &str) -> anyhow::Result<String> {
        let user = repo.rsplit('/').next().unwrap_or(repo);
        let token = Command::new(binary())
            .args(["token", "--tenant", "bench", "--user", user, "--role", "member", "--data"])
            .arg(self.data.path().join("data"))
            .output()
            .context("ask for a token")?;
        ensure!(token.status.success(), "no token: {}", String::from_utf8_lossy(&token.stderr));
        String::from_utf8(token.stdout)?.trim().clone_into(&mut self.token);
        Ok(format!("{}/git/{repo}.git", self.url))
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Where the repository lies.
    pub(crate) fn folder(&self, repo: &str) -> PathBuf {
        self.data.path().join("data/serve/trees").join(format!("{repo}.git"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id
            && rustix::process::kill_process(id, rustix::process::Signal::TERM).is_ok()
        {
            drop(self.process.wait());
        }
    }
}
