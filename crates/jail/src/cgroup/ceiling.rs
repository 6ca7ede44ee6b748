//! What all cages together may use: so much less than the host has that the host itself goes on whatever they do.

use rustix::fs::CWD;
use rustix::io::Errno;

use crate::files;

/// The host keeps this part of its memory for itself,
const MEMORY_PART: u64 = 16;
/// and no less.
const LEAST_MEMORY: u64 = 256 << 20;
/// The host keeps this part of the processes that its kernel has room for.
const PIDS_PART: u64 = 2;

/// Limits of all cages of one jail together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ceiling {
    pub(crate) memory_bytes: u64,
    pub(crate) pids: u64,
}

impl Ceiling {
    /// What this host can give.
    ///
    /// # Errors
    /// When its size cannot be read.
    pub(crate) fn of_host() -> Result<Self, Errno> {
        let host = rustix::system::sysinfo();
        let memory = host.totalram.saturating_mul(u64::from(host.mem_unit));
        let number = |name: &str| files::read(CWD, name)?.trim().parse::<u64>().map_err(|_text| Errno::INVAL);
        let pids = number("/proc/sys/kernel/threads-max")?.min(number("/proc/sys/kernel/pid_max")?);
        Ok(Self::of(memory, pids))
    }

    fn of(memory_bytes: u64, pids: u64) -> Self {
        let kept = (memory_bytes / MEMORY_PART).max(LEAST_MEMORY);
        Self { memory_bytes: memory_bytes.saturating_sub(kept), pids: pids / PIDS_PART }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_keeps_a_part_of_what_it_has() {
        assert_eq!(Ceiling::of(16 << 30, 32_768), Ceiling { memory_bytes: 15 << 30, pids: 16_384 });
        assert_eq!(Ceiling::of(1 << 30, 9_000), Ceiling { memory_bytes: 768 << 20, pids: 4_500 });
    }
}
