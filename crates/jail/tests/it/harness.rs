//! Starting a jail and talking to it.

use std::fs::File;
use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bailey_protocol::id::{SandboxId, ShareTag, TemplateDigest};
use bailey_protocol::jail::{
    CageMount, JailAnswer, JailFault, JailOp, JailReply, JailRequest, Profile, StopFacts, SupervisorConfig,
    TemplateImage,
};
use bailey_protocol::limits::{Limits, MAX_JAIL_MESSAGE};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The guest stand-in and a small template, made once per test run.
pub(crate) struct Fixture {
    _folder: Option<TempDir>,
    pub(crate) guest: PathBuf,
    pub(crate) guest_sha256: String,
    pub(crate) image: PathBuf,
    pub(crate) digest: TemplateDigest,
    /// With a program that isolates by itself, or so it says.
    pub(crate) program: TemplateImage,
}

pub(crate) fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| match std::env::var_os("BAILEY_JAIL_FIXTURE") {
        // In a machine without a compiler.
        Some(folder) => find_fixture(Path::new(&folder), None),
        None => make_fixture(),
    })
}

fn make_fixture() -> Fixture {
    let folder = TempDir::new().unwrap();
    let guest = folder.path().join("guest");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/guest.c");
    run(Command::new("gcc").args(["-O1", "-static", "-o"]).arg(&guest).arg(source));
    let root = folder.path().join("root");
    for name in ["bin", "dev", "proc", "tmp", "data", "etc", "home/user", "run/bailey", "usr/bin"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("run/bailey/agent"), "").unwrap();
    std::fs::write(root.join("etc/marker"), "template\n").unwrap();
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    run(Command::new("/bin/busybox").args(["--install", "-s"]).arg(root.join("bin")).stdout(Stdio::null()));
    for entry in std::fs::read_dir(root.join("bin")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            std::fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("busybox", &path).unwrap();
        }
    }
    std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
    let image = folder.path().join("image");
    run(Command::new("mkfs.erofs").arg("--all-root").arg(&image).arg(&root).stdout(Stdio::null()));
    make_program(folder.path());
    let at = folder.path().to_path_buf();
    find_fixture(&at, Some(folder))
}

/// An image with `/probe`, and what else it may try to execute.
fn make_program(folder: &Path) {
    let root = folder.join("program-root");
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/marker"), "image\n").unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/probe.c");
    run(Command::new("gcc").args(["-O1", "-static", "-pthread", "-o"]).arg(root.join("probe")).arg(source));
    std::fs::copy("/bin/busybox", root.join("busybox")).unwrap();
    std::os::unix::fs::symlink("/probe", root.join("link")).unwrap();
    run(Command::new("mkfs.erofs").arg("--all-root").arg(folder.join("program")).arg(&root).stdout(Stdio::null()));
}

fn find_fixture(at: &Path, folder: Option<TempDir>) -> Fixture {
    let (guest, image) = (at.join("guest"), at.join("image"));
    let (guest_sha256, digest) = (hash(&guest), hash(&image).parse().unwrap());
    let program = image_of(&at.join("program"));
    Fixture { guest, guest_sha256, image, digest, program, _folder: folder }
}

fn hash(path: &Path) -> String {
    Sha256::digest(std::fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An image by its hash.
pub(crate) fn image_of(path: &Path) -> TemplateImage {
    TemplateImage { digest: hash(path).parse().unwrap(), image: path.to_owned() }
}

pub(crate) fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// A running jail, attached.
pub(crate) struct Jail {
    pub(crate) process: Child,
    socket: Option<OwnedFd>,
    last_id: u64,
}

/// A cage with a program that was launched.
pub(crate) struct Launched {
    pub(crate) sandbox: SandboxId,
    pub(crate) fences: Vec<String>,
    pub(crate) pidfd: OwnedFd,
}

impl Launched {
    /// The program's number on the host.
    pub(crate) fn pid(&self) -> i32 {
        pid_of(&self.pidfd)
    }
}

fn pid_of(pidfd: &OwnedFd) -> i32 {
    use std::os::fd::AsRawFd;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).unwrap();
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap();
    pid.trim().parse().unwrap()
}

/// A parked cage.
pub(crate) struct Parked {
    pub(crate) sandbox: SandboxId,
    pub(crate) fences: Vec<String>,
    pub(crate) agent: Agent,
    pub(crate) pidfd: OwnedFd,
}

impl Parked {
    /// PID 1's number on the host.
    pub(crate) fn pid(&self) -> i32 {
        pid_of(&self.pidfd)
    }
}

pub(crate) fn config(data: &Path) -> SupervisorConfig {
    let fixture = fixture();
    SupervisorConfig {
        data: data.to_owned(),
        guest_binary: fixture.guest.clone(),
        guest_sha256: fixture.guest_sha256.clone(),
        templates: vec![TemplateImage { digest: fixture.digest.clone(), image: fixture.image.clone() }],
        images: vec![fixture.program.clone()],
        large_disks: None,
        server: None,
    }
}

impl Jail {
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(&config(data), "")
    }

    /// Starts a jail after some shell commands in the process that becomes it.
    pub(crate) fn start_with(config: &SupervisorConfig, before: &str) -> Self {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let memfd = rustix::fs::memfd_create("config", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut memfd = File::from(memfd);
        memfd.write_all(&serde_json::to_vec(config).unwrap()).unwrap();
        // The two descriptors travel as stdin and stdout, so that no other child of this process sees them.
        let script = format!("exec 3<&0 4<&1 </dev/null >&2; {before}\nexec \"$0\" 4");
        let process = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_bailey-jail")])
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(OwnedFd::from(memfd)))
            .spawn()
            .unwrap();
        Self { process, socket: Some(ours), last_id: 0 }
    }

    pub(crate) fn send(&mut self, op: JailOp, descriptors: &[&OwnedFd]) -> u64 {
        self.last_id += 1;
        let request = JailRequest { id: self.last_id, op };
        self.send_raw(&serde_json::to_vec(&request).unwrap(), descriptors);
        self.last_id
    }

    /// Sends to a jail that may have refused at its start, and be gone already: then there is no answer.
    pub(crate) fn send_if_there(&mut self, op: JailOp) {
        self.last_id += 1;
        let request = JailRequest { id: self.last_id, op };
        let sent = self.try_send(&serde_json::to_vec(&request).unwrap(), &[]);
        assert!(matches!(sent, Ok(()) | Err(rustix::io::Errno::PIPE)), "{sent:?}");
    }

    pub(crate) fn send_raw(&self, bytes: &[u8], descriptors: &[&OwnedFd]) {
        self.try_send(bytes, descriptors).unwrap();
    }

    fn try_send(&self, bytes: &[u8], descriptors: &[&OwnedFd]) -> Result<(), rustix::io::Errno> {
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
        }
        let socket = self.socket.as_ref().unwrap();
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
    }

    pub(crate) fn receive(&self) -> Option<(JailReply, Vec<OwnedFd>)> {
        let socket = self.socket.as_ref().unwrap();
        let mut bytes = vec![0; MAX_JAIL_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let timeout = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        let mut wait = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut wait, Some(&timeout)).unwrap(), 1, "the jail does not answer");
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(rustix::io::Errno::CONNRESET) => return None,
            other => other.unwrap(),
        };
        if got.bytes == 0 {
            return None;
        }
        let mut descriptors = Vec::new();
        for entry in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = entry {
                descriptors.extend(rights);
            }
        }
        Some((serde_json::from_slice(bytes.get(..got.bytes).unwrap()).unwrap(), descriptors))
    }

    pub(crate) fn call(
        &mut self,
        op: JailOp,
        descriptors: &[&OwnedFd],
    ) -> (Result<JailAnswer, JailFault>, Vec<OwnedFd>) {
        let id = self.send(op, descriptors);
        let (reply, rights) = self.receive().expect("the jail has closed its socket");
        assert_eq!(reply.id, id);
        (reply.result, rights)
    }

    pub(crate) fn park(&mut self) -> Parked {
        self.park_with(Limits::default())
    }

    pub(crate) fn park_with(&mut self, limits: Limits) -> Parked {
        let sandbox = new_sandbox();
        let op = JailOp::Park { sandbox: sandbox.clone(), template: fixture().digest.clone(), limits };
        let (answer, mut rights) = self.call(op, &[]);
        let JailAnswer::Parked { fences } = answer.unwrap() else { panic!("another answer") };
        assert_eq!(rights.len(), 2);
        let pidfd = rights.pop().unwrap();
        let agent = Agent::new(UnixStream::from(rights.pop().unwrap()));
        Parked { sandbox, fences, agent, pidfd }
    }

    /// Launches a program of the fixture's image.
    pub(crate) fn launch(&mut self, command: &[&str], descriptors: &[&OwnedFd]) -> Launched {
        let image = &fixture().program.digest;
        self.launch_as(&launch_op(image, Profile::Vmm, command, Limits::default()), descriptors)
    }

    pub(crate) fn launch_as(&mut self, op: &JailOp, descriptors: &[&OwnedFd]) -> Launched {
        let JailOp::Launch { sandbox, .. } = op else { panic!("{op:?}") };
        let (answer, mut rights) = self.call(op.clone(), descriptors);
        let JailAnswer::Parked { fences } = answer.unwrap() else { panic!("another answer") };
        assert_eq!(rights.len(), 1);
        Launched { sandbox: sandbox.clone(), fences, pidfd: rights.pop().unwrap() }
    }

    pub(crate) fn claim(&mut self, sandbox: &SandboxId, limits: Limits, mounts: &[(&str, bool, &Path)]) {
        let result = self.try_claim(sandbox, limits, mounts);
        assert_eq!(result, Ok(JailAnswer::Claimed {}));
    }

    /// Claims a cage with no mounts for someone.
    pub(crate) fn claim_for(&mut self, sandbox: &SandboxId, share: &ShareTag, limits: Limits) {
        let op = JailOp::Claim { sandbox: sandbox.clone(), share: share.clone(), limits, mounts: Vec::new() };
        assert_eq!(self.call(op, &[]).0, Ok(JailAnswer::Claimed {}));
    }

    pub(crate) fn try_claim(
        &mut self,
        sandbox: &SandboxId,
        limits: Limits,
        mounts: &[(&str, bool, &Path)],
    ) -> Result<JailAnswer, JailFault> {
        let lowers: Vec<OwnedFd> = mounts.iter().map(|(_, _, lower)| open_path(lower)).collect();
        let mounts = mounts.iter().map(|(at, writable, _)| CageMount { at: at.parse().unwrap(), writable: *writable });
        let op = JailOp::Claim { sandbox: sandbox.clone(), share: share('0'), limits, mounts: mounts.collect() };
        self.call(op, &lowers.iter().collect::<Vec<_>>()).0
    }

    pub(crate) fn stop(&mut self, sandbox: &SandboxId) -> StopFacts {
        match self.call(JailOp::Stop { sandbox: sandbox.clone() }, &[]).0 {
            Ok(JailAnswer::Stopped { facts }) => facts,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn collect(&mut self, sandbox: &SandboxId, mount: u32) -> String {
        let (answer, mut rights) = self.call(JailOp::Collect { sandbox: sandbox.clone(), mount }, &[]);
        assert_eq!(answer, Ok(JailAnswer::Collecting {}));
        let mut text = String::new();
        File::from(rights.pop().unwrap()).read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn destroy(&mut self, sandbox: &SandboxId) {
        assert_eq!(self.call(JailOp::Destroy { sandbox: sandbox.clone() }, &[]).0, Ok(JailAnswer::Destroyed {}));
    }

    /// Closes the socket and waits for the jail's orderly end.
    pub(crate) fn leave(mut self) {
        self.socket = None;
        assert_eq!(self.wait(), Some(0));
    }

    /// Leaves, and returns the exit code: a jail that was to refuse but did not says 0.
    pub(crate) fn wait_for_refusal(&mut self) -> Option<i32> {
        self.socket = None;
        self.wait()
    }

    /// Waits for the jail's end; its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }

    /// Sends the jail itself a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        self.socket = None;
        // A test that failed: the jail goes by itself, and must not outlive the test.
        drop(self.process.wait());
    }
}

/// A request for a program in a new cage.
pub(crate) fn launch_op(image: &TemplateDigest, profile: Profile, command: &[&str], limits: Limits) -> JailOp {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    JailOp::Launch { sandbox: new_sandbox(), image: image.clone(), profile, command, limits }
}

/// Someone, told from others by a hex digit.
pub(crate) fn share(digit: char) -> ShareTag {
    digit.to_string().repeat(32).parse().unwrap()
}

pub(crate) fn open_path(path: &Path) -> OwnedFd {
    use rustix::fs::{Mode, OFlags, open};
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

pub(crate) fn new_sandbox() -> SandboxId {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut random = [0; 10];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).unwrap();
    SandboxId::mint(COUNT.fetch_add(1, Ordering::Relaxed), random)
}

/// The connection to the guest stand-in.
pub(crate) struct Agent(BufReader<UnixStream>);

impl Agent {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(BufReader::new(stream))
    }

    /// Starts a command without waiting for it.
    pub(crate) fn start(&mut self, command: &str) {
        assert!(!command.contains('\n'));
        self.0.get_mut().write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// Runs a command as PID 1 would: output and exit code (1000 and a signal's number when it was killed).
    pub(crate) fn run(&mut self, command: &str) -> (String, i32) {
        self.start(command);
        let mut output = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the guest is gone: {output}");
            if let Some(code) = line.strip_prefix("#END ") {
                output.pop();
                return (output, code.trim().parse().unwrap());
            }
            output.push_str(&line);
        }
    }

    /// Output of a command that must succeed.
    pub(crate) fn get(&mut self, command: &str) -> String {
        let (output, code) = self.run(command);
        assert_eq!(code, 0, "{command}: {output}");
        output
    }
}
