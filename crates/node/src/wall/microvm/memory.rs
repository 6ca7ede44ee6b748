//! Memory of machines, in files that have no name.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{
    CWD, MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, fcntl_add_seals, ftruncate, memfd_create, openat, seek,
};
use rustix::io::Errno;

/// A page.
pub(super) const PAGE: usize = 4096;
/// Most that is handled at once: whole pages.
pub(super) const CHUNK: usize = 256 * PAGE;

/// Empty memory.
pub(super) fn fresh(bytes: u64) -> io::Result<OwnedFd> {
    let memory = memfd_create("machine", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, bytes)?;
    Ok(memory)
}

/// Has nobody change it any more, whoever gets hold of it.
pub(super) fn seal(memory: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_add_seals(memory, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?)
}

/// The same content, to be read from its beginning whoever else reads it.
pub(super) fn again(file: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Every piece of it that is not all zeros, with its place, in order; each has whole pages, and [`CHUNK`] at most.
pub(super) fn each_piece(
    memory: &File,
    bytes: u64,
    mut act: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < bytes {
        // Holes are skipped as a whole.
        let data = match seek(memory, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        at = data - data % PAGE as u64;
        let length = usize::try_from(bytes.saturating_sub(at)).unwrap_or(CHUNK).min(CHUNK);
        let chunk = buffer.get_mut(..length).unwrap_or(&mut []);
        memory.read_exact_at(chunk, at)?;
        let mut place = at;
        for piece in pieces(chunk) {
            if piece.iter().any(|&byte| byte != 0) {
                act(place, piece)?;
            }
            place = place.saturating_add(piece.len() as u64);
        }
        at = at.saturating_add(length as u64);
    }
    Ok(())
}

/// Cuts where pages of zeros begin and end.
fn pieces(chunk: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let mut rest = chunk;
    while !rest.is_empty() {
        let empty = |page: &[u8]| page.iter().all(|&byte| byte == 0);
        let kind = rest.chunks(PAGE).next().is_some_and(empty);
        let pages = rest.chunks(PAGE).take_while(|page| empty(page) == kind).map(<[u8]>::len).sum::<usize>();
        let Some((piece, others)) = rest.split_at_checked(pages) else { break };
        all.push(piece);
        rest = others;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_zero_is_told_with_its_place_and_nothing_else() {
        let bytes = 10 * CHUNK as u64;
        let memory = File::from(fresh(bytes).unwrap());
        let page = |byte: u8| vec![byte; PAGE];
        for (at, byte) in [(0, 1), (1, 0), (2, 2), (3, 3), (300, 4), (2559, 5)] {
            memory.write_all_at(&page(byte), at * PAGE as u64).unwrap();
        }
        let mut told = Vec::new();
        each_piece(&memory, bytes, |at, piece| {
            told.push((at / PAGE as u64, piece.len() / PAGE, piece.first().copied()));
            Ok(())
        })
        .unwrap();
        assert_eq!(told, [(0, 1, Some(1)), (2, 2, Some(2)), (300, 1, Some(4)), (2559, 1, Some(5))]);
    }

    #[test]
    fn sealed_memory_is_nobodys_to_change() {
        let memory = fresh(PAGE as u64).unwrap();
        let file = File::from(memory.try_clone().unwrap());
        file.write_all_at(b"x", 0).unwrap();
        seal(&memory).unwrap();
        for refused in [file.write_all_at(b"y", 0), file.set_len(0), file.set_len(1 << 20)] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        // A descriptor of one's own does not help.
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let writable = File::options().write(true).open(path).unwrap();
        assert_eq!(writable.write_all_at(b"y", 0).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
