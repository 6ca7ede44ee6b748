//! A machine that QEMU interprets, so that no KVM is needed: Debian's cloud kernel, the guest as its first program, a
//! template of busybox and bash, the stream on a serial port.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::Empty;
use tempfile::TempDir;

use super::archive::{Archive, libraries};
use super::kernel::Package;
use crate::guest::{Client, binary};

/// In an order in which they load.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_mmio.ko",
    "drivers/char/virtio_console.ko",
    "drivers/block/virtio_blk.ko",
    "lib/libcrc32c.ko",
    "fs/erofs/erofs.ko",
    "fs/overlayfs/overlay.ko",
];

/// How long a start may take, on a host that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

/// One at a time: each takes a processor and more.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A running machine; it ends when this is dropped.
pub(crate) struct Machine {
    client: Client,
    process: Child,
    folder: TempDir,
    _turn: tokio::sync::MutexGuard<'static, ()>,
    /// From QEMU's start to the first answer.
    pub(crate) started_in: Duration,
}

impl Deref for Machine {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Files that all machines share.
struct Files {
    _folder: TempDir,
    kernel: PathBuf,
    initramfs: PathBuf,
    template: PathBuf,
    /// What the template is made of.
    root: PathBuf,
}

impl Machine {
    /// A parked machine.
    pub(crate) async fn boot() -> Self {
        Self::boot_with_disk(None).await
    }

    /// A parked machine with a scratch disk of so many MiB.
    pub(crate) async fn boot_with_disk(disk: Option<u64>) -> Self {
        let turn = TURN.lock().await;
        let files = files();
        let folder = TempDir::new().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let begun = Instant::now();
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-M", "microvm,rtc=on", "-accel", "tcg", "-cpu", "max", "-m", "512", "-nodefaults"])
            .args(["-no-user-config", "-nographic", "-no-reboot", "-append"])
            .arg(format!("console=ttyS0 quiet panic=-1 tsc=reliable tsc_early_khz={}", host_khz()))
            .arg("-serial")
            .arg(format!("file:{}", folder.path().join("console").display()))
            .arg("-kernel")
            .arg(&files.kernel)
            .arg("-initrd")
            .arg(&files.initramfs)
            .args(["-device", "virtio-serial-device", "-chardev", "socket,id=stream,fd=0"])
            .args(["-device", "virtserialport,chardev=stream,name=bailey"]);
        drive(&mut command, "template", &files.template, ",readonly=on");
        if let Some(disk) = disk {
            let scratch = folder.path().join("scratch");
            std::fs::File::create(&scratch).unwrap().set_len(disk << 20).unwrap();
            run(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-O", "^has_journal"]).arg(&scratch));
            drive(&mut command, "scratch", &scratch, "");
        }
        let process = command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn();
        let process = process.expect("qemu-system-x86_64 (Debian: qemu-system-x86)");
        let client = Client::new(ours);
        let mut machine = Self { client, process, folder, _turn: turn, started_in: Duration::ZERO };
        let health = Request::get("/health").body(Empty::new()).unwrap();
        let answered = tokio::select! {
            answer = machine.client.send(health) => answer.status() == 204,
            () = ended(&mut machine.process) => false,
            () = tokio::time::sleep(PATIENCE) => false,
        };
        assert!(answered, "the machine did not start");
        machine.started_in = begun.elapsed();
        machine
    }

    /// What the machine said on its console.
    pub(crate) fn console(&self) -> String {
        let said = std::fs::read(self.folder.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Closes the node's end of the stream.
    pub(crate) fn hang_up(&mut self) {
        let (end, _other) = UnixStream::pair().unwrap();
        self.client = Client::new(end);
    }

    /// Waits until the machine has ended by itself.
    pub(crate) async fn ended(&mut self) {
        ended(&mut self.process).await;
    }
}

async fn ended(process: &mut Child) {
    while process.try_wait().unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
        if std::thread::panicking() {
            eprintln!("the console of the machine:\n{}", self.console());
        }
    }
}

/// Ticks of the interpreted processor's counter are the host's. The kernel finds out how long they are by a timer that a
/// busy host serves too late, and has no other one to start with.
fn host_khz() -> u32 {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz")).unwrap();
    let (whole, rest) = line.rsplit_once(": ").unwrap().1.split_once('.').unwrap();
    format!("{whole}{rest}").parse().unwrap()
}

fn drive(command: &mut Command, name: &str, image: &Path, options: &str) {
    let image = image.display();
    command.args(["-drive", &format!("if=none,id={name},format=raw,file={image}{options}")]);
    command.args(["-device", &format!("virtio-blk-device,drive={name}")]);
}

fn files() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let shelf = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let kernel = Package::newest().and_then(|package| package.unpack(shelf, &MODULES)).unwrap();
        let folder = TempDir::new().unwrap();
        let guest = PathBuf::from(binary());
        let mut archive = Archive::default();
        archive.copy_to(&guest, Path::new("init")).unwrap();
        for library in libraries(&guest).unwrap() {
            archive.copy_to(&library, &library).unwrap();
        }
        let mut list = String::new();
        for module in &kernel.modules {
            let name = module.file_name().unwrap().to_str().unwrap();
            archive.copy_to(module, &Path::new("modules").join(name)).unwrap();
            list += &format!("{name}\n");
        }
        archive.file(Path::new("modules/list"), 0o644, list.as_bytes());
        let initramfs = folder.path().join("initramfs");
        std::fs::write(&initramfs, archive.finish()).unwrap();
        let template = folder.path().join("template");
        let root = folder.path().join("root");
        make_template(&root, &template, &guest);
        Files { kernel: kernel.image, initramfs, template, root, _folder: folder }
    })
}

/// The template as a folder.
pub(crate) fn template_folder() -> &'static Path {
    &files().root
}

/// An image with busybox, bash, and what the guest itself loads, for `sudo`.
fn make_template(root: &Path, image: &Path, guest: &Path) {
    for name in ["bin", "dev", "proc", "tmp", "etc", "home/user", "root", "usr/bin", "run/bailey", "mnt"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n")
        .unwrap();
    std::fs::write(root.join("etc/machine-id"), "of the template\n").unwrap();
    let copy = |from: &Path, to: &Path| {
        let to = root.join(to.strip_prefix("/").unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    copy(Path::new("/bin/busybox"), Path::new("/bin/busybox"));
    let applets = Command::new("/bin/busybox").arg("--list").output().unwrap();
    for applet in String::from_utf8(applets.stdout).unwrap().lines().filter(|name| *name != "busybox") {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    copy(Path::new("/bin/bash"), Path::new("/bin/bash"));
    for library in libraries(Path::new("/bin/bash")).unwrap().into_iter().chain(libraries(guest).unwrap()) {
        copy(&library, &library);
    }
    copy(guest, Path::new("/run/bailey/agent"));
    std::os::unix::fs::symlink("/run/bailey/agent", root.join("usr/bin/sudo")).unwrap();
    run(Command::new("chmod").arg("1777").arg(root.join("tmp")));
    run(Command::new("chown").arg("1000:1000").arg(root.join("home/user")));
    run(Command::new("mkfs.erofs").arg(image).arg(root).stdout(Stdio::null()));
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
