//! What was decided, for the question what other policies would have said. Equal requests of one hour are one: which hour it
//! is some rules ask as well, and what is older than a day is not to be counted. What has not been written yet is bounded for each tenant: no request waits for this, a flood of different ones is not kept whole,
//! and takes no other tenant's room.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bailey_policy::judge::Witness;
use bailey_policy::request::Request;
use tokio_util::sync::CancellationToken;

use crate::control::Control;
use crate::db::DecisionSeen;

/// Most distinct requests that wait to be written, of one tenant and of all.
const MAX_OF_TENANT: usize = 256;
const MAX_PENDING: usize = 16_384;
const HOUR_MS: u64 = 3_600_000;
/// How often they are.
const EVERY: Duration = Duration::from_secs(5);

/// Requests that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Decisions(Arc<Mutex<Pending>>);

/// By tenant and hash.
#[derive(Debug, Default)]
struct Pending {
    tenants: HashMap<String, HashMap<u64, DecisionSeen>>,
    count: usize,
}

impl Decisions {
    /// Notes each request of a judge that is told of it.
    pub(crate) fn witness(&self, now_ms: u64) -> Witness {
        let pending = Arc::clone(&self.0);
        Arc::new(move |request| note(&pending, request, now_ms))
    }

    fn take(&self) -> Vec<DecisionSeen> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *pending).tenants.into_values().flat_map(HashMap::into_values).collect()
    }
}

impl Control {
    /// Writes what was decided.
    pub(crate) async fn write_decisions(&self) {
        let seen = self.decisions().take();
        if seen.is_empty() {
            return;
        }
        if let Err(error) = self.db().note_decisions(seen, self.now_ms()).await {
            // A dry run knows less; nothing else depends on it.
            tracing::warn!(error = &error as &dyn std::error::Error, "what was decided is not kept");
        }
    }

    /// Writes what was decided, now and then, until `stop`.
    pub(crate) async fn keep_decisions(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(EVERY) => {}
            }
            self.write_decisions().await;
        }
        self.write_decisions().await;
    }
}

fn note(pending: &Mutex<Pending>, request: &Request, now_ms: u64) {
    let Some(name) = request.tenant_of_principal() else { return };
    let hash = hash(request, now_ms / HOUR_MS);
    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    let Pending { tenants, count } = &mut *pending;
    if !tenants.contains_key(name) {
        tenants.insert(name.to_owned(), HashMap::new());
    }
    let Some(of_tenant) = tenants.get_mut(name) else { return };
    if let Some(seen) = of_tenant.get_mut(&hash) {
        seen.count += 1;
        seen.last_ms = now_ms;
    } else if of_tenant.len() < MAX_OF_TENANT
        && *count < MAX_PENDING
        && let Ok(tenant) = name.parse()
    {
        *count += 1;
        of_tenant.insert(hash, DecisionSeen { tenant, hash, request: request.clone(), count: 1, last_ms: now_ms });
    }
}

/// Equal for requests of one hour that differ in nothing but their time.
fn hash(request: &Request, hour: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    hour.hash(&mut hasher);
    let Request { principal, action, resource, tenant, context } = request;
    (principal, action, resource, tenant).hash(&mut hasher);
    context.iter().filter(|(name, _)| *name != "time").for_each(|pair| pair.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use bailey_policy::{PathFacts, Policies, Principal, ReadAction};
    use bailey_protocol::path::{BranchName, Revision};

    use super::*;

    #[test]
    fn a_flood_of_one_tenants_requests_takes_no_other_tenants_room() {
        let decisions = Decisions::default();
        let policies = Policies::new(&[]).unwrap();
        let read = |tenant: &str, n: usize| {
            let who = Principal::new(tenant.parse().unwrap(), "ana".parse().unwrap());
            let judge = policies.judge(&who, 0).before(decisions.witness(7));
            let path = PathFacts::plain(format!("/tenants/{tenant}/{n}").parse().unwrap());
            judge.read_path(ReadAction::Read, &path, &Revision::Branch(BranchName::main())).unwrap();
        };
        (0..2 * MAX_OF_TENANT).for_each(|n| read("flood", n));
        (0..3).for_each(|_| read("acme", 1));
        let seen = decisions.take();
        let of = |tenant: &str| seen.iter().filter(|one| one.tenant.as_str() == tenant).collect::<Vec<_>>();
        assert_eq!(of("flood").len(), MAX_OF_TENANT);
        assert_eq!(of("acme").iter().map(|one| one.count).collect::<Vec<_>>(), [3]);
        let hour = |now_ms: u64| hash(&of("acme")[0].request, now_ms / HOUR_MS);
        assert!(hour(1) == hour(HOUR_MS - 1) && hour(1) != hour(HOUR_MS));
        // What was taken has made room.
        read("flood", 9_999);
        assert_eq!(decisions.take().len(), 1);
    }
}
