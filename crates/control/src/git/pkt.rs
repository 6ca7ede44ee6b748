//! Pkt-lines: four hex digits of length, then that many bytes, the digits among them.

use std::io::{self, Read};

/// Longest line, its length included.
const MAX_LINE: usize = 65_520;
/// Longest piece of one side-band line.
const MAX_BAND: usize = 65_515;
/// The side band of what ends an exchange.
pub(crate) const FATAL_BAND: u8 = 3;

/// One line of the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pkt {
    /// Bytes.
    Data(Vec<u8>),
    /// `0000`
    Flush,
    /// `0001`
    Delim,
    /// `0002`
    End,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PktError {
    /// No hex digits, or a length that no line has.
    #[error("a line has no such length")]
    Length,
    /// More than one request may have.
    #[error("the request has too many lines")]
    TooMany,
    /// It broke off.
    #[error("the request broke off")]
    Read(#[source] io::Error),
}

/// Reads lines, of at most so many bytes together.
#[derive(Debug)]
pub(crate) struct PktReader<R> {
    source: R,
    left: usize,
}

impl<R: Read> PktReader<R> {
    pub(crate) fn new(source: R, most: usize) -> Self {
        Self { source, left: most }
    }

    /// The next line; `None` where the input ends between two.
    pub(crate) fn next(&mut self) -> Result<Option<Pkt>, PktError> {
        let mut digits = [0; 4];
        let mut filled = 0;
        while let Some(rest) = digits.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.source.read(rest) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(PktError::Read(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(PktError::Read(error)),
            }
        }
        let length = length(&digits).ok_or(PktError::Length)?;
        self.left = self.left.checked_sub(length.max(4)).ok_or(PktError::TooMany)?;
        match length {
            0 => Ok(Some(Pkt::Flush)),
            1 => Ok(Some(Pkt::Delim)),
            2 => Ok(Some(Pkt::End)),
            3 => Err(PktError::Length),
            length => {
                let mut bytes = vec![0; length - 4];
                self.source.read_exact(&mut bytes).map_err(PktError::Read)?;
                Ok(Some(Pkt::Data(bytes)))
            }
        }
    }

    /// What follows the lines.
    pub(crate) fn into_source(self) -> R {
        self.source
    }
}

/// Where a stream of lines has got to, so that one more can be put behind it.
#[derive(Debug, Default)]
pub(crate) struct PktTrack {
    /// Of a length that has not all been there.
    digits: Vec<u8>,
    /// Bytes of the line that are still to come.
    left: usize,
    /// Whether any of its bytes was there.
    begun: bool,
    /// Whether something was no line.
    raw: bool,
}

impl PktTrack {
    /// Takes note of what was sent.
    pub(crate) fn saw(&mut self, mut bytes: &[u8]) {
        while !self.raw
            && let Some((first, more)) = bytes.split_first()
        {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                (self.left, self.begun) = (self.left - taken, true);
                bytes = bytes.get(taken..).unwrap_or_default();
                continue;
            }
            self.digits.push(*first);
            bytes = more;
            if self.digits.len() == 4 {
                match length(&self.digits) {
                    Some(length) => (self.left, self.begun) = (length.saturating_sub(4), false),
                    None => self.raw = true,
                }
                self.digits.clear();
            }
        }
    }

    /// What makes a whole line of one that was begun; `None` where what was sent is no lines.
    pub(crate) fn rest(&self) -> Option<Vec<u8>> {
        if self.raw {
            return None;
        }
        let (mut out, mut left, mut begun) = (Vec::new(), self.left, self.begun);
        if !self.digits.is_empty() {
            // Any length will do that begins so.
            let end: &[u8] = if self.digits == b"fff" { b"0" } else { b"0004".get(self.digits.len()..)? };
            (left, begun) = (length(&[&self.digits, end].concat())?.saturating_sub(4), false);
            out.extend_from_slice(end);
        }
        let filled = out.len() + left;
        if left > 0 && !begun {
            // A side band, in case it is one of those: content that git will not take for whole.
            out.push(1);
        }
        out.resize(filled, 0);
        Some(out)
    }
}

fn length(digits: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    usize::from_str_radix(text, 16).ok().filter(|length| *length <= MAX_LINE)
}

/// Appends one line.
pub(crate) fn line(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() + 4 <= MAX_LINE, "lines of ours are short");
    out.extend_from_slice(format!("{:04x}", bytes.len() + 4).as_bytes());
    out.extend_from_slice(bytes);
}

/// Appends `0000`.
pub(crate) fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

/// Appends bytes on one side band, in as many lines as it takes.
pub(crate) fn band(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    for piece in bytes.chunks(MAX_BAND) {
        out.extend_from_slice(format!("{:04x}", piece.len() + 5).as_bytes());
        out.push(number);
        out.extend_from_slice(piece);
    }
}

/// An answer that git shows as `remote error: …`.
pub(crate) fn error(message: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let short: String = message.chars().filter(|c| !c.is_control()).take(1000).collect();
    line(&mut out, format!("ERR {short}\n").as_bytes());
    out
}

/// The line without its end.
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let mut wire = Vec::new();
        line(&mut wire, b"want\n");
        flush(&mut wire);
        wire.extend_from_slice(b"00010002");
        wire.extend_from_slice(b"PACK");
        let mut reader = PktReader::new(&*wire, 1000);
        assert_eq!(reader.next().unwrap(), Some(Pkt::Data(b"want\n".to_vec())));
        for expected in [Pkt::Flush, Pkt::Delim, Pkt::End] {
            assert_eq!(reader.next().unwrap(), Some(expected));
        }
        assert_eq!(reader.into_source(), b"PACK");
    }

    #[test]
    fn what_is_no_line_takes_no_last_word() {
        let mut track = PktTrack::default();
        track.saw(b"0008NAK\nPACK....");
        assert_eq!(track.rest(), None);
        for digits in 1..4 {
            let mut track = PktTrack::default();
            track.saw(&b"fff0"[..digits]);
            assert!(length(&[&b"fff0"[..digits], &track.rest().unwrap()[..4 - digits]].concat()).is_some());
        }
    }

    #[test]
    fn huge_and_broken_lines_are_refused_before_their_bytes_come() {
        for bad in ["fff1", "ffff", "0003", "+00a", " 00a", "zzzz", "00", "0005", "001"] {
            assert!(PktReader::new(bad.as_bytes(), 1 << 20).next().is_err(), "{bad}");
        }
        let many = b"0000".repeat(100);
        let mut reader = PktReader::new(&*many, 40);
        let read = (0..100).take_while(|_| reader.next().is_ok()).count();
        assert_eq!(read, 10);
        assert_eq!(PktReader::new(&b""[..], 10).next().unwrap(), None);
    }

    proptest! {
        #[test]
        fn wherever_lines_break_off_another_can_follow(
            lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..5),
            at in any::<proptest::sample::Index>(),
            piece in 1_usize..40,
        ) {
            let mut wire = Vec::new();
            lines.iter().for_each(|bytes| line(&mut wire, bytes));
            wire.truncate(at.index(wire.len() + 1));
            let mut track = PktTrack::default();
            wire.chunks(piece).for_each(|piece| track.saw(piece));
            wire.extend(track.rest().unwrap());
            band(&mut wire, FATAL_BAND, b"why");
            let (mut reader, mut last) = (PktReader::new(&*wire, 1 << 20), None);
            while let Some(next) = reader.next().unwrap() {
                last = Some(next);
            }
            prop_assert_eq!(last, Some(Pkt::Data(b"\x03why".to_vec())));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = PktReader::new(&*bytes, 150);
            while let Ok(Some(_)) = reader.next() {}
        }
    }
}
