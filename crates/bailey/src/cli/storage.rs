//! `bailey purge`, `bailey quota` and `bailey gc`.

use bailey_protocol::id::TenantId;
use bailey_protocol::path::TreePath;
use bailey_protocol::purge::PurgeId;
use clap::{Args, Subcommand};

use super::value;

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PurgeArgs {
    /// The file or folder; every version that had it gets a new id, and the old one answers 410
    #[arg(value_parser = value::path)]
    pub(crate) path: Option<TreePath>,
    /// Show the receipt of an earlier purge
    #[arg(long, value_name = "ID")]
    pub(crate) receipt: Option<PurgeId>,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaArgs {
    #[command(subcommand)]
    pub(crate) verb: QuotaVerb,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaSetArgs {
    /// The tenant
    pub(crate) tenant: TenantId,
    /// Back to what is usual
    #[arg(long, conflicts_with_all = ["bytes", "files", "largest_file", "versions", "version_days", "side_branch_days"])]
    pub(crate) usual: bool,
    /// On disk, over all versions, such as `10G`
    #[arg(long, value_name = "SIZE", value_parser = value::size,
        required_unless_present_any = ["usual", "files", "largest_file", "versions", "version_days", "side_branch_days"])]
    pub(crate) bytes: Option<u64>,
    /// Files, folders and versions
    #[arg(long, value_name = "COUNT")]
    pub(crate) files: Option<u64>,
    /// Largest file, such as `1G`
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(crate) largest_file: Option<u64>,
    /// Versions of each branch that are kept
    #[arg(long, value_name = "COUNT")]
    pub(crate) versions: Option<u64>,
    /// Days after which older versions go; 0 for never
    #[arg(long, value_name = "DAYS")]
    pub(crate) version_days: Option<u64>,
    /// Days after which side branches of runs go
    #[arg(long, value_name = "DAYS")]
    pub(crate) side_branch_days: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// The tenant
    pub(crate) tenant: TenantId,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QuotaVerb {
    /// Show what a tenant may keep, and does: your own (its admins), or any (operators)
    Show {
        /// The tenant, for operators
        #[arg(long)]
        tenant: Option<TenantId>,
    },
    /// Set what a tenant may keep (operators); what is not named stays as it is
    Set(Box<QuotaSetArgs>),
}
