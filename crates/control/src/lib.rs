//! The control plane: use cases, their fronts, and what they remember.
//!
//! Owns authentication, the order of the seven steps, the database and the HTTP API. It spawns no process and talks to
//! no wall: runs go to a node over [`node_link`]. Every use case starts by turning a principal into a permit; the
//! handles on the database and the trees take nothing else.
//!
//! Start with [`control`], then [`ops`], then [`http`].

pub mod admission;
pub mod api_error;
pub mod auth;
pub mod clock;
pub mod config;
pub mod control;
pub mod db;
pub mod event_log;
pub mod http;
mod live_runs;
pub mod node_link;
pub mod ops;
mod output;
pub mod pipe;
mod run_request;
mod store_locks;
