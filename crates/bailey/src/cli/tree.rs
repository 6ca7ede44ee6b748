//! Arguments of the verbs on the tree.

use std::path::PathBuf;

use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, Revision, TreePath};
use clap::{Args, ValueEnum};

use super::{AtArgs, WriteArgs, value};

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// All below the folder
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Only paths that fit, such as `'**/*.csv'`; with a `/`, all below the folder is looked at
    #[arg(long, value_name = "GLOB")]
    pub(crate) glob: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// Only these bytes: the first, counted from zero, and how many; to the end without a number of them
    #[arg(long, value_name = "START[:LENGTH]", value_parser = value::range)]
    pub(crate) range: Option<(u64, u64)>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The local file or new folder; `-` is standard output; the last name of the path without it
    pub(crate) local: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The file
    pub(crate) path: TreePath,
    /// Text that is in the file exactly once
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "new")]
    pub(crate) old: Option<String>,
    /// Bytes instead: the first, counted from zero, and how many; none to insert
    #[arg(long, value_name = "START[:LENGTH]", value_parser = value::range, conflicts_with = "old", requires = "new")]
    pub(crate) at: Option<(u64, u64)>,
    /// What comes in their place
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) new: Option<String>,
    /// Whether the file may be executed from now on
    #[arg(long, value_name = "BOOL")]
    pub(crate) executable: Option<bool>,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// The file or folder
    #[arg(value_parser = value::path)]
    pub(crate) from: TreePath,
    /// Where it goes, its name included, or with a `/` at the end the folder that it goes into
    #[arg(value_parser = value::target)]
    pub(crate) to: value::Target,
    /// Branch or version to read; the one that is written to without it
    #[arg(long, value_name = "REF")]
    pub(crate) from_ref: Option<Revision>,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    /// The file or folder
    #[arg(value_parser = value::path)]
    pub(crate) from: TreePath,
    /// Where it goes, its name included, or with a `/` at the end the folder that it goes into
    #[arg(value_parser = value::target)]
    pub(crate) to: value::Target,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// The file or folder
    #[arg(value_parser = value::path)]
    pub(crate) path: TreePath,
    /// The version (`bailey log` lists them)
    #[arg(id = "of", value_name = "VERSION")]
    pub(crate) version: VersionId,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Formats of archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArchiveFormat {
    Tar,
    Zip,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    #[command(flatten)]
    pub(crate) at: AtArgs,
    /// The local file; `-` is standard output
    pub(crate) local: PathBuf,
    /// By the file's name without it: zip for `.zip`, else tar
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<ArchiveFormat>,
}

#[derive(Debug, Args)]
pub(crate) struct ExtractArgs {
    /// The local archive (tar, tar.gz or zip); `-` is standard input
    pub(crate) local: PathBuf,
    /// The folder that it goes to
    #[arg(value_parser = value::path)]
    pub(crate) remote: TreePath,
    /// By the file's name without it: zip for `.zip`, else tar
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<ArchiveFormat>,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

impl WriteArgs {
    /// The query that names the branch.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        self.branch.iter().map(|branch: &BranchName| ("ref", branch.to_string())).collect()
    }
}
