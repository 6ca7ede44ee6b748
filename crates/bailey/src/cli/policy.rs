//! `bailey policy`.

use std::path::PathBuf;

use bailey_protocol::id::{RunId, UserId};
use bailey_protocol::path::{BranchName, TreePath};
use clap::{Args, Subcommand};

use super::value;

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) verb: PolicyVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Say which policies are in force (operator)
    Status,
    /// List the tenant's own policies (admin)
    Ls,
    /// Add one of the tenant's own policies, or replace it (admin)
    Put {
        /// Its name
        name: String,
        /// A file with one `forbid`
        file: PathBuf,
    },
    /// Take one of the tenant's own policies away (admin)
    Rm {
        /// Its name
        name: String,
    },
    /// Say why a request is allowed or denied: one's own, or for admins another user's
    Explain {
        /// Such as `tree_read`
        action: String,
        /// About a path
        #[arg(long, value_name = "PATH", conflicts_with = "run", value_parser = value::path)]
        path: Option<TreePath>,
        /// On which branch
        #[arg(long = "ref", alias = "branch", value_name = "BRANCH", requires = "path")]
        branch: Option<BranchName>,
        /// About a run
        #[arg(long, value_name = "RUN")]
        run: Option<RunId>,
        /// Whose request it would be (admin); one's own without it
        #[arg(long, value_name = "USER")]
        user: Option<UserId>,
    },
    /// Say what a folder of policies would have decided otherwise in the last day (operator)
    DryRun {
        /// The folder
        folder: PathBuf,
    },
    /// Put a folder of cases to policies, without a server
    Test {
        /// Folder with `*.toml` cases
        folder: PathBuf,
        /// Folder with the operator's policies; the base rules alone without it
        #[arg(long, value_name = "FOLDER")]
        policies: Option<PathBuf>,
    },
    /// Prove what holds for every request, without a server (needs cvc5)
    Prove(ProveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// Folder with the operator's policies; what is in force in `--data` without it, or the base rules alone
    #[arg(long, value_name = "FOLDER")]
    pub(crate) policies: Option<PathBuf>,
    /// A server's data folder: the policies in force there are proven, the operator's and each tenant's own (root)
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Also show what differs from the policies in this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) against: Option<PathBuf>,
}
