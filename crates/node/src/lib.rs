//! The sandboxes of one host: claimed, driven through one run each, and destroyed.
//!
//! A node holds no tenant data of its own, opens no database, decides no policy and sees no plaintext secret: it gets
//! a spec that came from a permit and reports what happened. It never believes the guest: every byte from a sandbox
//! is limited in size and parsed as hostile. Whatever happens to a caller, a task or a guest, no sandbox outlives its
//! [`wall::Hold`].
//!
//! Start with [`node`], then [`lifecycle`] (what may follow what) and [`run`] (the task that carries it out). Below
//! them: [`wall`] (what isolates), [`jail`] (how a cage is asked for), [`transport`] and [`agent`] (how the guest is
//! spoken to), [`machine`] and [`pool`] (parked sandboxes), `share` (whose CPU time one takes), [`checkout`] (slices of
//! the tree as folders), and [`git`] (stock git over a repository).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

pub mod agent;
pub mod checkout;
pub mod fault;
pub mod git;
pub mod jail;
pub mod lifecycle;
pub mod machine;
pub mod node;
pub mod pool;
pub mod run;
mod share;
pub mod tasks;
pub mod transport;
pub mod wall;

pub use checkout::CheckoutRoom;
pub use node::{Deadlines, Machines, Microvm, Node, NodeConfig, NodeError};
