//! Finds what is shaped like a credential in bytes that enter: by rule and position, never by content.
//!
//! A first search finds where a rule's literal beginning is, a second looks at a bounded window there, so that the cost
//! per byte is bounded and memory is flat whatever comes. What is found is no proof, and what is not found is no
//! promise: policy decides what to do about it.

pub mod rules;

use std::collections::BTreeMap;
use std::io::{self, Read};

use rules::{RULES, triggers};

/// Bytes of one file or text that are looked at; what lies beyond is not.
pub const MAX_SCANNED: u64 = 64 * 1024 * 1024;
/// Bytes that are collected before they are looked at together.
const PIECE: usize = 64 * 1024;

/// Something that is shaped like a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// Where the first match begins, in bytes.
    pub offset: u64,
}

/// Looks at a stream of bytes, in pieces of any size.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Bytes that wait.
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    offset: u64,
    /// The byte before the buffer.
    before: Option<u8>,
    /// Bytes that were taken.
    taken: u64,
    found: BTreeMap<&'static str, u64>,
}

impl Scanner {
    /// Takes the next piece.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = MAX_SCANNED.saturating_sub(self.taken);
        let wanted = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.taken += bytes.len() as u64;
        for piece in bytes.get(..wanted).unwrap_or_default().chunks(PIECE) {
            self.buffer.extend_from_slice(piece);
            if self.buffer.len() >= PIECE + rules::MAX_WINDOW {
                self.look(false);
            }
        }
    }

    /// Whether more came than is looked at.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.taken > MAX_SCANNED
    }

    /// What was found, one for each rule, in the order of the rules' names.
    #[must_use]
    pub fn finish(mut self) -> Vec<Finding> {
        self.look(true);
        self.found.into_iter().map(|(rule, offset)| Finding { rule, offset }).collect()
    }

    /// Looks at what has come, and keeps what could be the beginning of more.
    fn look(&mut self, is_end: bool) {
        let mut at = 0;
        let mut keep = self.buffer.len().saturating_sub(rules::MAX_TRIGGER - 1);
        while let Some(hit) = triggers().find_at(&self.buffer, at) {
            let start = hit.start();
            if !is_end && self.buffer.len() - start < rules::MAX_WINDOW {
                keep = keep.min(start);
                break;
            }
            self.judge(start, hit.as_bytes().len());
            at = start + 1;
        }
        self.before = keep.checked_sub(1).and_then(|last| self.buffer.get(last).copied()).or(self.before);
        self.offset += keep as u64;
        self.buffer.drain(..keep);
    }

    /// Asks each rule that begins so.
    fn judge(&mut self, start: usize, length: usize) {
        let before = start.checked_sub(1).map_or(self.before, |last| self.buffer.get(last).copied());
        let Some(rest) = self.buffer.get(start..) else { return };
        let trigger = rest.get(..length).unwrap_or_default();
        for rule in RULES.iter().filter(|rule| rule.begins_with(trigger)) {
            if !self.found.contains_key(rule.name) && rule.matches(before, rest) {
                self.found.insert(rule.name, self.offset + start as u64);
            }
        }
    }
}

/// What is shaped like a credential in `bytes`.
#[must_use]
pub fn scan(bytes: &[u8]) -> Vec<Finding> {
    let mut scanner = Scanner::default();
    scanner.push(bytes);
    scanner.finish()
}

/// Hands bytes through and looks at them.
#[derive(Debug)]
pub struct ScanReader<R> {
    inner: R,
    scanner: Scanner,
}

impl<R: Read> ScanReader<R> {
    /// Looks at what is read from `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, scanner: Scanner::default() }
    }

    /// What was found in what was read.
    pub fn finish(self) -> Vec<Finding> {
        self.scanner.finish()
    }
}

impl<R: Read> Read for ScanReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.scanner.push(buf.get(..count).unwrap_or_default());
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
