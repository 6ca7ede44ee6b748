//! Handing a value to another program in a sealed memory file.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};
use serde::Serialize;

use super::ServeError;

/// The value as JSON, in a file that nobody can change any more and that stays open across exec.
pub(crate) fn sealed<T: Serialize>(value: &T) -> Result<OwnedFd, ServeError> {
    write(value).map_err(|source| ServeError::system("hand over the configuration", source))
}

fn write<T: Serialize>(value: &T) -> std::io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("bailey-config", MemfdFlags::ALLOW_SEALING)?);
    file.write_all(&serde_json::to_vec(value)?)?;
    file.rewind()?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}
