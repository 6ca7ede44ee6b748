//! `bailey runs`: what ran, and what is running.

use std::process::ExitCode;

use bailey_protocol::api::{RunAccepted, RunList, RunStatus, RunSummary};
use bailey_protocol::node::Ending;

use super::run::{Interrupts, follow};
use super::{VerbError, connect, say, say_list};
use crate::cli::{Common, RunsArgs};
use crate::terminal::{Paint, printable, rows, time};

pub(super) async fn carry_out(args: RunsArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let Some(run) = args.run else {
        let list: RunList = client.get("/v1/runs", &[]).await?;
        return say_list(&common, &list, "no runs yet", || rows(&list.runs, row));
    };
    if args.cancel {
        client.tell(&format!("/v1/runs/{run}/cancel")).await?;
        let accepted = RunAccepted { run };
        return say(&common, &accepted, || format!("cancelling {}", accepted.run));
    }
    if args.follow {
        let interrupts = Interrupts::listen().map_err(VerbError::Runtime)?;
        let events = client.get_events(&format!("/v1/runs/{run}/events"), 0).await?;
        return follow(&client, events, interrupts, common.json).await;
    }
    let detail: serde_json::Value = client.get(&format!("/v1/runs/{run}"), &[]).await?;
    say(&common, &detail, || format!("{detail:#}"))
}

fn row(run: &RunSummary) -> String {
    let paint = Paint::stdout();
    let (state, good) = match (run.status, run.ending) {
        (RunStatus::Running, _) => ("running".to_owned(), true),
        (RunStatus::Failed, _) => ("failed".to_owned(), false),
        (RunStatus::Ended, None) => ("ended".to_owned(), true),
        (RunStatus::Ended, Some(Ending::Exited { code })) => (format!("exited {code}"), code == 0),
        (RunStatus::Ended, Some(Ending::Signaled { signal })) => (format!("signal {signal}"), false),
        (RunStatus::Ended, Some(ending)) => (name(ending), false),
    };
    let state = format!("{state:<12}");
    let state = if good { paint.green(&state) } else { paint.yellow(&state) };
    let (user, command) = (printable(&run.user), printable(&run.command));
    format!("{} {} {state} {user:<12} {command}", run.run, time(run.created_ms))
}

fn name(ending: Ending) -> String {
    let value = serde_json::to_value(ending).unwrap_or_default();
    value.get("kind").and_then(|kind| kind.as_str()).unwrap_or("ended").replace('_', " ")
}
