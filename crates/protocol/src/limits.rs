//! What one sandbox may use, and the sizes that messages may have.

use serde::{Deserialize, Serialize};

/// Largest JSON message between node and jail, in bytes; one datagram each.
pub const MAX_JAIL_MESSAGE: usize = 64 * 1024;
/// Largest number of mounts in one run.
pub const MAX_MOUNTS: usize = 16;
/// Most descriptors that are handed to a program in a cage of its own.
pub const MAX_PROGRAM_FDS: usize = 16;
/// Most words of the command line of such a program.
pub const MAX_PROGRAM_WORDS: usize = 256;
/// Largest command line of such a program, in bytes.
pub const MAX_PROGRAM_BYTES: usize = 32 * 1024;
/// Most folders on the way to one mount inside, itself included: each that is missing is made, for every run.
pub const MAX_MOUNT_DEPTH: usize = 16;
/// Largest number of arguments of a command.
pub const MAX_ARGS: usize = 4096;
/// Largest command line (arguments and environment together), in bytes.
pub const MAX_ARGS_BYTES: usize = 128 * 1024;
/// Largest standard input sent with a run, in bytes.
pub const MAX_STDIN_BYTES: usize = 1024 * 1024;
/// Largest program text sent with a run, in bytes.
pub const MAX_CODE_BYTES: usize = 100 * 1024;
/// Most files sent with a run.
pub const MAX_FILES: usize = 64;
/// Largest content of all files sent with a run together, in bytes.
pub const MAX_FILES_BYTES: usize = 1024 * 1024;
/// Largest JSON body of an API request, in bytes: the largest input, files, program and command line fit however JSON
/// escapes them (six bytes for one at most).
pub const MAX_API_BODY: usize = 16 * 1024 * 1024;
/// Longest line of a run's event stream, in bytes: the `ended` event with all its notices.
pub const MAX_EVENT_LINE: usize = 8 * 1024 * 1024;
/// Largest change stream of one mount, in bytes.
pub const MAX_CHANGE_STREAM: u64 = 4 * 1024 * 1024 * 1024;
/// Largest number of records in one change stream.
pub const MAX_CHANGE_RECORDS: u64 = 2_000_000;
/// Streams that one sandbox connection may hold open, and its receive window in bytes (yamux).
pub const MAX_STREAMS: usize = 64;
/// Receive window of one sandbox connection, in bytes, over all its streams.
pub const STREAM_WINDOW: usize = 16 * 1024 * 1024;

/// What one sandbox may use. Every field is enforced by the kernel, or by the node for time and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// CPU time per second of wall time, in thousandths of a core.
    pub cpu_millis: u32,
    /// Memory in bytes, tmpfs included.
    pub memory_bytes: u64,
    /// Processes and threads, PID 1 included.
    pub pids: u32,
    /// Bytes of everything the sandbox writes. Up to three quarters of `memory_bytes` they are kept in memory, so that a
    /// full disk is ENOSPC, not OOM; more takes one of the server's [`LargeDisks`].
    pub disk_bytes: u64,
    /// Files, folders and links of everything the sandbox writes.
    pub disk_inodes: u64,
    /// Open files per process.
    pub open_files: u32,
    /// Wall time from claim to kill, in milliseconds.
    pub timeout_ms: u64,
    /// Bytes of stdout and stderr together.
    pub output_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_millis: 1000,
            memory_bytes: 512 * MIB,
            pids: 256,
            disk_bytes: 256 * MIB,
            disk_inodes: 65_536,
            open_files: 1024,
            timeout_ms: 60_000,
            output_bytes: 8 * MIB,
        }
    }
}

const MIB: u64 = 1024 * 1024;

/// Room on the host's own disk for sandboxes that write more than their memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargeDisks {
    /// How many sandboxes may have one at a time.
    pub count: u32,
    /// The most bytes that one of them may ask for.
    pub bytes: u64,
    /// The most files, folders and links.
    pub inodes: u64,
}

/// Bytes of a large disk for each file that it may have: its smallest unit.
const BYTES_PER_INODE: u64 = 4096;

impl LargeDisks {
    /// Checks them against fixed bounds.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub fn check(&self) -> Result<(), LimitsError> {
        let rows = [
            ("count", u64::from(self.count), 1, 1000),
            ("bytes", self.bytes, 64 * MIB, 1 << 40),
            ("inodes", self.inodes, 256, self.bytes / BYTES_PER_INODE),
        ];
        in_range(rows)
    }

    /// The most files, folders and links on one of so many bytes.
    #[must_use]
    pub fn most_inodes(&self, bytes: u64) -> u64 {
        self.inodes.min(bytes / BYTES_PER_INODE)
    }
}

/// Why limits cannot be granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("limit `{field}` is {given}: use {least} to {most}")]
pub struct LimitsError {
    /// The field of [`Limits`].
    pub field: &'static str,
    /// What was asked for.
    pub given: u64,
    /// The smallest value that can be granted.
    pub least: u64,
    /// The largest value that can be granted.
    pub most: u64,
}

impl Limits {
    /// Whether it writes more than its memory holds.
    #[must_use]
    pub fn wants_large_disk(&self) -> bool {
        self.disk_bytes > self.memory_bytes / 4 * 3
    }

    /// Checks every field against fixed floors and the given ceiling; disks that do not fit in memory against those
    /// that the server has, if any.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub fn check(&self, ceiling: &Self, large: Option<&LargeDisks>) -> Result<(), LimitsError> {
        let in_memory = self.memory_bytes / 4 * 3;
        let (disk_bytes, disk_inodes) = match large {
            Some(large) if self.wants_large_disk() => (large.bytes.max(in_memory), large.most_inodes(self.disk_bytes)),
            _ => (ceiling.disk_bytes.min(in_memory), ceiling.disk_inodes),
        };
        let rows = [
            ("cpu_millis", u64::from(self.cpu_millis), 62, u64::from(ceiling.cpu_millis)),
            ("memory_bytes", self.memory_bytes, 64 * MIB, ceiling.memory_bytes),
            ("pids", u64::from(self.pids), 8, u64::from(ceiling.pids)),
            ("disk_bytes", self.disk_bytes, MIB, disk_bytes),
            ("disk_inodes", self.disk_inodes, 256, disk_inodes),
            ("open_files", u64::from(self.open_files), 64, u64::from(ceiling.open_files)),
            ("timeout_ms", self.timeout_ms, 1, ceiling.timeout_ms),
            ("output_bytes", self.output_bytes, 0, ceiling.output_bytes),
        ];
        in_range(rows)
    }
}

fn in_range(rows: impl IntoIterator<Item = (&'static str, u64, u64, u64)>) -> Result<(), LimitsError> {
    for (field, given, least, most) in rows {
        if given < least || given > most {
            return Err(LimitsError { field, given, least, most });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_holds_the_largest_input_however_it_is_escaped() {
        let fields = MAX_STDIN_BYTES + MAX_FILES_BYTES + MAX_CODE_BYTES + MAX_ARGS_BYTES;
        assert!(6 * (fields + MAX_FILES * crate::path::MAX_PATH_BYTES) + 64 * 1024 <= MAX_API_BODY);
    }

    #[test]
    fn the_defaults_pass_and_a_disk_larger_than_memory_does_not() {
        let ceiling = Limits { disk_bytes: u64::MAX, ..Limits::default() };
        Limits::default().check(&ceiling, None).unwrap();
        let greedy = Limits { disk_bytes: 512 * MIB, ..Limits::default() };
        assert_eq!(greedy.check(&ceiling, None).unwrap_err().field, "disk_bytes");
    }

    #[test]
    fn a_disk_larger_than_memory_is_one_of_the_servers() {
        let large = LargeDisks { count: 1, bytes: 1024 * MIB, inodes: 100_000 };
        large.check().unwrap();
        let ceiling = Limits::default();
        let of = |disk_bytes, disk_inodes| {
            let limits = Limits { disk_bytes, disk_inodes, ..Limits::default() };
            limits.check(&ceiling, Some(&large)).map_err(|error| (error.field, error.most))
        };
        assert_eq!(of(1024 * MIB, 100_000), Ok(()));
        assert_eq!(of(1024 * MIB + 1, 300), Err(("disk_bytes", 1024 * MIB)));
        assert_eq!(of(1024 * MIB, 100_001), Err(("disk_inodes", 100_000)));
        assert_eq!(of(385 * MIB, 385 * 256 + 1), Err(("disk_inodes", 385 * 256)), "no more files than units");
        // What fits in memory is asked of the ceiling, as ever.
        assert_eq!(of(384 * MIB, 300), Err(("disk_bytes", 256 * MIB)));
        assert_eq!(of(200 * MIB, 65_536), Ok(()));
        for bad in [(0, 1 << 30, 300), (1, 1 << 41, 300), (1, 1 << 20, 256), (1, 1 << 30, 262_145)] {
            let (count, bytes, inodes) = bad;
            LargeDisks { count, bytes, inodes }.check().unwrap_err();
        }
    }
}
