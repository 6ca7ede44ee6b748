//! One layer's folders and files, reached by descriptor.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;

use crate::beneath;

/// Opens the folder at `path` below `root`; an empty path is the root itself.
pub(super) fn open_folder(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    beneath::open(root, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Opens a regular file in a folder, for reading.
pub(super) fn open_file(folder: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    beneath::open(folder, name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
}

/// What a name in a folder is, without following it; `None` if there is nothing.
pub(super) fn stat(folder: &OwnedFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The kind of thing.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Where a link points.
pub(super) fn link_target(folder: &OwnedFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    Ok(rustix::fs::readlinkat(folder, name, Vec::with_capacity(256))?.into_bytes())
}

/// The folder's names, sorted, but for those that `wanted` refuses.
pub(super) fn names(folder: &OwnedFd, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<Box<[u8]>>, Errno> {
    let mut names = Vec::new();
    each_name(folder, |name| {
        if wanted(name) {
            names.push(Box::from(name));
        }
        true
    })?;
    names.sort_unstable();
    Ok(names)
}

/// Calls `visit` for the folder's names, in no order, until it says to stop.
pub(super) fn each_name(folder: &OwnedFd, mut visit: impl FnMut(&[u8]) -> bool) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(folder.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = CStr::to_bytes(entry.file_name());
        if name != b"." && name != b".." && !visit(name) {
            break;
        }
    }
    rustix::fs::seek(folder, rustix::fs::SeekFrom::Start(0)).map(|_start| ())
}

/// Whether a file has extended attributes that code can have set.
pub(super) fn has_xattrs(file: &OwnedFd) -> bool {
    let mut buffer = [0_u8; 4096];
    match rustix::fs::flistxattr(file, &mut buffer[..]) {
        Ok(length) => {
            let list = buffer.get(..length).unwrap_or_default();
            list.split(|byte| *byte == 0).any(|name| name.starts_with(b"user.") || name.starts_with(b"system."))
        }
        // So many that they do not fit.
        Err(Errno::RANGE) => true,
        Err(_unsupported) => false,
    }
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_full(file: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(file, rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
