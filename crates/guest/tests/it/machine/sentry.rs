//! The guest as PID 1 of gVisor: the template as a folder, the stream on standard input and output.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::Empty;
use serde_json::json;
use tempfile::TempDir;

use super::qemu::template_folder;
use crate::guest::Client;

/// How long a start may take, on a host that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);

/// What PID 1 keeps.
const CAPABILITIES: [&str; 11] = [
    "CAP_SYS_ADMIN",
    "CAP_SYS_CHROOT",
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_MKNOD",
];

/// A running gVisor; it ends when this is dropped.
pub(crate) struct Sentry {
    client: Client,
    process: Child,
    bundle: TempDir,
}

impl Deref for Sentry {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Sentry {
    /// A parked one.
    pub(crate) async fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let bundle = TempDir::new().unwrap();
        let kinds = [("/proc", "proc"), ("/dev", "tmpfs"), ("/tmp", "tmpfs")];
        let mounts = kinds.map(|(at, kind)| json!({ "destination": at, "type": kind, "source": kind }));
        let namespaces = ["pid", "mount", "ipc", "uts", "network"].map(|kind| json!({ "type": kind }));
        let config = json!({
            "ociVersion": "1.0.0",
            "process": {
                "user": { "uid": 0, "gid": 0 }, "cwd": "/", "env": [],
                "args": ["/run/bailey/agent", "machine", "--stdio"],
                "capabilities": { "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES },
                "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": 1024, "hard": 65_536 }],
            },
            "root": { "path": template_folder(), "readonly": true },
            "hostname": "sandbox", "mounts": mounts, "linux": { "namespaces": namespaces },
        });
        std::fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let errors = std::fs::File::create(bundle.path().join("errors")).unwrap();
        let process = Command::new("runsc")
            .arg("--root")
            .arg(bundle.path().join("state"))
            .args(["--rootless", "--network=none", "--ignore-cgroups", "run", "--bundle"])
            .arg(bundle.path())
            .arg(format!("bailey-{}-{number}", std::process::id()))
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone().unwrap())))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::from(errors))
            .spawn()
            .expect("runsc (Debian: runsc)");
        let sentry = Self { client: Client::new(ours), process, bundle };
        let health = Request::get("/health").body(Empty::new()).unwrap();
        let answer = tokio::time::timeout(PATIENCE, sentry.send(health)).await.expect("gVisor did not start");
        assert_eq!(answer.status(), 204);
        sentry
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        // With its stream the guest ends, and with it everything.
        let (end, _other) = UnixStream::pair().unwrap();
        self.client = Client::new(end);
        for _ in 0..500 {
            if self.process.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
        if std::thread::panicking() {
            let said = std::fs::read(self.bundle.path().join("errors")).unwrap_or_default();
            eprintln!("gVisor and its guest: {}", String::from_utf8_lossy(&said));
        }
    }
}
