//! Branches that grew apart, brought together; versions taken from store to store.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bailey_protocol::api::EntryKind;
use bailey_protocol::change::Header;
use bailey_protocol::id::VersionId;
use bailey_tree::{Brought, CommitMeta, Merge};

use super::{Bench, file, git_output, meta, stream, tenant};

fn by(author: &str, time_ms: u64) -> CommitMeta {
    CommitMeta { author: author.parse().unwrap(), time_ms, ..meta() }
}

impl Bench {
    fn write_by(&self, base: Option<&VersionId>, path: &str, content: &str, meta: &CommitMeta) -> VersionId {
        self.store.write_file(base, path, &mut content.as_bytes(), u64::MAX, false, meta).unwrap()
    }

    fn bring(&self, ours: &VersionId, theirs: &VersionId) -> Brought {
        self.store.bring(Some(ours), theirs, &meta()).unwrap().0
    }

    fn merged(&self, ours: &VersionId, theirs: &VersionId) -> VersionId {
        match self.bring(ours, theirs) {
            Brought::Merged(version) => version,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_branch_that_has_not_moved_goes_forward_and_one_that_has_everything_stays() {
    let bench = Bench::new();
    let first = bench.write(None, "a", b"1");
    let second = bench.write(Some(&first), "a", b"2");
    let third = bench.write(Some(&second), "b", b"3");
    assert_eq!(bench.bring(&first, &third), Brought::Forward);
    assert_eq!(bench.bring(&third, &first), Brought::Nothing);
    assert_eq!(bench.bring(&third, &third), Brought::Nothing);
    assert_eq!(bench.store.bring(None, &third, &meta()).unwrap().0, Brought::Forward);
    let missing = "1".repeat(40).parse().unwrap();
    assert!(bench.store.bring(Some(&first), &missing, &meta()).is_err());
}

#[test]
fn several_versions_of_each_side_are_merged_by_path_against_where_they_parted() {
    let bench = Bench::new();
    let mut base = bench.write(None, "same", b"1");
    base = bench.write(Some(&base), "dir/ours", b"1");
    base = bench.write(Some(&base), "dir/theirs", b"1");
    let mut ours = bench.write(Some(&base), "dir/ours", b"2");
    ours = bench.write(Some(&ours), "new/ours", b"1");
    let mut theirs = bench.write(Some(&base), "dir/theirs", b"2");
    theirs = bench.write(Some(&theirs), "passing", b"1");
    theirs = bench.store.delete(Some(&theirs), "passing", &meta()).unwrap().unwrap();
    let merged = bench.merged(&ours, &theirs);
    for (path, content) in [("same", "1"), ("dir/ours", "2"), ("dir/theirs", "2"), ("new/ours", "1")] {
        assert_eq!(bench.read(&merged, path), content.as_bytes(), "{path}");
    }
    assert_eq!(bench.store.entry(Some(&merged), "passing").unwrap(), None);
    bench.fsck(&merged);
    // What was merged once is not merged again: only what came since.
    let later = bench.write(Some(&theirs), "dir/theirs", b"3");
    let again = bench.merged(&merged, &later);
    assert_eq!(bench.read(&again, "dir/theirs"), b"3");
    assert_eq!(bench.bring(&again, &ours), Brought::Nothing);
}

#[test]
fn a_conflict_names_the_paths_and_makes_nothing() {
    let bench = Bench::new();
    let base = bench.write(None, "dir/a", b"1");
    let mut ours = bench.write(Some(&base), "dir/a", b"2");
    ours = bench.write(Some(&ours), "dir/both", b"x");
    let mut theirs = bench.write(Some(&base), "dir/a", b"3");
    theirs = bench.write(Some(&theirs), "dir/both", b"y");
    theirs = bench.write(Some(&theirs), "fine", b"1");
    let conflict = Brought::Conflict(vec!["dir/a".to_owned(), "dir/both".to_owned()]);
    assert_eq!(bench.bring(&ours, &theirs), conflict);
    // A file on one side and a folder on the other, and a change beside a removal, are conflicts too.
    let turned = bench.store.delete(Some(&base), "dir", &meta()).unwrap().unwrap();
    let turned = bench.write(Some(&turned), "dir", b"file");
    assert_eq!(bench.bring(&ours, &turned), Brought::Conflict(vec!["dir".to_owned()]));
}

#[test]
fn histories_without_a_common_version_meet_at_the_empty_tree() {
    let bench = Bench::new();
    let ours = bench.write(None, "a", b"1");
    let theirs = bench.write(None, "b", b"1");
    let merged = bench.merged(&ours, &theirs);
    assert_eq!((bench.read(&merged, "a"), bench.read(&merged, "b")), (b"1".to_vec(), b"1".to_vec()));
    let same = bench.write(None, "a", b"2");
    assert_eq!(bench.bring(&ours, &same), Brought::Conflict(vec!["a".to_owned()]));
}

/// Two merges that cross leave two bases. What one of them says is not enough to undo somebody's change.
#[test]
fn crossed_histories_take_nothing_over_by_the_word_of_one_base() {
    let bench = Bench::new();
    let base = bench.write(None, "f", b"old");
    let ours = bench.write(Some(&base), "f", b"new");
    let theirs = bench.write(Some(&base), "other", b"1");
    let left = bench.merged(&ours, &theirs);
    let right = bench.merged(&theirs, &ours);
    // On the left the change is taken back by purpose; on the right it stands.
    let left = bench.write(Some(&left), "f", b"old");
    let right = bench.write(Some(&right), "beside", b"1");
    match bench.bring(&left, &right) {
        Brought::Conflict(paths) => assert_eq!(paths, ["f"]),
        other => panic!("{other:?}"),
    }
    // Against any one of the bases alone it would have been decided without a word.
    assert!(matches!(bench.store.merge(Some(&left), &right, &meta()).unwrap(), Merge::Merged(_)));
}

#[test]
fn times_that_lie_change_no_result() {
    let bench = Bench::new();
    let base = bench.write_by(None, "f", "1", &by("ana", 9_000_000));
    let middle = bench.write_by(Some(&base), "f", "2", &by("ana", 1_000));
    let ours = bench.write_by(Some(&middle), "ours", "1", &by("ana", 50_000_000));
    let mut theirs = bench.write_by(Some(&middle), "theirs", "1", &by("bob", 2_000));
    assert_eq!(bench.bring(&middle, &theirs), Brought::Forward);
    assert_eq!(bench.bring(&theirs, &base), Brought::Nothing);
    // The change of `f` was taken back on one side: an older base must not bring it again.
    theirs = bench.write_by(Some(&theirs), "f", "1", &by("bob", 0));
    match bench.bring(&ours, &theirs) {
        Brought::Merged(merged) => assert_eq!(bench.read(&merged, "f"), b"1"),
        Brought::Conflict(paths) => assert_eq!(paths, ["f"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_made_what_is_brought_is_told() {
    let bench = Bench::new();
    let base = bench.write_by(None, "f", "1", &by("ana", 1_000));
    let ours = bench.write_by(Some(&base), "g", "1", &by("carl", 2_000));
    let theirs = bench.write_by(Some(&base), "f", "2", &by("bob", 3_000));
    let theirs = bench.write_by(Some(&theirs), "f", "3", &by("dora", 4_000));
    let authors = |ours: Option<&VersionId>| bench.store.bring(ours, &theirs, &meta()).unwrap().1;
    let set = |names: &[&str]| -> BTreeSet<String> { names.iter().map(ToString::to_string).collect() };
    assert_eq!(authors(Some(&ours)), set(&["bob", "dora"]));
    assert_eq!(authors(Some(&base)), set(&["bob", "dora"]));
    assert_eq!(authors(None), set(&["ana", "bob", "dora"]));
}

#[test]
fn an_imported_version_is_whole_and_its_own() {
    let bench = Bench::new();
    let other = bench.trees.store(&tenant("globex")).unwrap();
    let large = vec![7_u8; 5 << 20];
    let records = [
        file(b"bin/tool", b"#!"),
        (Header::File { path: b"bin/run", executable: true, size: 2 }, b"#!"),
        (Header::Symlink { path: b"link", target: b"bin/tool" }, b""),
        (Header::Directory { path: b"empty" }, b""),
        file(b".git/config", b"x"),
        file(b"odd\xff", b"y"),
        file(b"large", &large),
    ];
    let version = other.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let deeper = other.write_file(Some(&version), "late", &mut &b"1"[..], 9, false, &meta()).unwrap();
    assert!(!bench.store.has_whole(&deeper).unwrap());
    let taken = bench.store.import(&other, &deeper, &meta()).unwrap();
    assert_eq!(bench.store.root_tree(&taken).unwrap(), other.root_tree(&deeper).unwrap());
    assert!(bench.store.has_whole(&taken).unwrap());
    assert_eq!(bench.store.import(&other, &deeper, &meta()).unwrap(), taken);
    bench.fsck(&taken);
    assert_eq!(bench.read(&taken, "large"), large);
    assert_eq!(git_output(bench.store.folder(), &["rev-list", "--count", taken.as_str()]).trim(), "1");
    // The source may go.
    std::fs::remove_dir_all(other.folder()).unwrap();
    assert_eq!(bench.read(&taken, "late"), b"1");
}

#[test]
fn changed_paths_say_what_each_is_now() {
    let bench = Bench::new();
    let base = bench.write(None, "a/x", b"1");
    let base = bench.write(Some(&base), "b", b"1");
    let gone = bench.store.delete(Some(&base), "a", &meta()).unwrap().unwrap();
    let records = [(Header::Symlink { path: b"a", target: b"b" }, &b""[..]), file(b"new/f", b"1")];
    let to = bench.store.apply_changes(Some(&gone), "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let mut seen = Vec::new();
    let mut visit = |path: &[u8], now: Option<EntryKind>| {
        seen.push((String::from_utf8(path.to_vec()).unwrap(), now));
        ControlFlow::Continue(())
    };
    bench.store.changed_paths(Some(&base), &to, "", &mut visit).unwrap();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    let wanted = [
        ("a", Some(EntryKind::Symlink)),
        ("a/x", None),
        ("new", Some(EntryKind::Directory)),
        ("new/f", Some(EntryKind::File)),
    ];
    assert_eq!(seen, wanted.map(|(path, now)| (path.to_owned(), now)));
}
