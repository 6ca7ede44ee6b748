//! Executing a program by descriptor.

use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

use crate::last_errno;

/// A null-terminated vector of arguments or environment entries, made before a fork.
#[derive(Debug)]
pub struct StringVector {
    pointers: Vec<*const c_char>,
    /// Owns what `pointers` point at.
    _strings: Vec<CString>,
}

impl StringVector {
    /// Builds the vector.
    #[must_use]
    pub fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, _strings: strings }
    }
}

/// Replaces the calling process by the program behind `program` (an `O_PATH` descriptor will do). Returns only if
/// that fails. Makes one system call, so it may be called between fork and exec.
#[must_use]
pub fn execute(program: BorrowedFd<'_>, arguments: &StringVector, environment: &StringVector) -> Errno {
    const EMPTY: &CStr = c"";
    // SAFETY: all three are null-terminated and live; both vectors end with a null pointer and their strings are
    // owned by the vectors. The kernel copies them before it replaces the address space.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            EMPTY.as_ptr(),
            arguments.pointers.as_ptr(),
            environment.pointers.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    last_errno()
}
