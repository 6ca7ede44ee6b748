//! Where processes of a build with crash points stand still, and whom the test kills meanwhile.
//!
//! One step is one connection to an abstract socket. Whoever made it waits for a byte; that nobody goes on while a victim
//! dies makes a kill at a step what it says.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bailey_crash::Point;
use bailey_protocol::jail::{CAGE_UID_BASE, SERVER_UID};
use rustix::process::Signal;

use crate::host::{self, Process, RANGE, within};
use crate::server::kill;

/// No point has this number: the meeting is over.
const OVER: u8 = u8::MAX;
/// How long a process that was killed may take to be dead.
const DEATH: Duration = Duration::from_secs(2);
/// How long everybody else goes on where one stands still before something is kept.
const GRACE: Duration = Duration::from_millis(300);
/// How long a range of user ids rests after its sandbox (`uids` in the jail).
const QUARANTINE: Duration = Duration::from_secs(10);

/// Whom to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Server,
    Jail,
    /// The first process of every sandbox.
    Guests,
    Collector,
}

/// A kill that is to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) point: Point,
    pub(crate) victim: Victim,
    /// How often the point is passed before.
    pub(crate) passes: u64,
    /// Which point has to be reached before.
    pub(crate) after: Option<Point>,
}

/// One place to meet, for the servers of one data folder.
#[derive(Debug)]
pub(crate) struct Meeting {
    name: String,
    state: Mutex<State>,
    reached: Vec<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    plan: Option<Plan>,
    struck: bool,
    /// Which sandbox of which jail's life had a sandbox's id first.
    sandboxes: BTreeMap<String, Process>,
    /// Which sandbox of a jail's life had a range of user ids last, and when it was alive.
    ranges: BTreeMap<(Process, u32), (String, Instant)>,
    /// What must not be: told by the thread that meets, looked at by the test.
    wrong: Vec<String>,
}

impl Meeting {
    pub(crate) fn open() -> Arc<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bailey-crash-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let reached = Point::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        let meeting = Arc::new(Self { name, state: Mutex::default(), reached });
        let listener = UnixListener::bind_addr(&meeting.address()).expect("an abstract socket");
        let host = Arc::clone(&meeting);
        std::thread::spawn(move || host.attend(&listener));
        meeting
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from_abstract_name(&self.name).expect("a short name")
    }

    /// The environment of processes that are to meet here.
    pub(crate) fn variable(&self) -> (&str, &str) {
        (VARIABLE, &self.name)
    }

    /// Plans one kill.
    pub(crate) fn arm(&self, plan: Plan) {
        let mut state = self.state();
        (state.plan, state.struck) = (Some(plan), false);
    }

    /// Whether the kill was made.
    pub(crate) fn struck(&self) -> bool {
        self.state().struck
    }

    /// How often a point was reached.
    pub(crate) fn reached(&self, point: Point) -> u64 {
        self.reached.get(usize::from(point.number())).map_or(0, |count| count.load(Relaxed))
    }

    /// What was seen that must not be.
    pub(crate) fn wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.state().wrong)
    }

    pub(crate) fn close(&self) {
        let mut line = UnixStream::connect_addr(&self.address()).expect("the meeting goes on");
        line.write_all(&[OVER]).expect("the meeting goes on");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attend(&self, listener: &UnixListener) {
        for line in listener.incoming() {
            let mut line = line.expect("a connection");
            let Some(number) = number(&mut line) else { continue };
            let Some(point) = Point::ALL.get(usize::from(number)).copied() else { return };
            if let Some(jail) = self.arrive(point, &line) {
                self.meet(point, jail, listener);
            }
            // It may be dead.
            line.write_all(b".").ok();
        }
    }

    /// Takes note of who is at a point; the jail that it belongs to.
    fn arrive(&self, point: Point, line: &UnixStream) -> Option<Process> {
        self.reached[usize::from(point.number())].fetch_add(1, Relaxed);
        let peer = rustix::net::sockopt::socket_peercred(line).ok()?;
        let peer = Process(peer.pid.as_raw_nonzero().get());
        let jail = if peer.uid() == Some(SERVER_UID) { peer.parent()? } else { peer };
        if point == Point::CageVerified {
            self.state().look_at_ids(jail);
        }
        Some(jail)
    }

    fn meet(&self, point: Point, jail: Process, listener: &UnixListener) {
        let mut state = self.state();
        let Some(plan) = state.plan.as_mut() else { return };
        if let Some(after) = plan.after {
            plan.after = (point != after).then_some(after);
            return;
        }
        if plan.point != point {
            return;
        }
        if plan.passes > 0 {
            plan.passes -= 1;
            return;
        }
        let victims = victims(plan.victim, jail);
        if victims.is_empty() {
            return;
        }
        state.plan = None;
        if point == Point::TransactionFull {
            // Whoever is told of a transaction before it is done is told now, and has to find it later.
            drop(state);
            self.let_pass(listener);
            state = self.state();
        }
        state.struck = true;
        victims.iter().for_each(|victim| kill(*victim, Signal::KILL));
        if !within(DEATH, || victims.iter().all(|victim| !victim.alive())) {
            state.wrong.push(format!("{victims:?} survive SIGKILL"));
        }
    }
}

impl Meeting {
    /// Everybody but the one that stands still already goes on.
    fn let_pass(&self, listener: &UnixListener) {
        listener.set_nonblocking(true).expect("a listener");
        within(GRACE, || {
            while let Ok((mut line, _)) = listener.accept() {
                let point = number(&mut line).and_then(|number| Point::ALL.get(usize::from(number)).copied());
                point.and_then(|point| self.arrive(point, &line));
                line.write_all(b".").ok();
            }
            false
        });
        listener.set_nonblocking(false).expect("a listener");
    }
}

/// What a connection says; nothing where whoever made it is gone.
fn number(line: &mut UnixStream) -> Option<u8> {
    let mut number = [OVER];
    line.read_exact(&mut number).ok().map(|()| number[0])
}

/// Names the socket to processes of such a build, and occurs in no other.
pub(crate) const VARIABLE: &str = "BAILEY_CRASH_POINTS";

fn victims(victim: Victim, jail: Process) -> Vec<Process> {
    if victim == Victim::Jail {
        return vec![jail];
    }
    let children = host::processes().into_iter().filter(|one| one.parent() == Some(jail) && one.alive());
    let is_one = |one: &Process| {
        let words = one.command_line();
        let says = |word| words.split('\0').any(|other| other == word);
        match victim {
            Victim::Jail => false,
            // Of what is not executed yet, or has no user yet, there is nothing else at that time.
            Victim::Server => says("serve") || (!says("init") && !says("collect")),
            Victim::Guests => !says("serve") && !says("collect"),
            Victim::Collector => !says("serve") && !says("init"),
        }
    };
    children.filter(is_one).collect()
}

impl State {
    /// Sandboxes that share user ids, have those of one that lived a moment ago, or have a name that was another's in an
    /// earlier life.
    fn look_at_ids(&mut self, jail: Process) {
        let mut owners: BTreeMap<u32, String> = BTreeMap::new();
        for process in host::processes() {
            let Some(uid) = process.uid().filter(|uid| *uid >= CAGE_UID_BASE) else { continue };
            let Some(sandbox) = sandbox_of(process).filter(|_| process.alive()) else { continue };
            let owner = owners.entry(uid / RANGE).or_insert_with(|| sandbox.clone());
            if *owner != sandbox {
                self.wrong.push(format!("{owner} and {sandbox} have the same user ids"));
            }
            if process.parent() != Some(jail) {
                continue;
            }
            if *self.sandboxes.entry(sandbox.clone()).or_insert(jail) != jail {
                self.wrong.push(format!("{sandbox} was there in an earlier life"));
            }
            let now = (sandbox, Instant::now());
            let Some(last) = self.ranges.insert((jail, uid / RANGE), now.clone()) else { continue };
            let rested = now.1 - last.1;
            if last.0 != now.0 && rested < QUARANTINE {
                self.wrong.push(format!("{} has the user ids that {} had {rested:?} ago", now.0, last.0));
            }
        }
    }
}

/// The sandbox in whose cgroups a process is.
pub(crate) fn sandbox_of(process: Process) -> Option<String> {
    let groups = std::fs::read_to_string(process.path("cgroup")).ok()?;
    groups.split(['/', '\n']).find(|name| name.starts_with("sbx")).map(str::to_owned)
}
