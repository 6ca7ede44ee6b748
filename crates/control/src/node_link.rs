//! What control asks of a node: one message per run, answered on the channel that it carries.
//!
//! Control never depends on the node's crate: the binary reads these messages and hands each to the node.

use bailey_protocol::node::{RunSpec, RunUpdate};
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
