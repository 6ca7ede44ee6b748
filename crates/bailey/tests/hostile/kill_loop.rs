//! D01, D12, O9: a server that is killed again and again under mixed load, with a ledger outside: nothing acknowledged is
//! lost, torn or invented, and no process outlives the life that it belongs to.
//!
//! `BAILEY_SOAK_SECONDS` is how long it goes on; `make soak` sets it, and keeps what is counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::host::within;
use crate::residue::{Residue, ledger, server_of_its_own};
use crate::run::Order;
use crate::server::{BRISK, Server, User, alone, kill};
use crate::told::{self, Answer, Known, Told, content, in_groups, known};

/// Workers, each with paths of its own.
const WORKERS: u64 = 4;
/// Paths of one worker.
const PATHS: u64 = 5;
/// The longest that a server may take to be back.
const BACK: Duration = Duration::from_secs(30);
/// The longest that a process of an earlier life may live.
const ORPHAN: Duration = Duration::from_secs(2);

/// Small pseudo-random numbers; the seed is told when the test fails.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) % sides
    }
}

/// What is counted, for people and for `bench/results/soak.json`.
#[derive(Debug, Default)]
struct Counts(Mutex<BTreeMap<&'static str, u64>>);

impl Counts {
    fn add(&self, what: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }

    fn get(&self, what: &str) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(what).copied().unwrap_or_default()
    }
}

/// Everything that the load and the killer share.
struct Field {
    server: RwLock<Server>,
    ana: User,
    over: AtomicBool,
    next: AtomicU64,
    counts: Counts,
}

impl Field {
    fn change(&self, method: &str, below: &str, body: &[u8]) -> Answer {
        told::change(&self.server.read().unwrap_or_else(PoisonError::into_inner), &self.ana, method, below, body)
    }

    /// Has a program write the content through a mount.
    fn run(&self, folder: &str, name: &str, value: u64) -> Answer {
        let order = Order::shell(&told::program(name, value)).data(&self.ana, folder);
        told::run(&self.server.read().unwrap_or_else(PoisonError::into_inner), &self.ana, &order).0
    }

    /// Waits until somebody answers again.
    fn wait(&self) {
        let back = within(BACK, || self.server.read().unwrap_or_else(PoisonError::into_inner).healthy());
        assert!(back, "the server does not come back");
    }

    fn look(&self, path: &str, told: &mut Told) -> bool {
        told.look(&self.server.read().unwrap_or_else(PoisonError::into_inner), &self.ana, path)
    }

    /// Writes, runs, deletes and reads until it is over, then looks at everything once more.
    fn work(&self, worker: u64, seed: u64) {
        let mut dice = Dice(seed + worker);
        let mut told: Vec<Told> = (0..PATHS).map(|_| Told::default()).collect();
        let folder = format!("load/w{worker}");
        while !self.over.load(Relaxed) {
            let at = dice.roll(PATHS);
            let path = format!("{folder}/f{at}");
            let known = &mut told[usize::try_from(at).unwrap()];
            let value = self.next.fetch_add(1, Relaxed);
            let answer = match dice.roll(10) {
                0..5 => {
                    let answer = self.change("PUT", &path, &content(value));
                    known.tried(value, &answer);
                    answer
                }
                5 | 6 => {
                    let answer = self.run(&folder, &format!("f{at}"), value);
                    known.tried(value, &answer);
                    answer
                }
                7 => {
                    let answer = self.change("DELETE", &path, b"");
                    known.tried(0, &answer);
                    answer
                }
                _ if self.look(&path, known) => Answer::Done,
                _ => Answer::Unknown,
            };
            match answer {
                Answer::Done => self.counts.add("acknowledged"),
                Answer::Refused => self.counts.add("refused"),
                Answer::Unknown => {
                    self.counts.add("in_doubt");
                    self.wait();
                }
            }
        }
        self.wait();
        for (at, known) in told.iter_mut().enumerate() {
            assert!(self.look(&format!("{folder}/f{at}"), known), "f{at} cannot be read in the end");
        }
    }
}

/// Kills until the time is up. Panics when something outlives its life.
fn harass(field: &Field, ledger: &str, cache: &Path, time: Duration, dice: &mut Dice) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::thread::sleep(Duration::from_millis(50 + dice.roll(700)));
        let before = in_groups(ledger);
        match dice.roll(10) {
            0..4 => {
                let server = field.server.read().unwrap_or_else(PoisonError::into_inner);
                let family = server.jail.family();
                let serve = family.into_iter().find(|one| one.uid() == Some(bailey_protocol::jail::SERVER_UID));
                let Some(serve) = serve else { continue };
                kill(serve, Signal::KILL);
                assert!(within(BACK, || !serve.alive() && server.healthy()), "the server does not come back");
                field.counts.add("kills of the server");
            }
            4..6 => {
                let server = field.server.read().unwrap_or_else(PoisonError::into_inner);
                server.signal(Signal::KILL);
                assert!(server.wait(Duration::from_secs(5)), "the supervisor survives SIGKILL");
                drop(server);
                // Whoever is at work sees its connection break, and lets go of the lock.
                let mut server = field.server.write().unwrap_or_else(PoisonError::into_inner);
                let folder = server.folder.clone();
                *server = Server::start_in(&folder, &[("BAILEY_CACHE", &cache.to_string_lossy())]);
                field.counts.add("kills of the supervisor");
            }
            kind => {
                let collects = |one: &&Known| one.0.command_line().split('\0').any(|word| word == "collect");
                let victim = match kind {
                    6 | 7 => before.iter().find(collects),
                    _ => before.get(usize::try_from(dice.roll(before.len().max(1) as u64)).unwrap()),
                };
                let Some((victim, _)) = victim else { continue };
                kill(*victim, Signal::KILL);
                field.counts.add("kills in sandboxes");
                continue;
            }
        }
        let left = || before.iter().filter(|one| known(one.0).as_ref() == Some(one)).collect::<Vec<_>>();
        assert!(within(ORPHAN, || left().is_empty()), "of an earlier life: {:?}", left());
    }
}

#[test]
fn d01_nothing_acknowledged_is_lost_however_often_the_server_is_killed() {
    let _guard = alone();
    let _prepared = crate::server::shared();
    let seconds = std::env::var("BAILEY_SOAK_SECONDS").map_or(10, |text| text.parse().expect("seconds"));
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into();
    println!("seed {seed}");
    let (server, own) = server_of_its_own("kill-loop", BRISK);
    let ana = server.user("acme", "ana");
    let ledger = ledger(&server, &ana);
    let field = Field {
        server: RwLock::new(server),
        ana,
        over: AtomicBool::new(false),
        next: AtomicU64::new(1),
        counts: Counts::default(),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let field = &field;
                scope.spawn(move || field.work(worker, seed))
            })
            .collect();
        let killer = || harass(&field, &ledger, &own, Duration::from_secs(seconds), &mut Dice(seed));
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(killer));
        field.over.store(true, Relaxed);
        for worker in workers {
            worker.join().expect("a worker saw what was told");
        }
        killed.expect("nothing outlives its life");
    });
    println!("{seconds} s: {:?}", field.counts);
    let kills = field.counts.get("kills of the server") + field.counts.get("kills of the supervisor");
    assert!(kills > 0 && field.counts.get("acknowledged") > kills, "{:?}", field.counts);
    let server = field.server.into_inner().unwrap_or_else(PoisonError::into_inner);
    told::verify(&server.data(), "acme");
    assert!(server.stop());
    let gone = within(Duration::from_secs(5), || Residue::outside(&ledger, &own).values().all(|count| *count == 0));
    assert!(gone, "after the stop: {:?}", Residue::outside(&ledger, &own));
    if std::env::var_os("BAILEY_SOAK_SECONDS").is_some() {
        let counts = field.counts.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let result = serde_json::json!({ "seconds": seconds, "counts": counts });
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/kill_loop.json");
        std::fs::write(file, format!("{result:#}\n")).expect("keep the result");
    }
}
