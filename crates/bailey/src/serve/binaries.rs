//! `bailey-jail` and `bailey-guest`: static, beside `bailey`, and of the same build.
//!
//! `make build` builds those two first and `bailey` last, with their hashes in it. A `bailey` that cargo built on its
//! own has none and takes what lies beside it.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::ServeError;

const JAIL_SHA256: Option<&str> = option_env!("BAILEY_JAIL_SHA256");
const GUEST_SHA256: Option<&str> = option_env!("BAILEY_GUEST_SHA256");

/// Where the programs are that one server consists of.
#[derive(Debug)]
pub(crate) struct Binaries {
    pub(crate) server: PathBuf,
    pub(crate) jail: PathBuf,
    pub(crate) jail_sha256: String,
    pub(crate) guest: PathBuf,
    pub(crate) guest_sha256: String,
    /// Whether this program was built with those hashes, so that no others would have been taken.
    pub(crate) pinned: bool,
}

impl Binaries {
    /// Finds them, and compares the other two with what this one was built with.
    pub(crate) fn find() -> Result<Self, ServeError> {
        let server = std::env::current_exe().and_then(|path| path.canonicalize());
        let server = server.map_err(|e| ServeError::system("find out where `bailey` is", e))?;
        let folder = server.parent().unwrap_or(Path::new("/")).to_owned();
        let (jail, jail_sha256) = check(&folder, "bailey-jail", JAIL_SHA256)?;
        let (guest, guest_sha256) = check(&folder, "bailey-guest", GUEST_SHA256)?;
        let pinned = JAIL_SHA256.is_some() && GUEST_SHA256.is_some();
        Ok(Self { server, jail, jail_sha256, guest, guest_sha256, pinned })
    }
}

fn check(folder: &Path, name: &'static str, wanted: Option<&'static str>) -> Result<(PathBuf, String), ServeError> {
    let path = folder.join(name);
    let actual = hash(&path).map_err(|source| ServeError::Missing { path: path.display().to_string(), source })?;
    match wanted {
        Some(wanted) if wanted != actual => {
            Err(ServeError::Mismatch { name, path: path.display().to_string(), actual, wanted })
        }
        Some(_) | None => Ok((path, actual)),
    }
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.read_to_end(&mut bytes)?;
    Ok(format!("{:x}", Sha256::digest(&bytes)))
}
