//! The native HTTP front: a thin skin over [`crate::ops`]. It parses, calls one operation and renders its answer.
//!
//! Everything below `/v1/` needs a token, unknown paths included. Start with [`routes`].

mod conditions;
pub mod connection;
mod content;
mod error_answer;
mod event_stream;
mod guard;
mod json;
mod query;
mod routes;
mod run_routes;
mod server;
mod tree_path;
mod tree_routes;
mod upload;

pub use routes::router;
pub use server::serve;
