//! An operator's folder of policies, read within bounds.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bailey_protocol::api::policy::{MAX_FOLDER_BYTES, MAX_FOLDER_FILES};
use rustix::fs::{Mode, OFlags};

/// The file of the server's part of the data folder that holds the operator's policies which are in force.
pub(crate) const IN_FORCE: &str = "policies.json";

/// Why a folder of policies cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyFolderError {
    #[error("cannot read `{path}`: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("`{path}` is no regular file: put the policy itself there, not a link to it")]
    Kind { path: String },
    #[error("`{path}` has more than {MAX_FOLDER_FILES} policy files, or more than {MAX_FOLDER_BYTES} bytes of them")]
    TooLarge { path: String },
    #[error("`{path}` is no UTF-8 text")]
    Text { path: String },
}

/// Every `*.cedar` in the folder, by name. Links are not followed: a policy lies where the operator looks.
pub(crate) fn read(folder: &Path) -> Result<Vec<(String, String)>, PolicyFolderError> {
    let shown = |path: &Path| path.display().to_string();
    let failed = |path: &Path, source| PolicyFolderError::Read { path: shown(path), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|source| failed(folder, source))? {
        let name = entry.map_err(|source| failed(folder, source))?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "cedar") {
            names.push(name);
        }
        if names.len() > MAX_FOLDER_FILES {
            return Err(PolicyFolderError::TooLarge { path: shown(folder) });
        }
    }
    names.sort();
    let mut left = MAX_FOLDER_BYTES;
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let path = folder.join(&name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::LOOP) => return Err(PolicyFolderError::Kind { path: shown(&path) }),
            Err(errno) => return Err(failed(&path, errno.into())),
        };
        if !file.metadata().map_err(|source| failed(&path, source))?.is_file() {
            return Err(PolicyFolderError::Kind { path: shown(&path) });
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(left).unwrap_or(u64::MAX).saturating_add(1);
        file.take(most).read_to_end(&mut bytes).map_err(|source| failed(&path, source))?;
        left = left.checked_sub(bytes.len()).ok_or_else(|| PolicyFolderError::TooLarge { path: shown(folder) })?;
        let text = String::from_utf8(bytes).map_err(|_not_utf8| PolicyFolderError::Text { path: shown(&path) })?;
        files.push((name.to_string_lossy().into_owned(), text));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_by_name_within_bounds_and_without_links() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("b.cedar", "// b");
        write("a.cedar", "// a");
        write("README.md", "no policy");
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(read(folder.path()).unwrap(), [pair("a.cedar", "// a"), pair("b.cedar", "// b")]);
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("c.cedar")).unwrap();
        assert!(matches!(read(folder.path()), Err(PolicyFolderError::Kind { .. })));
        std::fs::remove_file(folder.path().join("c.cedar")).unwrap();
        std::fs::create_dir(folder.path().join("d.cedar")).unwrap();
        assert!(matches!(read(folder.path()), Err(PolicyFolderError::Kind { .. })));
        std::fs::remove_dir(folder.path().join("d.cedar")).unwrap();
        write("big.cedar", &"x".repeat(MAX_FOLDER_BYTES));
        assert!(matches!(read(folder.path()), Err(PolicyFolderError::TooLarge { .. })));
        assert!(matches!(read(&folder.path().join("none")), Err(PolicyFolderError::Read { .. })));
    }
}
