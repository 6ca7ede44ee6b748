//! What can be said about branches, labels, tree tokens and baselines.

use std::path::PathBuf;

use bailey_protocol::api::ForkSource;
use bailey_protocol::id::{BaselineName, UserId};
use bailey_protocol::label::Label;
use bailey_protocol::path::{BranchName, TreePath};
use clap::{ArgGroup, Args, Subcommand};

use super::value;

/// Which store a verb is about.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store: `/tenants/TENANT` or `/tenants/TENANT/users/USER`; the token's tenant without it
    #[arg(long = "in", value_name = "PATH", value_parser = value::path)]
    pub(crate) store: Option<TreePath>,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The new branch
    pub(crate) branch: BranchName,
    /// A branch, a version, or `baseline:NAME[@NUMBER]`; `main` without it
    #[arg(long, value_name = "REF")]
    pub(crate) from: Option<ForkSource>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BranchesArgs {
    /// Take this branch away
    #[arg(long, value_name = "BRANCH")]
    pub(crate) delete: Option<BranchName>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PromoteArgs {
    /// The branch whose changes are taken
    pub(crate) from: BranchName,
    /// The branch that they go to
    #[arg(long, value_name = "BRANCH")]
    pub(crate) into: BranchName,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ProtectArgs {
    /// The branch
    pub(crate) branch: BranchName,
    /// Who promotes must be somebody else than who made what is promoted
    #[arg(long)]
    pub(crate) review: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UnprotectArgs {
    /// The branch
    pub(crate) branch: BranchName,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// The path; its labels hold for all below it
    #[arg(value_parser = value::path)]
    pub(crate) path: TreePath,
    /// All labels of the path, such as `confidential`; shows those there are without any
    #[arg(conflicts_with = "clear")]
    pub(crate) labels: Vec<Label>,
    /// Take all labels of the path off
    #[arg(long)]
    pub(crate) clear: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ShareArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<ShareVerb>,
    #[command(flatten)]
    pub(crate) new: ShareNew,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("mode").required(true).args(["read", "write"]))]
pub(crate) struct ShareNew {
    /// The path, with all below it
    #[arg(required = true, value_parser = value::path)]
    pub(crate) path: Option<TreePath>,
    /// For reading
    #[arg(long)]
    pub(crate) read: bool,
    /// For reading and writing
    #[arg(long)]
    pub(crate) write: bool,
    /// For how long, 1 to 1440
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    pub(crate) minutes: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShareVerb {
    /// List tree tokens that hold: your own, or another user's (admins)
    List {
        /// Whose
        #[arg(long, value_name = "USER")]
        user: Option<UserId>,
    },
    /// End a tree token
    Revoke {
        /// Its id
        id: bailey_protocol::id::TokenId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BaselineArgs {
    #[command(subcommand)]
    pub(crate) verb: BaselineVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BaselineVerb {
    /// List what operators published
    List {
        /// With an operator's token
        #[arg(long)]
        operator: bool,
    },
    /// Publish a local folder for every tenant to fork from (operators)
    Publish {
        /// Its name
        name: BaselineName,
        /// The local folder
        folder: PathBuf,
    },
}
