//! Change streams and names that mean harm.

use bailey_protocol::change::{Header, NoticeReason};
use bailey_protocol::id::UserId;
use bailey_protocol::path::{BranchName, RepoId};
use bailey_tree::{TreeErrorKind, empty_tree};
use proptest::prelude::*;

use super::{Bench, file, git_output, meta, stream, tenant};

#[test]
fn a_cut_stream_changes_nothing() {
    let bench = Bench::new();
    let base = bench.write(None, "m/keep", b"1");
    let whole = stream(&[file(b"new", &[7; 300]), (Header::Delete { path: b"keep" }, b"")]);
    let packs = || std::fs::read_dir(bench.store.folder().join("objects/pack")).unwrap().count();
    let before = packs();
    for cut in 0..whole.len() {
        let error = bench.store.apply_changes(Some(&base), "m", &mut &whole[..cut], &meta()).unwrap_err();
        assert_eq!(error.kind(), TreeErrorKind::InvalidStream, "cut at {cut}: {error}");
    }
    assert_eq!(packs(), before, "nothing was left behind");
    assert!(bench.store.apply_changes(Some(&base), "m", &mut &*whole, &meta()).unwrap().version.is_some());
}

#[test]
fn nothing_is_put_below_a_file_or_link() {
    let bench = Bench::new();
    let base = bench.write(None, "m/file", b"1");
    let link = (Header::Symlink { path: b"l", target: b"/" }, &b""[..]);
    for records in [
        vec![link, file(b"l/etc/passwd", b"x")],
        vec![file(b"f", b""), (Header::Directory { path: b"f/d" }, b"")],
        vec![file(b"file/x", b"")],
    ] {
        let error = bench.store.apply_changes(Some(&base), "m", &mut &*stream(&records), &meta()).unwrap_err();
        assert!(matches!(error.kind(), TreeErrorKind::InvalidStream | TreeErrorKind::NotADirectory), "{error}");
    }
    // F03: a link on the way of a write is no way.
    let version =
        bench.store.apply_changes(Some(&base), "m", &mut &*stream(&[link]), &meta()).unwrap().version.unwrap();
    let error = bench.store.write_file(Some(&version), "m/l/tmp/x", &mut &b""[..], 9, false, &meta()).unwrap_err();
    assert_eq!(error.kind(), TreeErrorKind::NotADirectory);
    assert_eq!(bench.store.read(&version, "m/l/etc/passwd").unwrap_err().kind(), TreeErrorKind::NotFound);
    // Replacing the link itself is fine.
    let replaced = bench.write(Some(&version), "m/l", b"file");
    assert_eq!(bench.read(&replaced, "m/l"), b"file");
}

#[test]
fn paths_that_do_not_fit_the_tree_are_dropped_with_a_notice() {
    let bench = Bench::new();
    let deep = ["d"; 200].join("/");
    let base = bench.write(None, &format!("{deep}/f"), b"x");
    let names = ["n"; 100].join("/");
    let long = [&*"l".repeat(250); 15].join("/");
    let records = [
        file(names.as_bytes(), b"dropped"),
        (Header::Directory { path: names.as_bytes() }, b""),
        (Header::Symlink { path: names.as_bytes(), target: b"t" }, b""),
        file(long.as_bytes(), b"dropped"),
        file(b"kept", b"1"),
    ];
    let applied = bench.store.apply_changes(Some(&base), &deep, &mut &*stream(&records), &meta()).unwrap();
    let reasons: Vec<_> = applied.notices.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [NoticeReason::PathTooLong; 4]);
    let version = applied.version.unwrap();
    assert_eq!(bench.store.list(Some(&version), &deep).unwrap().len(), 2);
    bench.fsck(&version);
    bench.store.checkout(&bench.store.root_tree(&version).unwrap(), &bench.dir.path().join("deep")).unwrap();
}

#[test]
fn a_run_on_a_tenants_root_cannot_fill_the_place_of_its_users_trees() {
    let bench = Bench::new();
    let records = [file(b"users/ana/f", b"planted"), file(b"users", b"planted"), file(b"usersx", b"kept")];
    let applied = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap();
    let reasons: Vec<_> = applied.notices.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [NoticeReason::Reserved; 2]);
    let names: Vec<_> = bench.store.list(applied.version.as_ref(), "").unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["usersx"]);
    let below = bench.store.apply_changes(None, "m", &mut &*stream(&records), &meta()).unwrap();
    assert!(below.notices.is_empty());
}

#[test]
fn notices_are_counted_beyond_what_is_kept() {
    let bench = Bench::new();
    let notice = (Header::Notice { path: b"p", reason: NoticeReason::Device }, &b""[..]);
    let applied = bench.store.apply_changes(None, "", &mut &*stream(&vec![notice; 1500]), &meta()).unwrap();
    assert_eq!((applied.notices.len(), applied.more_notices, applied.version), (1000, 500, None));
    assert!(!bench.store.folder().join("packed-refs").exists());
}

#[test]
fn every_name_that_git_dislikes_is_kept_and_fsck_is_content() {
    let bench = Bench::new();
    let names: [&[u8]; 22] = [
        b".git",
        b".Git",
        b"git~1",
        b".git ",
        b".git...",
        b".git:x",
        b"a\\.git",
        b".g\xe2\x80\x8cit",
        b"\xef\xbb\xbf.git",
        b".GitModules",
        b"GITMOD~1",
        b"gi7eba~9",
        b"gi~12345",
        b".gitattributes ",
        b"bailey=.git",
        b"bailey=",
        b"bailey==3d",
        b"new\nline",
        b"\xff",
        b"quote\"",
        b" ",
        b"...",
    ];
    let long_lines = vec![b'x'; 5000];
    let contents: Vec<Vec<u8>> =
        names.iter().map(|name| [&b"[submodule \"..\"]\n\turl = --x\n"[..], name, &long_lines].concat()).collect();
    let mut records: Vec<_> = names.iter().zip(&contents).map(|(name, content)| file(name, content)).collect();
    let folders: Vec<Vec<u8>> = names.iter().map(|name| [b"d/", *name].concat()).collect();
    records.extend(folders.iter().map(|path| (Header::Directory { path }, &b""[..])));
    let links: Vec<Vec<u8>> = names.iter().map(|name| [b"l/", *name].concat()).collect();
    records.extend(links.iter().map(|path| (Header::Symlink { path, target: b"/etc" }, &b""[..])));
    let version = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    bench.fsck(&version);
    assert_eq!(bench.store.list(Some(&version), "").unwrap().len(), names.len() + 2);
    let out = bench.dir.path().join("out");
    bench.store.checkout(&bench.store.root_tree(&version).unwrap(), &out).unwrap();
    for (name, content) in names.iter().zip(&contents) {
        use std::os::unix::ffi::OsStrExt as _;
        let name = std::ffi::OsStr::from_bytes(name);
        assert_eq!(&std::fs::read(out.join(name)).unwrap(), content);
        assert!(out.join("d").join(name).is_dir());
        assert!(out.join("l").join(name).is_symlink());
    }
    let clone = bench.dir.path().join("clone");
    git_output(bench.dir.path(), &["clone", "-q", bench.store.folder().to_str().unwrap(), clone.to_str().unwrap()]);
    assert_eq!(git_output(&clone, &["status", "--porcelain"]), "");
}

#[test]
fn gits_own_files_are_files_like_others_and_nothing_else() {
    let bench = Bench::new();
    let (modules, attributes) = ("[submodule \"x\"]\n\tpath = x\n\turl = https://example.org/x\n", "* -text\n");
    let records = [
        file(b".gitmodules", modules.as_bytes()),
        file(b"d/.gitattributes", attributes.as_bytes()),
        (Header::Directory { path: b"e/.gitmodules" }, &b""[..]),
        file(b"e/.gitmodules/f", b"1"),
        (Header::Symlink { path: b"e/.gitattributes", target: b"/etc" }, &b""[..]),
    ];
    let applied = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap();
    let version = applied.version.unwrap();
    let told: Vec<_> = applied.notices.iter().map(|(path, reason)| (path.as_slice(), *reason)).collect();
    let reserved = bailey_protocol::change::NoticeReason::Reserved;
    assert_eq!(
        told,
        [(&b"e/.gitmodules"[..], reserved), (b"e/.gitmodules/f", reserved), (b"e/.gitattributes", reserved)]
    );
    bench.fsck(&version);
    assert_eq!(bench.read(&version, ".gitmodules"), modules.as_bytes());
    let clone = bench.dir.path().join("clone");
    bench.store.publish_refs(&[(BranchName::main(), version.clone())]).unwrap();
    git_output(bench.dir.path(), &["clone", "-q", bench.store.folder().to_str().unwrap(), clone.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(clone.join(".gitmodules")).unwrap(), modules);
    assert_eq!(std::fs::read_to_string(clone.join("d/.gitattributes")).unwrap(), attributes);
    for inner in [".gitattributes/f", "x/.gitmodules/y/z"] {
        let error = bench.store.write_file(Some(&version), inner, &mut &b"1"[..], 9, false, &meta()).unwrap_err();
        assert_eq!(error.kind(), TreeErrorKind::Invalid, "{inner}: {error}");
    }
    let source = bailey_tree::Source { store: &bench.store, version: &version, inner: "d" };
    let error = bench.store.copy(Some(&version), source, "copy/.gitattributes", &meta()).unwrap_err();
    assert_eq!(error.kind(), TreeErrorKind::Invalid, "{error}");
    assert!(bench.store.make_folder(Some(&version), "x/.gitmodules", &meta()).is_err());
}

#[test]
fn f15_bytes_that_look_like_an_object_are_only_bytes() {
    let bench = Bench::new();
    let version = bench.write(None, "d/f", b"x");
    let id = bench.store.subtree(Some(&version), "d").unwrap().unwrap();
    let raw = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "cat-file", "tree", id.as_str()])
        .current_dir(bench.store.folder())
        .output()
        .unwrap()
        .stdout;
    assert!(!raw.is_empty());
    for forged in [raw.clone(), [format!("tree {}\0", raw.len()).as_bytes(), &raw].concat()] {
        let with = bench.write(Some(&version), "forged", &forged);
        let entry = bench.store.entry(Some(&with), "forged").unwrap().unwrap();
        assert_ne!(entry.id, id.as_str());
        let as_tree = entry.id.parse().unwrap();
        let error = bench.store.checkout(&as_tree, &bench.dir.path().join("never")).unwrap_err();
        assert_eq!(error.kind(), TreeErrorKind::NotFound);
    }
}

#[test]
fn f16_a_store_sees_its_own_repository_only() {
    let bench = Bench::new();
    let version = bench.write(None, "d/secret", b"secret");
    let tree = bench.store.subtree(Some(&version), "d").unwrap().unwrap();
    let user: UserId = "ana".parse().unwrap();
    for other in [tenant("globex"), RepoId { tenant: "acme".parse().unwrap(), user: Some(user) }] {
        let store = bench.trees.store(&other).unwrap();
        assert!(!store.contains(&version).unwrap());
        let kinds = [
            store.read(&version, "d/secret").unwrap_err().kind(),
            store.list(Some(&version), "").unwrap_err().kind(),
            store.checkout(&tree, &bench.dir.path().join("never")).unwrap_err().kind(),
            store.diff(None, &version, "").unwrap_err().kind(),
            store.history(&version, "", 1, None).unwrap_err().kind(),
            store.merge(None, &version, &meta()).unwrap_err().kind(),
            store.write_file(Some(&version), "x", &mut &b""[..], 1, false, &meta()).unwrap_err().kind(),
            store.publish_refs(&[(bailey_protocol::path::BranchName::main(), version.clone())]).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [TreeErrorKind::NotFound; 8]);
        assert!(!store.folder().exists(), "a look does not make a store");
        // The same bytes written there are that store's own.
        let own = store.write_file(None, "x", &mut &b"secret"[..], 9, false, &meta()).unwrap();
        assert!(store.contains(&own).unwrap() && !bench.store.contains(&own).unwrap());
        assert_ne!(store.root_tree(&own).unwrap(), empty_tree());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn flipped_streams_apply_whole_or_not_at_all(bit in any::<prop::sample::Index>(), second in any::<prop::sample::Index>()) {
        let bench = Bench::new();
        let base = bench.write(None, "m/keep", b"1");
        let mut bytes = stream(&[
            (Header::Delete { path: b"keep" }, b""),
            (Header::Directory { path: b"d" }, b""),
            file(b"d/f", b"content"),
            (Header::Symlink { path: b"d/l", target: b"f" }, b""),
        ]);
        for bit in [bit.index(bytes.len() * 8), second.index(bytes.len() * 8)] {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let packs = || std::fs::read_dir(bench.store.folder().join("objects/pack")).unwrap().count();
        let before = packs();
        match bench.store.apply_changes(Some(&base), "m", &mut &*bytes, &meta()) {
            Ok(applied) => {
                if let Some(version) = applied.version {
                    bench.fsck(&version);
                }
            }
            Err(_) => prop_assert_eq!(packs(), before),
        }
        prop_assert_eq!(bench.read(&base, "m/keep"), b"1");
    }
}
