//! R20, O6: after a thousand runs (`BAILEY_LONG=1`: five thousand, then an hour of them), and after each way that a run can
//! end, nothing is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host::{self, Process, within};
use crate::run::Order;
use crate::server::{BRISK, Server, User, alone, cache, scratch};

/// How long the long form goes on after its thousands.
const HOUR: Duration = Duration::from_secs(3600);

/// Everything that a leak would make grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Residue {
    counts: BTreeMap<String, usize>,
}

fn count(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let entries = entries.filter_map(Result::ok);
    entries
        .map(|entry| 1 + if entry.file_type().is_ok_and(|kind| kind.is_dir()) { count(&entry.path()) } else { 0 })
        .sum()
}

impl Residue {
    /// What a server holds now. `ledger` is its part of the cgroup tree, `cache` its own template cache.
    pub(crate) fn of(server: &Server, ledger: &str, cache: &Path) -> Self {
        let mut counts = Self::outside(ledger, cache);
        let mut add = |name: &str, count: usize| counts.insert(name.to_owned(), count);
        let serve = server.serve();
        let me = Process(i32::try_from(std::process::id()).unwrap());
        add("processes", server.jail.family().len());
        add("descriptors of the jail", server.jail.descriptors().len());
        // Packs and checkouts are cached open; both caches have a bound of their own, which is far above this.
        let cached = |link: &String| link.starts_with("/data/trees/") || link.starts_with("/data/checkouts/");
        let open = serve.descriptors().into_values();
        add("descriptors of the server", open.filter(|link| !cached(link)).count());
        add("mounts of the jail", server.jail.mounts().len());
        add("mounts of the server", serve.mounts().len());
        let data = server.data().to_string_lossy().into_owned();
        add(
            "mounts of the host",
            me.mounts().iter().filter(|mount| mount.contains("bailey") || mount.contains(&data)).count(),
        );
        add("the jail's files", count(&server.data().join("jail")));
        add("checkouts", count(&server.data().join("serve/checkouts")));
        Self { counts }
    }

    /// What can stay behind a server that is gone.
    pub(crate) fn outside(ledger: &str, cache: &Path) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        counts.insert("cgroups".to_owned(), host::cgroups(ledger).len());
        counts.insert("loop devices".to_owned(), host::loops(&cache.to_string_lossy()).len());
        counts.insert("processes in its cgroups".to_owned(), strays(ledger).len());
        counts
    }

    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let keys = self.counts.keys();
        let differs = keys.filter(|key| self.counts.get(*key) != other.counts.get(*key));
        differs.map(|key| format!("{key}: {:?} -> {:?}", self.counts.get(key), other.counts.get(key))).collect()
    }
}

/// What runs in a ledger's cgroups. A zombie does not run: reaping it is up to the host's init.
pub(crate) fn strays(ledger: &str) -> Vec<String> {
    let inside = |process: &Process| {
        std::fs::read_to_string(process.path("cgroup")).is_ok_and(|groups| groups.contains(ledger)) && process.alive()
    };
    let describe = |process: Process| {
        format!("{} {:?} {:?} {}", process.0, process.status("State"), process.parent(), process.command_line())
    };
    host::processes().into_iter().filter(inside).map(describe).collect()
}

/// A server with a template cache of its own, so that its loop devices can be told from others'.
pub(crate) fn server_of_its_own(name: &str, config: &str) -> (Server, PathBuf) {
    let folder = scratch().join(name);
    let own = own_cache(&folder);
    std::fs::write(folder.join("config.toml"), config).unwrap();
    let server = Server::start_in(&folder, &[("BAILEY_CACHE", &own.to_string_lossy())]);
    (server, own)
}

/// A template cache below `folder`, with the host's templates.
pub(crate) fn own_cache(folder: &Path) -> PathBuf {
    let own = folder.join("cache");
    std::fs::create_dir_all(own.join("templates")).unwrap();
    for entry in std::fs::read_dir(cache().join("templates")).unwrap().filter_map(Result::ok) {
        let target = own.join("templates").join(entry.file_name());
        if std::fs::hard_link(entry.path(), &target).is_err() {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
    own
}

/// The server's part of the cgroup tree: `bailey/{ledger id}/`.
pub(crate) fn ledger(server: &Server, user: &User) -> String {
    let live = server.hold(user, &Order::attack("holder", &[]));
    let groups = std::fs::read_to_string(live.init().path("cgroup")).unwrap();
    let sandbox = live.so_far().sandbox.clone();
    live.end();
    let path = groups.lines().find(|line| line.contains(&sandbox)).unwrap();
    let before = path.split(&sandbox).next().unwrap();
    let ledger = before.trim_end_matches('/').rsplit('/').next().unwrap();
    assert!(ledger.len() > 4, "no ledger id in {path}");
    format!("bailey/{ledger}/")
}

/// Runs that end in every way, three at a time.
fn mixed(server: &Server, (ana, gus): (&User, &User), numbers: std::ops::Range<usize>) {
    let one = |number: usize| {
        let user = if number.is_multiple_of(2) { ana } else { gus };
        match number % 50 {
            7 => drop(server.run(user, &Order::shell("sleep 5").limit("timeout_ms", 30))),
            17 => drop(server.hold(user, &Order::attack("holder", &[])).end()),
            27 => drop(server.run(user, &Order::shell("setsid sleep 60 & kill -9 $$"))),
            3 | 13 | 23 => {
                server.run(user, &Order::shell("date +%N > /data/now").data(user, "churn")).succeeded();
            }
            33 => drop(server.post_run(user, &Order::command(&["/no/such/program"])).unwrap()),
            43 => drop(server.post_run(user, &Order::shell("yes")).unwrap()),
            _ => drop(server.run(user, &Order::command(&["true"])).succeeded()),
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (one, numbers) = (&one, numbers.clone());
            scope.spawn(move || numbers.filter(|number| number % 3 == worker).for_each(one));
        }
    });
}

#[test]
fn r20_a_thousand_runs_leave_nothing() {
    let long = std::env::var_os("BAILEY_LONG").is_some();
    let runs = if long { 5000 } else { 1000 };
    let _guard = alone();
    let _prepared = crate::server::shared();
    let (server, own) = server_of_its_own("residue", BRISK);
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    let ledger = ledger(&server, &ana);
    let mixed = |from, to| mixed(&server, (&ana, &gus), from..to);
    mixed(0, 60);
    // Runs whose caller went away end on their own time.
    let idle = || server.request(&ana, "GET", "/v1/runs", b"").body.windows(9).all(|part| part != b"\"running\"");
    let settle = || {
        within(Duration::from_secs(70), || {
            // What a busy host is slow to take down stands still for a while, too.
            let looks = || {
                std::thread::sleep(Duration::from_millis(500));
                host::cgroups(&ledger)
            };
            let first = host::cgroups(&ledger);
            idle() && (0..4).all(|_| looks() == first)
        })
    };
    assert!(settle(), "the first runs do not end");
    let before = Residue::of(&server, &ledger, &own);
    let memory = (server.jail.resident(), server.serve().resident());
    mixed(60, 60 + runs);
    assert!(settle(), "the last runs do not end");
    let mut last = before.clone();
    let flat = within(Duration::from_secs(10), || {
        last = Residue::of(&server, &ledger, &own);
        // Checkouts are a cache: it may hold one per version that was mounted, until it is swept.
        last.counts.insert("checkouts".to_owned(), before.counts["checkouts"]);
        last == before
    });
    assert!(flat, "after {runs} runs: {:#?}", before.differences(&last));
    let grown = (server.jail.resident().saturating_sub(memory.0), server.serve().resident().saturating_sub(memory.1));
    assert!(grown.0 < 4 << 20 && grown.1 < 48 << 20, "memory grew by {grown:?} bytes");
    if long {
        let (begun, memory) = (Instant::now(), (server.jail.resident(), server.serve().resident()));
        let mut done = 60 + runs;
        while begun.elapsed() < HOUR {
            mixed(done, done + 150);
            done += 150;
            // An hour at the host's pace, not a race.
            std::thread::sleep(Duration::from_secs(5));
        }
        assert!(settle(), "the hour's last runs do not end");
        let flat = within(Duration::from_secs(10), || {
            last = Residue::of(&server, &ledger, &own);
            last.counts.insert("checkouts".to_owned(), before.counts["checkouts"]);
            last == before
        });
        let kib = |now: u64, before: u64| now.saturating_sub(before) >> 10;
        let (jail, serve) = (kib(server.jail.resident(), memory.0), kib(server.serve().resident(), memory.1));
        println!(
            "{} s: {} runs, {jail} KiB more in the jail and {serve} in the server",
            HOUR.as_secs(),
            done - runs - 60
        );
        assert!(flat, "after an hour: {:#?}", before.differences(&last));
        assert!(jail < 4 << 10 && serve < (16 << 10) + (done - runs) as u64, "memory grew by {jail} and {serve} KiB");
    }
    let temporary = std::fs::read_dir("/tmp").unwrap().filter_map(Result::ok);
    let ours: Vec<_> = temporary
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().contains("bailey-jail"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
    assert!(server.stop(), "the server does not end");
    let gone = within(Duration::from_secs(5), || Residue::outside(&ledger, &own).values().all(|count| *count == 0));
    assert!(gone, "behind a server that has ended: {:?}", Residue::outside(&ledger, &own));
}

#[test]
fn o6_the_residue_check_sees_what_is_planted() {
    let ledger = "bailey/hostileplant/";
    let nowhere = Path::new("/nowhere");
    assert!(Residue::outside(ledger, nowhere).values().all(|count| *count == 0));
    let group = Path::new("/sys/fs/cgroup/unified");
    let root = if group.exists() { group } else { Path::new("/sys/fs/cgroup") };
    let planted = root.join("bailey/hostileplant/sbxplanted");
    std::fs::create_dir_all(&planted).unwrap();
    let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::write(planted.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    let seen = Residue::outside(ledger, nowhere);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let removed = within(Duration::from_secs(2), || std::fs::remove_dir(&planted).is_ok());
    assert!(removed);
    std::fs::remove_dir(planted.parent().unwrap()).unwrap();
    assert_eq!((seen["cgroups"], seen["processes in its cgroups"]), (1, 1), "{seen:?}");
}
