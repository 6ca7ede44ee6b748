//! What is remembered of a run.

use bailey_policy::RunFacts;
use bailey_protocol::api::{RunResult, RunStatus, RunSummary, Usage};
use bailey_protocol::id::{RunId, TemplateName};
use bailey_protocol::node::Ending;
use bailey_protocol::path::TreePath;
use bailey_protocol::wall::WallKind;
use serde::{Deserialize, Serialize};

use super::AuditEntry;

/// Most bytes of a command line that are remembered.
pub(crate) const MAX_COMMAND_BYTES: usize = 200;

/// A client's name for one request, so that a retry has no second effect: 1–255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(String);

/// A text that is not an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key has 1 to 255 visible ASCII characters")]
pub struct IdempotencyKeyError;

impl IdempotencyKey {
    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for IdempotencyKey {
    type Err = IdempotencyKeyError;

    fn from_str(text: &str) -> Result<Self, IdempotencyKeyError> {
        let fits = (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(IdempotencyKeyError) }
    }
}

/// The key, and the SHA-256 of the request that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// As the client sent it.
    pub key: IdempotencyKey,
    /// Hash of everything in the request that matters.
    pub request: [u8; 32],
}

/// A run to record. Whose it is and what sandbox it gets is in the permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Its id, fresh.
    pub run: RunId,
    /// Program and arguments; cut to 200 bytes.
    pub command: String,
    /// What it is given of the tree.
    pub mounts: Vec<TreePath>,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// Present when the client sent a key.
    pub idempotency: Option<Idempotency>,
    /// What was decided, to be recorded with the run. Its outcome becomes the id of the run that is answered.
    pub audit: Vec<AuditEntry>,
}

/// What creating a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunCreated {
    /// The run is recorded: start it.
    New,
    /// The same request made this run before: answer with it, start nothing.
    Replayed(RunId),
}

/// How a run is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// With an ending.
    Ended(RunResult),
    /// It could not be carried out.
    Failed(RunFailure),
}

impl RunEnd {
    /// In a word: how the program ended, or the error's code.
    pub(crate) fn outcome(&self) -> String {
        let result = match self {
            Self::Ended(result) => result,
            Self::Failed(failure) => return failure.error.clone(),
        };
        match result.ending {
            Ending::Exited { code } => format!("exited={code}"),
            Ending::Signaled { signal } => format!("signaled={signal}"),
            Ending::Timeout => "timeout".to_owned(),
            Ending::Oom => "oom".to_owned(),
            Ending::OutputLimit => "output_limit".to_owned(),
            Ending::Cancelled => "cancelled".to_owned(),
            Ending::GuestLost => "guest_lost".to_owned(),
            Ending::NodeRestarted => "node_restarted".to_owned(),
        }
    }

    /// Of a run that an earlier life of the server left.
    #[must_use]
    pub fn node_restarted() -> Self {
        Self::Ended(RunResult {
            ending: Ending::NodeRestarted,
            denied: None,
            limits_hit: Vec::new(),
            output_dropped: 0,
            versions: Vec::new(),
            notices: Vec::new(),
            more_notices: 0,
            usage: Usage::default(),
        })
    }
}

/// Why a run could not be carried out, as its `failed` event says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFailure {
    /// Stable, for programs.
    pub error: String,
    /// For people.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// What is remembered of a run's spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecSummary {
    /// Program and arguments, cut.
    pub command: String,
    /// What isolates it.
    pub wall: WallKind,
    /// What it starts from.
    pub template: TemplateName,
    /// Whether `sudo` works inside.
    pub root: bool,
}

/// A run as remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// Whose it is.
    pub facts: RunFacts,
    /// What was asked for.
    pub spec: SpecSummary,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// When it was over.
    pub ended_ms: Option<u64>,
    /// How it is over; `None` while it runs.
    pub end: Option<RunEnd>,
}

impl RunRecord {
    /// Where it is in its life.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        match &self.end {
            None => RunStatus::Running,
            Some(RunEnd::Ended(_)) => RunStatus::Ended,
            Some(RunEnd::Failed(_)) => RunStatus::Failed,
        }
    }

    /// As listed.
    #[must_use]
    pub fn summary(&self) -> RunSummary {
        RunSummary {
            run: self.facts.run.clone(),
            user: self.facts.user.to_string(),
            command: self.spec.command.clone(),
            status: self.status(),
            created_ms: self.created_ms,
            ended_ms: self.ended_ms,
            ending: match &self.end {
                Some(RunEnd::Ended(result)) => Some(result.ending),
                Some(RunEnd::Failed(_)) | None => None,
            },
        }
    }
}
