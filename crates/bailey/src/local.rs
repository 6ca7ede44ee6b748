//! Local folders as tars, and tars as local folders.
//!
//! What is written goes into a folder that this module makes, or finds empty, through descriptors that follow no link
//! and onto nothing that exists: whatever a tenant's tree (or a server that lies) holds, it stays in that folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bailey_tree::TreeError;
use bailey_tree::archive::{Member, MemberKind, TarReader, TarWriter};
use rustix::fs::{Mode, OFlags};

/// Why a folder could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    #[error("`{path}` is there and not an empty folder")]
    Taken { path: String },
    #[error("cannot write `{path}`: {source}")]
    Write { path: String, source: io::Error },
    #[error("cannot read `{path}`: {source}")]
    Read { path: String, source: io::Error },
    #[error("cannot send: {0}")]
    Send(io::Error),
    #[error("the server's answer is no plain folder: {0}")]
    Tar(TreeError),
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What was written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Count {
    pub(crate) members: u64,
    pub(crate) bytes: u64,
}

/// Writes what the tar holds into `folder`, which is made or empty.
///
/// # Errors
/// When the tar is not plain or breaks off, or the disk refuses. What was written until then stays.
pub(crate) fn unpack(input: impl Read, folder: &Path) -> Result<Count, LocalError> {
    let failed = |source: io::Error| LocalError::Write { path: folder.display().to_string(), source };
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let empty = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
            if !empty {
                return Err(LocalError::Taken { path: folder.display().to_string() });
            }
        }
        other => other.map_err(failed)?,
    }
    let root = rustix::fs::open(folder, FOLDER, Mode::empty()).map_err(|error| failed(error.into()))?;
    let mut tar = TarReader::new(input);
    let mut count = Count::default();
    while let Some(member) = tar.next_member().map_err(LocalError::Tar)? {
        let shown = || folder.join(OsStr::from_bytes(&member.path)).display().to_string();
        let failed = |source| LocalError::Write { path: shown(), source };
        count.bytes += write_member(root.as_fd(), &member, &mut tar.content()).map_err(failed)?;
        count.members += 1;
    }
    Ok(count)
}

fn write_member(root: BorrowedFd<'_>, member: &Member, content: &mut dyn Read) -> io::Result<u64> {
    let mut names = member.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let Some(last) = names.next_back() else { return Ok(0) };
    let mut folder = rustix::io::fcntl_dupfd_cloexec(root, 0)?;
    for name in names {
        folder = enter(folder.as_fd(), name)?;
    }
    match &member.kind {
        MemberKind::Folder => enter(folder.as_fd(), last).map(|_folder| 0),
        MemberKind::Link { target } => {
            rustix::fs::symlinkat(OsStr::from_bytes(target), &folder, OsStr::from_bytes(last))?;
            Ok(0)
        }
        MemberKind::File { size, executable } => {
            let mode = if *executable { 0o777 } else { 0o666 };
            let file = rustix::fs::openat(&folder, OsStr::from_bytes(last), FILE, Mode::from_bits_retain(mode))?;
            let copied = io::copy(content, &mut File::from(file))?;
            if copied == *size { Ok(copied) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        }
        MemberKind::HardLink { .. } | MemberKind::Nothing => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The folder of that name, made if need be and never a link.
fn enter(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let name = OsStr::from_bytes(name);
    match rustix::fs::mkdirat(folder, name, Mode::from_bits_retain(0o777)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(rustix::fs::openat(folder, name, FOLDER, Mode::empty())?)
}

/// Writes all below `folder` as a tar, links as links. Returns what a tree cannot hold and was passed over.
///
/// # Errors
/// When something cannot be read, or `out` fails.
pub(crate) fn pack(folder: &Path, out: impl Write) -> Result<Vec<PathBuf>, LocalError> {
    let mut tar = TarWriter::new(out, 0);
    let mut passed = Vec::new();
    let mut rest = vec![PathBuf::new()];
    while let Some(below) = rest.pop() {
        let here = folder.join(&below);
        let failed = |source| LocalError::Read { path: here.display().to_string(), source };
        let mut names = std::fs::read_dir(&here)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>())
            .map_err(failed)?;
        names.sort();
        for name in names {
            let path = below.join(name);
            let local = folder.join(&path);
            if let Some(folder) = pack_one(&mut tar, &local, &path)? {
                if folder { rest.push(path) } else { passed.push(path) }
            }
        }
    }
    tar.finish().map(|_out| passed).map_err(LocalError::Send)
}

/// `Some(true)` for a folder that is to be entered, `Some(false)` for what was passed over.
fn pack_one(tar: &mut TarWriter<impl Write>, local: &Path, path: &Path) -> Result<Option<bool>, LocalError> {
    let failed = |source| LocalError::Read { path: local.display().to_string(), source };
    let facts = std::fs::symlink_metadata(local).map_err(failed)?;
    let name = path.as_os_str().as_bytes();
    if facts.is_dir() {
        return tar.folder(name).map(|()| Some(true)).map_err(LocalError::Send);
    }
    if facts.is_symlink() {
        let target = std::fs::read_link(local).map_err(failed)?;
        return tar.link(name, target.as_os_str().as_bytes()).map(|()| None).map_err(LocalError::Send);
    }
    if !facts.is_file() {
        return Ok(Some(false));
    }
    let mut file = File::open(local).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    let executable = facts.mode() & 0o111 != 0;
    tar.file(name, executable, facts.len(), &mut file).map(|()| None).map_err(LocalError::Send)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f10_what_a_server_sends_stays_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        let mut tar = TarWriter::new(Vec::new(), 0);
        tar.link(b"d", outside.as_os_str().as_bytes()).unwrap();
        tar.file(b"d/x", false, 1, &mut &b"x"[..]).unwrap();
        let bytes = tar.finish().unwrap();
        unpack(&*bytes, &dir.path().join("in")).unwrap_err();
        let mut tar = TarWriter::new(Vec::new(), 0);
        tar.link(b"f", outside.join("y").as_os_str().as_bytes()).unwrap();
        tar.file(b"f", false, 1, &mut &b"x"[..]).unwrap();
        unpack(&*tar.finish().unwrap(), &dir.path().join("twice")).unwrap_err();
        let mut tar = TarWriter::new(Vec::new(), 0);
        tar.file(b"../x", false, 1, &mut &b"x"[..]).unwrap();
        unpack(&*tar.finish().unwrap(), &dir.path().join("up")).unwrap_err();
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!dir.path().join("x").exists());
        unpack(&*bytes, dir.path()).unwrap_err();
    }

    #[test]
    fn a_folder_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        std::fs::create_dir_all(from.join("a/empty")).unwrap();
        std::fs::write(from.join("a/f"), "text").unwrap();
        std::fs::write(from.join(OsStr::from_bytes(b"\xff")), "x").unwrap();
        std::os::unix::fs::symlink("../nowhere", from.join("l")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, from.join("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let mut bytes = Vec::new();
        assert_eq!(pack(&from, &mut bytes).unwrap(), [PathBuf::from("pipe")]);
        let to = dir.path().join("to");
        assert_eq!(unpack(&*bytes, &to).unwrap(), Count { members: 5, bytes: 5 });
        assert_eq!(std::fs::read_to_string(to.join("a/f")).unwrap(), "text");
        assert!(to.join("a/empty").is_dir());
        assert_eq!(std::fs::read_link(to.join("l")).unwrap(), Path::new("../nowhere"));
    }
}
