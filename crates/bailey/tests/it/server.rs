//! A server for one test, and the command line against it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

/// The binary under test.
pub(crate) fn bailey() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bailey"));
    // A home without configuration, and nothing of the developer's environment.
    command.env_remove("BAILEY_URL").env_remove("BAILEY_TOKEN").env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

/// A running server. Ended, and waited for, when dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    folder: tempfile::TempDir,
    process: Child,
}

/// A user's command line.
pub(crate) struct User {
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), "parked = 1\n")
    }

    /// Over what an earlier server left in the folder.
    pub(crate) fn start_in(folder: tempfile::TempDir, config: &str) -> Self {
        std::fs::write(folder.path().join("config.toml"), config).unwrap();
        let mut process = Self::command(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next();
        let Some(Ok(line)) = line else {
            process.wait().unwrap();
            panic!("the server ended before it listened: {}", log(folder.path()));
        };
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        // Nobody reads the rest, and nobody may wait for that.
        std::thread::spawn(move || lines.for_each(drop));
        Self { url, folder, process }
    }

    /// `bailey serve` over a folder, not started.
    pub(crate) fn command(folder: &Path) -> Command {
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
        // Ends with the thread that starts it, should the test be killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", env!("CARGO_BIN_EXE_bailey"), "serve", "--listen", "127.0.0.1:0"]);
        command.arg("--config").arg(folder.join("config.toml")).arg("--data").arg(folder.join("data"));
        command.stdin(Stdio::null()).stderr(log);
        command
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn log(&self) -> String {
        log(self.folder.path())
    }

    /// The supervisor, which `bailey serve` became.
    pub(crate) fn jail_pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// The server itself, which the supervisor started.
    pub(crate) fn pid(&self) -> Pid {
        let parent = format!("PPid:\t{}\n", self.jail_pid().as_raw_nonzero());
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        processes
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .find(|pid| {
                let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
                read("status").contains(&parent) && read("cmdline").contains("--supervised")
            })
            .and_then(Pid::from_raw)
            .unwrap()
    }

    pub(crate) fn user(&self, tenant: &str, name: &str) -> User {
        self.holder(&["--tenant", tenant, "--user", name, "--role", "member"])
    }

    pub(crate) fn admin(&self, tenant: &str, name: &str) -> User {
        self.holder(&["--tenant", tenant, "--user", name, "--role", "admin"])
    }

    pub(crate) fn operator(&self) -> User {
        self.holder(&["--operator", "root"])
    }

    /// Whoever such a token speaks for.
    pub(crate) fn holder(&self, spec: &[&str]) -> User {
        let output = bailey().arg("token").args(spec).arg("--data").arg(self.data()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        User { url: self.url.clone(), token: text(&output.stdout).trim().to_owned() }
    }

    /// Sends a signal to the supervisor and waits for its end.
    pub(crate) fn end(mut self, signal: Signal) -> (ExitStatus, tempfile::TempDir) {
        rustix::process::kill_process(self.jail_pid(), signal).unwrap();
        let status = self.process.wait().unwrap();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        (status, folder)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.try_wait().unwrap().is_none() {
            rustix::process::kill_process(self.jail_pid(), Signal::TERM).unwrap();
            self.process.wait().unwrap();
        }
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}

impl User {
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bailey();
        command.args(arguments).env("BAILEY_URL", &self.url).env("BAILEY_TOKEN", &self.token);
        command
    }

    /// The same user with another server.
    pub(crate) fn at(&self, server: &Server) -> Self {
        Self { url: server.url.clone(), token: self.token.clone() }
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The same as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        serde_json::from_str(&self.ok(&all)).unwrap()
    }

    /// Standard error of a command that must end with this code.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    /// Writes text to a path of the tree.
    pub(crate) fn put(&self, path: &str, content: &str) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, content.as_bytes()).unwrap();
        self.ok(&["put", file.path().to_str().unwrap(), path])
    }

    /// A run that has printed `there` and goes on.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap_or_else(|error| {
            let output = child.wait().unwrap();
            let mut said = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
            panic!("{arguments:?}: {error}, {output}: {said}")
        });
        assert_eq!(&first, b"there\n");
        child
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// Waits for something that other processes bring about.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let (_never, wait) = std::sync::mpsc::channel::<()>();
    for _ in 0..300 {
        if holds() {
            return;
        }
        assert!(wait.recv_timeout(Duration::from_millis(100)).is_err());
    }
    panic!("not within 30 s: {what}");
}

/// Whether any process on this host has the text among its arguments.
pub(crate) fn runs(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}
