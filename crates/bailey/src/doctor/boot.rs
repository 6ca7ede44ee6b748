//! One `true` behind each wall, from nothing.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bailey_protocol::node::{Ending, RunSpec, RunUpdate};
use bailey_protocol::wall::WallKind;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Proof;
use crate::serve::Binaries;
use crate::stand::{self, Behind, Stand};
use crate::template::Template;
use crate::template::sentry::Sentry;

/// Everything together; a wall that takes longer does not work.
const PATIENCE: Duration = Duration::from_secs(60);
const UPDATES: usize = 16;

/// What each wall showed: cages, and gVisor where there is an image for it.
pub(super) type Outcomes = (anyhow::Result<Proof>, Option<anyhow::Result<Proof>>);

/// Starts a jail, a node on it, and one run behind each wall. One stand for both: a process can have no second.
pub(super) fn walls(binaries: &Binaries, template: &Template, sentry: Option<&Sentry>) -> anyhow::Result<Outcomes> {
    let behind = sentry.map_or(Behind::Plain(WallKind::Container), Behind::Sentry);
    let prove = async |stand: &Stand| {
        let container = run_true(stand, WallKind::Container).await;
        let gvisor = match sentry {
            Some(_) => Some(run_true(stand, WallKind::Gvisor).await),
            None => None,
        };
        Ok((container, gvisor))
    };
    let (outcomes, ended) = stand::on(binaries, template, behind, prove).context("no sandbox at all")?;
    if !ended.success() {
        bail!("bailey-jail could not clean up: it ended with {ended}");
    }
    Ok(outcomes)
}

async fn run_true(stand: &Stand, wall: WallKind) -> anyhow::Result<Proof> {
    let begin = Instant::now();
    let spec = RunSpec { wall, ..stand.spec("doctor", vec!["true".to_owned()])? };
    let (updates, mut seen) = mpsc::channel(UPDATES);
    let run = async { tokio::join!(stand.node.run(spec, updates, CancellationToken::new()), watch(&mut seen)).1 };
    match timeout(PATIENCE, run).await {
        Ok(fences) => Ok(Proof { took: begin.elapsed(), fences: fences? }),
        Err(_elapsed) => bail!("`true` did not end within {PATIENCE:?}"),
    }
}

/// The fences of a run that ended with exit code 0.
async fn watch(updates: &mut mpsc::Receiver<RunUpdate>) -> anyhow::Result<Vec<String>> {
    let mut fences = Vec::new();
    let mut ending = None;
    while let Some(update) = updates.recv().await {
        match update {
            RunUpdate::Started { started } => fences = started.fences,
            RunUpdate::Stopped { stopped } => ending = Some(stopped.ending),
            RunUpdate::Failed { fault } => bail!("{fault}"),
            RunUpdate::Output { .. } | RunUpdate::Changes { .. } | RunUpdate::ChangesEnd { .. } | RunUpdate::Done => {}
        }
    }
    match ending {
        Some(Ending::Exited { code: 0 }) => Ok(fences),
        Some(other) => bail!("`true` ended with {other:?}"),
        None => bail!("the node lost the run"),
    }
}
