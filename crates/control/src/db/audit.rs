//! The audit: one hash chain for each tenant and one for the operator, to which rows are only ever added.

use bailey_policy::{
    Action, AdminAction, AdminPermit, CredentialKind, Denied, ExchangePermit, Grant, Operator, OperatorPermit,
    Principal, ServiceAccount,
};
use bailey_protocol::audit::{AuditCheckpoint, AuditRecord, AuditSubject, Digest};
use bailey_protocol::id::{RequestId, RunId, TenantId, UserId};
use bailey_protocol::path::TreePath;

use super::{DbFuture, RunEnd};
use crate::audit::{AuditSigner, Chain, RUN_COMMIT, RUN_END};

/// The part of a database that keeps the audit.
pub trait AuditDb: Send + Sync {
    /// Appends to the audit. Entries that wait together share one commit.
    fn audit(&self, entry: AuditEntry) -> DbFuture<'_, ()>;

    /// Appends to the next chains of tenants, after the chain of that number; answers where to go on, `None` at the end.
    /// Tenants that have no chain have nobody who would read it.
    fn audit_tenants(&self, entry: AuditEntry, after: i64) -> DbFuture<'_, Option<i64>>;

    /// Rows that the filter lets through, within a bounded stretch of the chain.
    fn audit_window<'a>(&'a self, scope: &'a AuditScope, ask: AuditAsk) -> DbFuture<'a, AuditWindow>;

    /// The chain's next rows after `after` up to `to`, with all that an export holds of them.
    fn audit_piece<'a>(&'a self, scope: &'a AuditScope, after: u64, to: u64) -> DbFuture<'a, AuditPiece>;

    /// Where the chain is now; `None` before its first row.
    fn audit_head<'a>(&'a self, scope: &'a AuditScope) -> DbFuture<'a, Option<AuditHead>>;

    /// Rows appended by this process, checkpoints aside.
    fn audit_appended(&self) -> u64;

    /// Of those, the ones that tell of a denial.
    fn audit_denials(&self) -> u64;

    /// Heads of chains that no checkpoint seals.
    fn audit_unsealed(&self) -> DbFuture<'_, Vec<AuditHead>>;

    /// Keeps checkpoints of tenants' chains, a row of the operator's chain that seals them together, and that row's own
    /// checkpoint, which is answered.
    fn audit_seal(
        &self,
        checkpoints: Vec<AuditCheckpoint>,
        signer: AuditSigner,
        now_ms: u64,
    ) -> DbFuture<'_, AuditCheckpoint>;

    /// Forgets what every row about `path` or what is below it was about. Appends `receipt`, whose chain it is done to,
    /// with the number of details that are gone, and without naming the path; answers that number.
    fn forget_path_details<'a>(&'a self, receipt: AuditEntry, path: &'a TreePath) -> DbFuture<'a, u64>;
}

/// The chain that a permit opens for reading, and whether with names and details. Only a permit makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditScope {
    chain: Chain,
    named: bool,
}

impl AuditScope {
    /// The admin's own tenant's chain; `None` for a permit of something else.
    #[must_use]
    pub fn of_tenant(permit: &AdminPermit) -> Option<Self> {
        let own = Self { chain: Chain::Tenant(permit.tenant().clone()), named: true };
        (*permit.action() == AdminAction::AuditRead).then_some(own)
    }

    /// The operators' chain, or the tenant's that was decided on; `None` for a permit of something else. A tenant's chain is
    /// opened without the names of its users and what their rows are about: those are the tenant's own.
    #[must_use]
    pub fn of_operator(permit: &OperatorPermit) -> Option<Self> {
        match (permit.action(), permit.tenant()) {
            (Action::OperatorAudit, None) => Some(Self { chain: Chain::Operator, named: true }),
            (Action::TenantAudit, Some(tenant)) => Some(Self { chain: Chain::Tenant(tenant.clone()), named: false }),
            (_, _) => None,
        }
    }

    /// The chain.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Whether with names and details.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// Whether the name of somebody of this kind is told. Who runs the server is a pseudonym to tenants, as their users are
    /// to those who run it.
    pub(crate) fn tells(&self, kind: &str) -> bool {
        match (&self.chain, self.named) {
            (Chain::Operator, _) => true,
            (Chain::Tenant(_), true) => kind != OPERATOR,
            (Chain::Tenant(_), false) => kind == OPERATOR || kind == SERVER,
        }
    }
}

/// Which rows; what is absent lets every row through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// By this user.
    pub user: Option<String>,
    /// For this action.
    pub action: Option<String>,
    /// How it was decided.
    pub decision: Option<AuditDecision>,
    /// By this run, or with it as outcome.
    pub run: Option<String>,
    /// About what begins so.
    pub resource: Option<String>,
    /// Not before this time.
    pub since_ms: Option<u64>,
    /// Before this time.
    pub until_ms: Option<u64>,
}

/// Where to look, and in which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditFrom {
    /// Before this row, newest first; from the end where absent.
    Before(Option<u64>),
    /// After this row, oldest first.
    After(u64),
}

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditAsk {
    /// Which rows.
    pub filter: AuditFilter,
    /// From where.
    pub from: AuditFrom,
    /// Most rows.
    pub limit: u32,
}

/// What a stretch of a chain holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditWindow {
    /// In the direction that was asked for.
    pub records: Vec<AuditRecord>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// Rows for an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditPiece {
    /// Who the rows name.
    pub subjects: Vec<AuditSubject>,
    /// In order.
    pub records: Vec<AuditRecord>,
    /// In order.
    pub checkpoints: Vec<AuditCheckpoint>,
}

/// Where a chain has got to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHead {
    /// The chain.
    pub chain: String,
    /// Of the last row.
    pub seq: u64,
    /// Of the last row.
    pub hash: Digest,
}

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

/// Kinds of those behind pseudonyms.
pub(crate) const OPERATOR: &str = "operator";
const SERVER: &str = "server";

/// Whoever is behind a pseudonym.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

impl Named {
    pub(crate) fn user(user: &UserId) -> Self {
        Self { kind: "user", name: user.to_string() }
    }

    fn actor(name: Option<&str>, credential: CredentialKind) -> Option<Self> {
        let kind = match credential {
            CredentialKind::ApiKey => "key",
            CredentialKind::Token | CredentialKind::TreeToken | CredentialKind::Exchanged => "service",
        };
        name.map(|name| Self { kind, name: name.to_owned() })
    }

    fn server() -> Self {
        Self { kind: SERVER, name: "bailey".to_owned() }
    }
}

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub(crate) chain: Chain,
    pub(crate) time_ms: u64,
    pub(crate) request: Option<RequestId>,
    pub(crate) subject: Named,
    pub(crate) actor: Option<Named>,
    pub(crate) credential: &'static str,
    pub(crate) credential_id: String,
    pub(crate) acting_run: Option<RunId>,
    pub(crate) action: &'static str,
    pub(crate) resource: String,
    pub(crate) decision: AuditDecision,
    pub(crate) policies: Vec<String>,
    pub(crate) reason: String,
    pub(crate) outcome: String,
}

impl AuditEntry {
    /// Something allowed, and how it came out: `ok`, an error code, or the id of what it made.
    #[must_use]
    pub fn allowed(grant: &Grant, outcome: &str, request: Option<&RequestId>, time_ms: u64) -> Self {
        Self {
            chain: Chain::Tenant(grant.tenant().clone()),
            time_ms,
            request: request.cloned(),
            subject: Named::user(grant.user()),
            actor: Named::actor(grant.actor(), grant.credential().kind),
            credential: grant.credential().kind.as_str(),
            credential_id: grant.credential().id.clone(),
            acting_run: grant.run().cloned(),
            action: grant.action().as_str(),
            resource: grant.resource().to_owned(),
            decision: AuditDecision::Allowed,
            policies: grant.policies().to_vec(),
            reason: String::new(),
            outcome: outcome.to_owned(),
        }
    }

    /// How a run ended that was allowed, and each version that came of it.
    pub(crate) fn of_end(grant: &Grant, run: &RunId, end: &RunEnd, time_ms: u64) -> Vec<Self> {
        let row = |action: &'static str, resource: &str, outcome: &str| Self {
            acting_run: Some(run.clone()),
            action,
            resource: resource.to_owned(),
            ..Self::allowed(grant, outcome, None, time_ms)
        };
        let versions = match end {
            RunEnd::Ended(result) => result.versions.as_slice(),
            RunEnd::Failed(_) => &[],
        };
        let made = versions.iter().map(|made| row(RUN_COMMIT, made.path.as_str(), made.version.as_str()));
        std::iter::once(row(RUN_END, run.as_str(), &end.outcome())).chain(made).collect()
    }

    /// That a run of an earlier life of the server is over.
    pub(crate) fn of_lost_run(tenant: &TenantId, run: &RunId, time_ms: u64) -> Self {
        let outcome = RunEnd::node_restarted().outcome();
        let row = Self::by_server(RUN_END, outcome, time_ms).on(tenant);
        Self { acting_run: Some(run.clone()), resource: run.to_string(), ..row }
    }

    /// The same, on a tenant's chain.
    pub(crate) fn on(self, tenant: &TenantId) -> Self {
        Self { chain: Chain::Tenant(tenant.clone()), ..self }
    }

    /// The same, without whom it is by and what it is about.
    pub(crate) fn nameless(self) -> Self {
        let subject = Named { kind: self.subject.kind, name: String::new() };
        Self { subject, resource: String::new(), reason: String::new(), credential_id: String::new(), ..self }
    }

    /// The same, without what it is about.
    #[must_use]
    pub fn unnamed(self) -> Self {
        Self { resource: String::new(), ..self }
    }

    /// Something denied.
    #[must_use]
    pub fn denied(principal: &Principal, denied: &Denied, request: Option<&RequestId>, time_ms: u64) -> Self {
        Self {
            chain: Chain::Tenant(principal.tenant.clone()),
            time_ms,
            request: request.cloned(),
            subject: Named::user(&principal.user),
            actor: Named::actor(principal.actor.as_deref(), principal.credential.kind),
            credential: principal.credential.kind.as_str(),
            credential_id: principal.credential.id.clone(),
            acting_run: principal.run.clone(),
            action: denied.action.as_str(),
            resource: denied.resource.clone(),
            decision: AuditDecision::Denied,
            policies: denied.policies.clone(),
            reason: denied.reason.clone(),
            outcome: "denied".to_owned(),
        }
    }

    /// Something that an operator was allowed, on the operator's chain.
    #[must_use]
    pub fn by_operator(
        operator: &Operator,
        permit: &OperatorPermit,
        outcome: &str,
        request: Option<&RequestId>,
        time_ms: u64,
    ) -> Self {
        let grant = permit.grant();
        Self {
            request: request.cloned(),
            action: grant.action().as_str(),
            resource: grant.resource().to_owned(),
            policies: grant.policies().to_vec(),
            ..Self::of_operator(operator, outcome, time_ms)
        }
    }

    /// Something that an operator was denied, on the operator's chain.
    #[must_use]
    pub fn operator_denied(operator: &Operator, denied: &Denied, request: Option<&RequestId>, time_ms: u64) -> Self {
        Self::of_operator(operator, "denied", time_ms).refused(denied, request)
    }

    /// A token that a service account was allowed for a user of a tenant, on the tenant's chain.
    #[must_use]
    pub fn by_service(
        service: &ServiceAccount,
        permit: &ExchangePermit,
        outcome: &str,
        request: Option<&RequestId>,
        time_ms: u64,
    ) -> Self {
        let grant = permit.grant();
        Self {
            request: request.cloned(),
            action: grant.action().as_str(),
            resource: grant.resource().to_owned(),
            policies: grant.policies().to_vec(),
            ..Self::of_service(service, Chain::Tenant(permit.tenant().clone()), outcome, time_ms)
        }
    }

    /// Something that a service account was denied. It is on the operator's chain: a tenant that does not exist has none.
    #[must_use]
    pub fn service_denied(
        service: &ServiceAccount,
        denied: &Denied,
        request: Option<&RequestId>,
        time_ms: u64,
    ) -> Self {
        Self::of_service(service, Chain::Operator, "denied", time_ms).refused(denied, request)
    }

    fn refused(self, denied: &Denied, request: Option<&RequestId>) -> Self {
        Self {
            request: request.cloned(),
            action: denied.action.as_str(),
            resource: denied.resource.clone(),
            decision: AuditDecision::Denied,
            policies: denied.policies.clone(),
            reason: denied.reason.clone(),
            ..self
        }
    }

    fn of_operator(operator: &Operator, outcome: &str, time_ms: u64) -> Self {
        Self {
            subject: Named { kind: OPERATOR, name: operator.name.clone() },
            credential: operator.credential.kind.as_str(),
            credential_id: operator.credential.id.clone(),
            ..Self::by_server("", outcome.to_owned(), time_ms)
        }
    }

    fn of_service(service: &ServiceAccount, chain: Chain, outcome: &str, time_ms: u64) -> Self {
        Self {
            chain,
            subject: Named { kind: "service", name: service.name.clone() },
            credential: service.credential.kind.as_str(),
            credential_id: service.credential.id.clone(),
            ..Self::by_server("", outcome.to_owned(), time_ms)
        }
    }

    /// What the server did by itself, on the operator's chain.
    pub(crate) fn by_server(action: &'static str, outcome: String, time_ms: u64) -> Self {
        Self {
            chain: Chain::Operator,
            time_ms,
            request: None,
            subject: Named::server(),
            actor: None,
            credential: "none",
            credential_id: String::new(),
            acting_run: None,
            action,
            resource: String::new(),
            decision: AuditDecision::Allowed,
            policies: Vec::new(),
            reason: String::new(),
            outcome,
        }
    }
}
