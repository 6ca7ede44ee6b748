//! How much of an archive there may be, before and after it is unpacked.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What may be unpacked whatever the archive's size.
pub(super) const FREE: u64 = 64 << 20;
/// How many times its size an archive may unpack to, beyond that.
pub(super) const MAX_RATIO: u64 = 250;

/// Something unpacks to too many times its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it unpacks to more than {MAX_RATIO} times its size")]
pub(super) struct Bomb;

/// Whether so much may come of so little.
pub(super) fn is_bomb(packed: u64, unpacked: u64) -> bool {
    unpacked > FREE && unpacked > packed.saturating_mul(MAX_RATIO)
}

/// Counts what is read through it.
#[derive(Debug)]
pub(super) struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R> Counted<R> {
    pub(super) fn new(inner: R) -> (Self, Arc<AtomicU64>) {
        let count = Arc::new(AtomicU64::new(0));
        (Self { inner, count: Arc::clone(&count) }, count)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Ends what unpacks to too much.
#[derive(Debug)]
pub(super) struct Guarded<R> {
    inner: R,
    packed: Arc<AtomicU64>,
    unpacked: u64,
}

impl<R> Guarded<R> {
    pub(super) fn new(inner: R, packed: Arc<AtomicU64>) -> Self {
        Self { inner, packed, unpacked: 0 }
    }
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.unpacked += count as u64;
        if is_bomb(self.packed.load(Ordering::Relaxed), self.unpacked) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, Bomb));
        }
        Ok(count)
    }
}

/// Whether the first bytes say gzip. Nothing is taken.
pub(super) fn is_gzip(input: &mut impl BufRead) -> io::Result<bool> {
    Ok(input.fill_buf()?.starts_with(&[0x1f, 0x8b]))
}
