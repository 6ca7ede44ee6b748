//! `bailey audit`: who did what, and whether what is written about it is whole.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::ExitCode;

use bailey_control::audit::export::{ExportError, verify_export};
use bailey_control::audit::signer::NoKeys;
use bailey_control::audit::{AuditKeys, Chain, Report};
use bailey_control::auth::{Issuer, IssuerError};
use bailey_control::clock::Clock;
use bailey_control::db::{DbError, verify_audit};
use bailey_protocol::audit::{AuditPage, AuditRecord, Digest};
use bailey_protocol::jail::SERVER_UID;

use super::{VerbError, connect, say};
use crate::cli::Common;
use crate::cli::audit::{AuditArgs, AuditListArgs, AuditVerb, AuditVerifyArgs, Whose};
use crate::client::{Client, broken, refuse_cut_off};
use crate::serve::host::require_root;
use crate::terminal::note;
use crate::{config, exit, terminal};

/// Largest line of a stream of rows.
const MAX_LINE: usize = 1024 * 1024;
/// Most rows of one page.
const PAGE: u32 = 1000;

/// Why an audit cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Keys(#[from] NoKeys),
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("`{path}` is no server's data folder: start `bailey serve` with it once")]
    NoServer { path: String },
    #[error("cannot write `{path}`: {source}")]
    Write { path: String, source: std::io::Error },
}

pub(super) fn carry_out(args: AuditArgs, common: Common) -> Result<ExitCode, VerbError> {
    match args.verb {
        None => super::block_on(list(args.list, common)),
        Some(AuditVerb::Export { whose, file, after }) => {
            super::block_on(export(&whose, file.as_deref(), after, common))
        }
        Some(AuditVerb::Verify(args)) => verify(args, common.json),
    }
}

impl Whose {
    /// The route for it: `what` is what admins ask for.
    fn route(&self, what: &str) -> String {
        if self.operator || self.tenant.is_some() { format!("/v1/operator/{what}") } else { format!("/v1/{what}") }
    }

    fn query(&self) -> Option<(&'static str, String)> {
        self.tenant.as_ref().map(|tenant| ("tenant", tenant.to_string()))
    }
}

async fn list(args: AuditListArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let since = args.since.map(|since| {
        let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Clock::system().now_ms().saturating_sub(since).to_string()
    });
    let wanted = [
        ("user", args.user.map(|user| user.to_string())),
        ("action", args.action),
        ("decision", args.decision),
        ("run", args.run.map(|run| run.to_string())),
        ("resource", args.resource),
        ("since", since),
    ];
    let mut query: Vec<_> = wanted.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    query.extend(args.whose.query());
    let route = args.whose.route("audit");
    let mut records = latest(&client, &route, &query, args.limit).await?;
    records.reverse();
    let last = records.last().map(|record| record.row.seq);
    records.iter().try_for_each(|record| print(record, common.json))?;
    if records.is_empty() && !common.json {
        note!("bailey: no rows like that");
    }
    if args.follow {
        follow(&client, &route, query, last, common.json).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The latest rows, newest first.
async fn latest(
    client: &Client,
    route: &str,
    query: &[(&str, String)],
    limit: u32,
) -> Result<Vec<AuditRecord>, VerbError> {
    let mut records = Vec::new();
    let mut before = None;
    loop {
        let left = limit.saturating_sub(u32::try_from(records.len()).unwrap_or(u32::MAX)).min(PAGE);
        if left == 0 {
            return Ok(records);
        }
        let mut query = query.to_vec();
        query.push(("limit", left.to_string()));
        query.extend(before.map(|before: u64| ("before", before.to_string())));
        let page: AuditPage = client.get(route, &query).await?;
        records.extend(page.records);
        before = page.next;
        if before.is_none() {
            return Ok(records);
        }
    }
}

async fn follow(
    client: &Client,
    route: &str,
    mut query: Vec<(&str, String)>,
    after: Option<u64>,
    json: bool,
) -> Result<(), VerbError> {
    query.push(("follow", "true".to_owned()));
    query.extend(after.map(|after| ("after", after.to_string())));
    let mut response = client.read(route, &query).await?;
    let mut buffer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let rest = buffer.split_off(end + 1);
            let line = std::mem::replace(&mut buffer, rest);
            refuse_cut_off(&line)?;
            let record = serde_json::from_slice(&line).map_err(std::io::Error::from)?;
            print(&record, json)?;
        }
        if buffer.len() > MAX_LINE {
            return Err(VerbError::Input { what: "the server sent a line that is no row" });
        }
    }
    Ok(())
}

fn print(record: &AuditRecord, json: bool) -> std::io::Result<()> {
    if json {
        return terminal::json(record);
    }
    let paint = terminal::Paint::stdout();
    let row = &record.row;
    let decision = format!("{:<7}", row.decision);
    let decision = if row.decision == "denied" { paint.red(&decision) } else { paint.green(&decision) };
    // Whoever's name is not told here, or forgotten, is told apart by the pseudonym.
    let who = |name: Option<&str>, id: &Digest| match name.filter(|name| !name.is_empty()) {
        Some(name) => terminal::printable(name),
        None => paint.dim(&format!("~{}", id.to_string().chars().take(8).collect::<String>())),
    };
    let user = who(record.user.as_deref(), &row.subject);
    let actor = row.actor.as_ref().map(|id| format!(" by {}", who(record.actor.as_deref(), id))).unwrap_or_default();
    let resource = match (&record.detail, record.erased_by) {
        (Some(detail), _) => terminal::printable(&detail.resource),
        (None, Some(_)) => paint.dim("(forgotten)"),
        (None, None) => paint.dim("(not told)"),
    };
    let reason = record.detail.as_ref().map(|detail| terminal::printable(&detail.reason)).unwrap_or_default();
    let outcome = if reason.is_empty() { terminal::printable(&row.outcome) } else { reason };
    let policies = terminal::printable(&row.policies.join(", "));
    let time = terminal::time(row.time_ms);
    terminal::line(&format!(
        "{:>7} {time} {decision} {user}{actor} {} {resource}: {outcome} {}",
        row.seq,
        row.action,
        paint.dim(&format!("[{policies}]"))
    ))
}

async fn export(whose: &Whose, file: Option<&Path>, after: u64, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let query: Vec<_> = [("after", after.to_string())].into_iter().chain(whose.query()).collect();
    let mut response = client.read(&whose.route("audit-export"), &query).await?;
    let shown = || file.map_or_else(|| "standard output".to_owned(), |file| file.display().to_string());
    let failed = |source| AuditError::Write { path: shown(), source };
    let mut out: Box<dyn std::io::Write> = match file {
        Some(file) => Box::new(File::create_new(file).map_err(failed)?),
        None => Box::new(std::io::stdout()),
    };
    let mut rows = 0_usize;
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        rows += chunk.iter().filter(|byte| **byte == b'\n').count();
        out.write_all(&chunk).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    let Some(file) = file else { return Ok(ExitCode::SUCCESS) };
    let shown = terminal::printable(&shown());
    say(&common, &serde_json::json!({ "file": file, "lines": rows }), || format!("{rows} lines to {shown}"))
}

fn verify(args: AuditVerifyArgs, json: bool) -> Result<ExitCode, VerbError> {
    let read = |path: &Path| {
        let failed = |source| VerbError::ReadLocal { path: path.display().to_string(), source };
        File::open(path).map_err(failed)
    };
    let reports = if let Some(file) = args.file {
        let keys = match &args.keys {
            Some(path) => {
                let text = std::io::read_to_string(read(path)?)?;
                Some(AuditKeys::from_jwks(&text).map_err(AuditError::from)?)
            }
            None => None,
        };
        let checked = verify_export(BufReader::new(read(&file)?), keys.as_ref()).map_err(AuditError::from)?;
        if !checked.is_trusted && !json {
            let key = terminal::printable(&checked.key);
            note!("signed by key {key}, as the export says itself: compare it with the server's, or give --keys");
        }
        vec![checked.report]
    } else {
        require_root()?;
        let serve = config::data(args.data)?.join("serve");
        if !serve.join("keys/issuer.pem").is_file() {
            return Err(AuditError::NoServer { path: serve.display().to_string() }.into());
        }
        let keys = Issuer::open(&serve, SERVER_UID).map_err(AuditError::from)?.audit_signer().keys();
        let only = args.tenant.map(Chain::Tenant);
        verify_audit(&serve.join("bailey.db"), &keys, only.as_ref(), args.anchor).map_err(AuditError::from)?
    };
    tell(&reports, json)?;
    let is_whole = !reports.is_empty() && reports.iter().all(Report::is_whole);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn tell(reports: &[Report], json: bool) -> std::io::Result<()> {
    if json {
        return terminal::json(&reports);
    }
    let paint = terminal::Paint::stdout();
    if reports.is_empty() {
        return terminal::line(&paint.red("there is no chain at all"));
    }
    for report in reports {
        let state = if report.is_whole() { paint.green("whole") } else { paint.red("broken") };
        let chain = terminal::printable(&report.chain);
        terminal::line(&format!(
            "{chain}: {state}, {} rows, signed up to {}, {} forgotten, {}head {}",
            report.rows,
            report.signed,
            report.forgotten,
            if report.withheld > 0 { format!("{} left out, ", report.withheld) } else { String::new() },
            report.head
        ))?;
        for fault in &report.faults {
            terminal::line(&format!("  {}", terminal::printable(&fault.to_string())))?;
        }
        if report.more_faults > 0 {
            terminal::line(&format!("  and {} more", report.more_faults))?;
        }
    }
    Ok(())
}
