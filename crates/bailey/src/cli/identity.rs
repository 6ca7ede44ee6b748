//! `bailey user`, `bailey tenant`, `bailey account`, `bailey key`.

use std::time::Duration;

use bailey_protocol::api::identity::AccountKind;
use bailey_protocol::id::{KeyId, TenantId, UserId};
use bailey_protocol::path::TreePath;
use clap::{Args, Subcommand};

use super::value;

#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    #[command(subcommand)]
    pub(crate) verb: UserVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserVerb {
    /// List the tenant's users who were seen or are disabled
    List {
        /// With an operator's token: whose users
        #[arg(long, value_name = "TENANT")]
        tenant: Option<TenantId>,
    },
    /// End everything of a user's: streams, runs, keys
    Disable(UserNamed),
    /// Let a user ask again
    Enable(UserNamed),
    /// End everything of a user's for good, and take all that names it off the server's disk
    Forget(UserNamed),
}

#[derive(Debug, Args)]
pub(crate) struct UserNamed {
    /// The user
    pub(crate) user: UserId,
    /// With an operator's token: the user's tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<TenantId>,
}

#[derive(Debug, Args)]
pub(crate) struct TenantArgs {
    #[command(subcommand)]
    pub(crate) verb: TenantVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantVerb {
    /// List tenants (operators)
    List,
    /// End everything of a tenant's (operators)
    Disable {
        /// The tenant
        tenant: TenantId,
    },
    /// Let a tenant's users ask again (operators)
    Enable {
        /// The tenant
        tenant: TenantId,
    },
    /// Show what is noted of a tenant (operators)
    Show {
        /// The tenant
        tenant: TenantId,
    },
    /// Note a tenant's region and plan, which policies look at (operators)
    Set(TenantSetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TenantSetArgs {
    /// The tenant
    pub(crate) tenant: TenantId,
    /// Where its data has to stay; stays as it is without this
    #[arg(long, value_name = "REGION", required_unless_present_any = ["plan", "no_region", "no_plan"])]
    pub(crate) region: Option<String>,
    /// What it paid for; stays as it is without this
    #[arg(long, value_name = "PLAN")]
    pub(crate) plan: Option<String>,
    /// Forget the region
    #[arg(long, conflicts_with = "region")]
    pub(crate) no_region: bool,
    /// Forget the plan
    #[arg(long, conflicts_with = "plan")]
    pub(crate) no_plan: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AccountArgs {
    #[command(subcommand)]
    pub(crate) verb: AccountVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccountVerb {
    /// List service accounts and operators that are disabled
    List,
    /// End every token of a service account or an operator, and those that it exchanged
    Disable(AccountNamed),
    /// Let a service account or an operator ask again
    Enable(AccountNamed),
}

#[derive(Debug, Args)]
pub(crate) struct AccountNamed {
    /// `service` or `operator`
    pub(crate) kind: AccountKind,
    /// Its name
    pub(crate) name: UserId,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub(crate) verb: KeyVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Make a key and print it: the only time that it is shown
    Create(KeyCreateArgs),
    /// List the tenant's keys
    List,
    /// End a key and what goes on by it
    Revoke {
        /// Its id, such as `key_…`
        key: KeyId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct KeyCreateArgs {
    /// What it is for
    #[arg(long)]
    pub(crate) name: String,
    /// As whom it acts: a machine's user, such as `+ci`; you without it
    #[arg(long = "as", value_name = "USER")]
    pub(crate) user: Option<UserId>,
    /// A role of yours that it has; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    pub(crate) roles: Vec<String>,
    /// A primitive of yours that it may use; may be repeated; all of yours without it
    #[arg(long = "entitle", value_name = "NAME")]
    pub(crate) entitlements: Vec<String>,
    /// An action that it is for, such as `tree_read`; may be repeated; the daily work without it
    #[arg(long = "action", value_name = "ACTION")]
    pub(crate) actions: Vec<String>,
    /// A path that it is for, with what is below it; may be repeated; every path without it
    #[arg(long = "path", value_name = "PATH", value_parser = value::path)]
    pub(crate) paths: Vec<TreePath>,
    /// Let it only look
    #[arg(long)]
    pub(crate) read_only: bool,
    /// How long it is good for, such as `90d`
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) ttl: Duration,
}
