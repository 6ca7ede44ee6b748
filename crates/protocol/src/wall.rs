//! The walls that can stand between the code and the host, and what a choice between them is made from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What isolates a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WallKind {
    /// Our cage: namespaces, seccomp, Landlock, cgroups; no network device.
    Container,
    /// A kernel in user space.
    Gvisor,
    /// A machine with a kernel of its own.
    Microvm,
    /// A V8 isolate.
    Isolate,
}

/// What a request says of the wall.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WallChoice {
    /// The server chooses, by what it is told about the code.
    #[default]
    Auto,
    /// See [`WallKind::Container`].
    Container,
    /// See [`WallKind::Gvisor`].
    Gvisor,
    /// See [`WallKind::Microvm`].
    Microvm,
    /// See [`WallKind::Isolate`].
    Isolate,
}

impl WallChoice {
    /// The wall that is named, if one is.
    #[must_use]
    pub fn named(self) -> Option<WallKind> {
        match self {
            Self::Auto => None,
            Self::Container => Some(WallKind::Container),
            Self::Gvisor => Some(WallKind::Gvisor),
            Self::Microvm => Some(WallKind::Microvm),
            Self::Isolate => Some(WallKind::Isolate),
        }
    }
}

impl From<WallKind> for WallChoice {
    fn from(kind: WallKind) -> Self {
        match kind {
            WallKind::Container => Self::Container,
            WallKind::Gvisor => Self::Gvisor,
            WallKind::Microvm => Self::Microvm,
            WallKind::Isolate => Self::Isolate,
        }
    }
}

/// Who chose a run's wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WallReason {
    /// The request named it.
    Requested,
    /// The server, by what it was told about the code.
    #[serde(alias = "default")]
    Auto,
}

/// What is known about code before it runs. A choice of its wall is made from this; what is not said is taken for the
/// usual: unreviewed code in a short run, with no more malice than a mistake has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CodeFacts {
    /// Whether somebody who answers for it has read it.
    pub provenance: Provenance,
    /// Where it is to run.
    pub place: Place,
    /// What it is written in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<CodeLanguage>,
    /// Whether its author may mean harm.
    pub hostile: bool,
    /// Milliseconds that its start may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u32>,
    /// Whether it needs real files and processes.
    pub files_and_processes: bool,
    /// Minutes for which a user goes on with one sandbox; 0 for a run.
    pub session_minutes: u32,
    /// Whether its processes have to survive a pause.
    pub survives_pause: bool,
    /// Region in which it has to stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Whether that holds for one tenant alone.
    pub one_tenant: bool,
    /// Whether it reaches a private network.
    pub private_network: bool,
    /// CPU time per second that it needs, in thousandths of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Memory that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Whether it opens files because nobody trusts them.
    pub untrusted_files: bool,
    /// Whether a government's assessment is required.
    pub assessment: bool,
}

/// Who has read the code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Nobody.
    #[default]
    Unreviewed,
    /// Somebody who answers for it.
    Reviewed,
}

/// Where code is to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In a sandbox.
    #[default]
    Sandbox,
    /// In a process of the product.
    CallersProcess,
}

/// What code is written in, as far as it matters to a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodeLanguage {
    /// JavaScript, TypeScript, WebAssembly.
    Javascript,
    /// Python.
    Python,
    /// Programs of any other kind.
    Other,
}

impl WallKind {
    /// The name used in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
            Self::Isolate => "isolate",
        }
    }
}

impl std::fmt::Display for WallKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
