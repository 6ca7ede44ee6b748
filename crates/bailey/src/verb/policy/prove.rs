//! `bailey policy prove`: what holds for every request there can be, one line for each claim.

use std::path::Path;
use std::process::ExitCode;

use bailey_control::db::tenant_policies;
use bailey_policy::Policies;
use bailey_policy::prove::{Claim, Difference, Example, Finding, Outcome};
use serde::Serialize;
use serde_json::json;

use super::{PolicyVerbError, VerbError, load};
use crate::cli::Common;
use crate::cli::policy::ProveArgs;
use crate::config::{self, policies};
use crate::{exit, terminal};

/// How many claims came out how.
#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Summary {
    sets: usize,
    proven: usize,
    violated: usize,
    unproven: usize,
}

impl Summary {
    fn count(&mut self, finding: &Finding) {
        match finding.outcome {
            Outcome::Proven => self.proven += 1,
            Outcome::Violated { .. } => self.violated += 1,
            Outcome::Unproven { .. } => self.unproven += 1,
        }
    }
}

pub(super) async fn carry_out(args: ProveArgs, common: &Common) -> Result<ExitCode, VerbError> {
    let prover = config::prover().ok_or(PolicyVerbError::NoSolver)?;
    let platform = operators(&args)?;
    let mut sets = vec![("operator".to_owned(), platform.clone())];
    if let Some(data) = &args.data {
        for (tenant, own) in tenant_policies(&data.join("serve/bailey.db")).map_err(PolicyVerbError::from)? {
            let set = platform.with_tenant(&own);
            let set = set.map_err(|source| PolicyVerbError::Tenant { tenant: tenant.to_string(), source })?;
            sets.push((format!("tenant {tenant}"), set));
        }
    }
    let mut summary = Summary { sets: sets.len(), ..Summary::default() };
    for (whose, set) in &sets {
        let mut told = |finding: &Finding| {
            // What cannot be printed is still in the exit code.
            drop(tell(whose, finding, common.json));
        };
        let findings = if whose == "operator" {
            prover.prove(set, &mut told).await
        } else {
            prover.prove_tenants(set, &mut told).await
        };
        findings.map_err(PolicyVerbError::from)?.iter().for_each(|finding| summary.count(finding));
    }
    if let Some(against) = &args.against {
        let differences = prover.compare(&platform, &load(Some(against))?).await.map_err(PolicyVerbError::from)?;
        differences.iter().try_for_each(|difference| differs(difference, common.json))?;
    }
    sum_up(summary, common.json)?;
    let proven = (summary.violated, summary.unproven) == (0, 0);
    Ok(if proven { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// The folder that is named, or else what the server of the data folder has put in force last, or the base rules.
fn operators(args: &ProveArgs) -> Result<Policies, PolicyVerbError> {
    match (&args.policies, &args.data) {
        (Some(_), _) | (None, None) => load(args.policies.as_deref()),
        (None, Some(data)) => in_force(&data.join("serve").join(policies::IN_FORCE)),
    }
}

fn in_force(path: &Path) -> Result<Policies, PolicyVerbError> {
    let shown = || path.display().to_string();
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(PolicyVerbError::NothingInForce { path: shown() });
        }
        Err(source) => return Err(PolicyVerbError::Read { path: shown(), source }),
    };
    let files: Vec<(String, String)> =
        serde_json::from_slice(&text).map_err(|source| PolicyVerbError::InForce { path: shown(), source })?;
    Ok(Policies::new(&files)?)
}

fn tell(whose: &str, finding: &Finding, json: bool) -> std::io::Result<()> {
    if json {
        return terminal::json(&json!({ "policies": whose, "finding": finding }));
    }
    let claim = match &finding.claim {
        Claim::TenantsApart => "tenants are apart".to_owned(),
        Claim::BaseRule(rule) => format!("base rule `{rule}` holds"),
        Claim::NeverErrors(policy) => format!("policy `{policy}` never errors"),
    };
    let paint = terminal::Paint::stdout();
    let (word, why) = match &finding.outcome {
        Outcome::Proven => (paint.green("proven  "), String::new()),
        Outcome::Violated { example } => (paint.red("VIOLATED"), format!(": {}", request(example))),
        Outcome::Unproven { why } => (paint.yellow("UNPROVEN"), format!(": {why}")),
    };
    terminal::line(&format!("{word} {}", terminal::printable(&format!("{whose}: {claim}{why}"))))
}

/// Who does what on what, with the attributes that it is about.
fn request(example: &Example) -> String {
    let matters: Vec<_> = example.matters.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let given = if matters.is_empty() { String::new() } else { format!(" where {}", matters.join(", ")) };
    format!("{} may do {} on {}{given}", example.principal, example.action, example.resource)
}

fn differs(difference: &Difference, json: bool) -> std::io::Result<()> {
    if json {
        return terminal::json(difference);
    }
    let word = difference.change.replace('_', " ");
    terminal::line(&terminal::printable(&format!("{word}: {}", request(&difference.example))))
}

fn sum_up(summary: Summary, json: bool) -> std::io::Result<()> {
    if json {
        return terminal::json(&json!({ "summary": summary }));
    }
    let Summary { sets, proven, violated, unproven } = summary;
    terminal::line(&format!(
        "{sets} sets of policies: {proven} claims proven, {violated} violated, {unproven} unproven"
    ))
}
