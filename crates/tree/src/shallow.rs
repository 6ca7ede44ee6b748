//! Where history ends: git's own `shallow` file, so that stock git stops there too.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use gix_hash::ObjectId;

use crate::error::TreeError;
use crate::refs;

const FILE: &str = "shallow";

/// The commits whose parents are not kept.
pub(crate) fn read(folder: &Path) -> Result<HashSet<ObjectId>, TreeError> {
    read_ids(folder, FILE)
}

/// Replaces the file; it is on disk when this returns.
pub(crate) fn write(folder: &Path, commits: &HashSet<ObjectId>) -> Result<(), TreeError> {
    if commits.is_empty() {
        return match fs::remove_file(folder.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(TreeError::storage("removing", FILE)(error)),
            Ok(()) => crate::blob_store::folder::sync_folder(folder),
        };
    }
    write_ids(folder, FILE, commits.iter())
}

/// The ids in a file of one per line; none when there is no such file.
pub(crate) fn read_ids(folder: &Path, name: &str) -> Result<HashSet<ObjectId>, TreeError> {
    let text = match fs::read_to_string(folder.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        other => other.map_err(TreeError::storage("reading", name))?,
    };
    let id = |line: &str| ObjectId::from_hex(line.as_bytes()).map_err(|_bad| TreeError::corrupt(name, "not an id"));
    text.lines().map(id).collect()
}

/// Replaces a file of ids; it is on disk when this returns.
pub(crate) fn write_ids<'a>(
    folder: &Path,
    name: &str,
    ids: impl Iterator<Item = &'a ObjectId>,
) -> Result<(), TreeError> {
    let lines: BTreeSet<String> = ids.map(|id| format!("{id}\n")).collect();
    refs::replace(folder, name, lines.into_iter().collect::<String>().as_bytes())?;
    crate::blob_store::folder::sync_folder(folder)
}
