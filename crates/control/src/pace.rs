//! How asking policy about many paths is kept from taking all processors. Each question may be as heavy as a tenant's own
//! policies may be, and a folder has many paths: a few such requests would keep every thread of the server busy, and
//! everybody else waiting.
//!
//! So it goes on in slices, of which fewer are under way at once than there are processors, and of one tenant one or few.
//! Whoever has had a slice goes behind all that wait, so that a tenant waits for a slice of each other tenant and not for
//! the end of what they do, however many requests each has.
//!
//! The clock takes a slice back, so that it makes no difference what whoever has one does between two questions: walk a
//! history, or wait for a client. At the end of a slice one question may be under way, which goes on beside the next.
//!
//! INVARIANT: a slice is the innermost of all that is waited for: whoever has one takes no lock that is held over another's
//! questions.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bailey_protocol::id::{TenantId, UserId};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::CheckConfig;
use crate::threads::Threads;
use crate::turns::{Turn, Turns};

/// How long whoever has a slice goes on before others get theirs.
const SLICE: Duration = Duration::from_millis(10);

/// Who may ask about many paths now.
#[derive(Debug)]
pub(crate) struct Paces {
    asking: Turns,
    /// One user's share of a tenant's places.
    users: Turns<(TenantId, UserId)>,
    patience: Duration,
    working: Turns,
    threads: Threads,
}

/// A place among those who ask about many paths, given back on drop.
#[derive(Debug)]
pub(crate) struct Place {
    _own: Turn,
    _tenants: Turn,
}

/// Many questions of one tenant, one after the other. One for all that are asked in turn: a second of the same tenant may
/// have to wait for the first.
#[derive(Debug)]
pub(crate) struct Pace {
    paces: Arc<Paces>,
    tenant: TenantId,
    until: Cell<Option<Instant>>,
    /// Gives the slice back when its time is over, or this is dropped.
    clock: RefCell<JoinSet<()>>,
    unawaited: Arc<AtomicBool>,
}

/// Whoever waits for the answer to many questions: until this is dropped.
#[derive(Debug)]
pub(crate) struct Awaited(Arc<AtomicBool>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Paces {
    /// For a host with so many processors.
    pub(crate) fn new(config: CheckConfig, processors: usize, threads: Threads) -> Self {
        // The other half is for everybody else.
        let working = (processors / 2).max(1);
        Self {
            asking: Turns::new(config.per_server, config.per_tenant),
            users: Turns::new(config.per_server, (config.per_tenant / 2).max(1)),
            patience: config.patience,
            working: Turns::new(working, (working / 4).max(1)),
            threads,
        }
    }

    /// A place among the requests that ask about many paths; `None` when there was none for long. Of a tenant's places one
    /// user has at most half.
    ///
    /// CANCEL: none is taken.
    pub(crate) async fn enter(&self, tenant: &TenantId, user: &UserId) -> Option<Place> {
        let both = async {
            let own = self.users.wait(&(tenant.clone(), user.clone())).await?;
            Some(Place { _own: own, _tenants: self.asking.wait(tenant).await? })
        };
        tokio::time::timeout(self.patience, both).await.ok().flatten()
    }

    /// For many questions of a tenant. It waits for nothing before the first.
    pub(crate) fn pace(self: &Arc<Self>, tenant: &TenantId) -> Pace {
        let (paces, tenant) = (Arc::clone(self), tenant.clone());
        Pace { paces, tenant, until: Cell::default(), clock: RefCell::default(), unawaited: Arc::default() }
    }
}

impl Pace {
    /// To be called before each question. Blocks while it is others' turn.
    pub(crate) fn next(&self) {
        // Where there is one thread only, nobody works beside.
        if !self.paces.threads.is_single() && !self.goes_on() {
            self.paces.threads.wait(self.wait());
        }
    }

    /// To be held by whoever waits for the answer.
    pub(crate) fn awaited(&self) -> Awaited {
        Awaited(Arc::clone(&self.unawaited))
    }

    /// Whether there is still somebody to ask for. Work that nobody was said to wait for is done in any case.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.unawaited.load(Ordering::Relaxed)
    }

    fn goes_on(&self) -> bool {
        self.until.get().is_some_and(|until| Instant::now() < until)
    }

    /// Waits for another slice, behind all that wait.
    async fn wait(&self) {
        // Whoever waits has only slices before it.
        let turn = self.paces.working.wait(&self.tenant).await;
        let until = Instant::now() + SLICE;
        let mut clock = JoinSet::new();
        clock.spawn(async move {
            tokio::time::sleep_until(until).await;
            drop(turn);
        });
        self.clock.replace(clock);
        self.until.set(Some(until));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn paces(processors: usize) -> Arc<Paces> {
        Arc::new(Paces::new(CheckConfig::default(), processors, Threads::of_runtime()))
    }

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    /// Whether it is its turn.
    fn now(pace: &Pace) -> bool {
        futures_util::FutureExt::now_or_never(pace.wait()).is_some()
    }

    /// Asks about so many paths, of which each takes a slice, and says when each was over.
    async fn ask(paces: &Arc<Paces>, of: &'static str, paths: usize, over: &Mutex<Vec<&'static str>>) {
        let pace = paces.pace(&tenant(of));
        for _ in 0..paths {
            if !pace.goes_on() {
                pace.wait().await;
            }
            tokio::time::sleep(SLICE).await;
            over.lock().unwrap().push(of);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_about_many_paths_lets_others_ask_in_between_however_many_requests_it_has() {
        let paces = paces(2);
        let over = Mutex::default();
        // What is polled first waits first.
        tokio::join!(
            biased;
            ask(&paces, "acme", 4, &over),
            ask(&paces, "acme", 4, &over),
            ask(&paces, "acme", 4, &over),
            ask(&paces, "globex", 2, &over),
            ask(&paces, "initech", 1, &over),
        );
        let over = over.into_inner().unwrap();
        assert_eq!(over[..7], ["acme", "globex", "initech", "acme", "globex", "acme", "acme"], "{over:?}");
        assert_eq!(over.len(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn never_are_all_processors_busy_with_it() {
        for (processors, at_once, of_one) in [(1, 1, 1), (2, 1, 1), (4, 2, 1), (16, 8, 2)] {
            let paces = paces(processors);
            let tenants: Vec<TenantId> = (0..processors).map(|n| tenant(&format!("t{n}"))).collect();
            let all: Vec<Pace> = tenants.iter().map(|tenant| paces.pace(tenant)).collect();
            let more: Vec<Pace> = (0..processors).map(|_| paces.pace(&tenants[0])).collect();
            let mut busy = 0;
            for pace in &more {
                busy += usize::from(now(pace));
            }
            assert_eq!(busy, of_one, "of one tenant on {processors}");
            for pace in &all {
                busy += usize::from(now(pace));
            }
            assert_eq!(busy, at_once, "of all on {processors}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn neither_one_user_nor_one_tenant_can_hold_all_places_and_whoever_waits_for_one_in_vain_is_told() {
        let paces = paces(2);
        let [ana, bob, eve]: [UserId; 3] = ["ana", "bob", "eve"].map(|name| name.parse().unwrap());
        let (acme, all) = (tenant("acme"), CheckConfig::default().per_tenant);
        let mut held = Vec::new();
        for (user, places) in [(&ana, all / 2), (&bob, all), (&eve, all)] {
            while let Some(place) = paces.enter(&acme, user).await {
                held.push(place);
            }
            assert_eq!(held.len(), places, "one user has half, and all together no more than there are");
        }
        assert!(paces.enter(&tenant("globex"), &ana).await.is_some());
        held.pop();
        assert!(paces.enter(&acme, &eve).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_does_something_else_meanwhile_keeps_nobody_from_asking() {
        let paces = paces(2);
        let (acme, globex) = (paces.pace(&tenant("acme")), paces.pace(&tenant("globex")));
        acme.wait().await;
        assert!(acme.goes_on() && !now(&globex));
        let begin = Instant::now();
        globex.wait().await;
        assert!(begin.elapsed() <= SLICE * 2 && !acme.goes_on(), "{:?}", begin.elapsed());
    }

    #[test]
    fn it_is_awaited_until_whoever_was_said_to_wait_is_gone() {
        let pace = paces(2).pace(&tenant("acme"));
        assert!(pace.is_awaited(), "work that nobody waits for is done");
        let awaited = pace.awaited();
        assert!(pace.is_awaited());
        drop(awaited);
        assert!(!pace.is_awaited());
    }

    #[tokio::test]
    async fn within_a_slice_nobody_is_waited_for_and_nothing_of_it_is_left() {
        let paces = paces(2);
        let acme = tenant("acme");
        let pace = paces.pace(&acme);
        pace.wait().await;
        assert!(pace.goes_on());
        drop(pace);
        let again = paces.pace(&acme);
        tokio::time::timeout(Duration::from_secs(20), again.wait()).await.unwrap();
    }
}
