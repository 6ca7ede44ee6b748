use bailey_protocol::jail::StopFacts;
use bailey_protocol::node::{RunStarted, RunStopped};
use bailey_protocol::wall::WallKind;

use super::super::look::{Descriptor, Device};
use super::*;

const CAGE: u32 = CAGE_UID_BASE;

/// An attack of which nothing came: three processes that a sandbox may have.
fn facts() -> Facts {
    let names = NAMESPACES.iter().map(|kind| ((*kind).to_owned(), format!("{kind}:[7]"))).collect();
    let init = Seen {
        pid: 1,
        uid: CAGE,
        no_new_privs: "1".to_owned(),
        seccomp: "2".to_owned(),
        filters: 4,
        root: "/".to_owned(),
        umask: "0022".to_owned(),
        namespaces: names,
        ..Seen::default()
    };
    let pipe = Descriptor { link: "pipe:[3]".to_owned(), ..Descriptor::default() };
    let code = |pid| Seen { pid, uid: CAGE + 1000, descriptors: [(0, pipe.clone())].into(), ..init.clone() };
    let mounts = BTreeSet::from([mount("/", "ro,nosuid,nodev"), mount("/dev", "rw,nosuid")]);
    let look = Look {
        code: (2..60).map(code).collect(),
        init,
        mounts: mounts.clone(),
        links: vec!["lo".to_owned()],
        grown: 100,
        files: 100,
        ..Look::default()
    };
    let started = RunStarted {
        sandbox: format!("sbx{}", "0".repeat(26)).parse().unwrap(),
        wall: WallKind::Container,
        accelerated: None,
        parked: false,
        fences: Vec::new(),
    };
    let ran = Ran { started: Some(started), stopped: Some(stopped(Ending::Cancelled)), ..Ran::default() };
    let host_namespaces = NAMESPACES.iter().map(|kind| format!("{kind}:[1]")).collect();
    Facts { ran, look: Some(look), usual_mounts: mounts, host_namespaces, ..Facts::default() }
}

fn mount(at: &str, options: &str) -> Mount {
    Mount { at: at.to_owned(), options: options.to_owned(), kind: "tmpfs".to_owned() }
}

fn stopped(ending: Ending) -> RunStopped {
    RunStopped { ending, limits_hit: Vec::new(), output_dropped: 0, facts: StopFacts::default(), wall_ms: 1000 }
}

fn with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = facts();
    change(&mut facts);
    facts
}

/// With a change to one process of the attack.
fn one(change: impl FnOnce(&mut Seen)) -> Facts {
    with(|facts| change(&mut facts.look.as_mut().unwrap().code[0]))
}

fn look(change: impl FnOnce(&mut Look)) -> Facts {
    with(|facts| change(facts.look.as_mut().unwrap()))
}

fn holds(descriptor: Descriptor) -> Facts {
    one(|seen| drop(seen.descriptors.insert(2, descriptor)))
}

fn link(link: &str) -> Descriptor {
    Descriptor { link: link.to_owned(), ..Descriptor::default() }
}

fn ended(ending: Ending, hit: &[LimitHit], change: impl FnOnce(&mut RunStopped)) -> Facts {
    with(|facts| {
        let mut end = RunStopped { limits_hit: hit.to_vec(), ..stopped(ending) };
        change(&mut end);
        facts.ran.stopped = Some(end);
    })
}

#[track_caller]
fn breaks(judge: Judge, facts: &Facts) {
    assert!(matches!(verdict(judge, facts), Verdict::Broken(_)), "{:?}", verdict(judge, facts));
}

#[track_caller]
fn skips(judge: Judge, facts: &Facts) {
    assert!(matches!(verdict(judge, facts), Verdict::NotTried(_)), "{:?}", verdict(judge, facts));
}

/// Those that look while the attack holds what it got.
const LOOKING: [Judge; 12] =
    [harmless, posture, namespaces, trophies, traced, keys, mounts, unmarked, masks, apart, devices, descriptors];

#[test]
fn harm_breaks_whatever_the_judge_and_what_was_not_seen_was_not_tried() {
    for judge in LOOKING.into_iter().chain([settings as Judge]) {
        assert_eq!(verdict(judge, &facts()), Verdict::Held);
        breaks(judge, &with(|facts| facts.harm.push("the clock".to_owned())));
        breaks(judge, &with(|facts| facts.ran.survivors = 1));
        breaks(judge, &with(|facts| facts.ran.overdue = true));
        skips(judge, &with(|facts| facts.look = None));
        skips(judge, &look(|look| look.code.clear()));
        skips(judge, &with(|facts| facts.blind.push("could not look".to_owned())));
        skips(judge, &with(|facts| facts.ran.fault = Some("no room".to_owned())));
        skips(judge, &with(|facts| facts.ran.started = None));
        skips(judge, &with(|facts| facts.ran.stopped = None));
        skips(judge, &Facts::default());
    }
    // What is broken outweighs what could not be seen.
    breaks(
        harmless,
        &with(|facts| {
            facts.blind.push("could not look".to_owned());
            facts.harm.push("the clock".to_owned());
        }),
    );
}

#[test]
fn each_way_out_of_the_posture_breaks() {
    for set in 0..5 {
        breaks(posture, &one(|seen| seen.capabilities[set] = 1 << 21));
    }
    breaks(posture, &one(|seen| seen.no_new_privs = "0".to_owned()));
    breaks(posture, &one(|seen| seen.seccomp = "0".to_owned()));
    breaks(posture, &one(|seen| seen.filters = 3));
    breaks(posture, &one(|seen| seen.uid = CAGE));
    breaks(posture, &one(|seen| seen.uid = 1000));
    breaks(posture, &look(|look| look.init.uid = 0));

    let own = |kind: &str| {
        let kind = kind.to_owned();
        one(|seen| drop(seen.namespaces.insert(kind.clone(), format!("{kind}:[9]"))))
    };
    NAMESPACES
        .into_iter()
        .chain(["pid_for_children", "time_for_children"])
        .for_each(|kind| breaks(namespaces, &own(kind)));
    let hosts = |look: &mut Look| {
        for seen in std::iter::once(&mut look.init).chain(&mut look.code) {
            seen.namespaces.insert("net".to_owned(), "net:[1]".to_owned());
        }
    };
    breaks(namespaces, &look(hosts));
    skips(namespaces, &look(|look| look.code.truncate(10)));
    skips(namespaces, &look(|look| look.init.namespaces.clear()).clone_without_namespaces());
}

impl Facts {
    fn clone_without_namespaces(mut self) -> Self {
        self.look.as_mut().unwrap().code.iter_mut().for_each(|seen| seen.namespaces.clear());
        self
    }
}

#[test]
fn each_thing_that_was_won_breaks() {
    for kind in
        ["anon_inode:[io_uring]", "anon_inode:bpf-map", "anon_inode:[userfaultfd]", "/proc/1/mem", "/proc/1/environ"]
    {
        breaks(trophies, &holds(link(kind)));
    }
    let socket = Descriptor { socket: Some((1, 1)), ..link("socket:[5]") };
    breaks(
        trophies,
        &look(|look| {
            look.init.descriptors.insert(9, socket.clone());
            look.code[3].descriptors.insert(2, socket);
        }),
    );
    breaks(traced, &look(|look| look.init.tracer = 12));
    for judge in [traced as Judge, unmarked] {
        breaks(judge, &one(|seen| drop(seen.descriptors.insert(207, link("/")))));
    }
    breaks(keys, &look(|look| look.keys = 1));
    breaks(mounts, &look(|look| look.mounts.extend([mount("/tmp/mark", "rw")])));
    breaks(mounts, &look(|look| drop(look.mounts.pop_last())));
    breaks(mounts, &one(|seen| seen.root = "/tmp".to_owned()));
    skips(mounts, &with(|facts| facts.usual_mounts.clear()));
    for mask in ["0123", "0124"] {
        breaks(masks, &one(|seen| seen.umask = mask.to_owned()));
    }
    breaks(settings, &holds(Descriptor { writes_to: Some("proc"), ..link("/proc/sys/kernel/core_pattern") }));
    breaks(settings, &one(|seen| seen.cgroup_mounts = true));
    let plain = Descriptor { socket: Some((2, 1)), ..link("socket:[8]") };
    assert_eq!(verdict(sockets, &holds(plain.clone())), Verdict::Held);
    skips(sockets, &facts());
    for kind in [(2, 3), (16, 3), (17, 3), (38, 5), (40, 1), (1, 3)] {
        breaks(sockets, &holds(Descriptor { socket: Some(kind), ..plain.clone() }));
    }
    for judge in [sockets as Judge, apart] {
        breaks(judge, &look(|look| look.links.push("eth0".to_owned())));
    }
    for device in [Device { block: true, number: (8, 0) }, Device { block: false, number: (1, 1) }] {
        breaks(devices, &holds(Descriptor { device: Some(device), ..link("/dev/x") }));
    }
    breaks(devices, &look(|look| look.nodes.extend(["tmp/node".to_owned()])));
    for options in ["rw,nodev", "rw,nosuid", "rw"] {
        breaks(devices, &look(|look| look.mounts.extend([mount("/x", options)])));
    }
    breaks(devices, &look(|look| look.mounts.extend([mount("/dev/pts", "rw")])));
    breaks(descriptors, &one(|seen| drop(seen.descriptors.insert(3, link("pipe:[1]")))));
    breaks(descriptors, &holds(link("/root")));
    for leaked in ["/etc/shadow", "/tmp/.tmpX/bailey-attest-secret"] {
        breaks(descriptors, &look(|look| drop(look.init.descriptors.insert(100, link(leaked)))));
    }
}

#[test]
fn each_limit_that_was_not_kept_breaks_and_one_that_was_not_met_was_not_tried() {
    let limits = Limits::default();
    let held = |judge: Judge, facts: &Facts| assert_eq!(verdict(judge, facts), Verdict::Held);

    let bomb = |tasks| ended(Ending::Timeout, &[LimitHit::Pids], |_| {}).with_tasks(tasks);
    held(pids, &bomb(u64::from(limits.pids)));
    breaks(pids, &bomb(u64::from(limits.pids) + 1));
    skips(pids, &bomb(0));
    skips(pids, &facts());

    let peak = |ending, peak| ended(ending, &[], |end| end.facts.memory_peak_bytes = peak);
    held(memory, &peak(Ending::Oom, limits.memory_bytes));
    breaks(memory, &peak(Ending::Oom, limits.memory_bytes + (5 << 20)));
    skips(memory, &peak(Ending::Timeout, limits.memory_bytes / 2));

    let full = |hit: &[LimitHit], grown| {
        let mut facts = ended(Ending::Cancelled, hit, |_| {});
        facts.look.as_mut().unwrap().grown = grown;
        facts
    };
    held(disk, &full(&[LimitHit::Disk], limits.disk_bytes));
    breaks(disk, &full(&[LimitHit::Disk], limits.disk_bytes + 1));
    breaks(disk, &ended(Ending::Oom, &[LimitHit::Disk], |_| {}));
    skips(disk, &full(&[], 100));

    let many = |hit: &[LimitHit], count| {
        let mut facts = ended(Ending::Cancelled, hit, |_| {});
        facts.look.as_mut().unwrap().files = count;
        facts
    };
    held(files, &many(&[LimitHit::Files], limits.disk_inodes));
    breaks(files, &many(&[LimitHit::Files], limits.disk_inodes + 1000));
    skips(files, &many(&[], 100));

    let late = |ending, wall_ms| ended(ending, &[], |end| end.wall_ms = wall_ms).with_output(10);
    held(time, &late(Ending::Timeout, limits.timeout_ms + 100));
    breaks(time, &late(Ending::Timeout, limits.timeout_ms + 4000));
    skips(time, &late(Ending::Exited { code: 0 }, 5));
    skips(time, &ended(Ending::Timeout, &[], |_| {}));

    let most = usize::try_from(limits.output_bytes).unwrap();
    let wrote = |ending, bytes| ended(ending, &[], |_| {}).with_output(bytes);
    held(output, &wrote(Ending::OutputLimit, most));
    breaks(output, &wrote(Ending::OutputLimit, most + 1));
    skips(output, &wrote(Ending::Exited { code: 0 }, 10));
}

impl Facts {
    fn with_tasks(mut self, tasks: u64) -> Self {
        self.ran.tasks = tasks;
        self
    }

    fn with_output(mut self, bytes: usize) -> Self {
        self.ran.stdout = vec![b'o'; bytes];
        self
    }
}

#[test]
fn a_share_that_was_not_kept_breaks() {
    let shared = |own: u64, other: Option<u64>, processors| {
        let mut facts = ended(Ending::Timeout, &[], |end| {
            end.wall_ms = 2000;
            end.facts.cpu_us = own;
        });
        facts.beside = other.map(|other| {
            let facts = StopFacts { cpu_us: other, ..StopFacts::default() };
            Ran { stopped: Some(RunStopped { facts, ..stopped(Ending::Cancelled) }), ..Ran::default() }
        });
        facts.processors = processors;
        facts
    };
    assert_eq!(verdict(share, &shared(2_000_000, Some(1_800_000), 4)), Verdict::Held);
    assert_eq!(verdict(share, &shared(1_000_000, Some(1_000_000), 1)), Verdict::Held);
    breaks(share, &shared(4_000_000, Some(4_000_000), 4));
    breaks(share, &shared(2_000_000, Some(200_000), 4));
    breaks(share, &shared(1_800_000, Some(200_000), 1));
    skips(share, &shared(100_000, Some(100_000), 1));
    skips(share, &shared(900_000, Some(200_000), 2));
    skips(share, &shared(2_000_000, None, 2));
}

#[test]
fn a_tree_that_took_too_much_breaks() {
    let took = |code, tree| {
        let mut facts = ended(Ending::Exited { code }, &[], |_| {});
        facts.tree = tree;
        facts
    };
    assert_eq!(verdict(links, &took(0, Some(Vec::new()))), Verdict::Held);
    breaks(links, &took(0, Some(vec!["`memory` is in the tree".to_owned()])));
    skips(links, &took(0, None));
    skips(links, &took(1, Some(Vec::new())));
    assert_eq!(verdict(through, &took(0, None)), Verdict::Held);
    skips(through, &took(7, None));
    skips(through, &ended(Ending::Timeout, &[], |_| {}));
    breaks(through, &with(|facts| facts.harm.push("a secret came out".to_owned())));
}
