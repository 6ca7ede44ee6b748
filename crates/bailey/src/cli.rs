//! What can be said on the command line.

mod value;

use std::path::PathBuf;
use std::time::Duration;

use bailey_protocol::api::MountRequest;
use bailey_protocol::id::{RunId, TemplateName, TenantId, UserId};
use bailey_protocol::path::{BranchName, SandboxPath, TreePath};
use clap::{Args, Parser, Subcommand};

use crate::exit;

/// Runs code that nobody reviewed, over one tenant's files, inside a wall.
#[derive(Debug, Parser)]
#[command(name = "bailey", version, after_help = exit::HELP, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
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
    /// Print a token of this machine's own issuer (root)
    Token(TokenArgs),
    /// Run a program in a fresh sandbox
    #[command(after_help = exit::HELP)]
    Run(Box<RunArgs>),
    /// List a folder of the tree
    Ls(AtArgs),
    /// Print a file of the tree
    Cat(AtArgs),
    /// Write a local file into the tree
    Put(PutArgs),
    /// Delete a file or folder of the tree
    Rm(RmArgs),
    /// List the versions of a path, newest first
    Log(LogArgs),
    /// Show what differs between two versions of a path
    Diff(DiffArgs),
    /// List your runs, or show one
    Runs(RunsArgs),
    /// Prepare what sandboxes start from
    Template(TemplateArgs),
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
pub(crate) struct TokenArgs {
    /// The tenant
    #[arg(long)]
    pub(crate) tenant: TenantId,
    /// The user within it
    #[arg(long)]
    pub(crate) user: UserId,
    /// What the user is there, such as `member` or `admin`; may be repeated
    #[arg(long = "role", required = true, value_name = "ROLE")]
    pub(crate) roles: Vec<String>,
    /// A primitive to grant; may be repeated; all of them without it
    #[arg(long = "entitle", value_name = "NAME")]
    pub(crate) entitlements: Vec<String>,
    /// How long it is valid, such as `15m`, `1h`, `7d`
    #[arg(long, default_value = "1h", value_parser = value::duration)]
    pub(crate) ttl: Duration,
    /// Data folder of the server [default: /var/lib/bailey]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What isolates it, such as `container`; the server's default without it
    #[arg(long, value_parser = value::wall)]
    pub(crate) wall: Option<bailey_protocol::wall::WallKind>,
    /// What it starts from; `base` without it
    #[arg(long, value_name = "NAME")]
    pub(crate) template: Option<TemplateName>,
    /// A folder of the tree and where it appears; `:ro` refuses changes; may be repeated
    #[arg(long = "mount", value_name = "PATH:AT[:ro]", value_parser = value::mount)]
    pub(crate) mounts: Vec<MountRequest>,
    /// Branch that the mounts read and commit to; `main` without it
    #[arg(long, value_name = "BRANCH")]
    pub(crate) branch: Option<BranchName>,
    /// Kill everything after this time, such as `30s`
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Add to the environment; may be repeated
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE", value_parser = value::env)]
    pub(crate) env: Vec<(String, String)>,
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
    pub(crate) path: TreePath,
    /// Branch or version to read; `main` without it
    #[arg(long = "ref", value_name = "REF")]
    pub(crate) reference: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The local file; `-` is standard input
    pub(crate) local: PathBuf,
    /// Where it goes, such as `/tenants/acme/reports/q1.csv`
    pub(crate) remote: TreePath,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The file or folder
    pub(crate) path: TreePath,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Branch to write to; `main` without it
    #[arg(long, value_name = "BRANCH")]
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

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateVerb {
    /// Build `base` unless the cache holds it (root)
    Prepare {
        /// Template cache [BAILEY_CACHE, then /var/cache/bailey]
        #[arg(long, value_name = "DIR")]
        cache: Option<PathBuf>,
    },
}
