//! Small files by descriptor and name: cgroup and proc files.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Largest control file that is read.
const MAX_READ: u64 = 1024 * 1024;

/// Opens the folder `path` below `dir` as a mere place (`O_PATH`), following no link at its end.
pub(crate) fn open_folder(dir: impl AsFd, path: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, path, flags, Mode::empty())
}

/// Writes a value to an existing file in one call, as control files want it.
pub(crate) fn write(dir: impl AsFd, name: impl Arg, value: &str) -> Result<(), Errno> {
    let file = openat(dir, name, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::write(&file, value.as_bytes())?;
    if written == value.len() { Ok(()) } else { Err(Errno::IO) }
}

/// Names of everything in a folder.
pub(crate) fn names(path: &str) -> Result<Vec<String>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::new(open(path, flags, Mode::empty())?)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Reads a whole file as text.
pub(crate) fn read(dir: impl AsFd, name: impl Arg) -> Result<String, Errno> {
    let file = openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    File::from(file)
        .take(MAX_READ)
        .read_to_end(&mut text)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
