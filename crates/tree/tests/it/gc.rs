//! Garbage collection and the end of history, as callers and stock git see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bailey_protocol::id::VersionId;
use bailey_protocol::path::BranchName;
use bailey_tree::{Brought, CommitMeta, GcReport, Keep, Merge, Thoroughness, TreeError, TreeErrorKind};
use proptest::prelude::*;

use super::{Bench, git_output, meta};

/// One cycle; the bench's own handle is renewed, so that it holds nothing back.
fn collect(bench: &mut Bench, heads: &[VersionId]) -> GcReport {
    bench.store = bench.store.resting(None);
    let done = bench.store.awake().collect_garbage(|| Ok::<_, TreeError>(heads.to_vec()), Thoroughness::Thorough);
    bench.store = bench.store.awake();
    done.unwrap()
}

fn objects(bench: &Bench) -> usize {
    git_output(bench.store.folder(), &["cat-file", "--batch-all-objects", "--batch-check"]).lines().count()
}

/// What git finds wrong, dangling objects included. That there is no `main` is none of that.
fn fsck(bench: &Bench) -> Vec<String> {
    let found = git_output(bench.store.folder(), &["fsck", "--full", "--strict"]);
    found.lines().filter(|line| !line.contains("unborn branch")).map(str::to_owned).collect()
}

/// Whether any file of the store, or any object in it, has these bytes.
fn holds(bench: &Bench, canary: &str) -> bool {
    let mut folders = vec![bench.store.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(path).unwrap().windows(canary.len()).any(|bytes| bytes == canary.as_bytes()) {
                return true;
            }
        }
    }
    git_output(bench.store.folder(), &["cat-file", "--batch-all-objects", "--batch"]).contains(canary)
}

#[test]
fn garbage_is_gone_after_two_cycles_and_nothing_else_is() {
    let mut bench = Bench::new();
    let first = bench.write(None, "kept", b"kept content");
    let lost = bench.write(Some(&first), "lost", b"canary-of-lost");
    let head = bench.write(Some(&first), "big", &vec![7; 3 << 20]);
    bench.fsck(&head);
    assert!(holds(&bench, "canary-of-lost"));
    let one = collect(&mut bench, std::slice::from_ref(&head));
    assert_eq!((one.condemned, one.removed, one.held), (3, 0, false), "{one:?}");
    assert!(!bench.store.contains(&lost).unwrap(), "a condemned version is on its way out");
    let two = collect(&mut bench, std::slice::from_ref(&head));
    assert_eq!((two.condemned, two.removed), (0, 3), "{two:?}");
    assert!(two.freed_bytes > 100 && !holds(&bench, "canary-of-lost"));
    assert_eq!(bench.read(&head, "kept"), b"kept content");
    assert_eq!(bench.read(&head, "big"), vec![7; 3 << 20]);
    assert_eq!(bench.store.read(&lost, "lost").unwrap_err().kind(), TreeErrorKind::NotFound);
    let three = collect(&mut bench, std::slice::from_ref(&head));
    assert_eq!((three.condemned, three.removed, three.live), (0, 0, objects(&bench) as u64));
    bench.reopen();
    assert_eq!(bench.read(&head, "big"), vec![7; 3 << 20]);
    bench.fsck(&head);
}

#[test]
fn usage_is_what_lies_on_disk_before_and_after() {
    let mut bench = Bench::new();
    let mut head = None;
    for n in 0..120_u32 {
        head = Some(bench.write(head.as_ref(), &format!("f{}", n % 7), &n.to_be_bytes().repeat(300)));
    }
    let head = head.unwrap();
    bench.write(Some(&head), "lost", &vec![1; 2 << 20]);
    let on_disk = |bench: &Bench| -> u64 {
        let files = std::fs::read_dir(bench.store.folder().join("objects/pack")).unwrap();
        files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    let tenant = "acme".parse().unwrap();
    for _ in 0..3 {
        assert_eq!(bench.trees.usage(&tenant).unwrap().bytes, on_disk(&bench));
        assert_eq!(bench.trees.usage(&tenant).unwrap().files as usize, objects(&bench));
        collect(&mut bench, std::slice::from_ref(&head));
    }
    assert!(bench.store.packs() <= 50, "{}", bench.store.packs());
    let counted = bench.trees.usage(&tenant).unwrap();
    bench.reopen();
    assert_eq!(bench.trees.usage(&tenant).unwrap(), counted, "a new process counts the same");
    assert_eq!(bench.read(&head, "f1"), 113_u32.to_be_bytes().repeat(300));
    bench.fsck(&head);
}

#[test]
fn whoever_holds_a_handle_keeps_what_it_saw_and_a_resting_one_keeps_one_version() {
    let mut bench = Bench::new();
    let head = bench.write(None, "a", b"1");
    let orphan = bench.write(Some(&head), "b", b"2");
    let other = bench.write(Some(&head), "c", b"3");
    let held = bench.store.awake();
    let resting = bench.store.resting(Some(&other));
    for _ in 0..4 {
        let report = collect(&mut bench, std::slice::from_ref(&head));
        assert_eq!(report.removed, 0);
    }
    assert!(held.read(&orphan, "b").is_ok());
    drop(held);
    for _ in 0..3 {
        collect(&mut bench, std::slice::from_ref(&head));
    }
    assert!(!bench.store.contains(&orphan).unwrap());
    assert!(resting.awake().read(&other, "c").is_ok());
    drop(resting);
    for _ in 0..3 {
        collect(&mut bench, std::slice::from_ref(&head));
    }
    assert_eq!(bench.store.read(&other, "c").unwrap_err().kind(), TreeErrorKind::NotFound);
    bench.fsck(&head);
}

#[test]
fn content_that_is_condemned_is_written_again() {
    let mut bench = Bench::new();
    let head = bench.write(None, "a", b"1");
    bench.write(Some(&head), "b", b"twice");
    collect(&mut bench, std::slice::from_ref(&head));
    // The very same version, as a second try in the same second makes it.
    let again = bench.write(Some(&head), "b", b"twice");
    for _ in 0..3 {
        collect(&mut bench, std::slice::from_ref(&again));
    }
    assert_eq!(bench.read(&again, "b"), b"twice");
    bench.fsck(&again);
}

#[test]
fn damage_stops_collection_before_anything_is_removed() {
    let mut bench = Bench::new();
    let first = bench.write(None, "a", b"1");
    bench.write(Some(&first), "lost", b"2");
    let head = bench.write(Some(&first), "b", b"3");
    let files = || std::fs::read_dir(bench.store.folder().join("objects/pack")).unwrap().count();
    let before = files();
    let pack = std::fs::read_dir(bench.store.folder().join("objects/pack")).unwrap().map(|entry| entry.unwrap().path());
    let packs: Vec<_> = pack.filter(|path| path.extension().is_some_and(|it| it == "pack")).collect();
    for pack in packs {
        let sound = std::fs::read(&pack).unwrap();
        let mut rotten = sound.clone();
        let middle = rotten.len() / 2;
        rotten[middle] ^= 4;
        std::fs::write(&pack, rotten).unwrap();
        let fresh = bailey_tree::Trees::open(&bench.dir.path().join("trees")).unwrap();
        for _ in 0..3 {
            let store = fresh.store(bench.store.id()).unwrap();
            drop(store.collect_garbage(|| Ok::<_, TreeError>(vec![head.clone()]), Thoroughness::Thorough));
        }
        std::fs::write(&pack, sound).unwrap();
        if files() != before {
            break;
        }
    }
    bench.reopen();
    assert_eq!(bench.read(&head, "a"), b"1");
    assert_eq!(bench.read(&head, "b"), b"3");
    bench.fsck(&head);
}

/// What a branch's files are.
type Files = BTreeMap<u8, Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Write(usize, u8, Vec<u8>),
    Fork(usize, usize),
    Drop(usize),
    Abandon(usize, Vec<u8>),
    Collect(bool),
    Cut(u64),
    Purge(u8),
    Reopen,
}

fn any_step() -> impl Strategy<Value = Step> {
    let branch = 0..3_usize;
    let content = proptest::collection::vec(0..4_u8, 0..3);
    prop_oneof![
        4 => (branch.clone(), 0..4_u8, content.clone()).prop_map(|(b, f, c)| Step::Write(b, f, c)),
        1 => (branch.clone(), branch.clone()).prop_map(|(a, b)| Step::Fork(a, b)),
        1 => branch.clone().prop_map(Step::Drop),
        1 => (branch, content).prop_map(|(b, c)| Step::Abandon(b, c)),
        3 => any::<bool>().prop_map(Step::Collect),
        1 => (1..4_u64).prop_map(Step::Cut),
        1 => (0..4_u8).prop_map(Step::Purge),
        1 => Just(Step::Reopen),
    ]
}

fn heads(branches: &[Option<(VersionId, Files)>]) -> Vec<VersionId> {
    branches.iter().flatten().map(|(head, _)| head.clone()).collect()
}

/// Each a second later, so that no version is one that was purged.
fn write(bench: &Bench, base: Option<&VersionId>, path: &str, content: &[u8]) -> VersionId {
    static SECONDS: AtomicU64 = AtomicU64::new(1_700_000_000);
    let meta = CommitMeta { time_ms: SECONDS.fetch_add(1, Ordering::Relaxed) * 1000, ..meta() };
    bench.store.write_file(base, path, &mut &*content, u64::MAX, false, &meta).unwrap()
}

fn step(bench: &mut Bench, branches: &mut [Option<(VersionId, Files)>], step: &Step) {
    match step {
        Step::Write(branch, file, content) => {
            let (base, mut files) = branches[*branch].clone().map_or((None, Files::new()), |(b, f)| (Some(b), f));
            files.insert(*file, content.clone());
            branches[*branch] = Some((write(bench, base.as_ref(), &format!("d/f{file}"), content), files));
        }
        Step::Fork(from, to) => branches[*to] = branches[*from].clone(),
        Step::Drop(branch) => branches[*branch] = None,
        Step::Abandon(branch, content) => {
            let base = branches[*branch].as_ref().map(|(head, _)| head.clone());
            write(bench, base.as_ref(), "abandoned", content);
        }
        Step::Collect(thorough) => {
            let how = if *thorough { Thoroughness::Thorough } else { Thoroughness::Usual };
            bench.store = bench.store.resting(None);
            let all = heads(branches);
            bench.store.awake().collect_garbage(|| Ok::<_, TreeError>(all), how).unwrap();
            bench.store = bench.store.awake();
        }
        Step::Cut(versions) => {
            let keep = Keep { versions: *versions, since_ms: 0 };
            if let Some(cut) = bench.store.plan_cut(&heads(branches), keep).unwrap() {
                bench.store.cut(&cut).unwrap();
            }
        }
        Step::Purge(file) => {
            let purge = bench.store.prepare_purge(&format!("d/f{file}"), &heads(branches)).unwrap();
            for (head, files) in branches.iter_mut().flatten() {
                *head = purge.now(head);
                files.remove(file);
            }
            bench.store.seal_purge(purge).unwrap();
        }
        Step::Reopen => bench.reopen(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn random_work_and_upkeep_are_what_the_model_says(steps in proptest::collection::vec(any_step(), 1..24)) {
        let mut bench = Bench::new();
        let mut branches = vec![None, None, None];
        for one in &steps {
            step(&mut bench, &mut branches, one);
            for (head, files) in branches.iter().flatten() {
                for (file, content) in files {
                    prop_assert_eq!(&bench.read(head, &format!("d/f{file}")), content);
                }
            }
        }
        let refs: Vec<(BranchName, VersionId)> = (0..).zip(&branches)
            .filter_map(|(n, branch)| Some((format!("b{n}").parse().unwrap(), branch.as_ref()?.0.clone())))
            .collect();
        if !refs.is_empty() {
            let all = heads(&branches);
            collect(&mut bench, &all);
            collect(&mut bench, &all);
            bench.store.publish_refs(&refs).unwrap();
            prop_assert_eq!(fsck(&bench), Vec::<String>::new());
            let reachable = git_output(bench.store.folder(), &["rev-list", "--objects", "--all"]).lines().count();
            prop_assert_eq!(objects(&bench), reachable, "no garbage is left");
        }
    }
}

#[test]
fn d13_no_live_object_is_lost_while_everybody_works() {
    let rounds = if std::env::var_os("BAILEY_LONG").is_some() { 12_000 } else { 150 };
    let mut bench = Bench::new();
    let start = bench.write(None, "start", b"0");
    let branches: Arc<Vec<Mutex<VersionId>>> = Arc::new((0..4).map(|_| Mutex::new(start.clone())).collect());
    let (over, cycles) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let trees = bench.trees.clone();
    let id = bench.store.id().clone();
    bench.store = bench.store.resting(None);
    let collector = {
        let (trees, id, branches, over, cycles) =
            (trees.clone(), id.clone(), Arc::clone(&branches), Arc::clone(&over), Arc::clone(&cycles));
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let heads = || Ok::<_, TreeError>(branches.iter().map(|head| head.lock().unwrap().clone()).collect());
                trees.store(&id).unwrap().collect_garbage(heads, Thoroughness::Thorough).unwrap();
                cycles.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let workers: Vec<_> = (0..6_usize)
        .map(|worker| {
            let (trees, id, branches) = (trees.clone(), id.clone(), Arc::clone(&branches));
            std::thread::spawn(move || {
                for round in 0..rounds {
                    let store = trees.store(&id).unwrap();
                    let (mine, other) = (&branches[(worker + round) % 4], &branches[(worker + 3 * round + 1) % 4]);
                    let head = mine.lock().unwrap().clone();
                    match (worker * 7 + round) % 5 {
                        // A fork: what was there is garbage now.
                        0 => {
                            let from = other.lock().unwrap().clone();
                            *mine.lock().unwrap() = from;
                        }
                        1 => {
                            for entry in store.list(Some(&head), "").unwrap() {
                                let mut blob = store.read(&head, &entry.name).unwrap();
                                std::io::copy(&mut blob, &mut std::io::sink()).unwrap();
                            }
                            store.history(&head, "", 20, None).unwrap();
                        }
                        // A write that is given up.
                        2 => {
                            store.write_file(Some(&head), "x", &mut &[7; 100][..], 999, false, &meta()).unwrap();
                        }
                        _ => {
                            let path = format!("w{}", round % 5);
                            let content = format!("{}", round % 3).repeat(50);
                            let made = store
                                .write_file(Some(&head), &path, &mut content.as_bytes(), 9999, false, &meta())
                                .unwrap();
                            let mut now = mine.lock().unwrap();
                            match store.merge(Some(&now), &made, &meta()).unwrap() {
                                Merge::Merged(merged) => *now = merged,
                                Merge::Conflict(_) => {}
                            }
                        }
                    }
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    over.store(true, Ordering::SeqCst);
    collector.join().unwrap();
    assert!(cycles.load(Ordering::SeqCst) > 2);
    let heads: Vec<VersionId> = branches.iter().map(|head| head.lock().unwrap().clone()).collect();
    collect(&mut bench, &heads);
    let last = collect(&mut bench, &heads);
    assert!(!last.held);
    let refs: Vec<_> = (0..).zip(&heads).map(|(n, head)| (format!("b{n}").parse().unwrap(), head.clone())).collect();
    bench.reopen();
    bench.store.publish_refs(&refs).unwrap();
    assert_eq!(fsck(&bench), Vec::<String>::new());
    let reachable = git_output(bench.store.folder(), &["rev-list", "--objects", "--all"]).lines().count();
    assert_eq!(objects(&bench), reachable, "no garbage is left");
}

#[test]
fn history_ends_where_it_is_cut_and_git_knows() {
    let mut bench = Bench::new();
    let mut versions = vec![bench.write(None, "f", b"canary-of-0")];
    for n in 1..10 {
        versions.push(bench.write(versions.last(), "f", format!("canary-of-{n}").as_bytes()));
    }
    let head = versions[9].clone();
    let keep = Keep { versions: 3, since_ms: 0 };
    let cut = bench.store.plan_cut(std::slice::from_ref(&head), keep).unwrap().unwrap();
    assert_eq!(cut.expired.len(), 7);
    bench.store.cut(&cut).unwrap();
    assert_eq!(bench.store.plan_cut(std::slice::from_ref(&head), keep).unwrap().map(|cut| cut.expired), None);
    collect(&mut bench, std::slice::from_ref(&head));
    collect(&mut bench, std::slice::from_ref(&head));
    for reopened in [false, true] {
        if reopened {
            bench.reopen();
        }
        let (history, more) = bench.store.history(&head, "", 100, None).unwrap();
        assert_eq!((history.len(), more), (3, None));
        assert!(!bench.store.contains(&versions[6]).unwrap() && bench.store.contains(&versions[7]).unwrap());
        assert!(!holds(&bench, "canary-of-6") && holds(&bench, "canary-of-7"));
        bench.fsck(&head);
    }
    let log = git_output(bench.store.folder(), &["log", "--format=%H", "main"]);
    assert_eq!(log.lines().count(), 3);
    let clone = bench.dir.path().join("clone");
    let url = format!("file://{}", bench.store.folder().display());
    git_output(bench.dir.path(), &["clone", "-q", &url, clone.to_str().unwrap()]);
    assert_eq!(std::fs::read(clone.join("f")).unwrap(), b"canary-of-9");
    // Life goes on, also from the very last version that is left.
    let theirs = bench.write(Some(&versions[7]), "g", b"side");
    let Merge::Merged(merged) = bench.store.merge(Some(&head), &theirs, &meta()).unwrap() else { panic!("conflict") };
    assert_eq!(bench.read(&merged, "g"), b"side");
    collect(&mut bench, std::slice::from_ref(&merged));
    collect(&mut bench, std::slice::from_ref(&merged));
    bench.fsck(&merged);
}

#[test]
fn what_was_deleted_does_not_come_back_from_a_branch_that_is_older_than_history() {
    let mut bench = Bench::new();
    let first = bench.write(None, "kept", b"1");
    let base = bench.write(Some(&first), "deleted", b"2");
    let fork = bench.write(Some(&base), "side", b"3");
    let head = bench.store.delete(Some(&base), "deleted", &meta()).unwrap().unwrap();
    let Brought::Merged(merged) = bench.store.bring(Some(&head), &fork, &meta()).unwrap().0 else { panic!("conflict") };
    assert!(bench.store.entry(Some(&merged), "deleted").unwrap().is_none());
    let keep = Keep { versions: 1, since_ms: 0 };
    let heads = [head.clone(), fork.clone()];
    let cut = bench.store.plan_cut(&heads, keep).unwrap().unwrap();
    bench.store.cut(&cut).unwrap();
    for _ in 0..2 {
        assert_eq!(bench.store.bring(Some(&head), &fork, &meta()).unwrap().0, Brought::Parted);
        collect(&mut bench, &heads);
        collect(&mut bench, &heads);
    }
    // What goes on from the one that is left is brought as ever.
    let next = bench.write(Some(&head), "next", b"4");
    assert_eq!(bench.store.bring(Some(&head), &next, &meta()).unwrap().0, Brought::Forward);
}

#[test]
fn a_version_that_only_a_pin_keeps_is_told_as_expired() {
    let mut bench = Bench::new();
    let old = bench.write(None, "f", b"1");
    let middle = bench.write(Some(&old), "f", b"2");
    let head = bench.write(Some(&middle), "f", b"3");
    let pinned = bench.store.resting(Some(&old));
    let keep = Keep { versions: 1, since_ms: 0 };
    let cut = bench.store.plan_cut(std::slice::from_ref(&head), keep).unwrap().unwrap();
    let expired: BTreeSet<VersionId> = cut.expired.iter().cloned().collect();
    assert_eq!(expired, BTreeSet::from([old.clone(), middle]), "nobody looks at it again");
    bench.store.cut(&cut).unwrap();
    for _ in 0..2 {
        collect(&mut bench, std::slice::from_ref(&head));
    }
    assert_eq!(bench.read(&old, "f"), b"1");
    drop(pinned);
    assert!(bench.store.plan_cut(std::slice::from_ref(&head), keep).unwrap().is_none());
    for _ in 0..2 {
        collect(&mut bench, std::slice::from_ref(&head));
    }
    assert!(!bench.store.contains(&old).unwrap());
    bench.fsck(&head);
}

#[test]
fn o1_a_purged_path_is_nowhere_and_its_versions_are_refused() {
    let mut bench = Bench::new();
    let clean = bench.write(None, "a", b"1");
    let large = "canary-in-a-large-file ".repeat(100_000);
    let dirty = bench.write(Some(&clean), "d/secret", b"canary-in-a-small-file");
    let dirtier = bench.write(Some(&dirty), "d/large", large.as_bytes());
    let after = bench.write(Some(&dirtier), "b", b"2");
    let side = bench.write(Some(&clean), "c", b"3");
    let in_flight = bench.store.awake();
    let run = bench.store.resting(Some(&after));
    let made = bench.write(Some(&after), "e", b"made meanwhile");

    let heads = [after.clone(), side.clone()];
    let purge = bench.store.prepare_purge("d", &heads).unwrap();
    assert_eq!(purge.len(), 3);
    let now = purge.now(&after);
    assert_eq!(purge.now(&side), side, "a version that never had the path keeps its id");
    bench.store.seal_purge(purge).unwrap();
    assert_eq!(bench.store.read(&after, "b").unwrap_err().kind(), TreeErrorKind::Expired);
    assert_eq!(bench.store.contains(&dirty).unwrap_err().kind(), TreeErrorKind::Expired);

    // Whoever was at work goes on without the path.
    let landed = in_flight.current(&made).unwrap();
    assert_eq!(in_flight.current(&after).unwrap(), now);
    let Merge::Merged(head) = in_flight.merge(Some(&now), &landed, &meta()).unwrap() else { panic!("conflict") };
    assert_eq!(run.awake().current(&after).unwrap(), now);
    drop(in_flight);

    let heads = [head.clone(), side.clone()];
    collect(&mut bench, &heads);
    collect(&mut bench, &heads);
    assert!(!holds(&bench, "canary-in-a"));
    assert_eq!(bench.store.count_present(&[dirty.clone(), dirtier, after.clone()]).unwrap(), 0);
    for (path, content) in [("a", &b"1"[..]), ("b", b"2"), ("e", b"made meanwhile")] {
        assert_eq!(bench.read(&head, path), content);
    }
    bench.reopen();
    assert_eq!(bench.store.contains(&dirty).unwrap_err().kind(), TreeErrorKind::Expired);
    assert_eq!(
        bench.store.write_file(Some(&after), "x", &mut &b""[..], 9, false, &meta()).unwrap_err().kind(),
        TreeErrorKind::Expired
    );
    let (history, _) = bench.store.history(&head, "", 100, None).unwrap();
    assert_eq!(history.len(), 5, "clean, dirty, dirtier, after, made: each without the path");
    bench.fsck(&head);
}

#[test]
fn a_store_that_was_just_opened_is_cut_and_purged() {
    for last in [Step::Cut(1), Step::Purge(1), Step::Collect(true)] {
        let mut bench = Bench::new();
        let mut branches = vec![None, None, None];
        for one in [Step::Write(0, 1, vec![1]), Step::Write(0, 2, vec![2]), Step::Reopen, last] {
            step(&mut bench, &mut branches, &one);
        }
        assert_eq!(bench.read(&heads(&branches)[0], "d/f2"), [2]);
    }
}
