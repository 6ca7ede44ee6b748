//! A folder as an archive, in flat memory.

use std::io::{Read as _, Write};

use bailey_protocol::api::EntryKind;
use bailey_protocol::id::VersionId;

use super::Format;
use super::tar_writer::TarWriter;
use super::zip_writer::ZipWriter;
use crate::blob::Blob;
use crate::error::TreeError;
use crate::listing::Walk;
use crate::object::TreeItem;
use crate::store::{Found, Store, kind_of};

enum Writer<'a> {
    Tar(TarWriter<&'a mut dyn Write>),
    Zip(ZipWriter<'a>),
}

impl Store {
    /// Writes what is below the folder at `inner`, or the one file there, as an archive: real names, in the order of a
    /// listing, times that of the version. The same version, path and format give the same bytes.
    ///
    /// # Errors
    /// When nothing is there, there is no such version here, storage fails, or `out` does.
    pub fn archive(
        &self,
        version: &VersionId,
        inner: &str,
        format: Format,
        out: &mut dyn Write,
    ) -> Result<(), TreeError> {
        let seconds = self.commit_of(version)?.time_ms / 1000;
        let found = self.find(&self.root_of(Some(version))?, inner)?;
        self.ensure()?;
        let mut writer = match format {
            Format::Tar => Writer::Tar(TarWriter::new(out, seconds)),
            Format::Zip => Writer::Zip(ZipWriter::new(out, self.objects().scratch()?, seconds)),
        };
        match found {
            None => return Err(TreeError::NotFound { path: inner.to_owned() }),
            Some(Found::File(item)) => {
                let name = inner.rsplit('/').next().unwrap_or(inner);
                self.add(&mut writer, name.as_bytes(), &item)?;
            }
            Some(Found::Folder(folder)) => {
                let mut walk = Walk::begin(self.objects(), folder, true, None)?;
                while let Some(item) = walk.next()? {
                    self.add(&mut writer, &walk.real, &item)?;
                }
            }
        }
        match writer {
            Writer::Tar(tar) => tar.finish().map(drop).map_err(|source| TreeError::Output { source }),
            Writer::Zip(zip) => zip.finish(),
        }
    }

    fn add(&self, writer: &mut Writer<'_>, path: &[u8], item: &TreeItem) -> Result<(), TreeError> {
        let kind = kind_of(item);
        let open = || Ok::<_, TreeError>(Blob::new(item.oid, false, self.objects().open_file(&item.oid)?));
        let output = |source| TreeError::Output { source };
        match kind {
            EntryKind::Directory => match writer {
                Writer::Tar(tar) => tar.folder(path).map_err(output),
                Writer::Zip(zip) => zip.folder(path),
            },
            EntryKind::Symlink => {
                let mut target = Vec::new();
                open()?.read_to_end(&mut target).map_err(|damage| TreeError::corrupt(item.oid, damage))?;
                match writer {
                    Writer::Tar(tar) => tar.link(path, &target).map_err(output),
                    Writer::Zip(zip) => zip.link(path, &target),
                }
            }
            EntryKind::File | EntryKind::Executable => {
                let (mut content, executable) = (open()?, kind == EntryKind::Executable);
                let size = content.len();
                match writer {
                    Writer::Tar(tar) => tar.file(path, executable, size, &mut content).map_err(output),
                    Writer::Zip(zip) => zip.file(path, executable, size, &mut content),
                }
            }
        }
    }
}
