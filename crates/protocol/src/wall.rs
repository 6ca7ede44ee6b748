//! The walls that can stand between the code and the host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What isolates a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WallKind {
    /// Our cage: namespaces, seccomp, Landlock, cgroups; no network device.
    Container,
}

/// Why a run stands behind its wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WallReason {
    /// The request named it.
    Requested,
    /// The request named none, and this is the server's own.
    Default,
}

impl WallKind {
    /// The name used in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
        }
    }
}

impl std::fmt::Display for WallKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
