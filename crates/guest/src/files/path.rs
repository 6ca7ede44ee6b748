//! Paths in requests, and the descriptors they lead to.

use std::os::fd::OwnedFd;

use bailey_protocol::path::MAX_PATH_BYTES;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::agent::connect::{RpcError, invalid};
use crate::exec::identity::User;

/// Makes a path absolute: `~` and relative ones begin at the user's home. `..` and links are left to the kernel.
///
/// # Errors
/// When the path is too long, has a NUL byte, or names another user's home.
pub fn resolve(path: &str, user: User) -> Result<String, RpcError> {
    if path.contains('\0') {
        return Err(invalid("a path has a NUL byte"));
    }
    let resolved = match path {
        "" | "~" => user.home().to_owned(),
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        relative => match relative.strip_prefix('~') {
            Some(rest) if rest.starts_with('/') => format!("{}{rest}", user.home()),
            Some(_) => return Err(invalid(format!("path `{relative}`: only `~/` is understood"))),
            None => format!("{}/{relative}", user.home()),
        },
    };
    if resolved.len() >= MAX_PATH_BYTES {
        return Err(invalid(format!("a path may have {MAX_PATH_BYTES} bytes")));
    }
    Ok(resolved)
}

/// Opens a path. Links are followed unless `flags` say otherwise, magic links never.
///
/// # Errors
/// What the kernel says.
pub fn open(at: Option<&OwnedFd>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    // The call refuses flags that mean nothing for an `O_PATH`.
    let flags = flags | OFlags::CLOEXEC | if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NOCTTY };
    crate::beneath::open_without_magic(at, path, flags, mode)
}

/// The last name of a path, and the folder that it is in.
///
/// # Errors
/// When the path has no last name (`/`, `..`), or there is no such folder.
pub fn parent(path: &str) -> Result<(OwnedFd, &str), Errno> {
    let (folder, name) = split(path)?;
    Ok((open(None, folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?, name))
}

/// As [`parent`], but makes the folders that are missing, and gives them to the user.
///
/// # Errors
/// As [`parent`], and when a folder cannot be made.
pub fn parent_made(path: &str, user: User) -> Result<(OwnedFd, &str), Errno> {
    let (folder, name) = split(path)?;
    Ok((make_folders(folder, user)?.0, name))
}

/// Makes a folder and all above it; says whether the last one is new. Others may do the same at the same time.
///
/// # Errors
/// `EXIST` is none; `NOTDIR` when something else is in the way.
pub fn make_folders(path: &str, user: User) -> Result<(OwnedFd, bool), Errno> {
    let (uid, gid) = user.ids();
    let mut at = open(None, "/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let mut new = false;
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        new = false;
        at = match open(Some(&at), name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) => {
                        new = true;
                        rustix::fs::chownat(&at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                    }
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                open(Some(&at), name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok((at, new))
}

fn split(path: &str) -> Result<(&str, &str), Errno> {
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
    if name.is_empty() || name == "." || name == ".." {
        return Err(Errno::INVAL);
    }
    Ok((if folder.is_empty() { "/" } else { folder }, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_begin_at_home() {
        let table = [("", ""), ("~", ""), ("~/a", "/a"), ("a/b", "/a/b")];
        for (path, rest) in table {
            assert_eq!(resolve(path, User::User).unwrap(), format!("/home/user{rest}"));
        }
        assert_eq!(resolve("/x", User::User).unwrap(), "/x");
        for bad in ["~root", "a\0b"] {
            assert!(resolve(bad, User::User).is_err());
        }
        assert!(resolve(&"x/".repeat(3000), User::User).is_err());
    }

    #[test]
    fn a_path_is_split_at_its_last_name() {
        assert_eq!(split("/a/b/").unwrap(), ("/a", "b"));
        assert_eq!(split("/a").unwrap(), ("/", "a"));
        for bad in ["/", "//", "/a/..", "/a/."] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }
}
