//! The issuer's key on disk: `keys/issuer.pem`, readable by the server alone, made once by whoever comes first.
//!
//! Root (the `token` verb) may come first, in a folder that the server owns. So nothing below it is resolved by name
//! but single names, from held descriptors, following no link.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchown, fstat, linkat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::clock::{Rng, RngError};

const FOLDER: &str = "keys";
const FILE: &str = "issuer.pem";
const MAX_FILE_BYTES: u64 = 4096;
const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// Why the key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// A system call failed.
    #[error("cannot {operation} `{path}`")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody else owns it, or others may read it.
    #[error(
        "`{path}` has to be a {wanted} of uid {owner} that nobody else may read or write (found uid {uid}, mode {mode:o})"
    )]
    Exposed {
        /// The file or folder.
        path: String,
        /// `file` or `folder`.
        wanted: &'static str,
        /// Who has to own it.
        owner: u32,
        /// Who owns it.
        uid: u32,
        /// Its type and mode.
        mode: u32,
    },
    /// It is not a PEM file with one private key.
    #[error("`{path}` is not a PEM file with one private key")]
    NotPem {
        /// The file.
        path: String,
    },
    /// The key cannot be made.
    #[error("cannot make a key")]
    Generate,
    /// No randomness.
    #[error("cannot name a temporary file")]
    Rng(#[from] RngError),
}

/// The key in DER, read from `serve_dir/keys/issuer.pem` or made there.
pub(super) fn ensure(serve_dir: &Path, owner: u32) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let shown = serve_dir.join(FOLDER).join(FILE).display().to_string();
    let serve = Folder::open(CWD, serve_dir, serve_dir.display().to_string(), owner)?;
    let keys = Folder::open(&serve.fd, Path::new(FOLDER), serve_dir.join(FOLDER).display().to_string(), owner)?;
    if let Some(der) = keys.read_key(&shown)? {
        return Ok(der);
    }
    keys.make_key(&shown)?;
    keys.read_key(&shown)?.ok_or_else(|| io("read", &shown)(Errno::NOENT))
}

/// A folder of the server's, held open.
struct Folder {
    fd: OwnedFd,
    owner: u32,
}

impl Folder {
    fn open(parent: impl std::os::fd::AsFd, name: &Path, shown: String, owner: u32) -> Result<Self, KeyFileError> {
        let parent = parent.as_fd();
        let made = match mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(io("make", &shown)(errno)),
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = openat(parent, name, flags, Mode::empty()).map_err(io("open", &shown))?;
        if made {
            give(&fd, owner).map_err(io("hand over", &shown))?;
        }
        check(&fd, FileType::Directory, owner, &shown)?;
        Ok(Self { fd, owner })
    }

    /// `None` when there is no key yet.
    fn read_key(&self, shown: &str) -> Result<Option<Zeroizing<Vec<u8>>>, KeyFileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match openat(&self.fd, FILE, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(io("open", shown)(errno)),
        };
        check(&fd, FileType::RegularFile, self.owner, shown)?;
        let mut text = Zeroizing::new(String::new());
        let read = File::from(fd).take(MAX_FILE_BYTES).read_to_string(&mut text);
        read.map_err(|source| KeyFileError::Io { operation: "read", path: shown.to_owned(), source })?;
        from_pem(&text).map(Some).ok_or_else(|| KeyFileError::NotPem { path: shown.to_owned() })
    }

    /// Writes a new key beside its place and links it there, so that the first of several wins and no half is seen.
    fn make_key(&self, shown: &str) -> Result<(), KeyFileError> {
        let document = Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new())
            .map_err(|_unspecified| KeyFileError::Generate)?;
        let pem = to_pem(document.as_ref());
        let temporary = format!(".{FILE}.{:032x}", u128::from_le_bytes(Rng::system().bytes()?));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.fd, &temporary, flags, Mode::RUSR | Mode::WUSR).map_err(io("make", shown))?;
        let placed = self.place(fd, &pem, &temporary, shown);
        let cleared = unlinkat(&self.fd, &temporary, AtFlags::empty()).map_err(io("clear up after", shown));
        placed.and(cleared)?;
        rustix::fs::fsync(&self.fd).map_err(io("sync the folder of", shown))
    }

    fn place(&self, fd: OwnedFd, pem: &str, temporary: &str, shown: &str) -> Result<(), KeyFileError> {
        give(&fd, self.owner).map_err(io("hand over", shown))?;
        let mut file = File::from(fd);
        let written = file.write_all(pem.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|source| KeyFileError::Io { operation: "write", path: shown.to_owned(), source })?;
        match linkat(&self.fd, temporary, &self.fd, FILE, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(io("place", shown)(errno)),
        }
    }
}

fn io(operation: &'static str, path: &str) -> impl Fn(Errno) -> KeyFileError {
    let path = path.to_owned();
    move |errno| KeyFileError::Io { operation, path: path.clone(), source: errno.into() }
}

fn give(fd: &OwnedFd, owner: u32) -> rustix::io::Result<()> {
    if fstat(fd)?.st_uid == owner {
        return Ok(());
    }
    fchown(fd, Some(rustix::fs::Uid::from_raw(owner)), Some(rustix::fs::Gid::from_raw(owner)))
}

fn check(fd: &OwnedFd, kind: FileType, owner: u32, shown: &str) -> Result<(), KeyFileError> {
    let stat = fstat(fd).map_err(io("look at", shown))?;
    // A folder may be looked at by others; a key may not.
    let (wanted, shut) = if kind == FileType::Directory { ("folder", 0o022) } else { ("file", 0o077) };
    if FileType::from_raw_mode(stat.st_mode) == kind && stat.st_uid == owner && stat.st_mode & shut == 0 {
        return Ok(());
    }
    let path = shown.to_owned();
    Err(KeyFileError::Exposed { path, wanted, owner, uid: stat.st_uid, mode: stat.st_mode })
}

pub(super) fn to_pem(der: &[u8]) -> Zeroizing<String> {
    let body = Zeroizing::new(STANDARD.encode(der));
    let mut pem = Zeroizing::new(format!("{BEGIN}\n"));
    for (place, letter) in body.chars().enumerate() {
        if place > 0 && place % 64 == 0 {
            pem.push('\n');
        }
        pem.push(letter);
    }
    pem.push('\n');
    pem.push_str(END);
    pem.push('\n');
    pem
}

pub(super) fn from_pem(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let body = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let body: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
    STANDARD.decode(body.as_bytes()).ok().map(Zeroizing::new)
}
