//! Who is at work on a store, so that garbage collection takes nothing from under anybody.
//!
//! Every handle on a store holds a lease with the number of the epoch in which it was made. What becomes garbage in one
//! epoch is removed once no lease of that epoch or an earlier one is left: until then somebody may have seen it.
//! A handle that rests (a run, while its code is going) gives up its lease for a pin on the one version it will need.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use gix_hash::ObjectId;

use crate::cache::lock;

/// All leases and pins of one store.
#[derive(Debug)]
pub(crate) struct Leases {
    /// How long [`Leases::drain`] waits.
    patience: Duration,
    state: Mutex<State>,
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    /// How many leases each epoch has left.
    open: BTreeMap<u64, usize>,
    pins: HashMap<u64, ObjectId>,
    next_pin: u64,
}

impl State {
    fn oldest(&self) -> u64 {
        self.open.keys().next().copied().unwrap_or(u64::MAX)
    }
}

impl Leases {
    /// None yet.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, state: Mutex::default(), fewer: Condvar::new() }
    }

    /// The present epoch.
    pub(crate) fn epoch(&self) -> u64 {
        lock(&self.state).epoch
    }

    /// Begins the next epoch and says which it is.
    pub(crate) fn advance(&self) -> u64 {
        let mut state = lock(&self.state);
        state.epoch += 1;
        state.epoch
    }

    /// The epoch of the oldest lease; `u64::MAX` when there is none.
    pub(crate) fn oldest(&self) -> u64 {
        lock(&self.state).oldest()
    }

    /// Waits a little for the leases of earlier epochs to end.
    pub(crate) fn drain(&self, epoch: u64) {
        let state = lock(&self.state);
        // A poisoned or elapsed wait changes nothing: the caller looks again.
        drop(self.fewer.wait_timeout_while(state, self.patience, |state| state.oldest() < epoch));
    }

    pub(crate) fn pins(&self) -> Vec<ObjectId> {
        lock(&self.state).pins.values().copied().collect()
    }

    /// After a purge: whoever waits for an old version gets what it has become.
    pub(crate) fn repin(&self, became: &HashMap<ObjectId, ObjectId>) {
        for pin in lock(&self.state).pins.values_mut() {
            *pin = became.get(pin).copied().unwrap_or(*pin);
        }
    }
}

/// What one handle holds.
#[derive(Debug)]
pub(crate) struct Lease {
    leases: Arc<Leases>,
    hold: Hold,
}

#[derive(Debug)]
enum Hold {
    /// Everything that was there in that epoch.
    Epoch(u64),
    /// One version.
    Pin(u64),
    Nothing,
}

impl Lease {
    /// On everything.
    pub(crate) fn take(leases: &Arc<Leases>) -> Arc<Self> {
        let mut state = lock(&leases.state);
        let epoch = state.epoch;
        *state.open.entry(epoch).or_default() += 1;
        drop(state);
        Arc::new(Self { leases: Arc::clone(leases), hold: Hold::Epoch(epoch) })
    }

    /// On one version only, or on nothing.
    pub(crate) fn pin(leases: &Arc<Leases>, version: Option<ObjectId>) -> Arc<Self> {
        let hold = version.map_or(Hold::Nothing, |version| {
            let mut state = lock(&leases.state);
            state.next_pin += 1;
            let number = state.next_pin;
            state.pins.insert(number, version);
            Hold::Pin(number)
        });
        Arc::new(Self { leases: Arc::clone(leases), hold })
    }

    /// Whether it is from an earlier epoch.
    pub(crate) fn is_before(&self, epoch: u64) -> bool {
        match self.hold {
            Hold::Epoch(mine) => mine < epoch,
            Hold::Pin(_) | Hold::Nothing => false,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = lock(&self.leases.state);
        match self.hold {
            Hold::Epoch(epoch) => {
                if let Some(count) = state.open.get_mut(&epoch) {
                    *count -= 1;
                    if *count == 0 {
                        state.open.remove(&epoch);
                        self.leases.fewer.notify_all();
                    }
                }
            }
            Hold::Pin(number) => drop(state.pins.remove(&number)),
            Hold::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lease_holds_until_it_is_dropped() {
        let leases = Arc::new(Leases::new(Duration::from_secs(60)));
        assert_eq!(leases.oldest(), u64::MAX);
        let first = Lease::take(&leases);
        let again = Arc::clone(&first);
        assert_eq!(leases.advance(), 1);
        let second = Lease::take(&leases);
        assert_eq!(leases.oldest(), 0);
        drop(first);
        assert_eq!(leases.oldest(), 0, "a clone holds it too");
        drop(again);
        assert_eq!(leases.oldest(), 1);
        leases.drain(1);
        drop(second);
        assert_eq!(leases.oldest(), u64::MAX);
    }

    #[test]
    fn a_pin_follows_a_purge() {
        let leases = Arc::new(Leases::new(Duration::from_secs(60)));
        let id = |byte| ObjectId::from_bytes_or_panic(&[byte; 20]);
        let pin = Lease::pin(&leases, Some(id(1)));
        leases.repin(&HashMap::from([(id(1), id(2))]));
        assert_eq!((leases.pins(), leases.oldest()), (vec![id(2)], u64::MAX));
        drop(pin);
        assert!(leases.pins().is_empty());
    }
}
