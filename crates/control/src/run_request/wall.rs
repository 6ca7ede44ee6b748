//! Which wall a request gets.

use bailey_protocol::api::{Language, RunRequest};
use bailey_protocol::limits::Limits;
use bailey_protocol::wall::{CodeLanguage, WallKind, WallReason};

use crate::api_error::ApiError;
use crate::choosing::{self, Host, Verdict};

/// The wall of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Which.
    pub(crate) kind: WallKind,
    /// Who chose it.
    pub(crate) reason: WallReason,
    /// Why.
    pub(crate) why: String,
}

/// Takes what is named, or chooses by what is known of the code.
pub(super) fn choose(request: &RunRequest, limits: &Limits, host: &Host) -> Result<Chosen, ApiError> {
    if let Some(kind) = request.wall.named() {
        if !host.walls.contains_key(&kind) {
            let message = format!("wall `{kind}` is not on this server");
            let hint =
                "Leave `wall` out, and one is chosen; `bailey doctor` on the server's host lists those that work.";
            return Err(ApiError::invalid("wall_not_installed", message, hint));
        }
        return Ok(Chosen { kind, reason: WallReason::Requested, why: "the request names it".to_owned() });
    }
    let mut facts = request.about.clone().unwrap_or_default();
    facts.language = facts.language.or(request.language.map(|language| match language {
        Language::Python => CodeLanguage::Python,
        Language::Javascript => CodeLanguage::Javascript,
        Language::Bash => CodeLanguage::Other,
    }));
    facts.cpu_millis = facts.cpu_millis.or(Some(limits.cpu_millis));
    facts.memory_bytes = facts.memory_bytes.or(Some(limits.memory_bytes));
    match choosing::choose(&facts, host) {
        Verdict::Wall { wall, reason, with: _ } => Ok(Chosen { kind: wall, reason: WallReason::Auto, why: reason }),
        Verdict::NoSandbox { reason } => {
            let hint = "Run it where the product runs: Bailey runs nothing without a wall.";
            Err(ApiError::invalid("no_sandbox_needed", reason, hint))
        }
        Verdict::Refused { reason, instead } => Err(ApiError::invalid("wall_refused", reason, instead)),
        Verdict::NotInstalled { wall, reason, how } => {
            let message = format!("it needs `{wall}`, which is not on this server: {reason}");
            Err(ApiError::invalid("wall_not_installed", message, how))
        }
        Verdict::HostCannot { reason, how } => Err(ApiError::invalid("host_cannot", reason, how)),
        Verdict::ConfirmFirst { reason, ask } => Err(ApiError::invalid("confirm_first", reason, ask.join(" "))),
    }
}
