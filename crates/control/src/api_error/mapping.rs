//! From each module's errors to what a caller is told, exhaustively.

use bailey_policy::{Denied, ForeignStore};
use bailey_tree::{TreeError, TreeErrorKind};

use super::{ApiError, ErrorKind};
use crate::admission::AdmissionError;
use crate::auth::AuthError;
use crate::db::DbError;
use crate::event_log::EventLogError;

const OPERATOR: &str = "Give the request id to the operator, who finds the cause in the server's log.";

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        let hint = "Get a new token with `bailey token`.";
        let (code, message) = match error {
            AuthError::Expired => ("token_expired", "the token is expired"),
            AuthError::TooLarge
            | AuthError::Malformed { .. }
            | AuthError::Header { .. }
            | AuthError::UnknownKey
            | AuthError::Signature
            | AuthError::Claim { .. }
            | AuthError::NotYetValid => ("token_invalid", "the token does not hold"),
        };
        Self::new(ErrorKind::Unauthenticated, code, message, hint).because(error)
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        if denied.broken {
            tracing::error!(action = %denied.action, policies = ?denied.policies, "a policy could not be evaluated");
        }
        let hint = "Ask for something of your own, or the operator for a policy that permits this.";
        let mut error = Self::new(ErrorKind::Denied, "denied", denied.to_string(), hint);
        error.policies = denied.policies;
        error
    }
}

impl From<ForeignStore> for ApiError {
    fn from(foreign: ForeignStore) -> Self {
        tracing::error!(path = %foreign.path, "a policy permits what no policy can: another tenant's store");
        let message = format!("`{}` is not in a store of yours", foreign.path);
        Self::new(ErrorKind::Denied, "denied", message, "Ask for something of your own.").because(foreign)
    }
}

impl From<TreeError> for ApiError {
    fn from(error: TreeError) -> Self {
        let message = error.to_string();
        let list = "List the folder above to see what there is.";
        match error.kind() {
            TreeErrorKind::NotFound => Self::not_found(message, list),
            TreeErrorKind::NotADirectory => Self::new(ErrorKind::Invalid, "not_a_folder", message, list),
            TreeErrorKind::IsADirectory => {
                Self::new(ErrorKind::Invalid, "is_a_folder", message, "Name a file, or delete the folder first.")
            }
            TreeErrorKind::Invalid => {
                Self::new(ErrorKind::Invalid, "invalid_content", message, "Send another path or content.")
            }
            TreeErrorKind::TooLarge => {
                Self::new(ErrorKind::TooLarge, "too_large", message, "Split the content into smaller files.")
            }
            TreeErrorKind::InvalidStream => Self::internal(error),
            TreeErrorKind::Input => {
                let hint = "Send the whole body.";
                Self::invalid("body_broken", "the content stopped before its end", hint).because(error)
            }
            TreeErrorKind::Corrupt => {
                Self::new(ErrorKind::Internal, "tree_damaged", "stored content is damaged", OPERATOR).because(error)
            }
            TreeErrorKind::StorageFull => storage_full().because(error),
            TreeErrorKind::Storage => Self::internal(error),
        }
    }
}

impl From<DbError> for ApiError {
    fn from(error: DbError) -> Self {
        match &error {
            DbError::IdempotencyConflict => Self::new(
                ErrorKind::Conflict,
                "idempotency_key_reused",
                "the `Idempotency-Key` was used for another request",
                "Use a new key for a new request.",
            ),
            DbError::RefMoved { branch, .. } => {
                let message = format!("branch `{branch}` moved at the same time");
                Self::new(ErrorKind::Conflict, "branch_moved", message, "Read again, then write again.")
            }
            DbError::RunOver { .. } => {
                Self::new(ErrorKind::Conflict, "run_over", "the run is over", "Read its events to see how it ended.")
            }
            DbError::Busy { .. } => {
                let message = "the server has more to write than its disk takes";
                Self::new(ErrorKind::Unavailable, "busy", message, "Try again in a few seconds.")
            }
            DbError::Full { .. } => storage_full(),
            DbError::Closed { .. } => {
                let hint = "Try again in a few seconds.";
                Self::new(ErrorKind::Unavailable, "shutting_down", "the server is shutting down", hint)
            }
            DbError::TooNew { .. } | DbError::Corrupt { .. } | DbError::Storage { .. } => Self::internal(error.clone()),
        }
        .because(error)
    }
}

impl From<EventLogError> for ApiError {
    fn from(error: EventLogError) -> Self {
        let full = match &error {
            EventLogError::MakeFolder(cause)
            | EventLogError::Open { cause, .. }
            | EventLogError::Remove { cause, .. }
            | EventLogError::Append(cause)
            | EventLogError::Read(cause) => {
                matches!(cause.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            }
            EventLogError::Encode { .. } | EventLogError::Broken => false,
        };
        if full { storage_full().because(error) } else { Self::internal(error) }
    }
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        let (code, hint) = match error {
            AdmissionError::TenantFull { .. } => ("too_many_runs", "Wait until one of your runs has ended."),
            AdmissionError::ServerFull { .. } => ("server_full", "Try again after the time in `Retry-After`."),
        };
        Self::new(ErrorKind::Exhausted, code, error.to_string(), hint)
    }
}

fn storage_full() -> ApiError {
    ApiError::new(ErrorKind::StorageFull, "storage_full", "the server's disk is full", "Ask the operator for room.")
}
