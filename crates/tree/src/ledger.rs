//! What each tenant's stores hold together, against what they may: counted before it is on disk.
//!
//! ```text
//! reserve (grows with the pack in the making) ──▶ settle: it is published and counts as used
//!                                            └──▶ drop: it is free again
//! ```
//!
//! Every new pack passes here, whoever writes it, so that used and reserved together never exceed the quota. The numbers
//! are not stored: a new process counts the files of the tenant's stores, and what a killed one had reserved is swept
//! from disk with its unfinished packs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bailey_protocol::id::TenantId;
use bailey_protocol::quota::{QuotaKind, TenantQuota, TenantUsage};

use crate::cache::lock;
use crate::error::TreeError;

/// Bytes that a growing pack reserves ahead while there is room.
const STEP: u64 = 1 << 20;
/// How far deletions may go beyond a quota, at least: they need a few new folders before collection gives back more.
const SPARE: Amount = Amount { bytes: 16 << 20, files: 1000 };
/// And as a part of it.
const SPARE_PART: u64 = 16;

/// What holds for a new pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// The quota.
    Quota,
    /// The quota and something to spare: the pack says that less is wanted.
    Freeing,
    /// Nothing: the pack takes the place of what has to go.
    Counted,
}

/// An amount of storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

impl Amount {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), files: self.files.saturating_sub(other.files) }
    }
}

/// The account of one tenant.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    quota: TenantQuota,
    used: Amount,
    reserved: Amount,
}

impl State {
    /// Reserves `more` for a pack that has `own` of what is reserved.
    fn reserve(&mut self, own: Amount, more: Amount, room: Room) -> Result<(), TreeError> {
        let TenantQuota { bytes, files, .. } = self.quota;
        let limit = match room {
            Room::Quota => Amount { bytes, files },
            Room::Freeing => Amount { bytes, files }.plus(Amount {
                bytes: SPARE.bytes.max(bytes / SPARE_PART),
                files: SPARE.files.max(files / SPARE_PART),
            }),
            Room::Counted => Amount { bytes: u64::MAX, files: u64::MAX },
        };
        let held = self.used.plus(self.reserved);
        let all = held.plus(more);
        let (used, needed) = (held.minus(own), own.plus(more));
        let exceeded = |quota, used, more, limit| TreeError::QuotaExceeded { quota, used, more, limit };
        if more.bytes > 0 && all.bytes > limit.bytes {
            return Err(exceeded(QuotaKind::Bytes, used.bytes, needed.bytes, bytes));
        }
        if more.files > 0 && all.files > limit.files {
            return Err(exceeded(QuotaKind::Files, used.files, needed.files, files));
        }
        self.reserved = self.reserved.plus(more);
        Ok(())
    }
}

impl Ledger {
    pub(crate) fn new(quota: TenantQuota, used: Amount) -> Self {
        Self { state: Mutex::new(State { quota, used, reserved: Amount::default() }) }
    }

    /// Used and reserved.
    pub(crate) fn usage(&self) -> TenantUsage {
        let state = lock(&self.state);
        let held = state.used.plus(state.reserved);
        TenantUsage { bytes: held.bytes, files: held.files }
    }

    pub(crate) fn set_quota(&self, quota: TenantQuota) {
        lock(&self.state).quota = quota;
    }

    /// That a file of `size` bytes may be one of this tenant, and that there is room for it now.
    pub(crate) fn check_file(&self, size: u64) -> Result<(), TreeError> {
        let state = lock(&self.state);
        let quota = state.quota;
        if size > quota.file_bytes {
            let limit = quota.file_bytes;
            return Err(TreeError::QuotaExceeded { quota: QuotaKind::FileBytes, used: 0, more: size, limit });
        }
        let held = state.used.plus(state.reserved).bytes;
        if held.saturating_add(size) > quota.bytes {
            let (quota, limit) = (QuotaKind::Bytes, quota.bytes);
            return Err(TreeError::QuotaExceeded { quota, used: held, more: size, limit });
        }
        Ok(())
    }

    /// Counts what garbage collection put in place of what it removed. It may not fail for want of room.
    pub(crate) fn replace(&self, removed: Amount, added: Amount) {
        let mut state = lock(&self.state);
        state.used = state.used.plus(added).minus(removed);
    }
}

/// Room that is taken for one pack in the making, and given back unless it is settled.
#[derive(Debug)]
pub(crate) struct Reservation {
    ledger: Option<Arc<Ledger>>,
    room: Room,
    held: Amount,
}

impl Reservation {
    pub(crate) fn open(ledger: &Arc<Ledger>, room: Room) -> Self {
        Self { ledger: Some(Arc::clone(ledger)), room, held: Amount::default() }
    }

    /// For what replaces something that is counted already.
    pub(crate) fn unlimited() -> Self {
        Self { ledger: None, room: Room::Counted, held: Amount::default() }
    }

    /// That a file of `size` bytes may go into the pack.
    pub(crate) fn check_file(&self, size: u64) -> Result<(), TreeError> {
        self.ledger.as_ref().map_or(Ok(()), |ledger| {
            let limit = lock(&ledger.state).quota.file_bytes;
            if size <= limit {
                return Ok(());
            }
            Err(TreeError::QuotaExceeded { quota: QuotaKind::FileBytes, used: 0, more: size, limit })
        })
    }

    /// Takes enough for `needed` in all, and a step ahead while there is room.
    pub(crate) fn cover(&mut self, needed: Amount) -> Result<(), TreeError> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let more = needed.minus(self.held);
        if more == Amount::default() {
            return Ok(());
        }
        let mut state = lock(&ledger.state);
        let ahead = Amount { bytes: if more.bytes > 0 { more.bytes.max(STEP) } else { 0 }, ..more };
        let taken = match state.reserve(self.held, ahead, self.room) {
            Ok(()) => ahead,
            Err(_tight) => state.reserve(self.held, more, self.room).map(|()| more)?,
        };
        self.held = self.held.plus(taken);
        Ok(())
    }

    /// Counts `exact`, which was covered, as used.
    pub(crate) fn settle(mut self, exact: Amount) {
        if let Some(ledger) = self.ledger.take() {
            let mut state = lock(&ledger.state);
            state.reserved = state.reserved.minus(self.held);
            state.used = state.used.plus(exact);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(ledger) = &self.ledger {
            let mut state = lock(&ledger.state);
            state.reserved = state.reserved.minus(self.held);
        }
    }
}

/// The accounts of all tenants, and what each may have.
#[derive(Debug)]
pub(crate) struct Ledgers {
    usual: TenantQuota,
    own: HashMap<TenantId, TenantQuota>,
    open: HashMap<TenantId, Arc<Ledger>>,
}

impl Default for Ledgers {
    fn default() -> Self {
        Self { usual: TenantQuota::UNLIMITED, own: HashMap::new(), open: HashMap::new() }
    }
}

impl Ledgers {
    pub(crate) fn quota(&self, tenant: &TenantId) -> TenantQuota {
        self.own.get(tenant).copied().unwrap_or(self.usual)
    }

    pub(crate) fn set_usual(&mut self, quota: TenantQuota) {
        self.usual = quota;
        self.open.iter().for_each(|(tenant, ledger)| ledger.set_quota(self.quota(tenant)));
    }

    pub(crate) fn set(&mut self, tenant: &TenantId, quota: Option<TenantQuota>) {
        match quota {
            Some(quota) => drop(self.own.insert(tenant.clone(), quota)),
            None => drop(self.own.remove(tenant)),
        }
        if let Some(ledger) = self.open.get(tenant) {
            ledger.set_quota(self.quota(tenant));
        }
    }

    /// How many accounts are open, and what they have together.
    pub(crate) fn counted(&self) -> (u64, TenantUsage) {
        let mut all = TenantUsage::default();
        for usage in self.open.values().map(|ledger| ledger.usage()) {
            all.bytes = all.bytes.saturating_add(usage.bytes);
            all.files = all.files.saturating_add(usage.files);
        }
        (self.open.len() as u64, all)
    }

    /// The account of `tenant`; `count` says what is on disk, when nobody has asked before.
    pub(crate) fn ledger(
        &mut self,
        tenant: &TenantId,
        count: impl FnOnce() -> Result<Amount, TreeError>,
    ) -> Result<Arc<Ledger>, TreeError> {
        if let Some(ledger) = self.open.get(tenant) {
            return Ok(Arc::clone(ledger));
        }
        let ledger = Arc::new(Ledger::new(self.quota(tenant), count()?));
        self.open.insert(tenant.clone(), Arc::clone(&ledger));
        Ok(ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(bytes: u64, files: u64) -> TenantQuota {
        TenantQuota { bytes, files, ..TenantQuota::UNLIMITED }
    }

    #[test]
    fn what_frees_has_something_to_spare_and_no_more() {
        let ledger = Arc::new(Ledger::new(quota(100, 10), Amount { bytes: 100, files: 10 }));
        let all = |bytes| Amount { bytes, files: 1 };
        assert!(Reservation::open(&ledger, Room::Quota).cover(all(1)).is_err());
        let mut freeing = Reservation::open(&ledger, Room::Freeing);
        freeing.cover(all(SPARE.bytes)).unwrap();
        let error = freeing.cover(all(SPARE.bytes + 1)).unwrap_err();
        assert!(matches!(error, TreeError::QuotaExceeded { limit: 100, .. }), "{error}");
        Reservation::open(&ledger, Room::Counted).cover(all(SPARE.bytes * 9)).unwrap();
    }

    #[test]
    fn f23_parallel_reservations_never_exceed_the_quota() {
        let ledger = Arc::new(Ledger::new(quota(10_000, 100), Amount { bytes: 9_000, files: 90 }));
        let threads: Vec<_> = (0..64)
            .map(|_| {
                let ledger = Arc::clone(&ledger);
                std::thread::spawn(move || {
                    let mut mine = Reservation::open(&ledger, Room::Quota);
                    let exact = Amount { bytes: 100, files: 1 };
                    let taken = mine.cover(exact).is_ok();
                    assert!(ledger.usage().bytes <= 10_000 && ledger.usage().files <= 100);
                    if taken {
                        mine.settle(exact);
                    }
                    taken
                })
            })
            .collect();
        let taken = threads.into_iter().filter(|_| true).map(|thread| thread.join().unwrap());
        assert_eq!(taken.filter(|taken| *taken).count(), 10);
        assert_eq!(ledger.usage(), TenantUsage { bytes: 10_000, files: 100 });
    }

    #[test]
    fn a_reservation_that_is_dropped_is_room_again() {
        let ledger = Arc::new(Ledger::new(quota(5 << 20, u64::MAX), Amount::default()));
        let mut one = Reservation::open(&ledger, Room::Quota);
        one.cover(Amount { bytes: 1, files: 1 }).unwrap();
        assert_eq!(ledger.usage().bytes, STEP, "a step ahead");
        let mut other = Reservation::open(&ledger, Room::Quota);
        let all = Amount { bytes: 5 << 20, files: 1 };
        assert!(other.cover(all).is_err());
        drop(one);
        other.cover(all).unwrap();
        let error = Reservation::open(&ledger, Room::Quota).cover(Amount { bytes: 1, files: 0 }).unwrap_err();
        let shown = TreeError::QuotaExceeded { quota: QuotaKind::Bytes, used: 5 << 20, more: 1, limit: 5 << 20 };
        assert_eq!(error.to_string(), shown.to_string());
        other.settle(Amount { bytes: 7, files: 1 });
        assert_eq!(ledger.usage(), TenantUsage { bytes: 7, files: 1 });
        ledger.replace(Amount { bytes: 7, files: 1 }, Amount { bytes: 3, files: 1 });
        assert_eq!(ledger.usage(), TenantUsage { bytes: 3, files: 1 });
    }
}
