//! A real server for the attacks: the built binaries, a data folder of its own, a free loopback port.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::host::{self, Process};
use crate::http::{self, Reply, Request};

/// Starts the server as a careless operator would: with 50 descriptors left open that anything below inherits, and
/// so that it cannot outlive the thread that started it.
const CARELESS: &str = r#"
for number in $(seq 10 58); do eval "exec $number</etc/shadow"; done
exec 59</root
exec setpriv --pdeathsig TERM "$@"
"#;

/// Configuration of every server here: runs that go on at the end are not waited for long.
pub(crate) const BRISK: &str = "drain_seconds = 2\n";

/// Descriptor numbers that [`CARELESS`] leaves open.
pub(crate) const LEAKED: std::ops::RangeInclusive<u32> = 10..=59;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) folder: PathBuf,
    /// The supervisor, `bailey-jail`.
    pub(crate) jail: Process,
    process: Mutex<std::process::Child>,
}

/// Someone with a token.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) tenant: String,
    pub(crate) token: String,
}

impl User {
    /// A path in the user's own tree.
    pub(crate) fn path(&self, below: &str) -> String {
        format!("/tenants/{}/{below}", self.tenant)
    }
}

/// A folder of this test process, which the next one removes.
pub(crate) fn scratch() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        for old in std::fs::read_dir(parent).expect("the tests' folder").filter_map(Result::ok) {
            let name = old.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix("hostile-")).and_then(|pid| pid.parse().ok());
            if pid.is_some_and(|pid| !Process(pid).alive()) {
                // Another test process may be removing it, too.
                std::fs::remove_dir_all(old.path()).ok();
            }
        }
        let folder = parent.join(format!("hostile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for this test process");
        folder
    };
    FOLDER.get_or_init(make).clone()
}

/// The template cache that all servers of this host share.
pub(crate) fn cache() -> PathBuf {
    std::env::var_os("BAILEY_CACHE").map_or_else(|| PathBuf::from("/var/cache/bailey"), PathBuf::from)
}

/// `bailey` with the static programs that belong to it beside it, as `make build` lays them out.
pub(crate) fn binary() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let folder = scratch().join("bin");
        std::fs::create_dir_all(&folder).expect("a folder for the programs");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
        let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let built = std::env::var_os("BAILEY_STATIC_DIR")
            .map_or_else(|| target.join("static").join(host).join("static"), PathBuf::from);
        let programs =
            [PathBuf::from(env!("CARGO_BIN_EXE_bailey")), built.join("bailey-jail"), built.join("bailey-guest")];
        for program in programs {
            let name = program.file_name().expect("a name");
            std::fs::copy(&program, folder.join(name))
                .unwrap_or_else(|error| panic!("{}: {error}; `make static` builds it", program.display()));
        }
        folder.join("bailey")
    };
    FOLDER.get_or_init(make).clone()
}

/// The server that most cases share. It dies with the test process.
pub(crate) fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        let keep = move || {
            sender.send(Server::start("shared", BRISK)).expect("the test waits");
            loop {
                std::thread::park();
            }
        };
        std::thread::Builder::new().name("keeper".to_owned()).spawn(keep).expect("a thread");
        receiver.recv().expect("the server starts")
    })
}

/// Cases that only need a server run side by side; those that measure time or count what is left run alone.
static HOST: RwLock<()> = RwLock::new(());

pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    HOST.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    HOST.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Server {
    /// Starts a server in a fresh folder with this configuration.
    pub(crate) fn start(name: &str, config: &str) -> Self {
        let folder = scratch().join(name);
        std::fs::create_dir_all(&folder).expect("the server's folder");
        std::fs::write(folder.join("config.toml"), config).expect("its configuration");
        Self::start_in(&folder, &[])
    }

    /// Starts a server over what a folder holds, with further arguments and environment variables.
    pub(crate) fn start_in(folder: &Path, env: &[(&str, &str)]) -> Self {
        Self::try_start(&binary(), folder, env).unwrap_or_else(|| {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            panic!("the server ended before it listened: {log}");
        })
    }

    /// The same by another build; nothing when it ended before it listened.
    pub(crate) fn try_start(bailey: &Path, folder: &Path, env: &[(&str, &str)]) -> Option<Self> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("its log");
        let mut process = Command::new("bash")
            .args(["-c", CARELESS, "careless"])
            .arg(bailey)
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(folder.join("config.toml"))
            .arg("--data")
            .arg(folder.join("data"))
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("start `bailey serve`");
        let mut stdout = BufReader::new(process.stdout.take().expect("its output"));
        let mut line = String::new();
        let address = loop {
            line.clear();
            if stdout.read_line(&mut line).expect("read the server") == 0 {
                process.wait().expect("it has ended");
                return None;
            }
            if let Some(address) = line.trim().strip_prefix("listening on http://") {
                break address.parse().expect("an address");
            }
        };
        let jail = Process(i32::try_from(process.id()).expect("a pid"));
        Some(Self { address, folder: folder.to_owned(), jail, process: Mutex::new(process) })
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> Vec<u8> {
        std::fs::read(self.folder.join("log")).expect("the server's log")
    }

    /// The `bailey serve` process under the supervisor.
    pub(crate) fn serve(&self) -> Process {
        let serves = |process: &Process| process.uid() == Some(bailey_protocol::jail::SERVER_UID);
        let family = self.jail.family();
        family.into_iter().find(serves).unwrap_or_else(|| panic!("no server runs below {:?}", self.jail))
    }

    /// The supervisor.
    pub(crate) fn jail(&self) -> Process {
        self.jail
    }

    pub(crate) fn user(&self, tenant: &str, user: &str) -> User {
        let token = self.token(&["--tenant", tenant, "--user", user, "--role", "member"]);
        User { tenant: tenant.to_owned(), token }
    }

    /// A token of an operator.
    pub(crate) fn operator(&self) -> String {
        self.token(&["--operator", "root"])
    }

    fn token(&self, whose: &[&str]) -> String {
        let output = Command::new(binary())
            .args([&["token", "--ttl", "1d"], whose, &["--data"]].concat())
            .arg(self.data())
            .output()
            .expect("start `bailey token`");
        assert!(output.status.success(), "no token: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("a token is text").trim().to_owned()
    }

    /// One request, with the user's token.
    pub(crate) fn request(&self, user: &User, method: &str, target: &str, body: &[u8]) -> Reply {
        let bearer = format!("Bearer {}", user.token);
        let headers = [("Authorization", bearer.as_str()), ("Connection", "close"), content_type(body)];
        let request = Request { method, target, headers: &headers, body };
        http::send(self.address, request).unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    pub(crate) fn post(&self, user: &User, target: &str, body: &Value) -> Reply {
        self.request(user, "POST", target, body.to_string().as_bytes())
    }

    /// Writes a file into the user's tree.
    pub(crate) fn put(&self, user: &User, below: &str, content: &[u8]) {
        let target = format!("/v1/tree{}", user.path(below));
        let reply = self.request(user, "PUT", &target, content);
        assert!((200..300).contains(&reply.status), "put {target}: {}", String::from_utf8_lossy(&reply.raw));
    }

    pub(crate) fn get(&self, user: &User, below: &str) -> Reply {
        self.request(user, "GET", &format!("/v1/tree{}", user.path(below)), b"")
    }

    pub(crate) fn healthy(&self) -> bool {
        let request = Request { method: "GET", target: "/healthz", headers: &[("Connection", "close")], body: b"" };
        http::send(self.address, request).is_ok_and(|reply| reply.status == 200)
    }

    /// Sends a signal to the supervisor.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.jail, signal);
    }

    /// Ends it gracefully; whether that worked within ten seconds.
    pub(crate) fn stop(&self) -> bool {
        self.signal(Signal::TERM);
        self.wait(Duration::from_secs(10))
    }

    /// Waits for the supervisor's end.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut process = self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        host::within(time, || process.try_wait().is_ok_and(|status| status.is_some()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.stop() {
            self.signal(Signal::KILL);
            self.wait(Duration::from_secs(5));
        }
    }
}

/// Sends a signal to a process that may have ended.
pub(crate) fn kill(process: Process, signal: Signal) {
    if let Some(pid) = Pid::from_raw(process.0) {
        rustix::process::kill_process(pid, signal).ok();
    }
}

fn content_type(body: &[u8]) -> (&'static str, &'static str) {
    let json = body.first() == Some(&b'{');
    ("Content-Type", if json { "application/json" } else { "application/octet-stream" })
}
