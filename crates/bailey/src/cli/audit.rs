//! `bailey audit`.

use std::path::PathBuf;
use std::time::Duration;

use bailey_protocol::id::{RunId, TenantId, UserId};
use clap::{Args, Subcommand};

use super::value;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) list: AuditListArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<AuditVerb>,
}

/// Whose audit; the own tenant's without any of it.
#[derive(Debug, Args)]
pub(crate) struct Whose {
    /// The operator's (operator)
    #[arg(long, conflicts_with = "tenant")]
    pub(crate) operator: bool,
    /// That tenant's, without names and what its rows are about (operator)
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<TenantId>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditListArgs {
    #[command(flatten)]
    pub(crate) whose: Whose,
    /// By this user
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<UserId>,
    /// For this action, such as `tree_write`
    #[arg(long, value_name = "ACTION", value_parser = value::audited_action)]
    pub(crate) action: Option<String>,
    /// What was decided
    #[arg(long, value_parser = ["allowed", "denied"])]
    pub(crate) decision: Option<String>,
    /// By or about this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// About what begins so, such as `/tenants/acme/reports`
    #[arg(long, value_name = "PREFIX")]
    pub(crate) resource: Option<String>,
    /// No older than this, such as `1h`
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) since: Option<Duration>,
    /// At most this many, the latest
    #[arg(long, short = 'n', default_value_t = 50)]
    pub(crate) limit: u32,
    /// Go on as rows come
    #[arg(long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Write a whole audit, with its hashes and signatures, as NDJSON
    Export {
        #[command(flatten)]
        whose: Whose,
        /// Where to; standard output without it
        file: Option<PathBuf>,
        /// Rows after this one
        #[arg(long, value_name = "ROW", default_value_t = 0)]
        after: u64,
    },
    /// Say whether an export, or a server's own audit, is whole, and where it breaks
    Verify(AuditVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerifyArgs {
    /// The export; without it, the audit of the server whose data folder is here (root)
    pub(crate) file: Option<PathBuf>,
    /// Data folder of the server [default: /var/lib/bailey]
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    pub(crate) data: Option<PathBuf>,
    /// The server's key set (its `/.well-known/jwks.json`), for an export; without it the export's own key is taken
    #[arg(long, value_name = "FILE", requires = "file")]
    pub(crate) keys: Option<PathBuf>,
    /// Only this tenant's chain
    #[arg(long, conflicts_with = "file")]
    pub(crate) tenant: Option<TenantId>,
    /// A row of the operator's chain as a log line `audit checkpoint` told it: it has to be there
    #[arg(long, value_name = "ROW:HASH", value_parser = anchor, conflicts_with_all = ["file", "tenant"])]
    pub(crate) anchor: Option<(u64, bailey_protocol::audit::Digest)>,
}

fn anchor(text: &str) -> Result<(u64, bailey_protocol::audit::Digest), String> {
    let rule = || format!("`{text}` is no row and hash: use both, such as `12:9f…`");
    let (row, hash) = text.split_once(':').ok_or_else(rule)?;
    Ok((row.parse().map_err(|_not_a_number| rule())?, hash.parse().map_err(|_not_a_hash| rule())?))
}
