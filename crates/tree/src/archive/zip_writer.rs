//! Writes a zip: the same members give the same bytes. Files are deflated as they pass, their checksums and sizes behind
//! them; the directory waits in a scratch file.

use std::io::{self, Read, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use super::dos_time;
use crate::blob_store::Scratch;
use crate::error::TreeError;

/// From this size on, a member's sizes have 64 bits: deflate can make a little more of what it cannot compress.
const WIDE: u64 = 0xff00_0000;
const FULL: u32 = 0xffff_ffff;
/// Sizes behind the content, as the flag says.
const LATER: u16 = 1 << 3;
const UTF8: u16 = 1 << 11;

/// A zip in the making.
pub(super) struct ZipWriter<'a> {
    out: Tally<'a>,
    directory: Scratch,
    members: u64,
    time: (u16, u16),
}

/// What one member is.
struct Record<'n> {
    name: &'n [u8],
    mode: u32,
    flags: u16,
    deflated: bool,
    wide: bool,
    crc: u32,
    packed: u64,
    size: u64,
    offset: u64,
}

/// Counts what is written.
struct Tally<'a> {
    inner: &'a mut dyn Write,
    count: u64,
}

impl Write for Tally<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn output(source: io::Error) -> TreeError {
    TreeError::Output { source }
}

fn narrow(value: u64) -> [u8; 4] {
    u32::try_from(value).unwrap_or(FULL).to_le_bytes()
}

impl<'a> ZipWriter<'a> {
    /// Begins a zip whose members are of that time, in seconds since 1970.
    pub(super) fn new(out: &'a mut dyn Write, directory: Scratch, seconds: u64) -> Self {
        Self { out: Tally { inner: out, count: 0 }, directory, members: 0, time: dos_time::words(seconds) }
    }

    pub(super) fn folder(&mut self, path: &[u8]) -> Result<(), TreeError> {
        let mut name = path.to_vec();
        name.push(b'/');
        self.stored(&name, 0o040_755, &[])
    }

    pub(super) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), TreeError> {
        self.stored(path, 0o120_777, target)
    }

    pub(super) fn file(
        &mut self,
        path: &[u8],
        executable: bool,
        size: u64,
        content: &mut dyn Read,
    ) -> Result<(), TreeError> {
        let mode = if executable { 0o100_755 } else { 0o100_644 };
        let mut record = self.record(path, mode, LATER);
        (record.deflated, record.wide) = (true, size >= WIDE);
        self.header(&record)?;
        let before = self.out.count;
        let mut encoder = DeflateEncoder::new(&mut self.out, Compression::fast());
        let mut crc = Crc::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            let count = content.read(&mut piece).map_err(|damage| TreeError::corrupt("a file", damage))?;
            if count == 0 {
                break;
            }
            let read = piece.get(..count).unwrap_or_default();
            crc.update(read);
            record.size += count as u64;
            encoder.write_all(read).map_err(output)?;
        }
        encoder.finish().map_err(output)?;
        (record.crc, record.packed) = (crc.sum(), self.out.count - before);
        let mut behind = b"PK\x07\x08".to_vec();
        behind.extend_from_slice(&record.crc.to_le_bytes());
        for value in [record.packed, record.size] {
            if record.wide {
                behind.extend_from_slice(&value.to_le_bytes());
            } else {
                behind.extend_from_slice(&narrow(value));
            }
        }
        self.out.write_all(&behind).map_err(output)?;
        self.list(&record)
    }

    fn stored(&mut self, name: &[u8], mode: u32, content: &[u8]) -> Result<(), TreeError> {
        let mut crc = Crc::new();
        crc.update(content);
        let mut record = self.record(name, mode, 0);
        (record.crc, record.packed, record.size) = (crc.sum(), content.len() as u64, content.len() as u64);
        self.header(&record)?;
        self.out.write_all(content).map_err(output)?;
        self.list(&record)
    }

    fn record<'n>(&self, name: &'n [u8], mode: u32, flags: u16) -> Record<'n> {
        let text = if std::str::from_utf8(name).is_ok() { UTF8 } else { 0 };
        let offset = self.out.count;
        let flags = flags | text;
        Record { name, mode, flags, deflated: false, wide: false, crc: 0, packed: 0, size: 0, offset }
    }

    /// What both headers have: version, flags, method, time, checksum, sizes, length of the name.
    fn common(&self, record: &Record<'_>, unsaid: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        let full = record.wide || record.offset >= u64::from(FULL);
        let version: u16 = if full { 45 } else { 20 };
        let method: u16 = if record.deflated { 8 } else { 0 };
        for two in [version, record.flags, method, self.time.0, self.time.1] {
            bytes.extend_from_slice(&two.to_le_bytes());
        }
        bytes.extend_from_slice(&if unsaid { 0 } else { record.crc }.to_le_bytes());
        for value in [record.packed, record.size] {
            bytes.extend_from_slice(&if record.wide { FULL.to_le_bytes() } else { narrow(value) });
        }
        bytes.extend_from_slice(&u16::try_from(record.name.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes
    }

    fn header(&mut self, record: &Record<'_>) -> Result<(), TreeError> {
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.extend(self.common(record, record.flags & LATER != 0));
        let extra = if record.wide { wide_extra(&[0, 0]) } else { Vec::new() };
        bytes.extend_from_slice(&u16::try_from(extra.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(record.name);
        bytes.extend(extra);
        self.out.write_all(&bytes).map_err(output)
    }

    fn list(&mut self, record: &Record<'_>) -> Result<(), TreeError> {
        const UNIX: u16 = 3 << 8 | 45;
        let mut wide = Vec::new();
        if record.wide {
            wide.extend([record.size, record.packed]);
        }
        if record.offset >= u64::from(FULL) {
            wide.push(record.offset);
        }
        let extra = if wide.is_empty() { Vec::new() } else { wide_extra(&wide) };
        let mut bytes = b"PK\x01\x02".to_vec();
        bytes.extend_from_slice(&UNIX.to_le_bytes());
        bytes.extend(self.common(record, false));
        bytes.extend_from_slice(&u16::try_from(extra.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&(record.mode << 16).to_le_bytes());
        bytes.extend_from_slice(&narrow(record.offset));
        bytes.extend_from_slice(record.name);
        bytes.extend(extra);
        self.members += 1;
        self.directory.append(&bytes)
    }

    /// Writes the directory and the end.
    pub(super) fn finish(self) -> Result<(), TreeError> {
        let Self { mut out, mut directory, members, .. } = self;
        let (start, length) = (out.count, directory.length());
        io::copy(&mut directory.reader()?, &mut out).map_err(output)?;
        let mut bytes = Vec::new();
        if members >= 0xffff || start >= u64::from(FULL) || length >= u64::from(FULL) {
            let end = out.count;
            bytes.extend_from_slice(b"PK\x06\x06");
            bytes.extend_from_slice(&44_u64.to_le_bytes());
            bytes.extend_from_slice(&[45, 3, 45, 0]);
            bytes.extend_from_slice(&[0; 8]);
            for eight in [members, members, length, start] {
                bytes.extend_from_slice(&eight.to_le_bytes());
            }
            bytes.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            bytes.extend_from_slice(&end.to_le_bytes());
            bytes.extend_from_slice(&1_u32.to_le_bytes());
        }
        bytes.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        let count = u16::try_from(members).unwrap_or(u16::MAX).to_le_bytes();
        bytes.extend_from_slice(&count);
        bytes.extend_from_slice(&count);
        bytes.extend_from_slice(&narrow(length));
        bytes.extend_from_slice(&narrow(start));
        bytes.extend_from_slice(&[0, 0]);
        out.write_all(&bytes).and_then(|()| out.flush()).map_err(output)
    }
}

fn wide_extra(values: &[u64]) -> Vec<u8> {
    let mut bytes = 1_u16.to_le_bytes().to_vec();
    bytes.extend_from_slice(&u16::try_from(values.len() * 8).unwrap_or(0).to_le_bytes());
    values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}
