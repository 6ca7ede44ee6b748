//! Prints how long the tree takes for what the design promises. Run it with `--release`; the argument is a folder on
//! the disk to be measured.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement prints times")]

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Instant;

use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::path::{BranchName, RepoId};
use bailey_tree::{CommitMeta, Trees};

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{what:<58} {:>10.1} ms", start.elapsed().as_secs_f64() * 1000.0);
    result
}

fn many_files(count: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for n in 0..count {
        let (path, content) = (format!("d{:02}/f{n:05}", n % 100), format!("content of {n}\n"));
        Header::File { path: path.as_bytes(), executable: false, size: content.len() as u64 }
            .encode(&mut bytes)
            .unwrap();
        bytes.extend_from_slice(content.as_bytes());
    }
    Header::End { records: u64::from(count) }.encode(&mut bytes).unwrap();
    bytes
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_owned()
}

fn main() {
    let place = std::env::args().nth(1).unwrap_or_else(|| "/tmp".to_owned());
    let dir = Path::new(&place).join(format!("tree-speed-{}", std::process::id()));
    let id = RepoId { tenant: "acme".parse().unwrap(), user: None };
    let meta = CommitMeta { author: "ana".parse().unwrap(), time_ms: 0, message: "x".to_owned(), run: None };
    let trees = Trees::open(&dir.join("trees")).unwrap();
    let store = trees.store(&id).unwrap();

    let stream = many_files(10_000);
    let applied =
        timed("apply a change stream of 10,000 files", || store.apply_changes(None, "", &mut &*stream, &meta).unwrap());
    let base = applied.version.unwrap();
    let mut head = base.clone();
    timed("100 commits of one file among 10,000", || {
        for n in 0..100 {
            let content = format!("version {n}");
            head = store.write_file(Some(&head), "d42/f00042", &mut content.as_bytes(), 99, false, &meta).unwrap();
        }
    });
    timed("publish refs", || store.publish_refs(&[(BranchName::main(), head.clone())]).unwrap());
    let tree = store.root_tree(&head).unwrap();
    timed("check out 10,000 files", || store.checkout(&tree, &dir.join("out")).unwrap());
    timed("check out again", || store.checkout(&tree, &dir.join("out")).unwrap());
    timed("history of one file over 101 versions", || store.history(&head, "d42/f00042", 1000, None).unwrap());
    let diff = timed("diff 10,000 files against nothing", || store.diff(None, &head, "").unwrap());
    println!("    {} changes, truncated: {}", diff.changes.len(), diff.truncated);

    timed("2,000 commits in a chain", || {
        for n in 0..2000 {
            let path = format!("chain/{}", n % 50);
            head = store.write_file(Some(&head), &path, &mut format!("{n}").as_bytes(), 99, false, &meta).unwrap();
        }
    });
    let cold = Trees::open(&dir.join("trees")).unwrap().store(&id).unwrap();
    timed("first look into a store of 2,100 packs", || cold.list(Some(&head), "d42").unwrap());
    timed("second look", || cold.list(Some(&head), "d43").unwrap());

    println!("{}", peak_memory());
    let size = 1 << 30;
    let mut content = std::io::repeat(0x5a).take(size);
    let big =
        timed("write 1 GiB", || store.write_file(Some(&head), "big", &mut content, u64::MAX, false, &meta).unwrap());
    let mut blob = store.read(&big, "big").unwrap();
    timed("read 64 KiB at 900 MiB", || {
        blob.seek(SeekFrom::Start(900 << 20)).unwrap();
        blob.read_exact(&mut vec![0; 64 << 10]).unwrap();
    });
    blob.seek(SeekFrom::Start(0)).unwrap();
    timed("read 1 GiB", || std::io::copy(&mut blob, &mut std::io::sink()).unwrap());
    println!("{}", peak_memory());
    std::fs::remove_dir_all(dir).unwrap();
}
