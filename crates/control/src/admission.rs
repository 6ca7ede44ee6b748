//! How many runs may be going at once, in all and for each tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bailey_protocol::id::TenantId;

/// Why a run must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The tenant has its share.
    #[error("the tenant has {limit} runs going, its limit")]
    TenantFull {
        /// Runs that one tenant may have at once.
        limit: usize,
    },
    /// The server has all it can take.
    #[error("the server has {limit} runs going, its limit")]
    ServerFull {
        /// Runs that the server takes at once.
        limit: usize,
    },
}

/// Counts runs that are going. Clones count together.
#[derive(Debug, Clone)]
pub struct Admission {
    counts: Arc<Mutex<Counts>>,
    per_server: usize,
    per_tenant: usize,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    /// INVARIANT: no entry is zero, so that the map is never larger than `total`.
    by_tenant: HashMap<TenantId, usize>,
}

/// Room for one run, given back on drop.
#[derive(Debug)]
pub struct Slot {
    admission: Admission,
    tenant: TenantId,
}

impl Admission {
    /// Room for `per_server` runs, of which one tenant takes at most `per_tenant`.
    #[must_use]
    pub fn new(per_server: usize, per_tenant: usize) -> Self {
        Self { counts: Arc::default(), per_server, per_tenant }
    }

    /// Takes room for one run of `tenant`.
    ///
    /// # Errors
    /// When there is none; nothing was taken.
    pub fn enter(&self, tenant: &TenantId) -> Result<Slot, AdmissionError> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.by_tenant.get(tenant).copied().unwrap_or(0) >= self.per_tenant {
            return Err(AdmissionError::TenantFull { limit: self.per_tenant });
        }
        if counts.total >= self.per_server {
            return Err(AdmissionError::ServerFull { limit: self.per_server });
        }
        counts.total += 1;
        *counts.by_tenant.entry(tenant.clone()).or_insert(0) += 1;
        Ok(Slot { admission: self.clone(), tenant: tenant.clone() })
    }

    /// Runs that are going now.
    #[must_use]
    pub fn going(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).total
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.admission.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total = counts.total.saturating_sub(1);
        if let Some(count) = counts.by_tenant.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                counts.by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t10_exactly_the_limit_enters_and_room_comes_back() {
        let admission = Admission::new(3, 2);
        let (acme, globex): (TenantId, TenantId) = ("acme".parse().unwrap(), "globex".parse().unwrap());
        let first = admission.enter(&acme).unwrap();
        let _second = admission.enter(&acme).unwrap();
        assert_eq!(admission.enter(&acme).unwrap_err(), AdmissionError::TenantFull { limit: 2 });
        let _third = admission.enter(&globex).unwrap();
        assert_eq!(admission.enter(&globex).unwrap_err(), AdmissionError::ServerFull { limit: 3 });
        drop(first);
        let _again = admission.enter(&acme).unwrap();
        assert_eq!(admission.going(), 3);
    }

    #[test]
    fn a_tenant_without_runs_leaves_no_entry() {
        let admission = Admission::new(9, 9);
        drop(admission.enter(&"acme".parse().unwrap()).unwrap());
        assert!(admission.counts.lock().unwrap().by_tenant.is_empty());
    }
}
