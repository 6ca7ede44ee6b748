//! Disks that do not fit in memory: exact, one cage's alone, and gone with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use bailey_protocol::jail::{JailAnswer, JailFaultKind, JailOp, SupervisorConfig};
use bailey_protocol::limits::{LargeDisks, Limits};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::harness::{Jail, config, fixture, new_sandbox};
use crate::residue::{groups, ledger};

const MIB: u64 = 1024 * 1024;
const BYTES: u64 = 192 * MIB;
const INODES: u64 = 1000;

/// A third of its disk would fill its memory.
fn large() -> Limits {
    Limits { memory_bytes: 64 * MIB, disk_bytes: BYTES, disk_inodes: INODES, ..Limits::default() }
}

fn with_disks(data: &TempDir, count: u32) -> SupervisorConfig {
    SupervisorConfig {
        large_disks: Some(LargeDisks { count, bytes: BYTES, inodes: 2 * INODES }),
        ..config(data.path())
    }
}

/// Loop devices over something in the jail's own folder.
fn loops(data: &TempDir) -> BTreeSet<String> {
    let home = format!("{}/jail/", data.path().file_name().unwrap().to_str().unwrap());
    let devices = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    devices
        .filter_map(|device| fs::read_to_string(device.join("loop/backing_file")).ok())
        .filter(|backing| backing.contains(&home))
        .collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn park(jail: &mut Jail, limits: Limits) -> Result<JailAnswer, (JailFaultKind, String)> {
    let op = JailOp::Park { sandbox: new_sandbox(), template: fixture().digest.clone(), limits };
    jail.call(op, &[]).0.map_err(|fault| (fault.kind, fault.to_string()))
}

#[test]
fn r05_a_large_disk_ends_at_its_bytes_whatever_the_memory() {
    for before in ["", "exec \"$0\" 4 --layers-by-path;"] {
        let data = TempDir::new().unwrap();
        let mut jail = Jail::start_with(&with_disks(&data, 1), before);
        let lower = data.path().join("lower");
        fs::create_dir(&lower).unwrap();
        fs::write(lower.join("file"), "old\n").unwrap();
        let mut cage = jail.park_with(large());
        assert!(cage.fences.contains(&"sized_image".to_owned()), "{:?}", cage.fences);
        jail.claim(&cage.sandbox, large(), &[("/data", true, &lower)]);
        assert_eq!(loops(&data).len(), 1);
        // Linux refuses a large write that does not fit as a whole; small ones find what is left.
        let (said, _) = cage.agent.run("for size in 1M 4k; do dd if=/dev/zero of=/data/$size bs=$size 2>&1; done");
        assert_eq!(said.matches("No space left on device").count(), 2, "{said}");
        let sizes = cage.agent.get("stat -c %s /data/1M /data/4k");
        let written: u64 = sizes.lines().map(|size| size.parse::<u64>().unwrap()).sum();
        // The cage's own folders and files take the rest.
        assert!((BYTES - MIB / 4..=BYTES).contains(&written), "{written}");
        // What it shows says nothing of the host.
        let mountinfo = cage.agent.get("cat /proc/self/mountinfo");
        assert!(!mountinfo.contains("loop") && !mountinfo.contains(&*data.path().to_string_lossy()), "{mountinfo}");
        let facts = jail.stop(&cage.sandbox);
        assert!(facts.disk_full && !facts.files_full && facts.oom_kills == 0, "{facts:?}");
        assert!(jail.collect(&cage.sandbox, 0).contains("upper 4k"));
        jail.destroy(&cage.sandbox);
        until("a loop device is left", || loops(&data).is_empty());
        jail.leave();
    }
}

#[test]
fn r06_a_large_disk_ends_at_its_inodes() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start_with(&with_disks(&data, 1), "");
    let mut cage = jail.park_with(large());
    jail.claim(&cage.sandbox, large(), &[]);
    let (made, _) = cage.agent.run("i=0; while echo x 2>/dev/null > /tmp/f$i; do i=$((i+1)); done; echo $i");
    let made: u64 = made.lines().last().unwrap().parse().unwrap();
    // The jail's own folders do not need all that is there for them.
    assert!((INODES..INODES + 128).contains(&made), "{made}");
    let facts = jail.stop(&cage.sandbox);
    assert!(facts.files_full && !facts.disk_full, "{facts:?}");
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn a_large_disk_is_one_cages_alone_and_new_for_the_next() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start_with(&with_disks(&data, 1), "");
    let mut first = jail.park_with(large());
    jail.claim(&first.sandbox, large(), &[]);
    first.agent.get("echo canary-5cd1 > /tmp/secret; sync; ls /tmp/secret");
    let (kind, said) = park(&mut jail, large()).unwrap_err();
    assert_eq!(kind, JailFaultKind::Exhausted, "{said}");
    let small = jail.park();
    jail.destroy(&small.sandbox);
    jail.destroy(&first.sandbox);
    for round in 0..3 {
        let mut next = jail.park_with(large());
        assert_eq!(next.agent.get("ls -A /tmp"), "", "{round}");
        next.agent.get("echo canary-5cd1 > /tmp/secret");
        jail.destroy(&next.sandbox);
    }
    // One that is destroyed before it is there: its disk comes back all the same.
    let sandbox = new_sandbox();
    jail.send(JailOp::Park { sandbox: sandbox.clone(), template: fixture().digest.clone(), limits: large() }, &[]);
    let early = jail.send(JailOp::Destroy { sandbox: sandbox.clone() }, &[]);
    let replies: Vec<_> = (0..2).map(|_| jail.receive().unwrap().0).collect();
    let refused = replies.iter().find(|reply| reply.id == early).unwrap();
    if refused.result.is_err() {
        jail.destroy(&sandbox);
    }
    let last = jail.park_with(large());
    jail.destroy(&last.sandbox);
    jail.leave();
}

#[test]
fn what_does_not_fit_a_large_disk_is_refused() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start_with(&with_disks(&data, 2), "");
    for greedy in [
        Limits { disk_bytes: BYTES + 1, ..large() },
        Limits { disk_inodes: 2 * INODES + 1, ..large() },
        Limits { disk_bytes: 1 << 40, disk_inodes: 1 << 32, ..large() },
    ] {
        assert_eq!(park(&mut jail, greedy).unwrap_err().0, JailFaultKind::Invalid, "{greedy:?}");
    }
    // A cage keeps the kind of disk that it was parked with, and a large one its size.
    for (parked, claimed) in [
        (large(), Limits { disk_bytes: BYTES - 4096, ..large() }),
        (large(), Limits { disk_inodes: INODES + 1, ..large() }),
        (large(), Limits::default()),
        (Limits::default(), large()),
    ] {
        let cage = jail.park_with(parked);
        let refused = jail.try_claim(&cage.sandbox, claimed, &[]).unwrap_err();
        assert!(refused.kind == JailFaultKind::Invalid && refused.message.contains("cannot become"), "{refused:?}");
        jail.destroy(&cage.sandbox);
    }
    jail.leave();
    let none = TempDir::new().unwrap();
    let mut jail = Jail::start(none.path());
    assert_eq!(park(&mut jail, large()).unwrap_err().0, JailFaultKind::Invalid);
    jail.leave();
}

#[test]
fn a_host_without_room_for_the_large_disks_is_told_at_the_start() {
    let data = TempDir::new().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let huge = LargeDisks { count: 1000, bytes: 1 << 40, inodes: INODES };
    let config = SupervisorConfig { large_disks: Some(huge), ..config(data.path()) };
    let mut jail = Jail::start_with(&config, &format!("exec 2>{};", log.path().display()));
    assert_eq!(jail.wait_for_refusal(), Some(1));
    let said = fs::read_to_string(log.path()).unwrap();
    assert!(said.contains("set large disks aside") && said.contains("bytes each"), "{said}");
}

#[test]
fn d12_nothing_of_large_disks_outlives_a_kill_9() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start_with(&with_disks(&data, 2), "");
    let mut cage = jail.park_with(large());
    jail.claim(&cage.sandbox, large(), &[]);
    cage.agent.get("dd if=/dev/zero of=/tmp/big bs=1M count=60");
    cage.agent.start("setsid sleep 1000 & dd if=/dev/zero of=/tmp/more bs=1M");
    // One that is being made.
    jail.send(JailOp::Park { sandbox: new_sandbox(), template: fixture().digest.clone(), limits: large() }, &[]);
    assert!(!loops(&data).is_empty());
    jail.signal(Signal::KILL);
    assert_eq!(jail.wait(), None);
    until("a loop device outlives its jail", || loops(&data).is_empty());
    let names = |folder: &Path| -> Vec<_> { fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect() };
    assert_eq!(names(&data.path().join("jail")).len(), 2, "the ledger and its lock");
    let mut next = Jail::start_with(&with_disks(&data, 2), "");
    let [one, two] = [next.park_with(large()), next.park_with(large())];
    next.destroy(&one.sandbox);
    next.destroy(&two.sandbox);
    let name = ledger(data.path());
    next.leave();
    assert_eq!(groups(&name), BTreeSet::new());
    until("a loop device is left", || loops(&data).is_empty());
}

#[test]
fn o6_r20_cycles_with_large_disks_leave_everything_as_it_was() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start_with(&with_disks(&data, 2), "");
    let pid = jail.process.id();
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let cycle = |jail: &mut Jail| {
        let mut cage = jail.park_with(large());
        jail.claim(&cage.sandbox, large(), &[]);
        cage.agent.start("dd if=/dev/zero of=/tmp/x bs=1M count=8; sleep 100");
        jail.destroy(&cage.sandbox);
    };
    cycle(&mut jail);
    let before = (count("fd"), groups(&ledger(data.path())));
    (0..10).for_each(|_| cycle(&mut jail));
    assert_eq!((count("fd"), groups(&ledger(data.path()))), before);
    until("a loop device is left", || loops(&data).is_empty());
    jail.leave();
}
