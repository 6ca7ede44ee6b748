//! A real virtual machine monitor in a cage: Debian's QEMU, with Debian's cloud kernel in it.

use std::fs;
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use bailey_protocol::jail::{JailOp, Profile, TemplateImage};
use bailey_protocol::limits::Limits;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempDir;

use crate::harness::{Jail, config, image_of, launch_op, run, share};
use crate::machine::archive::Archive;
use crate::machine::unpacked;
use crate::residue::{groups, ledger};

const MIB: u64 = 1024 * 1024;
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// A part that it loads itself.
const TCG: &str = "/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so";

/// The guest's first program: greets, and repeats what it is told.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox stty -echo
echo ready on $(/bin/busybox uname -s)
while read word; do
    echo said $word
done
";

/// An image with the monitor and all that it needs.
fn image() -> &'static TemplateImage {
    static IMAGE: OnceLock<(TempDir, TemplateImage)> = OnceLock::new();
    let (_, image) = IMAGE.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        let root = folder.path().join("root");
        let libraries = Command::new("ldd").arg(QEMU).output().unwrap();
        let libraries = String::from_utf8(libraries.stdout).unwrap();
        let firmware =
            ["bios-microvm.bin", "linuxboot_dma.bin", "pvh.bin"].map(|name| format!("/usr/share/qemu/{name}"));
        let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned);
        for path in libraries.chain(firmware).chain([QEMU, TCG].map(str::to_owned)) {
            let to = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&path, to).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        fs::copy(unpacked(&[]).image, root.join("kernel")).unwrap();
        let mut files = Archive::default();
        ["dev", "proc"].into_iter().for_each(|name| files.folder(Path::new(name)));
        files.copy_to(Path::new("/bin/busybox"), Path::new("/bin/busybox")).unwrap();
        files.file(Path::new("init"), 0o755, INIT.as_bytes());
        fs::write(root.join("initramfs"), files.finish()).unwrap();
        let image = folder.path().join("image");
        run(Command::new("mkfs.erofs").arg("--all-root").arg(&image).arg(&root).stdout(Stdio::null()));
        let image = image_of(&image);
        (folder, image)
    });
    image
}

/// What talks to a monitor or its machine.
struct Talk(BufReader<UnixStream>);

impl Talk {
    fn new() -> (Self, OwnedFd) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        (Self(BufReader::new(ours)), theirs.into())
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Says something, and hands over a descriptor with it.
    fn hand(&mut self, line: &str, descriptor: &OwnedFd) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = [descriptor.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
        let line = format!("{line}\n");
        let parts = [IoSlice::new(line.as_bytes())];
        assert_eq!(sendmsg(self.0.get_ref(), &parts, &mut control, SendFlags::empty()), Ok(line.len()));
    }

    /// Whether nobody has the other end any more.
    fn is_over(&mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).is_ok()
    }

    /// Reads up to a line that has this word in it.
    fn hear(&mut self, word: &str) -> String {
        let mut heard = String::new();
        loop {
            let mut line = Vec::new();
            let read = self.0.read_until(b'\n', &mut line);
            let line = String::from_utf8_lossy(&line).into_owned();
            assert!(matches!(read, Ok(1..)), "no `{word}` ({read:?}) after: {heard}");
            if line.contains(word) {
                return line;
            }
            heard.push_str(&line);
        }
    }
}

/// A small machine.
fn request(megabytes: u64, limits: Limits) -> JailOp {
    let words = command(megabytes);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    launch_op(&image().digest, Profile::Vmm, &words, limits)
}

/// Its line is descriptor 3, its control 4, its memory 5, its disk 6, its stream 7.
fn command(megabytes: u64) -> Vec<String> {
    let (size, backend) = (
        megabytes.to_string(),
        format!("memory-backend-file,id=m,size={megabytes}M,mem-path=/proc/self/fd/5,share=off"),
    );
    let mut words = vec![QEMU, "-M", "microvm,rtc=on,memory-backend=m", "-accel", "tcg", "-cpu", "max"];
    words.extend(["-m", &size, "-object", &backend]);
    words.extend(["-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-L", "/usr/share/qemu"]);
    words.extend(["-sandbox", "on,spawn=deny,obsolete=deny,elevateprivileges=deny,resourcecontrol=deny"]);
    words.extend(["-chardev", "socket,id=l,fd=3", "-serial", "chardev:l"]);
    words.extend(["-chardev", "socket,id=q,fd=4", "-mon", "chardev=q,mode=control"]);
    words.extend(["-add-fd", "fd=6,set=1", "-drive", "if=none,id=d,file=/dev/fdset/1,format=raw,readonly=on"]);
    words.extend(["-device", "virtio-blk-device,drive=d", "-device", "virtio-serial-device"]);
    words.extend(["-chardev", "socket,id=s,fd=7", "-device", "virtserialport,chardev=s,name=stream"]);
    words.extend(["-kernel", "/kernel", "-initrd", "/initramfs"]);
    let append = format!("console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable tsc_early_khz={}", host_khz());
    words.into_iter().map(str::to_owned).chain(["-append".to_owned(), append]).collect()
}

/// The interpreted processor counts as the host's does. How fast, a kernel finds out by a timer that a busy host serves
/// too late.
fn host_khz() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("cpu MHz")).unwrap();
    line.rsplit_once(": ").unwrap().1.replace('.', "")
}

/// Memory that nobody can change, as a snapshot's is: the monitor has a private view of it.
fn memory(megabytes: u64) -> OwnedFd {
    let memory = memfd_create("memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, megabytes * MIB).unwrap();
    fcntl_add_seals(&memory, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL).unwrap();
    memory
}

/// An empty disk, to read from: QEMU takes a descriptor only for what it was opened for.
fn disk() -> OwnedFd {
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(4 * MIB).unwrap();
    fs::File::open(disk.path()).unwrap().into()
}

/// Room for a machine's state.
fn state() -> OwnedFd {
    memfd_create("state", MemfdFlags::CLOEXEC).unwrap()
}

#[test]
fn qemu_boots_a_guest_in_its_cage_and_answers_by_what_it_was_handed() {
    let data = TempDir::new().unwrap();
    let mut config = config(data.path());
    config.images.push(image().clone());
    let mut jail = Jail::start_with(&config, "");
    let ((mut guest, line), (mut control, qmp), memory) = (Talk::new(), Talk::new(), memory(128));
    let limits =
        Limits { memory_bytes: 400 * MIB, disk_bytes: 4 * MIB, pids: 32, cpu_millis: 2000, ..Limits::default() };
    let op = request(128, limits);
    let start = std::time::Instant::now();
    let (disk, (_stream, stream), state) = (disk(), Talk::new(), state());
    let cage = jail.launch_as(&op, &[&line, &qmp, &memory, &disk, &stream]);
    drop((line, qmp, memory, stream));
    let launched = start.elapsed();
    control.hear("QMP");
    control.say(r#"{"execute":"qmp_capabilities"}"#);
    control.hear("return");
    let spoke = start.elapsed();
    jail.claim_for(&cage.sandbox, &share('a'), limits);
    guest.hear("ready on Linux");
    println!("launched after {launched:?}, QMP after {spoke:?}, the guest after {:?}", start.elapsed());
    guest.say("hello");
    guest.hear("said hello");
    control.say(r#"{"execute":"query-status"}"#);
    assert!(control.hear("return").contains(r#""status": "running""#));
    // Every thread of it, with whatever filter QEMU itself has added.
    let threads: Vec<_> = fs::read_dir(format!("/proc/{}/task", cage.pid())).unwrap().collect();
    assert!(threads.len() > 1);
    for thread in threads {
        let text = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        for line in ["CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
    // Its state goes to what is handed to it for that, which QEMU wants by its control.
    control.hand(r#"{"execute":"getfd","arguments":{"fdname":"state"}}"#, &state);
    control.hear("return");
    for command in [r#"{"execute":"stop"}"#, r#"{"execute":"migrate","arguments":{"uri":"fd:state"}}"#] {
        control.say(command);
        control.hear("return");
    }
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        control.say(r#"{"execute":"query-migrate"}"#);
        let answer = control.hear("return");
        if answer.contains(r#""status": "completed""#) {
            break;
        }
        assert!(!answer.contains("failed") && std::time::Instant::now() < deadline, "{answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(rustix::fs::fstat(&state).unwrap().st_size > 1 << 20);
    let facts = jail.stop(&cage.sandbox);
    assert!(facts.oom_kills == 0 && facts.cpu_us > 0, "{facts:?}");
    jail.destroy(&cage.sandbox);
    assert!(!groups(&ledger(data.path())).iter().any(|group| group.ends_with(cage.sandbox.as_str())));
    jail.leave();
}

#[test]
fn r03_a_machine_that_takes_more_than_its_cage_has_dies_and_says_so() {
    let data = TempDir::new().unwrap();
    let mut config = config(data.path());
    config.images.push(image().clone());
    let mut jail = Jail::start_with(&config, "");
    let ((mut guest, line), (_control, qmp), memory) = (Talk::new(), Talk::new(), memory(256));
    // Less than a kernel takes that believes to have all that.
    let limits = Limits { memory_bytes: 96 * MIB, disk_bytes: 4 * MIB, ..Limits::default() };
    let (disk, (_stream, stream)) = (disk(), Talk::new());
    let cage = jail.launch_as(&request(256, limits), &[&line, &qmp, &memory, &disk, &stream]);
    drop((line, qmp));
    let mut wait = [rustix::event::PollFd::new(&cage.pidfd, rustix::event::PollFlags::IN)];
    let patience = rustix::event::Timespec { tv_sec: 120, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wait, Some(&patience)).unwrap(), 1, "it lives");
    assert!(guest.is_over());
    let facts = jail.stop(&cage.sandbox);
    assert!(facts.oom_kills > 0, "{facts:?}");
    jail.destroy(&cage.sandbox);
    jail.leave();
}
