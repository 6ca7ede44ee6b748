//! What a caller is told when something does not work: a kind, a stable code, a message and a hint.
//!
//! The cause stays inside: it is logged with the request's id and never part of an answer.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use bailey_protocol::api::ErrorBody;
use bailey_protocol::id::{IdError, RequestId, TenantId};
use bailey_protocol::purge::PurgeId;

pub(crate) mod mapping;

/// What the caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Send something else.
    Invalid,
    /// Send less.
    TooLarge,
    /// Send another type of body.
    UnsupportedMedia,
    /// Send a token that holds.
    Unauthenticated,
    /// Nothing, without other rights.
    Denied,
    /// Name something that exists.
    NotFound,
    /// Use another method.
    MethodNotAllowed,
    /// Send it sooner.
    TooSlow,
    /// Nothing: it was there, and will not be again.
    Gone,
    /// Read again, then decide again.
    Conflict,
    /// Read again: what the request was based on has changed.
    Changed,
    /// Ask for a range that exists.
    RangeUnsatisfiable,
    /// Wait for room.
    Exhausted,
    /// Wait for the server.
    Unavailable,
    /// Nothing: a person must look.
    Internal,
    /// Wait until the operator made room on disk.
    StorageFull,
}

impl ErrorKind {
    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Denied => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::TooSlow => 408,
            Self::Conflict => 409,
            Self::Gone => 410,
            Self::Changed => 412,
            Self::TooLarge => 413,
            Self::UnsupportedMedia => 415,
            Self::RangeUnsatisfiable => 416,
            Self::Exhausted => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
            Self::StorageFull => 507,
        }
    }

    /// Seconds after which it may work, where waiting is what helps.
    #[must_use]
    pub fn retry_after(self) -> Option<u32> {
        match self {
            Self::Exhausted => Some(1),
            Self::Unavailable => Some(5),
            Self::StorageFull => Some(60),
            Self::Invalid
            | Self::TooLarge
            | Self::UnsupportedMedia
            | Self::Unauthenticated
            | Self::Denied
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::TooSlow
            | Self::Conflict
            | Self::Gone
            | Self::Changed
            | Self::RangeUnsatisfiable
            | Self::Internal => None,
        }
    }
}

/// An answer that is not a success.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What the caller can do.
    pub kind: ErrorKind,
    /// Stable, for programs.
    pub code: &'static str,
    /// For people: no cause, no host path.
    pub message: String,
    /// What to do next.
    pub hint: Cow<'static, str>,
    /// For a denial: the policies that decided.
    pub policies: Vec<String>,
    /// What few errors tell.
    pub details: Option<Box<Details>>,
    /// When to try again, where that is known better than from the kind.
    pub wait: Option<Duration>,
    /// For the log only.
    #[source]
    pub cause: Option<Box<dyn Error + Send + Sync>>,
}

/// What few errors tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// For a conflict: what both sides changed, as whole paths; at most 1,000.
    pub paths: Vec<String>,
    /// For a version that was purged: by which purge.
    pub purge: Option<PurgeId>,
}

/// Longest message in an answer, in characters: input that is echoed may be large.
const MAX_MESSAGE: usize = 500;

impl ApiError {
    /// An answer without a cause.
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
            message.push('…');
        }
        Self { kind, code, message, hint: hint.into(), policies: Vec::new(), details: None, wait: None, cause: None }
    }

    /// The request cannot be carried out as it is.
    #[must_use]
    pub fn invalid(code: &'static str, message: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, code, message, hint)
    }

    /// There is nothing of that name.
    #[must_use]
    pub fn not_found(message: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::NotFound, "not_found", message, hint)
    }

    /// The run does not exist, or is another tenant's: nobody can tell which.
    #[must_use]
    pub fn run_not_found() -> Self {
        Self::not_found("there is no such run", "List your runs with GET /v1/runs.")
    }

    /// Nobody of such a tenant was ever seen. For operators only: to others every tenant but their own is the same.
    #[must_use]
    pub fn unknown_tenant(tenant: &TenantId) -> Self {
        let message = format!("nobody of a tenant `{tenant}` was ever seen");
        Self::new(ErrorKind::NotFound, "unknown_tenant", message, "List tenants with GET /v1/operator/tenants.")
    }

    /// The purge does not exist, or is another tenant's.
    #[must_use]
    pub fn purge_not_found() -> Self {
        Self::not_found("there is no such purge", "Use the id that POST /v1/purges answered.")
    }

    /// A bug or a broken machine. The operator finds `cause` in the log.
    #[must_use]
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let hint = "Give the request id to the operator, who finds the cause in the server's log.";
        Self::new(ErrorKind::Internal, "internal", "something broke inside the server", hint).because(cause)
    }

    /// Adds what only the log may tell.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Seconds after which to try again, where waiting is what helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        let known = self.wait.map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        known.or(self.kind.retry_after().map(u64::from))
    }

    /// The body of the answer, without what only the front knows: see `http::error_answer`.
    #[must_use]
    pub fn body(&self, request_id: &RequestId) -> ErrorBody {
        let Details { paths, purge } = self.details.as_deref().cloned().unwrap_or_default();
        ErrorBody {
            code: self.kind.status(),
            error: self.code.to_owned(),
            message: self.message.clone(),
            hint: self.hint.clone().into_owned(),
            request_id: request_id.clone(),
            operation: None,
            see: Vec::new(),
            purge,
            policies: self.policies.clone(),
            paths,
        }
    }

    /// The cause and what caused it, in one line, for the log.
    #[must_use]
    pub fn cause_chain(&self) -> String {
        let mut chain = Vec::new();
        let mut next: Option<&dyn Error> = self.cause.as_deref().map(|cause| cause as &dyn Error);
        while let Some(error) = next {
            chain.push(error.to_string());
            next = error.source();
        }
        chain.join(": ")
    }
}

impl From<IdError> for ApiError {
    fn from(error: IdError) -> Self {
        Self::invalid("invalid_name", error.to_string(), format!("Correct the {}: {}.", error.kind, error.rule))
    }
}
