//! What control asks of a node: one message per run or git exchange, answered on the channel that it carries.
//!
//! Control never depends on the node's crate: the binary reads these messages and hands each to the node.

use bailey_protocol::git::{GitSpec, GitUpdate};
use bailey_protocol::node::{RunSpec, RunUpdate};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Updates that wait for control per run, each of at most 32 KiB: a slow control slows the sandbox, not memory.
pub const UPDATES_IN_FLIGHT: usize = 16;

/// An order to carry out one run.
#[derive(Debug)]
pub struct StartRun {
    /// What to do. Every value came from a permit.
    pub spec: RunSpec,
    /// Where to report, in the order that [`RunUpdate`] documents. Dropping it before the last update is a lost node.
    pub updates: mpsc::Sender<RunUpdate>,
    /// Fires when the caller no longer wants the run; the node answers with `Stopped` as always.
    pub cancel: CancellationToken,
}

/// Pieces of a git exchange that wait in either direction, each of at most 64 KiB.
pub const GIT_IN_FLIGHT: usize = 16;

/// An order to have stock git serve one exchange.
#[derive(Debug)]
pub struct StartGit {
    /// What to do. Every value came from a permit.
    pub spec: GitSpec,
    /// What git reads; closed after the last piece.
    pub input: mpsc::Receiver<Bytes>,
    /// Where to report. When nobody listens any more, git is killed.
    pub updates: mpsc::Sender<GitUpdate>,
}
