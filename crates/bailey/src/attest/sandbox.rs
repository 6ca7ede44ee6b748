//! One run of an attack, from its start to the moment when nothing of it is left.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bailey_protocol::node::{Ending, LimitHit, OutputStream, RunSpec, RunStarted, RunStopped, RunUpdate};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::host;
use super::look;
use crate::stand::Stand;

const UPDATES: usize = 16;
/// Beyond the time limit of a run: to start it, and to tear it down.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often tasks are counted.
const PULSE: Duration = Duration::from_millis(20);
/// What an attack prints once it has tried everything and holds what it got.
const READY: &[u8] = b"ready";

/// What the node told of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ran {
    pub(crate) started: Option<RunStarted>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) changes: Vec<u8>,
    pub(crate) stopped: Option<RunStopped>,
    /// Why it could not be carried out.
    pub(crate) fault: Option<String>,
    /// The most processes and threads that its control group was seen with.
    pub(crate) tasks: u64,
    /// Processes that ran when the node said that none does.
    pub(crate) survivors: usize,
    /// The node did not end it in time.
    pub(crate) overdue: bool,
}

impl Ran {
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.stopped.as_ref().map(|stopped| stopped.ending)
    }

    pub(crate) fn hit(&self, limit: LimitHit) -> bool {
        self.stopped.as_ref().is_some_and(|stopped| stopped.limits_hit.contains(&limit))
    }

    pub(crate) fn sandbox(&self) -> Option<&str> {
        self.started.as_ref().map(|started| started.sandbox.as_str())
    }

    /// Every byte that came out.
    pub(crate) fn everything(&self) -> impl Iterator<Item = &[u8]> {
        [&self.stdout[..], &self.stderr, &self.changes].into_iter()
    }

    fn is_ready(&self) -> bool {
        self.stdout.split(|byte| *byte == b'\n').any(|line| line.starts_with(READY))
    }
}

/// A run whose updates are still coming. Dropped, it is cancelled.
pub(crate) struct Live {
    updates: mpsc::Receiver<RunUpdate>,
    cancel: CancellationToken,
    _task: AbortOnDropHandle<()>,
    until: Instant,
    groups: Vec<PathBuf>,
    /// Whether a collector of changes runs once the code is dead.
    collects: bool,
    pub(crate) ran: Ran,
}

impl Live {
    pub(crate) fn start(stand: &Stand, tasks: &TaskTracker, spec: RunSpec) -> Self {
        let (sender, updates) = mpsc::channel(UPDATES);
        let cancel = CancellationToken::new();
        let until = Instant::now() + Duration::from_millis(spec.limits.timeout_ms) + PATIENCE;
        let collects = spec.mounts.iter().any(|mount| mount.writable);
        let (node, token) = (stand.node.clone(), cancel.clone());
        let task = tasks.spawn(async move { node.run(spec, sender, token).await });
        Self {
            updates,
            cancel,
            _task: AbortOnDropHandle::new(task),
            until,
            groups: Vec::new(),
            collects,
            ran: Ran::default(),
        }
    }

    /// Up to the moment when the attack says that it holds what it got. `false`: it ended before.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<bool> {
        while !self.ran.is_ready() {
            if !self.next().await? {
                return Ok(false);
            }
        }
        Ok(self.ran.stopped.is_none())
    }

    /// To the end; before, it is cancelled or not.
    pub(crate) async fn finish(mut self, cancel: bool) -> anyhow::Result<Ran> {
        if cancel {
            self.cancel.cancel();
        }
        while self.next().await? {}
        Ok(std::mem::take(&mut self.ran))
    }

    /// Takes one update; `false` after the last.
    async fn next(&mut self) -> anyhow::Result<bool> {
        let update = loop {
            let pulse = (Instant::now() + PULSE).min(self.until);
            match timeout_at(pulse, self.updates.recv()).await {
                Ok(update) => break update,
                Err(_elapsed) if Instant::now() >= self.until => {
                    self.ran.overdue = true;
                    return Ok(false);
                }
                Err(_elapsed) => self.ran.tasks = self.ran.tasks.max(host::tasks(&self.groups)),
            }
        };
        match update {
            Some(RunUpdate::Started { started }) => {
                self.groups = host::groups_of(started.sandbox.as_str()).context("look at the control groups")?;
                self.ran.started = Some(started);
            }
            Some(RunUpdate::Output { stream: OutputStream::Stdout, data }) => self.ran.stdout.extend_from_slice(&data),
            Some(RunUpdate::Output { stream: OutputStream::Stderr, data }) => self.ran.stderr.extend_from_slice(&data),
            Some(RunUpdate::Changes { data, .. }) => self.ran.changes.extend_from_slice(&data),
            Some(RunUpdate::Stopped { stopped }) => {
                if let Some(sandbox) = self.ran.sandbox().filter(|_| !self.collects) {
                    self.ran.survivors = look::processes_of(sandbox).context("look at processes")?.len();
                }
                self.ran.stopped = Some(stopped);
            }
            Some(RunUpdate::Failed { fault }) => self.ran.fault = Some(fault.to_string()),
            Some(RunUpdate::ChangesEnd { .. } | RunUpdate::Done) => {}
            None => return Ok(false),
        }
        Ok(true)
    }
}

/// What is left of a sandbox once it had `time` to go.
pub(crate) async fn left_of(
    sandbox: &str,
    before: host::Held,
    jail: u32,
    time: Duration,
) -> anyhow::Result<Vec<String>> {
    let until = Instant::now() + time;
    loop {
        let left = host::left_of(sandbox, before, jail).context("look for what is left")?;
        if left.is_empty() || Instant::now() >= until {
            return Ok(left);
        }
        sleep(PULSE).await;
    }
}
