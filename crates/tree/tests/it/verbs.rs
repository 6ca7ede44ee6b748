//! Listing in pages, editing parts, copying, moving, restoring, reverting, blame.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bailey_protocol::api::EntryKind;
use bailey_protocol::change::Header;
use bailey_protocol::id::{RunId, VersionId};
use bailey_protocol::path::RepoId;
use bailey_tree::{CommitMeta, Globs, ListAsk, Merge, Patch, Source, Store, TreeErrorKind};
use proptest::prelude::*;

use super::{Bench, file, meta, stream};

fn all(store: &Store, version: &VersionId, inner: &str, ask: &ListAsk) -> Vec<String> {
    let mut names = Vec::new();
    let mut ask = ask.clone();
    loop {
        let page = store.list_page(Some(version), inner, &ask, &mut |_| true).unwrap();
        names.extend(page.entries.into_iter().map(|entry| entry.name));
        match page.next {
            None => return names,
            next => ask.after = next,
        }
    }
}

fn recursive(limit: usize) -> ListAsk {
    ListAsk { recursive: true, limit, ..ListAsk::default() }
}

fn kind_of(error: &bailey_tree::TreeError) -> TreeErrorKind {
    error.kind()
}

#[test]
fn pages_tell_everything_once_whatever_their_size() {
    let bench = Bench::new();
    let paths = ["a/b/c", "a/b.txt", "a-b", "a/0", "a0", "z", "a/b/.git/config", "a/b=/x"];
    let records: Vec<_> = paths.iter().map(|path| file(path.as_bytes(), b"x")).collect();
    let version = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let whole = all(&bench.store, &version, "", &recursive(1000));
    let set: BTreeSet<_> = whole.iter().cloned().collect();
    assert_eq!(set.len(), whole.len());
    assert!(paths.iter().all(|path| set.contains(*path)), "{whole:?}");
    for limit in 1..6 {
        assert_eq!(all(&bench.store, &version, "", &recursive(limit)), whole, "limit {limit}");
    }
    let flat = ListAsk { limit: 1, ..ListAsk::default() };
    assert_eq!(all(&bench.store, &version, "", &flat), ["a-b", "a", "a0", "z"]);
    assert_eq!(all(&bench.store, &version, "a/b", &recursive(1)), [".git", ".git/config", "c"].map(String::from));
}

#[test]
fn a_page_goes_on_where_the_tree_has_changed() {
    let bench = Bench::new();
    let mut version = bench.write(None, "d/a", b"1");
    for name in ["d/b", "d/c/x", "d/e"] {
        version = bench.write(Some(&version), name, b"1");
    }
    let page = bench.store.list_page(Some(&version), "", &recursive(4), &mut |_| true).unwrap();
    assert_eq!(page.entries.last().unwrap().name, "d/c");
    let gone = bench.store.delete(Some(&version), "d/c", &meta()).unwrap().unwrap();
    let rest = ListAsk { after: page.next, ..recursive(10) };
    assert_eq!(all(&bench.store, &gone, "", &rest), ["d/e"]);
    for forged in ["", "!", "AA", &"A".repeat(40_000)] {
        let ask = ListAsk { after: Some(forged.to_owned()), ..recursive(10) };
        let error = bench.store.list_page(Some(&version), "", &ask, &mut |_| true).unwrap_err();
        assert_eq!(kind_of(&error), TreeErrorKind::Invalid, "{forged}");
    }
}

#[test]
fn globs_stay_within_names_and_are_bounded() {
    let bench = Bench::new();
    let mut version = bench.write(None, "a.csv", b"1");
    for name in ["d/b.csv", "d/e/c.csv", "d/e/c.txt"] {
        version = bench.write(Some(&version), name, b"1");
    }
    let fits = |glob: &str| {
        let ask = ListAsk { globs: Globs::new(&[glob]).unwrap(), ..recursive(2) };
        all(&bench.store, &version, "", &ask)
    };
    assert_eq!(fits("*.csv"), ["a.csv"]);
    assert_eq!(fits("**/*.csv"), ["a.csv", "d/b.csv", "d/e/c.csv"]);
    assert_eq!(fits("d/*/c.{txt,md}"), ["d/e/c.txt"]);
    assert_eq!(fits("nothing"), Vec::<String>::new());
    assert!(Globs::new(&["[a"]).is_err());
    assert!(Globs::new(&["a".repeat(300)]).is_err());
    assert!(Globs::new(&vec!["a"; 17]).is_err());
}

#[test]
fn hidden_paths_are_left_out_and_names_that_are_no_text_are_exact() {
    let bench = Bench::new();
    let records = [file(b"a", b"1"), file(b"\xff\xfe", b"2"), (Header::Directory { path: b"empty" }, &b""[..])];
    let version = bench.store.apply_changes(None, "m", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let page = bench.store.list_page(Some(&version), "", &recursive(10), &mut |path| path != b"m/a").unwrap();
    let names: Vec<_> = page.entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
    assert_eq!(
        names,
        [("m", EntryKind::Directory), ("m/empty", EntryKind::Directory), ("m/\u{10ffff}\u{10fffe}", EntryKind::File)]
    );
    assert_eq!(page.entries[2].name_base64.as_deref(), Some("bS///g=="));
}

fn text(old: &str, new: &str) -> Patch {
    Patch::Text { old: old.into(), new: new.into() }
}

#[test]
fn an_edit_fits_exactly_or_not_at_all() {
    let bench = Bench::new();
    let version = bench.write(None, "f", b"one two three two");
    let edit = |patches: &[Patch]| {
        bench.store.patch_file(&version, "f", patches, None, 100, &meta()).map(|made| bench.read(&made, "f"))
    };
    assert_eq!(edit(&[text("one", "1"), text("three", "")]).unwrap(), b"1 two  two");
    assert_eq!(edit(&[Patch::Range { range: 17..17, new: b"!".to_vec() }]).unwrap(), b"one two three two!");
    assert_eq!(edit(&[Patch::Range { range: 0..3, new: Vec::new() }, text(" three", "")]).unwrap(), b" two two");
    for patches in [
        vec![text("two", "2")],
        vec![text("four", "4")],
        vec![text("", "x")],
        vec![text("one two", "x"), text("two three", "y")],
        vec![Patch::Range { range: 5..18, new: Vec::new() }],
        vec![Patch::Range { range: 5..7, new: Vec::new() }, Patch::Range { range: 6..8, new: Vec::new() }],
    ] {
        assert_eq!(kind_of(&edit(&patches).unwrap_err()), TreeErrorKind::Edit, "{patches:?}");
    }
    assert_eq!(kind_of(&edit(&vec![text("one", "1"); 17]).unwrap_err()), TreeErrorKind::TooLarge);
    assert_eq!(kind_of(&edit(&[text("one", &"1".repeat(100))]).unwrap_err()), TreeErrorKind::TooLarge);
    assert_eq!(bench.store.patch_file(&version, "f", &[], None, 100, &meta()).unwrap(), version);
    let made = bench.store.patch_file(&version, "f", &[], Some(true), 100, &meta()).unwrap();
    assert_eq!(bench.store.entry(Some(&made), "f").unwrap().unwrap().kind, EntryKind::Executable);
    bench.fsck(&made);
}

#[test]
fn a_large_file_is_edited_across_its_blocks() {
    let bench = Bench::new();
    let mut content = vec![b'a'; 3 << 20];
    content[(1 << 20) - 2..(1 << 20) + 2].copy_from_slice(b"mark");
    let version = bench.write(None, "f", &content);
    let made = bench.store.patch_file(&version, "f", &[text("mark", "x")], None, u64::MAX, &meta()).unwrap();
    content.splice((1 << 20) - 2..(1 << 20) + 2, *b"x");
    assert!(bench.read(&made, "f") == content);
    bench.fsck(&made);
}

#[test]
fn f06_links_are_neither_followed_nor_edited() {
    let bench = Bench::new();
    let records = [(Header::Symlink { path: b"l", target: b"/etc" }, &b""[..]), file(b"f", b"x")];
    let version = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let store = &bench.store;
    let error = store.patch_file(&version, "l", &[text("/etc", "/")], None, 100, &meta()).unwrap_err();
    assert_eq!(kind_of(&error), TreeErrorKind::Invalid);
    let source = Source { store, version: &version, inner: "f" };
    for target in ["l/x", "l/../x", "f/x"] {
        let error = store.copy(Some(&version), source, target, &meta()).unwrap_err();
        assert!(matches!(kind_of(&error), TreeErrorKind::NotADirectory | TreeErrorKind::Invalid), "{target}: {error}");
    }
    assert_eq!(kind_of(&store.make_folder(Some(&version), "l", &meta()).unwrap_err()), TreeErrorKind::Exists);
}

#[test]
fn copies_are_by_id_and_never_too_deep_or_too_many() {
    let bench = Bench::new();
    let version = bench.write(None, "d/a", b"1");
    let copy = |base: &VersionId, from: &str, to: &str| {
        bench.store.copy(Some(base), Source { store: &bench.store, version: base, inner: from }, to, &meta())
    };
    let made = copy(&version, "d", "x/y").unwrap();
    assert_eq!(bench.read(&made, "x/y/a"), b"1");
    assert_eq!(kind_of(&copy(&made, "d", "x").unwrap_err()), TreeErrorKind::Exists);
    assert_eq!(kind_of(&copy(&made, "d", "d/a").unwrap_err()), TreeErrorKind::Exists);
    assert_eq!(kind_of(&copy(&made, "d", "users/eve").unwrap_err()), TreeErrorKind::Invalid);
    assert_eq!(kind_of(&copy(&made, "none", "y").unwrap_err()), TreeErrorKind::NotFound);
    assert_eq!(kind_of(&copy(&made, "d", "").unwrap_err()), TreeErrorKind::Invalid);
    // Each step doubles how deep the tree is, and then how wide.
    let (mut deep, mut wide) = (Ok(made.clone()), Ok(made));
    let mut deepest = "d".to_owned();
    for _step in 0..9 {
        let target = format!("{deepest}/n");
        deep = deep.and_then(|base| copy(&base, "", &target));
        deepest = format!("{target}/{deepest}");
    }
    assert_eq!(kind_of(&deep.unwrap_err()), TreeErrorKind::Invalid);
    for step in 0..40 {
        wide = wide.and_then(|base| {
            let one = copy(&base, "d", &format!("w{step}/a"))?;
            let two = copy(&one, "d", &format!("w{step}/b"))?;
            let gone = bench.store.delete(Some(&two), "d", &meta())?.unwrap();
            bench.store.rename(&gone, &format!("w{step}"), "d", &meta())
        });
    }
    assert_eq!(kind_of(&wide.unwrap_err()), TreeErrorKind::TooLarge);
}

#[test]
fn copies_between_stores_bring_their_objects() {
    let bench = Bench::new();
    let user = RepoId { tenant: "acme".parse().unwrap(), user: Some("ana".parse().unwrap()) };
    let theirs = bench.trees.store(&user).unwrap();
    let large = vec![7; 3 << 20];
    let mut version = bench.write(None, "d/a", b"1");
    version = bench.write(Some(&version), "d/e/large", &large);
    version = bench.write(Some(&version), "d/b", b"1");
    let source = Source { store: &bench.store, version: &version, inner: "d" };
    let made = theirs.copy(None, source, "mine/d", &meta()).unwrap();
    std::fs::remove_dir_all(bench.store.folder()).unwrap();
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut theirs.read(&made, "mine/d/e/large").unwrap(), &mut content).unwrap();
    assert!(content == large);
    theirs.publish_refs(&[("main".parse().unwrap(), made)]).unwrap();
    assert_eq!(super::git_output(theirs.folder(), &["fsck", "--full", "--strict", "--no-dangling"]), "");
}

#[test]
fn a_move_takes_all_of_it_and_never_into_itself() {
    let bench = Bench::new();
    let version = bench.write(None, "d/a", b"1");
    let version = bench.store.make_folder(Some(&version), "d/empty", &meta()).unwrap();
    let rename = |from: &str, to: &str| bench.store.rename(&version, from, to, &meta());
    let made = rename("d", "e/f").unwrap();
    assert_eq!(bench.read(&made, "e/f/a"), b"1");
    assert_eq!(bench.store.entry(Some(&made), "e/f/empty").unwrap().unwrap().kind, EntryKind::Directory);
    assert_eq!(bench.store.entry(Some(&made), "d").unwrap(), None);
    assert_eq!(rename("d", "d").unwrap(), version);
    assert_eq!(kind_of(&rename("d", "d/x").unwrap_err()), TreeErrorKind::Invalid);
    assert_eq!(kind_of(&rename("d/a", "d").unwrap_err()), TreeErrorKind::Exists);
    assert_eq!(kind_of(&rename("", "x").unwrap_err()), TreeErrorKind::Invalid);
    assert_eq!(kind_of(&rename("none", "x").unwrap_err()), TreeErrorKind::NotFound);
    assert_eq!(
        bench.store.entry(Some(&rename("d/a", "d2").unwrap()), "d").unwrap().unwrap().kind,
        EntryKind::Directory
    );
    bench.fsck(&made);
}

#[test]
fn a_path_comes_back_from_a_version_as_it_was() {
    let bench = Bench::new();
    let first = bench.write(None, "d/a", b"1");
    let second = bench.write(Some(&first), "d/b", b"2");
    let third = bench.write(Some(&second), "x", b"3");
    let restored = bench.store.restore(Some(&third), "d", &first, &meta()).unwrap();
    assert_eq!(all(&bench.store, &restored, "", &recursive(10)), ["d", "d/a", "x"]);
    assert_eq!(bench.store.restore(Some(&restored), "d", &first, &meta()).unwrap(), restored);
    let whole = bench.store.restore(Some(&third), "", &first, &meta()).unwrap();
    assert_eq!(bench.store.root_tree(&whole).unwrap(), bench.store.root_tree(&first).unwrap());
    let error = bench.store.restore(Some(&third), "x", &first, &meta()).unwrap_err();
    assert_eq!(kind_of(&error), TreeErrorKind::NotFound);
}

#[test]
fn a_revert_takes_back_one_version_or_names_what_is_in_the_way() {
    let bench = Bench::new();
    let first = bench.write(None, "d/a", b"1");
    let records = [file(b"d/a", b"2"), file(b"d/new", b"n"), file(b"e", b"e")];
    let bad = bench.store.apply_changes(Some(&first), "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let later = bench.write(Some(&bad), "other", b"o");
    let Merge::Merged(back) = bench.store.revert(&later, "", &bad, &meta()).unwrap() else { panic!("a conflict") };
    assert_eq!(all(&bench.store, &back, "", &recursive(10)), ["d", "d/a", "other"]);
    assert_eq!(bench.read(&back, "d/a"), b"1");
    assert_eq!(bench.store.revert(&back, "", &bad, &meta()).unwrap(), Merge::Merged(back.clone()));
    let Merge::Merged(part) = bench.store.revert(&later, "d", &bad, &meta()).unwrap() else { panic!("a conflict") };
    assert_eq!(all(&bench.store, &part, "", &recursive(10)), ["d", "d/a", "e", "other"]);
    let Merge::Merged(one) = bench.store.revert(&later, "e", &bad, &meta()).unwrap() else { panic!("a conflict") };
    assert_eq!(all(&bench.store, &one, "", &recursive(10)), ["d", "d/a", "d/new", "other"]);
    let again = bench.write(Some(&later), "d/a", b"3");
    let conflict = bench.store.revert(&again, "", &bad, &meta()).unwrap();
    assert_eq!(conflict, Merge::Conflict(vec!["d/a".to_owned()]));
    let Merge::Merged(none) = bench.store.revert(&first, "", &first, &meta()).unwrap() else { panic!("a conflict") };
    assert_eq!(all(&bench.store, &none, "", &recursive(10)), Vec::<String>::new());
    bench.fsck(&back);
}

#[test]
fn blame_says_which_version_wrote_a_line() {
    let bench = Bench::new();
    let run = RunId::mint(1, [7; 10]);
    let first = bench.write(None, "f", b"a\nb\nc\n");
    let by_run = CommitMeta { author: "bob".parse().unwrap(), run: Some(run.clone()), ..meta() };
    let second = bench.store.write_file(Some(&first), "f", &mut &b"a\nB\nc\nd\n"[..], 100, false, &by_run).unwrap();
    let unrelated = bench.write(Some(&second), "g", b"x");
    let third = bench.write(Some(&unrelated), "f", b"new\na\nB\nc\nd\n");
    let blame = bench.store.blame(&third, "f").unwrap();
    let spans: Vec<_> =
        blame.spans.iter().map(|span| (span.first, span.lines, span.version.clone().unwrap())).collect();
    let expected = [(1, 1, &third), (2, 1, &first), (3, 1, &second), (4, 1, &first), (5, 1, &second)];
    assert_eq!(spans, expected.map(|(at, count, version)| (at, count, version.clone())));
    let info = blame.versions.iter().find(|info| info.version == second).unwrap();
    assert_eq!((info.author.as_str(), info.run.as_ref()), ("bob", Some(&run)));
    let binary = bench.write(Some(&third), "f", b"\0");
    assert_eq!(kind_of(&bench.store.blame(&binary, "f").unwrap_err()), TreeErrorKind::Invalid);
    let long = bench.write(Some(&third), "f", &b"\n".repeat(60_000));
    assert_eq!(kind_of(&bench.store.blame(&long, "f").unwrap_err()), TreeErrorKind::TooLarge);
}

#[test]
fn blame_follows_the_side_of_a_merge_that_wrote_the_text() {
    let bench = Bench::new();
    let first = bench.write(None, "f", b"a\n");
    let head = bench.write(Some(&first), "g", b"x\n");
    let theirs = bench.write(Some(&first), "f", b"a\nb\n");
    let Merge::Merged(merged) = bench.store.merge(Some(&head), &theirs, &meta()).unwrap() else { panic!("a conflict") };
    let blame = bench.store.blame(&merged, "f").unwrap();
    let versions: Vec<_> = blame.spans.iter().map(|span| span.version.clone().unwrap()).collect();
    assert_eq!(versions, [first, theirs]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn blame_attributes_each_line_to_a_version_that_has_it(
        texts in proptest::collection::vec(proptest::collection::vec(prop::sample::select(vec!["a\n", "b\n", "c\n", "d\n"]), 0..8), 1..8),
    ) {
        let bench = Bench::new();
        let mut versions: Vec<(VersionId, String)> = Vec::new();
        for text in &texts {
            let text = text.concat();
            let base = versions.last().map(|(version, _)| version.clone());
            let version = bench.write(base.as_ref(), "f", text.as_bytes());
            if base.as_ref() != Some(&version) {
                versions.push((version, text));
            }
        }
        let (head, text) = versions.last().unwrap();
        let blame = bench.store.blame(head, "f").unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        prop_assert_eq!(blame.spans.iter().map(|span| span.lines).sum::<u64>(), lines.len() as u64);
        for span in blame.spans {
            let version = span.version.unwrap();
            let (_, then) = versions.iter().find(|(known, _)| *known == version).unwrap();
            for line in &lines[span.first as usize - 1..(span.first + span.lines) as usize - 1] {
                prop_assert!(then.contains(line));
            }
        }
    }
}

#[test]
fn content_is_found_where_it_turns_up_again() {
    let bench = Bench::new();
    let records: Vec<_> = [(&b"s/deep/key"[..], &b"key"[..]), (b"s/plan", b"plan"), (b"s/empty", b""), (b"open", b"o")]
        .map(|(path, content)| file(path, content))
        .into();
    let first = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let mut contents = bailey_tree::Contents::default();
    for (mark, inner) in ["s", "s/deep/key", "not/there"].into_iter().enumerate() {
        bench.store.look_for(&mut contents, &first, inner, mark).unwrap();
        bench.store.look_for(&mut contents, &first, inner, mark).unwrap();
    }
    let mut records: Vec<_> = [
        (&b"moved/deep/key"[..], &b"key"[..]),
        (b"a", b"plan"),
        (b"caf\xe9", b"plan"),
        (b"void", b""),
        (b"other", b"o"),
        (b"s/plan", b"changed"),
    ]
    .map(|(path, content)| file(path, content))
    .into();
    records.push((Header::Delete { path: b"s/deep" }, b""));
    let second =
        bench.store.apply_changes(Some(&first), "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let mut found = |from: Option<&VersionId>, to| {
        let mut found = Vec::new();
        let mut visit = |path: &[u8], marks: &BTreeSet<usize>| {
            found.push((String::from_utf8_lossy(path).into_owned(), marks.iter().copied().collect::<Vec<_>>()));
            ControlFlow::Continue(())
        };
        bench.store.turned_up(&mut contents, from, to, &mut visit).unwrap();
        found
    };
    let expected = [("a", &[0][..]), ("caf\u{fffd}", &[0]), ("moved/deep", &[0]), ("moved/deep/key", &[0, 1])];
    let expected = expected.map(|(path, marks)| (path.to_owned(), marks.to_vec()));
    assert_eq!(found(Some(&first), &second), expected);
    assert!(found(Some(&second), &second).is_empty());
    assert!(found(None, &second).iter().any(|(path, _)| path == "moved/deep"));
}

/// Adds a folder `name` of two copies of the one at `inner`.
fn doubled(bench: &Bench, version: &VersionId, inner: &str, name: &str) -> VersionId {
    ["a", "b"].into_iter().fold(version.clone(), |base, half| {
        let source = Source { store: &bench.store, version: &base, inner };
        bench.store.copy(Some(&base), source, &format!("{name}/{half}"), &meta()).unwrap()
    })
}

#[test]
fn content_is_looked_for_in_as_many_steps_as_there_are_objects() {
    let bench = Bench::new();
    // A million files of one object.
    let mut version = bench.write(None, "0/f", b"1");
    for level in 0..20 {
        version = doubled(&bench, &version, &level.to_string(), &(level + 1).to_string());
    }
    let mut contents = bailey_tree::Contents::default();
    let nested: Vec<String> = (0..20).map(|depth| format!("20{}", "/a".repeat(depth))).collect();
    for commit in 0..100 {
        version = bench.write(Some(&version), "20/changed", format!("{commit}").as_bytes());
        for (mark, inner) in nested.iter().enumerate() {
            bench.store.look_for(&mut contents, &version, inner, mark).unwrap();
        }
    }
    assert!(!contents.is_cut_short() && contents.steps() < 100_000, "{}", contents.steps());
    // Where it turns up, each path counts.
    let mut last = None;
    let mut visit = |path: &[u8], marks: &BTreeSet<usize>| {
        last = Some((path.to_vec(), marks.len()));
        ControlFlow::Continue(())
    };
    bench.store.turned_up(&mut contents, None, &version, &mut visit).unwrap();
    assert!(contents.is_cut_short() && last.is_some());
    // Nothing more is looked at then, and it stays known.
    let steps = contents.steps();
    bench.store.look_for(&mut contents, &version, "19", 99).unwrap();
    assert!(contents.is_cut_short() && contents.steps() == steps);
}

#[test]
fn what_did_not_change_counts_where_content_turns_up() {
    let bench = Bench::new();
    let mut version = bench.write(None, "s", b"secret");
    for n in 0..50 {
        version = bench.write(Some(&version), &format!("d/{n}"), b"1");
    }
    let mut contents = bailey_tree::Contents::default();
    bench.store.look_for(&mut contents, &version, "s", 0).unwrap();
    let to = bench.write(Some(&version), "d/new", b"secret");
    let (before, mut found) = (contents.steps(), 0);
    let mut visit = |_: &[u8], _: &BTreeSet<usize>| {
        found += 1;
        ControlFlow::Break(())
    };
    bench.store.turned_up(&mut contents, Some(&version), &to, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert!(contents.steps() - before > 50 && !contents.is_cut_short());
    bench.store.turned_up(&mut contents, Some(&version), &to, &mut visit).unwrap();
    assert!(contents.is_cut_short() && found == 1);
}
