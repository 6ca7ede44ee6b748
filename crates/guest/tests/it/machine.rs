//! The guest as the first program of a machine of its own, driven as the node drives it.

#[path = "../../../bailey/src/template/machine/archive.rs"]
mod archive;
#[path = "../../../bailey/src/template/machine/kernel.rs"]
mod kernel;
mod node;
mod qemu;
mod sentry;

use std::time::Duration;

use bailey_protocol::guest::MachineClaim;
use bailey_protocol::jail::StopFacts;
use bailey_protocol::limits::Limits;
use serde_json::json;

use crate::guest::{Client, Outcome, init_request};
use node::{BOOT_ID, Entry, MACHINE_ID, claim, now_ns, slice};
use qemu::Machine;
use sentry::Sentry;

const MIB: u64 = 1024 * 1024;

/// The tree that the collector's own tests begin with.
const TREE: [Entry; 8] = [
    Entry::File("a", "one"),
    Entry::File("b", "two"),
    Entry::Folder("d"),
    Entry::File("d/f", "three"),
    Entry::File("d/g", "four"),
    Entry::Folder("d/sub"),
    Entry::File("d/sub/h", "five"),
    Entry::Link("l", "a"),
];

fn limits() -> Limits {
    Limits { memory_bytes: 256 * MIB, disk_bytes: 64 * MIB, ..Limits::default() }
}

#[tokio::test]
async fn a_machine_takes_a_slice_runs_a_program_and_gives_its_changes_back() {
    let machine = Machine::boot().await;
    println!("started in {:?}", machine.started_in);
    let facts = runs_and_gives_back(&machine).await;
    assert!(facts.cpu_us > 0 && facts.memory_peak_bytes > 0, "{facts:?}");
}

#[tokio::test]
async fn gvisor_takes_a_slice_runs_a_program_and_gives_its_changes_back() {
    runs_and_gives_back(&*Sentry::start().await).await;
}

/// The whole life of a machine, with the changes that the collector's own tests make.
async fn runs_and_gives_back(machine: &Client) -> StopFacts {
    machine.prepare(limits(), &TREE).await;
    let looked =
        machine.shell("id -u; id -g; cat /data/d/f; stat -c %u:%a /data/a /data/d /data; pwd; echo $FROM_INIT").await;
    assert_eq!(looked.text(), "1000\n1000\nthree1000:644\n1000:755\n1000:755\n/home/user\n1\n", "{looked:?}");
    // Each line as in the collector's own tests, whose records these are.
    let changed = machine
        .shell(
            "cd /data && echo -n ONE > a && rm -r d && mkdir d && echo -n x > d/new && ln -sf b l && mkdir -p e/empty && \
             mkfifo p && echo -n x > s && chmod 4755 s && mv b z && echo -n y > y && ln y y2 && sudo mknod dev c 1 3; \
             sudo sh -c 'echo -n root > /data/r'",
        )
        .await;
    assert_eq!(changed.code(), 0, "{changed:?}");
    let facts = machine.stop().await;
    assert_eq!((facts.oom_kills, facts.pids_refused, facts.disk_full, facts.files_full), (0, 0, false, false));
    let first = machine.collect_raw(0).await;
    assert_eq!(first, machine.collect_raw(0).await, "the stream is not the same twice");
    let records: Vec<String> = machine
        .collect(0)
        .await
        .into_iter()
        .map(|(kind, path, detail)| format!("{kind} {path} {detail}").trim_end().to_owned())
        .collect();
    let wanted = [
        "F a 0:ONE",
        "X b",
        "D e",
        "L l b",
        "N p Fifo",
        "F r 0:root",
        "F s 1:x",
        "N s SpecialBits",
        "F y 0:y",
        "F y2 0:y",
        "N y2 HardLink",
        "F z 0:two",
        "D d",
        "X d/f",
        "X d/g",
        "X d/sub",
        "F d/new 0:x",
        "D e/empty",
    ];
    assert_eq!(records, wanted);
    facts
}

#[tokio::test]
async fn m01_a_claim_makes_it_a_machine_of_its_own() {
    let machine = Machine::boot().await;
    let claim = MachineClaim { now_ns: now_ns() + 86_400_000_000_000, ..claim(limits(), &[]) };
    let (status, answer) = machine.claim(&claim).await;
    assert_eq!(status, 200, "{answer}");
    for fence in ["entropy", "clock", "hostname", "machine_id", "boot_id", "memory", "pids", "cpu", "scratch:tmpfs"] {
        assert!(answer["fences"].as_array().unwrap().contains(&json!(fence)), "{fence}: {answer}");
    }
    machine.init(&[]).await;
    let told = machine.shell("hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; date +%s").await.text();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..3], ["claimed", MACHINE_ID, BOOT_ID], "{told}");
    let day_ahead = lines[3].parse::<u64>().unwrap().abs_diff((now_ns() + 86_400_000_000_000) / 1_000_000_000);
    assert!(day_ahead <= 1, "the clock is {day_ahead} s off");
    let drawn = machine.shell("cat /proc/sys/kernel/random/uuid; od -An -tx1 -N16 /dev/urandom").await.text();
    let again = machine.shell("cat /proc/sys/kernel/random/uuid; od -An -tx1 -N16 /dev/urandom").await.text();
    assert!(drawn.lines().count() == 2 && drawn != again, "{drawn}{again}");
}

#[tokio::test]
async fn code_has_the_posture_of_a_cage() {
    let machine = Machine::boot().await;
    machine.prepare(limits(), &[]).await;
    let status = machine.shell("cat /proc/self/status").await.text();
    for line in ["Uid:\t1000\t1000\t1000\t1000", "NoNewPrivs:\t1", "Seccomp:\t2", "Seccomp_filters:\t3"] {
        assert!(status.contains(line), "{line}:\n{status}");
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "{set}:\n{status}");
    }
    let seen = machine
        .shell("ls /dev; ls /sys 2>&1 | head -1; ls -d /modules /template /init 2>&1 | wc -l; cat /proc/cmdline")
        .await
        .text();
    let nodes =
        ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"];
    assert!(seen.starts_with(&nodes.map(|name| format!("{name}\n")).concat()), "{seen}");
    // Even root is a guest here.
    for refused in [
        "echo x > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "mount -t tmpfs x /mnt",
        "echo x > /run/bailey/agent",
        "hostname other",
        "dmesg",
        "unshare -U true",
        "chroot / true",
    ] {
        let outcome = machine.shell_as(refused, "root").await;
        assert_ne!(outcome.code(), 0, "{refused}: {outcome:?}");
    }
    let places =
        machine.shell("for f in /tmp /dev/shm /home/user; do echo x > $f/f && cat $f/f; done; df -k / | tail -1").await;
    assert!(places.text().starts_with("x\nx\nx\n"), "{places:?}");
    let mounts = machine.shell("cat /proc/self/mountinfo").await.text();
    for hidden in ["/template", "/parked", "/cgroup", "sysfs", "devtmpfs"] {
        assert!(!mounts.contains(&format!(" {hidden} ")), "{hidden} shows:\n{mounts}");
    }
}

#[tokio::test]
async fn limits_hold_and_are_told() {
    let machine = Machine::boot().await;
    let small = Limits { memory_bytes: 96 * MIB, disk_bytes: 8 * MIB, disk_inodes: 300, pids: 24, ..limits() };
    machine.prepare(small, &TREE).await;
    let forks = machine.shell("busybox sh -c 'for i in $(seq 60); do sleep 30 & done' 2>&1").await;
    assert!(forks.text().contains("Resource temporarily unavailable"), "{forks:?}");
    machine.shell("kill -9 -1").await;
    let full = machine.shell("dd if=/dev/zero of=/data/big bs=65536 count=320; echo $?").await;
    assert!(
        full.text().ends_with("1\n") && String::from_utf8_lossy(&full.stderr).contains("No space left"),
        "{full:?}"
    );
    let files = machine.shell("rm /data/big; for i in $(seq 600); do : > /data/f$i || exit 3; done").await;
    assert_eq!(files.code(), 3, "{files:?}");
    let memory = machine.shell("x=$(head -c 209715200 /dev/zero | tr '\\0' x); echo survived ${#x}").await;
    assert!(!memory.text().contains("survived"), "{memory:?}");
    let facts = machine.stop().await;
    assert!(facts.oom_kills > 0 && facts.pids_refused > 0 && facts.files_full, "{facts:?}");
    assert!(facts.memory_peak_bytes <= 96 * MIB, "{facts:?}");
    let records = machine.collect(0).await;
    assert!(records.len() > 100, "{} records", records.len());
}

#[tokio::test]
async fn a_scratch_disk_that_is_full_is_an_error_of_the_program() {
    let machine = Machine::boot_with_disk(Some(48)).await;
    let (_, answer) = machine.claim(&claim(limits(), &["/data", "/fixed!", "/same"])).await;
    assert!(answer["fences"].as_array().unwrap().contains(&json!("scratch:ext4")), "{answer}");
    for number in [0, 1, 2] {
        assert_eq!(machine.send_slice(number, &slice(&TREE)).await, "ok\n");
    }
    machine.init(&["/data", "/fixed", "/same"]).await;
    let read_only = machine.shell("cat /fixed/d/f; echo x > /fixed/a").await;
    assert!(read_only.text() == "three" && read_only.code() != 0, "{read_only:?}");
    let full = machine.shell("dd if=/dev/zero of=/data/big bs=65536 count=1600; echo $?").await;
    assert!(
        full.text().ends_with("1\n") && String::from_utf8_lossy(&full.stderr).contains("No space left"),
        "{full:?}"
    );
    let facts = machine.stop().await;
    assert!(facts.disk_full && !facts.files_full, "{facts:?}");
    let records = machine.collect(0).await;
    assert_eq!(records.iter().map(|(kind, path, _)| format!("{kind} {path}")).collect::<Vec<_>>(), ["F big"]);
    assert!(machine.collect_raw(1).await.is_empty(), "a mount that cannot be written to has no changes");
    assert_eq!(machine.collect(2).await, [], "a mount that nobody wrote to has no changes");
}

#[tokio::test]
async fn code_in_gvisor_has_no_rights_and_a_disk_of_its_own() {
    let sentry = Sentry::start().await;
    let (status, answer) =
        sentry.claim(&claim(Limits { disk_bytes: 8 * MIB, ..limits() }, &["/data", "/fixed!"])).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["fences"], json!(["hostname", "machine_id", "scratch:tmpfs"]));
    for number in [0, 1] {
        assert_eq!(sentry.send_slice(number, &slice(&TREE)).await, "ok\n");
    }
    sentry.init(&["/data", "/fixed"]).await;
    let looked = sentry.shell("id -u; hostname; cat /etc/machine-id; cat /fixed/d/f; ls /mnt; echo x > /fixed/a").await;
    assert_eq!(looked.text(), format!("1000\nclaimed\n{MACHINE_ID}\nthree"), "{looked:?}");
    assert_ne!(looked.code(), 0, "a mount that cannot be written to was");
    let status = sentry.shell("cat /proc/self/status").await.text();
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "{set}:\n{status}");
    }
    assert!(status.contains("Seccomp:\t2"), "{status}");
    for refused in ["mount -t tmpfs x /mnt", "chroot / true", "unshare -U true", "hostname other"] {
        let outcome = sentry.shell_as(refused, "root").await;
        assert_ne!(outcome.code(), 0, "{refused}: {outcome:?}");
    }
    for place in ["/data/big", "/home/user/big", "/dev/shm/big"] {
        let full = sentry.shell(&format!("dd if=/dev/zero of={place} bs=65536 count=320; echo $?; rm {place}")).await;
        assert!(full.text().ends_with("1\n"), "{place}: {full:?}");
        assert!(String::from_utf8_lossy(&full.stderr).contains("No space left"), "{place}: {full:?}");
    }
    sentry.shell("dd if=/dev/zero of=/data/big bs=65536 count=320").await;
    let facts = sentry.stop().await;
    assert!(facts.disk_full && !facts.files_full, "{facts:?}");
}

#[tokio::test]
async fn nothing_lives_or_starts_after_the_stop() {
    ends_all_at_the_stop(&*Machine::boot().await).await;
}

#[tokio::test]
async fn nothing_lives_or_starts_in_gvisor_after_the_stop() {
    ends_all_at_the_stop(&*Sentry::start().await).await;
}

async fn ends_all_at_the_stop(machine: &Client) {
    machine.prepare(limits(), &TREE).await;
    // One that ignores what can be ignored, and one that has left its session and goes on writing.
    let hung = "(setsid sh -c 'while :; do echo x >> /data/log; done' &); trap '' TERM INT HUP; while :; do :; done";
    let hung = json!({ "process": { "cmd": "/bin/bash", "args": ["-c", hung] }, "stdin": false });
    let mut events = machine.start_exec(&hung, &[]).await;
    events.pid().await;
    while machine.shell("test -s /data/log").await.code() != 0 {}
    let stopped = tokio::time::timeout(Duration::from_secs(20), machine.stop()).await;
    stopped.expect("a hung child holds the stop up");
    let mut outcome = Outcome::default();
    let ended = tokio::time::timeout(Duration::from_secs(20), events.rest(&mut outcome)).await;
    ended.expect("a hung child outlives the stop");
    assert_eq!(outcome.end["signal"], 9, "{outcome:?}");
    let exec = json!({ "process": { "cmd": "/bin/true" }, "stdin": false });
    let outcome = machine.start_exec(&exec, &[]).await.outcome().await;
    assert_eq!(outcome.error["message"], "the sandbox is stopped", "{outcome:?}");
    // Again is no harm, and nothing changes any more.
    machine.stop().await;
    assert_eq!(machine.collect_raw(0).await, machine.collect_raw(0).await);
    let records = machine.collect(0).await;
    assert_eq!(records.iter().map(|(kind, path, _)| format!("{kind} {path}")).collect::<Vec<_>>(), ["F log"]);
}

#[tokio::test]
async fn steps_out_of_order_and_slices_that_lie_are_refused() {
    refuses_lies_and_disorder(&*Machine::boot().await).await;
}

#[tokio::test]
async fn steps_out_of_order_and_slices_that_lie_are_refused_in_gvisor() {
    refuses_lies_and_disorder(&*Sentry::start().await).await;
}

async fn refuses_lies_and_disorder(machine: &Client) {
    let (status, _) = machine.call("/init", &init_request(false)).await;
    assert_eq!(status, 400, "/init before /claim");
    assert!(machine.send_slice(0, &slice(&[])).await.starts_with("failed "), "a slice before /claim");
    assert_eq!(machine.call("/stop", &json!({})).await.0, 400, "/stop before /claim");
    assert!(machine.collect_raw(0).await.is_empty(), "changes before /claim");
    let old = MachineClaim { generation: 99, ..claim(limits(), &["/data"]) };
    assert_eq!(machine.claim(&old).await.0, 400);
    let short = MachineClaim { entropy: "AAAA".to_owned(), ..claim(limits(), &["/data"]) };
    assert_eq!(machine.claim(&short).await.0, 400);
    assert_eq!(machine.claim(&claim(limits(), &["/data", "/more"])).await.0, 200);
    assert_eq!(machine.claim(&claim(limits(), &["/data"])).await.0, 409, "/claim twice");
    assert!(machine.send_slice(2, &slice(&[])).await.starts_with("failed "), "a slice that no mount has");
    let lie = slice(&[Entry::Link("up", "/"), Entry::File("up/outside", "x")]);
    assert!(machine.send_slice(0, &lie).await.starts_with("failed "), "through a link");
    assert!(machine.send_slice(0, &slice(&[])).await.starts_with("failed "), "a slice twice");
    assert_eq!(machine.send_slice(1, &slice(&TREE)).await, "ok\n");
    let (status, answer) = machine.call("/init", &init_request(false)).await;
    assert_eq!(status, 400, "/init without all slices: {answer}");
}

#[tokio::test]
async fn a_claimed_machine_ends_with_its_stream() {
    let mut machine = Machine::boot().await;
    machine.prepare(limits(), &TREE).await;
    machine.hang_up();
    tokio::time::timeout(Duration::from_secs(20), machine.ended()).await.expect("the machine goes on");
}

#[tokio::test]
async fn what_warms_a_machine_up_leaves_nothing_and_is_refused_once_it_is_claimed() {
    let machine = Machine::boot().await;
    let warm = async |commands: &[&[&str]]| machine.call("/warm", &json!({ "commands": commands })).await;
    let script = "echo old > /home/user/old; echo old > /tmp/old; sleep 1000 & id -u > /tmp/who";
    let (status, answer) =
        warm(&[&["true"], &["sh", "-c", script], &["sh", "-c", "test $(cat /tmp/who) = 1000"]]).await;
    assert_eq!(status, 200, "{answer}");
    for (commands, said) in [
        (&[&["false"][..]][..], "it exited with 1"),
        (&[&["sh", "-c", "kill -9 $$"]], "ended by signal 9"),
        (&[&["no-such-program"]], "no-such-program"),
        (&[&[]], "none of them empty"),
    ] {
        let (status, answer) = warm(commands).await;
        assert!(status >= 400 && answer.to_string().contains(said), "{said}: {status} {answer}");
    }
    // A failure is told, and harms nothing.
    machine.prepare(limits(), &TREE).await;
    let left = machine.shell("ls /home/user /tmp; ps -o args | grep -c '[s]leep 1000'").await;
    assert_eq!(left.text(), "/home/user:\n\n/tmp:\n0\n", "{left:?}");
    let (status, answer) = warm(&[&["true"]]).await;
    assert_eq!(status, 400, "after the claim: {answer}");
}
