//! Packs that others made: by stock git, and by people who mean harm.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use bailey_protocol::id::VersionId;
use bailey_protocol::path::BranchName;
use bailey_tree::{PushLimits, Thoroughness, TreeError, TreeErrorKind};

use super::{Bench, git_output, tenant};

const LIMITS: PushLimits = PushLimits { file_bytes: 64 << 20, total_bytes: 256 << 20, objects: 100_000 };

pub(super) const COMMIT: u8 = 1;
pub(super) const TREE: u8 = 2;
pub(super) const BLOB: u8 = 3;
const TAG: u8 = 4;

pub(super) fn id_of(kind: u8, bytes: &[u8]) -> [u8; 20] {
    let name = ["", "commit", "tree", "blob", "tag"][usize::from(kind)];
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(format!("{name} {}\0", bytes.len()).as_bytes());
    hasher.update(bytes);
    hasher.try_finalize().unwrap().as_slice().try_into().unwrap()
}

pub(super) fn hex(id: &[u8; 20]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn header(kind: u8, size: u64) -> Vec<u8> {
    let mut bytes = vec![(kind << 4) | (size & 15) as u8];
    let mut rest = size >> 4;
    while rest > 0 {
        *bytes.last_mut().unwrap() |= 0x80;
        bytes.push((rest & 0x7f) as u8);
        rest >>= 7;
    }
    bytes
}

pub(super) fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A pack of ready-made entries, with the right checksum.
pub(super) fn framed(count: u32, body: &[u8]) -> Vec<u8> {
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    pack.extend(count.to_be_bytes());
    pack.extend_from_slice(body);
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(&pack);
    let sum = hasher.try_finalize().unwrap();
    pack.extend_from_slice(sum.as_slice());
    pack
}

fn pack(objects: &[(u8, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, bytes) in objects {
        body.extend(header(*kind, bytes.len() as u64));
        body.extend(deflated(bytes));
    }
    framed(u32::try_from(objects.len()).unwrap(), &body)
}

pub(super) fn item(mode: &str, name: &[u8], id: &[u8; 20]) -> Vec<u8> {
    [mode.as_bytes(), b" ", name, b"\0", id].concat()
}

pub(super) fn commit(tree: &[u8; 20], parents: &[[u8; 20]]) -> Vec<u8> {
    let mut text = format!("tree {}\n", hex(tree));
    for parent in parents {
        text.push_str(&format!("parent {}\n", hex(parent)));
    }
    text.push_str("author A <a@x> 1700000000 +0000\ncommitter A <a@x> 1700000000 +0000\n\nwhy\n");
    text.into_bytes()
}

/// A pack with one commit of one folder, beside `more`, and the commit's id.
pub(super) fn one_folder(tree: &[u8], more: &[(u8, &[u8])]) -> (Vec<u8>, VersionId) {
    let commit = commit(&id_of(TREE, tree), &[]);
    let mut objects = vec![(COMMIT, &*commit), (TREE, tree)];
    objects.extend(more);
    (pack(&objects), hex(&id_of(COMMIT, &commit)).parse().unwrap())
}

fn packs(bench: &Bench) -> usize {
    std::fs::read_dir(bench.store.folder().join("objects/pack")).map_or(0, Iterator::count)
}

/// That the pack is refused for a reason that says `rule`, and nothing is left of it.
fn refused(bench: &Bench, pack: &[u8], tip: &VersionId, rule: &str) -> TreeError {
    bench.store.prepare().unwrap();
    let before = packs(bench);
    let error = bench.store.take_in(&mut &*pack, std::slice::from_ref(tip), &LIMITS).unwrap_err();
    assert!(error.to_string().contains(rule), "{error}, not {rule}");
    assert_eq!(packs(bench), before, "nothing was left behind");
    assert!(!bench.store.contains(tip).unwrap());
    error
}

fn git(folder: &Path, args: &[&str]) -> String {
    let all = [&["-c", "user.name=A", "-c", "user.email=a@x", "-c", "core.autocrlf=false"][..], args].concat();
    git_output(folder, &all).trim().to_owned()
}

/// What `pack-objects` sends for `revs`.
fn git_pack(folder: &Path, revs: &str) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(["-c", "safe.directory=*", "pack-objects", "--revs", "--stdout", "--depth=0", "--window=0", "-q"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(revs.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn clone(bench: &Bench, head: &VersionId) -> std::path::PathBuf {
    bench.store.publish_refs(&[(BranchName::main(), head.clone())]).unwrap();
    let to = bench.dir.path().join("clone");
    git_output(bench.dir.path(), &["clone", "-q", bench.store.folder().to_str().unwrap(), to.to_str().unwrap()]);
    to
}

/// A refused push left a version, another a second that grew from it; garbage collection has condemned the first, and the
/// second is too young for that. Who then pushes the second is sent all of it again.
#[test]
fn what_a_version_needs_comes_anew_where_it_alone_was_left() {
    let mut bench = Bench::new();
    let blob = b"content".as_slice();
    let tree = item("100644", b"f", &id_of(BLOB, blob));
    let (first_pack, first) = one_folder(&tree, &[(BLOB, blob)]);
    let parent: [u8; 20] = id_of(COMMIT, &commit(&id_of(TREE, &tree), &[]));
    let first_commit = commit(&id_of(TREE, &tree), &[]);
    let second_commit = commit(&id_of(TREE, &tree), &[parent]);
    let second: VersionId = hex(&id_of(COMMIT, &second_commit)).parse().unwrap();
    let take = |store: &bailey_tree::Store, pack: &[u8], tip: &VersionId| {
        store.take_in(&mut &*pack, std::slice::from_ref(tip), &LIMITS).unwrap().publish().unwrap();
    };
    let collect = |store: bailey_tree::Store, heads: &[VersionId], how| {
        store.collect_garbage(|| Ok::<_, TreeError>(heads.to_vec()), how).unwrap()
    };
    take(&bench.store, &first_pack, &first);
    bench.store = bench.store.resting(None);
    collect(bench.store.awake(), &[], Thoroughness::Merge);
    let at_work = bench.store.awake();
    take(&at_work, &pack(&[(COMMIT, &second_commit)]), &second);
    assert_eq!(collect(bench.store.awake(), &[], Thoroughness::Usual).condemned, 3);
    drop(at_work);
    bench.store = bench.store.awake();
    let objects = [(COMMIT, &*second_commit), (COMMIT, &first_commit), (TREE, &tree), (BLOB, blob)];
    // What none of them needs is refused as before.
    let more = [&objects[..], &[(BLOB, b"more")]].concat();
    let refused = bench.store.take_in(&mut &*pack(&more), std::slice::from_ref(&second), &LIMITS).unwrap_err();
    assert!(refused.to_string().contains("no branch needs"), "{refused}");
    take(&bench.store, &pack(&objects), &second);
    // And it stays, whatever becomes of the garbage.
    for _ in 0..3 {
        bench.store = bench.store.resting(None);
        collect(bench.store.awake(), std::slice::from_ref(&second), Thoroughness::Thorough);
        bench.store = bench.store.awake();
    }
    assert_eq!(bench.read(&second, "f"), blob);
    bench.fsck(&second);
}

#[test]
fn what_stock_git_made_comes_back_byte_exact() {
    let bench = Bench::new();
    let base = bench.write(None, "a/.git/config", b"[core]\n");
    let base = bench.write(Some(&base), "Twin", b"1");
    let base = bench.write(Some(&base), "twin", b"2");
    let work = clone(&bench, &base);
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(work.join("large"), &large).unwrap();
    std::fs::write(work.join("h\u{e9}\u{301} \"\\\n\t*"), b"odd").unwrap();
    std::fs::write(work.join("script"), b"#!/bin/sh\n").unwrap();
    std::fs::set_permissions(work.join("script"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("../..//etc/passwd", work.join("link")).unwrap();
    std::fs::write(work.join("a/bailey=.git/config"), b"[core]\n\tbare = true\n").unwrap();
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "edit"]);
    let head: VersionId = git(&work, &["rev-parse", "HEAD"]).parse().unwrap();
    let pack = git_pack(&work, &format!("{head}\n^{base}\n"));
    let mut pushed = bench.store.take_in(&mut &*pack, std::slice::from_ref(&head), &LIMITS).unwrap();
    assert!(!bench.store.contains(&head).unwrap(), "nobody sees it yet");
    assert!(pushed.descends(&head, &base).unwrap());
    assert!(!pushed.descends(&base, &head).unwrap());
    assert!(pushed.bytes() > large.len() as u64);
    pushed.publish().unwrap();
    assert_eq!(bench.read(&head, "large"), large);
    assert_eq!(bench.read(&head, "h\u{e9}\u{301} \"\\\n\t*"), b"odd");
    assert_eq!(bench.read(&head, "a/.git/config"), b"[core]\n\tbare = true\n");
    assert_eq!(bench.read(&head, "Twin"), b"1");
    assert_eq!(bench.read(&head, "link"), b"../..//etc/passwd");
    let script = bench.store.entry(Some(&head), "script").unwrap().unwrap();
    assert_eq!(script.kind, bailey_protocol::api::EntryKind::Executable);
    bench.fsck(&head);
    // What goes on from there is as ever.
    let next = bench.write(Some(&head), "new", b"x");
    bench.fsck(&next);
    // Pushed again, it brings nothing.
    let again = bench.store.take_in(&mut &*pack, &[head], &LIMITS).unwrap();
    assert_eq!((again.objects(), again.bytes()), (0, 0));
}

#[test]
fn a_pack_that_breaks_off_anywhere_leaves_nothing() {
    let bench = Bench::new();
    let blob = b"content".as_slice();
    let (pack, tip) = one_folder(&item("100644", b"f", &id_of(BLOB, blob)), &[(BLOB, blob)]);
    for cut in 0..pack.len() {
        bench.store.prepare().unwrap();
        let error = bench.store.take_in(&mut &pack[..cut], std::slice::from_ref(&tip), &LIMITS).unwrap_err();
        assert!(matches!(error.kind(), TreeErrorKind::Input | TreeErrorKind::Invalid), "cut at {cut}: {error}");
    }
    for flip in 0..pack.len() * 8 {
        let mut damaged = pack.clone();
        damaged[flip / 8] ^= 1 << (flip % 8);
        assert!(bench.store.take_in(&mut &*damaged, std::slice::from_ref(&tip), &LIMITS).is_err(), "bit {flip}");
    }
    assert_eq!(packs(&bench), 0);
    let longer = [&*pack, b"x"].concat();
    refused(&bench, &longer, &tip, "something follows");
    bench.store.take_in(&mut &*pack, std::slice::from_ref(&tip), &LIMITS).unwrap().publish().unwrap();
    assert_eq!(bench.read(&tip, "f"), blob);
}

#[test]
fn names_that_git_acts_on_are_refused_with_their_path() {
    let bench = Bench::new();
    let blob = b"x".as_slice();
    let id = id_of(BLOB, blob);
    for name in [
        &b".git"[..],
        b".GIT",
        b".Git ",
        b"git~1",
        b".git::$INDEX_ALLOCATION",
        ".g\u{200c}it".as_bytes(),
        b".GitModules",
        b".gitattributes.",
        b"GITMOD~1",
        b"..\\.git",
    ] {
        let inner = item("100644", name, &id);
        let outer = item("40000", b"dir", &id_of(TREE, &inner));
        let (pack, tip) = one_folder(&outer, &[(TREE, &inner), (BLOB, blob)]);
        let error = refused(&bench, &pack, &tip, "git would act on that name");
        assert!(error.to_string().contains("`dir/"), "{error}");
        // A link of that name is no better.
        let (pack, tip) = one_folder(&item("120000", name, &id), &[(BLOB, blob)]);
        refused(&bench, &pack, &tip, "git would act on that name");
    }
    for (name, rule) in [
        (&b".."[..], "leave out `.`"),
        (b".", "leave out `.`"),
        (b"", "empty"),
        (b"a/b", "leave out `/`"),
        (b"../../etc/passwd", "leave out `/`"),
        (b"bailey=plain", "stand for the name that follows"),
        (b"bailey=..", "leave out `.`"),
        (b"bailey=a/b", "leave out `/`"),
        (&[b'n'; 256], "at most 255"),
        (b"users", "users' own trees"),
    ] {
        let (pack, tip) = one_folder(&item("100644", name, &id), &[(BLOB, blob)]);
        refused(&bench, &pack, &tip, rule);
    }
}

#[test]
fn gits_own_files_are_taken_in_as_files_alone() {
    let bench = Bench::new();
    let blob = b"* -text\n".as_slice();
    let id = id_of(BLOB, blob);
    for name in [&b".gitattributes"[..], b".gitmodules"] {
        let (pack, tip) = one_folder(&item("100644", name, &id), &[(BLOB, blob)]);
        bench.store.take_in(&mut &*pack, std::slice::from_ref(&tip), &LIMITS).unwrap().publish().unwrap();
        assert_eq!(bench.read(&tip, std::str::from_utf8(name).unwrap()), blob);
        let (pack, tip) = one_folder(&item("120000", name, &id), &[(BLOB, blob)]);
        refused(&bench, &pack, &tip, "only a file can have it");
        let inner = item("100644", b"f", &id);
        let (pack, tip) = one_folder(&item("40000", name, &id_of(TREE, &inner)), &[(TREE, &inner), (BLOB, blob)]);
        refused(&bench, &pack, &tip, "only a file can have it");
    }
}

#[test]
fn a_pushed_commit_that_says_a_run_made_it_is_told_without_one() {
    let mut bench = Bench::new();
    let run = bailey_protocol::id::RunId::mint(1, [7; 10]);
    let by_run = bailey_tree::CommitMeta { run: Some(run.clone()), ..super::meta() };
    let true_one = bench.store.write_file(None, "f", &mut &b"1"[..], 9, false, &by_run).unwrap();
    let tree = item("100644", b"g", &id_of(BLOB, b"1\n"));
    let text = format!(
        "tree {}\nparent {true_one}\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nx\n\nRun: {run}\n",
        hex(&id_of(TREE, &tree))
    );
    let pack = pack(&[(COMMIT, text.as_bytes()), (TREE, &tree), (BLOB, b"1\n")]);
    let tip: VersionId = hex(&id_of(COMMIT, text.as_bytes())).parse().unwrap();
    bench.store.take_in(&mut &*pack, std::slice::from_ref(&tip), &LIMITS).unwrap().publish().unwrap();
    let runs = |bench: &Bench, head: &VersionId| {
        let (versions, _) = bench.store.history(head, "", 9, None).unwrap();
        versions.into_iter().map(|version| version.run).collect::<Vec<_>>()
    };
    assert_eq!(runs(&bench, &tip), [None, Some(run.clone())]);
    let blame = bench.store.blame(&tip, "g").unwrap();
    assert_eq!(blame.versions.iter().map(|version| version.run.clone()).collect::<Vec<_>>(), [None]);
    bench.reopen();
    assert_eq!(runs(&bench, &tip), [None, Some(run.clone())]);
    // What a purge makes of it is told no other way.
    let purge = bench.store.prepare_purge("f", std::slice::from_ref(&tip)).unwrap();
    let now = purge.now(&tip);
    assert_ne!(now, tip);
    bench.store.seal_purge(purge).unwrap();
    assert_eq!(runs(&bench, &now), [None, Some(run)]);
}

#[test]
fn folders_have_gits_one_shape() {
    let bench = Bench::new();
    let blob = b"x".as_slice();
    let id = id_of(BLOB, blob);
    let good = |name: &[u8]| item("100644", name, &id);
    for (tree, rule) in [
        (item("100664", b"f", &id), "does not write any more"),
        (item("0100644", b"f", &id), "does not write any more"),
        (item("040000", b"f", &id), "does not write any more"),
        (item("060000", b"f", &id), "does not write any more"),
        (item("160000", b"f", &id), "submodules"),
        ([good(b"b"), good(b"a")].concat(), "git's order"),
        ([good(b"a"), good(b"a")].concat(), "git's order"),
        ([good(b"a"), good(b"a.b"), item("40000", b"a", &id_of(TREE, b""))].concat(), "a name twice"),
        (good(b"f")[..20].to_vec(), "cut off"),
        (b"100644".to_vec(), "cut off"),
    ] {
        let (pack, tip) = one_folder(&tree, &[(BLOB, blob)]);
        refused(&bench, &pack, &tip, rule);
    }
}

#[test]
fn commits_have_gits_one_shape() {
    let bench = Bench::new();
    let tree = hex(&id_of(TREE, b""));
    let who = "author A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n";
    for (text, rule) in [
        (format!("tree {tree}\n{who}tree {tree}\n\nx\n"), "a line twice"),
        (format!("tree {tree}\n{who}parent {tree}\n\nx\n"), "a line twice"),
        (format!("tree {}\n{who}\nx\n", tree.to_uppercase()), "`tree` and an id"),
        (format!("{who}tree {tree}\n\nx\n"), "`tree` and an id"),
        (format!("tree {tree}\n{who}"), "no message"),
        (format!("tree {tree}\nauthor A <a@x> 1 +0000\n\nx\n"), "no committer"),
        (format!("tree {tree}\nauthor A <a@x>> 1 +0000\ncommitter A <a@x> 1 +0000\n\nx\n"), "seconds zone"),
        (format!("tree {tree}\nauthor A <a@x> 99999999999999999999 +0000\ncommitter A <a@x> 1 +0000\n\nx"), "seconds"),
        (format!("tree {tree}\nauthor A\0 <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nx"), "NUL"),
        (format!("tree {tree}\n{}{who}\nx\n", format!("parent {tree}\n").repeat(65)), "64 parents"),
    ] {
        let pack = pack(&[(COMMIT, text.as_bytes()), (TREE, b"")]);
        let tip = hex(&id_of(COMMIT, text.as_bytes())).parse().unwrap();
        refused(&bench, &pack, &tip, rule);
    }
}

#[test]
fn f16_what_is_missing_is_missing_whoever_else_has_it() {
    let bench = Bench::new();
    let other = bench.trees.store(&tenant("globex")).unwrap();
    let secret = b"the other tenant's".as_slice();
    other.write_file(None, "f", &mut &*secret, 99, false, &super::meta()).unwrap();
    let told: Vec<String> = [secret, b"nobody's"]
        .iter()
        .map(|content| {
            let tree = item("100644", b"f", &id_of(BLOB, content));
            let (pack, tip) = one_folder(&tree, &[]);
            let error = refused(&bench, &pack, &tip, "neither in the push nor in this tree").to_string();
            error.replace(&hex(&id_of(BLOB, content)), "ID")
        })
        .collect();
    assert_eq!(told[0], told[1]);
    // Folders, parents and tips alike.
    let nowhere = id_of(TREE, b"x");
    let (pack_, tip) = one_folder(&item("40000", b"d", &nowhere), &[]);
    refused(&bench, &pack_, &tip, "neither in the push");
    let orphan = commit(&id_of(TREE, b""), &[nowhere]);
    let tip = hex(&id_of(COMMIT, &orphan)).parse().unwrap();
    refused(&bench, &pack(&[(COMMIT, &orphan), (TREE, b"")]), &tip, "neither in the push");
    refused(&bench, &pack(&[]), &hex(&nowhere).parse().unwrap(), "neither in the push");
    // A file where a folder is told, and the reverse.
    let (pack_, tip) = one_folder(&item("40000", b"d", &id_of(BLOB, secret)), &[(BLOB, secret)]);
    refused(&bench, &pack_, &tip, "neither in the push");
    let (pack_, tip) = one_folder(&item("100644", b"d", &id_of(TREE, b"")), &[(TREE, b"")]);
    refused(&bench, &pack_, &tip, "neither in the push");
}

#[test]
fn deltas_tags_bombs_and_needless_objects_are_refused() {
    let bench = Bench::new();
    let blob = b"x".as_slice();
    let (_, tip) = one_folder(&item("100644", b"f", &id_of(BLOB, blob)), &[(BLOB, blob)]);
    for kind in [0, 5, 6, 7] {
        refused(&bench, &framed(1, &[header(kind, 3), vec![0; 20], deflated(b"abc")].concat()), &tip, "never written");
    }
    refused(&bench, &pack(&[(TAG, b"object 0\n")]), &tip, "tags are not kept");
    let (needless, tip) = one_folder(&item("100644", b"f", &id_of(BLOB, blob)), &[(BLOB, blob), (BLOB, b"more")]);
    refused(&bench, &needless, &tip, "no branch needs");
    // A size that no disk holds is refused before a byte of it comes, and content has the size it says.
    let vast = framed(1, &[header(BLOB, 1 << 50), deflated(b"abc")].concat());
    assert_eq!(refused(&bench, &vast, &tip, "larger").kind(), TreeErrorKind::TooLarge);
    let bomb = framed(1, &[header(BLOB, 10), deflated(&vec![0; 50 << 20])].concat());
    refused(&bench, &bomb, &tip, "longer than its header says");
    let short = framed(1, &[header(BLOB, 10), deflated(b"abc")].concat());
    assert!(bench.store.take_in(&mut &*short, std::slice::from_ref(&tip), &LIMITS).is_err());
    let short = framed(1, &[header(BLOB, 2 << 20), deflated(b"abc")].concat());
    assert!(bench.store.take_in(&mut &*short, std::slice::from_ref(&tip), &LIMITS).is_err());
    // Many objects, each within its limit.
    let all = PushLimits { total_bytes: 100, ..LIMITS };
    let many = pack(&[(BLOB, &[1; 60]), (BLOB, &[2; 60])]);
    let error = bench.store.take_in(&mut &*many, std::slice::from_ref(&tip), &all).unwrap_err();
    assert_eq!(error.kind(), TreeErrorKind::TooLarge);
    refused(&bench, &framed(u32::MAX, b""), &tip, "more than 100000 objects");
    refused(&bench, b"PACK\0\0\0\x03\0\0\0\0aaaaaaaaaaaaaaaaaaaa", &tip, "not a pack of version 2");
    refused(&bench, &pack(&[]), &tip, "neither");
    assert_eq!(packs(&bench), 0);
}

#[test]
fn paths_that_do_not_fit_are_refused_wherever_a_folder_is_put() {
    let bench = Bench::new();
    let mut tree = item("100644", b"f", &id_of(BLOB, b"x"));
    let mut trees = vec![tree.clone()];
    for _ in 0..300 {
        tree = item("40000", b"d", &id_of(TREE, &tree));
        trees.push(tree.clone());
    }
    let more: Vec<(u8, &[u8])> = trees[..300].iter().map(|t| (TREE, &**t)).chain([(BLOB, &b"x"[..])]).collect();
    let (deep, tip) = one_folder(&tree, &more);
    refused(&bench, &deep, &tip, "4096 bytes or 256 names");
    // Deep but fitting, then moved deeper without sending it again.
    let more: Vec<(u8, &[u8])> = trees[..200].iter().map(|t| (TREE, &**t)).chain([(BLOB, &b"x"[..])]).collect();
    let (fits, tip) = one_folder(&trees[200], &more);
    bench.store.take_in(&mut &*fits, std::slice::from_ref(&tip), &LIMITS).unwrap().publish().unwrap();
    let mut moved = item("40000", b"d", &id_of(TREE, &trees[200]));
    let mut above = Vec::new();
    for _ in 0..100 {
        above.push(moved.clone());
        moved = item("40000", b"d", &id_of(TREE, &moved));
    }
    let more: Vec<(u8, &[u8])> = above.iter().map(|t| (TREE, &**t)).collect();
    // The first hundred of `above` are folders of the first push as well, one level at a time.
    let (pack, tip) = one_folder(&moved, &more);
    refused(&bench, &pack, &tip, "4096 bytes or 256 names");
}

/// `levels` folders within each other, each `width` times: the topmost, and all below it.
fn fanned(width: usize, levels: usize, file: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut id, mut mode) = (id_of(BLOB, file), "100644");
    let mut trees: Vec<Vec<u8>> = Vec::new();
    for _ in 0..levels {
        let tree = (0..width).map(|n| item(mode, format!("{n:04}").as_bytes(), &id)).collect::<Vec<_>>().concat();
        (id, mode) = (id_of(TREE, &tree), "40000");
        trees.push(tree);
    }
    (trees.pop().unwrap(), trees)
}

#[test]
fn f11_folders_that_are_vast_by_repetition_are_neither_taken_in_nor_written_out() {
    let bench = Bench::new();
    let push = |width, levels, file: &[u8]| {
        let (top, below) = fanned(width, levels, file);
        let more: Vec<(u8, &[u8])> = below.iter().map(|tree| (TREE, &**tree)).chain([(BLOB, file)]).collect();
        one_folder(&top, &more)
    };
    // 10^10 paths in ten folders, and a terabyte in one file of a megabyte.
    let (bomb, tip) = push(10, 10, b"x");
    assert_eq!(refused(&bench, &bomb, &tip, "entries of the pushed tree").kind(), TreeErrorKind::TooLarge);
    let (bomb, tip) = push(110, 3, &vec![0; 1 << 20]);
    assert_eq!(refused(&bench, &bomb, &tip, "with all its files").kind(), TreeErrorKind::TooLarge);
    // Fit for a tree, but not for a disk.
    for (width, levels, size, rule) in [(130, 3, 1, "entries of a folder"), (100, 2, 10 << 20, "with all its files")] {
        let (pack, tip) = push(width, levels, &vec![0; size]);
        bench.store.take_in(&mut &*pack, std::slice::from_ref(&tip), &LIMITS).unwrap().publish().unwrap();
        let out = bench.dir.path().join("out/x");
        let error = bench.store.checkout(&bench.store.root_tree(&tip).unwrap(), &out).unwrap_err();
        assert_eq!(error.kind(), TreeErrorKind::TooLarge);
        assert!(error.to_string().contains(rule), "{error}");
        assert!(!out.parent().unwrap().exists(), "nothing was written");
    }
    // Folders that were here before count as well.
    let (top, _) = fanned(130, 3, &[0]);
    let wide: Vec<u8> = (0..9).flat_map(|n| item("40000", format!("{n}").as_bytes(), &id_of(TREE, &top))).collect();
    let (bomb, tip) = one_folder(&wide, &[]);
    refused(&bench, &bomb, &tip, "entries of the pushed tree");
}

#[test]
fn everything_that_heads_lead_to_is_found_once_and_nothing_else() {
    use std::ops::ControlFlow;
    let bench = Bench::new();
    let first = bench.write(None, "gone/old", b"1");
    let second = bench.store.delete(Some(&first), "gone", &super::meta()).unwrap().unwrap();
    let head = bench.write(Some(&second), "kept/.git/x", b"2");
    let aside = bench.write(Some(&first), "aside", b"3");
    let mut paths = Vec::new();
    let whole = bench.store.every_path(std::slice::from_ref(&head), &mut |path| {
        paths.push(String::from_utf8(path.to_vec()).unwrap());
        ControlFlow::Continue(())
    });
    assert!(whole.unwrap());
    paths.sort();
    assert_eq!(paths, ["gone", "gone/old", "kept", "kept/.git", "kept/.git/x"]);
    let mut count = 0;
    let broken = bench.store.every_path(std::slice::from_ref(&head), &mut |_| {
        count += 1;
        ControlFlow::Break(())
    });
    assert_eq!((broken.unwrap(), count), (true, 1));
    let missing = |wanted: &[VersionId]| bench.store.unreachable(std::slice::from_ref(&head), wanted).unwrap();
    assert_eq!(missing(&[head.clone(), first.clone()]), None);
    assert_eq!(missing(&[first.clone(), aside.clone()]), Some(aside.clone()));
    let heads = [head.clone(), aside.clone(), first.clone()];
    let leading = |wanted: &VersionId| bench.store.leading(&heads, wanted).unwrap();
    assert_eq!(leading(&first), [true, true, true]);
    assert_eq!(leading(&second), [true, false, false]);
    assert_eq!(leading(&aside), [false, true, false]);
    assert_eq!(leading(&"0".repeat(40).parse().unwrap()), [false, false, false]);
    // What is there, but is no version.
    let file: VersionId = bench.store.entry(Some(&head), "kept/.git/x").unwrap().unwrap().id.parse().unwrap();
    assert_eq!(missing(std::slice::from_ref(&file)), Some(file));
}

#[test]
fn what_no_head_leads_to_is_found_whether_it_came_now_or_before() {
    let bench = Bench::new();
    let root = bench.write(None, "f", b"1");
    let head = bench.write(Some(&root), "f", b"2");
    let left = bench.write(Some(&root), "f", b"left behind");
    let tip = bench.write(Some(&left), "f", b"tip");
    let unlanded = |tip: &VersionId, new: &[(VersionId, Option<VersionId>)]| {
        bench.store.unlanded(std::slice::from_ref(&head), std::slice::from_ref(tip), new).unwrap()
    };
    let both = [(tip.clone(), Some(left.clone())), (left.clone(), Some(root.clone()))];
    assert_eq!(unlanded(&tip, &[]), both);
    assert_eq!(unlanded(&tip, &both[..1]), both, "what came now hides nothing that came before");
    assert_eq!(unlanded(&root, &[]), [], "an old version is under the head");
    let next = bench.write(Some(&head), "f", b"3");
    let new = [(next.clone(), Some(head.clone()))];
    assert_eq!(unlanded(&next, &new), new);
    assert_eq!(unlanded(&next, &[]), new);
}
