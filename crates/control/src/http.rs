//! The native HTTP front: a thin skin over [`crate::ops`]. It parses, calls one operation and renders its answer.
//!
//! Everything below `/v1/` needs a token, unknown paths included. Start with [`routes`];
//! what handlers take is in [`arguments`].

mod archives;
mod arguments;
mod audit_routes;
mod branch_routes;
mod conditions;
pub mod connection;
mod content;
mod cut;
mod error_answer;
mod event_stream;
mod form;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod git_client;
mod git_routes;
mod guard;
mod heads;
mod identity_routes;
mod json;
mod metrics_routes;
pub mod openapi;
mod policy_routes;
mod query;
mod route;
mod routes;
mod run_routes;
mod server;
mod storage_routes;
mod tree_change_routes;
mod tree_path;
mod tree_routes;
mod upload;

pub use routes::router;
pub use server::serve;

/// Largest body that says little, in bytes.
const MAX_SMALL: usize = 64 * 1024;
