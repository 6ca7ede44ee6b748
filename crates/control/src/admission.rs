//! How many runs may be going at once, in all and for each tenant, and how often a tenant may launch one.
//!
//! A tenant that has its share is refused at once. Where only the server is full, a tenant's next runs wait in a line of its
//! own, and the lines take turns: one with many waiting is not ahead of one with few.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bailey_protocol::id::TenantId;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Tenants beyond which those are forgotten that nothing has to be known of.
const MANY: usize = 1024;
/// For what time launches are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// How much enters.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionLimits {
    /// At once, in all.
    pub per_server: usize,
    /// At once, of one tenant; those that wait count.
    pub per_tenant: usize,
    /// In any minute, of one tenant; `None` for as many as there is room for.
    pub launches_per_minute: Option<u32>,
    /// How many of one tenant wait when the server is full.
    pub queue: usize,
    /// For how long at most.
    pub patience: Duration,
}

/// Why a run must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The tenant has its share.
    #[error("the tenant has {limit} runs going or waiting, its limit")]
    TenantFull {
        /// Runs that one tenant may have at once.
        limit: usize,
    },
    /// The tenant has launched too many lately.
    #[error("the tenant has launched {limit} runs within a minute, its limit")]
    TooOften {
        /// Runs that one tenant may launch in a minute.
        limit: u32,
        /// When the next may be.
        retry_after: Duration,
    },
    /// The server has all it can take, and the tenant's line is as long as it may be or has waited as long as it may.
    #[error("the server has {limit} runs going, its limit")]
    ServerFull {
        /// Runs that the server takes at once.
        limit: usize,
    },
}

/// Counts runs that are going. Clones count together.
#[derive(Debug, Clone)]
pub struct Admission {
    state: Arc<Mutex<State>>,
    limits: AdmissionLimits,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    tenants: HashMap<TenantId, Tenant>,
    /// Tenants that somebody waits for, each once: the first is served next.
    line: VecDeque<TenantId>,
}

#[derive(Debug, Default)]
struct Tenant {
    going: usize,
    waiting: VecDeque<oneshot::Sender<Slot>>,
    /// When all its launches so far would be over if each took its share of a minute.
    paid_until: Option<Instant>,
}

/// Room for one run, given back on drop.
#[derive(Debug)]
pub struct Slot {
    /// `None` in one that nobody took.
    admission: Option<Admission>,
    tenant: TenantId,
    waited: bool,
}

impl Slot {
    /// Whether time went by before there was room.
    #[must_use]
    pub fn waited(&self) -> bool {
        self.waited
    }
}

impl Admission {
    /// Room for as much as the limits say.
    #[must_use]
    pub fn new(limits: AdmissionLimits) -> Self {
        Self { state: Arc::default(), limits }
    }

    /// Takes room for one run of `tenant`, or waits in line for it.
    ///
    /// CANCEL: nothing is taken; a place in line is given up.
    ///
    /// # Errors
    /// When there is none; nothing was taken.
    pub async fn enter(&self, tenant: &TenantId) -> Result<Slot, AdmissionError> {
        let waiting = {
            let mut state = self.state();
            match self.take(&mut state, tenant)? {
                Some(slot) => return Ok(slot),
                None => self.wait(&mut state, tenant)?,
            }
        };
        let full = AdmissionError::ServerFull { limit: self.limits.per_server };
        match tokio::time::timeout(self.limits.patience, waiting).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(full),
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// When there is no room; nothing was taken.
    pub fn try_enter(&self, tenant: &TenantId) -> Result<Slot, AdmissionError> {
        let full = AdmissionError::ServerFull { limit: self.limits.per_server };
        self.take(&mut self.state(), tenant)?.ok_or(full)
    }

    /// Runs that are going now.
    #[must_use]
    pub fn going(&self) -> usize {
        self.state().total
    }

    /// Runs that wait for room now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let waits = |waiting: &oneshot::Sender<Slot>| !waiting.is_closed();
        self.state().tenants.values().map(|tenant| tenant.waiting.iter().filter(|one| waits(one)).count()).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room, where the tenant may have it; `None` where it would have to wait.
    fn take(&self, state: &mut State, id: &TenantId) -> Result<Option<Slot>, AdmissionError> {
        let AdmissionLimits { per_server, per_tenant, .. } = self.limits;
        state.forget();
        let now = Instant::now();
        let room = state.total < per_server && state.line.is_empty();
        let tenant = state.tenants.entry(id.clone()).or_default();
        tenant.waiting.retain(|one| !one.is_closed());
        if tenant.going + tenant.waiting.len() >= per_tenant {
            return Err(AdmissionError::TenantFull { limit: per_tenant });
        }
        let paid_until = self.launch(tenant, now)?;
        if !room {
            return Ok(None);
        }
        tenant.paid_until = paid_until;
        tenant.going += 1;
        state.total += 1;
        Ok(Some(Slot { admission: Some(self.clone()), tenant: id.clone(), waited: false }))
    }

    /// Until when the tenant's launches are paid for with one more.
    fn launch(&self, tenant: &Tenant, now: Instant) -> Result<Option<Instant>, AdmissionError> {
        let Some(limit) = self.limits.launches_per_minute else { return Ok(None) };
        let paid_until = tenant.paid_until.map_or(now, |until| until.max(now)) + MINUTE / limit.max(1);
        match paid_until.checked_duration_since(now + MINUTE) {
            Some(retry_after) if !retry_after.is_zero() => Err(AdmissionError::TooOften { limit, retry_after }),
            _ => Ok(Some(paid_until)),
        }
    }

    fn wait(&self, state: &mut State, id: &TenantId) -> Result<oneshot::Receiver<Slot>, AdmissionError> {
        let full = AdmissionError::ServerFull { limit: self.limits.per_server };
        let tenant = state.tenants.entry(id.clone()).or_default();
        if tenant.waiting.len() >= self.limits.queue {
            return Err(full);
        }
        // Once it waits it is launched, as far as its share is concerned.
        tenant.paid_until = self.launch(tenant, Instant::now())?;
        let (sender, receiver) = oneshot::channel();
        tenant.waiting.push_back(sender);
        if !state.line.contains(id) {
            state.line.push_back(id.clone());
        }
        // Those before it may all have gone.
        self.serve(state);
        Ok(receiver)
    }

    /// Gives room to those that wait, a tenant after the other.
    fn serve(&self, state: &mut State) {
        while state.total < self.limits.per_server {
            let Some(id) = state.line.pop_front() else { return };
            let Some(tenant) = state.tenants.get_mut(&id) else { continue };
            while let Some(next) = tenant.waiting.pop_front() {
                let slot = Slot { admission: Some(self.clone()), tenant: id.clone(), waited: true };
                match next.send(slot) {
                    Ok(()) => {
                        tenant.going += 1;
                        state.total += 1;
                        break;
                    }
                    // INVARIANT: a slot that was not counted is not given back.
                    Err(mut untaken) => untaken.admission = None,
                }
            }
            if !tenant.waiting.is_empty() {
                state.line.push_back(id);
            }
        }
    }
}

impl State {
    /// Forgets tenants of which nothing is going, waiting or still to be paid for, once there are many.
    fn forget(&mut self) {
        if self.tenants.len() > MANY {
            let now = Instant::now();
            self.tenants.retain(|_, tenant| {
                tenant.going > 0 || !tenant.waiting.is_empty() || tenant.paid_until.is_some_and(|until| until > now)
            });
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(admission) = self.admission.take() else { return };
        let mut state = admission.state();
        state.total = state.total.saturating_sub(1);
        if let Some(tenant) = state.tenants.get_mut(&self.tenant) {
            tenant.going = tenant.going.saturating_sub(1);
        }
        admission.serve(&mut state);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test has no group of tasks")]
mod tests {
    use super::*;

    const LIMITS: AdmissionLimits = AdmissionLimits {
        per_server: 3,
        per_tenant: 2,
        launches_per_minute: None,
        queue: 0,
        patience: Duration::from_secs(5),
    };

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn t10_exactly_the_limit_enters_and_room_comes_back() {
        let admission = Admission::new(LIMITS);
        let (acme, globex) = (tenant("acme"), tenant("globex"));
        let first = admission.enter(&acme).await.unwrap();
        let _second = admission.enter(&acme).await.unwrap();
        assert_eq!(admission.enter(&acme).await.unwrap_err(), AdmissionError::TenantFull { limit: 2 });
        let _third = admission.enter(&globex).await.unwrap();
        assert_eq!(admission.enter(&globex).await.unwrap_err(), AdmissionError::ServerFull { limit: 3 });
        drop(first);
        let _again = admission.enter(&acme).await.unwrap();
        assert_eq!(admission.going(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_take_turns_by_tenant() {
        let limits = AdmissionLimits { per_server: 1, per_tenant: 9, queue: 8, ..LIMITS };
        let admission = Admission::new(limits);
        let going = admission.enter(&tenant("busy")).await.unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for name in ["busy", "busy", "busy", "calm", "slow"] {
            let (admission, served) = (admission.clone(), Arc::clone(&served));
            waiting.push(tokio::spawn(async move {
                let slot = admission.enter(&tenant(name)).await.unwrap();
                served.lock().unwrap().push(name);
                drop(slot);
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(admission.waiting(), 5);
        drop(going);
        for one in waiting {
            one.await.unwrap();
        }
        assert_eq!(*served.lock().unwrap(), ["busy", "calm", "slow", "busy", "busy"]);
        assert_eq!((admission.going(), admission.waiting()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_has_a_length_and_a_wait_an_end() {
        let limits = AdmissionLimits { per_server: 1, per_tenant: 9, queue: 1, ..LIMITS };
        let (admission, acme) = (Admission::new(limits), tenant("acme"));
        let going = admission.enter(&acme).await.unwrap();
        let (patient, refused) = tokio::join!(admission.enter(&acme), admission.enter(&acme));
        assert_eq!(refused.unwrap_err(), AdmissionError::ServerFull { limit: 1 });
        assert_eq!(patient.unwrap_err(), AdmissionError::ServerFull { limit: 1 });
        // One that was given up is in nobody's way, whether before or after it was served.
        let mut given_up = Box::pin(admission.enter(&acme));
        assert!(futures_util::poll!(&mut given_up).is_pending());
        drop(going);
        drop(given_up);
        assert_eq!(admission.going(), 0);
        let _again = admission.enter(&acme).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_launches_so_often_in_a_minute_and_others_as_they_like() {
        let limits = AdmissionLimits { launches_per_minute: Some(6), ..LIMITS };
        let (admission, acme) = (Admission::new(limits), tenant("acme"));
        for _ in 0..6 {
            drop(admission.enter(&acme).await.unwrap());
        }
        let AdmissionError::TooOften { limit: 6, retry_after } = admission.enter(&acme).await.unwrap_err() else {
            panic!("the seventh is another kind of too much")
        };
        assert_eq!(retry_after, Duration::from_secs(10));
        drop(admission.enter(&tenant("globex")).await.unwrap());
        tokio::time::advance(retry_after).await;
        drop(admission.enter(&acme).await.unwrap());
        assert!(admission.enter(&acme).await.is_err());
        tokio::time::advance(MINUTE).await;
        for _ in 0..6 {
            drop(admission.enter(&acme).await.unwrap());
        }
    }

    #[test]
    fn tenants_of_which_nothing_is_known_are_forgotten() {
        let admission = Admission::new(LIMITS);
        let held = admission.try_enter(&tenant("held")).unwrap();
        for number in 0..MANY + 10 {
            drop(admission.try_enter(&tenant(&format!("t{number}"))).unwrap());
        }
        let state = admission.state();
        assert!(state.tenants.len() < 20 && state.tenants.contains_key(&tenant("held")));
        drop(state);
        drop(held);
    }
}
