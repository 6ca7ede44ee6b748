//! The decisions about those who are no tenant's user: service accounts and operators.

use bailey_protocol::id::TenantId;

use crate::action::{Action, kinds_of_action};
use crate::denied::Denied;
use crate::facts::TenantFacts;
use crate::permit::{ExchangePermit, OperatorPermit, SystemGrant};
use crate::policies::Policies;
use crate::principal::{CredentialId, Operator, ServiceAccount};
use crate::request::{Attributes, Request, Subject, Value};
use crate::subjects::{self, text};

kinds_of_action! {
    /// What an operator may do to the server.
    SystemAction {
        /// List tenants.
        TenantList = TenantList,
        /// List the service accounts and operators that are disabled.
        AccountList = AccountList,
        /// Disable a service account or an operator.
        AccountDisable = AccountDisable,
        /// Enable a service account or an operator again.
        AccountEnable = AccountEnable,
        /// Read the operators' own audit.
        Audit = OperatorAudit,
        /// List what is published for every tenant to fork from.
        BaselineList = BaselineList,
        /// Publish a folder that every tenant may fork from.
        BaselinePublish = BaselinePublish,
        /// See which policies are in force.
        PolicyStatus = PolicyStatus,
        /// Try other policies on what was asked.
        PolicyDryRun = PolicyDryRun,
        /// Read the server's figures.
        Metrics = MetricsRead,
    }
}

kinds_of_action! {
    /// What an operator may do to a tenant as a whole.
    TenantAction {
        /// Disable it.
        Disable = TenantDisable,
        /// Enable it again.
        Enable = TenantEnable,
        /// List its users.
        UserList = TenantUserList,
        /// Disable a user of it.
        UserDisable = TenantUserDisable,
        /// Enable a user of it again.
        UserEnable = TenantUserEnable,
        /// Forget a user of it.
        UserForget = TenantUserForget,
        /// See what it may keep, and does.
        QuotaRead = QuotaRead,
        /// Set what it may keep.
        QuotaSet = QuotaSet,
        /// Let it keep what is usual.
        QuotaReset = QuotaReset,
        /// See what is noted of it.
        FactsRead = FactsRead,
        /// Note its region and plan.
        FactsSet = FactsSet,
        /// Collect the garbage of its stores.
        GarbageCollect = GarbageCollect,
        /// Read its audit, without names and details.
        Audit = TenantAudit,
    }
}

/// Asks one set of policies about an operator's requests. No tenant's policy is in it.
#[derive(Debug, Clone)]
pub struct OperatorJudge {
    pub(crate) policies: Policies,
    pub(crate) operator: Operator,
    pub(crate) now_ms: u64,
}

/// Asks one set of policies about a service account's requests. No tenant's policy is in it.
#[derive(Debug, Clone)]
pub struct ServiceJudge {
    pub(crate) policies: Policies,
    pub(crate) service: ServiceAccount,
    pub(crate) now_ms: u64,
}

impl OperatorJudge {
    /// May it do this to the server?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn system(&self, action: SystemAction) -> Result<OperatorPermit, Denied> {
        self.decide(action.into(), "bailey", None, subjects::system())
    }

    /// As [`OperatorJudge::system`], with what it is about for the audit.
    ///
    /// # Errors
    /// When policy denies it.
    pub fn system_about(&self, action: SystemAction, about: &str) -> Result<OperatorPermit, Denied> {
        self.decide(action.into(), about, None, subjects::system())
    }

    /// May it do this to `tenant`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn tenant(
        &self,
        action: TenantAction,
        tenant: &TenantId,
        known: &TenantFacts,
    ) -> Result<OperatorPermit, Denied> {
        self.decide(action.into(), tenant.as_str(), Some(tenant), subjects::tenant(tenant, known))
    }

    fn decide(
        &self,
        action: Action,
        resource: &str,
        tenant: Option<&TenantId>,
        target: Subject,
    ) -> Result<OperatorPermit, Denied> {
        let principal = subjects::operator(&self.operator);
        let context = context(&self.operator.credential, self.now_ms);
        let request = Request { principal, action, resource: target, tenant: None, context };
        let grant = granted(&self.policies, &request, &self.operator.name, resource)?;
        Ok(OperatorPermit { grant, action, tenant: tenant.cloned() })
    }
}

impl ServiceJudge {
    /// May it get a token for a user of `tenant`?
    ///
    /// # Errors
    /// When policy denies it.
    pub fn exchange(&self, tenant: &TenantId, known: &TenantFacts) -> Result<ExchangePermit, Denied> {
        let request = Request {
            principal: subjects::service(&self.service),
            action: Action::TokenExchange,
            resource: subjects::tenant(tenant, known),
            tenant: None,
            context: context(&self.service.credential, self.now_ms),
        };
        let grant = granted(&self.policies, &request, &self.service.name, tenant.as_str())?;
        Ok(ExchangePermit { grant, tenant: tenant.clone() })
    }
}

fn context(credential: &CredentialId, now_ms: u64) -> Attributes {
    [("time".into(), Value::Time(now_ms)), ("credential".into(), text(credential.kind.as_str()))].into()
}

fn granted(policies: &Policies, request: &Request, who: &str, resource: &str) -> Result<SystemGrant, Denied> {
    let answer = policies.ask(request);
    if !answer.allowed {
        return Err(Denied::answered(request.action, resource, answer));
    }
    let (who, resource, policies) = (who.to_owned(), resource.to_owned(), answer.policies);
    Ok(SystemGrant { who, action: request.action, resource, policies })
}
