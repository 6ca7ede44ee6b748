//! Opening what lies beneath a folder, through nothing but folders.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, fstatfs, openat, openat2, readlinkat,
};
use rustix::io::Errno;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens a relative path beneath `at`; no link and no mount is on the way, and it is none itself.
///
/// # Errors
/// What the kernel says; `XDEV` for a path that leads upwards.
pub(crate) fn open(at: impl AsFd, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match openat2(&at, path, flags, mode, RESOLVE) {
            // Something was renamed meanwhile; nobody can do that for ever.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS) => return step_by_step(&at, path, flags, mode),
            other => return other,
        }
    }
}

/// As a kernel without the call is asked, in which nothing but PID 1 can mount. Never for a folder: such a kernel then
/// follows a link in spite of `O_NOFOLLOW`.
fn step_by_step(at: impl AsFd, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let names = split(path);
    if names.iter().any(|name| name == b"..") {
        return Err(Errno::XDEV);
    }
    let mut here = openat(at, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let way = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some((last, folders)) = names.split_first() else {
        return openat(&here, ".", flags, mode);
    };
    for name in folders.iter().rev() {
        here = openat(&here, &**name, way, Mode::empty())?;
    }
    open_last(&here, last, flags, mode)
}

/// Opens a name in a folder, which may be no link.
fn open_last(at: &OwnedFd, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    if !flags.contains(OFlags::DIRECTORY) {
        return openat(at, name, flags | OFlags::NOFOLLOW, mode);
    }
    let plain = flags.difference(OFlags::DIRECTORY) | OFlags::NOFOLLOW;
    // What is no folder after all must not be waited for.
    let plain = if flags.contains(OFlags::PATH) { plain } else { plain | OFlags::NONBLOCK };
    let opened = openat(at, name, plain, mode)?;
    match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
        FileType::Directory => Ok(opened),
        _ => Err(Errno::NOTDIR),
    }
}

/// Opens a path as callers name it, links and all, but never through a magic link of `/proc`.
///
/// # Errors
/// What the kernel says.
pub(crate) fn open_without_magic(
    at: Option<&OwnedFd>,
    path: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let at = at.map_or(CWD, AsFd::as_fd);
    loop {
        match openat2(at, path, flags, mode, ResolveFlags::NO_MAGICLINKS) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS) => return follow_by_hand(at, path, flags, mode),
            other => return other,
        }
    }
}

/// As a kernel without the call is asked: each link is read and followed here, and those in `/proc` are not.
fn follow_by_hand(at: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    const MOST_LINKS: usize = 40;
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let start = |path: &[u8]| openat(at, if path.starts_with(b"/") { "/" } else { "." }, way, Mode::empty());
    let mut here = start(path.as_bytes())?;
    let mut names: Vec<Vec<u8>> = split(path.as_bytes());
    let mut links = 0;
    while let Some(name) = names.pop() {
        let last = names.is_empty();
        match readlinkat(&here, &*name, Vec::new()) {
            Ok(_) if last && flags.contains(OFlags::NOFOLLOW) => return openat(&here, &*name, flags, mode),
            Ok(target) => {
                links += 1;
                if links > MOST_LINKS || fstatfs(&here)?.f_type == PROC_SUPER_MAGIC {
                    return Err(Errno::LOOP);
                }
                if target.as_bytes().starts_with(b"/") {
                    here = start(b"/")?;
                }
                names.extend(split(target.as_bytes()));
            }
            // No link, or nothing yet.
            Err(_) if last => return open_last(&here, &name, flags, mode),
            Err(_) => here = open_last(&here, &name, way, Mode::empty())?,
        }
    }
    openat(&here, ".", flags, mode)
}

/// The names of a path, last one first.
fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_lead_through_folders_only() {
        let home = tempfile::tempdir().unwrap();
        let root: OwnedFd = std::fs::File::open(home.path()).unwrap().into();
        std::fs::create_dir_all(home.path().join("a/b")).unwrap();
        std::fs::write(home.path().join("a/b/f"), "x").unwrap();
        std::os::unix::fs::symlink("a", home.path().join("l")).unwrap();
        std::os::unix::fs::symlink("f", home.path().join("a/b/g")).unwrap();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opens = |path: &[u8]| {
            let by_kernel = open(&root, path, flags, Mode::empty()).is_ok();
            let by_hand = step_by_step(&root, path, flags, Mode::empty()).is_ok();
            assert_eq!(by_kernel, by_hand, "{}: the kernel's on the left", String::from_utf8_lossy(path));
            by_kernel
        };
        assert!([&b"a"[..], b"a/b/f", b".", b"a/b"].into_iter().all(opens));
        let bad = [&b"l"[..], b"l/b/f", b"a/b/g", b"/etc", b"..", b"a/../../etc", b"a/b/f/x", b"none"];
        assert!(!bad.into_iter().any(opens));
    }

    #[test]
    fn links_are_followed_by_hand_but_none_of_proc() {
        let home = tempfile::tempdir().unwrap();
        let root: OwnedFd = std::fs::File::open(home.path()).unwrap().into();
        std::fs::create_dir_all(home.path().join("a/b")).unwrap();
        std::fs::write(home.path().join("a/b/f"), "x").unwrap();
        std::os::unix::fs::symlink("a", home.path().join("l")).unwrap();
        std::os::unix::fs::symlink("l", home.path().join("a/l")).unwrap();
        std::os::unix::fs::symlink("/proc/self/root", home.path().join("magic")).unwrap();
        let opens = |path: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let by_kernel = open_without_magic(Some(&root), path, flags, Mode::empty()).is_ok();
            let by_hand = follow_by_hand(root.as_fd(), path, flags, Mode::empty()).is_ok();
            assert_eq!(by_kernel, by_hand, "{path}: the kernel's on the left");
            by_kernel
        };
        assert!(["l/b/f", "l/../l/b", "a/b/../../l/b/f", "/etc", "/", "."].into_iter().all(opens));
        let bad = ["magic", "magic/etc", "/proc/self/root/etc", "/proc/self/fd/0", "a/l", "none", "a/b/f/x"];
        assert!(!bad.into_iter().any(opens));
    }
}
