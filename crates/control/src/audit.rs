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

use bailey_policy::{Action, UnknownAction};

/// The action of a row that seals one round of checkpoints.
pub const SEALED: &str = "audit_checkpoint";
/// The action of a row that says that other policies of the operator's are in force.
pub(crate) const POLICIES_CHANGED: &str = "policies_changed";
/// The action of a row that says how a run ended.
pub(crate) const RUN_END: &str = "run_end";
/// The action of a row that says which version of a path came of a run.
pub(crate) const RUN_COMMIT: &str = "run_commit";
/// The action of a row that says that a store was shut, or opened again.
pub(crate) const STORE: &str = "store";

/// What is on the audit beside what can be asked for.
const BY_ITSELF: [&str; 5] = [SEALED, POLICIES_CHANGED, STORE, RUN_END, RUN_COMMIT];

/// That there may be rows of such an action: what can be asked for, and what the server does by itself.
///
/// # Errors
/// Where there can be none, it is misspelt.
pub fn check_action(name: &str) -> Result<(), UnknownAction> {
    let known = || Action::ALL.iter().map(|action| action.as_str()).chain(BY_ITSELF);
    if known().any(|known| known == name) { Ok(()) } else { Err(UnknownAction::among(name, known())) }
}
