//! Trees that no write makes, as damage or a hostile import could.

use bailey_protocol::path::RepoId;

use crate::object::{Mode, TreeItem, tree_id};
use crate::staging::Staging;
use crate::{CommitMeta, Store, TreeErrorKind, Trees};

fn store(root: &std::path::Path) -> Store {
    let trees = Trees::open(root).unwrap();
    trees.store(&RepoId { tenant: "acme".parse().unwrap(), user: None }).unwrap()
}

#[test]
fn f10_names_that_lead_elsewhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir.path().join("trees"));
    store.ensure().unwrap();
    let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 0, message: String::new(), run: None };
    let long = "n".repeat(300);
    for name in ["..", ".", "bailey=..", "bailey=.", "bailey=", "bailey=a/../../b", "bailey=/etc/passwd", &long] {
        let mut staging = Staging::begin(store.objects()).unwrap();
        let file = staging.add_file(1, &mut &b"x"[..]).unwrap();
        let item = |mode: Mode, name: &str, oid| TreeItem { mode: mode.into(), filename: name.into(), oid };
        let folder = staging.add_tree(vec![item(Mode::Blob, "f", file)]).unwrap();
        let trees = [
            staging.add_tree(vec![item(Mode::Blob, name, file)]).unwrap(),
            staging.add_tree(vec![item(Mode::Link, name, file)]).unwrap(),
            staging.add_tree(vec![item(Mode::Tree, name, folder)]).unwrap(),
        ];
        staging.commit(&folder, &[], &meta).unwrap();
        for tree in trees {
            let dest = dir.path().join("checkouts/x");
            let error = store.checkout(&tree_id(&tree), &dest).unwrap_err();
            assert_eq!(error.kind(), TreeErrorKind::Corrupt, "{name:?}: {error}");
            assert_eq!(std::fs::read_dir(dir.path().join("checkouts")).unwrap().count(), 0);
        }
    }
}

#[test]
fn f10_a_link_and_a_folder_of_one_name_write_nothing_through_the_link() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("outside");
    std::fs::create_dir(&target).unwrap();
    let store = store(&dir.path().join("trees"));
    store.ensure().unwrap();
    let mut staging = Staging::begin(store.objects()).unwrap();
    let item = |mode: Mode, name: &str, oid| TreeItem { mode: mode.into(), filename: name.into(), oid };
    let file = staging.add_file(1, &mut &b"x"[..]).unwrap();
    let place = target.to_str().unwrap().as_bytes();
    let link = staging.add_file(place.len() as u64, &mut &*place).unwrap();
    let folder = staging.add_tree(vec![item(Mode::Blob, "f", file)]).unwrap();
    let tree = staging.add_tree(vec![item(Mode::Link, "same", link), item(Mode::Tree, "same", folder)]).unwrap();
    let twice = staging.add_tree(vec![item(Mode::Link, "same", link), item(Mode::Blob, "same", file)]).unwrap();
    let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 0, message: String::new(), run: None };
    staging.commit(&tree, &[], &meta).unwrap();
    for tree in [tree, twice] {
        assert!(store.checkout(&tree_id(&tree), &dir.path().join("checkouts/x")).is_err());
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
    }
}
