//! One `true` in one cage, from nothing.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bailey_protocol::node::{Ending, RunUpdate};
use bailey_protocol::wall::WallKind;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Proof;
use crate::serve::Binaries;
use crate::stand::{self, Stand};
use crate::template::Template;

/// Everything together; a wall that takes longer does not work.
const PATIENCE: Duration = Duration::from_secs(60);
const UPDATES: usize = 16;

/// Starts a jail, a node on it, and one run.
pub(super) fn container(binaries: &Binaries, template: &Template) -> anyhow::Result<Proof> {
    let prove = async |stand: &Stand| {
        let outcome = timeout(PATIENCE, run_true(stand)).await;
        outcome.unwrap_or_else(|_elapsed| bail!("`true` did not end within {PATIENCE:?}"))
    };
    let (proof, ended) = stand::on(binaries, template, WallKind::Container, prove).context("no `true` in a cage")?;
    if !ended.success() {
        bail!("bailey-jail could not clean up: it ended with {ended}");
    }
    Ok(proof)
}

async fn run_true(stand: &Stand) -> anyhow::Result<Proof> {
    let begin = Instant::now();
    let spec = stand.spec("doctor", vec!["true".to_owned()])?;
    let (updates, mut seen) = mpsc::channel(UPDATES);
    let ((), outcome) = tokio::join!(stand.node.run(spec, updates, CancellationToken::new()), watch(&mut seen));
    let fences = outcome?;
    Ok(Proof { took: begin.elapsed(), fences })
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
