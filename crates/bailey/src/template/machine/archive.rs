//! An initramfs in the kernel's `newc` format. Tests of other crates include this file.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;

/// Files by their absolute paths.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    known: BTreeSet<PathBuf>,
}

impl Archive {
    /// A folder, with those above it.
    pub(crate) fn folder(&mut self, path: &Path) {
        let path = path.strip_prefix("/").unwrap_or(path);
        if path.as_os_str().is_empty() || self.known.contains(path) {
            return;
        }
        self.folder(path.parent().unwrap_or(Path::new("")));
        self.entry(path, FOLDER, &[]);
    }

    pub(crate) fn file(&mut self, path: &Path, mode: u32, content: &[u8]) {
        let path = path.strip_prefix("/").unwrap_or(path);
        if !self.known.contains(path) {
            self.folder(path.parent().unwrap_or(Path::new("")));
            self.entry(path, FILE | mode, content);
        }
    }

    /// A file of the host.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn copy_to(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mode = std::fs::metadata(from)?.permissions().mode();
        self.file(to, mode & 0o777, &std::fs::read(from)?);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        let name = path.as_os_str().as_bytes();
        let number = self.known.len() + 1;
        // Number, mode, owner, group, links, time, size, device, device of a node, length of the name, checksum.
        let fields = [number, mode as usize, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        self.known.insert(path.to_owned());
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// What a program of the host loads; nothing for a static one.
///
/// # Errors
/// When nobody can tell.
pub(crate) fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(listing.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}
