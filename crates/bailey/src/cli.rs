//! What can be said on the command line.

pub(crate) mod advise;
pub(crate) mod audit;
pub(crate) mod branch;
mod example;
pub(crate) mod identity;
pub(crate) mod policy;
pub(crate) mod storage;
pub(crate) mod tree;
pub(crate) mod value;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bailey_protocol::api::MountRequest;
use bailey_protocol::id::{RunId, TemplateName, TenantId, UserId};
use bailey_protocol::path::{BranchName, SandboxPath, TreePath};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::exit;

/// Runs code that nobody reviewed, over one tenant's files, inside a wall.
#[derive(Debug, Parser)]
#[command(name = "bailey", version, after_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Reads a command line.
///
/// # Errors
/// When it makes no sense, or asks for help.
pub(crate) fn parse<T: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = T>) -> Result<Cli, clap::Error> {
    let mut command = example::shown(Cli::command());
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Flags that every verb takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The server [BAILEY_URL, then `server` in ~/.config/bailey/config.toml, then http://127.0.0.1:8470]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The bearer token [BAILEY_TOKEN, then `token` in ~/.config/bailey/config.toml]
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Start the server (root)
    Serve(ServeArgs),
    /// Prove by booting which walls work on this machine (root)
    Doctor(DoctorArgs),
    /// Attack this machine from inside sandboxes, and sign what came of it (root)
    Attest(AttestArgs),
    /// Say which wall a piece of code belongs behind, and why
    Advise(Box<advise::AdviseArgs>),
    /// Print a token of this machine's own issuer (root)
    Token(TokenArgs),
    /// Run a program in a fresh sandbox
    Run(Box<RunArgs>),
    /// List a folder of the tree
    Ls(tree::ListArgs),
    /// Print a file of the tree
    Cat(tree::CatArgs),
    /// Write a local file or folder into the tree
    Put(PutArgs),
    /// Write a file or folder of the tree to the local disk
    Get(tree::GetArgs),
    /// Change a part of a file of the tree
    Edit(tree::EditArgs),
    /// Copy a file or folder within the tree
    Cp(tree::CopyArgs),
    /// Move a file or folder within the tree
    Mv(tree::MoveArgs),
    /// Make a folder in the tree
    Mkdir(RmArgs),
    /// Delete a file or folder of the tree
    Rm(RmArgs),
    /// List the versions of a path, newest first
    #[command(visible_alias = "history")]
    Log(LogArgs),
    /// Show what differs between two versions of a path
    Diff(DiffArgs),
    /// Show which version each line of a file comes from
    Blame(AtArgs),
    /// Make a path what it was in a version
    Restore(tree::VersionArgs),
    /// Take back what a version changed at and below a path
    Revert(tree::VersionArgs),
    /// Write a folder of the tree to a local tar or zip
    Archive(tree::ArchiveArgs),
    /// Take a local tar or zip into a folder of the tree
    Extract(tree::ExtractArgs),
    /// Make a branch, at once at any size
    Fork(branch::ForkArgs),
    /// List the branches of a store, or take one away
    Branches(branch::BranchesArgs),
    /// Bring one branch's changes into another
    Promote(branch::PromoteArgs),
    /// Let only promotions change a branch
    Protect(branch::ProtectArgs),
    /// End the protection of a branch
    Unprotect(branch::UnprotectArgs),
    /// Show or set the labels of a path
    Label(branch::LabelArgs),
    /// Hand out a token for a part of the tree
    Share(branch::ShareArgs),
    /// List what operators published to fork from, or publish it
    Baseline(branch::BaselineArgs),
    /// List your runs, or show one
    Runs(RunsArgs),
    /// Show who did what in your tenant (admins), or verify that record
    Audit(audit::AuditArgs),
    /// Show, explain, test and prove policies
    Policy(policy::PolicyArgs),
    /// Take a path out of all history of its store, for good, or show such a receipt
    Purge(storage::PurgeArgs),
    /// Show or set what a tenant may keep
    Quota(storage::QuotaArgs),
    /// Let go of a tenant's old versions and garbage now (operators); the server does so by itself, too
    Gc(storage::GcArgs),
    /// Prepare what sandboxes start from
    Template(TemplateArgs),
    /// List, disable and enable users
    User(identity::UserArgs),
    /// List, disable and enable tenants (operators)
    Tenant(identity::TenantArgs),
    /// Disable service accounts and operators (operators)
    Account(identity::AccountArgs),
    /// Make, list and revoke API keys
    Key(identity::KeyArgs),
    /// Print the API's OpenAPI document
    Openapi,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder [default: /var/lib/bailey]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address to listen on; port 0 picks one [default: 127.0.0.1:8470]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Template cache [BAILEY_CACHE, then /var/cache/bailey]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Started by bailey-jail with its descriptors
    #[arg(long, hide = true)]
    pub(crate) supervised: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Template cache [BAILEY_CACHE, then /var/cache/bailey]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AttestArgs {
    /// Attack nothing: check what `--json` printed, here or elsewhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["wall", "data", "cache"])]
    pub(crate) verify: Option<PathBuf>,
    /// The server's key set (its `/.well-known/jwks.json`); without it the report's own key is taken
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub(crate) keys: Option<PathBuf>,
    /// What isolates the sandboxes, such as `container`, which it is without this
    #[arg(long, value_parser = value::wall)]
    pub(crate) wall: Option<bailey_protocol::wall::WallKind>,
    /// Data folder of the server whose key signs; a fresh key without it
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Template cache [BAILEY_CACHE, then /var/cache/bailey]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// The tenant
    #[arg(long, required_unless_present_any = ["service", "operator"])]
    pub(crate) tenant: Option<TenantId>,
    /// The user within it
    #[arg(long, required_unless_present_any = ["service", "operator"])]
    pub(crate) user: Option<UserId>,
    /// What the user is there, such as `member` or `admin`; may be repeated. Of a service account: also what users may be
    /// whom it only names
    #[arg(long = "role", required_unless_present_any = ["service", "operator"], value_name = "ROLE")]
    pub(crate) roles: Vec<String>,
    /// A primitive to grant; may be repeated; all of them without it. Of a service account: one that users may have whom
    /// it only names; none without it
    #[arg(long = "entitle", value_name = "NAME")]
    pub(crate) entitlements: Vec<String>,
    /// Where the user's data has to stay, for policies
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// What the user works on, for policies
    #[arg(long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,
    /// Instead of a user: a service account of this name
    #[arg(long, value_name = "NAME", requires = "tenants", conflicts_with_all = ["tenant", "user", "operator", "region", "project"])]
    pub(crate) service: Option<UserId>,
    /// For whom the service account acts: tenants with commas between, or `*`
    #[arg(long, value_name = "TENANTS", requires = "service", value_delimiter = ',')]
    pub(crate) tenants: Vec<String>,
    /// Instead of a user: an operator of this name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tenant", "user", "entitlements", "region", "project"])]
    pub(crate) operator: Option<UserId>,
    /// How long it is valid, such as `15m`, `1h`, `7d`
    #[arg(long, default_value = "1h", value_parser = value::duration)]
    pub(crate) ttl: Duration,
    /// Data folder of the server [default: /var/lib/bailey]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What isolates it, such as `container`; chosen without it
    #[arg(long, value_parser = value::wall_choice)]
    pub(crate) wall: Option<bailey_protocol::wall::WallChoice>,
    /// What it starts from; `base` without it
    #[arg(long, value_name = "NAME")]
    pub(crate) template: Option<TemplateName>,
    /// A folder of the tree and where it appears, which is nowhere in the system such as `/usr`; `:ro` refuses changes; may be
    /// repeated
    #[arg(long = "mount", value_name = "PATH:AT[:ro]", value_parser = value::mount)]
    pub(crate) mounts: Vec<MountRequest>,
    /// Branch that the mounts read and commit to; `main` without it
    #[arg(long = "ref", alias = "branch", value_name = "BRANCH")]
    pub(crate) branch: Option<BranchName>,
    /// Kill everything after this time, such as `30s`
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Add to the environment; may be repeated
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE", value_parser = value::Env)]
    pub(crate) env: Vec<(String, String)>,
    /// A local file for this run alone, and where it is inside; it never enters the tree; may be repeated
    #[arg(long = "file", value_name = "LOCAL:PATH", value_parser = value::file)]
    pub(crate) files: Vec<(PathBuf, SandboxPath)>,
    /// Working folder; the user's home without it
    #[arg(long, value_name = "PATH")]
    pub(crate) cwd: Option<SandboxPath>,
    /// Read standard input to its end and hand it to the program
    #[arg(long, short = 'i')]
    pub(crate) stdin: bool,
    /// Let the program use `sudo` inside its sandbox
    #[arg(long)]
    pub(crate) root: bool,
    /// Print the run's id and do not wait
    #[arg(long)]
    pub(crate) detach: bool,
    /// Memory, such as `512M`
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(crate) memory: Option<u64>,
    /// Disk, such as `256M`
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(crate) disk: Option<u64>,
    /// Cores, such as `0.5`
    #[arg(long, value_name = "CORES", value_parser = value::cores)]
    pub(crate) cpu: Option<u32>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT")]
    pub(crate) pids: Option<u32>,
    /// Bytes of output, such as `8M`
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    pub(crate) output: Option<u64>,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AtArgs {
    /// Such as `/tenants/acme/reports`
    #[arg(value_parser = value::path)]
    pub(crate) path: TreePath,
    /// Branch or version to read; `main` without it
    #[arg(long = "ref", alias = "branch", value_name = "REF")]
    pub(crate) reference: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The local file or folder; `-` is standard input
    pub(crate) local: PathBuf,
    /// Where it goes, such as `/tenants/acme/reports/q1.csv`, or with a `/` at the end the folder that it goes into; what a
    /// folder has not stays
    #[arg(value_parser = value::target)]
    pub(crate) remote: value::Target,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The file or folder
    #[arg(value_parser = value::path)]
    pub(crate) path: TreePath,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Branch to write to; `main` without it
    #[arg(long = "ref", alias = "branch", value_name = "BRANCH")]
    pub(crate) branch: Option<BranchName>,
    /// Refuse unless the content there has this id (`bailey ls --json` shows it)
    #[arg(long, value_name = "ID")]
    pub(crate) if_match: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// At most this many
    #[arg(long, short = 'n', default_value_t = 20)]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The file or folder
    #[arg(value_parser = value::path)]
    pub(crate) path: TreePath,
    /// Older side: branch or version; without it, what the last version changed
    pub(crate) from: Option<String>,
    /// Newer side: branch or version; `main` without it
    pub(crate) to: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// The run; your latest ones without it
    pub(crate) run: Option<RunId>,
    /// Print what it wrote, and follow it while it goes on
    #[arg(long, requires = "run")]
    pub(crate) follow: bool,
    /// End it
    #[arg(long, requires = "run", conflicts_with = "follow")]
    pub(crate) cancel: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TemplateArgs {
    #[command(subcommand)]
    pub(crate) verb: TemplateVerb,
}

/// Walls that take more than the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PreparedWall {
    /// QEMU, a kernel for the guest, and the template, in one image
    Microvm,
    /// The host's `runsc` and the template, in one image
    Gvisor,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateVerb {
    /// Build `base` unless the cache holds it, and what a wall makes of it (root)
    Prepare {
        /// Also build what this wall takes: `gvisor`, `microvm`
        #[arg(long, value_name = "WALL")]
        wall: Option<PreparedWall>,
        /// Template cache [BAILEY_CACHE, then /var/cache/bailey]
        #[arg(long, value_name = "DIR")]
        cache: Option<PathBuf>,
    },
}
