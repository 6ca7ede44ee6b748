//! Random histories against a model, and against stock git.

use std::collections::BTreeMap;

use bailey_protocol::api::EntryKind;
use bailey_protocol::change::Header;
use bailey_protocol::id::VersionId;
use bailey_tree::{Patch, Source, TreeErrorKind};
use proptest::prelude::*;

use super::{Bench, git_output, meta, stream};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Folder,
    File(Vec<u8>, bool),
    Link(Vec<u8>),
}

/// Every path of a tree, except its root.
type Model = BTreeMap<String, Node>;

#[derive(Debug, Clone)]
enum Change {
    Folder(String),
    File(String, Vec<u8>, bool),
    Link(String, String),
    Delete(String),
}

#[derive(Debug, Clone)]
enum Step {
    Write(String, Vec<u8>, bool),
    Delete(String),
    Changes(String, Vec<Change>),
    Copy(String, String),
    Rename(String, String),
    MakeFolder(String),
    Restore(String, usize),
    Edit(String, u64, Vec<u8>),
}

fn below(path: &str, folder: &str) -> bool {
    path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn remove(model: &mut Model, path: &str) {
    model.retain(|known, _| !below(known, path));
}

/// `None` when something on the way is a file.
fn put(model: &mut Model, path: &str, node: Node) -> Option<()> {
    for parent in parents(path) {
        let there = model.entry(parent.to_owned()).or_insert(Node::Folder);
        if *there != Node::Folder {
            return None;
        }
    }
    if node != Node::Folder || model.get(path) != Some(&Node::Folder) {
        remove(model, path);
        model.insert(path.to_owned(), node);
    }
    Some(())
}

fn apply(model: &Model, mount: &str, changes: &[Change]) -> Option<Model> {
    let mut model = model.clone();
    if parents(mount).chain([mount]).any(|at| model.get(at).is_some_and(|node| *node != Node::Folder)) {
        return None;
    }
    for change in changes {
        let at = |path: &str| format!("{mount}/{path}");
        match change {
            Change::Folder(path) => put(&mut model, &at(path), Node::Folder)?,
            Change::File(path, content, executable) => {
                put(&mut model, &at(path), Node::File(content.clone(), *executable))?;
            }
            Change::Link(path, target) => put(&mut model, &at(path), Node::Link(target.clone().into_bytes()))?,
            Change::Delete(path) => remove(&mut model, &at(path)),
        }
    }
    Some(model)
}

fn walk(bench: &Bench, version: &VersionId, folder: &str, out: &mut Model) {
    for entry in bench.store.list(Some(version), folder).unwrap() {
        let path = if folder.is_empty() { entry.name } else { format!("{folder}/{}", entry.name) };
        let node = match entry.kind {
            EntryKind::Directory => {
                walk(bench, version, &path, out);
                Node::Folder
            }
            EntryKind::Symlink => Node::Link(bench.read(version, &path)),
            kind => Node::File(bench.read(version, &path), kind == EntryKind::Executable),
        };
        if let Node::File(content, _) | Node::Link(content) = &node {
            assert_eq!(entry.size, Some(content.len() as u64));
        }
        out.insert(path, node);
    }
}

fn any_path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "a.", "A", ".git", "GIT~1", "bailey=.git", ".GitModules", "é\n"]);
    proptest::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn any_content() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..40)
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any_path().prop_map(Change::Folder),
        (any_path(), any_content(), any::<bool>()).prop_map(|(path, content, x)| Change::File(path, content, x)),
        (any_path(), "[a-z./]{1,10}").prop_map(|(path, target)| Change::Link(path, target)),
        any_path().prop_map(Change::Delete),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (any_path(), any_content(), any::<bool>()).prop_map(|(path, content, x)| Step::Write(path, content, x)),
        any_path().prop_map(Step::Delete),
        (any_path(), proptest::collection::vec(any_change(), 0..8))
            .prop_map(|(mount, changes)| Step::Changes(mount, changes)),
        (any_path(), any_path()).prop_map(|(from, to)| Step::Copy(from, to)),
        (any_path(), any_path()).prop_map(|(from, to)| Step::Rename(from, to)),
        any_path().prop_map(Step::MakeFolder),
        (any_path(), 0_usize..12).prop_map(|(path, version)| Step::Restore(path, version)),
        (any_path(), 0_u64..50, any_content()).prop_map(|(path, start, new)| Step::Edit(path, start, new)),
    ]
}

/// What is at and below a path, by the rest of each path.
fn taken(model: &Model, path: &str) -> Vec<(String, Node)> {
    model
        .iter()
        .filter(|(known, _)| below(known, path))
        .map(|(known, node)| (known[path.len()..].to_owned(), node.clone()))
        .collect()
}

/// The model with all of `things` at `path`; `None` when a file is on the way.
fn placed(model: &Model, path: &str, things: Vec<(String, Node)>) -> Option<Model> {
    let mut next = model.clone();
    remove(&mut next, path);
    for (rest, node) in things {
        put(&mut next, &format!("{path}{rest}"), node)?;
    }
    Some(next)
}

/// The model after a copy, if there can be one.
fn copied(model: &Model, from: &str, to: &str) -> Option<Model> {
    let things = taken(model, from);
    let folder = model.get(from)? == &Node::Folder;
    let free = match model.get(to) {
        None => true,
        Some(Node::Folder) => false,
        Some(_) => !folder,
    };
    if free { placed(model, to, things) } else { None }
}

fn moved(model: &Model, from: &str, to: &str) -> Option<Model> {
    if from == to {
        return model.contains_key(from).then(|| model.clone());
    }
    if below(to, from) {
        return None;
    }
    let mut next = copied(model, from, to)?;
    remove(&mut next, from);
    Some(next)
}

/// Both sides agree on whether it can be done, and on what becomes of it.
fn agree(
    done: Result<VersionId, bailey_tree::TreeError>,
    next: Option<Model>,
    head: &mut Option<VersionId>,
    model: &mut Model,
) {
    match (done, next) {
        (Ok(version), Some(next)) => (*head, *model) = (Some(version), next),
        (Err(_), None) => {}
        (done, next) => panic!("{done:?} is not {next:?}"),
    }
}

/// Does the step on both sides; both must agree on whether it can be done.
fn step(bench: &Bench, head: &mut Option<VersionId>, model: &mut Model, versions: &[(VersionId, Model)], step: &Step) {
    let store = &bench.store;
    match step {
        Step::Copy(from, to) => {
            let Some(base) = head.clone() else { return };
            let source = Source { store, version: &base, inner: from };
            agree(store.copy(Some(&base), source, to, &meta()), copied(model, from, to), head, model);
        }
        Step::Rename(from, to) => {
            let Some(base) = head.clone() else { return };
            agree(store.rename(&base, from, to, &meta()), moved(model, from, to), head, model);
        }
        Step::MakeFolder(path) => {
            let free = model.get(path).is_none_or(|node| *node == Node::Folder);
            let mut next = model.clone();
            let next = (free && put(&mut next, path, Node::Folder).is_some()).then_some(next);
            agree(store.make_folder(head.as_ref(), path, &meta()), next, head, model);
        }
        Step::Restore(path, number) => {
            let Some((version, then)) = versions.get(number % versions.len().max(1)) else { return };
            let things = taken(then, path);
            let next = if things.is_empty() { None } else { placed(model, path, things) };
            agree(store.restore(head.as_ref(), path, version, &meta()), next, head, model);
        }
        Step::Edit(path, start, new) => {
            let Some(base) = head.clone() else { return };
            let next = match model.get(path) {
                Some(Node::File(content, executable)) if *start <= content.len() as u64 => {
                    let at = usize::try_from(*start).unwrap();
                    let edited = [&content[..at], new.as_slice(), &content[at..]].concat();
                    let mut next = model.clone();
                    next.insert(path.clone(), Node::File(edited, *executable));
                    Some(next)
                }
                _ => None,
            };
            let patch = [Patch::Range { range: *start..*start, new: new.clone() }];
            agree(store.patch_file(&base, path, &patch, None, 1 << 20, &meta()), next, head, model);
        }
        Step::Write(path, content, executable) => {
            let written =
                bench.store.write_file(head.as_ref(), path, &mut content.as_slice(), 1 << 20, *executable, &meta());
            let mut next = model.clone();
            let refused = model.get(path) == Some(&Node::Folder);
            let fits = !refused && put(&mut next, path, Node::File(content.clone(), *executable)).is_some();
            assert_eq!(written.is_ok(), fits, "{written:?}");
            if let Ok(version) = written {
                (*head, *model) = (Some(version), next);
            }
        }
        Step::Delete(path) => {
            let gone = bench.store.delete(head.as_ref(), path, &meta()).unwrap();
            assert_eq!(gone.is_some(), model.contains_key(path));
            remove(model, path);
            *head = gone.or(head.take());
        }
        Step::Changes(mount, changes) => {
            let records: Vec<_> = changes.iter().map(record).collect();
            let applied = bench.store.apply_changes(head.as_ref(), mount, &mut stream(&records).as_slice(), &meta());
            match (applied, apply(model, mount, changes)) {
                (Ok(applied), Some(next)) => {
                    assert_eq!(applied.version.is_some(), next != *model);
                    *model = next;
                    *head = applied.version.or(head.take());
                }
                (Err(error), None) => {
                    assert!(matches!(error.kind(), TreeErrorKind::InvalidStream | TreeErrorKind::NotADirectory));
                }
                (applied, next) => panic!("{applied:?} is not {next:?}"),
            }
        }
    }
}

fn record(change: &Change) -> (Header<'_>, &[u8]) {
    match change {
        Change::Folder(path) => (Header::Directory { path: path.as_bytes() }, b""),
        Change::File(path, content, executable) => {
            (Header::File { path: path.as_bytes(), executable: *executable, size: content.len() as u64 }, content)
        }
        Change::Link(path, target) => (Header::Symlink { path: path.as_bytes(), target: target.as_bytes() }, b""),
        Change::Delete(path) => (Header::Delete { path: path.as_bytes() }, b""),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn random_histories_are_what_the_model_says(steps in proptest::collection::vec(any_step(), 1..12)) {
        let mut bench = Bench::new();
        let (mut head, mut model) = (None, Model::new());
        let mut versions = Vec::new();
        for one in &steps {
            step(&bench, &mut head, &mut model, &versions, one);
            if let Some(head) = &head {
                versions.push((head.clone(), model.clone()));
            }
        }
        bench.reopen();
        for (version, model) in &versions {
            let mut found = Model::new();
            walk(&bench, version, "", &mut found);
            prop_assert_eq!(&found, model);
        }
        if let Some((version, model)) = versions.last() {
            bench.fsck(version);
            let files = model.values().filter(|node| **node != Node::Folder).count();
            let listed = git_output(bench.store.folder(), &["ls-tree", "-r", "-z", "main"]);
            prop_assert_eq!(listed.matches('\0').count(), files);
            check_out(&bench, version, model);
        }
        change_over(&bench, &versions);
    }
}

/// The checkout has exactly the model's files.
fn check_out(bench: &Bench, version: &VersionId, model: &Model) {
    let dest = bench.dir.path().join("out");
    bench.store.checkout(&bench.store.root_tree(version).unwrap(), &dest).unwrap();
    assert_eq!(on_disk(&dest), *model);
}

/// The first one's checkout becomes that of each other, and each time grows by what is said.
fn change_over(bench: &Bench, versions: &[(VersionId, Model)]) {
    let Some((first, others)) = versions.split_first() else { return };
    let dest = bench.dir.path().join("changed");
    let tree = |version: &VersionId| bench.store.root_tree(version).unwrap();
    let mut from = tree(&first.0);
    bench.store.checkout(&from, &dest).unwrap();
    let size = |model: &Model| {
        let bytes = model.values().map(|node| match node {
            Node::Folder => 0,
            Node::File(content, _) | Node::Link(content) => i64::try_from(content.len()).unwrap(),
        });
        (i64::try_from(model.len()).unwrap(), bytes.sum::<i64>())
    };
    let (mut entries, mut bytes) = size(&first.1);
    for (version, model) in others {
        let to = tree(version);
        let every = u64::try_from(on_disk(&dest).len() + model.len()).unwrap();
        assert!(bench.store.is_near(&from, &to, every).unwrap());
        assert!(from == to || !bench.store.is_near(&from, &to, 0).unwrap());
        let grown = bench.store.change_checkout(&from, &to, &dest).unwrap();
        (entries, bytes) = (entries + grown.entries, bytes + grown.bytes);
        assert_eq!((on_disk(&dest), (entries, bytes)), (model.clone(), size(model)));
        from = to;
    }
}

fn on_disk(dest: &std::path::Path) -> Model {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = Model::new();
    let mut folders = vec![dest.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap();
            let node = if kind.is_dir() {
                folders.push(path.clone());
                Node::Folder
            } else if kind.is_symlink() {
                Node::Link(std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
            } else {
                Node::File(std::fs::read(&path).unwrap(), kind.permissions().mode() & 0o111 != 0)
            };
            found.insert(path.strip_prefix(dest).unwrap().to_str().unwrap().to_owned(), node);
        }
    }
    found
}
