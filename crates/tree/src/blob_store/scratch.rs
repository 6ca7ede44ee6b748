//! A local file that is being filled.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::error::TreeError;

/// A file without a name yet. Dropping it removes it.
#[derive(Debug)]
pub struct Scratch {
    file: BufWriter<File>,
    /// Where it is; `None` once it was published.
    path: Option<PathBuf>,
    length: u64,
}

impl Scratch {
    /// Takes over an empty file at `path`.
    #[must_use]
    pub fn new(file: File, path: PathBuf) -> Self {
        Self { file: BufWriter::with_capacity(64 << 10, file), path: Some(path), length: 0 }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), TreeError> {
        self.file.write_all(bytes).map_err(self.fail("writing"))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Reads back bytes that were written before.
    pub(crate) fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<(), TreeError> {
        let read = self.file.flush().and_then(|()| self.file.get_ref().read_exact_at(out, offset));
        read.map_err(self.fail("reading"))
    }

    /// Overwrites bytes that were written before.
    pub(crate) fn patch(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TreeError> {
        let patch = |file: &mut BufWriter<File>| {
            file.flush()?;
            file.get_ref().write_all_at(bytes, offset)
        };
        patch(&mut self.file).map_err(self.fail("writing"))
    }

    /// Forgets everything after `length`.
    pub(crate) fn truncate(&mut self, length: u64) -> Result<(), TreeError> {
        let cut = |file: &mut BufWriter<File>| {
            file.flush()?;
            file.get_ref().set_len(length)?;
            file.seek(SeekFrom::Start(length)).map(drop)
        };
        cut(&mut self.file).map_err(self.fail("cutting"))?;
        self.length = length;
        Ok(())
    }

    /// Hands everything written so far to `each`, piece by piece.
    pub(crate) fn read_back(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), TreeError> {
        let mut buffer = vec![0; 64 << 10];
        let mut offset = 0;
        self.file.flush().map_err(self.fail("writing"))?;
        while offset < self.length {
            let wanted = usize::try_from(self.length - offset).unwrap_or(usize::MAX).min(buffer.len());
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            self.file.get_ref().read_exact_at(piece, offset).map_err(self.fail("reading"))?;
            each(piece);
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Everything written so far, from its start.
    pub(crate) fn reader(&mut self) -> Result<impl io::Read + '_, TreeError> {
        let rewind = |file: &mut BufWriter<File>| {
            file.flush()?;
            file.get_mut().rewind()
        };
        rewind(&mut self.file).map_err(self.fail("reading"))?;
        Ok(io::BufReader::with_capacity(64 << 10, self.file.get_ref()).take(self.length))
    }

    /// Fills `out` from `offset` on. What was written after the last [`Scratch::settle`] may be missing.
    pub(crate) fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<(), TreeError> {
        self.file.get_ref().read_exact_at(out, offset).map_err(self.fail("reading"))
    }

    /// Brings what was written to the file, and to the disk if `durable`.
    pub(crate) fn settle(&mut self, durable: bool) -> Result<(), TreeError> {
        self.file.flush().map_err(self.fail("writing"))?;
        if durable {
            self.file.get_ref().sync_data().map_err(self.fail("syncing"))?;
        }
        Ok(())
    }

    /// Gives the file its name.
    pub(crate) fn publish(mut self, to: &Path) -> Result<(), TreeError> {
        if let Some(path) = &self.path {
            std::fs::rename(path, to).map_err(TreeError::storage("publishing", to.display()))?;
        }
        self.path = None;
        Ok(())
    }

    fn fail(&self, operation: &'static str) -> impl FnOnce(io::Error) -> TreeError + '_ {
        TreeError::storage(operation, self.path.as_deref().unwrap_or(Path::new("scratch")).display())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(path) = self.path.take()
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::debug!(%error, path = %path.display(), "a scratch file stays until the next start");
        }
    }
}
