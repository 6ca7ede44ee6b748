//! Cages around programs that isolate by themselves, tried with one that was taken over.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bailey_protocol::jail::{JailAnswer, JailFaultKind, JailOp, Profile};
use bailey_protocol::limits::{Limits, MAX_PROGRAM_FDS};
use tempfile::TempDir;

use crate::harness::{Jail, Launched, config, fixture, launch_op, open_path, share};
use crate::residue::{groups, ledger};

const MIB: u64 = 1024 * 1024;

/// The connection to the stand-in.
pub(crate) struct Line(BufReader<UnixStream>);

/// One, and the program's end of it.
pub(crate) fn line() -> (Line, OwnedFd) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (Line(BufReader::new(ours)), theirs.into())
}

impl Line {
    fn tell(&mut self, command: &str) {
        self.0.get_mut().write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the program is gone after `{command}`");
        line.trim_end().to_owned()
    }

    /// The program's end is closed, and nobody else has it.
    fn is_over(&mut self) -> bool {
        matches!(self.0.read_line(&mut String::new()), Ok(0))
    }
}

/// A taken-over program, to talk to.
fn probe(jail: &mut Jail) -> (Launched, Line) {
    let (line, theirs) = line();
    (jail.launch(&["/probe"], &[&theirs]), line)
}

fn ended(program: &Launched) -> bool {
    let mut wait = [rustix::event::PollFd::new(&program.pidfd, rustix::event::PollFlags::IN)];
    let patience = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    rustix::event::poll(&mut wait, Some(&patience)).unwrap() == 1
}

const NAMESPACES: [&str; 8] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];

/// Compares a program with what it should be; its user.
fn golden(cage: &Launched) -> u32 {
    let pid = cage.pid();
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let text = read("status");
    let status = |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{name}:\t"))).unwrap();
    let uid: u32 = status("Uid").split('\t').next().unwrap().parse().unwrap();
    assert!(uid >= bailey_protocol::jail::CAGE_UID_BASE && uid % 65_536 == 1000, "{uid}");
    let ids = format!("{uid}\t{uid}\t{uid}\t{uid}");
    let none = "0000000000000000";
    for (name, wanted) in [("Uid", ids.as_str()), ("Gid", &ids), ("Groups", " "), ("Umask", "0077"), ("Threads", "1")]
        .into_iter()
        .chain([("CapInh", none), ("CapPrm", none), ("CapEff", none), ("CapBnd", none), ("CapAmb", none)])
        .chain([("NoNewPrivs", "1"), ("Seccomp", "2"), ("Seccomp_filters", "1"), ("NSpid", &format!("{pid}\t1"))])
    {
        assert_eq!(status(name), wanted, "{name}");
    }
    for kind in NAMESPACES {
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/{kind}")).unwrap();
        assert_ne!(namespace(&pid.to_string()), namespace("self"), "{kind}");
    }
    let mounts = read("mountinfo");
    let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|line| {
        let (at, options) = (line[4], line[5]);
        // What covers parts of `/proc` is that of every cage.
        assert!(options.contains("nosuid") && (options.starts_with("ro") || at == "/tmp" || at == "/proc"), "{line:?}");
        !at.starts_with("/proc/")
    });
    assert_eq!(
        mounts.map(|line| line[4].to_owned()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
        ["/", "/dev", "/proc", "/tmp"]
    );
    let opened = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let mut opened: Vec<_> = opened
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_link(&path).unwrap()))
        .collect();
    opened.sort();
    let shown: Vec<_> = opened
        .iter()
        .map(|(number, to)| format!("{number} {}", to.display().to_string().split(['[', '#']).next().unwrap()))
        .collect();
    // The last is the program's own copy of the first that it was handed.
    assert_eq!(shown[..4], ["0 /dev/null", "1 /dev/null", "2 /memfd:words (deleted)", "3 socket:"], "{shown:?}");
    assert_eq!((shown.len(), shown[5].as_str()), (6, "5 socket:"), "{shown:?}");
    let limits = read("limits");
    for line in [
        "Max open files            1024                 1024",
        "Max core file size        1                    1",
        "Max locked memory         65536                65536",
        "Max nice priority         0                    0",
    ] {
        assert!(limits.contains(line), "{line}: {limits}");
    }
    let group = read("cgroup");
    assert!(group.lines().last().unwrap().ends_with(cage.sandbox.as_str()), "{group}");
    assert_eq!(read("net/fib_trie"), "", "an interface is up");
    assert_eq!(read("net/dev").lines().count(), 3, "there is more than lo");
    assert_eq!((read("environ"), read("cmdline")), (String::new(), "/probe\0argument\0".to_owned()));
    for fence in ["landlock", "seccomp_program", "read_only_root", "network_namespace", "cgroup_memory"] {
        assert!(cage.fences.iter().any(|name| name == fence), "{fence}: {:?}", cage.fences);
    }
    assert!(!cage.fences.iter().any(|name| name == "seccomp_init"));
    uid
}

#[test]
fn m10_the_posture_of_a_program_from_outside_is_the_golden_one() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start_with(&config(data.path()), "exec 5</etc 6</etc/shadow 7<>/dev/null 8</ 9</proc");
    let (mut one, mut other) = (line(), line());
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    let cages = [
        jail.launch(&["/probe", "argument"], &[&one.1, &file]),
        jail.launch(&["/probe", "argument"], &[&other.1, &file]),
    ];
    assert_eq!(one.0.ask("id"), "1 1000 1000");
    assert_eq!(other.0.ask("thread"), "0");
    let users: BTreeSet<_> = cages.iter().map(golden).collect();
    assert_eq!(users.len(), 2, "two cages share a user");
    for kind in NAMESPACES {
        let namespace = |cage: &Launched| fs::read_link(format!("/proc/{}/ns/{kind}", cage.pid())).unwrap();
        assert_ne!(namespace(&cages[0]), namespace(&cages[1]), "{kind}");
    }
    // K25: none of their files is the same to lock and to watch.
    let places: BTreeSet<_> = cages
        .iter()
        .map(|cage| {
            use std::os::unix::fs::MetadataExt;
            let found = fs::metadata(format!("/proc/{}/root/etc/marker", cage.pid())).unwrap();
            (found.dev(), found.ino())
        })
        .collect();
    assert_eq!(places.len(), 2);
    jail.leave();
}

#[test]
fn m10_a_program_that_was_taken_over_can_do_nothing_but_what_it_was_made_for() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let (cage, mut line) = probe(&mut jail);
    let pid = cage.pid();
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(line.ask("read /etc/marker"), "image");
    assert_eq!(line.ask("read /link").get(1..4), Some("ELF"));
    assert_eq!(line.ask("write /tmp/x"), "1");
    assert_eq!(line.ask("write /dev/null"), "1");
    assert_eq!(line.ask("thread"), "0");
    assert_eq!(line.ask("list /proc/self/fd"), "0 1 2 3 4");
    for (command, wanted) in [
        // New processes, with and without namespaces, and other programs.
        ("call 57", "ENOSYS"),
        ("call 58", "ENOSYS"),
        ("call 56 17", "ENOSYS"),
        ("call 56 0x10000011", "ENOSYS"),
        ("call 435 0 0", "ENOSYS"),
        ("exec /busybox", "ENOSYS"),
        ("exec /probe", "ENOSYS"),
        ("execat /busybox", "ENOSYS"),
        ("execat /probe", "ENOSYS"),
        // The one form that is left: no descriptor can have the number, and Landlock has only the program itself.
        ("call 33 3 2048", "ENOSYS"),
        ("call 292 3 2048 0", "EBADF"),
        ("call 72 3 0 2048", "EINVAL"),
        ("call 72 3 1030 2048", "EINVAL"),
        ("call 302 0 7 0 0", "0"),
        ("execat /busybox 2048 1", "EACCES"),
        ("execat busybox 2048 1", "EBADF"),
        // Networks and other sockets.
        ("call 41 2 1 0", "ENOSYS"),
        ("call 41 10 2 0", "ENOSYS"),
        ("call 41 1 1 0", "ENOSYS"),
        ("call 41 17 3 0", "ENOSYS"),
        ("call 41 40 1 0", "ENOSYS"),
        ("call 53 1 1 0 0", "ENOSYS"),
        // Others' memory, mounts, namespaces, and parts of the kernel that no machine needs.
        ("call 101 0 1", "ENOSYS"),
        ("call 310 1", "ENOSYS"),
        ("call 438 3 0 0", "ENOSYS"),
        ("call 165 0 0 0 0 0", "ENOSYS"),
        ("call 161 0", "ENOSYS"),
        ("call 272 0x10000000", "ENOSYS"),
        ("call 308 3 0", "ENOSYS"),
        ("call 321 0 0 0", "ENOSYS"),
        ("call 425 8 0", "ENOSYS"),
        ("call 323 0", "ENOSYS"),
        ("call 250 0", "ENOSYS"),
        ("call 298 0 0 0 0", "ENOSYS"),
        ("call 62 1 0", "ENOSYS"),
        ("call 157 1 0", "ENOSYS"),
        ("call 302 1 7 0 0", "ENOSYS"),
        ("call 105 0", "ENOSYS"),
        ("call 72 3 1024 1", "ENOSYS"),
        ("call 16 3 0x5412 0", "ENOSYS"),
        ("call 10000", "ENOSYS"),
        // Paths.
        ("write /etc/marker", "EROFS"),
        ("write /x", "EROFS"),
        ("write /dev/x", "EROFS"),
        ("write /proc/sys/kernel/core_pattern", "EACCES"),
        ("read /proc/interrupts", "EACCES"),
        ("list /proc/1/root/root", "ENOENT"),
        ("list /sys", "ENOENT"),
        ("read /dev/kvm", "ENOENT"),
        ("read /dev/tty", "ENOENT"),
    ] {
        assert_eq!(line.ask(command), wanted, "{command}");
    }
    // From outside, nothing came of all that.
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    assert_eq!((tasks, children.as_str()), (1, ""));
    assert_eq!(fs::read_link(format!("/proc/{pid}/exe")).unwrap(), program);
    let alone = groups(&ledger(data.path())).into_iter().filter(|group| group.ends_with(cage.sandbox.as_str()));
    for group in alone {
        assert_eq!(fs::read_to_string(group.join("cgroup.procs")).unwrap(), format!("{pid}\n"), "{}", group.display());
    }
    jail.leave();
}

#[test]
fn what_was_handed_in_can_be_opened_again_by_its_number_if_it_is_memory_and_nothing_else_can() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let (mut line, theirs) = line();
    let memory = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::fchmod(&memory, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    let path = data.path().join("file");
    fs::write(&path, "host\n").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let file: OwnedFd = fs::File::open(&path).unwrap().into();
    let cage = jail.launch(&["/probe"], &[&theirs, &memory, &file]);
    assert!(line.ask("reopen /proc/self/fd/4").parse::<u32>().is_ok());
    assert_eq!(
        line.ask("reopen /proc/self/fd/5"),
        "EACCES",
        "it may be read by its descriptor and not opened for writing"
    );
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn r03_r05_a_program_has_limits_like_any_other_cage() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let (mut line, theirs) = line();
    let limits = Limits { memory_bytes: 64 * MIB, disk_bytes: 2 * MIB, pids: 8, open_files: 64, ..Limits::default() };
    let cage = jail.launch_as(&launch_op(&fixture().program.digest, Profile::Vmm, &["/probe"], limits), &[&theirs]);
    drop(theirs);
    // A little of it is what the cage is told of its machine.
    let mut fill = || line.ask("fill").strip_suffix(" ENOSPC").unwrap().parse::<u64>().unwrap();
    assert!((2 * MIB - 65_536..=2 * MIB).contains(&fill()));
    let larger = Limits { disk_bytes: 3 * MIB, ..limits };
    jail.claim_for(&cage.sandbox, &share('a'), larger);
    assert!((3 * MIB - 65_536..=3 * MIB).contains(&fill()));
    assert_eq!(line.ask("call 302 0 7 0 0"), "0");
    assert_eq!(line.ask("call 292 3 64 0"), "EBADF", "it may have 64 files");
    line.tell("eat");
    assert!(ended(&cage), "it lives");
    assert!(line.is_over());
    let facts = jail.stop(&cage.sandbox);
    assert!(facts.oom_kills > 0 && facts.memory_peak_bytes > 32 * MIB, "{facts:?}");
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn a_program_that_ends_by_itself_is_told_of_with_its_last_words() {
    let data = TempDir::new().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let said = |word: &str| {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !fs::read_to_string(log.path()).unwrap().contains(word) {
            assert!(Instant::now() < deadline, "no `{word}` in {}", fs::read_to_string(log.path()).unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let mut jail = Jail::start_with(&config(data.path()), &format!("exec 2>{};", log.path().display()));
    let dies = launch_op(&fixture().program.digest, Profile::Vmm, &["/probe", "die"], Limits::default());
    // It may be gone before it was looked at, meanwhile (what dies looks like nothing that it should be), or after.
    match jail.call(dies, &[]) {
        (Ok(JailAnswer::Parked { .. }), pidfd) => assert_eq!(pidfd.len(), 1),
        (Err(fault), descriptors) => assert!(
            matches!(fault.kind, JailFaultKind::Fence | JailFaultKind::Internal) && descriptors.is_empty(),
            "{fault:?}"
        ),
        other => panic!("{other:?}"),
    }
    said("there is no such machine");
    assert!(!fs::read(log.path()).unwrap().contains(&0x1b), "what it says must not reach a terminal as it is");
    let (cage, mut line) = probe(&mut jail);
    assert_eq!(line.ask(&format!("say {}", "x".repeat(1000))), "0");
    line.tell("leave");
    assert!(ended(&cage));
    said(&"x".repeat(1000));
    assert!(fs::metadata(log.path()).unwrap().len() < 10_000);
    jail.stop(&cage.sandbox);
    jail.leave();
}

#[test]
fn requests_for_programs_that_make_no_sense_are_refused_and_leave_nothing() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let image = fixture().program.digest.clone();
    let limits = Limits::default();
    let pid = jail.process.id();
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let (cage, mut line) = probe(&mut jail);
    let refused = |jail: &mut Jail, op: JailOp, descriptors: &[&OwnedFd], word: &str| {
        let (answer, rights) = jail.call(op, descriptors);
        let fault = answer.expect_err(word);
        assert!(
            fault.kind == JailFaultKind::Invalid && fault.to_string().contains(word),
            "`{fault:?}` does not say `{word}`"
        );
        assert!(rights.is_empty());
    };
    // One answer later, what came with the first is closed.
    refused(&mut jail, JailOp::Stop { sandbox: crate::harness::new_sandbox() }, &[], "there is no");
    let before = (open(), groups(&ledger(data.path())));
    let op = |command: &[&str]| launch_op(&image, Profile::Vmm, command, limits);
    let long = "x".repeat(40_000);
    let many: Vec<&str> = std::iter::repeat_n("/probe", 300).collect();
    for (command, word) in [
        (&[][..], "no absolute path"),
        (&["probe"], "no absolute path"),
        (&["/../probe"], "no absolute path"),
        (&["/etc/../probe"], "no absolute path"),
        (&["/pro\0be"], "nul byte"),
        (&["/probe", "a\0"], "nul byte"),
        (&["/probe", &long], "bytes"),
        (&many, "300 words"),
        (&["/nowhere"], "No such file"),
        (&["/etc"], "is no file"),
        (&["/etc/marker"], "is no program"),
        (&["/dev/null"], "No such file"),
        (&["/proc/self/exe"], "No such file"),
    ] {
        refused(&mut jail, op(command), &[], word);
    }
    let template = fixture().digest.clone();
    refused(&mut jail, launch_op(&template, Profile::Vmm, &["/bin/busybox"], limits), &[], "there is no image");
    refused(&mut jail, launch_op(&"0".repeat(64).parse().unwrap(), Profile::Vmm, &["/probe"], limits), &[], "no image");
    let park = JailOp::Park { sandbox: crate::harness::new_sandbox(), template: image.clone(), limits };
    refused(&mut jail, park, &[], "no template");
    for greedy in [Limits { memory_bytes: u64::MAX, ..limits }, Limits { pids: 0, ..limits }] {
        refused(&mut jail, launch_op(&image, Profile::Vmm, &["/probe"], greedy), &[], "limit");
    }
    let large = Limits { disk_bytes: limits.memory_bytes, ..limits };
    refused(&mut jail, launch_op(&image, Profile::Vmm, &["/probe"], large), &[], "fit in its memory");
    let JailOp::Launch { profile, command, .. } = op(&["/probe"]) else { panic!() };
    let again = JailOp::Launch { sandbox: cage.sandbox.clone(), image: image.clone(), profile, command, limits };
    refused(&mut jail, again, &[], "exists");
    // What would lead out of the cage.
    let network: OwnedFd = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
    for outside in [open_path(Path::new("/etc")), open_path(Path::new("/dev/null")), network] {
        refused(&mut jail, op(&["/probe"]), &[&outside], "may not be handed in");
    }
    let (_, theirs) = crate::launch::line();
    let too_many: Vec<&OwnedFd> = std::iter::repeat_n(&theirs, MAX_PROGRAM_FDS + 1).collect();
    refused(&mut jail, op(&["/probe"]), &too_many, "17 descriptors");
    // More than a message may have: it is cut, so nothing answers it.
    let far_too_many: Vec<&OwnedFd> = std::iter::repeat_n(&theirs, 2 * MAX_PROGRAM_FDS).collect();
    jail.send(op(&["/probe"]), &far_too_many);
    let mounts = vec![bailey_protocol::jail::CageMount { at: "/data".parse().unwrap(), writable: false }];
    let claim = JailOp::Claim { sandbox: cage.sandbox.clone(), share: share('0'), limits, mounts };
    refused(&mut jail, claim, &[&open_path(data.path())], "nothing can be mounted");
    // After all that the first one is as it was.
    assert_eq!(line.ask("id"), "1 1000 1000");
    assert_eq!((open(), groups(&ledger(data.path()))), before);
    jail.claim_for(&cage.sandbox, &share('0'), limits);
    jail.stop(&cage.sandbox);
    refused(&mut jail, JailOp::Collect { sandbox: cage.sandbox.clone(), mount: 0 }, &[], "no such mount");
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn o6_programs_come_and_go_and_leave_everything_as_it_was() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let (full, _lines) = line_of_all();
    let full: Vec<&OwnedFd> = full.iter().collect();
    let cycle = |jail: &mut Jail, number: usize| {
        let (mut line, theirs) = line();
        let cage = if number.is_multiple_of(4) {
            jail.launch(&["/probe"], &full)
        } else {
            jail.launch(&["/probe"], &[&theirs])
        };
        drop(theirs);
        if !number.is_multiple_of(4) {
            assert_eq!(line.ask("write /tmp/x"), "1");
        }
        if number.is_multiple_of(2) {
            jail.claim_for(&cage.sandbox, &share('0'), Limits::default());
            jail.stop(&cage.sandbox);
        }
        jail.destroy(&cage.sandbox);
        assert!(ended(&cage) && (number.is_multiple_of(4) || line.is_over()), "{number}");
    };
    (0..4).for_each(|number| cycle(&mut jail, number));
    let pid = jail.process.id();
    let count = |name: &str| fs::read_dir(format!("/proc/{pid}/{name}")).unwrap().count();
    let lines = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap().lines().count();
    let state = || (count("fd"), lines("mountinfo"), groups(&ledger(data.path())));
    let before = state();
    (0..24).for_each(|number| cycle(&mut jail, number));
    assert_eq!(state(), before);
    let name = ledger(data.path());
    // One that is there when the jail ends.
    let (cage, _line) = probe(&mut jail);
    jail.leave();
    assert!(ended(&cage));
    assert_eq!(groups(&name), BTreeSet::new());
}

/// As many descriptors as a program can have.
fn line_of_all() -> (Vec<OwnedFd>, Vec<Line>) {
    (0..MAX_PROGRAM_FDS).map(|_| line()).map(|(line, theirs)| (theirs, line)).unzip()
}
