//! The node from outside: runs over a wall that is played by hand, and over the real one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod bench;
mod fake_wall;
mod git;
mod guest;
mod hostile_guest;
mod machines;
mod pool;
mod real;
mod run;
mod wall_contract;
