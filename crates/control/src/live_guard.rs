//! What takes long is judged again while it goes: at each change of its tenant's policies, and every few seconds, because time
//! and what the database knows change too.

use std::sync::Arc;
use std::time::Duration;

use bailey_policy::{Denied, Judge, OperatorJudge};
use bailey_protocol::id::TenantId;
use tokio::sync::watch;

use crate::api_error::ApiError;
use crate::control::{Caller, Control, OperatorCaller};
use crate::policy_handle::{Generation, PolicyHandle};

/// Longest time between two judgements.
const EVERY: Duration = Duration::from_secs(5);
/// Judgements in a row that fail to be made before that is a denial.
const MAX_FAILED: u32 = 3;

/// Ticks when something long of one tenant, or of an operator's, has to be judged again.
#[derive(Debug, Clone)]
pub(crate) struct LiveGuard {
    policies: Arc<PolicyHandle>,
    tenant: Option<TenantId>,
    changes: watch::Receiver<u64>,
    /// What it was judged by last.
    judged_by: Option<Generation>,
}

impl LiveGuard {
    /// Made after a permit: the first tick is at once, so that no change falls between the two.
    pub(crate) fn late(policies: Arc<PolicyHandle>, tenant: Option<TenantId>) -> Self {
        let changes = policies.changes();
        Self { policies, tenant, changes, judged_by: None }
    }

    /// Made before a permit, for what takes long to judge.
    pub(crate) fn early(policies: Arc<PolicyHandle>, tenant: Option<TenantId>) -> Self {
        let judged_by = Some(policies.generation(tenant.as_ref()));
        Self { judged_by, ..Self::late(policies, tenant) }
    }

    /// Returns when it is time to judge again. What changes for other tenants alone is none of its business.
    ///
    /// CANCEL: safe; a dropped future misses no change.
    pub(crate) async fn tick(&mut self) {
        let until = tokio::time::Instant::now() + EVERY;
        loop {
            // Marked as seen first: what comes after this look ends the wait.
            self.changes.borrow_and_update();
            let now = self.policies.generation(self.tenant.as_ref());
            if self.judged_by != Some(now) {
                self.judged_by = Some(now);
                return;
            }
            // The sender lives in `policies`: an error cannot be.
            if tokio::time::timeout_at(until, self.changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Waits until `again` finds a denial: it is asked at each tick. `about` is what could not be judged, where it cannot
    /// be.
    ///
    /// CANCEL: as `again`.
    pub(crate) async fn until_refused<F>(mut self, about: &str, again: impl Fn() -> F) -> Denied
    where
        F: Future<Output = Result<Option<Denied>, ApiError>> + Send,
    {
        let mut failed = 0;
        loop {
            self.tick().await;
            match again().await {
                Ok(None) => failed = 0,
                Ok(Some(denied)) => return denied,
                Err(error) => {
                    failed += 1;
                    tracing::error!(cause = error.cause_chain(), failed, "something that goes on cannot be judged");
                    if failed >= MAX_FAILED {
                        let reason = "it could not be judged again, several times in a row";
                        let denied = Denied::unasked(bailey_policy::Action::PolicyRead, about, reason);
                        return Denied { broken: true, ..denied };
                    }
                }
            }
        }
    }
}

impl Control {
    /// Waits until policy no longer allows what `ask` asks for: `ask` is put again to the judge of the moment at each
    /// tick of a [`LiveGuard`].
    ///
    /// CANCEL: safe.
    pub(crate) async fn until_denied(
        &self,
        caller: &Caller,
        ask: impl Fn(&Judge) -> Result<(), Denied> + Send + Sync,
    ) -> Denied {
        let ask = &ask;
        // None of what was asked for.
        let again = || async move { self.quiet_judge(caller).await.map(|judge| ask(&judge).err()) };
        self.live_guard(Some(&caller.principal.tenant)).until_refused(caller.principal.tenant.as_str(), again).await
    }

    /// The same for an operator.
    ///
    /// CANCEL: safe.
    pub(crate) async fn until_operator_denied(
        &self,
        caller: &OperatorCaller,
        ask: impl Fn(&OperatorJudge) -> Result<(), Denied> + Send + Sync,
    ) -> Denied {
        let ask = &ask;
        let again = || async move {
            let judge = self.policies().current().judge_operator(&caller.operator, self.now_ms());
            Ok(ask(&judge).err())
        };
        self.live_guard(None).until_refused("bailey", again).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use bailey_policy::Policies;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_change_is_a_tick_and_so_is_every_while() {
        let handle = Arc::new(PolicyHandle::new(Policies::new(&[]).unwrap(), None, 0));
        let acme: TenantId = "acme".parse().unwrap();
        let made =
            |make: fn(Arc<PolicyHandle>, Option<TenantId>) -> LiveGuard| make(Arc::clone(&handle), Some(acme.clone()));
        let (mut late, mut early) = (made(LiveGuard::late), made(LiveGuard::early));
        let start = Instant::now();
        late.tick().await;
        assert_eq!(start.elapsed(), Duration::ZERO, "a change may have come after the permit");
        late.tick().await;
        assert_eq!(start.elapsed(), EVERY);
        handle.changed(&acme);
        early.tick().await;
        late.tick().await;
        assert_eq!(start.elapsed(), EVERY, "both see the change");
        early.tick().await;
        assert_eq!(start.elapsed(), EVERY + EVERY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_another_tenant_has_nothing_judged_again_before_its_time() {
        let handle = Arc::new(PolicyHandle::new(Policies::new(&[]).unwrap(), None, 0));
        let [acme, globex]: [TenantId; 2] = ["acme", "globex"].map(|name| name.parse().unwrap());
        let mut guard = LiveGuard::late(Arc::clone(&handle), Some(acme.clone()));
        let start = tokio::time::Instant::now();
        guard.tick().await;
        assert_eq!(start.elapsed(), Duration::ZERO, "the first at once");
        let others = async {
            for _ in 0..3 {
                tokio::time::sleep(EVERY / 5).await;
                handle.forget(&globex);
            }
        };
        tokio::join!(guard.tick(), others);
        assert_eq!(start.elapsed(), EVERY);
        for change in
            [&|| handle.changed(&acme), &|| handle.replace(Policies::new(&[]).unwrap()) as ()] as [&dyn Fn(); 2]
        {
            change();
            guard.tick().await;
            assert_eq!(start.elapsed(), EVERY, "at once");
        }
        guard.tick().await;
        assert_eq!(start.elapsed(), EVERY * 2);
        // One that was there before the permit ticks for what came since, and for nothing else.
        let mut early = LiveGuard::early(Arc::clone(&handle), Some(acme.clone()));
        let mut operators = LiveGuard::early(Arc::clone(&handle), None);
        handle.changed(&acme);
        early.tick().await;
        assert_eq!(start.elapsed(), EVERY * 2, "at once");
        operators.tick().await;
        assert_eq!(start.elapsed(), EVERY * 3);
    }
    /// What it comes to where judging goes like this, and when.
    async fn judged(answers: impl IntoIterator<Item = Result<Option<Denied>, ApiError>>) -> (Option<Denied>, Duration) {
        let handle = Arc::new(PolicyHandle::new(Policies::new(&[]).unwrap(), None, 0));
        let answers: Mutex<VecDeque<_>> = Mutex::new(answers.into_iter().collect());
        let again = || std::future::ready(answers.lock().unwrap().pop_front().unwrap_or(Ok(None)));
        let start = Instant::now();
        let refused = LiveGuard::late(handle, None).until_refused("acme", again);
        let denied = tokio::time::timeout(Duration::from_secs(3600), refused).await.ok();
        (denied, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_judged_three_times_in_a_row_is_denied() {
        let fails = || Err(ApiError::internal("the disk is gone"));
        let (denied, took) = judged([fails(), fails(), fails()]).await;
        let denied = denied.unwrap();
        assert!(denied.broken && denied.policies.is_empty() && denied.reason.contains("could not be judged"));
        assert_eq!(took, EVERY * 2);
        // In between, one that can be begins the count anew.
        let (denied, _) = judged([fails(), fails(), Ok(None), fails(), fails(), Ok(None), fails()]).await;
        assert_eq!(denied, None);
        let (denied, took) = judged([fails(), fails(), Ok(None), fails(), fails(), fails()]).await;
        assert!(denied.unwrap().broken);
        assert_eq!(took, EVERY * 5);
        let refusal = Denied::unasked(bailey_policy::Action::RunRead, "acme", "no");
        assert_eq!(judged([fails(), Ok(Some(refusal.clone()))]).await.0, Some(refusal));
    }
}
