//! What node and guest agent say to each other. The node never believes what comes back.
//!
//! The guest's end of the one duplex stream is its descriptor [`STREAM_FD`]. Over it runs yamux: the node is the
//! client, the guest the server; either side opens streams. Each stream begins with one [`StreamTarget`] line.
//! Behind `agent` the guest speaks HTTP/1.1: E2B's envd API (`process.Process`, `filesystem.Filesystem`, `/files`,
//! `/health`, `/metrics`, `/envs`), and `POST /init` with an [`InitRequest`], which only the node may reach.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::path::SandboxPath;

/// Generation of this protocol. Sent in [`InitRequest`]; a guest of another generation refuses.
pub const GENERATION: u32 = 1;
/// Descriptor of the duplex stream in a freshly executed guest.
pub const STREAM_FD: i32 = 3;
/// Descriptor of the guest's own delegated cgroup v2 folder in a freshly executed guest.
pub const CGROUP_FD: i32 = 4;
/// Descriptor of the output pipe in a freshly executed collector.
pub const COLLECT_OUT_FD: i32 = 3;
/// Descriptor of the upper layer's folder in a freshly executed collector.
pub const COLLECT_UPPER_FD: i32 = 4;
/// Descriptor of the merged view's root in a freshly executed collector.
pub const COLLECT_MERGED_FD: i32 = 5;
/// Descriptor of the lower layer's root in a freshly executed collector.
pub const COLLECT_LOWER_FD: i32 = 6;
/// Where the shim behind `/usr/bin/sudo` finds PID 1, inside the sandbox.
pub const SUDO_SOCKET: &str = "/run/bailey/sudo.sock";
/// Longest stream header line, newline included.
pub const MAX_STREAM_HEADER: usize = 32;
/// Where the jail mounts the agent's own binary, inside the sandbox; the shim links there.
pub const AGENT_PATH: &str = "/run/bailey/agent";

/// What a stream is for; the first line on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamTarget {
    /// HTTP to the guest agent.
    Agent,
    /// Bytes to a server inside the guest on this loopback port.
    Tcp(u16),
    /// Opened by the guest: bytes to the egress proxy.
    Egress,
}

impl StreamTarget {
    /// The header line, newline included.
    #[must_use]
    pub fn to_line(self) -> String {
        match self {
            Self::Agent => "agent\n".to_owned(),
            Self::Tcp(port) => format!("tcp:{port}\n"),
            Self::Egress => "egress\n".to_owned(),
        }
    }

    /// Parses a header line without its newline.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        match line {
            "agent" => Some(Self::Agent),
            "egress" => Some(Self::Egress),
            other => {
                let digits = other.strip_prefix("tcp:")?;
                let plain =
                    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
                plain.then(|| digits.parse().ok().map(Self::Tcp)).flatten()
            }
        }
    }
}

/// Body of `POST /init`, once per sandbox, after the claim's mounts are in place and before any exec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitRequest {
    /// [`GENERATION`] of the node.
    pub generation: u32,
    /// Added to the environment of every exec.
    pub env: BTreeMap<String, String>,
    /// Where slices are mounted; the guest's Landlock fence grants these.
    pub mounts: Vec<SandboxPath>,
    /// Whether the `sudo` shim may start execs as the sandbox's uid 0.
    pub root: bool,
    /// Open files per process of an exec.
    pub open_files: u32,
}

/// Answer to `POST /init`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitResponse {
    /// Fences that the guest itself put up, for the run's `started` event.
    pub fences: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_round_trip_and_odd_ports_are_refused() {
        for target in [StreamTarget::Agent, StreamTarget::Tcp(8080), StreamTarget::Egress] {
            assert_eq!(StreamTarget::parse(target.to_line().trim_end()), Some(target));
        }
        for bad in ["tcp:", "tcp:0", "tcp:65536", "tcp:+1", "tcp:080", "Agent", "", "tcp:80 "] {
            assert_eq!(StreamTarget::parse(bad), None, "{bad}");
        }
    }
}
