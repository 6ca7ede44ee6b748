//! What one cage may use, and that all of it dies.

use std::time::{Duration, Instant};

use bailey_protocol::id::SandboxId;
use bailey_protocol::jail::{CageMount, JailOp};
use bailey_protocol::limits::Limits;
use tempfile::TempDir;

use crate::harness::{Jail, Parked, open_path, share};
use crate::residue::{groups, ledger};

const MIB: u64 = 1024 * 1024;

#[test]
fn r10_stop_kills_what_left_its_session_and_stopped_itself() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let mut cage = jail.park();
    jail.claim(&cage.sandbox, Limits::default(), &[]);
    let pid = cage.pid();
    cage.agent.get("for i in 1 2 3 4 5; do (trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; while :; do :; done' &) ; done; (sleep 1000 & kill -STOP $!) & true");
    cage.agent.get("mkdir /proc/1/fd/4/e; sh -c 'echo 0 > /proc/1/fd/4/e/cgroup.procs; sleep 1000 &' ; true");
    let start = Instant::now();
    let facts = jail.stop(&cage.sandbox);
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(facts.cpu_us > 0 && facts.memory_peak_bytes > 0, "{facts:?}");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(jail.stop(&cage.sandbox), facts, "stopping again says the same");
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn r01_r05_r06_forks_bytes_and_inodes_end_at_their_limits() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let mut cage = jail.park();
    let limits = Limits { pids: 16, disk_bytes: 8 * MIB, disk_inodes: 300, ..Limits::default() };
    jail.claim(&cage.sandbox, limits, &[]);
    let (_, code) = cage.agent.run("dd if=/dev/zero of=/tmp/big bs=64k 2>/dev/null");
    assert_ne!(code, 0);
    let size: u64 = cage.agent.get("stat -c %s /tmp/big").trim().parse().unwrap();
    assert!((7 * MIB..=8 * MIB).contains(&size), "{size}");
    cage.agent.get("rm /tmp/big");
    let (made, _) = cage.agent.run("i=0; while echo x 2>/dev/null > /tmp/f$i; do i=$((i+1)); done; echo $i");
    let made: u64 = made.lines().last().unwrap().parse().unwrap();
    assert!((200..450).contains(&made), "{made}");
    let (said, _) = cage.agent.run("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 3 & done");
    assert!(said.contains("can't fork"), "{said}");
    let facts = jail.stop(&cage.sandbox);
    assert!(facts.pids_refused > 0 && facts.files_full, "{facts:?}");
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn r03_a_cage_without_memory_dies_as_a_whole() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let mut cage = jail.park();
    let limits = Limits { memory_bytes: 64 * MIB, disk_bytes: 8 * MIB, ..Limits::default() };
    jail.claim(&cage.sandbox, limits, &[]);
    cage.agent.start("sleep 1000 & x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 1000");
    // PID 1 is gone when its pidfd says so.
    let mut wait = [rustix::event::PollFd::new(&cage.pidfd, rustix::event::PollFlags::IN)];
    let timeout = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wait, Some(&timeout)).unwrap(), 1, "it lives");
    let facts = jail.stop(&cage.sandbox);
    assert!(facts.oom_kills > 0, "{facts:?}");
    jail.destroy(&cage.sandbox);
    jail.leave();
}

#[test]
fn cpu_time_ends_at_its_limit_and_is_counted() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    // A fifth of a core, and the least that there is.
    for cpu_millis in [200, 62] {
        let mut cage = jail.park();
        jail.claim(&cage.sandbox, Limits { cpu_millis, ..Limits::default() }, &[]);
        let start = Instant::now();
        cage.agent.get("for i in 1 2; do timeout 2 sh -c 'while :; do :; done' & done; wait; true");
        let lived = start.elapsed();
        let facts = jail.stop(&cage.sandbox);
        // Its share of the time, some slack, and two periods of 100 ms: that of the start and that of the end. Without a
        // limit it would be all of the time and more.
        let allowed = lived.as_micros() * u128::from(cpu_millis) / 800 + 200_000;
        assert!(lived >= Duration::from_millis(1900), "{lived:?}");
        assert!(u128::from(facts.cpu_us) <= allowed, "{} us of {allowed}", facts.cpu_us);
        assert!(facts.cpu_us >= u64::from(cpu_millis) * 500, "{facts:?}");
        jail.destroy(&cage.sandbox);
    }
    jail.leave();
}

/// What a file of one cage's cgroups says, in all hierarchies that have it.
fn told(data: &TempDir, cage: &SandboxId, file: &str) -> String {
    let own = groups(&ledger(data.path())).into_iter().filter(|group| group.ends_with(cage.as_str()));
    own.filter_map(|group| std::fs::read_to_string(group.join(file)).ok()).collect()
}

/// A cage's weight, on the scale of v1.
fn weight(data: &TempDir, cage: &SandboxId) -> u64 {
    let number = |file| told(data, cage, file).trim().parse::<u64>().ok();
    number("cpu.shares").or_else(|| number("cpu.weight").map(|weight| weight * 1024 / 100)).unwrap()
}

#[test]
fn cpu_weights_of_one_share_are_together_what_another_has_alone() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    // A cage whose agent's stream is closed ends by itself, so each is kept.
    let alone = jail.park();
    let of = |cage: &Parked| weight(&data, &cage.sandbox);
    let whole = of(&alone);
    jail.claim_for(&alone.sandbox, &share('b'), Limits::default());
    assert_eq!(of(&alone), whole, "nobody else has its share");
    let mut many: Vec<Parked> = Vec::new();
    let all = |cages: &[Parked]| cages.iter().map(of).sum::<u64>();
    for count in 1..=5 {
        let cage = jail.park();
        assert_eq!(of(&cage), whole, "a cage that has no share yet");
        jail.claim_for(&cage.sandbox, &share('a'), Limits::default());
        many.push(cage);
        let (all, each) = (all(&many), of(&many[0]));
        assert!(many.iter().all(|cage| of(cage) == each), "they are not equal");
        assert!(all <= whole && all > whole * 9 / 10, "{count} cages have {all} of {whole}");
    }
    assert_eq!(of(&alone), whole);
    // What a cage had that is gone, or could not be claimed, is the others'.
    jail.destroy(&many.pop().unwrap().sandbox);
    let lost = jail.park();
    let mounts = vec![CageMount { at: "/link/x".parse().unwrap(), writable: true }];
    let (sandbox, limits) = (lost.sandbox.clone(), Limits::default());
    let claim = JailOp::Claim { sandbox: sandbox.clone(), share: share('a'), limits, mounts };
    jail.call(claim, &[&open_path(data.path())]).0.unwrap_err();
    // It is being removed, or gone already.
    drop(jail.call(JailOp::Destroy { sandbox }, &[]));
    assert!(all(&many) <= whole && all(&many) > whole * 9 / 10, "{:?}", all(&many));
    while let Some(cage) = many.pop() {
        jail.destroy(&cage.sandbox);
    }
    let again = jail.park();
    jail.claim_for(&again.sandbox, &share('a'), Limits::default());
    assert_eq!(of(&again), whole, "something is left of those before");
    jail.leave();
}

#[test]
fn cpu_time_of_one_share_does_not_grow_with_its_cages() {
    const MANY: usize = 7;
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let mut cages: Vec<Parked> = (0..=MANY).map(|_| jail.park()).collect();
    for (number, cage) in cages.iter_mut().enumerate() {
        jail.claim_for(&cage.sandbox, &share(if number == 0 { 'b' } else { 'a' }), Limits::default());
        // All on one processor, so that whatever one gets another does not.
        let mut one = rustix::thread::CpuSet::new();
        one.set(0);
        rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(cage.pid()), &one).unwrap();
        cage.agent.start("while :; do :; done");
    }
    let used = |cage: &Parked| -> u64 {
        // The v2 tree counts whatever its controllers.
        let text = told(&data, &cage.sandbox, "cpu.stat");
        text.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap().parse().unwrap()
    };
    let before: Vec<u64> = cages.iter().map(used).collect();
    let end = Instant::now() + Duration::from_secs(60);
    let got = loop {
        let got: Vec<u64> = cages.iter().map(used).zip(&before).map(|(now, before)| now - before).collect();
        if got.iter().sum::<u64>() > 2_000_000 {
            break got;
        }
        assert!(Instant::now() < end, "they get nowhere: {got:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let (one, many) = (got[0], got[1..].iter().sum::<u64>());
    println!("one cage of a share got {one} us, {MANY} of another {many} us together");
    // As much as the other, with room for what the kernel rounds. Were all cages equal, it would be seven times as much.
    assert!(many < one * 2, "{MANY} cages of one share got {many} us, and one of another {one} us: {got:?}");
    jail.leave();
}

#[test]
fn a_full_disk_is_freed_behind_the_other_cages() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let mut cage = jail.park();
    jail.claim(&cage.sandbox, Limits::default(), &[]);
    cage.agent.get("dd if=/dev/zero of=/tmp/big bs=1M count=200 2>/dev/null");
    jail.stop(&cage.sandbox);
    // Both in one turn of the jail's loop; the second must not wait for the first.
    let destroy = jail.send(JailOp::Destroy { sandbox: cage.sandbox.clone() }, &[]);
    let other = jail.send(JailOp::Stop { sandbox: cage.sandbox.clone() }, &[]);
    let first = jail.receive().unwrap().0;
    let second = jail.receive().unwrap().0;
    assert_eq!((first.id, second.id), (other, destroy));
    assert!(first.result.is_err() && second.result.is_ok());
    jail.leave();
}

#[test]
fn code_is_told_of_the_machine_that_it_was_granted_and_of_no_other() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let host = std::thread::available_parallelism().unwrap().get();
    let mut cages = [jail.park(), jail.park()];
    let mut boots =
        std::collections::BTreeSet::from([std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap()]);
    let mut placed = std::collections::BTreeSet::new();
    for cage in &mut cages {
        let limits = Limits { cpu_millis: 500, memory_bytes: 80 * MIB, disk_bytes: 8 * MIB, ..Limits::default() };
        jail.claim(&cage.sandbox, limits, &[]);
        let mut tell = |command: &str| cage.agent.get(command).trim().to_owned();
        assert_eq!(tell("nproc"), "1");
        assert_eq!(tell("grep -c ^processor /proc/cpuinfo"), "1");
        assert_eq!(tell("grep -c '^cpu[0-9]' /proc/stat"), "1");
        assert_eq!(tell("sed -n 's/^MemTotal: *//p' /proc/meminfo"), format!("{} kB", 80 * 1024));
        assert_eq!(tell("cat /proc/loadavg"), "0.00 0.00 0.00 1/1 1");
        assert_eq!(tell("cat /proc/vmstat 2>&1 | grep -c ^nr_ || true"), "0");
        for path in FACTS {
            assert_eq!(tell(&format!("(echo x >/proc/{path}) 2>/dev/null || echo refused")), "refused", "{path}");
        }
        assert!(boots.insert(tell("cat /proc/sys/kernel/random/boot_id") + "\n"), "a boot's id comes twice");
        placed.insert(tell("grep Cpus_allowed_list /proc/self/status"));
    }
    // Two that are granted one each do not have to share it.
    assert_eq!(placed.len(), host.min(2), "{placed:?}");
    let mut whole = jail.park();
    jail.claim(&whole.sandbox, Limits { cpu_millis: u32::try_from(host).unwrap() * 1000, ..Limits::default() }, &[]);
    assert_eq!(whole.agent.get("nproc").trim(), host.to_string());
    jail.leave();
}

/// Files of `/proc` that are a cage's own.
const FACTS: [&str; 5] = ["meminfo", "cpuinfo", "stat", "loadavg", "sys/kernel/random/boot_id"];

/// Whatever cages do, and however many there are, the host keeps memory and processes for itself.
#[test]
fn r18_all_cages_together_have_less_than_the_host() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let cage = jail.park();
    let homes = groups(&ledger(data.path()));
    let limit = |names: [&str; 2]| {
        let read = |home: &std::path::PathBuf| {
            names.iter().find_map(|name| std::fs::read_to_string(home.join(name)).ok()?.trim().parse::<u64>().ok())
        };
        homes.iter().filter(|home| home.ends_with(ledger(data.path()))).find_map(read)
    };
    let host = rustix::system::sysinfo();
    let memory = host.totalram * u64::from(host.mem_unit);
    let all = limit(["memory.max", "memory.limit_in_bytes"]).expect("no limit for the memory of all cages");
    assert!(all > memory / 2 && all <= memory - 256 * MIB, "{all} of {memory}");
    // In the v2 tree the server shares the folder, and has no fewer threads for it.
    if homes.iter().any(|home| {
        home.ends_with(ledger(data.path())) && home.join("pids.max").exists() && !home.join("cgroup.kill").exists()
    }) {
        let threads: u64 = std::fs::read_to_string("/proc/sys/kernel/threads-max").unwrap().trim().parse().unwrap();
        let all = limit(["pids.max", "pids.max"]).expect("no limit for the processes of all cages");
        assert!(all <= threads / 2, "{all} of {threads}");
    }
    jail.destroy(&cage.sandbox);
    jail.leave();
}
