//! API keys: `e2b_` and 40 hex digits, which is what SDKs written for E2B accept. See [`crate::secret_value`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bailey_policy::{CredentialId, CredentialKind, Principal};
use bailey_protocol::id::{KeyId, UserId};

use crate::db::{KeyHash, KeyRecord};
use crate::secret_value::hash_of_sent;

/// How every key begins.
pub(crate) const KEY_PREFIX: &str = "e2b_";
/// Uses closer together than this are one use.
const USE_MS: u64 = 60_000;

/// Every key that holds.
#[derive(Debug)]
pub(crate) struct Keys(RwLock<Held>);

#[derive(Debug, Default)]
struct Held {
    by_hash: HashMap<KeyHash, Arc<Live>>,
    by_id: HashMap<KeyId, (KeyHash, Arc<Live>)>,
}

#[derive(Debug)]
struct Live {
    record: KeyRecord,
    used_ms: AtomicU64,
    /// Of the use that is in the database.
    noted_ms: AtomicU64,
}

impl Keys {
    pub(super) fn new(rows: Vec<(KeyHash, KeyRecord)>) -> Self {
        let keys = Self(RwLock::default());
        for (hash, record) in rows {
            keys.insert(hash, record);
        }
        keys
    }

    /// Lets a key hold that is in the database.
    pub(crate) fn insert(&self, hash: KeyHash, record: KeyRecord) {
        let noted = record.last_used_ms.unwrap_or(0);
        let id = record.id.clone();
        let live = Arc::new(Live { record, used_ms: AtomicU64::new(noted), noted_ms: AtomicU64::new(noted) });
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        held.by_hash.insert(hash, Arc::clone(&live));
        held.by_id.insert(id, (hash, live));
    }

    /// Lets a key hold no more. Call [`super::Standing::changed`] after it.
    pub(crate) fn remove(&self, id: &KeyId) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((hash, _)) = held.by_id.remove(id) {
            held.by_hash.remove(&hash);
        }
    }

    /// Who a key that was sent speaks for; `None` for what is none, or holds no more.
    pub(crate) fn principal(&self, sent: &str, now_ms: u64) -> Option<Principal> {
        let hash = hash_of_sent(KEY_PREFIX, sent)?;
        let live = self.0.read().unwrap_or_else(PoisonError::into_inner).by_hash.get(&hash).cloned()?;
        let record = &live.record;
        if now_ms >= record.expires_ms {
            return None;
        }
        live.used_ms.fetch_max(now_ms, Ordering::Relaxed);
        let mut principal = Principal::new(record.tenant.clone(), record.user.clone());
        principal.roles = record.grants.roles.clone();
        principal.entitlements = record.grants.entitlements.clone();
        principal.region = record.grants.region.clone();
        principal.project = record.grants.project.clone();
        principal.made_by = Some(record.creator.clone()).filter(|creator| *creator != record.user);
        principal.actor = Some(record.id.to_string());
        principal.scope = Some(record.grants.scope.clone());
        principal.valid_until_ms = record.expires_ms;
        principal.credential = CredentialId { kind: CredentialKind::ApiKey, id: record.id.to_string() };
        Some(principal)
    }

    /// Who made a key that holds.
    pub(super) fn creator(&self, id: &str) -> Option<UserId> {
        let id: KeyId = id.parse().ok()?;
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        held.by_id.get(&id).map(|(_, live)| live.record.creator.clone())
    }

    /// Uses that the database does not know yet; they count as known from now on.
    pub(crate) fn take_uses(&self) -> Vec<(KeyId, u64)> {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let news = |live: &Arc<Live>| {
            let (used, noted) = (live.used_ms.load(Ordering::Relaxed), live.noted_ms.load(Ordering::Relaxed));
            if used < noted.saturating_add(USE_MS) && noted != 0 || used == noted {
                return None;
            }
            live.noted_ms.store(used, Ordering::Relaxed);
            Some((live.record.id.clone(), used))
        };
        held.by_hash.values().filter_map(news).collect()
    }
}
