//! Host uid ranges: one of 65,536 per cage, in chunks of 1,024 that one jail holds.
//!
//! ```text
//!  free ──take──▶ used ──give back (everything in the cage is dead)──▶ resting ──QUARANTINE──▶ free
//! ```
//!
//! Ranges are dealt out round robin, so that the one that was freed last comes last. Chunks are shared out between
//! the jails of a host by [`chunk`].

pub(crate) mod chunk;

use std::collections::VecDeque;
use std::time::Duration;

use bailey_protocol::jail::CAGE_UID_BASE;

/// Uids in one range.
pub(crate) const RANGE: u32 = 65_536;
/// Ranges in one chunk.
pub(crate) const CHUNK: u32 = 1024;
/// Chunks that fit above the base. The last uid of all is no uid (`-1`), so the last chunk stays out.
pub(crate) const CHUNKS: u32 = (u32::MAX - CAGE_UID_BASE) / (RANGE * CHUNK);
/// How long a range rests after its cage's death.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(10);

/// The first uid of a range that a cage holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Base(pub(crate) u32);

/// The ranges of the chunks that this jail holds.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    free: VecDeque<Base>,
    resting: VecDeque<(Duration, Base)>,
}

impl Ranges {
    /// Adds the ranges of a chunk.
    pub(crate) fn add_chunk(&mut self, chunk: u32) {
        let first = CAGE_UID_BASE + chunk * CHUNK * RANGE;
        self.free.extend((0..CHUNK).map(|number| Base(first + number * RANGE)));
    }

    /// The range that has been free the longest; nothing if all are in use or resting.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Base> {
        while self.resting.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, base)) = self.resting.pop_front() {
                self.free.push_back(base);
            }
        }
        self.free.pop_front()
    }

    /// Puts a range to rest. The caller has seen every process in it dead and its files gone.
    pub(crate) fn give_back(&mut self, base: Base, now: Duration) {
        self.resting.push_back((now + QUARANTINE, base));
    }
}

#[cfg(test)]
mod tests;
