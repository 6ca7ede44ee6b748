//! G01: each fence that cannot be put up is an error that names it, and nothing goes on without it.
//!
//! The jail of a debug build can be told to have a step fail although it was done. The table below has to hold every
//! fence of the source, so a new one cannot be forgotten.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bailey_protocol::jail::{JailFault, JailFaultKind, JailOp, Profile, ServerLaunch, SupervisorConfig};
use bailey_protocol::limits::{LargeDisks, Limits};
use tempfile::TempDir;

use crate::harness::{Jail, config, fixture, launch_op, new_sandbox};
use crate::residue::{groups, ledger};

/// When a fence is put up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    /// The jail starts.
    Start,
    /// The same, with large disks.
    Disks,
    /// The same, with a server to supervise.
    Gather,
    /// A cage is built.
    Park,
    /// One is built around a program that isolates by itself: a machine monitor, a kernel in user space.
    Launch,
    LaunchSentry,
    /// A cage is given to a run.
    Claim,
    /// A collector is started: by the jail, and in the child.
    Collect,
    Collector,
    /// The server is started.
    Server,
}

/// Where a fence exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Any,
    /// Hosts with this controller in a v1 hierarchy.
    V1(&'static str),
    /// Hosts with it on v2.
    V2(&'static str),
}

use On::{Any, V1, V2};
use When::{Claim, Collect, Collector, Disks, Gather, Launch, LaunchSentry, Park, Server, Start};

#[rustfmt::skip]
const FENCES: &[(&str, When, On)] = &[
    ("check the host", Start, Any),
    ("find seccomp", Start, Any),
    ("hide the jail's memory", Start, Any),
    ("close inherited descriptors", Start, Any),
    ("open the mount namespace", Start, Any),
    ("make a mount namespace", Start, Any),
    ("make the jail's mounts private", Start, Any),
    ("map the owners of the data folder", Start, Any),
    ("read the guest binary", Start, Any),
    ("verify the guest binary", Start, Any),
    ("find the cgroup controllers", Start, Any),
    ("find the size of the host", Start, Any),
    ("open the template image", Start, Any),
    ("verify the template image", Start, Any),
    ("put a loop device over the template image", Start, Any),
    ("mount the template image", Start, Any),
    ("build the jail's own root", Start, Any),
    ("mount the jail's own /proc", Start, Any),
    ("store the guest binary", Start, Any),
    ("attach the templates", Start, Any),
    ("attach the images", Start, Any),
    ("attach the server's folders", Start, Any),
    ("enter the jail's own root", Start, Any),
    ("verify the host's root", Start, Any),
    ("mount the cgroup v2 tree", Start, Any),
    ("make the cgroup v2 folder", Start, Any),
    ("find cgroup.kill", Start, Any),
    ("limit the memory of all cages", Start, Any),
    ("limit the processes of all cages", Start, V1("pids")),
    ("mount the cgroup v1 hierarchy *", Start, V1("memory")),
    ("find out how layers are named", Start, Any),
    ("open the time namespace", Start, Any),
    ("look at the machine", Start, Any),
    ("compile the filters", Start, Any),
    ("find the loop driver", Disks, Any),
    ("set large disks aside", Disks, Any),
    ("make a large disk", Disks, Any),
    ("try a large disk", Disks, Any),
    ("open /*", Gather, Any),
    ("open the server's data folder", Gather, Any),
    ("open the server's binary", Gather, Any),
    ("open the folder of policies", Gather, Any),
    ("bound the guest's cgroups", Park, Any),
    ("forbid swap", Park, Any),
    ("forbid zswap", Park, V2("memory")),
    ("kill whole sandboxes for memory", Park, V2("memory")),
    ("limit memory", Park, Any),
    ("limit the memory of sockets", Park, V1("memory")),
    ("limit processes", Park, Any),
    ("limit CPU time", Park, Any),
    ("weigh the cage", Park, Any),
    ("delegate the cgroup", Park, Any),
    ("open the cgroups", Park, Any),
    ("make the namespaces", Park, Any),
    ("map the user ids", Park, Any),
    ("prefer the cage when the host runs out of memory", Park, Any),
    ("open the user namespace", Park, Any),
    ("make the disk", Park, Any),
    ("map the template's owners", Park, Any),
    ("make the root's layers", Park, Any),
    ("make the root", Park, Any),
    ("make the shared memory", Park, Any),
    ("make the empty layer", Park, Any),
    // Those of the jail's own root are made by the same step.
    ("make the devices", Start, Any),
    ("tell the cage of its machine", Park, Any),
    ("map the owners of slices", Park, Any),
    ("watch the memory", Park, Any),
    ("close the jail's descriptors", Park, Any),
    ("receive the mounts", Park, Any),
    ("join the cgroups", Park, Any),
    ("make a cgroup namespace", Park, Any),
    ("begin a session", Park, Any),
    ("drop the groups", Park, Any),
    ("become gid 0", Park, Any),
    ("become uid 0", Park, Any),
    ("die with the jail", Park, Any),
    ("reset the signals", Park, Any),
    ("bring up the loopback interface", Park, Any),
    ("set the host name", Park, Any),
    ("make the mounts private", Park, Any),
    ("attach the root", Park, Any),
    ("mount /dev", Park, Any),
    ("make the terminals", Park, Any),
    ("mount /dev/pts", Park, Any),
    ("mount /dev/shm", Park, Any),
    ("make /proc", Park, Any),
    ("mount /proc", Park, Any),
    ("make parts of /proc read-only", Park, Any),
    ("mask files of /proc", Park, Any),
    ("mask folders of /proc", Park, Any),
    ("mount the agent", Park, Any),
    ("forbid further namespaces", Park, Any),
    ("enter the root", Park, Any),
    ("let the old root go", Park, Any),
    ("verify the root", Park, Any),
    ("limit resources", Park, Any),
    ("drop capabilities", Park, Any),
    ("lock the securebits", Park, Any),
    ("arrange the descriptors", Park, Any),
    ("install the filters", Park, Any),
    ("read PID 1's posture", Park, Any),
    ("compare PID 1's posture", Park, Any),
    ("read the user namespace's owner", Park, Any),
    ("read PID 1's namespaces", Park, Any),
    ("read PID 1's root", Park, Any),
    ("read PID 1's program", Park, Any),
    ("read PID 1's descriptors", Park, Any),
    ("open the cage's mount namespace", Park, Any),
    ("map the image's owners", Launch, Any),
    ("make the places for mounts", Launch, Any),
    ("make the program's root", Launch, Any),
    ("make the program's /tmp", Launch, Any),
    ("make the program's devices", Launch, Any),
    ("make the fence around the program's paths", Launch, Any),
    ("mount /tmp", Launch, Any),
    ("make the sealed /proc", LaunchSentry, Any),
    ("mount the sealed /proc", LaunchSentry, Any),
    ("become the program's group", Launch, Any),
    ("become the program's user", Launch, Any),
    ("restrict the program's paths", Launch, Any),
    ("limit the program's files", Launch, Any),
    ("resize the disk", Claim, Any),
    ("give the cage its processors", Claim, Any),
    ("map the owners of a slice", Claim, Any),
    ("build a slice", Claim, Any),
    ("make a mount point", Claim, Any),
    ("mount the slices", Claim, Any),
    ("make an empty root", Collect, Any),
    ("make the collector's namespaces", Collect, Any),
    ("collector: close the jail's descriptors", Collector, Any),
    ("collector: join the cgroups", Collector, Any),
    ("collector: make a cgroup namespace", Collector, Any),
    ("collector: enter the empty root", Collector, Any),
    ("collector: enter the user namespace", Collector, Any),
    ("collector: drop rights", Collector, Any),
    ("collector: arrange the descriptors", Collector, Any),
    ("collector: install the filters", Collector, Any),
    ("server: close the jail's descriptors", Server, Any),
    ("weigh the server", Server, V2("cpu")),
    ("server: join the cgroup", Server, Any),
    ("server: make a cgroup namespace", Server, Any),
    ("server: make the mounts private", Server, Any),
    ("server: build the root", Server, Any),
    ("server: enter the root", Server, Any),
    ("server: open the binary", Server, Any),
    ("server: drop rights", Server, Any),
    ("server: arrange the descriptors", Server, Any),
    ("server: install the filters", Server, Any),
];

/// Whether this host has the fence. What it has not is tried where it is: see `machine`.
fn is_here(on: On) -> bool {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let in_v1 = |controller: &str| {
        groups.lines().any(|line| line.split(':').nth(1).unwrap().split(',').any(|c| c == controller))
    };
    match on {
        Any => true,
        V1(controller) => in_v1(controller),
        V2(controller) => !in_v1(controller),
    }
}

/// Whether this is the machine of `machine`.
fn is_inside() -> bool {
    std::env::var_os("BAILEY_JAIL_FIXTURE").is_some()
}

/// A jail that has a step fail, and its log.
struct Failing {
    jail: Jail,
    data: TempDir,
    log: tempfile::NamedTempFile,
}

impl Failing {
    fn start(step: &str, change: impl FnOnce(&mut SupervisorConfig, &Path)) -> Self {
        let data = TempDir::new().unwrap();
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut config = config(data.path());
        change(&mut config, data.path());
        let quoted = step.replace('\'', "'\\''");
        let before = format!("exec 2>{}; exec \"$0\" 4 --have-fail '{quoted}';", log.path().display());
        Self { jail: Jail::start_with(&config, &before), data, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// The jail itself must have refused.
    fn refused(mut self, step: &str) {
        let code = self.jail.wait_for_refusal();
        let log = self.log();
        assert_eq!(code, Some(1), "`{step}`: {log}");
        assert!(log.contains(step.trim_end_matches('*')), "`{step}` is not named: {log}");
        self.nothing_is_left(step);
    }

    /// Nothing lives, and the end is orderly.
    fn end(mut self, step: &str) {
        let parent = self.jail.process.id();
        let children = || std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !children().is_empty() {
            assert!(Instant::now() < deadline, "`{step}`: a process is left");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(self.jail.wait_for_refusal(), Some(0), "`{step}`: {}", self.log());
        self.nothing_is_left(step);
    }

    fn nothing_is_left(self, step: &str) {
        // A jail that failed early had no ledger yet.
        if self.data.path().join("jail/ledger.json").exists() {
            assert!(groups(&ledger(self.data.path())).is_empty(), "`{step}`: cgroups are left");
        }
    }
}

fn named<T: std::fmt::Debug>(result: Result<T, JailFault>, step: &str) {
    let fault = result.expect_err(step);
    assert_eq!((fault.kind, fault.step.as_str()), (JailFaultKind::Fence, step), "{fault:?}");
}

fn launch(config: &mut SupervisorConfig, data: &Path) {
    let policies = data.join("policies");
    std::fs::create_dir(&policies).unwrap();
    config.server = Some(ServerLaunch {
        policies: Some(policies),
        listen: "127.0.0.1:0".parse().unwrap(),
        binary: ["/usr/bin/env", "/bin/env"].iter().find_map(|path| std::fs::canonicalize(path).ok()).unwrap(),
        // Ends at once and well: a jail that started it ends well, too.
        args: vec![],
        env: vec![],
        config: serde_json::json!({}),
        drain_ms: 1000,
    });
}

fn try_fence(step: &str, when: When) {
    match when {
        Start => Failing::start(step, |_, _| {}).refused(step),
        Disks => Failing::start(step, |config, _| {
            config.large_disks = Some(LargeDisks { count: 1, bytes: 64 << 20, inodes: 256 });
        })
        .refused(step),
        Gather | Server => Failing::start(step, launch).refused(step),
        Park => {
            let mut failing = Failing::start(step, |_, _| {});
            let park =
                JailOp::Park { sandbox: new_sandbox(), template: fixture().digest.clone(), limits: Limits::default() };
            let (answer, descriptors) = failing.jail.call(park, &[]);
            named(answer, step);
            assert!(descriptors.is_empty(), "`{step}`: a cage was handed out");
            failing.end(step);
        }
        Launch | LaunchSentry => {
            let mut failing = Failing::start(step, |_, _| {});
            let profile = if when == Launch { Profile::Vmm } else { Profile::Sentry };
            let launch = launch_op(&fixture().program.digest, profile, &["/probe"], Limits::default());
            let (answer, descriptors) = failing.jail.call(launch, &[]);
            named(answer, step);
            assert!(descriptors.is_empty(), "`{step}`: a cage was handed out");
            failing.end(step);
        }
        Claim | Collect | Collector => {
            let mut failing = Failing::start(step, |_, _| {});
            let mut cage = failing.jail.park();
            let lower = failing.data.path().join("lower");
            std::fs::create_dir(&lower).unwrap();
            let limits = Limits { disk_bytes: 8 << 20, ..Limits::default() };
            let claimed = failing.jail.try_claim(&cage.sandbox, limits, &[("/data", true, &lower)]);
            if when == Claim {
                named(claimed, step);
            } else {
                claimed.unwrap();
                cage.agent.get("echo 1 > /data/made");
                failing.jail.stop(&cage.sandbox);
                collect(&mut failing, &cage.sandbox, step, when);
                failing.jail.destroy(&cage.sandbox);
            }
            failing.end(step);
        }
    }
}

fn collect(failing: &mut Failing, sandbox: &bailey_protocol::id::SandboxId, step: &str, when: When) {
    if when == Collect {
        let (answer, descriptors) = failing.jail.call(JailOp::Collect { sandbox: sandbox.clone(), mount: 0 }, &[]);
        named(answer, step);
        assert!(descriptors.is_empty(), "`{step}`: a collector's output was handed out");
        return;
    }
    assert_eq!(failing.jail.collect(sandbox, 0), "", "`{step}`: the collector ran");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !failing.log().contains(step) {
        assert!(Instant::now() < deadline, "`{step}` is not named: {}", failing.log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn g01_every_fence_that_cannot_be_put_up_is_an_error_by_its_name() {
    // In the machine, where all takes ten times as long, what the host outside may not have.
    let wanted: Vec<_> = FENCES.iter().filter(|(.., on)| is_here(*on) && (!is_inside() || *on != Any)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((step, when, _)) = wanted.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    try_fence(step, *when);
                }
            });
        }
    });
}

#[test]
fn g01_without_a_fault_all_of_that_goes_well() {
    // Or the test above would show nothing.
    let none = "no such step";
    let mut failing = Failing::start(none, |_, _| {});
    let cage = failing.jail.park();
    failing.jail.destroy(&cage.sandbox);
    let (_line, theirs) = crate::launch::line();
    let program = failing.jail.launch(&["/probe"], &[&theirs]);
    failing.jail.destroy(&program.sandbox);
    failing.end(none);
    if is_inside() {
        // No program there can be called `bailey`.
        return;
    }
    let mut served = Failing::start(none, launch);
    assert_eq!(served.jail.wait_for_refusal(), Some(0), "{}", served.log());
}

/// The steps of a source file that put up a fence.
fn steps(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap();
    let literal = |rest: &str| rest.split('"').next().unwrap().split('{').next().unwrap().to_owned();
    let mut found = Vec::new();
    for start in [
        "or_fence(\"",
        "attempt(\"",
        ".step(\"",
        "verify(agent.as_slice(), &config.guest_sha256, \"",
        "image.digest.as_str(), \"",
    ] {
        found.extend(text.split(start).skip(1).map(literal));
    }
    // Names that several calls share: up to where the next one is given.
    let mut rest = text;
    while let Some(at) =
        ["let step = ", "let name = ", "let compare = "].iter().filter_map(|start| rest.find(start)).min()
    {
        let (_, after) = rest.split_at(at + "let ".len());
        let end = ["let step = ", "let name = ", "\nfn ", "\npub"].iter().filter_map(|start| after.find(start)).min();
        let scope = after.split_at(end.unwrap_or(after.len())).0;
        let uses = ["or_fence(step)", "or_fence(&step)", "or_fence(compare)", "Fence, step", ".step(name)"];
        if uses.iter().any(|used| scope.contains(used))
            && let Some((_, quoted)) = scope.split_once('"')
        {
            found.push(literal(quoted));
        }
        rest = after;
    }
    found
}

#[test]
fn g01_no_fence_of_the_source_is_missing_from_the_table() {
    let mut source = BTreeMap::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("tests.rs") && !path.ends_with("fault.rs") {
                for step in steps(&std::fs::read_to_string(&path).unwrap()) {
                    source.insert(step, path.clone());
                }
            }
        }
    }
    let table: Vec<&str> = FENCES.iter().map(|(step, ..)| step.trim_end_matches('*')).collect();
    let starts = |step: &str, name: &str| {
        step == name || step.starts_with(name.trim_end_matches('`')) && name.ends_with([' ', '/'])
    };
    let missing: Vec<_> = source.iter().filter(|(step, _)| !table.iter().any(|name| starts(step, name))).collect();
    assert!(missing.is_empty(), "not in the table: {missing:#?}");
    let unknown: Vec<_> = table.iter().filter(|name| !source.keys().any(|step| starts(step, name))).collect();
    assert!(unknown.is_empty(), "not in the source: {unknown:#?}");
    let distinct: std::collections::BTreeSet<_> = table.iter().collect();
    assert_eq!(distinct.len(), table.len());
}
