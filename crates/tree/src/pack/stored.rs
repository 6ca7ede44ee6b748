//! Large files: a zlib stream of stored (uncompressed) deflate blocks, all of [`BLOCK`] bytes but the last.
//!
//! ```text
//! entry header | 78 01 | block … block | Adler-32
//! block: 00 (01 in the last) | length, little-endian u16 | its complement | bytes
//! ```

/// Content bytes of a full block; the most that deflate allows.
pub(crate) const BLOCK: u64 = 65_535;
/// Bytes before the content of a block.
pub(crate) const BLOCK_HEADER: u64 = 5;
/// The zlib header: deflate, 32 KiB window, fastest.
pub(crate) const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];

/// Where the parts of a stored file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Size of the file.
    pub(crate) size: u64,
    /// Where the first block starts in the pack.
    pub(crate) first: u64,
}

impl Layout {
    /// The layout of a file of `size` bytes whose object starts at `offset` with a header of `header` bytes; `None`
    /// when that does not fill `length` bytes exactly, so that a wrong size is always noticed.
    pub(crate) fn new(offset: u64, header: u64, length: u64, size: u64) -> Option<Self> {
        let layout = Self { size, first: offset.checked_add(header)?.checked_add(2)? };
        let framing = layout.blocks().checked_mul(BLOCK_HEADER)?.checked_add(header + 2 + 4)?;
        (size > 0 && size.checked_add(framing)? == length).then_some(layout)
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.size.div_ceil(BLOCK)
    }

    /// Where the last block ends and the checksum starts.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.size).saturating_add(self.blocks().saturating_mul(BLOCK_HEADER))
    }

    /// Start in the pack, and content bytes, of a block.
    pub(crate) fn block(&self, number: u64) -> Option<(u64, u64)> {
        let before = number.checked_mul(BLOCK)?;
        let length = self.size.checked_sub(before).filter(|rest| *rest > 0)?.min(BLOCK);
        Some((self.first.checked_add(number.checked_mul(BLOCK + BLOCK_HEADER)?)?, length))
    }
}

/// The header of a block of `length` content bytes.
pub(crate) fn block_header(length: u64, last: bool) -> [u8; 5] {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    let ([a, b], [c, d]) = (length.to_le_bytes(), (!length).to_le_bytes());
    [u8::from(last), a, b, c, d]
}

/// The checksum at the end of a zlib stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Adler32 {
    a: u32,
    b: u32,
}

impl Adler32 {
    pub(crate) fn new() -> Self {
        Self { a: 1, b: 0 }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        // 5552 bytes are the most after which the sums still fit 32 bits.
        for chunk in bytes.chunks(5552) {
            for byte in chunk {
                self.a += u32::from(*byte);
                self.b += self.a;
            }
            self.a %= 65_521;
            self.b %= 65_521;
        }
    }

    pub(crate) fn sum(self) -> u32 {
        (self.b << 16) | self.a
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adler_is_what_zlib_says() {
        let mut adler = Adler32::new();
        adler.update(b"Wikipedia");
        assert_eq!(adler.sum(), 0x11e6_0398);
        let mut adler = Adler32::new();
        adler.update(&vec![0xff; 1 << 20]);
        assert!(adler.a < 65_521 && adler.b < 65_521);
    }

    #[test]
    fn blocks_cover_the_file_exactly() {
        for size in [1, BLOCK - 1, BLOCK, BLOCK + 1, 10 * BLOCK, 5_000_000_000] {
            let length = 4 + 2 + size.div_ceil(BLOCK) * 5 + size + 4;
            let layout = Layout::new(12, 4, length, size).unwrap();
            let mut at = 12 + 4 + 2;
            let mut total = 0;
            for number in 0..layout.blocks() {
                let (start, bytes) = layout.block(number).unwrap();
                assert_eq!(start, at);
                at += BLOCK_HEADER + bytes;
                total += bytes;
            }
            assert_eq!((total, at + 4), (size, 12 + length));
            assert_eq!(layout.block(layout.blocks()), None);
            assert_eq!(Layout::new(12, 4, length, size + 1), None);
            assert_eq!(Layout::new(12, 4, length, u64::MAX), None);
        }
    }
}
