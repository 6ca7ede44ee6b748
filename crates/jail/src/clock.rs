//! The monotonic clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since some fixed moment; never goes back.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}
