//! What is remembered for policy: tenants' own policies, and what was decided in the last day.

use bailey_policy::request::Request;
use bailey_policy::{AdminPermit, OperatorPermit};
use bailey_protocol::id::TenantId;

use super::DbFuture;

/// Most distinct decisions that are kept for one tenant.
pub const MAX_DECISIONS_PER_TENANT: u32 = 2000;
/// Most distinct decisions that one dry run looks at.
pub const MAX_DECISIONS: u32 = 100_000;
/// How long a decision is kept, in milliseconds.
pub const DECISION_MS: u64 = 24 * 3600 * 1000;

/// The part of a database that remembers for policy.
pub trait PolicyDb: Send + Sync {
    /// The policies of `tenant`'s own, by name: they are asked about each request of its users.
    fn policies_of<'a>(&'a self, tenant: &'a TenantId) -> DbFuture<'a, Vec<(String, String)>>;

    /// Adds a policy of the permit's tenant, or replaces the one of that name.
    fn put_policy<'a>(&'a self, permit: &'a AdminPermit, name: &'a str, text: &'a str) -> DbFuture<'a, ()>;

    /// Takes a policy of the permit's tenant away. Whether there was one.
    fn delete_policy<'a>(&'a self, permit: &'a AdminPermit, name: &'a str) -> DbFuture<'a, bool>;

    /// The hash of the operator's policies that tenants were told of last.
    fn told_policies(&self) -> DbFuture<'_, Option<String>>;

    /// Notes that tenants were told of these.
    fn note_told_policies<'a>(&'a self, hash: &'a str) -> DbFuture<'a, ()>;

    /// Notes what was decided, and forgets what is older than a day or beyond a tenant's share.
    fn note_decisions(&self, seen: Vec<DecisionSeen>, now_ms: u64) -> DbFuture<'_, ()>;

    /// What was decided in the last day, of every tenant: the latest of each, an equal share of [`MAX_DECISIONS`]. The
    /// permit is an operator's.
    fn decisions<'a>(&'a self, permit: &'a OperatorPermit, since_ms: u64) -> DbFuture<'a, Vec<DecisionSeen>>;
}

/// A request that was decided, once or more often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionSeen {
    /// Whose user asked.
    pub tenant: TenantId,
    /// Equal for equal requests, whenever they came.
    pub hash: u64,
    /// All that the decision was made on.
    pub request: Request,
    /// How often.
    pub count: u64,
    /// Last when.
    pub last_ms: u64,
}
