//! Naming the step that failed.

use std::fmt::Display;

use bailey_protocol::jail::{JailFault, JailFaultKind};

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
        self.map_err(|error| fault(JailFaultKind::Fence, step, error))
    }

    fn or_invalid(self, step: &str) -> Result<T, JailFault> {
        self.map_err(|error| fault(JailFaultKind::Invalid, step, error))
    }
}

/// A fault of the given kind.
pub(crate) fn fault(kind: JailFaultKind, step: &str, message: impl Display) -> JailFault {
    JailFault { kind, step: step.to_owned(), message: message.to_string() }
}

/// The request makes no sense.
pub(crate) fn invalid(step: &str, message: impl Display) -> JailFault {
    fault(JailFaultKind::Invalid, step, message)
}
