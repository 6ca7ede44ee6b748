//! What a parked cage looks like, from outside and to a PID 1 that was taken over.

use std::collections::BTreeSet;
use std::fs;

use tempfile::TempDir;

use crate::harness::{Jail, config};

fn status(pid: i32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:\t")));
    line.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

#[test]
fn k01_k25_the_posture_of_pid_1_from_outside_is_the_golden_one() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let cages = [jail.park(), jail.park()];
    let mut bases = BTreeSet::new();
    for cage in &cages {
        let pid = cage.pid();
        let uid: u32 = status(pid, "Uid").split('\t').next().unwrap().parse().unwrap();
        assert!(uid >= bailey_protocol::jail::CAGE_UID_BASE && uid.is_multiple_of(65_536));
        assert!(bases.insert(uid), "two cages share a range");
        assert_eq!(status(pid, "Uid"), format!("{uid}\t{uid}\t{uid}\t{uid}"));
        assert_eq!(status(pid, "Gid"), format!("{uid}\t{uid}\t{uid}\t{uid}"));
        for (name, wanted) in [
            ("CapInh", "0000000000000000"),
            ("CapPrm", "00000000000005eb"),
            ("CapEff", "00000000000005eb"),
            ("CapBnd", "00000000000005eb"),
            ("CapAmb", "0000000000000000"),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
            ("Seccomp_filters", "2"),
        ] {
            assert_eq!(status(pid, name), wanted, "{name}");
        }
        for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"] {
            let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/{kind}")).unwrap();
            assert_ne!(namespace(&pid.to_string()), namespace("self"), "{kind}");
            let [first, second] = &cages;
            assert_ne!(namespace(&first.pid().to_string()), namespace(&second.pid().to_string()), "{kind}");
        }
        let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap();
        assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", &uid.to_string(), "65536"]);
        assert_eq!(fs::read_to_string(format!("/proc/{pid}/gid_map")).unwrap(), map);
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        for wanted in [":memory:", ":pids:", "0::"] {
            let line = groups.lines().find(|line| line.contains(wanted));
            // On a v2 host only the last line exists.
            assert!(
                line.is_none_or(|line| line.contains("/bailey/") && line.ends_with(cage.sandbox.as_str())),
                "{groups}"
            );
        }
        assert!(fs::read(format!("/proc/{pid}/environ")).unwrap().is_empty(), "L01");
        assert_eq!(fs::read(format!("/proc/{pid}/cmdline")).unwrap(), b"bailey-guest\0init\0");
        assert!(cage.fences.len() > 10);
    }
    jail.leave();
}

#[test]
fn k16_nothing_that_the_caller_left_open_reaches_the_cage() {
    let data = TempDir::new().unwrap();
    // Single digits only: dash knows no others. 3 and 4 are the protocol's.
    let mut jail = Jail::start_with(&config(data.path()), "exec 5</etc 6</etc/shadow 7<>/dev/null 8</ 9</proc");
    let mut cage = jail.park();
    let listing = cage.agent.get("ls -l /proc/1/fd | tail -n +2 | sed 's/.* \\([0-9]* -> .*\\)/\\1/'");
    let mut lines: Vec<&str> = listing.lines().collect();
    lines.retain(|line| !line.contains("socket:["));
    assert_eq!(lines, ["0 -> /dev/null", "1 -> /dev/null", "2 -> /dev/null", "4 -> /"], "{listing}");
    // The cgroup folder has no way up to the host's other groups.
    assert_eq!(cage.agent.run("ls -d /proc/1/fd/4/../memory /proc/1/fd/4/../../bailey").1, 1);
    let inside = cage.agent.get("ls -a /proc/1/fd/4/..");
    assert!(inside.contains("cgroup.controllers"), "{inside}");
    jail.leave();
}

#[test]
fn l03_k20_what_the_cage_sees_of_the_machine() {
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let mut cage = jail.park();
    let agent = &mut cage.agent;
    let mounts = agent.get("cat /proc/self/mountinfo");
    for secret in
        [data.path().to_str().unwrap(), cage.sandbox.as_str(), "/run/bailey/uids", "templates", "/var/", "bailey/"]
    {
        let shown = mounts.replace("/run/bailey/agent", "");
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert_eq!(agent.get("cat /proc/self/cgroup | cut -d: -f3 | sort -u"), "/\n");
    assert_eq!(
        agent.get("cat /proc/sys/kernel/hostname; ls /sys 2>&1 | wc -l; ls /dev | tr '\\n' ' '"),
        "sandbox\n1\nfd full null ptmx pts random shm stderr stdin stdout tty urandom zero "
    );
    assert_eq!(agent.get("cat /proc/kcore /proc/kallsyms /proc/keys /proc/config.gz 2>/dev/null | wc -c; ls /proc/acpi 2>/dev/null | wc -l"), "0\n0\n");
    assert_eq!(agent.get("ip link 2>/dev/null | grep -c '^[0-9]*:'; ip link show lo | grep -c LOOPBACK,UP"), "1\n1\n");
    let uptime: f64 = agent.get("cut -d' ' -f1 /proc/uptime").trim().parse().unwrap();
    assert!(uptime < 60.0, "K33: {uptime}");
    for refused in [
        "echo x > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/user/max_user_namespaces",
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /dev",
        "umount /proc/sys",
        "mknod /tmp/mem c 1 1",
        "mknod /tmp/disk b 7 0",
        "touch /dev/x",
        "chroot / true",
        "unshare -U true",
        "unshare -m true",
        "unshare -n true",
        "nsenter -t 1 -m true",
        "echo x > /run/bailey/agent",
        "rm /run/bailey/agent",
        "hostname other",
        "date -s 2001-01-01; test $(date +%Y) = 2001",
        "ip link add d type dummy",
        "ip addr add 10.9.9.9/32 dev lo",
        "echo 100 > /proc/1/fd/4/cgroup.max.depth",
        "mkdir -p /proc/1/fd/4/a/b/c/d/e/f",
    ] {
        let (output, code) = agent.run(refused);
        assert_ne!(code, 0, "{refused}: {output}");
    }
    // What a cage must be able to do.
    for allowed in [
        "mkdir /proc/1/fd/4/exec && echo 0 > /proc/1/fd/4/exec/cgroup.procs",
        "echo x > /dev/null && head -c 4 /dev/urandom > /tmp/x && echo y > /dev/shm/y",
        "chown 1000:1000 /tmp/x && chown 65535:65535 /tmp/x",
        "test -c /dev/ptmx",
        "mkfifo /tmp/fifo",
    ] {
        let (output, code) = agent.run(allowed);
        assert_eq!(code, 0, "{allowed}: {output}");
    }
    assert_eq!(agent.get("id -u").trim(), "0");
    jail.leave();
}

/// K25: whoever may read a file may lock it and watch who else opens it, so two cages share none that can be read.
#[test]
fn k25_no_file_that_can_be_read_is_shared_between_cages() {
    use std::os::unix::fs::MetadataExt;
    let data = TempDir::new().unwrap();
    let mut jail = Jail::start(data.path());
    let (one, other) = (jail.park(), jail.park());
    let stat = |pid: i32, path: &str| std::fs::metadata(format!("/proc/{pid}/root{path}"));
    let mut compared = 0;
    let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", one.pid())).unwrap();
    let mounts = mounts.lines().map(|line| line.split(' ').nth(4).unwrap());
    for path in mounts.chain(["/dev/null", "/dev/zero", "/dev/urandom", "/dev/tty", "/bin/busybox", "/etc/marker"]) {
        let (Ok(mine), Ok(theirs)) = (stat(one.pid(), path), stat(other.pid(), path)) else { continue };
        compared += 1;
        let same = (mine.dev(), mine.ino()) == (theirs.dev(), theirs.ino());
        assert!(!same || mine.mode() & 0o666 == 0, "{path} is one file with mode {:o}", mine.mode());
    }
    assert!(compared > 20, "{compared}");
    jail.leave();
}
