//! Why a push is refused, in words for its client.

use std::io;

use bailey_protocol::node::Ending;
use bailey_protocol::path::BranchName;

use crate::api_error::ApiError;
use crate::git::push::PushError;

/// Most bytes of git's own words in a report.
const MAX_SAID: usize = 300;

pub(super) fn with_policies(mut denial: String, policies: &[String]) -> String {
    if !policies.is_empty() {
        denial.push_str(&format!(" (policy `{}`)", policies.join("`, `")));
    }
    denial
}

pub(super) fn taken(branch: &BranchName, other: &BranchName) -> String {
    format!("`{branch}` and `{other}` cannot both be branches")
}

pub(super) fn protected(branch: &BranchName) -> String {
    format!("`{branch}` is protected: push to a branch of your own and have it promoted")
}

pub(super) fn moved(branch: &BranchName) -> String {
    format!("`{branch}` has moved: fetch first")
}

/// What git said against the pack.
pub(super) fn why(ending: &Ending, said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines = said.lines().filter_map(|line| line.strip_prefix("error: ").or(line.strip_prefix("fatal: ")));
    let reasons: Vec<&str> = lines.collect();
    match ending {
        Ending::Exited { .. } if !reasons.is_empty() => reasons.join("; ").chars().take(MAX_SAID).collect(),
        Ending::Timeout => "git took too long over the pack".to_owned(),
        Ending::Signaled { .. } | Ending::Oom | Ending::GuestLost => "git ran out of memory over the pack".to_owned(),
        Ending::Exited { .. } | Ending::OutputLimit | Ending::Cancelled | Ending::NodeRestarted => {
            "git could not unpack the pack".to_owned()
        }
    }
}

pub(super) fn not_understood(error: PushError) -> ApiError {
    match error {
        PushError::Pkt(crate::git::pkt::PktError::Read(cause)) => broken_off(cause),
        error => ApiError::invalid("invalid_git_request", error.to_string(), "Use a current git; see docs/git.md."),
    }
}

pub(super) fn broken_off(cause: io::Error) -> ApiError {
    ApiError::invalid("body_broken", "the push stopped before its end", "Push again.").because(cause)
}
