//! `bailey attest`: attacks the operator's own host from inside sandboxes, and signs what came of it.
//!
//! A throw-away `bailey-jail` with a node of our own, as for `bailey doctor`, runs each attack of [`cases`] in a fresh
//! sandbox. What it prints counts for nothing but to say that it has tried everything: [`judge`] goes by what the host
//! sees ([`look`], [`host`]), by secrets that the host planted ([`canary`], [`planted`]), and by a sandbox of another
//! tenant beside it ([`world`]). Whatever could not be judged is not tried, which is no success.

mod canary;
mod cases;
mod host;
mod judge;
mod look;
mod planted;
mod report;
mod sandbox;
mod tree;
mod verify;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bailey_control::audit::AuditSigner;
use bailey_control::audit::signer::{NoFreshKey, NoKeys};
use bailey_control::auth::{Issuer, IssuerError};
use bailey_control::clock::Rng;
use bailey_protocol::jail::SERVER_UID;
use bailey_protocol::node::RunStarted;
use bailey_protocol::wall::WallKind;
use tokio::time::Instant;

use crate::cli::AttestArgs;
use crate::doctor::facts::HostFacts;
use crate::serve::Binaries;
use crate::stand::{self, Behind, Stand};
use crate::template::{self, Template};
use crate::terminal::{Paint, note};
use crate::verb::VerbError;
use crate::{config, exit, terminal};
use cases::Case;
use judge::Verdict;
use planted::Planted;
use report::{Report, Row, Signed, SignedBy};
use world::World;

/// How often an attack is begun that a busy host did not let happen. One that broke something is never tried again.
const ATTEMPTS: u32 = 3;

/// Why nothing was attested.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttestError {
    #[error("nothing can be attested here: {missing}")]
    Missing { missing: String },
    #[error("`{path}` is no server's data folder: start `bailey serve` with it once, or leave `--data` out")]
    NoServer { path: String },
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    #[error(transparent)]
    Key(#[from] NoFreshKey),
    #[error("nothing was attested: {0:#}")]
    Stand(anyhow::Error),
    #[error("cannot write the report: {0}")]
    Write(#[from] serde_json::Error),
    #[error("`{path}` is no report of `bailey attest --json`: {source}")]
    NoReport { path: String, source: serde_json::Error },
    #[error(transparent)]
    Keys(#[from] NoKeys),
}

/// Exit code 0 if every attack was tried and held.
pub(crate) fn carry_out(args: AttestArgs, json: bool) -> Result<ExitCode, VerbError> {
    if let Some(file) = args.verify {
        return verify::carry_out(&file, args.keys.as_deref(), json);
    }
    let missing = HostFacts::read().missing();
    if !missing.is_empty() {
        return Err(AttestError::Missing { missing: missing.join("; ") }.into());
    }
    let (signer, signed_by) = signer(args.data)?;
    let binaries = Binaries::find()?;
    let template = template::ensure(&config::cache(args.cache)?)?;
    let begin = Instant::now();
    let (rows, started) =
        attack(&binaries, &template, args.wall.unwrap_or(WallKind::Container), json).map_err(AttestError::Stand)?;
    let report = Report::new(&binaries, &template, &started, signed_by, rows, millis(begin));
    let signed = Signed::new(&report, &signer).map_err(AttestError::Write)?;
    if json {
        terminal::json(&signed)?;
    } else {
        report.lines().iter().try_for_each(|line| terminal::line(line))?;
        let whose = match signed_by {
            SignedBy::Issuer => "the issuer's",
            SignedBy::FreshKey => "made for this report",
        };
        terminal::line(&format!("key {} ({whose})", signed.key.public_key))?;
        terminal::line(&format!("signature {} (of the report that `--json` prints)", signed.signature))?;
    }
    Ok(if report.all_held() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// The key of the server with this data folder, or a fresh one.
fn signer(data: Option<std::path::PathBuf>) -> Result<(AuditSigner, SignedBy), VerbError> {
    let Some(data) = data else {
        return Ok((AuditSigner::ephemeral().map_err(AttestError::from)?, SignedBy::FreshKey));
    };
    let serve = config::data(Some(data))?.join("serve");
    if !serve.is_dir() {
        return Err(AttestError::NoServer { path: serve.display().to_string() }.into());
    }
    let issuer = Issuer::open(&serve, SERVER_UID).map_err(AttestError::from)?;
    Ok((issuer.audit_signer(), SignedBy::Issuer))
}

/// Tries everything, and then whether anything is left.
fn attack(
    binaries: &Binaries,
    template: &Template,
    wall: WallKind,
    json: bool,
) -> anyhow::Result<(Vec<Row>, RunStarted)> {
    let planted = Planted::new(&Rng::system())?;
    let work = async |stand: &Stand| {
        let mut world = World::new(stand, &planted, &binaries.guest).await?;
        let started = world.started().cloned().context("the node did not tell how a run began")?;
        let ledger = world.ledger()?;
        let mut rows = Vec::new();
        for case in cases::CASES {
            let begin = Instant::now();
            let mut verdict = attempt(&mut world, case).await;
            for _again in 1..ATTEMPTS {
                if matches!(verdict, Verdict::NotTried(_)) {
                    verdict = attempt(&mut world, case).await;
                }
            }
            rows.push(Row::new(case.id, case.name, case.root, verdict, millis(begin)));
            rows.last().map_or(Ok(()), |row| tell(row, json))?;
        }
        world.end().await?;
        Ok((rows, started, ledger, stand.folder.clone()))
    };
    let ((mut rows, started, ledger, folder), ended) = stand::on(binaries, template, Behind::Plain(wall), work)?;
    let begin = Instant::now();
    let verdict = match host::left_behind(&ledger, &folder) {
        Ok(left) if !left.is_empty() => Verdict::Broken(left.join("; ")),
        Ok(_) if !ended.success() => Verdict::Broken(format!("bailey-jail could not clean up: it ended with {ended}")),
        Ok(_) => Verdict::Held,
        Err(error) => Verdict::NotTried(format!("could not look for what is left: {error}")),
    };
    let row = Row::new("R19", "staying behind once all is over", false, verdict, millis(begin));
    tell(&row, json)?;
    rows.push(row);
    Ok((rows, started))
}

async fn attempt(world: &mut World<'_>, case: &Case) -> Verdict {
    match world.attack(case).await {
        Ok(facts) => judge::verdict(case.judge, &facts),
        Err(error) => Verdict::NotTried(format!("{error:#}")),
    }
}

/// One line for people, at once: on standard error where standard output is for a machine.
fn tell(row: &Row, json: bool) -> anyhow::Result<()> {
    let paint = if json { Paint::stderr() } else { Paint::stdout() };
    let verdict = match row.verdict {
        "held" => paint.green("held     "),
        "broken" => paint.red("BROKEN   "),
        _ => paint.yellow("not tried"),
    };
    let root = if row.root { ", as root of the sandbox" } else { "" };
    let why = row.why.as_ref().map(|why| format!(": {}", terminal::printable(why))).unwrap_or_default();
    let line = format!("{verdict} {} {}{root}{why}", row.id, row.name);
    if json {
        note!("{line}");
    } else {
        terminal::line(&line)?;
    }
    Ok(())
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().min(Duration::from_secs(86_400)).as_millis()).unwrap_or(u64::MAX)
}
