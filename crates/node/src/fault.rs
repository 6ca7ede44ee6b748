//! What a caller is told when a run could not be carried out. Causes go to the log; messages name nothing of the host.

use bailey_protocol::jail::JailFaultKind;
use bailey_protocol::limits::LimitsError;
use bailey_protocol::node::{NodeFault, NodeFaultKind};
use bailey_tree::{TreeError, TreeErrorKind};
use tracing::{debug, error, warn};

use crate::agent::{AgentError, Refusal};
use crate::checkout::CheckoutError;
use crate::jail::JailError;
use crate::machine::MachineError;
use crate::wall::WallError;

/// A spec that cannot be carried out here.
pub(crate) fn invalid(message: impl Into<String>) -> NodeFault {
    NodeFault { kind: NodeFaultKind::Invalid, message: message.into() }
}

/// No room now.
pub(crate) fn exhausted() -> NodeFault {
    fault(NodeFaultKind::Exhausted, "no room for another sandbox now; retry later")
}

/// The node is on its way out, or its jail is gone.
pub(crate) fn unavailable() -> NodeFault {
    fault(NodeFaultKind::Unavailable, "this node takes no runs now; retry later")
}

/// Changes that could not be read out of a sandbox.
pub(crate) fn uncollected() -> NodeFault {
    internal("what the run changed could not be collected")
}

/// A bug of ours.
pub(crate) fn broken() -> NodeFault {
    internal("the run broke off")
}

fn internal(message: &str) -> NodeFault {
    fault(NodeFaultKind::Internal, message)
}

fn fault(kind: NodeFaultKind, message: &str) -> NodeFault {
    NodeFault { kind, message: message.to_owned() }
}

/// Limits outside what this node grants.
pub(crate) fn of_limits(error: &LimitsError) -> NodeFault {
    invalid(error.to_string())
}

/// A slice that could not be had.
pub(crate) fn of_checkout(cause: &CheckoutError) -> NodeFault {
    if let CheckoutError::Fill { cause, .. } = cause
        && let Some(cause) = cause.downcast_ref::<TreeError>()
        && cause.kind() == TreeErrorKind::TooLarge
    {
        return invalid(format!("a mounted folder is more than is put on a disk: {cause}"));
    }
    match cause {
        CheckoutError::TooLarge { bytes, most, .. } => {
            return invalid(format!(
                "a mounted folder takes {bytes} bytes on disk; all that a tenant mounts may take {most}"
            ));
        }
        CheckoutError::NoRoom { .. } => {
            warn!(cause = cause as &dyn std::error::Error, "no room for a checkout");
            return fault(NodeFaultKind::Exhausted, "no room for the folders that another run mounts now; retry later");
        }
        CheckoutError::Fill { .. } | CheckoutError::Disk { .. } | CheckoutError::BrokenOff { .. } => {}
    }
    error!(cause = cause as &dyn std::error::Error, "checkout failed");
    internal("a mounted folder could not be read from the tree")
}

/// No sandbox could be made.
pub(crate) fn of_machine(cause: &MachineError) -> NodeFault {
    match cause {
        MachineError::Wall(cause) => of_wall(cause, "make a sandbox"),
        MachineError::Agent(_) | MachineError::Silent | MachineError::Watch(_) => {
            error!(cause = cause as &dyn std::error::Error, "new sandbox unusable");
            internal("a new sandbox did not come up")
        }
    }
}

/// A wall that failed at `step`.
pub(crate) fn of_wall(cause: &WallError, step: &str) -> NodeFault {
    let kind = match cause {
        WallError::Jail(JailError::Lost) => return unavailable(),
        WallError::Jail(JailError::Refused { fault, .. }) => fault.kind,
        WallError::Jail(JailError::TooLarge { .. }) => JailFaultKind::Invalid,
        WallError::Guest { cause: AgentError::Refused { refusal: Refusal::InvalidArgument, .. }, .. } => {
            JailFaultKind::Invalid
        }
        WallError::Unable(what) => return invalid(format!("the wall cannot carry this out: {what}")),
        WallError::Descriptor(_)
        | WallError::Overdue { .. }
        | WallError::Guest { .. }
        | WallError::Slice { .. }
        | WallError::Unreadable { .. }
        | WallError::Monitor(_)
        | WallError::Chance(_) => JailFaultKind::Internal,
    };
    match kind {
        JailFaultKind::Invalid => {
            debug!(cause = cause as &dyn std::error::Error, step, "spec refused");
            unfit(step)
        }
        JailFaultKind::Exhausted => {
            warn!(cause = cause as &dyn std::error::Error, step, "host exhausted");
            exhausted()
        }
        JailFaultKind::Fence | JailFaultKind::Internal => {
            error!(cause = cause as &dyn std::error::Error, step, "wall failed");
            internal(&format!("could not {step}"))
        }
    }
}

/// Slices that a machine could not mount.
pub(crate) fn unmounted() -> NodeFault {
    unfit("mount the slices")
}

fn unfit(step: &str) -> NodeFault {
    invalid(format!("could not {step} as asked: check mount points, their number and the limits"))
}

/// A program that the agent refused to start.
pub(crate) fn of_refusal(refusal: Refusal, program: &str, cwd: Option<&str>) -> NodeFault {
    let program = shown(program);
    invalid(match (refusal, cwd) {
        (Refusal::NotFound, _) => format!("program `{program}` was not found in the sandbox"),
        (Refusal::PermissionDenied, _) => format!("program `{program}` may not be executed"),
        (Refusal::InvalidArgument, Some(cwd)) => {
            format!("program `{program}` could not be started in `{}`: is that a folder in the sandbox?", shown(cwd))
        }
        (Refusal::InvalidArgument | Refusal::Exhausted | Refusal::Other, _) => {
            format!("program `{program}` could not be started")
        }
    })
}

/// A file of the run's own that the agent refused to write.
pub(crate) fn of_file(refusal: Refusal, path: &str) -> NodeFault {
    let path = shown(path);
    invalid(match refusal {
        Refusal::Exhausted => format!("file `{path}` does not fit on the run's disk"),
        Refusal::PermissionDenied | Refusal::NotFound | Refusal::InvalidArgument | Refusal::Other => {
            format!("file `{path}` cannot be there: is something else in its place, or is its top folder missing?")
        }
    })
}

/// Text of the caller's own, short and in one line.
fn shown(text: &str) -> String {
    text.chars().take(100).flat_map(char::escape_debug).collect()
}
