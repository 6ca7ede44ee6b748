//! What can go wrong in a tree, and whose fault it is.

use std::fmt;
use std::io;

use bailey_protocol::path::RepoId;
use bailey_protocol::quota::QuotaKind;

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
    /// Something is where something new was to go.
    #[error("`{path}` exists already")]
    AlreadyExists { path: String },
    /// A folder cannot go into itself.
    #[error("`{path}` lies within what was to be moved there")]
    WithinItself { path: String },
    /// A partial edit that does not fit the file; `number` counts from one.
    #[error("edit {number}: {fault}")]
    Edit { number: usize, fault: &'static str },
    /// A glob that makes no sense or is too large.
    #[error("`{glob}` is no glob: {rule}")]
    InvalidGlob { glob: String, rule: String },
    /// A place to go on that this server has not given.
    #[error("the place to go on after is none that a listing has told")]
    InvalidCursor,
    /// An archive that is refused as a whole, and the member that is why.
    #[error("archive member `{member}`: {fault}")]
    Archive { member: String, fault: &'static str },
    /// More than was allowed.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge { what: &'static str, limit: u64 },
    /// Pushed objects that no tree can hold.
    #[error("`{what}` cannot be taken in: {rule}")]
    Refused { what: String, rule: String },
    /// More of them than was allowed.
    #[error("{what} are more than {limit}")]
    TooMany { what: &'static str, limit: u64 },
    /// The tenant may not keep that much.
    #[error("the quota `{quota}` is exceeded: {}", excess(*used, *more, *limit))]
    QuotaExceeded { quota: QuotaKind, used: u64, more: u64, limit: u64 },
    /// A version that was taken out of history.
    #[error("version `{version}` is not kept any more")]
    VersionExpired { version: String },
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
    /// The place that something was written to failed.
    #[error("writing the answer failed")]
    Output { source: io::Error },
    /// Two branches of which one is a folder of the other.
    #[error("branches `{first}` and `{second}` cannot both exist")]
    BranchConflict { first: String, second: String },
    /// The store is opened for nobody.
    #[error("the store is shut: what was purged from it cannot be refused")]
    Shut,
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
    /// Something is in the way.
    Exists,
    /// An edit does not fit the file as it is.
    Edit,
    /// The archive is refused.
    Archive,
    /// Over a limit.
    TooLarge,
    /// Over the tenant's quota.
    QuotaExceeded,
    /// The version was purged.
    Expired,
    /// The change stream is broken or was given up.
    InvalidStream,
    /// The caller's content broke off, or the caller did.
    Input,
    /// The store is opened for nobody.
    Shut,
    /// Stored data is damaged.
    Corrupt,
    /// The disk is full, or a quota is.
    StorageFull,
    /// Storage failed otherwise.
    Storage,
}

/// By how much it is too much. What is to come may be known in part only, so it is the least.
fn excess(used: u64, more: u64, limit: u64) -> String {
    let over = used.saturating_add(more).saturating_sub(limit);
    let used = if used == 0 { String::new() } else { format!("{used} used and ") };
    format!("{used}{more} to come, {over} over the {limit} allowed")
}

impl TreeError {
    /// The kind, for mapping to an answer.
    #[must_use]
    pub fn kind(&self) -> TreeErrorKind {
        match self {
            Self::VersionNotFound { .. } | Self::NotFound { .. } => TreeErrorKind::NotFound,
            Self::NotADirectory { .. } => TreeErrorKind::NotADirectory,
            Self::IsADirectory { .. } => TreeErrorKind::IsADirectory,
            Self::InvalidPath { .. } | Self::Refused { .. } | Self::Collision | Self::BranchConflict { .. } => {
                TreeErrorKind::Invalid
            }
            Self::WithinItself { .. } | Self::InvalidGlob { .. } | Self::InvalidCursor => TreeErrorKind::Invalid,
            Self::AlreadyExists { .. } => TreeErrorKind::Exists,
            Self::Edit { .. } => TreeErrorKind::Edit,
            Self::Archive { .. } => TreeErrorKind::Archive,
            Self::TooLarge { .. } | Self::TooMany { .. } => TreeErrorKind::TooLarge,
            Self::QuotaExceeded { .. } => TreeErrorKind::QuotaExceeded,
            Self::VersionExpired { .. } => TreeErrorKind::Expired,
            Self::InvalidStream { .. } | Self::CollectFailed { .. } => TreeErrorKind::InvalidStream,
            Self::Input { .. } | Self::Output { .. } => TreeErrorKind::Input,
            Self::Shut => TreeErrorKind::Shut,
            Self::Corrupt { .. } => TreeErrorKind::Corrupt,
            Self::Storage { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => TreeErrorKind::StorageFull,
                _ => TreeErrorKind::Storage,
            },
        }
    }

    /// The same, with its path as callers name it: what is below the root of that store.
    #[must_use]
    pub fn in_store(mut self, store: &RepoId) -> Self {
        if let Self::NotFound { path }
        | Self::NotADirectory { path }
        | Self::IsADirectory { path }
        | Self::InvalidPath { path, .. }
        | Self::AlreadyExists { path }
        | Self::WithinItself { path } = &mut self
        {
            *path = store.below(path);
        }
        self
    }

    pub(crate) fn corrupt(what: impl ToString, fault: impl ToString) -> Self {
        Self::Corrupt { what: what.to_string(), fault: fault.to_string() }
    }

    pub(crate) fn refused(what: impl ToString, rule: impl ToString) -> Self {
        Self::Refused { what: what.to_string(), rule: rule.to_string() }
    }

    pub(crate) fn storage(operation: &'static str, name: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Storage { operation, name: name.to_string(), source }
    }
}
