//! One line of the audit: who asked for what, what was decided, how it came out.

use bailey_policy::{Denied, Grant, Principal};
use bailey_protocol::id::{RequestId, RunId, TenantId, UserId};

/// What policy said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditDecision {
    /// It was allowed.
    Allowed,
    /// It was denied.
    Denied,
}

impl AuditDecision {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }
}

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub(crate) time_ms: u64,
    pub(crate) request: Option<RequestId>,
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    pub(crate) acting_run: Option<RunId>,
    pub(crate) action: &'static str,
    pub(crate) resource: String,
    pub(crate) decision: AuditDecision,
    pub(crate) policies: Vec<String>,
    pub(crate) outcome: String,
}

impl AuditEntry {
    /// Something allowed, and how it came out: `ok`, an error code, or the id of what it made.
    #[must_use]
    pub fn allowed(grant: &Grant, outcome: &str, request: Option<&RequestId>, time_ms: u64) -> Self {
        Self {
            time_ms,
            request: request.cloned(),
            tenant: grant.tenant().clone(),
            user: grant.user().clone(),
            acting_run: grant.run().cloned(),
            action: grant.action().as_str(),
            resource: grant.resource().to_owned(),
            decision: AuditDecision::Allowed,
            policies: grant.policies().to_vec(),
            outcome: outcome.to_owned(),
        }
    }

    /// Something denied.
    #[must_use]
    pub fn denied(principal: &Principal, denied: &Denied, request: Option<&RequestId>, time_ms: u64) -> Self {
        Self {
            time_ms,
            request: request.cloned(),
            tenant: principal.tenant.clone(),
            user: principal.user.clone(),
            acting_run: principal.run.clone(),
            action: denied.action.as_str(),
            resource: denied.resource.clone(),
            decision: AuditDecision::Denied,
            policies: denied.policies.clone(),
            outcome: denied.reason.clone(),
        }
    }
}
