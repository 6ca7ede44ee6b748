//! What attacks happen in: another tenant's sandbox that goes on all the while, what is planted on the host, and what
//! is looked at before, during and after each attack.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bailey_control::clock::Rng;
use bailey_protocol::node::{Ending, RunSpec, RunStarted};
use tokio_util::task::TaskTracker;

use super::canary::Canary;
use super::cases::{self, Case, LEAVINGS, NEIGHBOUR};
use super::host::{self, Held, HostState};
use super::judge::Facts;
use super::look::{self, Look, Seen};
use super::planted::{Listeners, Planted};
use super::sandbox::{Live, left_of};
use super::tree::Slice;
use crate::stand::{LONGEST_MS, Stand};

/// Name of what is planted as a file.
pub(crate) const PLANTED: &str = "bailey-attest-secret";
/// Whose attacks they are, and who is to be left alone.
const ATTACKER: &str = "attest-a";
const OTHER: &str = "attest-b";
/// Time for a sandbox to be gone.
const GONE: Duration = Duration::from_secs(5);
/// Largest file that is compared.
const MOST: u64 = 64 << 20;
/// The agent inside.
const AGENT: &str = "/run/bailey/agent";

/// Everything around the attacks.
pub(crate) struct World<'a> {
    stand: &'a Stand,
    tasks: TaskTracker,
    planted: &'a Planted,
    listeners: Listeners,
    /// Secrets that only a sandbox held.
    canaries: Vec<Canary>,
    neighbour: Live,
    /// The neighbour's sandbox.
    other: String,
    untouched: Look,
    host: HostState,
    host_namespaces: BTreeSet<String>,
    guest: PathBuf,
    /// What all sandboxes start from, as it was.
    shared: Vec<(String, Vec<u8>)>,
    taken: u32,
}

impl<'a> World<'a> {
    /// Starts the neighbour, once a run that is over has left whatever it could.
    pub(crate) async fn new(stand: &'a Stand, planted: &'a Planted, guest: &Path) -> anyhow::Result<Self> {
        let rng = Rng::system();
        let (tasks, host) = (TaskTracker::new(), HostState::read().context("look at the host")?);
        let left = Canary::new("a run that was over", rng.bytes()?);
        let spec = stand.spec(OTHER, python(LEAVINGS, &[left.text().to_owned()], false))?;
        let ran = Live::start(stand, &tasks, spec).finish(false).await?;
        if ran.ending() != Some(Ending::Exited { code: 0 }) {
            bail!("an ordinary run did not end by itself: {:?} {}", ran.ending(), ran.fault.unwrap_or_default());
        }
        let kept = Canary::new("another tenant's sandbox", rng.bytes()?);
        let mut spec = stand.spec(OTHER, python(NEIGHBOUR, &["keep".to_owned(), kept.text().to_owned()], false))?;
        spec.limits.timeout_ms = LONGEST_MS;
        spec.env.insert("SECRET".to_owned(), kept.text().to_owned());
        let mut neighbour = Live::start(stand, &tasks, spec);
        if !neighbour.ready().await? {
            bail!("an ordinary run did not get going");
        }
        let other = neighbour.ran.sandbox().context("an ordinary run began in no sandbox")?.to_owned();
        let untouched = Look::at(&other).context("look at a sandbox")?;
        let mut host_namespaces = BTreeSet::new();
        for kind in look::NAMESPACES {
            let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).context("look at namespaces")?;
            host_namespaces.insert(link.to_string_lossy().into_owned());
        }
        let shared = read_shared(untouched.init.pid, guest).context("look at what sandboxes share")?;
        let listeners = Listeners::open(planted.folder.path(), &rng)?;
        let canaries = vec![left, kept];
        let guest = guest.to_owned();
        Ok(Self {
            stand,
            tasks,
            planted,
            listeners,
            canaries,
            neighbour,
            other,
            untouched,
            host,
            host_namespaces,
            guest,
            shared,
            taken: 0,
        })
    }

    /// What is known of the sandboxes here.
    pub(crate) fn started(&self) -> Option<&RunStarted> {
        self.neighbour.ran.started.as_ref()
    }

    /// Carries out one attack, and tells everything that the host saw of it.
    pub(crate) async fn attack(&mut self, case: &Case) -> anyhow::Result<Facts> {
        let slice =
            case.mount.then(|| Slice::new(&self.stand.trees, ATTACKER)).transpose().context("prepare a tree")?;
        let before = Held::by(self.stand.jail).context("look at the jail")?;
        let beside = match case.beside {
            Some(args) => {
                let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
                let mut beside =
                    Live::start(self.stand, &self.tasks, self.stand.spec(OTHER, python(case.program, &args, false))?);
                beside.ready().await?;
                Some(beside)
            }
            None => None,
        };
        let spec = self.spec(case, slice.as_ref())?;
        let mut facts = Facts {
            limits: spec.limits,
            usual_mounts: self.untouched.mounts.clone(),
            host_namespaces: self.host_namespaces.clone(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            ..Facts::default()
        };
        let mut live = Live::start(self.stand, &self.tasks, spec);
        if case.holds && live.ready().await? {
            let looked = live.ran.sandbox().context("it has no name").and_then(|name| Ok(Look::at(name)?));
            facts.look = note(&mut facts.blind, "the sandbox", looked);
            self.look_around(&mut facts);
        }
        facts.ran = live.finish(case.holds).await?;
        if let Some(beside) = beside {
            facts.beside = Some(beside.finish(true).await?);
        }
        self.look_around(&mut facts);
        self.search(&mut facts);
        for ran in [Some(&facts.ran), facts.beside.as_ref()].into_iter().flatten() {
            if let Some(sandbox) = ran.sandbox() {
                facts.harm.extend(left_of(sandbox, before, self.stand.jail, GONE).await?);
            }
        }
        if let Some(slice) = slice {
            self.taken += 1;
            let to = self.planted.folder.path().join(format!("taken-{}", self.taken));
            facts.tree = note(&mut facts.blind, "what the run left", slice.take(&facts.ran.changes, &to));
        }
        facts.harm.sort();
        facts.harm.dedup();
        Ok(facts)
    }

    /// What all control groups of the sandboxes here have in their path.
    pub(crate) fn ledger(&self) -> anyhow::Result<String> {
        let sandbox = &self.other;
        let groups = host::groups_of(sandbox).context("look at the control groups")?;
        let parent = groups.iter().find(|group| group.ends_with(sandbox)).and_then(|group| group.parent());
        let name = parent.and_then(|parent| parent.file_name()).context("the sandbox has no control group")?;
        Ok(format!("bailey/{}", name.to_string_lossy()))
    }

    /// Ends the neighbour.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.neighbour.finish(true).await.map(drop)
    }

    fn spec(&self, case: &Case, slice: Option<&Slice>) -> anyhow::Result<RunSpec> {
        let mut args = Vec::new();
        for arg in case.args {
            match *arg {
                "{pids}" => args.extend(self.untouched.all().map(|one| one.pid.to_string())),
                "{listeners}" => args.extend(self.listeners.words.iter().cloned()),
                "{told}" => args.extend(self.planted.told.iter().cloned()),
                "{shared}" => args.extend(SHARED.iter().map(|path| (*path).to_owned())),
                other => args.push(other.to_owned()),
            }
        }
        let mut spec = self.stand.spec(ATTACKER, python(case.program, &args, case.root))?;
        spec.root = case.root;
        spec.mounts.extend(slice.map(|slice| slice.mount.clone()));
        (case.limits)(&mut spec.limits);
        Ok(spec)
    }

    /// Notes what has changed on the host, for the neighbour, and of what all share.
    fn look_around(&self, facts: &mut Facts) {
        if let Some(now) = note(&mut facts.blind, "the host", HostState::read()) {
            facts.harm.extend(self.host.changes(&now));
        }
        facts.harm.extend(note(&mut facts.blind, "the listeners", self.listeners.reached()).unwrap_or_default());
        match Look::at(&self.other) {
            Ok(now) => facts.harm.extend(harm_to_neighbour(&self.untouched, &now)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                facts.harm.push("another tenant's sandbox is gone".to_owned());
            }
            Err(error) => facts.blind.push(format!("could not look at another tenant's sandbox: {error}")),
        }
        let shared = read_shared(self.untouched.init.pid, &self.guest);
        if let Some(now) = note(&mut facts.blind, "what sandboxes share", shared) {
            facts.harm.extend(changed(&self.shared, &now));
        }
    }

    /// Notes which secrets came out.
    fn search(&self, facts: &mut Facts) {
        for canary in self.planted.canaries.iter().chain(&self.canaries) {
            if facts.ran.everything().any(|bytes| canary.is_in(bytes)) {
                facts.harm.push(format!("the secret of {} came out", canary.place));
            }
        }
    }
}

/// Files of the template that attacks write to.
const SHARED: [&str; 4] = ["/etc/passwd", "/usr/bin/env", "/usr/bin/bash", "/usr/bin/python3"];

/// What an untouched sandbox has of what all share, and the agent that the host starts.
fn read_shared(pid: i32, guest: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = vec![("the host's `bailey-guest`".to_owned(), std::fs::read(guest)?)];
    for path in SHARED.into_iter().chain([AGENT]) {
        found.push((format!("`{path}`, as another sandbox sees it,"), look::content(pid, path, MOST)?));
    }
    Ok(found)
}

fn changed(before: &[(String, Vec<u8>)], now: &[(String, Vec<u8>)]) -> Vec<String> {
    let same = |(name, bytes): &&(String, Vec<u8>)| !now.iter().any(|(other, now)| other == name && now == bytes);
    before.iter().filter(same).map(|(name, _)| format!("{name} has changed")).collect()
}

fn harm_to_neighbour(before: &Look, now: &Look) -> Vec<String> {
    let pids = |look: &Look| -> BTreeSet<i32> { look.all().map(|one| one.pid).collect() };
    let mut found = Vec::new();
    if pids(before) != pids(now) {
        found.push("another tenant's processes have changed");
    }
    let stopped = |one: &Seen| one.state.starts_with(['T', 't', 'Z', 'X']);
    if now.all().any(stopped) {
        found.push("a process of another tenant's is stopped");
    }
    if now.all().any(|one| one.tracer != 0) {
        found.push("a process of another tenant's is traced");
    }
    found.into_iter().map(str::to_owned).collect()
}

/// The value, or a note that it could not be had.
fn note<T, E: std::fmt::Display>(blind: &mut Vec<String>, what: &str, outcome: Result<T, E>) -> Option<T> {
    outcome.map_err(|error| blind.push(format!("could not look at {what}: {error:#}"))).ok()
}

/// A command that runs a program of Python.
fn python(program: &str, args: &[String], root: bool) -> Vec<String> {
    let sudo = root.then(|| "sudo".to_owned());
    let program = ["python3".to_owned(), "-c".to_owned(), cases::text(program)];
    sudo.into_iter().chain(program).chain(args.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look() -> Look {
        let one = |pid, state: &str| Seen { pid, state: state.to_owned(), ..Seen::default() };
        Look { init: one(1, "S (sleeping)"), code: vec![one(2, "R (running)")], ..Look::default() }
    }

    #[test]
    fn harm_to_another_tenant_is_told() {
        let told = |change: fn(&mut Look)| {
            let mut now = look();
            change(&mut now);
            harm_to_neighbour(&look(), &now).join("; ")
        };
        assert_eq!(told(|_| {}), "");
        assert_eq!(told(|now| now.code[0].state = "S (sleeping)".to_owned()), "");
        assert!(told(|now| now.code.clear()).contains("changed"));
        assert!(told(|now| now.code[0].pid = 3).contains("changed"));
        assert!(told(|now| now.init.state = "T (stopped)".to_owned()).contains("stopped"));
        assert!(told(|now| now.init.tracer = 9).contains("traced"));
    }

    #[test]
    fn a_change_of_what_all_share_is_told() {
        let file = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
        let before = [file("a", b"1"), file("b", b"2")];
        assert_eq!(changed(&before, &before), Vec::<String>::new());
        assert_eq!(changed(&before, &[file("a", b"1"), file("b", b"3")]), ["b has changed"]);
        assert_eq!(changed(&before, &[file("a", b"1")]), ["b has changed"]);
    }

    #[test]
    fn what_cannot_be_looked_at_is_noted() {
        let mut blind = Vec::new();
        assert_eq!(note(&mut blind, "x", Err::<(), _>("gone")), None);
        assert_eq!(note(&mut blind, "y", Ok::<_, String>(1)), Some(1));
        assert_eq!(blind, ["could not look at x: gone"]);
    }
}
