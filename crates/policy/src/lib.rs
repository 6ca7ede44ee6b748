//! Who may do what: Cedar's answer, as a value that only this crate can make.
//!
//! The crate owns the schema, the base rules and the step from a [`Principal`] to a permit. A permit is typed by what
//! it opens and carries the principal's tenant; `control`'s database and tree handles take nothing else, so a missing
//! check does not compile. The crate never touches a database, a network or a clock: facts are arguments.
//!
//! Start with `schema.cedarschema` and `base.cedar`, then [`Policies`].
//!
//! - [`principal`]: who asks.
//! - [`policies`]: loads, validates and asks.
//! - [`permit`]: what an allow opens.
//! - [`denied`]: what a deny says.
#![deny(clippy::indexing_slicing, clippy::string_slice)]

pub mod denied;
mod entities;
pub mod permit;
pub mod policies;
pub mod principal;

pub use denied::{Action, Denied};
pub use permit::{
    ForeignStore, Grant, PathReadPermit, PathWritePermit, RunCancelPermit, RunCreatePermit, RunListPermit,
    RunReadPermit, StoreScope,
};
pub use policies::{Policies, PolicyError, ReadAction, RunFacts, RunPlan, WriteAction};
pub use principal::{Entitlement, Principal};
