//! `bailey doctor`: proves each wall by booting it, without a server.
//!
//! A throw-away `bailey-jail` with a temporary data folder parks a cage, and a node of our own runs `true` in it. What
//! files and facts promise is not taken for proof; it only explains a failure.

mod boot;
pub(crate) mod facts;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bailey_protocol::wall::WallKind;
use serde::Serialize;

use crate::serve::Binaries;
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
    version: &'static str,
    /// From an empty host to a finished `true`, in milliseconds.
    proof_ms: Option<u64>,
    /// Why it is not usable; else how it was proved.
    reason: String,
    /// Fences that the proof had.
    fences: Vec<String>,
}

/// What a boot showed.
pub(crate) struct Proof {
    took: Duration,
    fences: Vec<String>,
}

/// Exit code 0 if a wall is usable.
pub(crate) fn carry_out(cache: Option<std::path::PathBuf>, json: bool) -> Result<ExitCode, VerbError> {
    let host = HostFacts::read();
    let missing = host.missing();
    let outcome = if missing.is_empty() {
        prove(&config::cache(cache)?).map_err(|error| format!("{error:#}"))
    } else {
        Err(format!("missing: {}", missing.join("; ")))
    };
    let report = Report { walls: vec![container(outcome)], host, missing };
    if json {
        terminal::json(&report)?;
    } else {
        print(&report)?;
    }
    let usable = report.walls.iter().any(|wall| wall.usable);
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::from(crate::exit::FAILED) })
}

fn prove(cache: &Path) -> anyhow::Result<Proof> {
    let binaries = Binaries::find()?;
    let template = template::ensure(cache)?;
    boot::container(&binaries, &template)
}

fn container(outcome: Result<Proof, String>) -> WallReport {
    let (usable, proof_ms, reason, fences) = match outcome {
        Ok(Proof { took, fences }) => {
            let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            (true, Some(took), "ran `true` in a cage".to_owned(), fences)
        }
        Err(reason) => (false, None, reason, Vec::new()),
    };
    let version = env!("CARGO_PKG_VERSION");
    WallReport { name: WallKind::Container, usable, accelerated: None, version, proof_ms, reason, fences }
}

fn print(report: &Report) -> std::io::Result<()> {
    let paint = Paint::stdout();
    for wall in &report.walls {
        let state = if wall.usable { paint.green("usable") } else { paint.red("not usable") };
        let took = wall.proof_ms.map(|ms| format!(" in {ms} ms")).unwrap_or_default();
        terminal::line(&format!("{} {}: {state}, {}{took}", wall.name, wall.version, wall.reason))?;
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
