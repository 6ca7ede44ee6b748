//! Many threads on one repository, and what is published for git.

use std::sync::Arc;

use bailey_protocol::path::BranchName;
use bailey_tree::{Merge, TreeErrorKind};

use super::{Bench, git_output, meta};

#[test]
fn many_writers_on_one_new_repository_all_succeed() {
    let bench = Arc::new(Bench::new());
    let threads: Vec<_> = (0..16)
        .map(|n| {
            let bench = Arc::clone(&bench);
            std::thread::spawn(move || {
                let version = bench.write(None, &format!("deep/er/{n}"), format!("{n}").as_bytes());
                let branch = format!("runs/{n}").parse().unwrap();
                bench.store.publish_refs(&[(branch, version.clone())]).unwrap();
                version
            })
        })
        .collect();
    let heads: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut merged = heads[0].clone();
    for head in &heads[1..] {
        let Merge::Merged(next) = bench.store.merge(Some(&merged), head, &meta()).unwrap() else {
            panic!("writers of different paths cannot conflict");
        };
        merged = next;
    }
    for (n, head) in heads.iter().enumerate() {
        assert_eq!(bench.read(head, &format!("deep/er/{n}")), format!("{n}").as_bytes());
        assert_eq!(bench.read(&merged, &format!("deep/er/{n}")), format!("{n}").as_bytes());
    }
    bench.fsck(&merged);
}

#[test]
fn threads_that_write_the_same_content_agree() {
    let bench = Arc::new(Bench::new());
    let base = bench.write(None, "x", b"0");
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (bench, base) = (Arc::clone(&bench), base.clone());
            std::thread::spawn(move || bench.write(Some(&base), "same", &vec![9; 2 << 20]))
        })
        .collect();
    let versions: std::collections::BTreeSet<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(versions.len(), 1);
    let version = versions.into_iter().next().unwrap();
    assert_eq!(bench.read(&version, "same").len(), 2 << 20);
    bench.fsck(&version);
}

#[test]
fn refs_are_replaced_as_a_whole() {
    let bench = Bench::new();
    let a = bench.write(None, "x", b"1");
    let b = bench.write(Some(&a), "x", b"2");
    let branch = |name: &str| name.parse::<BranchName>().unwrap();
    let shown = || git_output(bench.store.folder(), &["for-each-ref", "--format=%(refname) %(objectname)"]);
    bench
        .store
        .publish_refs(&[(branch("z"), b.clone()), (branch("main"), a.clone()), (branch("runs/1"), b.clone())])
        .unwrap();
    let expected = format!("refs/heads/main {a}\nrefs/heads/runs/1 {b}\nrefs/heads/z {b}\n");
    assert_eq!(shown(), expected);
    let nobody = "0123456789012345678901234567890123456789".parse().unwrap();
    let error = bench.store.publish_refs(&[(branch("main"), nobody)]).unwrap_err();
    assert_eq!(error.kind(), TreeErrorKind::NotFound);
    let error = bench.store.publish_refs(&[(branch("a"), a.clone()), (branch("a/b"), b)]).unwrap_err();
    assert_eq!(error.kind(), TreeErrorKind::Invalid);
    assert_eq!(shown(), expected, "refused calls change nothing");
    bench.store.publish_refs(&[(branch("main"), a)]).unwrap();
    assert_eq!(shown().lines().count(), 1);
}

#[test]
fn checkouts_of_one_tree_by_many_threads_are_one_checkout() {
    let bench = Arc::new(Bench::new());
    let version = bench.write(None, "a/b/c", b"content");
    let tree = bench.store.root_tree(&version).unwrap();
    let dest = bench.dir.path().join("checkouts").join(tree.as_str());
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (bench, tree, dest) = (Arc::clone(&bench), tree.clone(), dest.clone());
            std::thread::spawn(move || {
                bench.store.checkout(&tree, &dest).unwrap();
                assert_eq!(std::fs::read(dest.join("a/b/c")).unwrap(), b"content");
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(std::fs::read_dir(dest.parent().unwrap()).unwrap().count(), 1);
}
