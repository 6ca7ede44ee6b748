//! From a decision to a permit, with its line on the audit.

use bailey_policy::{Denied, Grant};

use crate::api_error::ApiError;
use crate::control::{Caller, Control};
use crate::db::AuditEntry;

impl Control {
    /// The permit behind `decision`. A denial is on the audit before it is answered.
    pub(crate) async fn permit<P>(&self, caller: &Caller, decision: Result<P, Denied>) -> Result<P, ApiError> {
        match decision {
            Ok(permit) => Ok(permit),
            Err(denied) => {
                self.record_denial(caller, &denied).await;
                Err(denied.into())
            }
        }
    }

    /// Puts a denial on the audit.
    pub(crate) async fn record_denial(&self, caller: &Caller, denied: &Denied) {
        let entry = AuditEntry::denied(&caller.principal, denied, Some(&caller.request), self.now_ms());
        if let Err(error) = self.db().audit(entry).await {
            // It stays a denial.
            tracing::error!(request = %caller.request, %error, "a denial is not on the audit");
        }
    }

    /// Puts what was allowed, and how it came out, on the audit.
    ///
    /// # Errors
    /// When it cannot be recorded: then nobody may learn the outcome.
    pub(crate) async fn audit<'a>(
        &self,
        caller: &Caller,
        grants: impl IntoIterator<Item = &'a Grant>,
        outcome: &str,
    ) -> Result<(), ApiError> {
        let now = self.now_ms();
        let entries = grants.into_iter().map(|grant| AuditEntry::allowed(grant, outcome, Some(&caller.request), now));
        self.write_audit(entries.collect()).await
    }

    /// Puts `entries` on the audit, together, so that they share one commit.
    ///
    /// # Errors
    /// When one cannot be recorded.
    pub(crate) async fn write_audit(&self, entries: Vec<AuditEntry>) -> Result<(), ApiError> {
        futures_util::future::try_join_all(entries.into_iter().map(|entry| self.db().audit(entry))).await?;
        Ok(())
    }

    /// Puts something that concerns every tenant on the audit of each.
    ///
    /// CANCEL: those that come later are not told.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub(crate) async fn tell_tenants(&self, entry: AuditEntry) -> Result<(), ApiError> {
        let mut after = Some(0);
        while let Some(at) = after {
            after = self.db().audit_tenants(entry.clone(), at).await?;
        }
        Ok(())
    }

    /// Hands `result` back. Where it failed, what was allowed on the way to it is on the audit first, with the failure as
    /// its outcome; where it did not, whoever goes on puts it there.
    pub(crate) async fn failure_audited<'a, T>(
        &self,
        caller: &Caller,
        grants: impl IntoIterator<Item = &'a Grant>,
        result: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if let Err(error) = &result {
            self.audit(caller, grants, error.code).await?;
        }
        result
    }

    /// As [`Control::audit`], with the outcome taken from `result`, which is handed back.
    pub(crate) async fn audited<'a, T>(
        &self,
        caller: &Caller,
        grants: impl IntoIterator<Item = &'a Grant>,
        result: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let outcome = match &result {
            Ok(_) => "ok",
            Err(error) => error.code,
        };
        self.audit(caller, grants, outcome).await?;
        result
    }
}
