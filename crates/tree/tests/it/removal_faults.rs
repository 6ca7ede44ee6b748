//! D05, for the removal of packs: whichever call fails, wherever the process dies, and whatever of it is on the disk once the
//! power has gone, no index is there without its pack. One that is would vouch for objects that nobody has.

use std::path::{Path, PathBuf};

use bailey_protocol::id::VersionId;
use bailey_protocol::path::RepoId;
use bailey_tree::blob_store::{BlobName, BlobStore, Folder, Part};
use bailey_tree::{CommitMeta, GcReport, Store, Thoroughness, TreeError, Trees};

use crate::disk::{Disk, Disks, Fault};

/// The order in which garbage collection removes a pack's files.
const PARTS: [Part; 3] = [Part::Index, Part::Pack, Part::Sums];

/// Each fault at one of its turns: alone, and with all calls after it, which is how a process that dies there looks to the
/// disk. `one` says whether it came to it.
fn each_fault(mut one: impl FnMut(Fault, u64, bool) -> bool) {
    let mut lives = 0;
    for fault in Fault::ALL {
        for lasts in [false, true] {
            let turns = (0..).take_while(|at| one(fault, *at, lasts)).count();
            lives += turns;
        }
    }
    assert!(lives > 0, "nothing fails");
}

fn store(disk: &Disk<'_>) -> Store {
    let trees = Trees::open(&disk.path().join("trees")).unwrap();
    trees.store(&RepoId { tenant: "acme".parse().unwrap(), user: None }).unwrap()
}

/// A disk with a folder for stores, which is whoever's that opens them.
fn prepared(disks: &Disks) -> Disk<'_> {
    let disk = disks.empty();
    drop(store(&disk));
    std::fs::File::open(disk.path()).unwrap().sync_all().unwrap();
    disk
}

fn packs(disk: &Disk<'_>) -> PathBuf {
    store(disk).folder().join("objects/pack")
}

fn write(store: &Store, base: Option<&VersionId>, path: &str, content: &str) -> VersionId {
    let (author, message) = ("ana".parse().unwrap(), "Write".to_owned());
    let meta = CommitMeta { author, time_ms: 1_700_000_000_000, message, run: None };
    store.write_file(base, path, &mut content.as_bytes(), 99, false, &meta).unwrap()
}

fn read(store: &Store, version: &VersionId, path: &str) -> String {
    std::io::read_to_string(store.read(version, path).unwrap()).unwrap()
}

fn indexes_have_packs(folder: &Path, when: &str) -> Vec<BlobName> {
    let names = Folder::new(folder.to_owned()).list().unwrap();
    for index in names.iter().filter(|name| name.part == Part::Index) {
        assert!(names.contains(&BlobName { part: Part::Pack, ..*index }), "{when}: {index} is alone");
    }
    names
}

/// The disk after each of some ways in which the power may go now.
fn without_power(disk: &Disk<'_>, ways: u64, look: impl Fn(&Disk<'_>, &str)) {
    (0..ways).for_each(|way| look(&disk.without_power(way), &format!("the power went, way {way}")));
}

#[test]
fn an_index_that_was_removed_stays_away() {
    let disks = Disks::start();
    let prepared = prepared(&disks);
    write(&store(&prepared), None, "a", "1");
    let names = Folder::new(packs(&prepared)).list().unwrap();
    let pack = names.first().unwrap().pack;
    let remove = |folder: &Folder| PARTS.iter().try_for_each(|part| folder.remove(&BlobName { pack, part: *part }));
    let at = packs(&prepared).strip_prefix(prepared.path()).unwrap().to_owned();
    let pairs = |name: &str, disk: &Disk<'_>| {
        without_power(disk, 16, |lost, how| {
            drop(indexes_have_packs(&lost.path().join(&at), &format!("{name}, {how}")))
        });
    };
    let nothing = |name: &str, disk: &Disk<'_>| {
        without_power(disk, 16, |lost, how| {
            let index = BlobName { pack, part: Part::Index };
            assert!(!Folder::new(lost.path().join(&at)).list().unwrap().contains(&index), "{name}, {how}: it is back");
        });
    };
    each_fault(|fault, turn, lasts| {
        let name = format!("{fault:?} at {turn}, lasting: {lasts}");
        let disk = prepared.copy();
        let folder = Folder::new(disk.path().join(&at));
        disk.arm(fault, turn, lasts);
        let removed = remove(&folder);
        let failed = disk.disarm();
        assert_eq!(removed.is_err(), failed > 0, "{name}");
        if removed.is_ok() {
            nothing(&name, &disk);
        }
        pairs(&name, &disk);
        // A process that finds it like this sweeps.
        let next = disk.copy();
        Folder::new(next.path().join(&at)).sweep().unwrap();
        pairs(&format!("{name}, swept"), &next);
        // Whoever tries again is told that it is gone.
        remove(&folder).unwrap();
        nothing(&format!("{name}, again"), &disk);
        failed > 0
    });
}

/// One cycle that removes all that it may.
fn collect(store: &Store, head: &VersionId) -> Result<GcReport, TreeError> {
    store.awake().collect_garbage(|| Ok(vec![head.clone()]), Thoroughness::Thorough)
}

/// What is live is there, garbage is collected, and what was garbage can be written again.
fn is_sound(disk: &Disk<'_>, head: &VersionId, when: &str) {
    let store = store(disk);
    indexes_have_packs(&packs(disk), when);
    for (path, content) in [("a", "1"), ("b", "3")] {
        assert_eq!(read(&store, head, path), content, "{when}: {path}");
    }
    let again = write(&store, Some(head), "lost", "2");
    assert_eq!(read(&store, &again, "lost"), "2", "{when}");
    let resting = store.resting(None);
    drop(store);
    for _ in 0..2 {
        collect(&resting, head).unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    assert_eq!(read(&resting, head, "b"), "3", "{when}");
}

#[test]
fn a_collection_that_fails_or_dies_anywhere_leaves_a_sound_store() {
    let disks = Disks::start();
    let prepared = prepared(&disks);
    let head = {
        let store = store(&prepared);
        let first = write(&store, None, "a", "1");
        write(&store, Some(&first), "lost", "2");
        write(&store, Some(&first), "b", "3")
    };
    each_fault(|fault, turn, lasts| {
        let name = format!("{fault:?} at {turn}, lasting: {lasts}");
        let disk = prepared.copy();
        let store = store(&disk).resting(None);
        assert!(collect(&store, &head).unwrap().condemned > 0);
        disk.arm(fault, turn, lasts);
        let collected = collect(&store, &head);
        let failed = disk.disarm();
        assert!(collected.is_ok() || failed > 0, "{name}: {collected:?}");
        without_power(&disk, 2, |lost, how| is_sound(lost, &head, &format!("{name}, {how}")));
        let next = disk.copy();
        drop(packs(&next));
        without_power(&next, 2, |lost, how| is_sound(lost, &head, &format!("{name}, begun again, {how}")));
        // This life goes on.
        for _ in 0..2 {
            collect(&store, &head).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert_eq!(read(&store, &head, "b"), "3", "{name}");
        without_power(&disk, 2, |lost, how| is_sound(lost, &head, &format!("{name}, gone on, {how}")));
        failed > 0
    });
}
