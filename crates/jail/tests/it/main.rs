//! The real `bailey-jail`, attached to a test, on this kernel as root. A stand-in for the guest runs any command
//! with PID 1's rights, so that the cage is judged against a PID 1 that was taken over.
//!
//! Needs root, `mkfs.erofs`, `gcc`, a static busybox, QEMU and Debian's archive; a machine without them fails these tests, because the
//! product promises to work where they are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests measure time")]
#![allow(clippy::print_stderr, reason = "what runs elsewhere is announced")]

mod absent;
mod budget;
mod disks;
mod fences;
mod harness;
mod hostile;
mod launch;
mod lifecycle;
mod limits;
mod machine;
mod posture;
mod residue;
mod sentry;
mod server;
mod vmm;
