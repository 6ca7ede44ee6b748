//! What is opened to those who are no tenant's user.

use bailey_protocol::id::TenantId;

use crate::action::Action;

/// Who was allowed what, and by which policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemGrant {
    pub(crate) who: String,
    pub(crate) action: Action,
    pub(crate) resource: String,
    pub(crate) policies: Vec<String>,
}

impl SystemGrant {
    /// The operator's or the service account's name.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.who
    }

    /// What was allowed.
    #[must_use]
    pub fn action(&self) -> Action {
        self.action
    }

    /// On what, for the audit.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Ids of the policies that allowed it, sorted.
    #[must_use]
    pub fn policies(&self) -> &[String] {
        &self.policies
    }
}

/// Opens the making of a token for a user of one tenant.
#[derive(Debug, PartialEq, Eq)]
pub struct ExchangePermit {
    pub(crate) grant: SystemGrant,
    pub(crate) tenant: TenantId,
}

impl ExchangePermit {
    /// Who was allowed what.
    #[must_use]
    pub fn grant(&self) -> &SystemGrant {
        &self.grant
    }

    /// The tenant that was decided on.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }
}

/// Opens one thing that an operator does to the server, or to one tenant as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct OperatorPermit {
    pub(crate) grant: SystemGrant,
    pub(crate) action: Action,
    pub(crate) tenant: Option<TenantId>,
}

impl OperatorPermit {
    /// Who was allowed what.
    #[must_use]
    pub fn grant(&self) -> &SystemGrant {
        &self.grant
    }

    /// What was decided on.
    #[must_use]
    pub fn action(&self) -> Action {
        self.action
    }

    /// The tenant that was decided on; none where it is about the server.
    #[must_use]
    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }
}
