//! Files for callers outside: `filesystem.Filesystem`, and bytes over `/files`.
//!
//! They act with PID 1's rights, as E2B's agent does, and give what they make to the caller's user. Everything
//! happens inside the sandbox's own mounts: a link that code planted leads to its own files at worst. Magic links
//! of `/proc` are never followed, and nothing but regular files is opened for reading or writing.

pub mod entry;
pub mod operation;
pub mod path;
pub mod query;
pub mod service;
pub mod transfer;
pub mod watch;
