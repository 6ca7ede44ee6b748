use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use bailey_protocol::path::TreePath;
use rustix::fs::{AtFlags, StatxFlags};

use super::*;

struct Bench {
    root: tempfile::TempDir,
    fills: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), fills: Arc::default() }
    }

    /// A cache whose folders hold one file of 10,000 bytes named after the store.
    fn open(&self, most_bytes: u64) -> Checkouts {
        let fills = Arc::clone(&self.fills);
        let fill: Fill = Arc::new(move |repo, tree, path| {
            fills.fetch_add(1, Ordering::SeqCst);
            if tree.as_str().starts_with('f') {
                return Err("no such tree".into());
            }
            fs::create_dir(path)?;
            let owner = repo.user.as_ref().map_or("tenant", |user| user.as_str());
            fs::write(path.join(owner), [b'x'; 10_000])?;
            Ok(())
        });
        Checkouts::open(self.root.path(), most_bytes, fill, Tasks::new()).unwrap()
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
    while checkouts.shared.in_use() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
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
    checkouts.forget(&acme());
    let folders = |store: &str| fs::read_dir(bench.root.path().join(store)).unwrap().count();
    assert_eq!((folders("acme/tenant"), folders("acme/users/ana")), (1, 1));
    assert!(holds(&held, "tenant"));
    drop(held);
    assert_eq!((folders("acme/tenant"), folders("acme/users/ana")), (0, 1));
    drop(checkouts.get(&acme(), &tree('1')).await.unwrap());
    assert_eq!((folders("acme/tenant"), bench.fills()), (1, 4), "a new one is made and kept");
}
