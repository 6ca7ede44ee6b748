//! All that a seed decides, and a record of all that came of it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// When every seed begins.
pub const BEGIN_MS: u64 = 1_800_000_000_000;

/// A source of chance (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    /// True once in `many`; never for 0.
    pub fn one_in(&mut self, many: u64) -> bool {
        many > 0 && self.below(many) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(from.len() as u64)).unwrap();
        &from[at]
    }
}

/// What becomes of one call of the store or the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Fine,
    /// It fails.
    Fault,
    /// The process dies before it has an effect.
    DiesBefore,
    /// The process dies after it has had its effect.
    DiesAfter,
    /// The process is dead: whoever still calls has no effect on anything.
    Dead,
}

/// What one seed has decided for everything of one life after another.
pub struct Fate {
    dice: Mutex<Dice>,
    trace: Mutex<Vec<String>>,
    clock: Mutex<WallClock>,
    /// One call in so many fails; none for 0.
    faults: AtomicU64,
    /// Calls until the process dies.
    left: AtomicU64,
    calm: AtomicBool,
    dead: AtomicBool,
    died: Notify,
    failed: AtomicU64,
    steps: AtomicU64,
}

/// Time goes on from life to life.
struct WallClock {
    before_ms: u64,
    /// When this life began, as its runtime counts.
    begun: Option<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fate")
    }
}

impl Fate {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            dice: Mutex::new(Dice::new(seed)),
            trace: Mutex::default(),
            clock: Mutex::new(WallClock { before_ms: BEGIN_MS, begun: None }),
            faults: AtomicU64::new(0),
            left: AtomicU64::new(u64::MAX),
            calm: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            died: Notify::new(),
            failed: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        })
    }

    /// A new life, on the runtime of this thread: one call in `faults` fails, and the process dies at call number
    /// `dies_at`, if it does.
    pub fn begin_life(&self, faults: u64, dies_at: Option<u64>) {
        lock(&self.clock).begun = Some(Instant::now());
        self.faults.store(faults, Ordering::Relaxed);
        self.left.store(dies_at.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.calm.store(false, Ordering::Relaxed);
        self.dead.store(false, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        self.note(|| format!("life faults={faults} dies_at={dies_at:?}"));
    }

    /// From now on nothing fails and nobody dies.
    pub fn calm(&self) {
        self.faults.store(0, Ordering::Relaxed);
        self.left.store(u64::MAX, Ordering::Relaxed);
        self.calm.store(true, Ordering::Relaxed);
        self.note(|| "calm".to_owned());
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Resolves when the process dies.
    pub async fn death(&self) {
        while !self.is_dead() {
            self.died.notified().await;
        }
    }

    /// Faults of this life so far.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// How much has happened.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Something is about to happen.
    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub fn dice<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
        roll(&mut lock(&self.dice))
    }

    /// How long work waits for its turn: mostly not at all.
    pub fn pause(&self) -> Duration {
        self.step();
        self.dice(|dice| if dice.one_in(3) { Duration::from_millis(1 + dice.below(20)) } else { Duration::ZERO })
    }

    /// What becomes of the call `name`.
    pub fn turn(&self, name: impl FnOnce() -> String) -> Turn {
        self.step();
        if self.is_dead() {
            return Turn::Dead;
        }
        let left = self.left.load(Ordering::Relaxed);
        if left != u64::MAX {
            self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        }
        let turn = if left == 0 {
            self.dead.store(true, Ordering::Relaxed);
            self.died.notify_one();
            if self.dice(|dice| dice.one_in(2)) { Turn::DiesBefore } else { Turn::DiesAfter }
        } else if self.dice(|dice| dice.one_in(self.faults.load(Ordering::Relaxed))) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            Turn::Fault
        } else {
            Turn::Fine
        };
        self.note(|| format!("{} {turn:?}", name()));
        turn
    }

    /// Puts a line on the record, with the time.
    pub fn note(&self, line: impl FnOnce() -> String) {
        let now = self.now_ms() - BEGIN_MS;
        lock(&self.trace).push(format!("{now:>7} {}", line()));
    }

    /// All that was noted.
    pub fn trace(&self) -> Vec<String> {
        lock(&self.trace).clone()
    }

    /// The time, as clocks on the wall show it.
    pub fn now_ms(&self) -> u64 {
        let clock = lock(&self.clock);
        let going = clock.begun.map_or(0, |begun| u64::try_from(begun.elapsed().as_millis()).unwrap());
        clock.before_ms + going
    }

    /// Stops the clock, until the next life begins.
    pub fn end_life(&self) {
        let now = self.now_ms();
        *lock(&self.clock) = WallClock { before_ms: now, begun: None };
    }
}
