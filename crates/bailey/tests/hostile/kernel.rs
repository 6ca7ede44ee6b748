//! Attacks on what all sandboxes share: the agent's binary, kernel settings, cgroups, the template.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use bailey_protocol::node::Ending;
use sha2::{Digest as _, Sha256};

use crate::bare::{self, Bare};
use crate::host::Process;
use crate::oracle::hex;
use crate::run::Order;
use crate::server::{beside_others, binary, shared};

fn hash(path: &Path) -> String {
    // In pieces: a template has hundreds of megabytes, and `sha256sum` is faster than a debug build.
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_start_matches('\\').split(' ').next().unwrap().to_owned()
}

#[test]
fn k18_the_agents_binary_cannot_be_overwritten() {
    let _guard = beside_others();
    // In a PID namespace of its own: the attack writes to whatever runs there.
    let mut arm = Bare::start_with(&["--pid", "--fork"], "overwrite", &["arm", "/media/agent"], &[]);
    arm.ready();
    let spoiled = arm.processes().into_iter().any(|process| {
        let copy = std::fs::read(process.path("root/media/agent"));
        copy.is_ok_and(|copy| std::fs::read(process.path("root/bin/true")).is_ok_and(|program| copy != program))
    });
    assert!(spoiled, "the arm spoiled nothing");
    drop(arm);

    let server = shared();
    let ana = server.user("acme", "ana");
    let agent = binary().with_file_name("bailey-guest");
    let before = hash(&agent);
    for order in [Order::attack("overwrite", &[""]), Order::attack("overwrite", &["root"]).root()] {
        let live = server.hold(&ana, &order);
        assert_eq!(hash(&live.init().path("exe")), before, "PID 1 runs something else");
        assert_eq!(hash(&live.init().path("root/run/bailey/agent")), before, "the agent inside is spoiled");
        live.end();
        assert_eq!(hash(&agent), before, "the agent on the host is spoiled");
    }
    for command in [&["/proc/self/exe"][..], &["/proc/1/exe"], &["/run/bailey/agent", "init"]] {
        let outcome = server.run(&ana, &Order::command(command).limit("timeout_ms", 3000));
        assert_eq!(hash(&agent), before, "{command:?}: {}", outcome.summary());
    }
    server.run(&ana, &Order::shell("true")).succeeded();
}

/// Settings that name a program which the kernel runs on the host, or that weaken it.
fn settings() -> BTreeMap<PathBuf, Vec<u8>> {
    let names = [
        "kernel/core_pattern",
        "kernel/modprobe",
        "kernel/domainname",
        "kernel/hostname",
        "fs/suid_dumpable",
        "net/ipv4/ip_forward",
        "kernel/core_pipe_limit",
        "user/max_user_namespaces",
    ];
    let paths = names.iter().map(|name| Path::new("/proc/sys").join(name));
    let paths = paths.chain([PathBuf::from("/sys/kernel/uevent_helper")]);
    paths.filter_map(|path| std::fs::read(&path).ok().map(|value| (path, value))).collect()
}

#[test]
fn k20_no_kernel_setting_changes_and_no_host_handler_sees_a_crash() {
    let _guard = beside_others();
    // The arm may only spoil a setting of its own: the domain name of a namespace of its own.
    let mut arm = Bare::start_with(&["--uts"], "sysctl", &["", "/proc/sys/kernel/domainname"], &[]);
    arm.ready();
    let spoiled = arm.processes().into_iter().any(|process| {
        let pid = process.0.to_string();
        let look = ["--uts", "-t", &pid, "cat", "/proc/sys/kernel/domainname"];
        Command::new("nsenter").args(look).output().is_ok_and(|output| output.stdout.starts_with(b"7"))
    });
    assert!(spoiled, "the arm changed nothing");

    let server = shared();
    let ana = server.user("acme", "ana");
    for order in [Order::attack("sysctl", &[""]), Order::attack("sysctl", &["root"]).root()] {
        let before = settings();
        let live = server.hold(&ana, &order);
        assert_eq!(settings(), before);
        let inside = live.init().mounts();
        let proc_sys =
            inside.iter().find(|mount| mount.split(' ').nth(4) == Some("/proc/sys")).expect("/proc/sys is mounted");
        assert!(proc_sys.split(' ').nth(5).unwrap().split(',').any(|option| option == "ro"), "{proc_sys}");
        assert!(!inside.iter().any(|mount| mount.split(' ').nth(4) == Some("/sys")), "sysfs is mounted");
        // 1 keeps a crash from files and from piped handlers alike, 0 only from files.
        for process in live.code() {
            let limits = std::fs::read_to_string(process.path("limits")).unwrap_or_default();
            let core = limits.lines().find(|line| line.starts_with("Max core file size"));
            if let Some(core) = core {
                let soft_and_hard: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
                assert!(soft_and_hard.iter().all(|value| ["0", "1"].contains(value)), "{core}");
            }
        }
        let outcome = live.end();
        let writable: Vec<&str> = outcome
            .stdout
            .split(|byte| *byte == b'\n')
            .filter_map(|line| std::str::from_utf8(line).ok())
            .filter(|line| line.starts_with("writable") && !line.contains("oom_score_adj"))
            .collect();
        assert_eq!(writable, Vec::<&str>::new());
    }
}

#[test]
fn k21_no_cgroup_file_system_is_mounted_or_writable() {
    let _guard = beside_others();
    let groups = |process: &Process| {
        process.mounts().iter().any(|mount| {
            mount.split(" - ").nth(1).is_some_and(|rest| rest.starts_with("cgroup")) && mount.contains(" /tmp/")
        })
    };
    let mut arm = Bare::start("cgroup", &[], &[]);
    arm.ready();
    assert!(arm.processes().iter().any(groups), "the arm mounted nothing");
    drop(arm);

    let server = shared();
    let ana = server.user("acme", "ana");
    for order in [Order::attack("cgroup", &[""]), Order::attack("cgroup", &["root"]).root()] {
        let live = server.hold(&ana, &order);
        for process in live.processes() {
            let found = process.mounts().into_iter().find(|mount| mount.contains(" - cgroup"));
            assert_eq!(found, None);
        }
        let init = live.init();
        let seen = std::fs::read_to_string(init.path("cgroup")).unwrap();
        let sandbox = live.so_far().sandbox.clone();
        assert!(seen.contains(&sandbox), "the host does not find the sandbox in its cgroups: {seen}");
        let outcome = live.end();
        assert!(!outcome.text().contains("writable"), "{}", outcome.summary());
    }
    let inside = server.run(&ana, &Order::shell("cat /proc/self/cgroup /proc/1/cgroup")).succeeded();
    assert!(!inside.text().contains("bailey"), "cgroup names of the host show inside: {}", inside.text());
}

#[test]
fn k31_the_template_stays_as_it_was_for_the_next_sandbox() {
    let _guard = beside_others();
    const TARGETS: [&str; 5] =
        ["/etc/passwd", "/usr/bin/env", "/usr/bin/python3.11", "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/bash"];
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    let image = bare::image();
    let content = |process: Process| -> Vec<String> {
        let read = |path: &str| std::fs::read(process.path(&format!("root{path}"))).unwrap_or_default();
        TARGETS.iter().map(|path| hex(&Sha256::digest(read(path)))).collect()
    };
    let before = (hash(&image), {
        let live = server.hold(&gus, &Order::attack("holder", &[]));
        let content = content(live.init());
        live.end();
        content
    });
    let mut args = vec![""];
    args.extend(TARGETS);
    let mut as_root = vec!["root"];
    as_root.extend(TARGETS);
    for (order, spoils) in
        [(Order::attack("integrity", &args), false), (Order::attack("integrity", &as_root).root(), true)]
    {
        let live = server.hold(&ana, &order);
        let own = content(live.init());
        // As root the attacker spoils its own view: that is the arm, which shows that the oracle sees a spoiled file.
        assert_eq!(own != before.1, spoils, "the attacker's own view");
        let next = server.hold(&gus, &Order::attack("holder", &[]));
        assert_eq!(content(next.init()), before.1, "another tenant's sandbox sees what the attacker wrote");
        next.end();
        live.end();
    }
    assert_eq!(hash(&image), before.0, "the image on the host has changed");
    server.run(&gus, &Order::python("import json, ssl; print(json.dumps(1))")).succeeded();
}

#[test]
fn k23_orphans_are_reaped() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let live = server.hold(&ana, &Order::attack("bomb", &["orphans", "3000"]));
    let settled = crate::host::within(std::time::Duration::from_secs(5), || {
        let all = crate::host::cage(&live.so_far().sandbox);
        all.len() <= 3 && all.iter().all(|process| process.alive())
    });
    assert!(settled, "zombies stay: {:?}", live.processes());
    assert_eq!(live.end().ending(), Ending::Cancelled);
}
