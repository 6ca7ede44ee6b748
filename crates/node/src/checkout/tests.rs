use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use bailey_protocol::path::TreePath;
use rustix::fs::{AtFlags, StatxFlags};

use super::*;

struct Bench {
    root: tempfile::TempDir,
    fills: Arc<AtomicUsize>,
}

/// Folders whose one file is named after the store. Where they can be changed, all trees are near each other but those whose id begins with `9`; what
/// becomes of one with `e` breaks off halfway.
struct Doubles {
    fills: Arc<AtomicUsize>,
    changes: bool,
}

/// What each takes.
const FOLDER: u64 = 10_000 + 2 * 4096;

impl Source for Doubles {
    fn write(&self, repo: &RepoId, tree: &TreeId, path: &Path) -> Result<(), FillError> {
        self.fills.fetch_add(1, Ordering::SeqCst);
        if tree.as_str().starts_with('f') {
            return Err("no such tree".into());
        }
        fs::create_dir(path)?;
        let owner = repo.user.as_ref().map_or("tenant", |user| user.as_str());
        Ok(fs::write(path.join(owner), [b'x'; 10_000])?)
    }

    fn room(&self, _: &RepoId, _: &TreeId) -> Result<u64, FillError> {
        Ok(FOLDER)
    }

    fn is_near(&self, _: &RepoId, _: &TreeId, to: &TreeId) -> Result<bool, FillError> {
        Ok(self.changes && !to.as_str().starts_with(['9', 'f']))
    }

    fn change(&self, repo: &RepoId, from: &TreeId, to: &TreeId, path: &Path) -> Result<CheckoutGrowth, FillError> {
        assert!(from != to && path.join(repo.user.as_ref().map_or("tenant", |user| user.as_str())).exists());
        fs::write(path.join(format!("was-{}", from.as_str().split_at(1).0)), [b'x'; 100])?;
        if to.as_str().starts_with('e') {
            return Err("broken off".into());
        }
        Ok(CheckoutGrowth { entries: 1, bytes: 100 })
    }
}

impl Bench {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), fills: Arc::default() }
    }

    /// A cache whose folders hold one file of 10,000 bytes named after the store.
    fn open(&self, most_bytes: u64) -> Checkouts {
        self.open_with(CheckoutRoom { most: 1 << 40, kept: most_bytes })
    }

    fn open_with(&self, room: CheckoutRoom) -> Checkouts {
        let source = Arc::new(Doubles { fills: Arc::clone(&self.fills), changes: false });
        Checkouts::open(self.root.path(), room, source, Tasks::new()).unwrap()
    }

    /// As [`Bench::open`], where folders become others.
    fn open_changing(&self) -> Checkouts {
        let room = CheckoutRoom { most: 1 << 40, kept: 1 << 30 };
        let source = Arc::new(Doubles { fills: Arc::clone(&self.fills), changes: true });
        Checkouts::open(self.root.path(), room, source, Tasks::new()).unwrap()
    }

    fn fills(&self) -> usize {
        self.fills.load(Ordering::SeqCst)
    }
}

fn repo(path: &str) -> RepoId {
    path.parse::<TreePath>().unwrap().repo().clone()
}

fn acme() -> RepoId {
    repo("/tenants/acme")
}

fn tree(digit: char) -> TreeId {
    digit.to_string().repeat(40).parse().unwrap()
}

impl Shared {
    fn in_use(&self) -> usize {
        let ready = |entry: &Entry| matches!(entry, Entry::Ready { folder, .. } if Arc::strong_count(folder) == 1);
        self.lock().entries.values().filter(|entry| !ready(entry)).count()
    }

    /// Waits for whoever made a folder to let go of it: that is a moment after its callers have it.
    async fn settled(&self, held: usize) {
        while self.in_use() > held {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

fn holds(folder: &Slice, name: &str) -> bool {
    rustix::fs::statx(folder.fd().as_fd(), name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_share_one_checkout() {
    let bench = Bench::new();
    let checkouts = bench.open(1 << 30);
    let calls = (0..32).map(|_| {
        let checkouts = checkouts.clone();
        async move { checkouts.get(&acme(), &tree('1')).await.unwrap() }
    });
    let folders = futures_util::future::join_all(calls).await;
    assert_eq!(bench.fills(), 1);
    assert!(folders.iter().all(|folder| holds(folder, "tenant")));
}

#[tokio::test]
async fn f16_stores_never_share_a_folder_whatever_they_are_called() {
    let bench = Bench::new();
    let checkouts = bench.open(1 << 30);
    for (path, owner) in [
        ("/tenants/acme", "tenant"),
        ("/tenants/globex", "tenant"),
        ("/tenants/acme/users/tenant/x", "tenant"),
        ("/tenants/acme/users/_/x", "_"),
        ("/tenants/users", "tenant"),
    ] {
        assert!(holds(&checkouts.get(&repo(path), &tree('1')).await.unwrap(), owner), "{path}");
    }
    assert_eq!(bench.fills(), 5);
}

#[tokio::test]
async fn a_failed_checkout_is_told_to_its_callers_and_tried_again() {
    let bench = Bench::new();
    let checkouts = bench.open(1 << 30);
    for _ in 0..2 {
        let error = checkouts.get(&acme(), &tree('f')).await.unwrap_err();
        assert!(matches!(error, CheckoutError::Fill { .. }));
    }
    assert_eq!(bench.fills(), 2);
}

#[tokio::test]
async fn what_is_used_least_makes_room_and_what_is_held_stays() {
    let bench = Bench::new();
    let checkouts = bench.open(45_000);
    let held = checkouts.get(&acme(), &tree('1')).await.unwrap();
    for digit in ['2', '3', '4', '5'] {
        drop(checkouts.get(&acme(), &tree(digit)).await.unwrap());
        // The thread that made it may still be about to let go of it.
        while checkouts.shared.in_use() > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    checkouts.shared.evict();
    assert!(checkouts.bytes() <= 45_000, "nothing was evicted");
    assert!(holds(&held, "tenant"), "a held folder was removed");
    drop(checkouts.get(&acme(), &tree('1')).await.unwrap());
    assert_eq!(bench.fills(), 5, "the held folder was made again");
    drop(checkouts.get(&acme(), &tree('2')).await.unwrap());
    assert_eq!(bench.fills(), 6, "the oldest folder was not the one evicted");
}

#[tokio::test]
async fn r20_folders_without_number_are_not_kept_however_small_they_are() {
    let bench = Bench::new();
    let checkouts = bench.open(1 << 40);
    for number in 0..MOST_FOLDERS + 50 {
        drop(checkouts.get(&acme(), &format!("{number:040x}").parse().unwrap()).await.unwrap());
    }
    checkouts.shared.settled(0).await;
    checkouts.shared.evict();
    assert!(checkouts.shared.lock().entries.len() <= MOST_FOLDERS);
}

#[tokio::test]
async fn what_an_earlier_life_left_is_not_trusted() {
    let bench = Bench::new();
    let path = bench.root.path().join("acme/tenant").join(tree('1').as_str());
    fs::create_dir_all(&path).unwrap();
    fs::create_dir_all(bench.root.path().join(".trash/7/x")).unwrap();
    let checkouts = bench.open(1 << 30);
    let folder = checkouts.get(&acme(), &tree('1')).await.unwrap();
    assert!(holds(&folder, "tenant"));
    checkouts.shared.tasks.finished().await;
    assert_eq!(list(&bench.root.path().join(".trash")).unwrap().len(), 0);
}

#[tokio::test]
async fn a_store_that_is_forgotten_keeps_only_what_a_run_holds_and_that_until_its_end() {
    let bench = Bench::new();
    let checkouts = bench.open(1 << 30);
    let held = checkouts.get(&acme(), &tree('1')).await.unwrap();
    drop(checkouts.get(&acme(), &tree('2')).await.unwrap());
    drop(checkouts.get(&repo("/tenants/acme/users/ana"), &tree('2')).await.unwrap());
    checkouts.shared.settled(1).await;
    checkouts.forget(&acme());
    let folders = |store: &str| fs::read_dir(bench.root.path().join(store)).unwrap().count();
    assert_eq!((folders("acme/tenant"), folders("acme/users/ana")), (1, 1));
    assert!(holds(&held, "tenant"));
    drop(held);
    assert_eq!((folders("acme/tenant"), folders("acme/users/ana")), (0, 1));
    drop(checkouts.get(&acme(), &tree('1')).await.unwrap());
    assert_eq!((folders("acme/tenant"), bench.fills()), (1, 4), "a new one is made and kept");
}

/// Waits until nobody has any folder but those that are held.
async fn settled(checkouts: &Checkouts, held: usize) {
    while checkouts.shared.in_use() > held {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_folder_that_nobody_has_becomes_a_near_one_and_one_that_is_held_stays() {
    let bench = Bench::new();
    let checkouts = bench.open_changing();
    let first = checkouts.get(&acme(), &tree('1')).await.unwrap();
    let second = checkouts.get(&acme(), &tree('2')).await.unwrap();
    assert_eq!(bench.fills(), 2, "the first is held");
    assert!(!holds(&first, "was-1") && !holds(&second, "was-1"));
    let bytes = checkouts.bytes();
    drop(second);
    settled(&checkouts, 1).await;
    let third = checkouts.get(&acme(), &tree('3')).await.unwrap();
    assert!(holds(&third, "was-2") && holds(&third, "tenant") && bench.fills() == 2);
    assert_eq!(checkouts.bytes() - bytes, 100 + 4096);
    let folders = || list(&bench.root.path().join("acme/tenant")).unwrap().len();
    assert_eq!(folders(), 2, "it has the new one's name, and no other");
    // What it was is made again, from nothing, while all others are held.
    let second = checkouts.get(&acme(), &tree('2')).await.unwrap();
    assert!(!holds(&second, "was-3") && !holds(&first, "was-1") && bench.fills() == 3);
    drop((second, third, first));
    settled(&checkouts, 0).await;
    let far = checkouts.get(&acme(), &tree('9')).await.unwrap();
    assert_eq!((bench.fills(), folders()), (4, 4), "what differs much is made anew");
    // Another store's is none of this one's.
    let other = checkouts.get(&repo("/tenants/globex"), &tree('4')).await.unwrap();
    assert!(bench.fills() == 5 && !holds(&other, "was-9") && !holds(&far, "was-9"));
}

#[tokio::test]
async fn a_folder_that_breaks_on_its_way_to_another_is_thrown_away_and_the_other_made_anew() {
    let bench = Bench::new();
    let checkouts = bench.open_changing();
    drop(checkouts.get(&acme(), &tree('1')).await.unwrap());
    settled(&checkouts, 0).await;
    let made = checkouts.get(&acme(), &tree('e')).await.unwrap();
    assert!(!holds(&made, "was-1") && bench.fills() == 2);
    assert!(!bench.root.path().join("acme/tenant").join(tree('1').as_str()).exists());
    let again = checkouts.get(&acme(), &tree('1')).await.unwrap();
    assert!(!holds(&again, "was-1") && bench.fills() == 3, "half of one and half of another");
    assert_eq!(checkouts.bytes(), 2 * FOLDER);
}

#[tokio::test]
async fn nothing_is_made_of_what_is_forgotten() {
    let bench = Bench::new();
    let checkouts = bench.open_changing();
    let held = checkouts.get(&acme(), &tree('1')).await.unwrap();
    checkouts.forget(&acme());
    let key = (acme(), tree('1'));
    let folder = |state: &State| match state.entries.get(&key) {
        Some(Entry::Ready { folder, .. }) => Arc::clone(folder),
        _ => panic!("it is gone"),
    };
    let doomed = folder(&checkouts.shared.lock());
    drop((held, doomed));
    // Nobody has it any more, and it was not thrown away yet.
    assert!(checkouts.shared.idle(&acme()).is_empty() && checkouts.shared.take(&key).is_none());
}

#[tokio::test(start_paused = true)]
async fn w06_what_one_tenant_holds_takes_a_quarter_of_the_room_and_the_next_waits_for_some_of_it() {
    let bench = Bench::new();
    let checkouts = bench.open_with(CheckoutRoom { most: 8 * FOLDER, kept: 0 });
    let globex = repo("/tenants/globex");
    let mut held = Vec::new();
    for store in [acme(), repo("/tenants/acme/users/ana")] {
        held.push(checkouts.get(&store, &tree('1')).await.unwrap());
    }
    held.push(checkouts.get(&acme(), &tree('1')).await.unwrap());
    let refused = checkouts.get(&acme(), &tree('2')).await.unwrap_err();
    assert!(matches!(refused, CheckoutError::NoRoom { .. }), "{refused:?}");
    assert_eq!((bench.fills(), checkouts.bytes()), (2, 2 * FOLDER), "nothing was written for which there was no room");
    held.push(checkouts.get(&globex, &tree('2')).await.unwrap());
    let freed = async {
        tokio::time::sleep(PATIENCE / 2).await;
        drop(held.remove(1));
    };
    let (store, wanted) = (acme(), tree('2'));
    let (waited, ()) = tokio::join!(checkouts.get(&store, &wanted), freed);
    assert!(waited.is_ok() && bench.fills() == 4, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn w06_all_folders_together_stay_within_their_room() {
    let bench = Bench::new();
    let checkouts = bench.open_with(CheckoutRoom { most: 4 * FOLDER, kept: 4 * FOLDER });
    let of = |number: usize| repo(&format!("/tenants/t{number}"));
    for number in 0..4 {
        drop(checkouts.get(&of(number), &tree('1')).await.unwrap());
    }
    checkouts.shared.settled(0).await;
    assert_eq!(checkouts.bytes(), 4 * FOLDER, "what nobody has stays while there is room");
    let mut held = Vec::new();
    for number in 4..8 {
        held.push(checkouts.get(&of(number), &tree('1')).await.unwrap());
        assert!(checkouts.bytes() <= 4 * FOLDER);
    }
    let refused = checkouts.get(&of(8), &tree('1')).await.unwrap_err();
    assert!(matches!(refused, CheckoutError::NoRoom { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_folder_larger_than_a_tenants_share_is_refused_before_a_byte_of_it_is_written() {
    let bench = Bench::new();
    let checkouts = bench.open_with(CheckoutRoom { most: 4 * FOLDER - 1, kept: 0 });
    let refused = checkouts.get(&acme(), &tree('1')).await.unwrap_err();
    assert!(matches!(refused, CheckoutError::TooLarge { bytes: FOLDER, .. }), "{refused:?}");
    assert_eq!(bench.fills(), 0);
    assert!(!bench.root.path().join("acme").exists());
}
