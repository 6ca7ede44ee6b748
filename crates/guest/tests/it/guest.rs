//! Starting a guest, and talking to it.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

pub(crate) type Stream = tokio_util::compat::Compat<yamux::Stream>;

/// Prepares what the jail would: a home, a place for the agent, loopback. Then becomes the guest.
const CAGE: &str = r#"
mount -t tmpfs tmpfs /home && mkdir /home/user /home/small && mount -t tmpfs -o size=1m tmpfs /home/small && chown 1000:1000 /home/user && chmod 755 /home/user &&
mount -t tmpfs -o mode=755 tmpfs /run && mkdir -m 755 /run/bailey && cp "$0" /run/bailey/agent &&
mount -t tmpfs -o mode=1777 tmpfs /tmp &&
mkdir -m 755 /run/bin && ln -s ../bailey/agent /run/bin/sudo &&
ip link set lo up &&
exec 3<&0 4<&1 0</dev/null 1>/dev/null && exec env -i
"#;
const PLAIN: &str = " /run/bailey/agent init";
/// As a kernel, or a jail's filter, that answers one call with an error: its number, the first argument if only that
/// one counts, the error.
fn refusing(number: i64, first: Option<u32>, errno: u16) -> String {
    let argument = first.map_or(String::new(), |first| format!("(0x20, 0, 0, 16), (0x15, 0, 1, {first}), "));
    let rest = 1 + 2 * u32::from(first.is_some());
    format!(
        r#" python3 -c '
import ctypes, os, struct
libc = ctypes.CDLL(None)
code = b"".join(struct.pack("HBBI", *i) for i in [(0x20, 0, 0, 0), (0x15, 0, {rest}, {number}), {argument}(6, 0, 0, 0x50000 | {errno}), (6, 0, 0, 0x7fff0000)])
buffer = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
for fd in (3, 4): os.set_inheritable(fd, True)
os.execve("/run/bailey/agent", ["bailey-guest", "init"], {{}})'"#
    )
}

/// The node's end of a guest's stream.
pub(crate) struct Client {
    open: mpsc::Sender<oneshot::Sender<Stream>>,
}

/// A running guest; everything of it ends when this is dropped.
pub(crate) struct Guest {
    process: Child,
    client: Client,
    pub(crate) cgroup: PathBuf,
}

impl Deref for Guest {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Where this machine has its cgroup 2 mount.
fn cgroup2() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).map(|l| l.split(' ').nth(1).unwrap().into())
}

/// The binary under test: `BAILEY_GUEST_BINARY` if set (the static one, say), else the one built for the tests.
pub(crate) fn binary() -> std::ffi::OsString {
    std::env::var_os("BAILEY_GUEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_bailey-guest").into())
}

/// What the suite cannot do without; a test that could not run has not passed.
pub(crate) fn required() {
    assert!(rustix::process::geteuid().is_root() && cgroup2().is_some(), "needs root and a cgroup 2 mount");
}

impl Client {
    /// Takes the stream over.
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::UnixStream::from_std(stream).unwrap();
        let (open, requests) = mpsc::channel(8);
        tokio::spawn(drive(stream, requests));
        Self { open }
    }

    pub(crate) async fn stream(&self, header: &str) -> Stream {
        let (sender, receiver) = oneshot::channel();
        self.open.send(sender).await.unwrap();
        let mut stream = receiver.await.unwrap();
        stream.write_all(header.as_bytes()).await.unwrap();
        stream
    }

    pub(crate) async fn send<B>(&self, request: Request<B>) -> Response<Incoming>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let stream = self.stream("agent\n").await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response<Incoming> {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request.body(Full::from(body.to_string())).unwrap()).await
    }

    /// Calls a method with one answer: status and body.
    pub(crate) async fn call(&self, method: &str, body: &Value) -> (u16, Value) {
        let answer = self.post(method, body).await;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Calls a method that streams its answers.
    pub(crate) async fn call_stream(&self, method: &str, body: &Value, headers: &[(&str, &str)]) -> Events {
        let text = body.to_string();
        let length = u32::try_from(text.len()).unwrap();
        let bytes = [&[0][..], &length.to_be_bytes(), text.as_bytes()].concat();
        let mut request = Request::post(method).header("content-type", "application/connect+json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.send(request.body(Full::from(bytes)).unwrap()).await;
        assert_eq!(answer.status(), 200);
        Events { body: answer.into_body(), pending: Vec::new() }
    }

    pub(crate) async fn start_exec(&self, process: &Value, headers: &[(&str, &str)]) -> Events {
        self.call_stream("/process.Process/Start", process, headers).await
    }

    /// Runs a shell command to its end.
    pub(crate) async fn shell(&self, script: &str) -> Outcome {
        self.shell_as(script, "user").await
    }

    pub(crate) async fn shell_as(&self, script: &str, user: &str) -> Outcome {
        let start = json!({ "process": { "cmd": "/bin/bash", "args": ["-c", script] }, "stdin": false });
        let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:")));
        self.start_exec(&start, &[("authorization", &basic)]).await.outcome().await
    }
}

impl Guest {
    /// A parked guest.
    pub(crate) fn park() -> Self {
        Self::park_by(PLAIN)
    }

    /// A parked guest that cannot use `clone3`.
    pub(crate) fn park_without_clone3() -> Self {
        Self::park_by(&refusing(435, None, 38))
    }

    /// A parked guest for which a call is answered by "not permitted".
    pub(crate) fn park_refusing(number: i64, first: Option<u32>) -> Self {
        Self::park_by(&refusing(number, first, 1))
    }

    fn park_by(last: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let cgroup = cgroup2().unwrap().join(format!("bailey-guest-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&cgroup).unwrap();
        let folder = std::fs::File::open(&cgroup).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = Command::new("unshare")
            .args(["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", &format!("{}{last}", CAGE.trim_end())])
            .arg(binary())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(OwnedFd::from(folder)))
            .spawn()
            .unwrap();
        Self { process, client: Client::new(ours), cgroup }
    }

    /// A guest after `/init`.
    pub(crate) async fn start(root: bool) -> Self {
        let guest = Self::park();
        let answer = guest.post("/init", &init_request(root)).await;
        assert_eq!(answer.status(), 200, "{:?}", answer.into_body());
        guest
    }

    /// The groups below the guest's own.
    pub(crate) fn groups(&self) -> usize {
        let entries = std::fs::read_dir(&self.cgroup).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir()).count()
    }
}

pub(crate) fn init_request(root: bool) -> Value {
    json!({ "generation": 1, "env": { "FROM_INIT": "1" }, "mounts": [], "root": root, "open_files": 512 })
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
        for entry in std::fs::read_dir(&self.cgroup).into_iter().flatten().flatten() {
            let _files_too = std::fs::write(entry.path().join("cgroup.kill"), "1");
        }
        for _ in 0..100 {
            for entry in std::fs::read_dir(&self.cgroup).into_iter().flatten().flatten() {
                let _files_too = std::fs::remove_dir(entry.path());
            }
            if std::fs::remove_dir(&self.cgroup).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("left behind: {}", self.cgroup.display());
    }
}

async fn drive(stream: tokio::net::UnixStream, mut requests: mpsc::Receiver<oneshot::Sender<Stream>>) {
    let mut connection = yamux::Connection::new(stream.compat(), yamux::Config::default(), yamux::Mode::Client);
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(answer) => {
                    let opened = std::future::poll_fn(|cx| connection.poll_new_outbound(cx)).await;
                    if let Ok(stream) = opened {
                        let _given_up = answer.send(stream.compat());
                    }
                }
                None => return,
            },
            inbound = std::future::poll_fn(|cx| connection.poll_next_inbound(cx)) => match inbound {
                Some(Ok(_)) => {}
                _ => return,
            },
        }
    }
}

/// Messages of a streaming answer.
pub(crate) struct Events {
    body: Incoming,
    pending: Vec<u8>,
}

/// All of an exec's output, and how it ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) pid: i64,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) end: Value,
    pub(crate) error: Value,
}

impl Outcome {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn code(&self) -> i64 {
        self.end["exitCode"].as_i64().unwrap_or_else(|| panic!("no exit code: {self:?}"))
    }
}

impl Events {
    /// The next message: whether it is the last, and its JSON.
    pub(crate) async fn next(&mut self) -> Option<(bool, Value)> {
        loop {
            if let Some((&[flags, a, b, c, d], rest)) = self.pending.split_first_chunk::<5>() {
                let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap();
                if rest.len() >= length {
                    let value = serde_json::from_slice(&rest[..length]).unwrap();
                    self.pending.drain(..5 + length);
                    return Some((flags & 2 != 0, value));
                }
            }
            let frame = self.body.frame().await?.unwrap();
            self.pending.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// The process id of the start event, which comes first.
    pub(crate) async fn pid(&mut self) -> i64 {
        let (last, message) = self.next().await.unwrap();
        assert!(!last, "{message}");
        message["event"]["start"]["pid"].as_i64().unwrap()
    }

    /// Reads to the end and checks the order: start, data, end, last.
    pub(crate) async fn outcome(mut self) -> Outcome {
        let mut outcome = Outcome::default();
        let (last, first) = self.next().await.unwrap();
        if last {
            outcome.error = first["error"].clone();
            return outcome;
        }
        outcome.pid = first["event"]["start"]["pid"].as_i64().unwrap();
        self.rest(&mut outcome).await;
        outcome
    }

    pub(crate) async fn rest(&mut self, outcome: &mut Outcome) {
        while let Some((last, message)) = self.next().await {
            if last {
                outcome.error = message["error"].clone();
                assert!(self.next().await.is_none());
                return;
            }
            assert!(outcome.end.is_null(), "after the end: {message}");
            let event = &message["event"];
            let decode = |value: &Value| base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap());
            if let Some(end) = event.get("end") {
                outcome.end = end.clone();
            } else if let Some(bytes) = event["data"].get("stdout").or_else(|| event["data"].get("pty")) {
                outcome.stdout.extend(decode(bytes).unwrap());
            } else if let Some(bytes) = event["data"].get("stderr") {
                outcome.stderr.extend(decode(bytes).unwrap());
            }
        }
        panic!("the stream ended early: {outcome:?}");
    }
}
