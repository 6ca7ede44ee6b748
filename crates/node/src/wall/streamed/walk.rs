//! A folder as a change stream: folders, files and links, each where it is, whatever it leads to. Blocks.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use bailey_protocol::change::{Header, MAGIC};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};

/// Bytes that are passed on at once.
const PIECE: usize = 128 * 1024;
/// What a file, folder or link takes beside its content, in bytes.
const ENTRY: u64 = 4096;

/// Takes the bytes of a stream; an error ends it.
pub(super) trait Take {
    fn take(&mut self, bytes: Vec<u8>) -> io::Result<()>;
}

/// Writes all below `folder`.
///
/// # Errors
/// When something cannot be read, is nothing that a tree holds, changes meanwhile, or is not taken.
pub(super) fn walk(folder: &OwnedFd, to: &mut dyn Take) -> io::Result<()> {
    let mut stream = Stream { buffer: MAGIC.to_vec(), records: 0, to };
    visit(folder, &mut |folder, name, path, kind| stream.entry(folder, name, path, kind))?;
    let records = stream.records;
    stream.header(&Header::End { records })?;
    stream.flush()
}

/// About how much memory the content of a folder takes.
///
/// # Errors
/// When something of it cannot be seen.
pub fn measure(folder: &OwnedFd) -> io::Result<u64> {
    let mut bytes = 0_u64;
    visit(folder, &mut |folder, name, _path, _kind| {
        let size = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_size;
        let size = u64::try_from(size).unwrap_or(0).next_multiple_of(ENTRY);
        bytes = bytes.saturating_add(size).saturating_add(ENTRY);
        Ok(())
    })?;
    Ok(bytes)
}

/// What is done with one entry: its folder, its name in there, its whole path and its kind.
type Visitor<'a> = dyn FnMut(&OwnedFd, &CStr, &[u8], FileType) -> io::Result<()> + 'a;

/// A folder in which the walk is.
struct Level {
    folder: OwnedFd,
    entries: Dir,
    /// Length of its path.
    path: usize,
}

/// Every folder before what is in it. As many folders are open at a time as the deepest path has: a tree's bound.
fn visit(folder: &OwnedFd, visitor: &mut Visitor<'_>) -> io::Result<()> {
    let mut path = Vec::new();
    let mut levels = vec![level(openat(folder, ".", FOLDER, Mode::empty())?, 0)?];
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path);
        let Some(entry) = level.entries.next() else {
            levels.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        let kind = FileType::from_raw_mode(statat(&level.folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        visitor(&level.folder, name, &path, kind)?;
        if kind == FileType::Directory {
            let inner = openat(&level.folder, name, FOLDER, Mode::empty())?;
            levels.push(self::level(inner, path.len())?);
        }
    }
    Ok(())
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

fn level(folder: OwnedFd, path: usize) -> io::Result<Level> {
    let entries = Dir::read_from(&folder)?;
    Ok(Level { folder, entries, path })
}

struct Stream<'a> {
    buffer: Vec<u8>,
    records: u64,
    to: &'a mut dyn Take,
}

impl Stream<'_> {
    fn entry(&mut self, folder: &OwnedFd, name: &CStr, path: &[u8], kind: FileType) -> io::Result<()> {
        match kind {
            FileType::Directory => self.record(&Header::Directory { path }),
            FileType::Symlink => {
                let target = readlinkat(folder, name, Vec::new())?;
                self.record(&Header::Symlink { path, target: target.to_bytes() })
            }
            FileType::RegularFile => self.file(openat(folder, name, FILE, Mode::empty())?, path),
            other => Err(io::Error::other(format!("`{}` is a {other:?}", OsStr::from_bytes(path).display()))),
        }
    }

    fn file(&mut self, file: OwnedFd, path: &[u8]) -> io::Result<()> {
        let facts = fstat(file.as_fd())?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("a file that became something else"));
        }
        let size = u64::try_from(facts.st_size).map_err(io::Error::other)?;
        self.record(&Header::File { path, executable: facts.st_mode & 0o111 != 0, size })?;
        let mut content = File::from(file).take(size);
        let mut sent = 0;
        while sent < size {
            let mut piece = std::mem::take(&mut self.buffer);
            let room = u64::try_from(PIECE.saturating_sub(piece.len())).unwrap_or(0);
            let count = content.by_ref().take(room).read_to_end(&mut piece)?;
            self.buffer = piece;
            if count == 0 && room > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            sent += u64::try_from(count).unwrap_or(u64::MAX);
            self.flush_full()?;
        }
        Ok(())
    }

    fn record(&mut self, header: &Header<'_>) -> io::Result<()> {
        self.records += 1;
        self.header(header)
    }

    fn header(&mut self, header: &Header<'_>) -> io::Result<()> {
        header.encode(&mut self.buffer).map_err(io::Error::other)?;
        self.flush_full()
    }

    fn flush_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.take(std::mem::take(&mut self.buffer))
    }
}

#[cfg(test)]
mod tests;
