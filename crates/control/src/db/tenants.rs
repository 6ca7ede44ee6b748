//! What operators noted of tenants.

use bailey_policy::{OperatorPermit, TenantFacts};
use bailey_protocol::id::TenantId;

use super::DbFuture;

/// The part of [`super::Db`] about tenants as customers.
pub trait TenantDb {
    /// What was noted, of every tenant of which something was.
    fn tenant_facts(&self) -> DbFuture<'_, Vec<(TenantId, TenantFacts)>>;

    /// Notes `facts` of the permit's tenant in place of what was noted before.
    fn set_tenant_facts<'a>(&'a self, permit: &'a OperatorPermit, facts: TenantFacts) -> DbFuture<'a, ()>;
}
