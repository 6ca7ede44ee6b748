//! D01, D12, R19, O9: a kill at every named step of a launch, of a commit and of what goes on behind them.
//!
//! The short form kills each victim once at each step; `BAILEY_LONG=1` makes it so often that each step is hit a hundred
//! times and more, and prints a line for each, which `make soak` keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailey_crash::Point;
use bailey_protocol::api::RunEventKind;
use bailey_protocol::node::Ending;
use rustix::process::Signal;

use crate::host::{self, Process, within};
use crate::large_disks;
use crate::meeting::{Meeting, Plan, VARIABLE, Victim, sandbox_of};
use crate::residue::{Residue, ledger, own_cache};
use crate::run::Order;
use crate::server::{Server, User, alone, binary, scratch};
use crate::told::{self, Answer, Known, Told, content, in_groups, known};

/// Few versions, so that old ones are let go; few sandboxes, so that a life begins soon; a disk for one run.
const CONFIG: &str = "
drain_seconds = 2
parked = 1
[retention]
versions = 6
[limits]
launches_per_minute = 100000
[large_disks]
count = 1
bytes = 268435456
inodes = 4000
";
/// Of so many runs, one is on the host's disk.
const LARGE: u64 = 3;
/// Data folders at work at the same time.
const FIELDS: usize = 2;
/// Rounds of the long form. Each has two lives at the least for each point.
const ROUNDS: u64 = 50;
/// Tries to get to a point once more.
const TRIES: u64 = 40;
/// The longest that a server may take to be back.
const BACK: Duration = Duration::from_secs(30);
/// The longest that anything of an earlier life may stay.
const ORPHAN: Duration = Duration::from_secs(2);
/// The one path.
const PATH: &str = "crash/f";

/// The build with crash points, as `make` lays it out.
fn crashing() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_bailey")).parent().expect("a folder").join("crash-points/bailey");
    assert!(built.exists(), "{} is missing; `make crash-points` builds it", built.display());
    built
}

/// At which points a sandbox's first process, or the collector, is there to be killed.
fn victims(point: Point) -> &'static [Victim] {
    use Victim::{Collector, Guests, Jail, Server};
    match point {
        // There is no server yet. Twice, so that each point is hit as often as the others.
        Point::DataLocked | Point::RootBuilt | Point::Swept | Point::UidsTaken => &[Jail, Jail],
        Point::CageForked
        | Point::MountsHandedOver
        | Point::CageVerified
        | Point::SandboxParked
        | Point::SandboxTaken
        | Point::LimitsSet
        | Point::SlicesBuilt
        | Point::SlicesMounted
        | Point::SandboxClaimed
        | Point::GuestGreeted
        | Point::ProgramStarted
        | Point::OutputCame
        | Point::ProgramEnded => &[Server, Jail, Guests],
        Point::CollectorForked | Point::CollectorOpened | Point::ChangesCame => &[Server, Jail, Collector],
        _ => &[Server, Jail],
    }
}

/// A data folder whose servers are killed, and the ledger outside.
struct Field {
    folder: PathBuf,
    cache: PathBuf,
    meeting: Arc<Meeting>,
    server: Option<Server>,
    ana: User,
    root: String,
    ledger: String,
    told: Told,
    next: u64,
}

/// What one life is measured by.
struct Before {
    processes: Vec<Known>,
    sandboxes: BTreeSet<String>,
}

fn start(folder: &Path, cache: &Path, meeting: &Meeting) -> Option<Server> {
    Server::try_start(&crashing(), folder, &[("BAILEY_CACHE", &cache.to_string_lossy()), meeting.variable()])
}

impl Field {
    fn open(number: usize) -> Self {
        let folder = scratch().join(format!("crash-{number}"));
        let cache = own_cache(&folder);
        std::fs::write(folder.join("config.toml"), CONFIG).unwrap();
        let meeting = Meeting::open();
        let server = start(&folder, &cache, &meeting).expect("the first start");
        let (ana, root) = (server.user("acme", "ana"), server.operator());
        let ledger = ledger(&server, &ana);
        let field =
            Self { folder, cache, meeting, server: Some(server), ana, root, ledger, told: Told::default(), next: 1 };
        assert_eq!(field.loops(), 1, "{:?}", host::loops(&field.cache.to_string_lossy()));
        field
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("a server")
    }

    fn loops(&self) -> usize {
        host::loops(&self.cache.to_string_lossy()).len()
    }

    fn before(&self) -> Before {
        let processes = in_groups(&self.ledger);
        let sandboxes = processes.iter().filter_map(|(process, _)| sandbox_of(*process)).collect();
        Before { processes, sandboxes }
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn put(&mut self) -> Answer {
        let value = self.next();
        let answer = told::change(self.server(), &self.ana, "PUT", PATH, &content(value));
        self.told.tried(value, &answer);
        answer
    }

    /// A run that prints, and that changes more than a pipe holds, so that its collector waits for whoever reads.
    fn run(&mut self) -> (Answer, Option<RunEventKind>) {
        let value = self.next();
        let code = format!("echo {value}; yes {value} | head -c 200000 >/data/ballast; {}", told::program("f", value));
        let mut order = Order::shell(&code).data(&self.ana, "crash");
        if value.is_multiple_of(LARGE) {
            order = order.limit("memory_bytes", 256 << 20).limit("disk_bytes", 256 << 20).limit("disk_inodes", 4000);
        }
        let (answer, last) = told::run(self.server(), &self.ana, &order);
        self.told.tried(value, &answer);
        (answer, last)
    }

    /// Two cycles, with garbage from before for each.
    fn collect(&mut self) {
        for _ in 0..2 {
            self.put();
            if self.meeting.struck() {
                return;
            }
            let bearer = format!("Bearer {}", self.root);
            let headers = [("Authorization", bearer.as_str()), ("Connection", "close")];
            let target = "/v1/operator/tenants/acme/gc";
            let request = crate::http::Request { method: "POST", target, headers: &headers, body: b"" };
            let reply = crate::http::send(self.server().address, request);
            let told = reply.map(|reply| (reply.status, String::from_utf8_lossy(&reply.raw).into_owned()));
            let done = told.as_ref().is_ok_and(|(status, _)| *status == 200);
            assert!(self.meeting.struck() || done, "garbage is not collected: {told:?}");
        }
    }

    /// Has the point reached, and the kill made. What a run of it told last.
    fn strike(&mut self, plan: Plan) -> Option<RunEventKind> {
        self.meeting.arm(plan);
        let mut last = None;
        for turn in 0..TRIES {
            let text = plan.point.text();
            match text.split(':').next().unwrap_or_default() {
                "start" => self.again(),
                "write" => drop(self.put()),
                "commit" if plan.after.is_none() && (turn + plan.passes).is_multiple_of(2) => drop(self.put()),
                "gc" => self.collect(),
                _ => last = self.run().1,
            }
            // A sandbox may be parked, or destroyed, behind the answer.
            if self.meeting.struck() || (turn > 2 && within(Duration::from_millis(300), || self.meeting.struck())) {
                return last;
            }
        }
        panic!("{plan:?} is not reached");
    }

    /// Ends the jail by force and starts anew, once or, should the plan be to kill a start, until it is up.
    fn again(&mut self) {
        if let Some(server) = self.server.take() {
            server.signal(Signal::KILL);
            assert!(server.wait(Duration::from_secs(5)), "the jail survives SIGKILL");
        }
        self.up();
    }

    fn up(&mut self) {
        let start = || start(&self.folder, &self.cache, &self.meeting);
        self.server = (0..3).find_map(|_| start());
        assert!(self.server.is_some(), "it does not start: {}", self.log());
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// One kill, and everything that must hold after it.
    fn case(&mut self, plan: Plan) {
        let before = self.before();
        let last = self.strike(plan);
        let started = plan.point.text().starts_with("start");
        match plan.victim {
            Victim::Jail if !started => {
                assert!(self.server().wait(Duration::from_secs(5)), "{plan:?}: the jail survives SIGKILL");
                self.up();
            }
            Victim::Jail | Victim::Server => {}
            Victim::Guests | Victim::Collector => self.told_honestly(plan, last.as_ref()),
        }
        let back = within(BACK, || self.server().healthy());
        assert!(back, "{plan:?}: the server does not come back: {}", self.log());
        self.nothing_stays(plan, &before);
        let server = self.server.as_ref().expect("a server");
        assert!(self.told.look(server, &self.ana, PATH), "{plan:?}: {PATH} cannot be read");
        // Whatever died, the next run works.
        if !matches!(plan.victim, Victim::Server | Victim::Jail) {
            let (answer, last) = self.run();
            assert_eq!(answer, Answer::Done, "{plan:?}: the next run: {last:?}\n{}", self.log());
        }
        assert_eq!(self.meeting.wrong(), Vec::<String>::new(), "{plan:?}");
    }

    /// Where only a sandbox died, its run has an end, and no other than what became of it.
    fn told_honestly(&self, plan: Plan, last: Option<&RunEventKind>) {
        let parked = plan.point.text().starts_with("park");
        match last {
            // A sandbox that waits belongs to no run; one that is made for a run may be another's.
            Some(RunEventKind::Ended(_) | RunEventKind::Failed { .. }) if parked => {}
            Some(RunEventKind::Ended(result)) if plan.victim == Victim::Guests => {
                // From then on it may have told its end before it died.
                let done = plan.point >= Point::ProgramStarted;
                assert!(done || result.ending == Ending::GuestLost, "{plan:?}: {result:?}");
            }
            Some(RunEventKind::Failed { .. }) => {}
            other => panic!("{plan:?}: {other:?}\n{}", self.log()),
        }
    }

    /// No process, cgroup, mount, loop device or file of an earlier life.
    fn nothing_stays(&self, plan: Plan, before: &Before) {
        let mut left = Vec::new();
        let ended = matches!(plan.victim, Victim::Server | Victim::Jail);
        let gone = within(ORPHAN, || {
            left = self.left_in_folders();
            if ended {
                let alive = before.processes.iter().filter(|one| known(one.0).as_ref() == Some(one));
                left.extend(alive.map(|(process, _)| format!("process {} {}", process.0, process.command_line())));
                let groups = host::cgroups(&self.ledger);
                let old = |group: &&PathBuf| before.sandboxes.iter().any(|name| group.ends_with(name));
                left.extend(groups.iter().filter(old).map(|group| format!("cgroup {}", group.display())));
            }
            if self.loops() != 1 {
                left.push(format!("loop devices {:?}", host::loops(&self.cache.to_string_lossy())));
            }
            left.extend(large_disks::loops(self.server()).into_iter().map(|disk| format!("loop device {disk}")));
            let data = self.folder.to_string_lossy().into_owned();
            let me = Process(i32::try_from(std::process::id()).unwrap());
            left.extend(
                me.mounts().into_iter().filter(|mount| mount.contains(&data)).map(|mount| format!("mount {mount}")),
            );
            left.extend(self.runs_without_end());
            left.is_empty()
        });
        assert!(gone, "{plan:?}: {left:#?}\n{}", self.log());
    }

    /// Files that no life of the server needs.
    fn left_in_folders(&self) -> Vec<String> {
        let data = self.folder.join("data");
        let names = |folder: PathBuf| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let jail = names(data.join("jail"))
            .into_iter()
            .filter(|path| !path.ends_with("lock") && !path.ends_with("ledger.json"));
        let store = data.join("serve/trees/acme/tenant.git");
        let parts =
            [store.join("objects/pack"), store, data.join("serve/checkouts/acme"), data.join("serve/checkouts/trash")];
        let unfinished =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tmp_"));
        let packs = names(data.join("serve/trees/acme/tenant.git/objects/pack"));
        let lonely =
            packs.iter().filter(|path| !path.with_extension("idx").exists() || !path.with_extension("pack").exists());
        let logs =
            names(data.join("serve/runs/acme")).into_iter().filter(|log| log.metadata().is_ok_and(|it| it.len() == 0));
        let unfinished = parts.into_iter().flat_map(names).filter(unfinished);
        jail.chain(unfinished).chain(lonely.cloned()).chain(logs).map(|path| path.display().to_string()).collect()
    }

    fn runs_without_end(&self) -> Vec<String> {
        let list = self.server().request(&self.ana, "GET", "/v1/runs", b"").json();
        let runs = list["runs"].as_array().cloned().unwrap_or_default();
        let going = runs.into_iter().filter(|run| run["status"] == "running");
        going.map(|run| format!("run {} is said to run", run["run"])).collect()
    }

    fn close(mut self) -> BTreeMap<Point, u64> {
        told::verify(&self.server().data(), "acme");
        let server = self.server.take().expect("a server");
        assert!(server.stop(), "the server does not end");
        let gone = within(Duration::from_secs(5), || {
            Residue::outside(&self.ledger, &self.cache).values().all(|count| *count == 0)
        });
        assert!(gone, "after the stop: {:?}", Residue::outside(&self.ledger, &self.cache));
        self.meeting.close();
        Point::ALL.iter().map(|point| (*point, self.meeting.reached(*point))).collect()
    }
}

/// All cases of one round, in the order of the steps.
fn cases(round: u64) -> Vec<Plan> {
    let plans = |point: &Point| {
        let (point, victims) = (*point, victims(*point));
        (0..).zip(victims).map(move |(turn, victim)| {
            let (passes, after) = (passes(point, round + turn), after(point, round + turn));
            Plan { point, victim: *victim, passes, after }
        })
    };
    Point::ALL.iter().flat_map(plans).collect()
}

/// Those that one piece of work passes several times are hit at each of them, by one victim or the other in any round.
fn passes(point: Point, turn: u64) -> u64 {
    match point {
        // The end of a run has its own: see `after`.
        Point::TransactionFull | Point::TransactionDone if turn % 3 == 1 => 0,
        Point::TransactionFull | Point::TransactionDone | Point::EventsKept => turn % 3,
        Point::PackNamed | Point::FileSynced | Point::OutputCame => turn % 2,
        _ => 0,
    }
}

/// A transaction that has to do with the end of a run: right behind it the run's caller is told.
fn after(point: Point, turn: u64) -> Option<Point> {
    let ends = matches!(point, Point::TransactionFull | Point::TransactionDone) && turn % 3 == 1;
    ends.then_some(Point::RunEnding)
}

#[test]
fn d01_a_kill_at_any_named_step_loses_nothing_and_leaves_nothing() {
    let _guard = alone();
    let _prepared = crate::server::shared();
    let long = std::env::var_os("BAILEY_LONG").is_some();
    let rounds =
        std::env::var("BAILEY_CRASH_ROUNDS").map_or(if long { ROUNDS } else { 1 }, |text| text.parse().unwrap());
    let begun = Instant::now();
    let all: Vec<Plan> = (0..rounds).flat_map(cases).collect();
    let reached: Vec<BTreeMap<Point, u64>> = std::thread::scope(|scope| {
        let all = &all;
        let fields: Vec<_> = (0..FIELDS)
            .map(|number| {
                scope.spawn(move || {
                    let mut field = Field::open(number);
                    // Both victims of a step stay together: a jail that is new starts its server without a pause.
                    let mine = all.chunk_by(|a, b| a.point == b.point).skip(number).step_by(FIELDS);
                    mine.flatten().for_each(|plan| field.case(*plan));
                    field.close()
                })
            })
            .collect();
        fields.into_iter().map(|field| field.join().expect("everything holds")).collect()
    });
    println!();
    for point in Point::ALL {
        let lives = all.iter().filter(|plan| plan.point == *point).count();
        let times: u64 = reached.iter().filter_map(|counts| counts.get(point)).sum();
        println!("{lives} lives: {}, of {times} times it was reached", point.text());
    }
    println!("{} kills in {:.0} s", all.len(), begun.elapsed().as_secs_f64());
}

#[test]
fn no_product_binary_has_a_crash_point() {
    let holds = |path: &Path| {
        let program = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        program.windows(VARIABLE.len()).any(|part| part == VARIABLE.as_bytes())
    };
    for name in ["bailey", "bailey-jail"] {
        assert!(!holds(&binary().with_file_name(name)), "{name} can be stopped by its environment");
        assert!(holds(&crashing().with_file_name(name)), "the build with crash points has none in {name}");
    }
    assert!(!holds(&binary().with_file_name("bailey-guest")));
}
