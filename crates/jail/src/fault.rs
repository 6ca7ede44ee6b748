//! Naming the step that failed.

use std::fmt::Display;

use bailey_protocol::jail::{JailFault, JailFaultKind};
use rustix::io::Errno;

/// The step that a test has fail although it was done, to see that nothing goes on without it.
#[cfg(debug_assertions)]
static TO_FAIL: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Has a step fail from now on; a `*` at the end of its name stands for the rest. Not in the product.
#[cfg(debug_assertions)]
pub(crate) fn have_fail(step: String) {
    // Told once.
    TO_FAIL.set(step).ok();
}

#[cfg(debug_assertions)]
fn is_to_fail(step: &str) -> bool {
    TO_FAIL.get().is_some_and(|told| match told.strip_suffix('*') {
        Some(start) => step.starts_with(start),
        None => step == told,
    })
}

#[cfg(not(debug_assertions))]
fn is_to_fail(_step: &str) -> bool {
    false
}

/// A step in a forked child and why it failed.
pub(crate) type Failure = (&'static str, Errno);

/// Names the step of a failed call in a forked child, where nothing may be allocated.
pub(crate) trait Step<T> {
    /// The step puts up a fence.
    fn step(self, name: &'static str) -> Result<T, Failure>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, name: &'static str) -> Result<T, Failure> {
        if self.is_ok() && is_to_fail(name) {
            return Err((name, Errno::CANCELED));
        }
        self.map_err(|errno| (name, errno))
    }
}

/// Turns an error into a [`JailFault`] that names its step.
pub(crate) trait OrFault<T> {
    /// The step failed for a reason on this host.
    fn or_internal(self, step: &str) -> Result<T, JailFault>;
    /// The step puts up a fence.
    fn or_fence(self, step: &str) -> Result<T, JailFault>;
    /// The step depends on what the request asks for.
    fn or_invalid(self, step: &str) -> Result<T, JailFault>;
}

impl<T, E: Display> OrFault<T> for Result<T, E> {
    fn or_internal(self, step: &str) -> Result<T, JailFault> {
        self.map_err(|error| fault(JailFaultKind::Internal, step, error))
    }

    fn or_fence(self, step: &str) -> Result<T, JailFault> {
        if self.is_ok() && is_to_fail(step) {
            return Err(fault(JailFaultKind::Fence, step, "it was to fail"));
        }
        self.map_err(|error| fault(JailFaultKind::Fence, step, error))
    }

    fn or_invalid(self, step: &str) -> Result<T, JailFault> {
        self.map_err(|error| fault(JailFaultKind::Invalid, step, error))
    }
}

/// Puts up a fence by making a process, of which nothing may be left when that fails.
pub(crate) fn attempt<T, E: Display>(step: &str, make: impl FnOnce() -> Result<T, E>) -> Result<T, JailFault> {
    if is_to_fail(step) {
        return Err(fault(JailFaultKind::Fence, step, "it was to fail"));
    }
    make().map_err(|error| fault(JailFaultKind::Fence, step, error))
}

/// A fault of the given kind.
pub(crate) fn fault(kind: JailFaultKind, step: &str, message: impl Display) -> JailFault {
    JailFault { kind, step: step.to_owned(), message: message.to_string() }
}

/// The request makes no sense.
pub(crate) fn invalid(step: &str, message: impl Display) -> JailFault {
    fault(JailFaultKind::Invalid, step, message)
}
