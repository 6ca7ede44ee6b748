//! The 512 bytes before each member of a tar.

/// Bytes of a header, and what content is padded to.
pub(super) const BLOCK: u64 = 512;

/// The kinds that a header can name, as far as we know them.
pub(super) mod flag {
    pub(in super::super) const FILE: u8 = b'0';
    pub(in super::super) const OLD_FILE: u8 = 0;
    pub(in super::super) const HARD_LINK: u8 = b'1';
    pub(in super::super) const LINK: u8 = b'2';
    pub(in super::super) const CHARACTER: u8 = b'3';
    pub(in super::super) const BLOCK: u8 = b'4';
    pub(in super::super) const FOLDER: u8 = b'5';
    pub(in super::super) const FIFO: u8 = b'6';
    pub(in super::super) const LONG_NAME: u8 = b'L';
    pub(in super::super) const LONG_LINK: u8 = b'K';
    pub(in super::super) const PAX: u8 = b'x';
    pub(in super::super) const PAX_GLOBAL: u8 = b'g';
}

/// A header's bytes.
#[derive(Debug, Clone)]
pub(super) struct Header(pub(super) [u8; 512]);

impl Header {
    /// A header of GNU's kind. Names longer than their field go into members of their own before it.
    pub(super) fn new(name: &[u8], flag: u8, mode: u64, size: u64, mtime: u64, link: &[u8]) -> Self {
        let mut header = Self([0; 512]);
        header.put(0, name.get(..100).unwrap_or(name));
        header.number(100, 8, mode);
        header.number(108, 8, 0);
        header.number(116, 8, 0);
        header.number(124, 12, size);
        header.number(136, 12, mtime);
        header.put(156, &[flag]);
        header.put(157, link.get(..100).unwrap_or(link));
        header.put(257, b"ustar  \0");
        let sum = header.sum();
        header.put(148, format!("{sum:06o}\0 ").as_bytes());
        header
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (to, from) in self.0.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }

    /// Octal where it fits, else GNU's base 256.
    fn number(&mut self, at: usize, width: usize, value: u64) {
        let octal = format!("{value:0digits$o}\0", digits = width - 1);
        if octal.len() == width {
            self.put(at, octal.as_bytes());
        } else {
            self.put(at, &[0x80]);
            self.put(at + width - 8, &value.to_be_bytes());
        }
    }

    pub(super) fn field(&self, at: usize, width: usize) -> &[u8] {
        self.0.get(at..at + width).unwrap_or_default()
    }

    /// A field's text, which ends at the first NUL.
    pub(super) fn text(&self, at: usize, width: usize) -> &[u8] {
        self.field(at, width).split(|byte| *byte == 0).next().unwrap_or_default()
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// The sum of all bytes, with spaces where the sum itself is.
    pub(super) fn sum(&self) -> u64 {
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        let own: u64 = self.field(148, 8).iter().map(|byte| u64::from(*byte)).sum();
        sum - own + 8 * 32
    }
}

/// A numeric field: octal digits between spaces, ended by NULs or spaces, or base 256. `None` for all else, what is
/// negative included.
pub(super) fn decode_number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first == 0x80 {
        let (high, low) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
        let low = low.first_chunk::<8>()?;
        return high.iter().all(|byte| *byte == 0).then(|| u64::from_be_bytes(*low));
    }
    let start = field.iter().position(|byte| *byte != b' ').unwrap_or(field.len());
    let digits = field.get(start..)?;
    let end = digits.iter().position(|byte| !(b'0'..=b'7').contains(byte)).unwrap_or(digits.len());
    let (digits, tail) = digits.split_at_checked(end)?;
    if !tail.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| value.checked_mul(8)?.checked_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64) {
            let header = Header::new(b"x", flag::FILE, 0o644, value, 7, b"");
            prop_assert_eq!(decode_number(header.field(124, 12)), Some(value));
            prop_assert_eq!(decode_number(header.field(148, 8)), Some(header.sum()));
        }
    }

    #[test]
    fn odd_numbers_are_none() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"    644 ", Some(0o644)),
            (b"        ", Some(0)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"\x80\0\0\0\0\0\0\0\0\0\x01\x02", Some(258)),
            (b"\x80\0\0\x01\0\0\0\0\0\0\x01\x02", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"-0000001\0", None),
            (b"00008\0\0\0", None),
            (b"12\0 3\0\0\0", None),
            (b"0x10\0\0\0\0", None),
        ] {
            assert_eq!(decode_number(field), expected, "{field:?}");
        }
    }
}
