//! What must not be in a snapshot is looked for in it before anybody can have it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::memmem::Finder;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::memory::{CHUNK, PAGE};

/// The number of the first of these that is in a file of so many bytes. Empty ones are nowhere.
pub(super) fn find(file: &File, bytes: u64, canaries: &[Vec<u8>]) -> io::Result<Option<usize>> {
    let finders: Vec<(usize, Finder<'_>)> = canaries
        .iter()
        .enumerate()
        .filter(|(_, words)| !words.is_empty())
        .map(|(n, words)| (n, Finder::new(words)))
        .collect();
    // A canary that lies across two chunks is in the overlap.
    let overlap = canaries.iter().map(Vec::len).max().unwrap_or(0).next_multiple_of(PAGE);
    let mut buffer = vec![0; CHUNK.saturating_add(overlap)];
    let mut at = 0;
    while at < bytes {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        at = data - data % PAGE as u64;
        let length = usize::try_from(bytes.saturating_sub(at)).unwrap_or(usize::MAX).min(buffer.len());
        let chunk = buffer.get_mut(..length).unwrap_or(&mut []);
        file.read_exact_at(chunk, at)?;
        if let Some((number, _)) = finders.iter().find(|(_, finder)| finder.find(chunk).is_some()) {
            return Ok(Some(*number));
        }
        at = at.saturating_add(CHUNK as u64);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall::microvm::memory::fresh;

    #[test]
    fn a_canary_is_found_wherever_it_lies() {
        let bytes = 5 * CHUNK as u64 + 100;
        let canaries = [b"absent".to_vec(), Vec::new(), b"canary".to_vec()];
        for at in [0, 4093, CHUNK as u64 - 3, 3 * CHUNK as u64 + 1, bytes - 6] {
            let file = File::from(fresh(bytes).unwrap());
            assert_eq!(find(&file, bytes, &canaries).unwrap(), None);
            // So that what is looked at in one go begins at the beginning.
            file.write_all_at(b"x", if at == 0 { 4096 } else { 0 }).unwrap();
            file.write_all_at(b"canary", at).unwrap();
            assert_eq!(find(&file, bytes, &canaries).unwrap(), Some(2), "{at}");
        }
    }
}
