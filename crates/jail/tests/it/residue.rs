//! Nothing is left: after many cycles, after a `kill -9`, after the end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bailey_protocol::limits::Limits;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::harness::{Jail, config};

/// The ledger's name, from the data folder.
pub(crate) fn ledger(data: &Path) -> String {
    let text = fs::read_to_string(data.join("jail/ledger.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record["id"].as_str().unwrap().to_owned()
}

/// Folders of that ledger in every hierarchy that the host has mounted.
pub(crate) fn groups(ledger: &str) -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let roots = mounts.lines().filter(|line| line.contains(" - cgroup")).map(|line| line.split(' ').nth(4).unwrap());
    let homes = roots.map(|root| Path::new(root).join("bailey").join(ledger));
    let mut found = BTreeSet::new();
    for home in homes.filter(|home| home.exists()) {
        let inner = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        found.extend(inner);
        found.insert(home);
    }
    found
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn mounts(pid: u32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap().lines().count()
}

/// Processes whose uid lies in a cage's range and whose parent is gone or is `parent`.
fn children(parent: u32) -> usize {
    fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap().split_whitespace().count()
}

#[test]
fn o6_r20_a_hundred_cycles_leave_everything_as_it_was() {
    let data = TempDir::new().unwrap();
    cycles(&data, Jail::start(data.path()), 100);
    let data = TempDir::new().unwrap();
    cycles(&data, Jail::start_with(&config(data.path()), "exec \"$0\" 4 --layers-by-path;"), 20);
}

fn cycles(data: &TempDir, mut jail: Jail, count: usize) {
    let lower = data.path().join("lower");
    fs::create_dir(&lower).unwrap();
    let cycle = |jail: &mut Jail, number: usize| {
        let mut cage = jail.park();
        jail.claim(&cage.sandbox, Limits::default(), &[("/data", true, &lower), ("/ro", false, &lower)]);
        cage.agent.get("echo 1 > /data/made");
        cage.agent.start("dd if=/dev/zero of=/data/x bs=1M count=4; mkdir /proc/1/fd/4/e; sleep 100 & sleep 100");
        match number % 3 {
            0 => drop(jail.stop(&cage.sandbox)),
            1 => {
                jail.stop(&cage.sandbox);
                jail.collect(&cage.sandbox, 0);
            }
            _ => {}
        }
        jail.destroy(&cage.sandbox);
    };
    (0..5).for_each(|number| cycle(&mut jail, number));
    let pid = jail.process.id();
    let before = (open_files(pid), mounts(pid), children(pid), groups(&ledger(data.path())));
    (0..count).for_each(|number| cycle(&mut jail, number));
    assert_eq!((open_files(pid), mounts(pid), children(pid), groups(&ledger(data.path()))), before);
    let name = ledger(data.path());
    jail.leave();
    assert_eq!(groups(&name), BTreeSet::new());
    assert_eq!(fs::read_to_string(lower.join("x")).ok(), None);
}

#[test]
fn d12_r19_after_kill_9_the_next_start_sweeps_its_own_and_nothing_else() {
    let data = TempDir::new().unwrap();
    let other_data = TempDir::new().unwrap();
    let mut other = Jail::start(other_data.path());
    let mut neighbour = other.park();
    let mut jail = Jail::start(data.path());
    let mut cages = [jail.park(), jail.park()];
    let claimed = cages[0].sandbox.clone();
    jail.claim(&claimed, Limits::default(), &[]);
    cages[0].agent.start("setsid sleep 1000 & sleep 1000");
    // One that is being built.
    jail.send(
        bailey_protocol::jail::JailOp::Park {
            sandbox: crate::harness::new_sandbox(),
            template: crate::harness::fixture().digest.clone(),
            limits: Limits::default(),
        },
        &[],
    );
    jail.signal(Signal::KILL);
    assert_eq!(jail.wait(), None);
    let name = ledger(data.path());
    assert!(groups(&name).len() > 1);
    let mut next = Jail::start(data.path());
    let start = Instant::now();
    drop(next.park());
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(ledger(data.path()), name);
    for sandbox in [&cages[0].sandbox, &cages[1].sandbox] {
        assert!(!groups(&name).iter().any(|path| path.ends_with(sandbox.as_str())));
    }
    for cage in &cages {
        let mut wait = [rustix::event::PollFd::new(&cage.pidfd, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut wait, Some(&now)).unwrap(), 1, "a cage outlived its jail and the sweep");
    }
    assert_eq!(neighbour.agent.get("echo well"), "well\n");
    next.leave();
    other.leave();
    assert_eq!(groups(&name), BTreeSet::new());
}

#[test]
fn a_second_jail_on_the_same_folder_refuses() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let mut cage = jail.park();
    let mut second = Jail::start_with(&config(data.path()), "");
    assert_eq!(second.wait_for_refusal(), Some(1));
    assert_eq!(cage.agent.get("echo well"), "well\n");
    jail.leave();
}
