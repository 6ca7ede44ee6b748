//! Who may do what: Cedar's answer, as a value that only this crate can make.
//!
//! The crate owns the schema, the base rules and the step from a [`Principal`] to a permit. A permit is typed by what
//! it opens and carries the principal's tenant; `control`'s database and tree handles take nothing else, so a missing
//! check does not compile. The crate never touches a database, a network or a clock: facts are arguments.
//!
//! Start with `schema.cedarschema` and `base.cedar`, then [`Policies`] and [`Judge`].
//!
//! - [`principal`]: who asks.
//! - [`scope`]: what a credential is narrowed to.
//! - [`action`]: what can be asked for.
//! - [`facts`]: what a decision is made on.
//! - `bounds`: what a text may be before it is parsed; `weight`: how long a tenant's may take; `load`: texts to
//!   sets; [`policies`]: validates and asks; `added`: what those that
//!   are not ours look at; `vocabulary`: the schema; `about`: the policies of
//!   one action, as one where that can be; `guard`: what they look at first.
//! - [`judge`]: every decision.
//! - [`permit`]: what an allow opens.
//! - [`denied`]: what a deny says.
//! - [`request`]: one question as data; [`explain`]: what would change its answer; [`case`]: questions of a test.
//! - [`prove`]: what holds for every request, by a solver.
#![deny(clippy::indexing_slicing, clippy::string_slice)]

mod about;
pub mod action;
mod added;
mod bounds;
pub mod case;
pub mod denied;
mod entities;
pub mod explain;
pub mod facts;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guard;
pub mod judge;
mod load;
mod mentions;
pub mod permit;
pub mod policies;
pub mod principal;
pub mod prove;
pub mod request;
pub mod scope;
mod subjects;
mod vocabulary;
mod weight;

pub use action::{Action, UnknownAction};
pub use bounds::DECISION_STACK_BYTES;
pub use denied::Denied;
pub use facts::{At, LeadingBranch, PathFacts, RunFacts, RunOrigin, RunPlan, TenantFacts};
pub use judge::{AdminAction, Judge, OperatorJudge, ReadAction, ServiceJudge, SystemAction, TenantAction, WriteAction};
pub use permit::{
    AdminPermit, ClonePermit, ExchangePermit, ExplainPermit, ForeignStore, ForkPermit, Grant, LabelPermit,
    OperatorPermit, PathReadPermit, PathWritePermit, PromotePermit, ProtectPermit, PurgePermit, PushPermit,
    RunCancelPermit, RunCreatePermit, RunListPermit, RunReadPermit, SharePermit, StoreScope, SystemGrant,
    UnsharePermit,
};
pub use policies::{Answer, Policies, PolicyError, TenantPolicies};
pub use principal::{CredentialId, CredentialKind, Entitlement, Operator, Principal, ServedTenants, ServiceAccount};
pub use scope::{SCOPE_POLICY, Scope};
