//! What can go wrong in a tree, and whose fault it is.

use std::fmt;
use std::io;

/// Why an operation on a tree failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// No such commit in this store.
    #[error("version `{version}` is not in this tree")]
    VersionNotFound { version: String },
    /// No such path (or tree) in that version.
    #[error("`{path}` does not exist")]
    NotFound { path: String },
    /// A folder was needed: at the end of the path, or on the way.
    #[error("`{path}` is not a folder")]
    NotADirectory { path: String },
    /// A file was needed.
    #[error("`{path}` is a folder")]
    IsADirectory { path: String },
    /// A path that no tree can hold.
    #[error("`{path}` cannot be a path in a tree: {rule}")]
    InvalidPath { path: String, rule: &'static str },
    /// More than was allowed.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge { what: &'static str, limit: u64 },
    /// The content carries a SHA-1 collision attack.
    #[error("the content carries a SHA-1 collision attack")]
    Collision,
    /// A change stream that breaks its format; `offset` is where.
    #[error("change stream at byte {offset}: {fault}")]
    InvalidStream { offset: u64, fault: &'static str },
    /// The change stream says that the collector gave up.
    #[error("the changes could not be collected: {message}")]
    CollectFailed { message: String },
    /// The given content or stream could not be read.
    #[error("reading the given content failed")]
    Input { source: io::Error },
    /// Two branches of which one is a folder of the other.
    #[error("branches `{first}` and `{second}` cannot both exist")]
    BranchConflict { first: String, second: String },
    /// Stored bytes are not what was stored.
    #[error("stored {what} is damaged: {fault}")]
    Corrupt { what: String, fault: String },
    /// The disk (or object store) refused.
    #[error("{operation} `{name}` failed")]
    Storage { operation: &'static str, name: String, source: io::Error },
}

/// What the caller can do about a [`TreeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeErrorKind {
    /// Version or path does not exist.
    NotFound,
    /// A file is where a folder is needed.
    NotADirectory,
    /// A folder is where a file is needed.
    IsADirectory,
    /// The request cannot be right: path, content or branch names.
    Invalid,
    /// Over a limit.
    TooLarge,
    /// The change stream is broken or was given up.
    InvalidStream,
    /// The caller's content broke off.
    Input,
    /// Stored data is damaged.
    Corrupt,
    /// The disk is full, or a quota is.
    StorageFull,
    /// Storage failed otherwise.
    Storage,
}

impl TreeError {
    /// The kind, for mapping to an answer.
    #[must_use]
    pub fn kind(&self) -> TreeErrorKind {
        match self {
            Self::VersionNotFound { .. } | Self::NotFound { .. } => TreeErrorKind::NotFound,
            Self::NotADirectory { .. } => TreeErrorKind::NotADirectory,
            Self::IsADirectory { .. } => TreeErrorKind::IsADirectory,
            Self::InvalidPath { .. } | Self::Collision | Self::BranchConflict { .. } => TreeErrorKind::Invalid,
            Self::TooLarge { .. } => TreeErrorKind::TooLarge,
            Self::InvalidStream { .. } | Self::CollectFailed { .. } => TreeErrorKind::InvalidStream,
            Self::Input { .. } => TreeErrorKind::Input,
            Self::Corrupt { .. } => TreeErrorKind::Corrupt,
            Self::Storage { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => TreeErrorKind::StorageFull,
                _ => TreeErrorKind::Storage,
            },
        }
    }

    pub(crate) fn corrupt(what: impl ToString, fault: impl ToString) -> Self {
        Self::Corrupt { what: what.to_string(), fault: fault.to_string() }
    }

    pub(crate) fn storage(operation: &'static str, name: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Storage { operation, name: name.to_string(), source }
    }
}
