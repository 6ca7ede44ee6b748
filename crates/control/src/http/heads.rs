//! What the parser of requests lets pass, and whoever stands before this server might read otherwise: which bytes are a
//! head and which a body is to be the same for all that read them, or one's body is another's request.
//!
//! The parser drops the length of a body that comes in chunks, so that this is seen in the bytes themselves, beside it. It
//! closes the connection after such a request: should this and the parser ever disagree on where a head begins, no
//! request is read out of a body because of that.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Version, header};

use crate::api_error::{ApiError, ErrorKind};

/// Most of a line that is looked at: no name of those that count is longer, and no length that fits a number.
const MAX_LINE: usize = 64;
/// Most lengths of one head that are kept: with two it is refused.
const MAX_LENGTHS: usize = 2;

/// Why a head may be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguous {
    /// A length, and chunks.
    LengthAndChunks,
    /// More than one length, or none that can be read.
    Lengths,
    /// A line that ends with a line feed alone.
    BareLineFeed,
    /// More than one host, or none where there has to be one.
    Hosts,
    /// An encoding that is more than `chunked`.
    Encodings,
}

impl From<Ambiguous> for ApiError {
    fn from(ambiguous: Ambiguous) -> Self {
        let message = match ambiguous {
            Ambiguous::LengthAndChunks => "the request has a `Content-Length` and a `Transfer-Encoding`",
            Ambiguous::Lengths => "the request's `Content-Length` is not one number",
            Ambiguous::BareLineFeed => "a line of the request's head does not end with CR LF",
            Ambiguous::Hosts => "the request does not have one `Host`",
            Ambiguous::Encodings => "the request has a `Transfer-Encoding` that is not `chunked`",
        };
        let hint = "Send each header once, and either `Content-Length` or `Transfer-Encoding: chunked`.";
        Self::new(ErrorKind::Invalid, "ambiguous_request", message, hint)
    }
}

/// What can still be seen once a head was parsed.
pub(super) fn in_headers(version: Version, headers: &HeaderMap) -> Option<Ambiguous> {
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let plain = encodings.next().is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !plain || encodings.next().is_some() {
        return Some(Ambiguous::Encodings);
    }
    let hosts = headers.get_all(header::HOST).iter().count();
    // Other versions say it elsewhere, or not at all.
    (hosts > 1 || (hosts == 0 && version == Version::HTTP_11)).then_some(Ambiguous::Hosts)
}

/// The heads of one connection, as their bytes go by.
#[derive(Debug, Clone, Default)]
pub(super) struct Heads(Arc<Mutex<Scan>>);

impl Heads {
    /// Takes note of bytes, in the order in which the parser has them.
    pub(super) fn saw(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saw(bytes);
    }

    /// Whether there is anything left to look at: after a body in chunks, or a head that is refused, no other one comes.
    pub(super) fn are_over(&self) -> bool {
        matches!(self.0.lock().unwrap_or_else(PoisonError::into_inner).at, At::Over)
    }

    /// What is ambiguous about the next request that the parser gives out, and whether it has to be the last.
    pub(super) fn next(&self) -> (Option<Ambiguous>, bool) {
        let mut scan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        scan.given += 1;
        let is_last = matches!(scan.at, At::Over) && scan.given >= scan.heads;
        (scan.found.filter(|_| is_last), is_last)
    }
}

#[derive(Debug, Default)]
struct Scan {
    at: At,
    /// Heads that were seen to their end, and requests that were given out.
    heads: u64,
    given: u64,
    found: Option<Ambiguous>,
}

#[derive(Debug)]
enum At {
    Head(Head),
    /// So many bytes of a body are still to come.
    Body(u64),
    /// Where the next head begins is not looked for.
    Over,
}

impl Default for At {
    fn default() -> Self {
        Self::Head(Head::default())
    }
}

/// The head that is coming.
#[derive(Debug, Default)]
struct Head {
    /// The line so far, as much of it as is looked at.
    line: Vec<u8>,
    /// The byte before, and whether the line has any but its end.
    last: u8,
    filled: bool,
    /// Whether the request line is over.
    begun: bool,
    lengths: Vec<Option<u64>>,
    in_chunks: bool,
    bare: bool,
}

impl Scan {
    fn saw(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            match &mut self.at {
                At::Over => return,
                At::Body(left) => {
                    let passed = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= passed as u64;
                    bytes = bytes.get(passed..).unwrap_or_default();
                    if *left == 0 {
                        self.at = At::default();
                    }
                }
                At::Head(head) => {
                    bytes = rest;
                    if head.takes(*first) {
                        self.heads += 1;
                        self.found = head.ambiguous();
                        let length = head.lengths.first().copied().flatten().unwrap_or(0);
                        let goes_on = self.found.is_none() && !head.in_chunks;
                        self.at = match length {
                            _ if !goes_on => At::Over,
                            0 => At::default(),
                            length => At::Body(length),
                        };
                    }
                }
            }
        }
    }
}

impl Head {
    /// Takes a byte; whether it was the last of the head.
    fn takes(&mut self, byte: u8) -> bool {
        let before = std::mem::replace(&mut self.last, byte);
        if byte != b'\n' {
            if byte != b'\r' {
                self.filled = true;
            }
            if self.line.len() < MAX_LINE {
                self.line.push(byte);
            }
            return false;
        }
        let ends = !self.filled && self.begun;
        // Empty lines before a request are none of it.
        if self.filled || self.begun {
            self.bare |= before != b'\r';
        }
        if self.filled && self.begun {
            self.field();
        }
        self.begun |= self.filled;
        self.filled = false;
        self.line.clear();
        ends
    }

    fn field(&mut self) {
        let Some(colon) = self.line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = self.line.split_at(colon);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.in_chunks = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            // The rest of a line that is longer than what is looked at would count, too.
            let whole = self.line.len() < MAX_LINE;
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            let digits = Some(value).filter(|value| whole && value.iter().all(u8::is_ascii_digit));
            if self.lengths.len() < MAX_LENGTHS {
                self.lengths.push(digits.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()));
            }
        }
    }

    fn ambiguous(&self) -> Option<Ambiguous> {
        match self.lengths.len() {
            _ if self.bare => Some(Ambiguous::BareLineFeed),
            1.. if self.in_chunks => Some(Ambiguous::LengthAndChunks),
            2.. => Some(Ambiguous::Lengths),
            // One that is not read here is none of which it is known where its body ends.
            _ if self.lengths.contains(&None) => Some(Ambiguous::Lengths),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in each head of a connection.
    fn heads(bytes: &[u8], piece: usize) -> Vec<Option<Ambiguous>> {
        let heads = Heads::default();
        bytes.chunks(piece).for_each(|piece| heads.saw(piece));
        let count = heads.0.lock().unwrap().heads;
        (0..count).map(|_| heads.next().0).collect()
    }

    #[test]
    fn n18_each_head_is_found_however_its_bytes_come() {
        let post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nGET /\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let smuggled = format!(
            "{post}\r\nPOST / HTTP/1.1\r\nContent-length:5\r\nTRANSFER-ENCODING: chunked\r\n\r\n0\r\n\r\n{post}"
        );
        let long =
            format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n{post}", "content-length: 5\n".repeat(10).replace('\n', " "));
        for (bytes, expected) in [
            (post.to_owned(), vec![None, None]),
            (smuggled, vec![None, None, Some(Ambiguous::LengthAndChunks)]),
            (
                "GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\nx".to_owned(),
                vec![Some(Ambiguous::Lengths)],
            ),
            ("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n".to_owned(), vec![Some(Ambiguous::Lengths)]),
            ("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n".to_owned(), vec![Some(Ambiguous::Lengths)]),
            (format!("GET / HTTP/1.1\r\nContent-Length:{}9\r\n\r\n", "0".repeat(60)), vec![Some(Ambiguous::Lengths)]),
            ("GET / HTTP/1.1\nHost: x\r\n\r\n".to_owned(), vec![Some(Ambiguous::BareLineFeed)]),
            ("GET / HTTP/1.1\r\nHost: x\r\n\n".to_owned(), vec![Some(Ambiguous::BareLineFeed)]),
            ("GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), vec![None]),
            (long, vec![None, None, None]),
        ] {
            for piece in [1, 7, bytes.len()] {
                assert_eq!(heads(bytes.as_bytes(), piece), expected, "{bytes:?} by {piece}");
            }
        }
    }

    #[test]
    fn n18_a_head_without_end_is_kept_in_little_memory() {
        let mut scan = Scan::default();
        scan.saw(b"PUT / HTTP/1.1\r\n");
        (0..10_000).for_each(|_| scan.saw(b"content-length:1\n"));
        let At::Head(head) = scan.at else { panic!("{:?}", scan.at) };
        assert!(head.lengths.capacity() <= 4 && head.line.capacity() <= 2 * MAX_LINE);
        assert_eq!(head.ambiguous(), Some(Ambiguous::BareLineFeed));
    }

    #[test]
    fn n18_one_host_and_one_encoding() {
        let found = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, http::HeaderValue::from_static(value));
            }
            in_headers(Version::HTTP_2, &headers)
        };
        assert_eq!(in_headers(Version::HTTP_11, &HeaderMap::new()), Some(Ambiguous::Hosts));
        assert_eq!(found(&[("host", "x")]), None);
        assert_eq!(found(&[("host", "x"), ("host", "x")]), Some(Ambiguous::Hosts));
        assert_eq!(found(&[("transfer-encoding", "Chunked")]), None);
        for encoding in ["identity, chunked", "chunked, chunked", "chunked;q=1", "x"] {
            assert_eq!(found(&[("transfer-encoding", encoding)]), Some(Ambiguous::Encodings), "{encoding}");
        }
        let twice = [("transfer-encoding", "identity"), ("transfer-encoding", "chunked")];
        assert_eq!(found(&twice), Some(Ambiguous::Encodings));
    }
}
