//! `bailey attest --verify`: whether a report is what was signed, and whether all of it held. Needs no root and no host.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use bailey_control::audit::AuditKeys;
use bailey_protocol::audit::HexBytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AttestError;
use super::report::canonical;
use crate::terminal::note;
use crate::verb::VerbError;
use crate::{exit, terminal};

/// Largest report or key set, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// What `--json` printed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    report: Value,
    signature: HexBytes,
    key: ToldKey,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToldKey {
    id: String,
    public_key: HexBytes,
}

/// What counts in the part that is signed.
#[derive(Debug, Deserialize)]
struct Claims {
    bailey: String,
    wall: String,
    kernel: String,
    time_ms: u64,
    attacks: Vec<Claim>,
}

#[derive(Debug, Deserialize)]
struct Claim {
    id: String,
    name: String,
    verdict: String,
    why: Option<String>,
}

/// Exit code 0 if the signature is right and every attack was tried and held.
pub(super) fn carry_out(file: &Path, keys: Option<&Path>, json: bool) -> Result<ExitCode, VerbError> {
    let no_report = |source| AttestError::NoReport { path: file.display().to_string(), source };
    let told: Told = serde_json::from_str(&read(file)?).map_err(no_report)?;
    let claims = Claims::deserialize(&told.report).map_err(no_report)?;
    let trusted = match keys {
        Some(path) => AuditKeys::from_jwks(&read(path)?).map_err(AttestError::from)?,
        None => AuditKeys::of(told.key.public_key.as_bytes()),
    };
    let signed = canonical(&told.report).map_err(AttestError::Write)?;
    let is_signed = trusted.signed_report(&told.key.id, signed.as_bytes(), &told.signature);
    let counts = claims.attacks.iter().fold(BTreeMap::new(), |mut counts: BTreeMap<&str, usize>, attack| {
        *counts.entry(attack.verdict.as_str()).or_default() += 1;
        counts
    });
    let count = |verdict| counts.get(verdict).copied().unwrap_or_default();
    let has_held = count("held") == claims.attacks.len() && !claims.attacks.is_empty();
    if json {
        terminal::json(&json!({
            "signed": is_signed, "trusted": keys.is_some(), "key": told.key.id, "all_held": has_held,
            "held": count("held"), "broken": count("broken"), "not_tried": count("not_tried"),
        }))?;
    } else {
        tell(&claims, is_signed, has_held)?;
    }
    if is_signed && keys.is_none() && !json {
        let key = terminal::printable(&told.key.id);
        note!("signed by key {key}, as the report says itself: compare it with the server's, or give --keys");
    }
    Ok(if is_signed && has_held { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn tell(claims: &Claims, is_signed: bool, has_held: bool) -> std::io::Result<()> {
    let paint = terminal::Paint::stdout();
    if !is_signed {
        return terminal::line(&paint.red("not signed: the report, its signature or its key is not what it was"));
    }
    for attack in claims.attacks.iter().filter(|attack| attack.verdict != "held") {
        let why = attack.why.as_deref().unwrap_or_default();
        let shown = format!("{} {} {}: {why}", attack.verdict, attack.id, attack.name);
        terminal::line(&format!("  {}", terminal::printable(&shown)))?;
    }
    let state = if has_held { paint.green("all held") } else { paint.red("not all held") };
    let host = format!("bailey {}, wall {}, kernel {}", claims.bailey, claims.wall, claims.kernel);
    let time = terminal::time(claims.time_ms);
    terminal::line(&format!("signed; {state} of {} at {time}: {}", claims.attacks.len(), terminal::printable(&host)))
}

fn read(path: &Path) -> Result<String, VerbError> {
    let failed = |source| VerbError::ReadLocal { path: path.display().to_string(), source };
    let file = File::open(path).map_err(failed)?;
    let mut text = String::new();
    let size = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if u64::try_from(size).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(VerbError::Input { what: "the file has more than 1 MiB, which no report and no key set has" });
    }
    Ok(text)
}
