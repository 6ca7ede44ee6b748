//! Who was seen: noted in memory on the way of a request, written down behind it. What is known of anybody is what is
//! written down: here is only what is still to be.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bailey_policy::Principal;
use bailey_protocol::id::{TenantId, UserId};

use super::Rights;
use crate::db::SubjectSeen;

/// A subject that says the same as before is written down no more often than this.
const AGAIN_MS: u64 = 60_000;
/// Subjects held at once. Beyond it those that are written down are dropped, and noted anew.
const MOST: usize = 100_000;

/// Clones nothing and asks no disk.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<(TenantId, UserId), Entry>>);

#[derive(Debug)]
struct Entry {
    subject: SubjectSeen,
    /// When it was last written down; 0 for never.
    written_ms: u64,
    due: bool,
}

impl Seen {
    /// Notes that the principal asks now.
    pub(crate) fn note(&self, principal: &Principal, now_ms: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (principal.tenant.clone(), principal.user.clone());
        if let Some(entry) = all.get_mut(&key) {
            let rights = &mut entry.subject.rights;
            let changed = rights.may_learn(principal) && rights.learn(&Rights::of(principal));
            if changed || now_ms >= entry.written_ms.saturating_add(AGAIN_MS) {
                entry.subject.seen_ms = now_ms;
                entry.due = true;
            }
            return;
        }
        if all.len() >= MOST {
            all.retain(|_, entry| entry.due);
        }
        let (tenant, user) = key.clone();
        let subject = SubjectSeen { tenant, user, rights: Rights::of(principal), seen_ms: now_ms };
        all.insert(key, Entry { subject, written_ms: 0, due: true });
    }

    /// Forgets a user.
    pub(crate) fn forget(&self, tenant: &TenantId, user: &UserId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(tenant.clone(), user.clone()));
    }

    /// What is to be written down; it counts as written from now on.
    pub(crate) fn take(&self, now_ms: u64) -> Vec<SubjectSeen> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = all.values_mut().filter(|entry| entry.due);
        due.map(|entry| {
            (entry.due, entry.written_ms) = (false, now_ms);
            entry.subject.clone()
        })
        .collect()
    }

    /// Has what was taken written down another time: it could not be.
    pub(crate) fn again(&self, taken: &[SubjectSeen]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for subject in taken {
            if let Some(entry) = all.get_mut(&(subject.tenant.clone(), subject.user.clone())) {
                entry.due = true;
            }
        }
    }
}
