//! What node and guest agent say to each other. The node never believes what comes back.
//!
//! The guest's end of the one duplex stream is its descriptor [`STREAM_FD`]. Over it runs yamux: the node is the
//! client, the guest the server; either side opens streams. Each stream begins with one [`StreamTarget`] line.
//! Behind `agent` the guest speaks HTTP/1.1: E2B's envd API (`process.Process`, `filesystem.Filesystem`, `/files`,
//! `/health`, `/metrics`, `/envs`), and `POST /init` with an [`InitRequest`], which only the node may reach.
//!
//! A guest that is the first program of a machine of its own, where no jail mounts anything from outside, is told and
//! asked more: `POST /warm` with a [`MachineWarm`] while nobody has it, `POST /claim` with a [`MachineClaim`], then one
//! `slice` stream for each mount, then `/init`; at the end `POST /stop`, answered by
//! [`StopFacts`](crate::jail::StopFacts), then one `collect` stream for each writable mount.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::jail::CageMount;
use crate::limits::Limits;
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
/// Name of the virtio-serial port that carries the stream into a machine.
pub const PORT_NAME: &str = "bailey";
/// What a parked machine says on its console each time that the node has gone: it waits for the next one, and a copy that
/// is made of it from here on begins a conversation of its own.
pub const WAITING: &str = "bailey-guest: parked, and waits for the node";
/// Fewest random bytes in a [`MachineClaim`].
pub const MIN_ENTROPY: usize = 64;
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
    /// After `/claim`: the content of the mount of this number, as a change stream ([`crate::change`]) of folders, files
    /// and links. The guest answers with one line, [`SLICE_TAKEN`] or [`SLICE_FAILED`] and a reason.
    Slice(u32),
    /// After `/stop`: the guest sends what changed below the writable mount of this number, as a change stream.
    Collect(u32),
}

/// Answer to a `slice` stream that was taken, without its newline.
pub const SLICE_TAKEN: &str = "ok";
/// What an answer to a `slice` stream begins with that was not.
pub const SLICE_FAILED: &str = "failed ";

impl StreamTarget {
    /// The header line, newline included.
    #[must_use]
    pub fn to_line(self) -> String {
        match self {
            Self::Agent => "agent\n".to_owned(),
            Self::Tcp(port) => format!("tcp:{port}\n"),
            Self::Egress => "egress\n".to_owned(),
            Self::Slice(number) => format!("slice:{number}\n"),
            Self::Collect(number) => format!("collect:{number}\n"),
        }
    }

    /// Parses a header line without its newline.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        match line {
            "agent" => Some(Self::Agent),
            "egress" => Some(Self::Egress),
            other => {
                let (kind, digits) = other.split_once(':')?;
                let plain = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
                let number: u32 = plain.then(|| digits.parse().ok()).flatten()?;
                match kind {
                    "tcp" => u16::try_from(number).ok().filter(|port| *port != 0).map(Self::Tcp),
                    "slice" => Some(Self::Slice(number)),
                    "collect" => Some(Self::Collect(number)),
                    _ => None,
                }
            }
        }
    }
}

/// Body of `POST /claim`, once per machine and before anything of a tenant is in it. A machine may be the copy of
/// another one, down to the last bit of its memory: this makes it a machine of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineClaim {
    /// [`GENERATION`] of the node.
    pub generation: u32,
    /// Wall clock, in nanoseconds since 1970.
    pub now_ns: u64,
    /// Random bytes for the kernel as base64, [`MIN_ENTROPY`] of them or more; no other machine gets the same.
    pub entropy: String,
    /// Host name.
    pub hostname: String,
    /// Content of `/etc/machine-id`: 32 hex digits.
    pub machine_id: String,
    /// What the kernel's `boot_id` says from now on: a UUID.
    pub boot_id: String,
    /// What the code may use.
    pub limits: Limits,
    /// Where slices will be, in the order of their numbers.
    pub mounts: Vec<CageMount>,
}

/// Body of `POST /warm`, any number of times before the claim: runs commands, one after the other, as the user that code
/// runs as, so that what they load and translate is there for whoever claims the machine, or a copy of it. Their
/// processes are killed, and the claim throws away what they wrote. Answered once all have ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineWarm {
    /// Programs, each with its arguments, looked for as an exec's are. One that ends otherwise than with 0 is a failure.
    pub commands: Vec<Vec<String>>,
}

/// Answer to `POST /claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClaimed {
    /// What is in force from now on, for the run's `started` event.
    pub fences: Vec<String>,
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
        let numbered = [StreamTarget::Tcp(8080), StreamTarget::Slice(0), StreamTarget::Collect(15)];
        for target in [StreamTarget::Agent, StreamTarget::Egress].into_iter().chain(numbered) {
            assert_eq!(StreamTarget::parse(target.to_line().trim_end()), Some(target));
        }
        let ports = ["tcp:", "tcp:0", "tcp:65536", "tcp:+1", "tcp:080", "tcp:80 "];
        for bad in ports.into_iter().chain(["Agent", "", "slice:", "slice:01", "slice:-1", "collect:4294967296"]) {
            assert_eq!(StreamTarget::parse(bad), None, "{bad}");
        }
    }
}
