//! The same tests on another kernel: Debian's cloud kernel (6.1 on Debian 12, the oldest that is supported), with every
//! cgroup controller on v2, in a machine that QEMU interprets, so that no KVM is needed.
//!
//! The kernel is downloaded and unpacked, never installed. The machine's files are an initramfs with this very test
//! binary, the jail, the fixture and busybox; what the tests print comes back over the serial line.

#[path = "../../../bailey/src/template/machine/archive.rs"]
pub(crate) mod archive;
#[path = "../../../bailey/src/template/machine/kernel.rs"]
pub(crate) mod kernel;

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use archive::{Archive, libraries};

use crate::harness::fixture;

/// Tests that stay outside: those that measure time, which the machine distorts, those of the server's half, which
/// take a Python, that which reads the source, this one, those that run apart, and those that take more programs.
const OUTSIDE: [&str; 7] =
    ["absent::", "budget::", "server::", "fences::g01_no_fence_of_the_source", "machine::", "sentry::runsc", "vmm::"];

/// Modules that the jail's file systems take, in an order in which they load.
const MODULES: [&str; 4] =
    ["lib/libcrc32c.ko", "fs/erofs/erofs.ko", "fs/overlayfs/overlay.ko", "drivers/block/loop.ko"];

/// How long the machine may take, its kernel's start included.
const PATIENCE: Duration = Duration::from_secs(240);

/// The last words of the machine.
const VERDICT: &str = "verdict of the tests:";

#[test]
fn the_jails_tests_pass_on_debians_cloud_kernel_with_cgroup_v2_alone() {
    let skipped: String = OUTSIDE.iter().map(|name| format!("--skip {name} ")).collect();
    let said = run("", &[&format!("--test-threads 2 {skipped}"), "absent::g01_what_a_kernel_is_denied"]);
    assert!(said.contains("controllers: cpuset cpu io memory"), "{said}");
    // Not one that was to run is missing.
    for name in [
        "absent::g01",
        "disks::r05",
        "disks::r06",
        "disks::d12",
        "fences::g01",
        "hostile::g01",
        "launch::m10",
        "lifecycle::",
        "limits::cpu_time_ends",
        "limits::cpu_time_of_one_share",
        "limits::cpu_weights",
        "limits::r01",
        "limits::r03",
        "limits::r10",
        "posture::k01",
        "residue::",
        "sentry::m10",
    ] {
        let passed = |line: &str| line.starts_with(&format!("test {name}")) && line.ends_with("ok");
        assert!(said.lines().any(passed), "{name}: {said}");
    }
}

#[test]
fn g01_a_kernel_that_was_started_without_a_part_is_refused_by_its_name() {
    for (word, missing) in [
        ("cgroup_disable=memory,pids", "no cgroup controller for memory, pids"),
        ("cgroup.memory=nokmem", "cgroup.memory=nokmem"),
        ("lsm=lockdown", "the kernel offers Landlock ABI"),
    ] {
        let test = "absent::g01_what_a_kernel_was_started_without";
        let said = run(&format!("{word} BAILEY_JAIL_MISSING=\"{missing}\""), &[test]);
        assert!(said.contains("test result: ok. 1 passed"), "{word}: {said}");
    }
}

/// Debian's cloud kernel, with these of its modules.
pub(crate) fn unpacked(modules: &[&str]) -> kernel::Kernel {
    let shelf = Path::new(env!("CARGO_TARGET_TMPDIR"));
    kernel::Package::newest().and_then(|package| package.unpack(shelf, modules)).unwrap()
}

/// Runs this test binary in the machine, once for each list of arguments; what came over the serial line. Words for
/// the kernel that it does not know become the environment of the first program.
fn run(words: &str, tests: &[&str]) -> String {
    let kernel = unpacked(&MODULES);
    let folder = tempfile::TempDir::new().unwrap();
    let initramfs = folder.path().join("initramfs");
    std::fs::write(&initramfs, files(&kernel, tests).finish()).unwrap();
    let said = {
        // One at a time: each takes both processors.
        static MACHINE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        boot(&kernel.image, &initramfs, words)
    };
    assert!(said.contains(&format!("{VERDICT}{}", " 0".repeat(tests.len()))), "the machine says:\n{said}");
    assert!(said.contains("test result: ok."), "{said}");
    said
}

/// Everything in the machine.
fn files(kernel: &kernel::Kernel, tests: &[&str]) -> Archive {
    let mut files = Archive::default();
    for folder in ["proc", "sys", "dev", "tmp", "run", "root", "etc", "mnt", "stage"] {
        files.folder(Path::new(folder));
    }
    for name in ["passwd", "group", "shadow"] {
        files.file(&Path::new("etc").join(name), 0o644, b"root:x:0:0::/root:/bin/sh\n");
    }
    files.copy_to(Path::new("/bin/busybox"), Path::new("/bin/busybox")).unwrap();
    for module in &kernel.modules {
        files.copy_to(module, &Path::new("modules").join(module.file_name().unwrap())).unwrap();
    }
    for program in [Path::new(env!("CARGO_BIN_EXE_bailey-jail")), &std::env::current_exe().unwrap()] {
        add_program(&mut files, program);
    }
    // Theirs know more than busybox's.
    for program in ["/usr/bin/setpriv", "/usr/bin/unshare", "/usr/sbin/mkfs.ext4"] {
        add_program(&mut files, Path::new(program));
    }
    files.copy_to(&fixture().guest, Path::new("fixture/guest")).unwrap();
    files.copy_to(&fixture().image, Path::new("fixture/image")).unwrap();
    files.copy_to(&fixture().program.image, Path::new("fixture/program")).unwrap();
    files.file(Path::new("init"), 0o755, INIT.as_bytes());
    files.file(Path::new("tests"), 0o644, script(kernel, tests).as_bytes());
    files
}

/// A program of the host with the libraries that it loads.
fn add_program(files: &mut Archive, path: &Path) {
    files.copy_to(path, path).unwrap();
    for library in libraries(path).unwrap() {
        files.copy_to(&library, &library).unwrap();
    }
}

/// The first program. The initramfs itself cannot be left by `pivot_root`, so the tests run in a mount above it.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mkdir -p /usr/bin /sbin /usr/sbin
/bin/busybox --install -s /bin
mount --bind / /stage
cd /stage
mount --move . /
exec chroot . /bin/busybox sh /tests
";

/// What the tests need of a system. Slices lie on a file system that can map owners, which this kernel's tmpfs cannot.
const SYSTEM: &str = "
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for module in $MODULES; do insmod /modules/$module; done
truncate -s 4G /run/disk
mkfs.ext4 -q -E lazy_itable_init=1,nodiscard -O ^has_journal /run/disk
mkdir /run/tests
mount -t ext4 -o loop /run/disk /run/tests
chmod 1777 /run/tests
ip link set lo up
echo \"kernel: $(uname -r), up for $(cut -d' ' -f1 /proc/uptime) s\"
echo \"controllers: $(cat /sys/fs/cgroup/cgroup.controllers)\"
export PATH=/usr/bin:/bin:/usr/sbin:/sbin TMPDIR=/run/tests BAILEY_JAIL_FIXTURE=/fixture RUST_BACKTRACE=0
";

/// Everything up to the end.
fn script(kernel: &kernel::Kernel, tests: &[&str]) -> String {
    let modules: Vec<_> = kernel.modules.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    let mut script = format!("MODULES='{}'\n{SYSTEM}verdict='{VERDICT}'\n", modules.join(" "));
    for arguments in tests {
        let binary = std::env::current_exe().unwrap();
        writeln!(script, "{} {arguments}\nverdict=\"$verdict $?\"", binary.display()).unwrap();
    }
    script + "echo \"$verdict\"\npoweroff -f\n"
}

/// Runs the machine to its end and returns what came over the serial line.
fn boot(kernel: &Path, initramfs: &Path, words: &str) -> String {
    let usual = "console=ttyS0 quiet panic=-1 no_timer_check nokaslr mitigations=off rdinit=/init";
    let mut machine = Command::new("qemu-system-x86_64")
        .args(["-machine", "pc,hpet=off", "-cpu", "qemu64", "-accel", "tcg,thread=multi", "-smp", "2", "-m", "1536"])
        .args(["-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio"])
        .args(["-append", &format!("{usual} {words}")])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("qemu-system-x86_64 (Debian: qemu-system-x86)");
    let mut line = machine.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        line.read_to_end(&mut said).map(|_count| String::from_utf8_lossy(&said).replace('\r', ""))
    });
    let deadline = std::time::Instant::now() + PATIENCE;
    let in_time = loop {
        if machine.try_wait().unwrap().is_some() {
            break true;
        }
        if std::time::Instant::now() > deadline {
            break false;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if !in_time {
        machine.kill().unwrap();
        machine.wait().unwrap();
    }
    let said = reader.join().unwrap().unwrap();
    if in_time { said } else { format!("{said}\nthe machine did not end in {PATIENCE:?}") }
}
