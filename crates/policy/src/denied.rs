//! What a deny says.

use std::fmt;

/// What a principal wants to do. The names are those of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read a file.
    TreeRead,
    /// List a folder.
    TreeList,
    /// List the versions of a path.
    TreeHistory,
    /// Compare two versions of a path.
    TreeDiff,
    /// Write a file.
    TreeWrite,
    /// Delete a path.
    TreeDelete,
    /// Give a slice to a run.
    MountRead,
    /// Commit what a run changed under a slice.
    MountWrite,
    /// Run code.
    RunCreate,
    /// Let the code use `sudo` inside its sandbox.
    RunAsRoot,
    /// See a run and its output.
    RunRead,
    /// List runs.
    RunList,
    /// Kill a run.
    RunCancel,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 13] = [
        Self::TreeRead,
        Self::TreeList,
        Self::TreeHistory,
        Self::TreeDiff,
        Self::TreeWrite,
        Self::TreeDelete,
        Self::MountRead,
        Self::MountWrite,
        Self::RunCreate,
        Self::RunAsRoot,
        Self::RunRead,
        Self::RunList,
        Self::RunCancel,
    ];

    /// The name in the schema, in denials and in the audit.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TreeRead => "tree_read",
            Self::TreeList => "tree_list",
            Self::TreeHistory => "tree_history",
            Self::TreeDiff => "tree_diff",
            Self::TreeWrite => "tree_write",
            Self::TreeDelete => "tree_delete",
            Self::MountRead => "mount_read",
            Self::MountWrite => "mount_write",
            Self::RunCreate => "run_create",
            Self::RunAsRoot => "run_as_root",
            Self::RunRead => "run_read",
            Self::RunList => "run_list",
            Self::RunCancel => "run_cancel",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal, with what decided it. It says nothing about whether the resource exists: that was never asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{action}` on `{resource}` is denied: {reason}")]
pub struct Denied {
    /// What was asked for.
    pub action: Action,
    /// On what, as the caller named it.
    pub resource: String,
    /// Ids of the policies that decided, sorted; empty when no policy permitted it.
    pub policies: Vec<String>,
    /// For people.
    pub reason: String,
    /// Set when a policy could not be evaluated: an operator has to look.
    pub broken: bool,
}
