//! The audit's hash chain, apart from where it is kept: what each hash is of, who signs, and how a chain is verified.
//!
//! Everything here is pure. The chains lie in [`crate::db`]; `docs/audit.md` tells the same for those who write a
//! verifier of their own. Start with [`chain`], then [`verify`].

pub mod chain;
pub mod export;
pub(crate) mod keeper;
pub mod signer;
pub mod verify;

pub use chain::Chain;
pub(crate) use keeper::keep;
pub use signer::{AuditKeys, AuditSigner};
pub use verify::{Fault, Report, Verifier};

/// The action of a row that seals one round of checkpoints.
pub const SEALED: &str = "audit_checkpoint";
