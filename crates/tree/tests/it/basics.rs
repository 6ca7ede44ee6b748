//! Each operation once, and stock git's view of the result.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;

use bailey_protocol::api::{DiffChange, EntryKind};
use bailey_protocol::change::{Header, NoticeReason};
use bailey_tree::{Merge, TreeErrorKind, empty_tree};

use super::{Bench, file, git_output, meta, stream};

#[test]
fn a_file_that_was_written_is_read_and_listed() {
    let mut bench = Bench::new();
    let first = bench.write(None, "docs/a.txt", b"hello\n");
    let second = bench.write(Some(&first), "b", b"");
    bench.reopen();
    assert_eq!(bench.read(&second, "docs/a.txt"), b"hello\n");
    assert_eq!(bench.read(&second, "b"), b"");
    assert_eq!(bench.write(Some(&second), "b", b""), second, "nothing changed, no new version");
    let names: Vec<_> =
        bench.store.list(Some(&second), "").unwrap().into_iter().map(|e| (e.name, e.kind, e.size)).collect();
    assert_eq!(names, [("b".to_owned(), EntryKind::File, Some(0)), ("docs".to_owned(), EntryKind::Directory, None)]);
    let entry = bench.store.entry(Some(&second), "docs/a.txt").unwrap().unwrap();
    assert_eq!((entry.kind, entry.size), (EntryKind::File, Some(6)));
    assert_eq!(bench.store.entry(Some(&first), "b").unwrap(), None);
    assert_eq!(bench.store.entry(None, "").unwrap().unwrap().id, empty_tree().to_string());
    assert_eq!(bench.store.subtree(Some(&first), "none").unwrap(), None);
    assert!(bench.store.list(None, "").unwrap().is_empty());
    bench.fsck(&second);
    assert_eq!(git_output(bench.store.folder(), &["show", "main:docs/a.txt"]), "hello\n");
    let log = git_output(bench.store.folder(), &["log", "--format=%an %ae %s", "main"]);
    assert_eq!(log, "ana ana@bailey test\nana ana@bailey test\n");
}

#[test]
fn errors_say_what_is_in_the_way() {
    let bench = Bench::new();
    let base = bench.write(None, "d/f", b"x");
    let store = &bench.store;
    let write =
        |path: &str, max| store.write_file(Some(&base), path, &mut &b"yy"[..], max, false, &meta()).unwrap_err().kind();
    assert_eq!(write("d", 9), TreeErrorKind::IsADirectory);
    assert_eq!(write("", 9), TreeErrorKind::IsADirectory);
    assert_eq!(write("d/f/g", 9), TreeErrorKind::NotADirectory);
    assert_eq!(write("d/f/g/h", 9), TreeErrorKind::NotADirectory);
    assert_eq!(write("n", 1), TreeErrorKind::TooLarge);
    for bad in ["../x", "a/../../b", "/abs", "a//b", "a/", ".", "x\0y"] {
        assert_eq!(write(bad, 9), TreeErrorKind::Invalid, "{bad:?}");
        assert_eq!(store.read(&base, bad).unwrap_err().kind(), TreeErrorKind::Invalid, "{bad:?}");
    }
    assert_eq!(store.read(&base, "d").unwrap_err().kind(), TreeErrorKind::IsADirectory);
    assert_eq!(store.read(&base, "d/f/g").unwrap_err().kind(), TreeErrorKind::NotFound);
    assert_eq!(store.list(Some(&base), "d/f").unwrap_err().kind(), TreeErrorKind::NotADirectory);
    assert_eq!(store.subtree(Some(&base), "d/f").unwrap_err().kind(), TreeErrorKind::NotADirectory);
    assert_eq!(store.delete(Some(&base), "none", &meta()).unwrap(), None);
    let nobody = "0123456789012345678901234567890123456789".parse().unwrap();
    assert_eq!(store.read(&nobody, "d").unwrap_err().kind(), TreeErrorKind::NotFound);
    let tree_as_version = store.root_tree(&base).unwrap().as_str().parse().unwrap();
    assert_eq!(store.root_tree(&tree_as_version).unwrap_err().kind(), TreeErrorKind::NotFound);
    assert!(!store.contains(&tree_as_version).unwrap());
}

#[test]
fn a_large_file_is_read_in_ranges() {
    let mut bench = Bench::new();
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.to_le_bytes()).take(3 * 1024 * 1024 + 17).collect();
    let version = bench.write(None, "big", &content);
    bench.reopen();
    let mut blob = bench.store.read(&version, "big").unwrap();
    assert_eq!(blob.len(), content.len() as u64);
    for (at, length) in [(0, 10), (65_530, 20), (65_535, 1), (1_000_000, 300_000), (content.len() - 5, 5)] {
        blob.seek(SeekFrom::Start(at as u64)).unwrap();
        let mut range = vec![0; length];
        blob.read_exact(&mut range).unwrap();
        assert_eq!(range, content[at..at + length]);
    }
    blob.seek(SeekFrom::Start(u64::MAX)).unwrap();
    assert_eq!(blob.read(&mut [0; 4]).unwrap(), 0);
    assert_eq!(bench.read(&version, "big"), content);
    assert_eq!(bench.store.entry(Some(&version), "big").unwrap().unwrap().size, Some(content.len() as u64));
    bench.fsck(&version);
}

#[test]
fn changes_of_a_run_become_a_version() {
    let bench = Bench::new();
    let base = bench.write(None, "m/old/x", b"1");
    let base = bench.write(Some(&base), "m/keep", b"2");
    let records = [
        (Header::Delete { path: b"old" }, &b""[..]),
        (Header::Directory { path: b"old" }, b""),
        (Header::Directory { path: b".git/refs" }, b""),
        file(b".git/HEAD", b"ref: x"),
        (Header::File { path: b"old/run", executable: true, size: 2 }, b"#!"),
        (Header::Symlink { path: b"link", target: b"/etc/passwd" }, b""),
        (Header::Directory { path: b"empty" }, b""),
        file(b"caf\xff", b"bytes"),
        file(b"Twin", b"1"),
        file(b"twin", b"2"),
        (Header::Notice { path: b"pipe", reason: NoticeReason::Fifo }, b""),
    ];
    let applied = bench.store.apply_changes(Some(&base), "m", &mut &*stream(&records), &meta()).unwrap();
    assert_eq!(applied.notices, [(b"pipe".to_vec(), NoticeReason::Fifo)]);
    let version = applied.version.unwrap();
    assert_eq!(bench.read(&version, "m/.git/HEAD"), b"ref: x");
    assert_eq!(bench.read(&version, "m/keep"), b"2");
    assert_eq!(bench.store.entry(Some(&version), "m/old/x").unwrap(), None);
    assert_eq!(bench.store.entry(Some(&version), "m/empty").unwrap().unwrap().id, empty_tree().to_string());
    assert_eq!(bench.store.entry(Some(&version), "m/link").unwrap().unwrap().kind, EntryKind::Symlink);
    let odd = bench.store.list(Some(&version), "m").unwrap().into_iter().find(|e| e.name_base64.is_some()).unwrap();
    assert_eq!((odd.name.as_str(), odd.name_base64.as_deref()), ("caf\u{10ffff}", Some("Y2Fm/w==")));
    assert_eq!(bench.read(&version, "m/caf\u{10ffff}"), b"bytes");
    bench.fsck(&version);
    let listed = git_output(bench.store.folder(), &["ls-tree", "-r", "--name-only", "main:m"]);
    assert!(listed.contains("bailey=.git/HEAD"), "{listed}");
    let again = bench.store.apply_changes(Some(&version), "m", &mut &*stream(&[]), &meta()).unwrap();
    assert_eq!(again.version, None);

    let out = bench.dir.path().join("checkouts/one");
    bench.store.checkout(&bench.store.subtree(Some(&version), "m").unwrap().unwrap(), &out).unwrap();
    assert_eq!(fs::read(out.join(".git/HEAD")).unwrap(), b"ref: x");
    assert_eq!(fs::read_link(out.join("link")).unwrap().to_str(), Some("/etc/passwd"));
    assert!(out.join("empty").is_dir());
    assert_eq!(fs::metadata(out.join("old/run")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(out.join("keep")).unwrap().permissions().mode() & 0o7777, 0o644);
    let beside: Vec<_> = fs::read_dir(out.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(beside, ["one"]);
    bench.store.checkout(&empty_tree(), &bench.dir.path().join("checkouts/empty")).unwrap();
}

#[test]
fn a_clone_of_the_folder_works() {
    let bench = Bench::new();
    let version = bench.write(None, "a/b", b"content");
    bench.fsck(&version);
    let to = bench.dir.path().join("clone");
    git_output(bench.dir.path(), &["clone", "-q", bench.store.folder().to_str().unwrap(), to.to_str().unwrap()]);
    assert_eq!(fs::read(to.join("a/b")).unwrap(), b"content");
}

#[test]
fn history_names_the_versions_that_changed_a_path() {
    let bench = Bench::new();
    let a = bench.write(None, "x", b"1");
    let b = bench.write(Some(&a), "y", b"1");
    let c = bench.write(Some(&b), "x", b"2");
    let d = bench.store.delete(Some(&c), "x", &meta()).unwrap().unwrap();
    let versions = |path: &str, limit, after| {
        let (found, next) = bench.store.history(&d, path, limit, after).unwrap();
        (found.into_iter().map(|info| info.version).collect::<Vec<_>>(), next)
    };
    assert_eq!(versions("x", 10, None), (vec![d.clone(), c.clone(), a.clone()], None));
    assert_eq!(versions("", 10, None).0.len(), 4);
    let (first, next) = versions("x", 2, None);
    assert_eq!(first, [d.clone(), c.clone()]);
    assert_eq!(versions("x", 2, next.as_ref()), (vec![a.clone()], None));
}

#[test]
fn a_diff_lists_paths_and_text() {
    let bench = Bench::new();
    let a = bench.write(None, "d/text", b"1\n2\n3\n");
    let a = bench.write(Some(&a), "d/gone/deep", b"\0");
    let b = bench.write(Some(&a), "d/text", b"1\ntwo\n3\n");
    let b = bench.write(Some(&b), "d/new", b"\xff");
    let b = bench.store.delete(Some(&b), "d/gone", &meta()).unwrap().unwrap();
    let diff = bench.store.diff(Some(&a), &b, "d").unwrap();
    let rows: Vec<_> = diff.changes.iter().map(|c| (c.path.as_str(), c.change, c.old_size, c.new_size)).collect();
    assert_eq!(
        rows,
        [
            ("gone/deep", DiffChange::Deleted, Some(1), None),
            ("new", DiffChange::Added, None, Some(1)),
            ("text", DiffChange::Modified, Some(6), Some(8)),
        ]
    );
    assert_eq!(diff.changes[2].unified.as_deref(), Some("--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"));
    assert_eq!(diff.changes[1].unified, None);
    assert_eq!(bench.store.diff(Some(&a), &b, "d/text").unwrap().changes[0].path, "text");
    assert_eq!(bench.store.diff(None, &b, "").unwrap().changes.len(), 2);
    assert_eq!(bench.store.diff(None, &b, "none").unwrap_err().kind(), TreeErrorKind::NotFound);
}

#[test]
fn a_merge_takes_both_sides_or_names_the_conflict() {
    let bench = Bench::new();
    let base = bench.write(None, "d/common", b"0");
    let ours = bench.write(Some(&base), "d/ours", b"1");
    let theirs = bench.write(Some(&base), "d/theirs", b"2");
    let Merge::Merged(merged) = bench.store.merge(Some(&ours), &theirs, &meta()).unwrap() else { panic!("conflict") };
    for (path, content) in [("d/common", b"0"), ("d/ours", b"1"), ("d/theirs", b"2")] {
        assert_eq!(bench.read(&merged, path), content);
    }
    let parents = bench.store.history(&merged, "", 1, None).unwrap().0.remove(0).parents;
    assert_eq!(parents, [ours.clone(), theirs.clone()]);
    bench.fsck(&merged);
    let other = bench.write(Some(&base), "d/ours", b"3");
    assert_eq!(bench.store.merge(Some(&ours), &other, &meta()).unwrap(), Merge::Conflict(vec!["d/ours".to_owned()]));
    let folder = bench.write(Some(&base), "d/ours/deep", b"3");
    assert_eq!(bench.store.merge(Some(&ours), &folder, &meta()).unwrap(), Merge::Conflict(vec!["d/ours".to_owned()]));
    let gone = bench.store.delete(Some(&base), "d", &meta()).unwrap().unwrap();
    assert_eq!(bench.store.merge(Some(&ours), &gone, &meta()).unwrap(), Merge::Conflict(vec!["d".to_owned()]));
    assert_eq!(bench.store.merge(Some(&base), &gone, &meta()).unwrap(), Merge::Merged(gone));
    let same = bench.write(Some(&base), "d/ours", b"1");
    assert!(matches!(bench.store.merge(Some(&merged), &same, &meta()).unwrap(), Merge::Merged(_)));
}

#[test]
fn git_applies_the_diffs() {
    let bench = Bench::new();
    let place = bench.dir.path().join("patched");
    fs::create_dir(&place).unwrap();
    let lines: Vec<String> = (0..60).map(|n| format!("line {}\n", n % 7)).collect();
    for round in 0..12_usize {
        let mut after = lines.clone();
        after.remove(round * 4);
        after.insert((round * 11) % 59, "new\n".to_owned());
        after.insert((round * 17) % 59, "new too\n".to_owned());
        let (before, mut after) = (lines.concat(), after.concat());
        if round % 2 == 0 {
            after.truncate(after.len() - 1);
        }
        let old = bench.write(None, "f", before.as_bytes());
        let new = bench.write(Some(&old), "f", after.as_bytes());
        let patch = bench.store.diff(Some(&old), &new, "").unwrap().changes[0].unified.clone().unwrap();
        fs::write(place.join("f"), &before).unwrap();
        fs::write(place.join("patch"), &patch).unwrap();
        git_output(&place, &["apply", "patch"]);
        assert_eq!(fs::read_to_string(place.join("f")).unwrap(), after, "{patch}");
    }
}

#[test]
fn changed_paths_name_what_came_went_or_became_something_else() {
    let bench = Bench::new();
    let mut base = None;
    for path in ["m/same/x", "m/edited", "m/gone/a/b", "m/.git/config", "m/turned", "beside"] {
        base = Some(bench.write(base.as_ref(), path, b"1"));
    }
    let records = [
        file(b"edited", b"2"),
        (Header::Delete { path: b"gone" }, &b""[..]),
        (Header::Delete { path: b".git" }, b""),
        (Header::Symlink { path: b".git", target: b"x" }, b""),
        (Header::Delete { path: b"turned" }, b""),
        file(b"turned/into", b"1"),
        (Header::Directory { path: b"empty" }, b""),
        (Header::File { path: b"same/x", executable: true, size: 1 }, b"1"),
        file(b"odd\xff", b""),
    ];
    let applied = bench.store.apply_changes(base.as_ref(), "m", &mut &*stream(&records), &meta()).unwrap();
    let to = applied.version.unwrap();
    let changed = |inner: &str, most: usize| {
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut visit = |path: &[u8], _now| {
            seen.push(path.to_vec());
            if seen.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        bench.store.changed_paths(base.as_ref(), &to, inner, &mut visit).unwrap();
        seen.sort();
        seen
    };
    let all: [&[u8]; 11] = [
        b"m/.git",
        b"m/.git/config",
        b"m/edited",
        b"m/empty",
        b"m/gone",
        b"m/gone/a",
        b"m/gone/a/b",
        b"m/odd\xff",
        b"m/same/x",
        b"m/turned",
        b"m/turned/into",
    ];
    assert_eq!(changed("m", 99), all);
    assert_eq!(changed("", 99), all);
    assert_eq!(changed("m/gone/a", 99), [&b"m/gone/a"[..], b"m/gone/a/b"]);
    assert_eq!(changed("m/same", 99), [b"m/same/x"]);
    assert!(changed("beside", 99).is_empty() && changed("none", 99).is_empty());
    assert_eq!(changed("m", 3).len(), 3);
}
