//! Safe Linux calls, for what rustix does not offer. The only crate with `unsafe`.
//!
//! Functions here take owned or borrowed descriptors and typed flags, and know nothing of sandboxes. What is meant
//! to be called between fork and exec says so and allocates, locks and logs nothing.

pub mod child;
pub mod descriptors;
pub mod entropy;
pub mod exec;
pub mod landlock;
pub mod loopdev;
pub mod mount;
pub mod namespace;
pub mod process;
pub mod pty;
pub mod seccomp;
pub mod signal;

/// The calling thread's `errno`.
fn last_errno() -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(rustix::io::Errno::IO)
}
