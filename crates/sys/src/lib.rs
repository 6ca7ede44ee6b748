//! Safe Linux calls, for what rustix does not offer. The only crate with `unsafe`.
//!
//! Functions here take owned or borrowed descriptors and typed flags, and know nothing of sandboxes. What is meant
//! to be called between fork and exec says so and allocates, locks and logs nothing.

pub mod seccomp;
