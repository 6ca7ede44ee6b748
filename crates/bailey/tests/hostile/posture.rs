//! What a sandbox's processes are, as the host's kernel reports it: capabilities, namespaces, descriptors, devices.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use bailey_protocol::jail::CAGE_UID_BASE;
use rustix::fs::{major, minor};

use crate::bare::Bare;
use crate::host::{NAMESPACES, Process};
use crate::run::Order;
use crate::server::{LEAKED, beside_others, shared};

/// CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE: what PID 1 may keep.
const INIT_CAPABILITIES: u64 = 0b101_1110_1011;
/// The same without SETPCAP: what `sudo` grants.
const SUDO_CAPABILITIES: u64 = INIT_CAPABILITIES & !(1 << 8);

fn capabilities(process: Process) -> Vec<u64> {
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    sets.iter().map(|set| u64::from_str_radix(&process.status(set).unwrap(), 16).unwrap()).collect()
}

#[test]
fn k01_code_has_no_capability_and_cannot_gain_one() {
    let _guard = beside_others();
    let mut bare = Bare::start("holder", &[], &[]);
    bare.ready();
    assert!(bare.processes().into_iter().any(|process| capabilities(process)[2] != 0), "the arm has no teeth");

    let server = shared();
    let ana = server.user("acme", "ana");
    let live = server.hold(&ana, &Order::attack("holder", &[]));
    for process in live.code() {
        assert_eq!(capabilities(process), [0; 5], "{}", process.command_line());
        assert_eq!(process.status("NoNewPrivs").unwrap(), "1");
        assert_eq!(process.status("Seccomp").unwrap(), "2");
        let filters: u32 = process.status("Seccomp_filters").unwrap().parse().unwrap();
        assert!(filters >= 4, "{filters} filters, PID 1's included");
        assert_eq!(process.uid_inside(), Some(1000));
        let uids = ["Uid", "Gid", "Groups"].map(|field| process.status(field).unwrap()).join(" ");
        assert!(uids.split_whitespace().all(|id| id.parse::<u32>().unwrap() % 65_536 == 1000), "{uids}");
    }
    let init = live.init();
    for set in capabilities(init) {
        assert_eq!(set & !INIT_CAPABILITIES, 0, "PID 1 keeps more than it needs");
    }
    assert_eq!(init.status("NoNewPrivs").unwrap(), "1");
    assert_eq!(init.status("Seccomp").unwrap(), "2");
    assert!(init.uid().unwrap() >= CAGE_UID_BASE, "PID 1 is a user of the host");
    live.end();
}

#[test]
fn k01_sudo_grants_a_handful_of_capabilities_inside_and_only_when_asked_for() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let order = Order::attack("overwrite", &["root"]);
    let live = server.hold(&ana, &order.clone().root());
    let init = live.init();
    let is_root = |process: &Process| process.uid_inside() == Some(0);
    let roots: Vec<Process> = live.code().into_iter().filter(is_root).collect();
    assert!(!roots.is_empty(), "sudo started nothing, so this shows nothing");
    for process in roots {
        for set in capabilities(process) {
            assert_eq!(set & !SUDO_CAPABILITIES, 0, "{}", process.command_line());
        }
        assert_eq!(process.status("NoNewPrivs").unwrap(), "1");
        assert_eq!(process.status("Seccomp").unwrap(), "2");
        assert_eq!(process.namespace("user"), init.namespace("user"));
    }
    live.end();

    let outcome =
        server.run(&ana, &Order::shell("sudo -n true; sudo id; exec sudo sleep 60").limit("timeout_ms", 20_000));
    assert!(!outcome.text().contains("uid=0"), "sudo works for a run that has no root: {}", outcome.summary());
}

/// Namespaces of `processes` that are not those of the first.
fn strange_namespaces(processes: &[Process]) -> BTreeSet<String> {
    let kinds = NAMESPACES.iter().copied().chain(["pid_for_children", "time_for_children"]);
    let own = |process: Process, kind: &str| process.namespace(kind).map(|name| name.replace("_for_children", ""));
    let mut strange = BTreeSet::new();
    for kind in kinds {
        let wanted = own(processes[0], kind);
        for process in processes {
            let has = own(*process, kind);
            if has.is_some() && has != wanted {
                strange.insert(kind.replace("_for_children", ""));
            }
        }
    }
    strange
}

#[test]
fn k03_no_process_reaches_a_namespace_of_its_own() {
    let _guard = beside_others();
    let mut bare = Bare::start("namespaces", &[], &[]);
    bare.ready();
    let won = strange_namespaces(&bare.processes());
    assert!(NAMESPACES.iter().all(|kind| won.contains(*kind)), "the arm won only {won:?}");

    let server = shared();
    let live = server.hold(&server.user("acme", "ana"), &Order::attack("namespaces", &[]));
    let (init, code) = (live.init(), live.code());
    assert!(code.len() > 40, "the attack did not get going: {code:?}");
    let all: Vec<Process> = [init].into_iter().chain(code).collect();
    assert_eq!(strange_namespaces(&all), BTreeSet::new());
    let me = Process(i32::try_from(std::process::id()).unwrap());
    for kind in NAMESPACES {
        assert_ne!(init.namespace(kind), me.namespace(kind), "the {kind} namespace is the host's");
        assert_ne!(init.namespace(kind), server.serve().namespace(kind), "the {kind} namespace is the server's");
    }
    live.end();
}

/// Kinds of descriptor that only a kernel interface outside the sandbox's allowance hands out.
fn forbidden_descriptors(processes: &[Process]) -> BTreeSet<&'static str> {
    const KINDS: [&str; 9] =
        ["io_uring", "userfaultfd", "perf_event", "bpf", "fanotify", "secretmem", "fscontext", "/mem", "/environ"];
    let links: Vec<String> = processes.iter().flat_map(|process| process.descriptors().into_values()).collect();
    KINDS.into_iter().filter(|kind| links.iter().any(|link| link.contains(kind))).collect()
}

#[test]
fn k05_io_uring_and_its_kin_hand_out_no_descriptor() {
    let _guard = beside_others();
    let mut bare = Bare::start("trophies", &[], &[]);
    bare.ready();
    let won = forbidden_descriptors(&bare.processes());
    for kind in ["io_uring", "userfaultfd", "perf_event", "bpf", "fscontext"] {
        if !won.contains(kind) {
            eprintln!("k05: this kernel hands out no {kind} descriptor to root either; that part shows nothing");
        }
    }
    assert!(won.len() >= 3, "the arm won only {won:?}");

    let server = shared();
    let ana = server.user("acme", "ana");
    for order in [Order::attack("trophies", &[]), Order::attack("trophies", &["root"]).root()] {
        let live = server.hold(&ana, &order);
        assert_eq!(forbidden_descriptors(&live.code()), BTreeSet::new());
        let sockets = |process: Process| -> BTreeSet<String> {
            process.descriptors().into_values().filter(|link| link.starts_with("socket:")).collect()
        };
        let stream = sockets(live.init());
        assert!(!stream.is_empty(), "PID 1 has no stream to steal, so this shows nothing");
        for process in live.code() {
            assert!(sockets(process).is_disjoint(&stream), "a socket of PID 1 was taken");
        }
        live.end();
    }
}

/// Families and types of the sockets that a process holds, asked of the kernel from outside.
fn sockets(process: Process) -> BTreeSet<(i32, u32)> {
    use rustix::net::sockopt::{socket_domain, socket_type};
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let Some(pid) = rustix::process::Pid::from_raw(process.0) else { return BTreeSet::new() };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return BTreeSet::new() };
    let numbers = process.descriptors().into_iter().filter(|(_, link)| link.starts_with("socket:"));
    let copies = numbers
        .filter_map(|(number, _)| pidfd_getfd(&handle, i32::try_from(number).ok()?, PidfdGetfdFlags::empty()).ok());
    copies
        .map(|copy| (i32::from(socket_domain(&copy).unwrap().as_raw()), socket_type(&copy).unwrap().as_raw()))
        .collect()
}

#[test]
fn k10_only_plain_socket_families_open() {
    const ALLOWED: [(i32, u32); 7] = [(1, 1), (1, 2), (1, 5), (2, 1), (2, 2), (10, 1), (10, 2)];
    let _guard = beside_others();
    let mut bare = Bare::start("sockets", &[], &[]);
    bare.ready();
    let won: BTreeSet<(i32, u32)> = bare.processes().into_iter().flat_map(sockets).collect();
    for family in [16, 17] {
        assert!(won.iter().any(|(domain, _)| *domain == family), "the arm has no socket of family {family}: {won:?}");
    }
    assert!(won.contains(&(2, 3)), "the arm has no raw socket");

    let server = shared();
    let live = server.hold(&server.user("acme", "ana"), &Order::attack("sockets", &[]));
    let got: BTreeSet<(i32, u32)> = live.code().into_iter().flat_map(sockets).collect();
    assert!(!got.is_empty(), "not even a UNIX socket opened, so this shows nothing");
    assert_eq!(got.iter().filter(|kind| !ALLOWED.contains(kind)).collect::<Vec<_>>(), Vec::<&(i32, u32)>::new());
    let links = fs::read_to_string(live.init().path("net/dev")).unwrap();
    let names: Vec<&str> = links.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    assert_eq!(names, ["lo"], "the sandbox has network devices");
    live.end();
}

/// Devices behind descriptors, and device nodes in folders, that are none of the six harmless ones or a terminal.
fn foreign_devices(processes: &[Process]) -> BTreeSet<String> {
    const HARMLESS: [(u32, u32); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];
    let foreign = |meta: &fs::Metadata| {
        let kind = meta.file_type();
        let number = (major(meta.rdev()), minor(meta.rdev()));
        let terminal = number.0 == 136;
        kind.is_block_device() || (kind.is_char_device() && !terminal && !HARMLESS.contains(&number))
    };
    let mut found = BTreeSet::new();
    for process in processes {
        for number in process.descriptors().into_keys() {
            let meta = fs::metadata(process.path(&format!("fd/{number}"))).ok();
            if let Some(meta) = meta.filter(foreign) {
                found.insert(format!("open {:?} {}:{}", meta.file_type(), major(meta.rdev()), minor(meta.rdev())));
            }
        }
        for folder in ["tmp", "dev", "dev/shm", "dev/pts", "home/user", "data", "run", ""] {
            let Ok(entries) = fs::read_dir(process.path(&format!("root/{folder}"))) else { continue };
            for entry in entries.filter_map(Result::ok) {
                if entry.metadata().is_ok_and(|meta| foreign(&meta)) {
                    found.insert(format!("made /{folder}/{}", entry.file_name().display()));
                }
            }
        }
    }
    found
}

#[test]
fn k15_devices_are_the_harmless_ones_and_none_can_be_made() {
    let _guard = beside_others();
    let mut bare = Bare::start("devices", &[], &[]);
    bare.ready();
    let won = foreign_devices(&bare.processes());
    assert!(won.iter().any(|name| name.starts_with("open")), "the arm opened no device: {won:?}");
    assert!(won.iter().any(|name| name.starts_with("made /tmp")), "the arm made no device");

    let server = shared();
    let ana = server.user("acme", "ana");
    for order in [Order::attack("devices", &[]), Order::attack("devices", &["root"]).root()] {
        let live = server.hold(&ana, &order);
        let all = live.processes();
        // A whiteout (0:0) is no device; 5:1, the console, is none of a sandbox's.
        assert_eq!(foreign_devices(&all), BTreeSet::new());
        for mount in live.init().mounts() {
            let fields: Vec<&str> = mount.split(' ').collect();
            let device_file_system = fields[4] == "/dev" || fields[4].starts_with("/dev/");
            assert!(
                device_file_system || fields[5].split(',').any(|option| option == "nodev"),
                "without nodev: {mount}"
            );
            assert!(fields[5].split(',').any(|option| option == "nosuid"), "without nosuid: {mount}");
        }
        live.end();
    }
}

#[test]
fn k16_no_descriptor_of_the_host_reaches_a_sandbox() {
    let _guard = beside_others();
    let secret = |process: &Process| {
        let links = process.descriptors();
        links.into_iter().any(|(number, link)| LEAKED.contains(&number) && (link == "/etc/shadow" || link == "/root"))
    };
    let mut planted =
        std::process::Command::new("bash").args(["-c", "exec 10</etc/shadow; exec sleep 60"]).spawn().unwrap();
    let bare = Process(i32::try_from(planted.id()).unwrap());
    assert!(
        crate::host::within(std::time::Duration::from_secs(5), || secret(&bare)),
        "the oracle sees no planted descriptor"
    );
    planted.kill().unwrap();
    planted.wait().unwrap();

    let server = shared();
    let live = server.hold(&server.user("acme", "ana"), &Order::shell("echo ready; sleep 60 & exec sleep 60"));
    // A program that starts reads files of its own meanwhile; what was handed to it stays.
    let known = |(number, link): (&u32, &String)| {
        *number <= 2 && (link.starts_with("pipe:") || link == "/dev/null" || link.starts_with("socket:"))
    };
    let odd = || {
        let links = live.code().into_iter().map(|process| process.descriptors());
        links.filter(|links| !links.iter().all(known)).collect::<Vec<_>>()
    };
    assert!(crate::host::within(std::time::Duration::from_secs(5), || odd().is_empty()), "{:?}", odd());
    for process in [live.init(), server.serve()] {
        assert!(!secret(&process), "{:?}", process.descriptors());
        let host =
            |link: &String| link.starts_with("/etc") || link.starts_with("/root") || link.starts_with("/var/cache");
        assert!(!process.descriptors().values().any(host), "{:?}", process.descriptors());
    }
    live.end();
}

#[test]
fn k25_no_two_sandboxes_share_a_host_user() {
    let _guard = beside_others();
    let server = shared();
    let users = [server.user("acme", "ana"), server.user("globex", "gus"), server.user("acme", "ben")];
    let lives: Vec<_> = users.iter().map(|user| server.hold(user, &Order::attack("holder", &[]))).collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for live in &lives {
        let init = live.init();
        let map = fs::read_to_string(init.path("uid_map")).unwrap();
        let range = map.split_whitespace().collect::<Vec<_>>();
        assert!(seen.insert(range[1].to_owned()), "two sandboxes have the range {range:?}");
        assert!(range[1].parse::<u32>().unwrap() >= CAGE_UID_BASE, "{range:?}");
        for kind in NAMESPACES {
            assert!(seen.insert(init.namespace(kind).unwrap()), "two sandboxes share a {kind} namespace");
        }
    }
    for live in lives {
        live.end();
    }
}
