//! From the decision about an operator or a service account to a permit, with its line on the audit.

use bailey_policy::{Action, Denied, ExchangePermit, OperatorJudge, OperatorPermit, SystemAction, TenantAction};
use bailey_protocol::id::TenantId;

use crate::api_error::ApiError;
use crate::control::{Control, OperatorCaller, ServiceCaller};
use crate::db::AuditEntry;

impl Control {
    /// Decides what an operator asks for, by the policies in force now.
    pub(crate) fn judge_operator(&self, caller: &OperatorCaller) -> OperatorJudge {
        self.policies().current().judge_operator(&caller.operator, self.now_ms())
    }

    /// What an operator may do to the server.
    ///
    /// # Errors
    /// When it is denied.
    pub(crate) async fn operator_may(
        &self,
        caller: &OperatorCaller,
        action: SystemAction,
    ) -> Result<OperatorPermit, ApiError> {
        self.operator_permit(caller, self.judge_operator(caller).system(action)).await
    }

    /// What an operator may do to a tenant.
    ///
    /// # Errors
    /// When it is denied.
    pub(crate) async fn operator_may_to(
        &self,
        caller: &OperatorCaller,
        action: TenantAction,
        tenant: &TenantId,
    ) -> Result<OperatorPermit, ApiError> {
        let decision = self.judge_operator(caller).tenant(action, tenant, &self.tenant_facts().of(tenant));
        self.operator_permit(caller, decision).await
    }

    /// The permit behind `decision`. A denial is on the audit before it is answered.
    pub(crate) async fn operator_permit(
        &self,
        caller: &OperatorCaller,
        decision: Result<OperatorPermit, Denied>,
    ) -> Result<OperatorPermit, ApiError> {
        match decision {
            Ok(permit) => Ok(permit),
            Err(denied) => {
                self.record_operator_denial(caller, &denied).await;
                Err(denied.into())
            }
        }
    }

    /// Whether anybody of the permit's tenant was ever seen, up to now.
    pub(crate) async fn knows_tenant(&self, permit: &OperatorPermit) -> Result<bool, ApiError> {
        // What cannot be written makes somebody unknown who was only just seen.
        drop(super::write_notes(self).await);
        Ok(self.db().knows_tenant(permit).await?)
    }

    /// Puts a denial on the audit.
    pub(crate) async fn record_operator_denial(&self, caller: &OperatorCaller, denied: &Denied) {
        let now = self.now_ms();
        self.refused(AuditEntry::operator_denied(&caller.operator, denied, Some(&caller.request), now)).await;
    }

    /// Puts what an operator was allowed, and how it came out, on the audit, and on the tenant's where it changed something
    /// of a tenant's or looked at its users; hands `result` back.
    pub(crate) async fn operator_audited<T>(
        &self,
        caller: &OperatorCaller,
        permit: &OperatorPermit,
        result: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let (outcome, now) = (outcome(&result), self.now_ms());
        let entry = AuditEntry::by_operator(&caller.operator, permit, outcome, Some(&caller.request), now);
        let action = permit.action();
        // Of who is forgotten the receipt is there.
        let forgotten = action == Action::TenantUserForget && outcome == "ok";
        let touched = (!action.reads() || action == Action::TenantUserList) && !forgotten;
        let told = permit.tenant().filter(|_| touched).map(|tenant| entry.clone().on(tenant));
        self.write_audit(told.into_iter().chain([entry]).collect()).await?;
        result
    }

    /// The permit behind `decision`. A denial is on the audit before it is answered.
    pub(crate) async fn service_permit(
        &self,
        caller: &ServiceCaller,
        decision: Result<ExchangePermit, Denied>,
    ) -> Result<ExchangePermit, ApiError> {
        match decision {
            Ok(permit) => Ok(permit),
            Err(denied) => {
                let now = self.now_ms();
                let entry = AuditEntry::service_denied(&caller.service, &denied, Some(&caller.request), now);
                self.refused(entry).await;
                Err(denied.into())
            }
        }
    }

    /// Puts what a service account was allowed, and how it came out, on the audit; hands `result` back.
    pub(crate) async fn service_audited<T>(
        &self,
        caller: &ServiceCaller,
        permit: &ExchangePermit,
        result: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let (outcome, now) = (outcome(&result), self.now_ms());
        let entry = AuditEntry::by_service(&caller.service, permit, outcome, Some(&caller.request), now);
        self.write_audit(vec![entry]).await?;
        result
    }

    async fn refused(&self, entry: AuditEntry) {
        if let Err(error) = self.db().audit(entry).await {
            // It stays a denial.
            tracing::error!(%error, "a denial is not on the audit");
        }
    }
}

fn outcome<T>(result: &Result<T, ApiError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(error) => error.code,
    }
}
