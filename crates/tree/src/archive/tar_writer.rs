//! Writes a tar: the same members give the same bytes. Owners are 0, names of owners empty.

use std::io::{self, Read, Write};

use super::tar_header::{BLOCK, Header, flag};

/// What GNU's long names are called.
const LONG: &[u8] = b"././@LongLink";

/// A tar in the making, in flat memory.
#[derive(Debug)]
pub struct TarWriter<W> {
    out: W,
    mtime: u64,
}

impl<W: Write> TarWriter<W> {
    /// Begins a tar whose members are of that time, in seconds since 1970.
    pub fn new(out: W, mtime: u64) -> Self {
        Self { out, mtime }
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn folder(&mut self, path: &[u8]) -> io::Result<()> {
        let mut name = path.to_vec();
        name.push(b'/');
        self.header(&name, flag::FOLDER, 0o755, 0, b"")
    }

    /// Adds a file of exactly `size` bytes.
    ///
    /// # Errors
    /// When it cannot be written, or `content` cannot be read or has another size.
    pub fn file(&mut self, path: &[u8], executable: bool, size: u64, content: &mut dyn Read) -> io::Result<()> {
        self.header(path, flag::FILE, if executable { 0o755 } else { 0o644 }, size, b"")?;
        if io::copy(&mut content.take(size), &mut self.out)? != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pad(size)
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> io::Result<()> {
        self.header(path, flag::LINK, 0o777, 0, target)
    }

    /// Ends the tar.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 1024])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn header(&mut self, name: &[u8], kind: u8, mode: u64, size: u64, link: &[u8]) -> io::Result<()> {
        for (text, kind) in [(link, flag::LONG_LINK), (name, flag::LONG_NAME)] {
            if text.len() > 100 {
                let size = text.len() as u64 + 1;
                self.out.write_all(&Header::new(LONG, kind, 0o644, size, 0, b"").0)?;
                self.out.write_all(text)?;
                self.out.write_all(&[0])?;
                self.pad(size)?;
            }
        }
        self.out.write_all(&Header::new(name, kind, mode, size, self.mtime, link).0)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let rest = usize::try_from(size.next_multiple_of(BLOCK) - size).unwrap_or(0);
        self.out.write_all([0; 512].get(..rest).unwrap_or_default())
    }
}
