//! `bailey policy`: what is in force, why something is denied, and what policies mean without a server.

mod prove;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bailey_control::db::DbError;
use bailey_policy::case::CaseFile;
use bailey_policy::prove::ProveError;
use bailey_policy::{Policies, PolicyError};
use bailey_protocol::api::policy::{
    DryRunAnswer, DryRunRequest, DryRunRow, ExplainAnswer, ExplainRequest, PolicyState, PolicyText, TenantPolicy,
    TenantPolicyList,
};
use reqwest::Method;

use super::{VerbError, connect, say, say_list};
use crate::cli::Common;
use crate::cli::policy::{PolicyArgs, PolicyVerb};
use crate::client::segment;
use crate::config::policies::PolicyFolderError;
use crate::{config, exit, terminal};

/// Why policies cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyVerbError {
    #[error(transparent)]
    Folder(#[from] PolicyFolderError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("the policies of tenant `{tenant}` do not hold: {source}")]
    Tenant { tenant: String, source: PolicyError },
    #[error(transparent)]
    Prove(#[from] ProveError),
    #[error("there is no cvc5: `apt-get install cvc5`, or name it in the variable CVC5")]
    NoSolver,
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("`{path}` holds no policies that were in force: {source}")]
    InForce { path: String, source: serde_json::Error },
    #[error("no server has told in `{path}` which policies are in force: name the operator's with `--policies`")]
    NothingInForce { path: String },
    #[error("cannot read `{path}`: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("`{path}` holds no cases: {source}")]
    Cases { path: String, source: Box<toml::de::Error> },
    #[error("there is no `*.toml` in `{path}`")]
    NoCases { path: String },
}

pub(super) async fn carry_out(args: PolicyArgs, common: Common) -> Result<ExitCode, VerbError> {
    match args.verb {
        PolicyVerb::Status => status(&common).await,
        PolicyVerb::Ls => list(&common).await,
        PolicyVerb::Put { name, file } => {
            let failed = |source| PolicyVerbError::Read { path: file.display().to_string(), source };
            let text = PolicyText { policy: std::fs::read_to_string(&file).map_err(failed)? };
            let client = connect(&common)?;
            let put: TenantPolicy =
                client.json(Method::PUT, &format!("/v1/policies/{}", segment(&name)), Some(&text)).await?;
            say(&common, &put, || format!("tenant/{} is in force", terminal::printable(&put.name)))
        }
        PolicyVerb::Rm { name } => {
            connect(&common)?.remove(&format!("/v1/policies/{}", segment(&name)), &[]).await?;
            let value = serde_json::json!({ "name": name, "deleted": true });
            say(&common, &value, || format!("tenant/{} is taken away", terminal::printable(&name)))
        }
        PolicyVerb::Explain { action, path, branch, run, user } => {
            explain(ExplainRequest { action, path, branch, run, user }, &common).await
        }
        PolicyVerb::DryRun { folder } => dry_run(&folder, &common).await,
        PolicyVerb::Test { folder, policies } => Ok(test(&folder, policies.as_deref(), &common)?),
        PolicyVerb::Prove(args) => prove::carry_out(args, &common).await,
    }
}

async fn status(common: &Common) -> Result<ExitCode, VerbError> {
    let state: PolicyState = connect(common)?.get("/v1/operator/policies", &[]).await?;
    let refused = state.refused.is_some();
    say(common, &state, || {
        let since = terminal::time(state.since_ms);
        let mut text = format!("{} policies since {since}: {}", state.policies, terminal::printable(&state.proof));
        if let Some(why) = &state.refused {
            text.push_str(&format!("\nthe last change was refused: {}", terminal::printable_lines(why)));
        }
        text
    })?;
    Ok(if refused { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
}

async fn list(common: &Common) -> Result<ExitCode, VerbError> {
    let own: TenantPolicyList = connect(common)?.get("/v1/policies", &[]).await?;
    say_list(common, &own, "no policies of the tenant's own", || {
        let text = |policy: &TenantPolicy| {
            format!("// tenant/{}\n{}", policy.name, terminal::printable_lines(policy.policy.trim_end()))
        };
        own.policies.iter().map(text).collect::<Vec<_>>().join("\n\n")
    })
}

async fn explain(ask: ExplainRequest, common: &Common) -> Result<ExitCode, VerbError> {
    let found: ExplainAnswer = connect(common)?.post("/v1/explain", &ask).await?;
    say(common, &found, || {
        let word = if found.allowed { "allowed" } else { "denied" };
        let mut text = word.to_owned();
        if !found.policies.is_empty() {
            text.push_str(&format!(" by {}", terminal::printable(&found.policies.join(", "))));
        }
        if !found.reason.is_empty() {
            text.push_str(&format!(": {}", terminal::printable(&found.reason)));
        }
        for change in &found.changes {
            let now = change.now.as_deref().unwrap_or("(absent)");
            let then = change.would_be.as_deref().unwrap_or("(absent)");
            let line = format!("  it would not be, if {} were {then} instead of {now}", change.attribute);
            text.push_str(&format!("\n{}", terminal::printable(&line)));
        }
        if !found.judged.is_empty() {
            let pairs: Vec<_> = found.judged.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            text.push_str(&format!("\n  for a sandbox with {}", terminal::printable(&pairs.join(", "))));
        }
        if let Some(seen_ms) = found.seen_ms {
            text.push_str(&format!("\n  with the roles and entitlements of {}", terminal::time(seen_ms)));
        }
        if found.changes.is_empty() && found.searched.asked > 0 {
            let searched = found.searched;
            let line = format!("{} changes, up to {} at once", searched.candidates, searched.at_once);
            text.push_str(&format!("\n  nothing that would turn this around was found among {line}"));
        }
        text
    })
}

async fn dry_run(folder: &Path, common: &Common) -> Result<ExitCode, VerbError> {
    let files: BTreeMap<_, _> = config::policies::read(folder).map_err(PolicyVerbError::from)?.into_iter().collect();
    let found: DryRunAnswer = connect(common)?.post("/v1/operator/policies/dry-run", &DryRunRequest { files }).await?;
    say(common, &found, || {
        let mut lines = vec![format!("{} distinct requests of the last day", found.asked)];
        let row = |word: &str, row: &DryRunRow| {
            let DryRunRow { principal, action, resource, count, by, .. } = row;
            terminal::printable(&format!(
                "{word}: {principal} {action} {resource}, {count} times, by {}",
                by.join(", ")
            ))
        };
        lines.extend(found.newly_denied.iter().map(|found| row("newly denied", found)));
        lines.extend(found.newly_allowed.iter().map(|found| row("newly allowed", found)));
        if found.more > 0 {
            lines.push(format!("and {} more", found.more));
        }
        lines.join("\n")
    })
}

fn load(folder: Option<&Path>) -> Result<Policies, PolicyVerbError> {
    let files = folder.map(config::policies::read).transpose()?.unwrap_or_default();
    Ok(Policies::new(&files)?)
}

fn test(folder: &Path, policies: Option<&Path>, common: &Common) -> Result<ExitCode, VerbError> {
    let policies = load(policies)?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(|source| PolicyVerbError::Read { path: folder.display().to_string(), source })?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    if files.is_empty() {
        return Err(PolicyVerbError::NoCases { path: folder.display().to_string() }.into());
    }
    let (mut passed, mut failed) = (0_u32, Vec::new());
    for file in files {
        let path = file.display().to_string();
        let text =
            std::fs::read_to_string(&file).map_err(|source| PolicyVerbError::Read { path: path.clone(), source })?;
        let cases: CaseFile = toml::from_str(&text)
            .map_err(|source| PolicyVerbError::Cases { path: path.clone(), source: Box::new(source) })?;
        for case in cases.cases {
            match case.check(&policies) {
                Ok(()) => passed += 1,
                Err(error) => failed.push(format!("{path}: {}: {error}", case.name)),
            }
        }
    }
    let shown = serde_json::json!({ "passed": passed, "failed": failed });
    say(common, &shown, || {
        let mut lines: Vec<_> = failed.iter().map(|line| terminal::printable(line)).collect();
        lines.push(format!("{passed} cases hold, {} do not", failed.len()));
        lines.join("\n")
    })?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}
