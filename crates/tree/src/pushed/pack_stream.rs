//! A pack as it comes: entry by entry, never more than a buffer of it in memory.

use std::io::{self, BufRead, Read};

use super::PushLimits;
use crate::error::TreeError;
use crate::object::Kind;
use crate::pack::{MAX_ENTRY_HEADER, decode_entry_header};

const BUFFER: usize = 64 << 10;
/// Compressed bytes may be a little more than the content: what deflate adds to content that does not shrink.
const FRAMING: u64 = 64 << 20;

/// A pack being read.
pub(super) struct PackStream<'a> {
    source: Source<'a>,
    left: u32,
    bytes: u64,
    most_bytes: u64,
    object: Option<Box<Inflater>>,
}

/// What inflates the object at hand.
type Inflater = flate2::Decompress;

/// The bytes of the pack, hashed as they are taken.
struct Source<'a> {
    inner: &'a mut dyn Read,
    buffer: Vec<u8>,
    at: usize,
    hasher: gix_hash::Hasher,
    /// Bytes that may still come.
    left: u64,
    too_large: bool,
    fault: Option<&'static str>,
}

impl<'a> PackStream<'a> {
    pub(super) fn open(pack: &'a mut dyn Read, limits: &PushLimits) -> Result<Self, TreeError> {
        let mut source = Source {
            inner: pack,
            buffer: Vec::new(),
            at: 0,
            hasher: gix_hash::hasher(gix_hash::Kind::Sha1),
            left: limits.total_bytes.saturating_add(FRAMING),
            too_large: false,
            fault: None,
        };
        let mut header = [0; 12];
        source.read_exact(&mut header).map_err(|error| source.error(error, limits.total_bytes))?;
        let (magic, count) = header.split_at(8);
        let count = count.first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four));
        if magic != b"PACK\0\0\0\x02" {
            return Err(refused("it is not a pack of version 2"));
        }
        if count > limits.objects {
            return Err(TreeError::refused("the push", format!("it brings more than {} objects", limits.objects)));
        }
        Ok(Self { source, left: count, bytes: 0, most_bytes: limits.total_bytes, object: None })
    }

    /// Kind and size of the next object; `None` after the last.
    pub(super) fn next_header(&mut self) -> Result<Option<(Kind, u64)>, TreeError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let mut header = Vec::new();
        loop {
            let byte = self.byte()?;
            header.push(byte);
            if byte & 0x80 == 0 {
                break;
            }
            if header.len() as u64 >= MAX_ENTRY_HEADER {
                return Err(refused("an object's size is out of range"));
            }
        }
        let (kind, size, _) = decode_entry_header(&header).map_err(refused)?;
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.most_bytes {
            return Err(TreeError::TooLarge { what: "the push", limit: self.most_bytes });
        }
        self.object = Some(Box::new(flate2::Decompress::new(true)));
        Ok(Some((kind, size)))
    }

    /// The content of the object at hand: `size` bytes, or an error of reading.
    pub(super) fn content(&mut self, size: u64) -> impl Read + '_ {
        Content { stream: self }.take(size)
    }

    /// The content of a small object.
    pub(super) fn whole(&mut self, size: u64) -> Result<Vec<u8>, TreeError> {
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(1 << 20)).unwrap_or(0));
        let read = self.content(size).read_to_end(&mut bytes);
        read.map_err(|error| self.source.error(error, self.most_bytes))?;
        if bytes.len() as u64 == size { Ok(bytes) } else { Err(refused("an object is shorter than its header says")) }
    }

    /// That the object at hand has no byte more, and its checksum holds.
    pub(super) fn end_of_object(&mut self) -> Result<(), TreeError> {
        let mut more = [0; 1];
        let read = Content { stream: self }.read(&mut more);
        self.object = None;
        match read {
            Ok(0) => Ok(()),
            Ok(_) => Err(refused("an object is longer than its header says")),
            Err(error) => Err(self.source.error(error, self.most_bytes)),
        }
    }

    /// Why reading the content failed, where the pack itself is at fault.
    pub(super) fn fault(&mut self) -> Option<TreeError> {
        if self.source.too_large {
            return Some(TreeError::TooLarge { what: "the push", limit: self.most_bytes });
        }
        self.source.fault.take().map(refused)
    }

    /// That the checksum of the whole pack holds, and nothing follows it.
    pub(super) fn finish(mut self) -> Result<(), TreeError> {
        let hasher = std::mem::replace(&mut self.source.hasher, gix_hash::hasher(gix_hash::Kind::Sha1));
        let made = hasher.try_finalize().map_err(|_attack| TreeError::Collision)?;
        let mut told = [0; 20];
        self.source.read_exact(&mut told).map_err(|error| self.source.error(error, self.most_bytes))?;
        if made.as_slice() != told {
            return Err(refused("it does not match its checksum"));
        }
        let rest = self.source.fill_buf().map_err(|source| TreeError::Input { source })?;
        if rest.is_empty() { Ok(()) } else { Err(refused("something follows its end")) }
    }

    fn byte(&mut self) -> Result<u8, TreeError> {
        let mut byte = [0; 1];
        self.source.read_exact(&mut byte).map_err(|error| self.source.error(error, self.most_bytes))?;
        Ok(byte.first().copied().unwrap_or_default())
    }
}

/// The inflated bytes of one object.
struct Content<'s, 'a> {
    stream: &'s mut PackStream<'a>,
}

impl Read for Content<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let PackStream { source, object: Some(inflater), .. } = &mut *self.stream else {
            return Ok(0);
        };
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let input = source.fill_buf()?;
            let ended = input.is_empty();
            let (before_in, before_out) = (inflater.total_in(), inflater.total_out());
            let status = inflater.decompress(input, out, flate2::FlushDecompress::None);
            let used = usize::try_from(inflater.total_in() - before_in).unwrap_or(usize::MAX);
            let made = usize::try_from(inflater.total_out() - before_out).unwrap_or(usize::MAX);
            source.consume(used);
            match status {
                Err(_cause) => return Err(source.broken("an object does not inflate")),
                Ok(flate2::Status::StreamEnd) => {
                    self.stream.object = None;
                    return Ok(made);
                }
                Ok(_) if made > 0 => return Ok(made),
                Ok(_) if ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if used == 0 => return Err(source.broken("an object does not inflate")),
                Ok(_) => {}
            }
        }
    }
}

impl Source<'_> {
    fn broken(&mut self, fault: &'static str) -> io::Error {
        self.fault = Some(fault);
        io::ErrorKind::InvalidData.into()
    }

    fn error(&mut self, error: io::Error, limit: u64) -> TreeError {
        if self.too_large {
            return TreeError::TooLarge { what: "the push", limit };
        }
        match self.fault.take() {
            Some(fault) => refused(fault),
            None => TreeError::Input { source: error },
        }
    }
}

impl BufRead for Source<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.buffer.len() {
            self.at = 0;
            self.buffer.resize(BUFFER, 0);
            let read = loop {
                match self.inner.read(&mut self.buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            let read = read? as u64;
            match self.left.checked_sub(read) {
                Some(left) => self.left = left,
                None => {
                    self.too_large = true;
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
            }
        }
        Ok(self.buffer.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        let end = self.at.saturating_add(amount).min(self.buffer.len());
        self.hasher.update(self.buffer.get(self.at..end).unwrap_or_default());
        self.at = end;
    }
}

impl Read for Source<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(out.len());
        if let (Some(to), Some(from)) = (out.get_mut(..count), available.get(..count)) {
            to.copy_from_slice(from);
        }
        self.consume(count);
        Ok(count)
    }
}

fn refused(rule: &'static str) -> TreeError {
    TreeError::refused("the pack", rule)
}
