//! `bailey advise`: which wall a piece of code belongs behind, asked of a person.

use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use bailey_control::choosing::{Host, Verdict, choose};
use bailey_protocol::wall::{CodeFacts, CodeLanguage, Place, Provenance, WallKind};

use super::{VerbError, say};
use crate::cli::Common;
use crate::cli::advise::AdviseArgs;
use crate::serve::host::size;
use crate::terminal::note;

/// Which wall is right, on a host that has all of them and the size of this one.
pub(super) fn carry_out(args: AdviseArgs, common: &Common) -> Result<ExitCode, VerbError> {
    let asked = args == AdviseArgs::default() && !common.json && std::io::stdin().is_terminal();
    let facts = if asked { dialogue()? } else { facts(args) };
    let verdict = choose(&facts, &host());
    say(common, &verdict, || text(&verdict))
}

fn host() -> Host {
    let walls = [
        (WallKind::Container, None),
        (WallKind::Gvisor, None),
        (WallKind::Microvm, Some(true)),
        (WallKind::Isolate, None),
    ];
    let (cpu_millis, memory_bytes) = size();
    Host { walls: walls.into(), cpu_millis, memory_bytes, substitute: None }
}

fn facts(args: AdviseArgs) -> CodeFacts {
    CodeFacts {
        provenance: if args.reviewed { Provenance::Reviewed } else { Provenance::Unreviewed },
        place: if args.in_process { Place::CallersProcess } else { Place::Sandbox },
        language: args.language,
        hostile: args.hostile,
        latency_ms: args.latency.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
        files_and_processes: args.files,
        session_minutes: args.session.map_or(0, |time| u32::try_from(time.as_secs().div_ceil(60)).unwrap_or(u32::MAX)),
        survives_pause: args.survives_pause,
        region: args.region,
        one_tenant: args.one_tenant,
        private_network: args.private_network,
        cpu_millis: args.cpu,
        memory_bytes: args.memory,
        untrusted_files: args.untrusted_files,
        assessment: args.assessment,
    }
}

/// Puts the questions that matter, one after the other. An end of input is a no to all that are left.
fn dialogue() -> Result<CodeFacts, VerbError> {
    let mut lines = std::io::stdin().lock().lines();
    let mut yes = |question: &str| -> Result<bool, VerbError> {
        note!("{question} [y/N]");
        let answer = lines.next().transpose()?.unwrap_or_default();
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    };
    let assessment = yes("Does a government have to assess it?")?;
    let mut facts = CodeFacts { assessment, ..CodeFacts::default() };
    if !facts.assessment && yes("Has somebody who answers for it read the code?")? {
        facts.provenance = Provenance::Reviewed;
    }
    if facts.assessment || facts.provenance == Provenance::Reviewed {
        return Ok(facts);
    }
    if yes("Is it to run inside an existing process of the product?")? {
        facts.place = Place::CallersProcess;
        return Ok(facts);
    }
    facts.hostile = yes("May its author mean harm?")?;
    facts.untrusted_files = yes("Does it open files because nobody trusts them?")?;
    facts.private_network = yes("Does it reach a private network?")?;
    facts.survives_pause = yes("Do its processes have to survive a pause?")?;
    facts.files_and_processes = yes("Does it need real files and processes?")?;
    if yes("Does a user go on with one sandbox for hours?")? {
        facts.session_minutes = 120;
    }
    if !facts.files_and_processes && yes("Is it JavaScript that has to start within ten milliseconds?")? {
        (facts.language, facts.latency_ms) = (Some(CodeLanguage::Javascript), Some(10));
    }
    Ok(facts)
}

fn text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Wall { wall, reason, with } => {
            let with: String = with.iter().map(|what| format!("\n  with {what}")).collect();
            format!("{wall}: {reason}{with}\n`bailey doctor` lists the walls that work on a host.")
        }
        Verdict::NoSandbox { reason } => format!("no sandbox: {reason}"),
        Verdict::Refused { reason, instead } => format!("refused: {reason}\n{instead}"),
        Verdict::NotInstalled { wall, reason, how } => format!("{wall}, which is not here: {reason}\n{how}"),
        Verdict::HostCannot { reason, how } => format!("this host cannot: {reason}\n{how}"),
        Verdict::ConfirmFirst { reason, ask } => {
            let ask: String = ask.iter().map(|question| format!("\n  {question}")).collect();
            format!("{reason}{ask}")
        }
    }
}
