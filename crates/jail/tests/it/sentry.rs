//! A kernel in user space in a cage: what it may do, tried with a program that was taken over, and Debian's `runsc`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bailey_protocol::jail::{Profile, TemplateImage};
use bailey_protocol::limits::Limits;
use tempfile::TempDir;

use crate::harness::{Jail, config, fixture, image_of, launch_op, run};
use crate::launch::line;
use crate::residue::{groups, ledger};

/// What runsc is to run: a shell that greets, and repeats what it is told. The root is read-only as it is: runsc cannot
/// make it so once more without taking from it what is locked.
const BUNDLE: &str = r#"{
  "ociVersion": "1.0.0",
  "process": {
    "user": { "uid": 0, "gid": 0 },
    "args": ["/bin/sh", "-c", "echo ready on $(dmesg | head -n 1); while read word; do echo said $word; done"],
    "env": ["PATH=/bin"],
    "cwd": "/",
    "noNewPrivileges": true
  },
  "root": { "path": "rootfs", "readonly": false },
  "hostname": "sandbox",
  "mounts": [
    { "destination": "/proc", "type": "proc", "source": "proc" },
    { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs" }
  ],
  "linux": {
    "namespaces": [
      { "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }, { "type": "network" }
    ]
  }
}"#;

/// An image with runsc and a bundle.
fn make_image(folder: &Path) -> TemplateImage {
    let (root, image) = (folder.join("root"), folder.join("image"));
    let inner = root.join("bundle/rootfs");
    for name in ["bin", "proc", "dev", "tmp"] {
        fs::create_dir_all(inner.join(name)).unwrap();
    }
    fs::copy("/usr/bin/runsc", root.join("runsc")).unwrap();
    fs::copy("/bin/busybox", inner.join("bin/busybox")).unwrap();
    for name in ["sh", "dmesg", "head"] {
        std::os::unix::fs::symlink("busybox", inner.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("bundle/config.json"), BUNDLE).unwrap();
    run(Command::new("mkfs.erofs").arg("--all-root").arg(&image).arg(&root).stdout(Stdio::null()));
    image_of(&image)
}

#[test]
fn runsc_runs_a_program_in_its_cage_which_speaks_by_the_first_descriptor() {
    let folder = TempDir::new().unwrap();
    let image = make_image(folder.path());
    let data = TempDir::new().unwrap();
    let mut config = config(data.path());
    config.images.push(image.clone());
    let mut jail = Jail::start_with(&config, "");
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let words = ["/runsc", "--root", "/tmp/state", "--rootless", "--network=none", "--ignore-cgroups"];
    let words = [&words[..], &["--platform=ptrace", "run", "--bundle", "/bundle", "it"]].concat();
    let start = std::time::Instant::now();
    let op = launch_op(&image.digest, Profile::Sentry, &words, Limits::default());
    let cage = jail.launch_as(&op, &[&theirs.into()]);
    let launched = start.elapsed();
    let mut line = BufReader::new(ours);
    let hear = |line: &mut BufReader<UnixStream>| {
        let mut text = String::new();
        line.read_line(&mut text).unwrap();
        text
    };
    // Its own kernel's log, not the host's.
    let greeting = hear(&mut line);
    assert!(greeting.starts_with("ready on") && greeting.contains("gVisor"), "{greeting}");
    println!("launched after {launched:?}, the program after {:?}", start.elapsed());
    line.get_mut().write_all(b"hello\n").unwrap();
    assert_eq!(hear(&mut line), "said hello\n");
    let facts = jail.stop(&cage.sandbox);
    assert!(facts.oom_kills == 0 && facts.cpu_us > 0, "{facts:?}");
    assert_eq!(hear(&mut line), "", "something of it lives");
    jail.destroy(&cage.sandbox);
    assert!(!groups(&ledger(data.path())).iter().any(|group| group.ends_with(cage.sandbox.as_str())));
    jail.leave();
}

#[test]
fn m10_a_kernel_in_user_space_that_was_taken_over_has_no_more_than_it_needs() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let (mut line, theirs) = line();
    let op = launch_op(&fixture().program.digest, Profile::Sentry, &["/probe"], Limits::default());
    let cage = jail.launch_as(&op, &[&theirs]);
    drop(theirs);
    let pid = cage.pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let none = "0000000000000000";
    for (name, wanted) in
        [("CapPrm", none), ("CapEff", none), ("CapBnd", none), ("NoNewPrivs", "1"), ("Seccomp_filters", "1")]
    {
        assert!(status.contains(&format!("{name}:\t{wanted}\n")), "{name}: {status}");
    }
    assert!(!cage.fences.iter().any(|fence| fence == "landlock"), "{:?}", cage.fences);
    assert_eq!(line.ask("id"), "1 1000 1000");
    for (command, wanted) in [
        // The whole `/proc`, which must be somewhere for it to mount one of its own, is out of its reach.
        ("list /sealed", "EACCES"),
        ("list /sealed/proc", "EACCES"),
        ("read /proc/interrupts", "EACCES"),
        ("write /x", "EROFS"),
        ("write /proc/sys/kernel/core_pattern", "EACCES"),
        // It is one user and no other.
        ("call 105 0", "EPERM"),
        ("call 106 0", "EPERM"),
        // No network, not even to ask about one.
        ("call 41 2 1 0", "ENOSYS"),
        ("call 41 10 2 0", "ENOSYS"),
        ("call 41 16 3 0", "ENOSYS"),
        ("call 41 17 3 0", "ENOSYS"),
        ("call 41 38 5 0", "ENOSYS"),
        ("call 41 40 1 0", "ENOSYS"),
        ("call 435 0 0", "ENOSYS"),
        ("call 272 0x10000000", "ENOSYS"),
        ("call 308 3 0", "ENOSYS"),
        ("call 56 0x02000011", "ENOSYS"),
        ("call 428 0 0 0", "ENOSYS"),
        ("call 442 0 0 0 0 0", "ENOSYS"),
        ("call 425 8 0", "ENOSYS"),
        ("call 321 0 0 0", "ENOSYS"),
        ("call 298 0 0 0 0", "ENOSYS"),
        ("call 323 0", "ENOSYS"),
        ("call 250 0", "ENOSYS"),
        ("call 304 0 0 0", "ENOSYS"),
        ("call 133 0 0 0", "ENOSYS"),
    ] {
        assert_eq!(line.ask(command), wanted, "{command}");
    }
    // Processes, with namespaces of their own, but not any number of them.
    let mut last = String::new();
    for _ in 0..40 {
        last = line.ask("call 56 0x10000011 0 0 0 0");
        if last.parse::<u32>().is_err() {
            break;
        }
    }
    assert!(["ENOSPC", "EUSERS"].contains(&last.as_str()), "{last}");
    jail.stop(&cage.sandbox);
    jail.destroy(&cage.sandbox);
    jail.leave();
}
