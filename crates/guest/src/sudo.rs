//! `sudo` without setuid: a shim asks PID 1, which starts the command as the sandbox's uid 0, if there may be one.

pub mod message;
pub mod server;
pub mod shim;
