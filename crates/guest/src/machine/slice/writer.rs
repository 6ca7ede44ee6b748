//! Makes what a slice holds, beneath one descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, chownat, fchown, mkdirat, symlinkat};
use rustix::io::Errno;

use super::SliceError;
use crate::beneath;
use crate::exec::identity::User;

/// Writes below a folder; what it makes is the user's.
pub(super) struct Writer<'a> {
    root: &'a OwnedFd,
    /// The folder that the last record was in: most are in the same.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(root: &'a OwnedFd) -> Self {
        Self { root, last: None }
    }

    pub(super) fn folder(&mut self, path: &[u8]) -> Result<(), SliceError> {
        self.make(path, |folder, name| {
            mkdirat(folder, name, Mode::from_raw_mode(0o755))?;
            give(folder, name)
        })
    }

    pub(super) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), SliceError> {
        self.make(path, |folder, name| {
            symlinkat(target, folder, name)?;
            give(folder, name)
        })
    }

    /// An empty file.
    pub(super) fn file(&mut self, path: &[u8], executable: bool) -> Result<OwnedFd, SliceError> {
        self.make(path, |folder, name| {
            let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let file = beneath::open(folder, name, flags, mode)?;
            let (uid, gid) = User::User.ids();
            fchown(&file, Some(uid), Some(gid))?;
            Ok(file)
        })
    }

    /// Appends to a file; how many bytes were taken.
    pub(super) fn append(&self, file: &OwnedFd, path: &[u8], bytes: &[u8]) -> Result<u64, SliceError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(file, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(SliceError::Write { path: path.to_vec(), errno }),
            }
        }
        Ok(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    fn make<T>(
        &mut self,
        path: &[u8],
        act: impl FnOnce(BorrowedFd<'_>, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, SliceError> {
        let failed = |errno| SliceError::Write { path: path.to_vec(), errno };
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = match slash {
            Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
            None => (&b""[..], path),
        };
        let folder = match self.last.take().filter(|(last, _)| last == parent) {
            Some(same) => same,
            None => (parent.to_vec(), self.open(parent).map_err(failed)?),
        };
        let done = act(folder.1.as_fd(), name).map_err(failed);
        self.last = Some(folder);
        done
    }

    fn open(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        beneath::open(self.root, path, flags, Mode::empty())
    }
}

fn give(folder: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let (uid, gid) = User::User.ids();
    chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}
