//! The control plane: use cases, their fronts, and what they remember.
//!
//! Owns authentication, the order of the seven steps, the database and the HTTP API. It spawns no process and talks to
//! no wall: runs go to a node over [`node_link`]. Every use case starts by turning a principal into a permit; the
//! handles on the database and the trees take nothing else.
//!
//! Start with [`control`], then [`ops`], then [`http`].

pub mod admission;
pub mod api_error;
pub mod audit;
pub mod auth;
mod changes;
pub mod choosing;
pub mod clock;
pub mod config;
pub mod control;
pub mod credential_scan;
pub mod db;
mod decisions;
pub mod event_log;
mod git;
pub mod http;
mod live_guard;
mod live_runs;
pub mod node_link;
pub mod ops;
mod output;
mod pace;
pub mod pipe;
mod policy_handle;
#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
mod run_request;
mod secret_value;
pub mod standing;
mod store_locks;
mod streams;
mod strict_json;
mod tenant_facts;
pub mod threads;
mod tree_meta;
mod tree_tokens;
mod turns;
