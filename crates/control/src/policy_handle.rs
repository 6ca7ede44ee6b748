//! The policies in force. A decision is by one whole set: the one before a change or the one after it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use bailey_policy::prove::{Finding, Outcome, Prover};
use bailey_policy::{Policies, TenantPolicies};
use bailey_protocol::api::policy::PolicyState;
use bailey_protocol::id::TenantId;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::api_error::ApiError;
use crate::audit::POLICIES_CHANGED;
use crate::control::Control;
use crate::db::AuditEntry;
use crate::threads::blocking;
use crate::turns::Turns;

/// Memory that it takes to know that a tenant has no policies of its own.
const NONE_BYTES: usize = 256;

/// Holds the set in force, and tells when another one is.
#[derive(Debug)]
pub(crate) struct PolicyHandle {
    current: RwLock<Policies>,
    /// Goes up with each change of anybody's.
    changes: watch::Sender<u64>,
    tenants: Mutex<Tenants>,
    state: Mutex<PolicyState>,
    prover: Option<Prover>,
    /// Most memory that tenants' policies take which are kept at hand.
    cache_bytes: usize,
    /// Held from the look at a tenant's policies to their change. Nothing but the database is waited for meanwhile.
    pub(crate) turn: Turns,
}

/// What is known of each tenant. A change of one leaves all others as they are.
#[derive(Debug, Default)]
struct Tenants {
    cached: HashMap<TenantId, Cached>,
    /// Memory that those take together.
    bytes: usize,
    /// Of each tenant of which something changed since the start, how often.
    generations: HashMap<TenantId, u64>,
    /// How often the set in force was replaced.
    platform: u64,
    /// Goes up with each use.
    uses: u64,
}

/// What a tenant's requests are decided by: the number is another after each change of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation {
    platform: u64,
    tenant: u64,
}

/// A tenant's own policies. They go with whatever set is in force.
#[derive(Debug, Clone)]
struct Cached {
    own: Option<TenantPolicies>,
    used: u64,
}

impl Cached {
    fn bytes(&self) -> usize {
        self.own.as_ref().map_or(NONE_BYTES, TenantPolicies::bytes)
    }
}

impl PolicyHandle {
    pub(crate) fn new(policies: Policies, prover: Option<Prover>, cache_bytes: usize) -> Self {
        let count = u64::try_from(policies.count()).unwrap_or(u64::MAX);
        let state = PolicyState { policies: count, since_ms: 0, proof: "unproven".to_owned(), refused: None };
        Self {
            current: RwLock::new(policies),
            changes: watch::Sender::new(0),
            tenants: Mutex::default(),
            state: Mutex::new(state),
            prover,
            cache_bytes,
            turn: Turns::new(1, 1),
        }
    }

    /// The set in force: the base rules and the operator's policies.
    pub(crate) fn current(&self) -> Policies {
        // A set is put in place whole, so that what a panicked thread left is one.
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts `policies` in force.
    pub(crate) fn replace(&self, policies: Policies) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = policies;
        self.tenants().platform += 1;
        self.tell();
    }

    /// Has what goes on for a tenant judged again: what its decisions are made on has changed.
    pub(crate) fn changed(&self, tenant: &TenantId) {
        self.tenants().changed(tenant);
        self.tell();
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn tenants(&self) -> MutexGuard<'_, Tenants> {
        // Each change is whole at once.
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Of an operator's, without a tenant.
    pub(crate) fn generation(&self, tenant: Option<&TenantId>) -> Generation {
        let tenants = self.tenants();
        let tenant = tenant.and_then(|tenant| tenants.generations.get(tenant)).copied().unwrap_or(0);
        Generation { platform: tenants.platform, tenant }
    }

    pub(crate) fn state(&self) -> PolicyState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_state(&self, change: impl FnOnce(&mut PolicyState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether tenants are apart in `policies`: `proven`, or `unproven` where there is no solver.
    ///
    /// # Errors
    /// When they are not, with the request that shows it, or when the solver does not answer.
    async fn prove(&self, policies: &Policies) -> Result<String, String> {
        let Some(prover) = &self.prover else { return Ok("unproven: there is no cvc5".to_owned()) };
        match prover.tenants_apart(policies).await {
            Ok(Finding { outcome: Outcome::Proven, .. }) => Ok(PolicyState::PROVEN.to_owned()),
            Ok(Finding { outcome: Outcome::Violated { example }, .. }) => {
                let (who, action, resource) = (example.principal, example.action, example.resource);
                Err(format!("they would let {who} do {action} on {resource}, which is another tenant's"))
            }
            Ok(Finding { outcome: Outcome::Unproven { why }, .. }) => {
                Err(format!("they could not be proven to keep tenants apart: {why}"))
            }
            // Where there is a solver, what it does not answer is not shown: a set that starves it is none to trust.
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the policies could not be proven");
                Err(format!("they could not be proven to keep tenants apart: {error}"))
            }
        }
    }

    /// The tenant's own policies, where they are at hand.
    fn cached(&self, tenant: &TenantId) -> Option<Option<TenantPolicies>> {
        let mut tenants = self.tenants();
        tenants.uses += 1;
        let used = tenants.uses;
        let cached = tenants.cached.get_mut(tenant)?;
        cached.used = used;
        Some(cached.own.clone())
    }

    /// Keeps a tenant's policies at hand, unless they have changed since `generation`.
    fn keep(&self, tenant: &TenantId, own: Option<TenantPolicies>, generation: Generation) {
        let mut tenants = self.tenants();
        if tenants.generations.get(tenant).copied().unwrap_or(0) != generation.tenant {
            return;
        }
        tenants.uses += 1;
        let cached = Cached { own, used: tenants.uses };
        tenants.remove(tenant);
        if tenants.bytes + cached.bytes() > self.cache_bytes {
            tenants.make_room(self.cache_bytes / 2);
        }
        tenants.bytes += cached.bytes();
        tenants.cached.insert(tenant.clone(), cached);
    }

    /// A tenant's own policies have changed.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        {
            // At once, so that nothing that was read before can be kept in between.
            let mut tenants = self.tenants();
            tenants.changed(tenant);
            tenants.remove(tenant);
        }
        self.tell();
    }
}

impl Tenants {
    fn changed(&mut self, tenant: &TenantId) {
        *self.generations.entry(tenant.clone()).or_default() += 1;
    }

    fn remove(&mut self, tenant: &TenantId) {
        self.bytes -= self.cached.remove(tenant).map_or(0, |cached| cached.bytes());
    }

    /// Forgets what was not used for longest, down to `most` bytes: so far that a full cache is looked through once in a
    /// long while.
    fn make_room(&mut self, most: usize) {
        let mut latest: Vec<(u64, usize)> = self.cached.values().map(|cached| (cached.used, cached.bytes())).collect();
        latest.sort_unstable_by(|one, other| other.cmp(one));
        let mut kept = 0;
        let last = latest.iter().find(|(_, bytes)| {
            kept += bytes;
            kept > most
        });
        let Some((forgotten, _)) = last.copied() else { return };
        self.cached.retain(|_, cached| cached.used > forgotten);
        self.bytes = self.cached.values().map(Cached::bytes).sum();
    }
}

impl Control {
    /// The set that is asked about requests of a tenant's users: the one in force, with the tenant's own policies.
    ///
    /// # Errors
    /// When those cannot be read: nothing is decided without them.
    pub(crate) async fn policies_of(&self, tenant: &TenantId) -> Result<Policies, ApiError> {
        let handle = self.policies();
        let platform = handle.current();
        if let Some(own) = handle.cached(tenant) {
            return Ok(platform.beside(own));
        }
        let generation = handle.generation(Some(tenant));
        let texts = self.db().policies_of(tenant).await?;
        if texts.is_empty() {
            handle.keep(tenant, None, generation);
            return Ok(platform.beside(None));
        }
        // Reading many takes longer than others may be kept waiting.
        let reader = platform.clone();
        let own = blocking(self.threads(), move || reader.tenants(&texts).map_err(ApiError::internal)).await?;
        handle.keep(tenant, own.clone(), generation);
        Ok(platform.beside(own))
    }

    /// Which policies are in force, and how their last change went.
    #[must_use]
    pub fn policy_state(&self) -> PolicyState {
        self.policies().state()
    }

    /// Puts other policies in force, from the next decision on, unless they let a tenant act on another's. What goes on
    /// is judged again at once. Whether they are in force.
    pub async fn activate_policies(&self, policies: Policies) -> bool {
        let handle = self.policies();
        match handle.prove(&policies).await {
            Ok(proof) => {
                let count = u64::try_from(policies.count()).unwrap_or(u64::MAX);
                handle.replace(policies.clone());
                let of = self.clone();
                self.in_background(async move {
                    if let Err(error) = of.tell_policies(&policies).await {
                        tracing::error!(cause = error.cause_chain(), "a change of policies is not on the audit");
                    }
                });
                let since_ms = self.now_ms();
                tracing::info!(policies = count, proof, "policies in force");
                handle.set_state(|state| *state = PolicyState { policies: count, since_ms, proof, refused: None });
                true
            }
            Err(why) => {
                self.refuse_policies(&why);
                false
            }
        }
    }

    /// Puts on the operators' audit and on that of each tenant that these policies are in force, where they were told of
    /// others last. Nobody waits for it: what a rule forbids is not to hang on a disk. What cannot be told is told at the
    /// next start.
    ///
    /// # Errors
    /// When it cannot be recorded.
    async fn tell_policies(&self, policies: &Policies) -> Result<(), ApiError> {
        let hash = hash(policies);
        if self.db().told_policies().await?.as_ref() == Some(&hash) {
            return Ok(());
        }
        let entry = AuditEntry::by_server(POLICIES_CHANGED, hash.clone(), self.now_ms());
        self.db().audit(entry.clone()).await?;
        self.tell_tenants(entry).await?;
        Ok(self.db().note_told_policies(&hash).await?)
    }

    /// Notes these as what is told, where nothing is yet: the first are no change.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub(crate) async fn begin_telling_policies(&self, policies: &Policies) -> Result<(), ApiError> {
        if self.db().told_policies().await?.is_none() {
            self.db().note_told_policies(&hash(policies)).await?;
        }
        Ok(())
    }

    /// Notes that policies were refused, and why. Those in force stay.
    pub fn refuse_policies(&self, why: &str) {
        tracing::error!(why, "policies refused: those in force stay");
        self.policies().set_state(|state| state.refused = Some(why.to_owned()));
    }
}

fn hash(policies: &Policies) -> String {
    Sha256::digest(policies.text()).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bailey_policy::Principal;

    use super::*;

    const ROOM: usize = 1 << 20;

    /// Decisions of each thread. An unoptimized build takes twenty times as long for one.
    const EACH: usize = if cfg!(debug_assertions) { 2_500 } else { 25_000 };

    fn named(id: &str) -> Policies {
        let text = format!("@id(\"{id}\") permit (principal, action, resource);");
        Policies::new(&[("operator.cedar".to_owned(), text)]).unwrap()
    }

    #[tokio::test]
    async fn c13_a_set_that_the_solver_does_not_answer_for_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let solver = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            Prover::find(Some(path.into()), None).unwrap().patient_for(std::time::Duration::from_millis(300))
        };
        let broken = [
            ("crashes", "#!/bin/sh\nexit 3\n"),
            ("hangs", "#!/bin/sh\nexec sleep 30\n"),
            ("babbles", "#!/bin/sh\nwhile :; do echo unknown; done\n"),
        ];
        for (name, text) in broken {
            let handle = PolicyHandle::new(named("old"), Some(solver(name, text)), ROOM);
            assert!(handle.prove(&named("new")).await.unwrap_err().contains("could not be proven"), "{name}");
        }
        assert!(
            PolicyHandle::new(named("old"), None, ROOM).prove(&named("new")).await.unwrap().starts_with("unproven")
        );
    }

    fn own(platform: &Policies) -> Option<TenantPolicies> {
        let own = ("own".to_owned(), "forbid (principal, action, resource);".to_owned());
        platform.tenants(&[own]).unwrap()
    }

    #[test]
    fn a_change_of_one_tenant_leaves_the_sets_of_all_others_at_hand() {
        let platform = named("one");
        let handle = PolicyHandle::new(platform.clone(), None, ROOM);
        let [acme, globex, late]: [TenantId; 3] = ["acme", "globex", "late"].map(|name| name.parse().unwrap());
        let at_hand = |tenant: &TenantId| Some(handle.current().beside(handle.cached(tenant)?));
        let (of_acme, of_globex) = (own(&platform), own(&platform));
        let globex_set = platform.beside(of_globex.clone());
        handle.keep(&acme, of_acme.clone(), handle.generation(Some(&acme)));
        handle.keep(&globex, of_globex, handle.generation(Some(&globex)));
        // What was read before somebody else's change is kept, before one's own it is not.
        let (acme_before, late_before) = (handle.generation(Some(&acme)), handle.generation(Some(&late)));
        handle.forget(&acme);
        handle.changed(&acme);
        assert!(at_hand(&globex).unwrap().is(&globex_set), "the very set");
        handle.keep(&acme, of_acme, acme_before);
        assert!(at_hand(&acme).is_none());
        let of_late = own(&platform);
        handle.keep(&late, of_late.clone(), late_before);
        assert!(at_hand(&late).unwrap().is(&platform.beside(of_late)));
        assert_eq!(handle.generation(Some(&late)), late_before);
        assert_ne!(handle.generation(Some(&acme)), acme_before);
        // Another set of the operator's is one for everybody, beside the same policies of each.
        handle.replace(named("two"));
        let now = at_hand(&globex).unwrap();
        assert!(!now.is(&globex_set) && now.count() == globex_set.count());
        assert_ne!(handle.generation(Some(&late)), late_before);
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        const TENANTS: usize = 100;
        let platform = named("one");
        let one = own(&platform).unwrap();
        let handle = PolicyHandle::new(platform.clone(), None, TENANTS * one.bytes());
        let tenant = |n: usize| -> TenantId { format!("t{n}").parse().unwrap() };
        let keep = |n: usize| handle.keep(&tenant(n), Some(one.clone()), handle.generation(Some(&tenant(n))));
        // Whoever is kept again takes no more room.
        (0..TENANTS).chain(0..TENANTS).for_each(keep);
        assert!(handle.cached(&tenant(0)).is_some());
        keep(TENANTS);
        for (n, kept) in [(0, true), (1, false), (TENANTS / 2, false), (TENANTS - 1, true), (TENANTS, true)] {
            assert_eq!(handle.cached(&tenant(n)).is_some(), kept, "{n}");
        }
        let counted = || {
            let tenants = handle.tenants();
            (tenants.bytes, tenants.cached.values().map(Cached::bytes).sum::<usize>())
        };
        assert_eq!(counted().0, counted().1);
        handle.forget(&tenant(0));
        assert_eq!(counted().0, counted().1);
    }

    #[test]
    fn c13_each_decision_is_by_the_old_set_or_the_new_one() {
        let sets = [named("old"), named("new")];
        let handle = PolicyHandle::new(sets[0].clone(), None, ROOM);
        let ana = Principal::new("acme".parse().unwrap(), "ana".parse().unwrap());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let deciders: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            let permit = handle.current().judge(&ana, 0).list_runs().unwrap();
                            let by = permit.grant().policies();
                            assert!(by == ["old", "own-tenant"] || by == ["new", "own-tenant"], "{by:?}");
                        }
                    })
                })
                .collect();
            let swaps = scope.spawn(|| {
                let mut swaps = 0_usize;
                while swaps < 1000 || !over.load(Ordering::Relaxed) {
                    handle.replace(sets[swaps % 2].clone());
                    swaps += 1;
                    std::thread::yield_now();
                }
                swaps
            });
            for decider in deciders {
                decider.join().unwrap();
            }
            over.store(true, Ordering::Relaxed);
            assert!(swaps.join().unwrap() >= 1000);
        });
    }
}
