//! `bailey doctor`: proves each wall by booting it, without a server.
//!
//! A throw-away `bailey-jail` with a temporary data folder parks a cage, and a node of our own runs `true` in it. What
//! files and facts promise is not taken for proof; it only explains a failure.

mod boot;
pub(crate) mod facts;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bailey_control::clock::Clock;
use bailey_protocol::wall::WallKind;
use serde::Serialize;

use crate::serve::Binaries;
use crate::template::TemplateError;
use crate::template::sentry::{self, Runsc};
use crate::terminal::Paint;
use crate::verb::VerbError;
use crate::{config, template, terminal};
use facts::HostFacts;

/// What was found out.
#[derive(Debug, Serialize)]
struct Report {
    walls: Vec<WallReport>,
    host: HostFacts,
    missing: Vec<String>,
}

/// One wall on this host.
#[derive(Debug, Serialize)]
struct WallReport {
    name: WallKind,
    usable: bool,
    /// `None` where the wall has no machine to accelerate.
    accelerated: Option<bool>,
    version: String,
    /// From an empty host to a finished `true`, in milliseconds.
    proof_ms: Option<u64>,
    /// Why it is not usable; else how it was proved.
    reason: String,
    /// Fences that the proof had.
    fences: Vec<String>,
    /// The command that mends it, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
    /// What is not as it should be although it works.
    warnings: Vec<String>,
}

/// What a boot showed.
pub(crate) struct Proof {
    took: Duration,
    fences: Vec<String>,
}

/// Exit code 0 if the wall that runs have by default is usable.
pub(crate) fn carry_out(cache: Option<std::path::PathBuf>, json: bool) -> Result<ExitCode, VerbError> {
    let host = HostFacts::read();
    let missing = host.missing();
    let cache = config::cache(cache)?;
    let runsc = Runsc::find(None);
    let (container, gvisor) = if missing.is_empty() {
        prove(&cache, runsc.as_ref())
    } else {
        let lacking = format!("missing: {}", missing.join("; "));
        (Err(lacking.clone()), Err(lacking))
    };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let container = WallReport::new(WallKind::Container, version, container, "ran `true` in a cage");
    let version = runsc.as_ref().map_or_else(|_missing| String::new(), |runsc| runsc.version.clone());
    let aged = sentry::aged(&version, Clock::system().now_ms());
    let mut gvisor = WallReport::new(WallKind::Gvisor, version, gvisor, "ran `true` on runsc's kernel, in a cage");
    gvisor.mend = runsc.is_err().then(|| "apt-get install runsc".to_owned());
    gvisor.warnings.extend(aged);
    let report = Report { walls: vec![container, gvisor], host, missing };
    if json {
        terminal::json(&report)?;
    } else {
        print(&report)?;
    }
    let usable = report.walls.iter().any(|wall| wall.name == WallKind::Container && wall.usable);
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::from(crate::exit::FAILED) })
}

/// Tries both walls. What goes wrong with one is no reason against the other, as far as it can be had without.
fn prove(cache: &Path, runsc: Result<&Runsc, &TemplateError>) -> (Result<Proof, String>, Result<Proof, String>) {
    let outcomes = || -> anyhow::Result<_> {
        let binaries = Binaries::find()?;
        let template = template::ensure(cache)?;
        let sentry = match runsc {
            Ok(runsc) => sentry::ensure(cache, &template, &binaries.guest, runsc).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let (container, gvisor) = boot::walls(&binaries, &template, sentry.as_ref().ok())?;
        let why = |error: anyhow::Error| format!("{error:#}");
        let gvisor = match (sentry, gvisor) {
            (Err(error), _) => Err(error),
            (Ok(_), Some(outcome)) => outcome.map_err(why),
            (Ok(_), None) => Err("it was not tried".to_owned()),
        };
        Ok((container.map_err(why), gvisor))
    };
    outcomes().unwrap_or_else(|error| (Err(format!("{error:#}")), Err(format!("{error:#}"))))
}

impl WallReport {
    fn new(name: WallKind, version: String, outcome: Result<Proof, String>, proved: &str) -> Self {
        let (usable, proof_ms, reason, fences) = match outcome {
            Ok(Proof { took, fences }) => {
                let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                (true, Some(took), proved.to_owned(), fences)
            }
            Err(reason) => (false, None, reason, Vec::new()),
        };
        let (mend, warnings) = (None, Vec::new());
        Self { name, usable, accelerated: None, version, proof_ms, reason, fences, mend, warnings }
    }
}

fn print(report: &Report) -> std::io::Result<()> {
    let paint = Paint::stdout();
    for wall in &report.walls {
        let state = if wall.usable { paint.green("usable") } else { paint.red("not usable") };
        let took = wall.proof_ms.map(|ms| format!(" in {ms} ms")).unwrap_or_default();
        terminal::line(&format!("{} {}: {state}, {}{took}", wall.name, wall.version, wall.reason))?;
        for warning in &wall.warnings {
            terminal::line(&format!("  {} {warning}", paint.red("warning:")))?;
        }
        if let Some(mend) = &wall.mend {
            terminal::line(&format!("  mend it with `{mend}`"))?;
        }
        if !wall.fences.is_empty() {
            terminal::line(&paint.dim(&format!("  fences: {}", wall.fences.join(", "))))?;
        }
    }
    let host = &report.host;
    let large = if host.ext4 { "" } else { ", no large disks: the kernel has no ext4" };
    terminal::line(&format!(
        "kernel {}, landlock {}, cgroups {}{large}",
        host.kernel, host.landlock_abi, host.cgroups
    ))?;
    report.missing.iter().try_for_each(|what| terminal::line(&format!("{} {what}", paint.red("missing:"))))
}
