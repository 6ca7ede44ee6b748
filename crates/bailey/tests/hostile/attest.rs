//! The arms of those attacks that `bailey attest` alone runs: in the bad jail each succeeds, and the look that the
//! command takes sees it. What the command makes of such a look is tested beside it.

use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use bailey_protocol::api::EntryKind;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::bare::Bare;
use crate::host::within;
use crate::look::{Look, Seen};
use crate::server::{alone, beside_others, scratch, shared};
use crate::tree;

const OWN: [&str; 3] = ["--pid", "--fork", "--ipc"];

/// The attack in the bad jail, once it holds what it got.
fn arm(program: &str, args: &[&str]) -> Bare {
    let mut arm = Bare::start_with(&OWN, program, args, &[]);
    arm.ready();
    arm
}

fn look(arm: &Bare) -> Look {
    let pids: Vec<i32> = arm.processes().into_iter().map(|process| process.0).collect();
    Look::of(&pids).unwrap()
}

/// The host's own keys and mounts are there whatever an attack does: only what one more look shows counts.
fn untouched() -> Look {
    look(&arm("holder", &[]))
}

fn any(look: &Look, what: impl Fn(&Seen) -> bool) -> bool {
    look.all().any(what)
}

#[test]
fn k06_marks_of_calls_that_succeed_are_seen() {
    let _guard = beside_others();
    // The arm's template is the server's.
    let _prepared = shared();
    let before = untouched();
    let marked = before.all().find(|one| one.tracer != 0 || one.root != "/");
    assert_eq!(marked, None, "an arm that does nothing has a mark");
    // Whoever runs tests may leave descriptors open.
    let numbers = |look: &Look| -> BTreeSet<u32> {
        look.all().flat_map(|one| one.descriptors.keys().copied()).filter(|number| *number >= 200).collect()
    };

    assert_ne!(look(&arm("marks", &["trace"])).init.tracer, 0, "nobody traces PID 1");
    let mounts = look(&arm("marks", &["mounts"]));
    // Wherever that is by now: the root has moved, too.
    let mounted = mounts.mounts.iter().any(|mount| mount.at.ends_with("/mark") && mount.kind == "tmpfs");
    assert!(mounted && mounts.mounts != before.mounts, "nothing is mounted: {:?}", mounts.mounts);
    assert!(any(&mounts, |one| one.root != "/"), "no process has another root");
    let handles = look(&arm("marks", &["handles"]));
    assert!(!numbers(&handles).is_subset(&numbers(&before)), "no file came by its handle");
    let keys = look(&arm("marks", &["keys"]));
    assert!(keys.keys > before.keys, "no key was made: {} {}", keys.keys, before.keys);
}

#[test]
fn k08_who_comes_through_a_closed_entry_is_seen() {
    let _guard = beside_others();
    let _prepared = shared();
    let masks = look(&arm("marks", &["entries"]));
    assert!(any(&masks, |one| one.umask == "0123"), "the 32-bit entry did nothing");
    if !any(&masks, |one| one.umask == "0124") {
        eprintln!("k08: this kernel has no x32 table; that part shows nothing");
    }
}

#[test]
fn k20_a_setting_that_is_open_for_writing_is_seen() {
    let _guard = beside_others();
    let _prepared = shared();
    let settings = look(&arm("settings", &[]));
    for kind in ["proc", "sysfs"] {
        assert!(
            any(&settings, |one| one.descriptors.values().any(|of| of.writes_to == Some(kind))),
            "nothing on {kind} is open for writing"
        );
    }
}

#[test]
fn n01_listeners_are_reached_by_who_is_not_kept_apart() {
    let _guard = beside_others();
    let _prepared = shared();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = format!("hostile-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let unix = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let ports = [tcp.local_addr().unwrap(), udp.local_addr().unwrap()].map(|address| address.port().to_string());
    let [tcp_port, udp_port] = &ports;
    let name = format!("@{name}");
    let _arm = arm("network", &["tcp", "127.0.0.1", tcp_port, "udp", "127.0.0.1", udp_port, "unix", &name]);
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    unix.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_ok() && udp.recv(&mut [0; 16]).is_ok() && unix.accept().is_ok());
}

/// The clock is set to what it shows, so that nobody else is disturbed. That it was set at all the kernel tells whoever
/// waits for a time.
#[test]
fn k33_a_clock_that_is_set_and_a_host_that_is_renamed_are_seen() {
    let _guard = alone();
    let _prepared = shared();
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC).unwrap();
    let never = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: i64::from(u32::MAX), tv_nsec: 0 },
    };
    let wait = || timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &never);
    wait().unwrap();
    // One that was set a moment before is told of with the next.
    while rustix::io::read(&timer, &mut [0; 8]) == Err(Errno::CANCELED) {
        wait().unwrap();
    }
    let mut arm = Bare::start_with(&["--pid", "--fork", "--uts"], "marks", &["clock", "0"], &[]);
    arm.ready();
    assert_eq!(rustix::io::read(&timer, &mut [0; 8]), Err(Errno::CANCELED), "nobody has set the clock");
    let inside = arm.processes().last().unwrap().0.to_string();
    for name in ["hostname", "domainname"] {
        let setting = format!("/proc/sys/kernel/{name}");
        let told = Command::new("nsenter").args(["--uts", "--target", &inside, "cat", &setting]).output().unwrap();
        assert_eq!(told.stdout, b"attest-mark.example\n", "{name}: {told:?}");
    }
}

/// In the bad jail nothing keeps a run from making what no tree may hold, and whoever walks its folder from outside by
/// name follows its links.
#[test]
fn f03_links_that_lead_out_and_what_is_no_file_are_told() {
    let _guard = beside_others();
    let _prepared = shared();
    let secret = scratch().join("attest-links-secret");
    std::fs::write(&secret, "secret").unwrap();
    let mut arm = Bare::start_with(&OWN, "links", &[secret.to_str().unwrap()], &[("HOLD", "1")]);
    arm.ready();
    let inside = arm.processes().last().unwrap().0;
    let folder = PathBuf::from(format!("/proc/{inside}/root/data"));
    assert_eq!(std::fs::read(folder.join("link-0")).unwrap(), b"secret", "the link does not lead out");

    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let followed: Vec<(String, EntryKind)> =
        names.filter_map(|name| kind(&folder.join(&name)).map(|kind| (name, kind))).collect();
    let wrong = tree::wrong(followed.iter().map(|(name, kind)| (name.as_str(), *kind))).join("; ");
    for name in ["link-0", "link-folder-0", "link-root", "link-passwd"] {
        assert!(wrong.contains(&format!("`{name}`")), "{name} was followed, and nobody says so: {wrong}");
    }
    let on_disk = |name: &str| tree::wrong_on_disk(name, &std::fs::symlink_metadata(folder.join(name)).unwrap());
    for name in ["memory", "disk", "whiteout", "fifo", "bits"] {
        assert!(on_disk(name).is_some(), "{name} lies there, and nobody says so");
    }
    assert_eq!((on_disk("left"), on_disk("link-0")), (None, None));
}

/// What a tree takes a path for whose links are followed.
fn kind(path: &Path) -> Option<EntryKind> {
    let meta = std::fs::metadata(path).ok()?;
    Some(if meta.is_dir() { EntryKind::Directory } else { EntryKind::File })
}

#[test]
fn r03_pipes_take_memory() {
    let _guard = alone();
    let _prepared = shared();
    let available = || -> u64 {
        let table = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = table.lines().find(|line| line.starts_with("MemAvailable:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = available();
    let mut arm = Bare::start_with(&OWN, "bomb", &["pipes", "200"], &[]);
    arm.ready();
    let taken = within(std::time::Duration::from_secs(20), || available() + 64 * 1024 < before);
    assert!(taken, "{} KiB of memory were available before, {} are now", before, available());
}
