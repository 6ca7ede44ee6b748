//! What operators noted of tenants, in memory, so that no decision waits for the database.
//!
//! Filled at start and changed right after the database was, in a task that outlives its request.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use bailey_policy::TenantFacts;
use bailey_protocol::id::TenantId;

/// What is noted of all tenants.
#[derive(Debug)]
pub(crate) struct TenantNotebook {
    facts: RwLock<HashMap<TenantId, TenantFacts>>,
    /// Held from a change in the database to the same here.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl TenantNotebook {
    pub(crate) fn new(rows: Vec<(TenantId, TenantFacts)>) -> Self {
        Self { facts: RwLock::new(rows.into_iter().collect()), turn: tokio::sync::Mutex::default() }
    }

    /// Of a tenant of which nothing was noted: nothing.
    pub(crate) fn of(&self, tenant: &TenantId) -> TenantFacts {
        self.facts.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned().unwrap_or_default()
    }

    /// Takes over what the database says.
    pub(crate) fn set(&self, tenant: &TenantId, facts: TenantFacts) {
        self.facts.write().unwrap_or_else(PoisonError::into_inner).insert(tenant.clone(), facts);
    }
}
