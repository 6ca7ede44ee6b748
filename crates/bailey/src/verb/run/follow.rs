//! From a run's events to bytes on our own streams and one exit code.

use std::io::Write;
use std::process::ExitCode;

use bailey_protocol::api::{CommitOutcome, RunEvent, RunEventKind, RunResult};
use bailey_protocol::change::NoticeReason;
use bailey_protocol::id::RunId;
use bailey_protocol::node::{Ending, LimitHit};
use serde::Serialize;

use super::Interrupts;
use crate::client::events::bytes;
use crate::client::{Client, ClientError, Events};
use crate::terminal::note;
use crate::verb::VerbError;
use crate::verb::wording::of_cli;
use crate::{exit, terminal};

/// How often a broken stream is taken up again where it broke.
const RESUMES: u32 = 3;

/// Prints events until the run's ending, cancels the run on an interrupt, and gives the exit code.
pub(crate) async fn follow(
    client: &Client,
    mut events: Events,
    mut interrupts: Interrupts,
    json: bool,
) -> Result<ExitCode, VerbError> {
    let mut run: Option<RunId> = events.run().cloned();
    let warnings = events.warnings().to_vec();
    terminal::warn(&warnings);
    let mut interrupted = false;
    let mut resumes = 0;
    loop {
        let next = tokio::select! {
            biased;
            () = interrupts.next() => {
                if interrupted {
                    return Ok(leave());
                }
                interrupted = true;
                // The second ends this process, whatever the first one's request is waiting for.
                tokio::select! {
                    () = cancel(client, run.as_ref()) => continue,
                    () = interrupts.next() => return Ok(leave()),
                }
            }
            next = events.next() => next,
        };
        let event = match (next, &run) {
            (Ok(event), _) => event,
            (Err(error), Some(run)) => {
                let broken = matches!(error, ClientError::NoEnding | ClientError::Broken { .. });
                if !broken || resumes == RESUMES {
                    return Err(VerbError::Lost { run: run.to_string(), source: error });
                }
                resumes += 1;
                match client.get_events(&format!("/v1/runs/{run}/events"), events.seq()).await {
                    Ok(again) => events = again,
                    Err(_second) => return Err(VerbError::Lost { run: run.to_string(), source: error }),
                }
                continue;
            }
            (Err(error), None) => return Err(error.into()),
        };
        resumes = 0;
        if let RunEventKind::Started { run: started, .. } = &event.kind {
            let known = run.replace(started.clone()).is_some();
            if interrupted && !known {
                cancel(client, run.as_ref()).await;
            }
        }
        match show(event, &warnings, json) {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => {}
            Err(error) => {
                // Nobody reads any more: as for any program, that ends it.
                cancel(client, run.as_ref()).await;
                return Err(error);
            }
        }
    }
}

fn leave() -> ExitCode {
    note!("bailey: not waiting for the run's end");
    ExitCode::from(exit::CANCELLED)
}

/// Asks for the run's end; its `ended` event says when nothing of it is left.
async fn cancel(client: &Client, run: Option<&RunId>) {
    let Some(run) = run else {
        note!("bailey: cancelling as soon as the run has started");
        return;
    };
    if let Err(error) = client.tell(&format!("/v1/runs/{run}/cancel")).await {
        note!("bailey: cannot cancel {run}: {error}");
    }
}

/// What the server answered, with what it warned of.
#[derive(Serialize)]
pub(super) struct Warned<'a, T> {
    #[serde(flatten)]
    answer: &'a T,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

impl<'a, T> Warned<'a, T> {
    pub(super) fn new(answer: &'a T, warnings: &'a [String]) -> Self {
        Self { answer, warnings }
    }
}

fn show(event: RunEvent, warnings: &[String], json: bool) -> Result<Option<ExitCode>, VerbError> {
    if json {
        // The first event has them: each line stays an event.
        let warnings = if event.seq == 1 { warnings } else { &[] };
        terminal::json(&Warned::new(&event, warnings))?;
        let code = event.kind.is_last().then(|| match event.kind {
            RunEventKind::Ended(result) => exit::of_ending(result.ending),
            _ => exit::NO_RESULT,
        });
        return Ok(code.map(ExitCode::from));
    }
    match event.kind {
        RunEventKind::Started { .. } => Ok(None),
        RunEventKind::Stdout(data) => pass(&mut std::io::stdout().lock(), &bytes(data)?),
        RunEventKind::Stderr(data) => pass(&mut std::io::stderr().lock(), &bytes(data)?),
        RunEventKind::Ended(result) => {
            summarise(&result);
            Ok(Some(ExitCode::from(exit::of_ending(result.ending))))
        }
        RunEventKind::Failed { error, message, hint } => {
            let paint = terminal::Paint::stderr();
            note!("{} {}", paint.red("bailey:"), terminal::printable(&of_cli(&message)));
            if !hint.is_empty() {
                note!("  {}", terminal::printable(&of_cli(&hint)));
            }
            note!("  {}", paint.dim(&terminal::printable(&error)));
            Ok(Some(ExitCode::from(exit::NO_RESULT)))
        }
    }
}

fn pass(to: &mut dyn Write, data: &[u8]) -> Result<Option<ExitCode>, VerbError> {
    to.write_all(data)?;
    to.flush()?;
    Ok(None)
}

/// What the program's own output and code do not say, on standard error.
fn summarise(result: &RunResult) {
    let paint = terminal::Paint::stderr();
    let unusual = match result.ending {
        Ending::Exited { .. } => None,
        Ending::Signaled { signal } => Some(format!("signal {signal} ended it")),
        Ending::Timeout => Some("the time limit ended it".to_owned()),
        Ending::Oom => Some("the memory limit ended it".to_owned()),
        Ending::OutputLimit => Some("the output limit ended it".to_owned()),
        Ending::Cancelled => Some("cancelled".to_owned()),
        Ending::GuestLost => Some("the sandbox was lost".to_owned()),
        Ending::NodeRestarted => Some("the server restarted while it was going".to_owned()),
    };
    if let Some(text) = unusual {
        note!("{}", paint.yellow(&text));
    }
    // What ended it is said above already.
    let said = |hit: &&LimitHit| match hit {
        LimitHit::Timeout => result.ending == Ending::Timeout,
        LimitHit::Memory => result.ending == Ending::Oom,
        LimitHit::Output => result.ending == Ending::OutputLimit,
        LimitHit::Disk | LimitHit::Files | LimitHit::Pids => false,
    };
    let names: Vec<String> =
        result.limits_hit.iter().filter(|hit| !said(hit)).map(|hit| format!("{hit:?}").to_lowercase()).collect();
    if !names.is_empty() {
        note!("{}", paint.yellow(&format!("limits hit: {}", names.join(", "))));
    }
    if result.output_dropped > 0 {
        note!("{}", paint.yellow(&format!("{} of output dropped", terminal::size(result.output_dropped))));
    }
    for notice in &result.notices {
        let reason = serde_json::to_string(&notice.reason).unwrap_or_default();
        let path = terminal::printable(&notice.path);
        if notice.reason == NoticeReason::CredentialShaped {
            let detail = notice.detail.as_deref().unwrap_or_default();
            terminal::warn(&[format!("{path}: shaped like a credential ({detail})")]);
            continue;
        }
        note!("{}", paint.yellow(&format!("not kept: {path} ({})", reason.trim_matches('"'))));
    }
    for new in &result.versions {
        let how = match new.outcome {
            CommitOutcome::Committed => "",
            CommitOutcome::Merged => " (merged)",
            CommitOutcome::SideBranch => " (kept apart)",
        };
        let path = terminal::printable(new.path.as_str());
        note!("{} {} {path} on {}{how}", paint.dim("version"), paint.cyan(new.version.as_str()), new.branch);
        if let Some(reason) = &new.reason {
            note!("  {}", terminal::printable(reason));
        }
        for conflict in &new.conflicts {
            note!("  {}", terminal::printable(&new.path.repo().below(conflict)));
        }
    }
}
