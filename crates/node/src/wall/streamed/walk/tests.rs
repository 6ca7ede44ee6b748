use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct Bytes(Vec<u8>);

impl Take for Bytes {
    fn take(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        assert!(bytes.len() < 2 * PIECE, "{} bytes at once", bytes.len());
        self.0.extend(bytes);
        Ok(())
    }
}

fn stream_of(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let folder = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Bytes(Vec::new());
    walk(&folder, &mut bytes)?;
    Ok(bytes.0)
}

#[test]
fn a_folder_is_told_as_it_is_and_no_link_is_followed() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir_all(at("d/e")).unwrap();
    std::fs::write(at("d/e/f"), vec![7; 3 * PIECE + 1]).unwrap();
    std::fs::write(at("d/e/x"), "").unwrap();
    std::fs::set_permissions(at("d/e/x"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink(outside.path(), at("link")).unwrap();
    symlink(outside.path().join("secret"), at("d/file-link")).unwrap();
    let bytes = stream_of(dir.path()).unwrap();
    let data = tempfile::tempdir().unwrap();
    let trees = bailey_tree::Trees::open(data.path()).unwrap();
    let repo = "/tenants/acme".parse::<bailey_protocol::path::TreePath>().unwrap().repo().clone();
    let store = trees.store(&repo).unwrap();
    let meta =
        bailey_tree::CommitMeta { author: "ana".parse().unwrap(), time_ms: 1, message: String::new(), run: None };
    let version = store.apply_changes(None, "in", &mut &*bytes, &meta).unwrap().version.unwrap();
    let checked_out = tempfile::tempdir().unwrap();
    let tree = store.subtree(Some(&version), "in").unwrap().unwrap();
    let to = checked_out.path().join("x");
    crate::checkout::Source::write(&trees, &repo, &tree, &to).unwrap();
    let kind = |name: &str| std::fs::symlink_metadata(to.join(name)).unwrap();
    assert_eq!(std::fs::read(to.join("d/e/f")).unwrap(), vec![7; 3 * PIECE + 1]);
    assert!(kind("d/e/x").permissions().mode() & 0o111 != 0 && kind("d/e/f").permissions().mode() & 0o111 == 0);
    assert!(kind("link").is_symlink() && kind("d/file-link").is_symlink());
    let folder = rustix::fs::open(dir.path(), FOLDER, Mode::empty()).unwrap();
    let measured = measure(&folder).unwrap();
    assert!((400_000..500_000).contains(&measured), "{measured}");
}

#[test]
fn what_no_tree_holds_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    stream_of(dir.path()).unwrap_err();
    drop(socket);
}
