//! Placeholder.

pub mod auth;
pub mod clock;
pub mod db;
