//! What every wall has to do. To hold a new wall to it, add a line at the end.
//!
//! Cases look from where a caller looks, and where a case is about the host, at the host.

use std::collections::BTreeSet;
use std::time::Duration;

use bailey_protocol::api::EntryKind;
use bailey_protocol::id::VersionId;
use bailey_protocol::limits::Limits;
use bailey_protocol::node::{Ending, LimitHit, NodeFaultKind, RunSpec, SessionFile, SliceMount};
use bailey_protocol::wall::WallKind;
use bailey_tree::CommitMeta;
use rustix::process::Signal;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bench::{self, Told, repo, spec};
use crate::real::{self, Host};

const MIB: u64 = 1024 * 1024;
const KILL: Signal = Signal::KILL;
const STOP: Signal = Signal::STOP;

/// How many times as long as in a cage things may take: where a program runs the machine's instructions, one after the other.
fn slow(host: &Host) -> u32 {
    if host.wall == WallKind::Microvm { 8 } else { 1 }
}

async fn run(host: &Host, spec: RunSpec) -> Told {
    bench::run(&host.node, RunSpec { wall: host.wall, ..spec }, CancellationToken::new()).await
}

fn bash(script: &str) -> RunSpec {
    spec(&["bash", "-c", script])
}

fn python(script: &str) -> RunSpec {
    spec(&["python3", "-c", script])
}

/// Runs a script that has to succeed, and returns what it wrote.
async fn output(host: &Host, spec: RunSpec) -> String {
    let told = run(host, spec).await;
    let errors = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.ending(), Ending::Exited { code: 0 }, "{errors}");
    String::from_utf8(told.stdout).unwrap()
}

async fn tells_how_it_started(host: &Host) {
    let told = run(host, spec(&["true"])).await;
    assert_eq!(told.ending(), Ending::Exited { code: 0 });
    assert!(told.stdout.is_empty() && told.stderr.is_empty());
    assert!(told.stopped().limits_hit.is_empty());
    let started = told.started.unwrap();
    assert!(started.fences.len() > 5, "{:?}", started.fences);
}

async fn files_of_the_run_are_there_first_and_its_own(host: &Host) {
    let file = |at: &str, content: Vec<u8>| SessionFile { at: at.parse().unwrap(), content: content.into() };
    let odd = (0..=255_u8).cycle().take(300_000).collect::<Vec<_>>();
    let script = "find /tmp/in/a.txt /tmp/in /opt/b -maxdepth 0 -printf '%U %G %m\\n' && cat /tmp/in/a.txt && wc -c < '/opt/b' \
        && cat '/home/user/odd %41 ü&=?#' && echo more >> /opt/b && rm -r /tmp/in";
    let files = vec![
        file("/tmp/in/a.txt", b"hello\n".to_vec()),
        file("/opt/b", odd),
        file("/home/user/odd %41 ü&=?#", b"odd\n".to_vec()),
    ];
    // As often as there are parked sandboxes and then some, so that cold ones come by.
    for _ in 0..6 {
        let text = output(host, RunSpec { files: files.clone(), ..bash(script) }).await;
        assert_eq!(text, "1000 1000 644\n1000 1000 755\n1000 1000 644\nhello\n300000\nodd\n");
    }
    assert_eq!(output(host, bash("find /tmp /opt -mindepth 1")).await, "");
    let small = Limits { disk_bytes: MIB, ..Limits::default() };
    // A file of one byte takes a page.
    let mut many: Vec<_> = (0..60).map(|n| file(&format!("/tmp/{n}"), vec![0])).collect();
    many.push(file("/tmp/large", vec![0; 900 * 1024]));
    let full = RunSpec { files: many, limits: small, ..bash("true") };
    let over = RunSpec { files: vec![file("/etc/passwd/x", vec![0])], ..bash("true") };
    let top = RunSpec { files: vec![file("/new-folder/x", vec![0])], ..bash("true") };
    // In gVisor the agent has no Landlock that keeps it from making folders in the root. Control grants none there.
    let top = (host.wall != WallKind::Gvisor).then_some((top, "cannot be there"));
    for (spec, said) in [(full, "does not fit"), (over, "cannot be there")].into_iter().chain(top) {
        let told = run(host, spec).await;
        let fault = told.fault.as_ref().unwrap_or_else(|| panic!("{said}: {told:?}"));
        assert_eq!(fault.kind, NodeFaultKind::Invalid);
        assert!(fault.message.contains(said), "{fault}");
    }
}

async fn exit_codes_are_exact(host: &Host) {
    for code in [0, 1, 2, 126, 127, 128, 137, 255] {
        let told = run(host, bash(&format!("exit {code}"))).await;
        assert_eq!(told.ending(), Ending::Exited { code });
    }
}

async fn signals_are_told_from_exits(host: &Host) {
    for signal in [1, 6, 9, 11, 15] {
        let told = run(host, bash(&format!("kill -{signal} $$"))).await;
        assert_eq!(told.ending(), Ending::Signaled { signal });
    }
}

async fn output_is_byte_exact(host: &Host) {
    let script = "import sys\nb=bytes(range(256))*4000\nsys.stdout.buffer.write(b)\nsys.stderr.buffer.write(b[::-1])";
    let told = run(host, python(script)).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(256 * 4000).collect();
    assert!(told.stdout == bytes, "stdout differs");
    assert!(told.stderr.iter().rev().eq(bytes.iter()), "stderr differs");
}

/// One line, then the end, 1,000 times: neither is ever lost. Fewer times in machines, which are slow where a program is what
/// runs them.
async fn the_last_line_is_never_lost(host: &Host) {
    let batches = if host.wall == WallKind::Microvm { 10 } else { 250 };
    for batch in 0..batches {
        let runs = (0..4).map(|n| async move {
            let line = format!("line {batch} {n}");
            let told = run(host, spec(&["echo", &line])).await;
            assert_eq!(told.ending(), Ending::Exited { code: 0 });
            assert_eq!(told.stdout, format!("{line}\n").into_bytes());
        });
        futures_util::future::join_all(runs).await;
    }
}

async fn input_arrives_whole_and_ends(host: &Host) {
    let mut cat = spec(&["cat"]);
    cat.stdin = (0..=255).cycle().take(1024 * 1024).collect();
    let input = cat.stdin.clone();
    assert!(run(host, cat).await.stdout == input);
    let mut deaf = spec(&["true"]);
    deaf.stdin = vec![b'x'; 1024 * 1024];
    assert_eq!(run(host, deaf).await.ending(), Ending::Exited { code: 0 });
    assert_eq!(run(host, spec(&["cat"])).await.ending(), Ending::Exited { code: 0 }, "no input is an empty one");
}

/// R10: everything dies on time, also what left the process group and does not listen.
async fn r10_a_timeout_kills_everything(host: &Host) {
    let mark = format!("{}.5", 1_000_000 + u64::from(std::process::id()));
    // gVisor's job control hangs up on more than it should where a group is orphaned that has stopped.
    let stopped = if host.wall == WallKind::Gvisor { "" } else { "(sleep {mark} & kill -STOP $BASHPID) & " };
    let stopped = stopped.replace("{mark}", &mark);
    let script = format!(
        "setsid sleep {mark} & (trap '' TERM HUP INT; setsid setsid sleep {mark}) & {stopped}echo up; sleep {mark}"
    );
    let mut spec = bash(&script);
    let time = 1000 * u64::from(slow(host));
    spec.limits.timeout_ms = time;
    let begun = Instant::now();
    let told = run(host, spec).await;
    let took = begun.elapsed();
    assert_eq!(told.ending(), Ending::Timeout);
    assert_eq!(told.stdout, b"up\n");
    assert_eq!(told.stopped().limits_hit, [LimitHit::Timeout]);
    let wall = told.stopped().wall_ms;
    assert!((time..time + time / 5).contains(&wall), "killed after {wall} ms");
    assert!(took < Duration::from_secs(4) * slow(host), "{took:?}");
    assert_eq!(processes_with(&mark), 0);
}

/// Processes of the whole host with `mark` among their arguments.
fn processes_with(mark: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let with = all.filter(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
    });
    with.count()
}

async fn a_cancelled_run_dies_at_once(host: &Host) {
    let mark = format!("{}.25", 2_000_000 + u64::from(std::process::id()));
    let cancel = CancellationToken::new();
    let script = format!("echo up; exec sleep {mark}");
    let spec = RunSpec { wall: host.wall, ..bash(&script) };
    let told = bench::run_hearing(&host.node, spec, cancel.clone(), |_output| cancel.cancel()).await;
    assert_eq!(told.ending(), Ending::Cancelled);
    assert_eq!(processes_with(&mark), 0);
}

async fn what_stays_in_the_background_does_not_hold_the_run(host: &Host) {
    let begun = Instant::now();
    let told = run(host, bash("setsid sleep 1000 & echo done")).await;
    assert_eq!((told.ending(), told.stdout.as_slice()), (Ending::Exited { code: 0 }, &b"done\n"[..]));
    assert!(begun.elapsed() < Duration::from_secs(5) * slow(host));
}

async fn programs_that_do_not_exist_are_said_so(host: &Host) {
    for command in [&["no-such-program"][..], &["/no/such"], &["/etc/passwd"], &["/etc"]] {
        let fault = run(host, spec(command)).await.fault.expect("it cannot have run");
        assert_eq!(fault.kind, NodeFaultKind::Invalid);
        assert!(fault.message.contains(command[0]), "{fault}");
    }
    let mut lost = spec(&["true"]);
    lost.cwd = Some("/no/such/folder".parse().unwrap());
    let fault = run(host, lost).await.fault.expect("it cannot have run");
    assert!(fault.kind == NodeFaultKind::Invalid && fault.message.contains("/no/such/folder"), "{fault}");
}

/// L01: the environment is an allow-list and what the run asked for.
async fn l01_the_environment_holds_nothing_of_ours(host: &Host) {
    let mut env = spec(&["env", "-0"]);
    env.env = [("ASKED".to_owned(), "for\nit".to_owned())].into();
    env.cwd = Some("/tmp".parse().unwrap());
    let text = output(host, env).await;
    let names: BTreeSet<&str> = text.split_terminator('\0').filter_map(|line| Some(line.split_once('=')?.0)).collect();
    assert_eq!(names, ["ASKED", "HOME", "LANG", "LOGNAME", "PATH", "USER"].into(), "{text}");
    assert!(text.contains("ASKED=for\nit\0"));
    let others = output(host, bash("cat /proc/1/environ /proc/1/cmdline 2>/dev/null | tr '\\0' ' '; id -u; pwd")).await;
    // What runsc adds to the environment of its first program.
    let others = if host.wall == WallKind::Gvisor { others.replacen("HOME=/root ", "", 1) } else { others };
    assert!(!others.contains('='), "{others}");
    assert!(others.ends_with("1000\n/home/user\n"), "{others}");
}

/// T06: what one run leaves behind, the next ones do not find, parked sandboxes included.
async fn t06_nothing_of_a_run_reaches_the_next(host: &Host) {
    let places = "/tmp $HOME /dev/shm /var/tmp /run";
    let plant = format!("for d in {places}; do echo x > $d/t06-planted; done 2>/dev/null; setsid sleep 4217 & exit 0");
    let hunt = format!(
        "for d in {places}; do ls -A $d | grep t06; done 2>/dev/null; cat /proc/[0-9]*/cmdline | grep -a '[4]217'; echo over"
    );
    for _ in 0..8 {
        run(host, bash(&plant)).await;
        assert_eq!(output(host, bash(&hunt)).await, "over\n");
    }
}

async fn r01_pids_are_limited(host: &Host) {
    let mut bomb = python(
        "import os,time\nn=0\ntry:\n  while 1:\n    if os.fork()==0: time.sleep(60)\n    n+=1\nexcept OSError: print(n)",
    );
    bomb.limits.pids = 50;
    let told = run(host, bomb).await;
    if host.wall == WallKind::Gvisor {
        // That kernel cannot do without what stands for a process on the host: it ends where the cage refuses more.
        assert_eq!(told.stopped().ending, Ending::GuestLost, "{told:?}");
        assert_eq!(told.stopped().limits_hit, [LimitHit::Pids]);
        return;
    }
    let forks: u32 = String::from_utf8_lossy(&told.stdout).trim().parse().unwrap();
    assert!((20..50).contains(&forks), "{forks} forks");
    assert_eq!(told.stopped().limits_hit, [LimitHit::Pids]);
}

/// R03: the whole sandbox dies for memory, whichever process the kernel picks.
async fn r03_memory_is_limited(host: &Host) {
    let eat = "b=[]\nwhile 1: b.append(bytearray(1<<24))";
    for script in [format!("python3 -c '{eat}'"), format!("python3 -c '{eat}' & sleep 1000")] {
        let mut spec = bash(&script);
        spec.limits = Limits { memory_bytes: 128 * MIB, disk_bytes: 64 * MIB, ..spec.limits };
        let begun = Instant::now();
        let told = run(host, spec).await;
        assert_eq!(told.ending(), Ending::Oom, "{told:?}");
        assert_eq!(told.stopped().limits_hit, [LimitHit::Memory]);
        assert!(told.stopped().facts.memory_peak_bytes > 64 * MIB);
        assert!(begun.elapsed() < Duration::from_secs(15) * slow(host), "{:?}", begun.elapsed());
    }
}

async fn r05_disk_is_limited(host: &Host) {
    let mut fill =
        bash("dd if=/dev/zero of=$HOME/big bs=1M 2>/dev/null; find $HOME/big -printf %s; echo x > $HOME/more");
    fill.limits.disk_bytes = 20 * MIB;
    let told = run(host, fill).await;
    assert_eq!(told.ending(), Ending::Exited { code: 1 });
    let size: u64 = String::from_utf8_lossy(&told.stdout).trim().parse().unwrap();
    assert!((10 * MIB..=20 * MIB).contains(&size), "{size}");
    assert!(told.stopped().limits_hit.contains(&LimitHit::Disk), "{:?}", told.stopped());
}

async fn r06_inodes_are_limited(host: &Host) {
    let mut fill = python(
        "import os\nos.chdir('/tmp')\nn=0\ntry:\n  while 1:\n    open(str(n),'x').close(); n+=1\nexcept OSError as e: print(n,e.errno)",
    );
    fill.limits.disk_inodes = 1000;
    if host.wall == WallKind::Gvisor {
        // Its tmpfs counts bytes alone: files are limited by the memory that they take.
        let few = bash("cd /tmp && for n in {1..1200}; do : > $n; done; ls | wc -l");
        let told = run(host, RunSpec { limits: fill.limits, ..few }).await;
        assert_eq!(told.stdout, b"1200\n");
        assert!(told.stopped().limits_hit.is_empty(), "{:?}", told.stopped());
        return;
    }
    let told = run(host, fill).await;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let (files, errno) = text.trim().split_once(' ').unwrap();
    assert!((500..1200).contains(&files.parse::<u32>().unwrap()) && errno == "28", "{text}");
    assert!(told.stopped().limits_hit.contains(&LimitHit::Files), "{:?}", told.stopped());
}

async fn r11_output_is_limited(host: &Host) {
    let mut yes = spec(&["yes"]);
    yes.limits.output_bytes = MIB;
    let begun = Instant::now();
    let told = run(host, yes).await;
    assert_eq!(told.ending(), Ending::OutputLimit);
    assert_eq!(told.stdout.len() as u64, MIB);
    assert_eq!(told.stopped().limits_hit, [LimitHit::Output]);
    assert!(begun.elapsed() < Duration::from_secs(5) * slow(host));
}

async fn only_with_root_is_there_sudo(host: &Host) {
    let mut rooted = spec(&["sudo", "id", "-u"]);
    rooted.root = true;
    assert_eq!(output(host, rooted).await, "0\n");
    let told = run(host, spec(&["sudo", "id", "-u"])).await;
    assert!(told.ending() != Ending::Exited { code: 0 } && told.stdout.is_empty(), "{told:?}");
}

fn meta() -> CommitMeta {
    CommitMeta { author: "ana".parse().unwrap(), time_ms: 1_700_000_000_000, message: "test".to_owned(), run: None }
}

/// A version with `data/keep`, `data/old` and `data/sub/deep`, and the mount of `data`.
fn slice(host: &Host, name: &str, at: &str, writable: bool) -> (VersionId, SliceMount) {
    let store = host.trees.store(&repo()).unwrap();
    let mut version = None;
    for (path, text) in [("keep", "kept\n"), ("old", "old\n"), ("sub/deep", "deep\n"), ("name", name)] {
        let path = format!("data/{path}");
        let written = store.write_file(version.as_ref(), &path, &mut text.as_bytes(), 1000, false, &meta()).unwrap();
        version = Some(written);
    }
    let version = version.unwrap();
    let tree = store.subtree(Some(&version), "data").unwrap().unwrap();
    (version, SliceMount { repo: repo(), tree, at: at.parse().unwrap(), writable })
}

async fn slices_are_mounted_as_asked(host: &Host) {
    let (_, read_only) = slice(host, "ro", "/ro", false);
    let (_, writable) = slice(host, "rw", "/home/user/deep/rw", true);
    let script = "cat /ro/name ~/deep/rw/name; cat /ro/sub/deep; echo x > /ro/new; echo x > /ro/keep; rm -f /ro/old; (cd /ro && ls | wc -l); find /ro/keep ~/deep/rw/keep -printf '%u\\n'; echo x > ~/deep/rw/new && rm ~/deep/rw/old && cd ~/deep/rw && ls";
    let mut both = bash(script);
    both.mounts = vec![read_only, writable];
    let told = run(host, both).await;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(text, "rorwdeep\n4\nuser\nuser\nkeep\nname\nnew\nsub\n", "{}", String::from_utf8_lossy(&told.stderr));
    assert_eq!(String::from_utf8_lossy(&told.stderr).matches("Read-only file system").count(), 3);
    assert_eq!(told.changes.keys().collect::<Vec<_>>(), [&1], "only the writable mount has changes");
    let (_, untouched) = slice(host, "ro", "/ro", false);
    let mut again = bash("cat /ro/keep; cd /ro && ls");
    again.mounts = vec![untouched];
    assert_eq!(output(host, again).await, "kept\nkeep\nname\nold\nsub\n", "the shared slice changed");
}

async fn changes_come_back_as_they_were_made(host: &Host) {
    let (version, mount) = slice(host, "changes", "/data", true);
    let script = "cd /data; echo new > 'a new\nname'; echo more >> keep; rm old; rm -r sub; mkdir sub; echo other > sub/x; ln -s keep link; printf '#!/bin/sh\n' > tool; chmod +x tool; mkdir empty; head -c 300000 /dev/zero > big; mkfifo pipe";
    let mut spec = bash(script);
    spec.mounts = vec![mount];
    let told = run(host, spec).await;
    assert_eq!(told.ending(), Ending::Exited { code: 0 }, "{}", String::from_utf8_lossy(&told.stderr));
    let store = host.trees.store(&repo()).unwrap();
    let applied = store.apply_changes(Some(&version), "data", &mut &told.changes[&0][..], &meta()).unwrap();
    let new = applied.version.expect("something changed");
    let list = |path: &str| -> Vec<(String, EntryKind)> {
        store.list(Some(&new), path).unwrap().into_iter().map(|entry| (entry.name, entry.kind)).collect()
    };
    let expected = [
        ("a new\nname", EntryKind::File),
        ("big", EntryKind::File),
        ("empty", EntryKind::Directory),
        ("keep", EntryKind::File),
        ("link", EntryKind::Symlink),
        ("name", EntryKind::File),
        ("sub", EntryKind::Directory),
        ("tool", EntryKind::Executable),
    ];
    assert_eq!(list("data"), expected.map(|(name, kind)| (name.to_owned(), kind)));
    assert_eq!(list("data/sub"), [("x".to_owned(), EntryKind::File)]);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut store.read(&new, "data/keep").unwrap(), &mut text).unwrap();
    assert_eq!(text, "kept\nmore\n");
    assert_eq!(applied.notices.len(), 1, "the pipe is noticed: {:?}", applied.notices);
}

/// The work of a run that is killed is not lost.
async fn changes_survive_the_kill(host: &Host) {
    let (version, mount) = slice(host, "killed", "/data", true);
    let mut spec = bash("echo partial > /data/partial; sleep 1000");
    spec.mounts = vec![mount];
    spec.limits.timeout_ms = 700 * u64::from(slow(host));
    let told = run(host, spec).await;
    assert_eq!(told.ending(), Ending::Timeout);
    let store = host.trees.store(&repo()).unwrap();
    let applied = store.apply_changes(Some(&version), "data", &mut &told.changes[&0][..], &meta()).unwrap();
    assert!(store.entry(applied.version.as_ref(), "data/partial").unwrap().is_some());
}

async fn an_untouched_mount_is_no_change(host: &Host) {
    let (version, mount) = slice(host, "untouched", "/data", true);
    let mut spec = bash("cat /data/keep > /dev/null");
    spec.mounts = vec![mount];
    let told = run(host, spec).await;
    let store = host.trees.store(&repo()).unwrap();
    let applied = store.apply_changes(Some(&version), "data", &mut &told.changes[&0][..], &meta()).unwrap();
    assert_eq!(applied.version, None);
}

async fn mount_points_that_cannot_be_are_refused(host: &Host) {
    for at in ["/proc/x", "/dev", "/etc/passwd", "/run/bailey/agent"] {
        let (_, mount) = slice(host, "bad", at, true);
        let mut spec = spec(&["true"]);
        spec.mounts = vec![mount];
        let fault = run(host, spec).await.fault.unwrap_or_else(|| panic!("mounted at {at}"));
        assert_eq!(fault.kind, NodeFaultKind::Invalid, "{at}: {fault}");
    }
}

macro_rules! contract {
    ($wall:ident on $host:expr => $($case:ident)*) => {
        mod $wall {
            $(#[test]
            fn $case() {
                let host = $host;
                host.runtime.block_on(super::$case(host));
            })*
        }
    };
    ($wall:ident on $host:expr) => {
        contract! { $wall on $host =>
            tells_how_it_started
            files_of_the_run_are_there_first_and_its_own
            exit_codes_are_exact
            signals_are_told_from_exits
            output_is_byte_exact
            the_last_line_is_never_lost
            input_arrives_whole_and_ends
            r10_a_timeout_kills_everything
            a_cancelled_run_dies_at_once
            what_stays_in_the_background_does_not_hold_the_run
            programs_that_do_not_exist_are_said_so
            l01_the_environment_holds_nothing_of_ours
            t06_nothing_of_a_run_reaches_the_next
            r01_pids_are_limited
            r03_memory_is_limited
            r05_disk_is_limited
            r06_inodes_are_limited
            r11_output_is_limited
            only_with_root_is_there_sudo
            slices_are_mounted_as_asked
            changes_come_back_as_they_were_made
            changes_survive_the_kill
            an_untouched_mount_is_no_change
            mount_points_that_cannot_be_are_refused
        }
    };
}

contract!(container on crate::real::shared());
contract!(gvisor on crate::real::shared_gvisor());
contract!(microvm on crate::real::shared_microvm());

/// What Debian's `runsc` of 2022 does not know, where Linux does: see `docs/walls.md`.
#[test]
fn gvisor_of_debian_lacks_what_is_said_of_it() {
    let host = real::shared_gvisor();
    host.runtime.block_on(async {
        let told = run(host, bash("ls / || stat /tmp || python3 -c 'import os; print(os.listdir(\"/tmp\"))'")).await;
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(said.matches("Invalid argument").count(), 2, "{said}");
        assert_eq!(told.stdout, b"[]\n");
        let kernel = output(host, bash("cat /proc/version; uname -r")).await;
        assert!(kernel.contains("4.4.0"), "the host's kernel shows: {kernel}");
    });
}

/// A kernel that is killed from outside takes its run with it, and the changes are said to be lost.
#[test]
fn a_gvisor_that_is_killed_is_a_lost_guest() {
    let folder = tempfile::tempdir().unwrap();
    let host = real::Host::start_behind(WallKind::Gvisor, folder.path(), 0);
    host.runtime.block_on(async {
        let (_, mount) = slice(&host, "lost", "/data", true);
        let spec = RunSpec { wall: host.wall, mounts: vec![mount], ..bash("echo x > /data/new; echo up; sleep 1000") };
        let kill = |_output: &[u8]| signal_kernels(&host, KILL);
        let told = bench::run_hearing(&host.node, spec, CancellationToken::new(), kill).await;
        assert_eq!(told.ending(), Ending::GuestLost, "{told:?}");
        let store = host.trees.store(&repo()).unwrap();
        store.apply_changes(None, "data", &mut &told.changes[&0][..], &meta()).unwrap_err();
        assert_eq!(output(&host, bash("echo again")).await, "again\n");
    });
}

/// One whose first program stops, and all of it, is killed in time.
#[test]
fn a_gvisor_that_hangs_is_killed_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let host = real::Host::start_behind(WallKind::Gvisor, folder.path(), 0);
    host.runtime.block_on(async {
        let mut spec = RunSpec { wall: host.wall, ..bash("echo up; sleep 1000") };
        spec.limits.timeout_ms = 2000;
        let stop = |_output: &[u8]| signal_kernels(&host, STOP);
        let told = bench::run_hearing(&host.node, spec, CancellationToken::new(), stop).await;
        assert_eq!(told.ending(), Ending::Timeout, "{told:?}");
        let wall = told.stopped().wall_ms;
        assert!((7000..12_000).contains(&wall), "killed after {wall} ms");
        assert_eq!(output(&host, bash("echo again")).await, "again\n");
    });
}

/// Sends a signal to the kernels of a host's sandboxes: `runsc`'s second program, below its jail.
fn signal_kernels(host: &Host, signal: Signal) {
    let parent = |pid: i32| -> Option<i32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:\t"))?.parse().ok()
    };
    let is_below = |pid: i32| {
        let mut line = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|parent| *parent > 1));
        line.any(|pid| u32::try_from(pid) == Ok(host.jail.id()))
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let kernel = |pid: &i32| {
        let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.starts_with("runsc-sandbox\0") && is_below(*pid)
    };
    let kernels: Vec<i32> = all.filter(kernel).collect();
    assert!(!kernels.is_empty(), "there is none");
    for pid in kernels {
        let _gone = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
    }
}

/// Everything that a node made is gone when it was shut down, and the jail ends well.
#[test]
fn o06_a_shutdown_leaves_nothing_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = real::Host::start(folder.path(), 3);
    let pid = host.jail.id();
    let mark = format!("{}.75", 3_000_000 + u64::from(std::process::id()));
    host.runtime.block_on(async {
        assert_eq!(run(&host, spec(&["true"])).await.ending(), Ending::Exited { code: 0 });
        let (told, ()) = tokio::join!(run(&host, spec(&["sleep", &mark])), async {
            bench::eventually("the program runs", || processes_with(&mark) > 0).await;
            host.node.shutdown(Duration::from_millis(100)).await;
        });
        assert_eq!(told.ending(), Ending::NodeRestarted);
    });
    drop(host.node);
    drop(host.runtime);
    let status = host.jail.wait().unwrap();
    assert!(status.success(), "the jail left something: {status}");
    assert_eq!(processes_with(&mark), 0);
    assert!(!std::path::Path::new("/proc").join(pid.to_string()).join("fd").exists());
}
