//! Turns at what there is only so much of, such as threads that are held for as long as a client takes: so many in all, so
//! many of them one tenant's.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bailey_protocol::id::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Tenants beyond which those are forgotten that nobody waits or works for.
const MANY: usize = 1024;

/// Turns of one kind, of tenants or of whoever else is told apart.
#[derive(Debug)]
pub(crate) struct Turns<K = TenantId> {
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<K, Arc<Semaphore>>>,
    per_tenant: usize,
}

/// One turn, given back on drop.
#[derive(Debug)]
pub(crate) struct Turn {
    _tenants: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl<K: Clone + Eq + Hash> Turns<K> {
    /// So many turns in all, of which one tenant takes at most `per_tenant`.
    pub(crate) fn new(all: usize, per_tenant: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), tenants: Mutex::default(), per_tenant }
    }

    /// Waits for a turn, up to `patience`; `None` when there was none. Whoever waits for its own tenant's others is in
    /// nobody else's way.
    ///
    /// CANCEL: no turn is taken.
    pub(crate) async fn take(&self, tenant: &K, patience: Duration) -> Option<Turn> {
        tokio::time::timeout(patience, self.wait(tenant)).await.ok().flatten()
    }

    /// Waits for a turn however long it takes, behind all that wait already.
    ///
    /// CANCEL: no turn is taken.
    pub(crate) async fn wait(&self, tenant: &K) -> Option<Turn> {
        let tenants = self.of(tenant).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Turn { _tenants: tenants, _all: all })
    }

    fn of(&self, tenant: &K) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() > MANY {
            tenants.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let own = tenants.entry(tenant.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.per_tenant)));
        Arc::clone(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn t10_one_tenant_cannot_take_all_turns() {
        let turns: Turns = Turns::new(4, 2);
        let (acme, globex): (TenantId, TenantId) = ("acme".parse().unwrap(), "globex".parse().unwrap());
        let soon = Duration::from_secs(1);
        let (first, _second) = (turns.take(&acme, soon).await.unwrap(), turns.take(&acme, soon).await.unwrap());
        assert!(turns.take(&acme, soon).await.is_none());
        let _others = (turns.take(&globex, soon).await.unwrap(), turns.take(&globex, soon).await.unwrap());
        assert!(turns.take(&"third".parse().unwrap(), soon).await.is_none(), "all are taken");
        drop(first);
        assert!(turns.take(&acme, soon).await.is_some());
    }

    #[tokio::test]
    async fn tenants_that_are_gone_are_forgotten() {
        let turns: Turns = Turns::new(4, 2);
        let held = turns.take(&"held".parse().unwrap(), Duration::ZERO).await;
        for number in 0..MANY + 10 {
            drop(turns.take(&format!("t{number}").parse().unwrap(), Duration::ZERO).await);
        }
        let tenants = turns.tenants.lock().unwrap();
        assert!(tenants.len() < 20 && tenants.contains_key(&"held".parse::<TenantId>().unwrap()));
        drop(held);
    }
}
