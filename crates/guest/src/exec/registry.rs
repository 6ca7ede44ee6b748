//! Which execs there are: those that run, and the last ones that ended.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, WaitStatus};
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::cgroup::Group;
use super::input::Input;
use super::output::{Feed, Terminal};
use super::service::ProcessConfig;
use crate::agent::connect::{Code, RpcError};

/// How long an ended exec can still be connected to.
const KEPT: Duration = Duration::from_secs(30);
/// Most ended execs that are kept.
const MAX_KEPT: usize = 256;
/// Most execs that run at once.
pub const MAX_RUNNING: usize = 1024;

/// How a leader ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
}

impl Exit {
    /// `None` for a process that only stopped or went on.
    #[must_use]
    pub fn from_status(status: WaitStatus) -> Option<Self> {
        status.exit_status().map(Self::Code).or_else(|| status.terminating_signal().map(Self::Signal))
    }
}

/// One exec, from its fork on.
#[derive(Debug)]
pub struct Exec {
    /// The leader.
    pub pid: Pid,
    /// The caller's name for it.
    pub tag: Option<String>,
    /// What was started, as the caller gave it.
    pub config: ProcessConfig,
    /// Standard input, or the terminal's keyboard.
    pub input: Input,
    /// The terminal, if it has one and runs.
    pub terminal: RefCell<Option<Rc<Terminal>>>,
    /// Who reads its output.
    pub feed: Feed,
    /// Set when the leader was reaped.
    pub exit: watch::Sender<Option<Exit>>,
    /// The end event, once everything was delivered.
    pub end: OnceCell<Bytes>,
    /// Whether the deadline ended it.
    pub timed_out: Cell<bool>,
    /// Its processes; gone after the end.
    pub group: RefCell<Option<Group>>,
}

impl Exec {
    /// Kills everything that it started.
    pub fn kill_all(&self) {
        let killed = self.group.borrow().as_ref().is_some_and(|group| group.kill().is_ok());
        if !killed && self.exit.borrow().is_none() {
            // Never seen to fail; the leader and its group are better than nothing. It may just have ended.
            let _gone = rustix::process::kill_process_group(self.pid, rustix::process::Signal::KILL);
        }
    }
}

/// By what a request names an exec.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Selector {
    /// The leader's process id.
    Pid(i32),
    /// The caller's name for it.
    Tag(String),
}

/// All execs.
#[derive(Debug, Default)]
pub struct Registry {
    running: HashMap<i32, Rc<Exec>>,
    ended: Vec<(Instant, Rc<Exec>)>,
    /// Told about the end of processes that are no execs of their own.
    waiting: HashMap<i32, oneshot::Sender<Exit>>,
}

impl Registry {
    /// Adds one that was just forked.
    pub fn add(&mut self, exec: Rc<Exec>) {
        self.running.insert(exec.pid.as_raw_nonzero().get(), exec);
    }

    /// Whether another one may start.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.running.len() < MAX_RUNNING
    }

    /// Those that run, by process id.
    #[must_use]
    pub fn running(&self) -> Vec<Rc<Exec>> {
        let mut all: Vec<Rc<Exec>> = self.running.values().cloned().collect();
        all.sort_by_key(|exec| exec.pid.as_raw_nonzero());
        all
    }

    /// Tells an exec that its leader was reaped. Its process id may be used again from now on.
    pub fn reaped(&mut self, pid: Pid, exit: Exit) {
        if let Some(waiting) = self.waiting.remove(&pid.as_raw_nonzero().get()) {
            // Nobody may be left to care.
            let _unheard = waiting.send(exit);
        } else if let Some(exec) = self.running.get(&pid.as_raw_nonzero().get())
            && exec.exit.borrow().is_none()
        {
            exec.exit.send_replace(Some(exit));
        }
    }

    /// Waits for the end of a process that was just forked.
    pub fn wait_for(&mut self, pid: Pid) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(pid.as_raw_nonzero().get(), sender);
        receiver
    }

    /// Removes an exec; keeps it for a while if `keep`.
    pub fn remove(&mut self, exec: &Rc<Exec>, keep: bool) {
        let pid = exec.pid.as_raw_nonzero().get();
        if self.running.get(&pid).is_some_and(|known| Rc::ptr_eq(known, exec)) {
            self.running.remove(&pid);
        }
        let now = Instant::now();
        self.ended.retain(|(since, _)| now.duration_since(*since) < KEPT);
        if keep {
            if self.ended.len() >= MAX_KEPT {
                self.ended.remove(0);
            }
            self.ended.push((now, Rc::clone(exec)));
        }
    }

    /// The exec that still runs and is meant.
    ///
    /// # Errors
    /// When there is none.
    pub fn find_running(&self, selector: &Selector) -> Result<Rc<Exec>, RpcError> {
        let found = self.running.values().find(|exec| matches(exec, selector)).cloned();
        found.ok_or_else(|| not_found(selector))
    }

    /// The exec that is meant, running or ended a moment ago.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, selector: &Selector) -> Result<Rc<Exec>, RpcError> {
        if let Ok(exec) = self.find_running(selector) {
            return Ok(exec);
        }
        let now = Instant::now();
        let kept = self.ended.iter().rev().filter(|(since, _)| now.duration_since(*since) < KEPT);
        let found = kept.map(|(_, exec)| exec).find(|exec| matches(exec, selector)).cloned();
        found.ok_or_else(|| not_found(selector))
    }
}

fn matches(exec: &Exec, selector: &Selector) -> bool {
    match selector {
        Selector::Pid(pid) => exec.pid.as_raw_nonzero().get() == *pid,
        Selector::Tag(tag) => exec.tag.as_ref() == Some(tag),
    }
}

fn not_found(selector: &Selector) -> RpcError {
    let message = match selector {
        Selector::Pid(pid) => format!("process with pid {pid} not found"),
        Selector::Tag(tag) => format!("process with tag {tag} not found"),
    };
    RpcError::new(Code::NotFound, message)
}
