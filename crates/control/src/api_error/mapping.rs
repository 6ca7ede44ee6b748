//! From each module's errors to what a caller is told, exhaustively.

use bailey_policy::{Denied, ForeignStore, SCOPE_POLICY};
use bailey_protocol::quota::QuotaKind;
use bailey_tree::{TreeError, TreeErrorKind};

use super::{ApiError, ErrorKind};
use crate::admission::AdmissionError;
use crate::auth::AuthError;
use crate::db::DbError;
use crate::event_log::EventLogError;
use crate::standing::Ended;

const OPERATOR: &str = "Give the request id to the operator, who finds the cause in the server's log.";

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        let hint =
            "Get a new token where this one is from; on the server's machine, root makes one with `bailey token`.";
        let (code, message) = match error {
            AuthError::IssuerUnavailable => {
                let message = "the token's issuer cannot be asked for its keys at the moment";
                let hint = "Try again in a few seconds; tell the operator if it goes on.";
                return Self::new(ErrorKind::Unavailable, "issuer_unavailable", message, hint).because(error);
            }
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

impl From<Ended> for ApiError {
    fn from(ended: Ended) -> Self {
        let message = ended.to_string();
        match ended {
            Ended::Tenant => Self::new(ErrorKind::Denied, "tenant_disabled", message, "Ask the operator."),
            Ended::User => Self::new(ErrorKind::Denied, "user_disabled", message, "Ask an admin of your tenant."),
            Ended::Account => Self::new(ErrorKind::Denied, "account_disabled", message, "Ask another operator."),
            Ended::Revoked => Self::new(ErrorKind::Unauthenticated, "token_invalid", message, "Get a new credential."),
            Ended::Expired => Self::new(ErrorKind::Unauthenticated, "token_expired", message, "Get a new credential."),
        }
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        if denied.broken {
            tracing::error!(action = %denied.action, policies = ?denied.policies, "a policy could not be evaluated");
        }
        let flip: Vec<_> = denied.flip.iter().map(ToString::to_string).collect();
        let hint = if flip.is_empty() {
            after_denial(&denied).to_owned()
        } else {
            format!("It would be allowed if {}.", flip.join(" and "))
        };
        let mut error = Self::new(ErrorKind::Denied, "denied", denied.to_string(), hint);
        error.policies = denied.policies;
        error
    }
}

/// What to do about a denial that no change of one attribute turns around, by the first policy that says something of its
/// own: what is another tenant's is no matter of whose folder it is in.
fn after_denial(denied: &Denied) -> &'static str {
    let by = |name: &str| denied.policies.iter().any(|policy| policy == name);
    if by(SCOPE_POLICY) {
        "Use your token itself, or a tree token or key that is for this action and this path. `bailey share list` shows what \
         your tree tokens are for, `bailey share` makes another; keys an admin of your tenant sees with `bailey key list` and \
         makes with `bailey key create`."
    } else if by("own-tenant-only") {
        "Name what is your own tenant's: a path below `/tenants/{tenant}` of the tenant that your token is for, or a run of \
         GET /v1/runs. Nothing of another tenant's can be opened, whoever allows it."
    } else if by("own-folder-only") {
        "Have its owner put a copy outside of `/users/{user}`, into the folder that all of the tenant share."
    } else if by("own-run-only") {
        "See GET /v1/runs for your own runs, or ask whoever started it."
    } else if by("not-from-a-run") {
        "Do it with your own token, outside of the run."
    } else if denied.policies.iter().any(|policy| policy.starts_with("tenant/")) {
        "It is a policy of your own tenant: `bailey policy ls` shows it to the tenant's admins, who can change it."
    } else {
        "Ask for something of your own, or the operator for a policy that permits this."
    }
}

impl From<ForeignStore> for ApiError {
    fn from(foreign: ForeignStore) -> Self {
        tracing::error!(path = %foreign.path, "a policy permits what no policy can: another tenant's store");
        let message = format!("`{}` is not in a store of yours", foreign.path);
        Self::new(ErrorKind::Denied, "denied", message, "Ask for something of your own.").because(foreign)
    }
}

/// What to do about a quota. A full disk answers the same status, with another code.
fn quota_exceeded(quota: QuotaKind, message: String) -> ApiError {
    let (kind, hint) = match quota {
        QuotaKind::FileBytes => (ErrorKind::TooLarge, "Split the content into smaller files."),
        QuotaKind::Bytes | QuotaKind::Files => (
            ErrorKind::StorageFull,
            "Ask an admin of your tenant, who sees with GET /v1/tenant what is kept and can purge what is not needed, or the \
             operator to allow more or to keep fewer versions.",
        ),
    };
    ApiError::new(kind, "quota_exceeded", message, hint)
}

impl From<TreeError> for ApiError {
    fn from(error: TreeError) -> Self {
        let message = error.to_string();
        if let TreeError::QuotaExceeded { quota, .. } = error {
            return quota_exceeded(quota, message).because(error);
        }
        let list = "List the folder above to see what there is.";
        match error.kind() {
            TreeErrorKind::NotFound => Self::not_found(message, list),
            TreeErrorKind::NotADirectory => Self::new(ErrorKind::Invalid, "not_a_folder", message, list),
            TreeErrorKind::IsADirectory => Self::new(
                ErrorKind::Invalid,
                "is_a_folder",
                message,
                "Name a file, or, to put one in its place, delete the folder first.",
            ),
            TreeErrorKind::Invalid => {
                Self::new(ErrorKind::Invalid, "invalid_content", message, "Send another path or content.")
            }
            TreeErrorKind::Exists => Self::new(
                ErrorKind::Conflict,
                "already_exists",
                message,
                "Name another path, or delete that one first.",
            ),
            TreeErrorKind::Edit => {
                let hint = "Read the file again: each `old` must be in it exactly once, each range within it.";
                Self::new(ErrorKind::Conflict, "edit_does_not_fit", message, hint)
            }
            TreeErrorKind::Archive => {
                let hint = "Nothing was changed. Leave that member out of the archive, or make the archive anew.";
                Self::new(ErrorKind::Invalid, "archive_refused", message, hint)
            }
            TreeErrorKind::TooLarge => {
                Self::new(ErrorKind::TooLarge, "too_large", message, "Split the content into smaller files.")
            }
            TreeErrorKind::InvalidStream => Self::internal(error),
            TreeErrorKind::Input => {
                let hint = "Send the whole body.";
                Self::invalid("body_broken", "the content stopped before its end", hint).because(error)
            }
            TreeErrorKind::Shut => {
                let message = "the store cannot be read, and what was purged from it is refused with all the rest";
                Self::new(ErrorKind::Unavailable, "store_shut", message, OPERATOR)
            }
            TreeErrorKind::Corrupt => {
                Self::new(ErrorKind::Internal, "tree_damaged", "stored content is damaged", OPERATOR).because(error)
            }
            TreeErrorKind::StorageFull | TreeErrorKind::QuotaExceeded => storage_full().because(error),
            TreeErrorKind::Expired => {
                Self::new(ErrorKind::Gone, "version_expired", message, "See GET /v1/tree-history for versions.")
            }
            TreeErrorKind::Storage => storage_failed().because(error),
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
            DbError::Protected { branch } => protected(branch),
            DbError::BranchTaken { branch, by } => {
                let message = format!("branch `{branch}` cannot be beside `{by}`: one would be a folder of the other");
                Self::new(ErrorKind::Conflict, "branch_taken", message, "Choose another name.")
            }
            DbError::TooMany { what, most } => {
                let message = format!("there are {most} {what} already");
                Self::new(ErrorKind::Conflict, "too_many", message, "Remove some that are not needed any more.")
            }
            DbError::Foreign { path } => {
                tracing::error!(%path, "a policy permits what no policy can: another tenant's store");
                let message = format!("`{path}` is not in a store of yours");
                Self::new(ErrorKind::Denied, "denied", message, "Ask for something of your own.")
            }
            DbError::Purged { version } => {
                let message = format!("version `{version}` was purged");
                Self::new(ErrorKind::Gone, "version_expired", message, "See GET /v1/tree-history for versions.")
            }
            DbError::RunOver { .. } => {
                Self::new(ErrorKind::Conflict, "run_over", "the run is over", "Read its events to see how it ended.")
            }
            DbError::TooManyKeys { .. } => {
                let hint = "Revoke keys that nobody uses: DELETE /v1/keys/{key}.";
                Self::new(ErrorKind::Exhausted, "too_many_keys", error.to_string(), hint)
            }
            DbError::TooManyDisabled { .. } => {
                let hint = "Enable those who will never come: POST /v1/users/{user}/enable.";
                Self::new(ErrorKind::Exhausted, "too_many_disabled", error.to_string(), hint)
            }
            DbError::Forgotten => Ended::User.into(),
            DbError::Busy { .. } => {
                let message = "the server has more to write than its disk takes";
                Self::new(ErrorKind::Unavailable, "busy", message, "Try again in a few seconds.")
            }
            DbError::Full { .. } => storage_full(),
            DbError::Closed { .. } => {
                let hint = "Try again in a few seconds.";
                Self::new(ErrorKind::Unavailable, "shutting_down", "the server is shutting down", hint)
            }
            DbError::Storage { .. } => storage_failed(),
            DbError::TooNew { .. } | DbError::Corrupt { .. } => Self::internal(error.clone()),
        }
        .because(error)
    }
}

impl From<EventLogError> for ApiError {
    fn from(error: EventLogError) -> Self {
        let cause = match &error {
            EventLogError::MakeFolder(cause)
            | EventLogError::Open { cause, .. }
            | EventLogError::Remove { cause, .. }
            | EventLogError::Append(cause)
            | EventLogError::Read(cause) => cause,
            // Its writer ends early where it cannot write.
            EventLogError::Broken => return storage_failed().because(error),
            EventLogError::Encode { .. } => return Self::internal(error),
        };
        let full = matches!(cause.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        if full { storage_full().because(error) } else { storage_failed().because(error) }
    }
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        let later = "Try again after the time in `Retry-After`.";
        let (code, hint, wait) = match error {
            AdmissionError::TenantFull { .. } => ("too_many_runs", "Wait until one of your runs has ended.", None),
            AdmissionError::TooOften { retry_after, .. } => ("too_many_launches", later, Some(retry_after)),
            AdmissionError::ServerFull { .. } => ("server_full", later, None),
        };
        Self { wait, ..Self::new(ErrorKind::Exhausted, code, error.to_string(), hint) }
    }
}

impl ApiError {
    /// There is no large disk for a run now.
    pub(crate) fn large_disks(error: AdmissionError) -> Self {
        let (code, message) = match error {
            AdmissionError::TenantFull { limit } => {
                ("too_many_large_disks", format!("runs of the tenant have or wait for {limit} large disks, its limit"))
            }
            AdmissionError::TooOften { .. } => ("too_many_large_disks", error.to_string()),
            AdmissionError::ServerFull { limit } => {
                ("large_disks_taken", format!("runs have all {limit} large disks of the server"))
            }
        };
        let hint =
            "Try again after the time in `Retry-After`, or ask for a `disk_bytes` of three quarters of `memory_bytes`.";
        Self::new(ErrorKind::Exhausted, code, message, hint).because(error)
    }
}

/// What a change of a protected branch is answered.
pub(crate) fn protected(branch: &bailey_protocol::path::BranchName) -> ApiError {
    let message = format!("branch `{branch}` is protected: only promotions change it");
    let hint = "Fork it, change the fork, and have that promoted: POST /v1/forks, then POST /v1/promotions.";
    ApiError::new(ErrorKind::Conflict, "branch_protected", message, hint)
}

/// The disk does not do what it is asked: whether what was asked for is there is not known.
fn storage_failed() -> ApiError {
    let message = "the server cannot read or write its disk";
    ApiError::new(ErrorKind::Unavailable, "storage_failed", message, "Look whether it is done, then try again.")
}

fn storage_full() -> ApiError {
    ApiError::new(ErrorKind::StorageFull, "storage_full", "the server's disk is full", "Ask the operator for room.")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use bailey_policy::Action;

    use super::*;

    fn after(policies: &[&str]) -> Cow<'static, str> {
        let policies = policies.iter().map(ToString::to_string).collect();
        ApiError::from(Denied { policies, ..Denied::unasked(Action::TreeRead, "/tenants/acme/x", "no") }).hint
    }

    #[test]
    fn each_denial_says_what_to_do_next() {
        for (policies, says) in [
            (&["credential-scope"][..], "bailey key list"),
            (&["own-folder-only", "own-tenant-only"], "your own tenant's"),
            (&["own-folder-only"], "its owner"),
            (&["own-run-only"], "/v1/runs"),
            (&["not-from-a-run"], "your own token"),
            (&["no-payroll", "tenant/payroll"], "bailey policy ls"),
            (&["no-payroll"], "the operator"),
        ] {
            assert!(after(policies).contains(says), "{policies:?}: {}", after(policies));
        }
    }

    #[test]
    fn what_admins_alone_may_is_told_to_members_as_an_admins() {
        let quota = [QuotaKind::Bytes, QuotaKind::Files, QuotaKind::FileBytes]
            .map(|quota| quota_exceeded(quota, String::new()).hint);
        let denials = ["credential-scope", "own-tenant-only", "own-folder-only", "own-run-only", "tenant/x", "x"];
        let mut named = 0;
        for hint in denials.map(|policy| after(&[policy])).into_iter().chain(quota) {
            let admins =
                ["/v1/tenant", "/v1/keys", "/v1/users", "/v1/purges", "`bailey key ", "`bailey policy ls`", "purge"];
            if admins.iter().any(|verb| hint.contains(verb)) {
                named += 1;
                assert!(hint.contains("admin"), "{hint}");
            }
        }
        assert!(named >= 3, "{named}");
    }
}
