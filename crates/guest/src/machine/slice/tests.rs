//! Streams that tell the truth, and streams that lie. Where the files land is looked at from outside.

use std::path::Path;

use bailey_protocol::change::{Header, MAGIC};

use super::*;

/// A stream of these records, ended with their number.
fn stream(records: &[(Header<'_>, &[u8])]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (header, content) in records {
        header.encode(&mut bytes).unwrap();
        bytes.extend_from_slice(content);
    }
    Header::End { records: records.len() as u64 }.encode(&mut bytes).unwrap();
    bytes
}

/// Reads all of it into a folder.
async fn read(bytes: &[u8], into: &Path) -> Result<(), SliceError> {
    let root: std::os::fd::OwnedFd = std::fs::File::open(into).unwrap().into();
    let mut reader = SliceReader::new(BufReader::with_capacity(16, bytes));
    let mut writer = Writer::new(&root);
    fill_from(&mut reader, &mut writer).await
}

fn file<'a>(path: &'a [u8], content: &'a [u8]) -> (Header<'a>, &'a [u8]) {
    (Header::File { path, executable: false, size: content.len() as u64 }, content)
}

fn folder(path: &[u8]) -> (Header<'_>, &[u8]) {
    (Header::Directory { path }, b"")
}

#[tokio::test]
async fn a_stream_becomes_files() {
    assert!(rustix::process::geteuid().is_root(), "needs root: what is made is given away");
    let home = tempfile::tempdir().unwrap();
    let link = (Header::Symlink { path: b"d/l", target: b"/etc/passwd" }, &b""[..]);
    let long = vec![b'x'; 100_000];
    let bytes = stream(&[file(b"a", b"one"), folder(b"d"), file(b"d/b", &long), link, file(b"e", b"")]);
    read(&bytes, home.path()).await.unwrap();
    assert_eq!(std::fs::read(home.path().join("a")).unwrap(), b"one");
    assert_eq!(std::fs::read(home.path().join("d/b")).unwrap(), long);
    assert_eq!(std::fs::read(home.path().join("e")).unwrap(), b"");
    assert_eq!(std::fs::read_link(home.path().join("d/l")).unwrap(), Path::new("/etc/passwd"));
}

#[tokio::test]
async fn a_stream_that_lies_is_refused_and_nothing_is_written_outside() {
    assert!(rustix::process::geteuid().is_root(), "needs root: what is made is given away");
    let link = |target| (Header::Symlink { path: b"l", target }, &b""[..]);
    let huge = (Header::File { path: b"f", executable: false, size: u64::MAX }, &b"x"[..]);
    let good = stream(&[folder(b"d"), file(b"d/f", b"text")]);
    let cut = |at: usize| good.get(..at).unwrap().to_vec();
    let mut count = good.clone();
    *count.last_mut().unwrap() += 1;
    let mut flags = stream(&[file(b"f", b"")]);
    *flags.get_mut(12).unwrap() = 2;
    let lies = [
        ("absolute", stream(&[file(b"/outside", b"x")])),
        ("parent", stream(&[file(b"../outside", b"x")])),
        ("inner parent", stream(&[folder(b"d"), file(b"d/../../outside", b"x")])),
        ("dot", stream(&[folder(b".")])),
        ("empty name", stream(&[folder(b"d"), file(b"d//f", b"x")])),
        ("NUL", stream(&[file(b"f\0g", b"x")])),
        ("empty path", stream(&[folder(b"")])),
        ("through a link", stream(&[link(b".."), file(b"l/outside", b"x")])),
        ("deep through a link", stream(&[link(b".."), file(b"l/other/outside", b"x")])),
        ("through an absolute link", stream(&[link(b"/tmp"), file(b"l/bailey-outside", b"x")])),
        ("over a link", stream(&[link(b"../outside"), file(b"l", b"x")])),
        ("link without a target", stream(&[link(b"")])),
        ("twice", stream(&[file(b"f", b"x"), file(b"f", b"y")])),
        ("child before its parent", stream(&[file(b"d/f", b"x"), folder(b"d")])),
        ("delete", stream(&[file(b"f", b"x"), (Header::Delete { path: b"f" }, b"")])),
        ("wrong count", count),
        ("after the end", [good.clone(), b"x".to_vec()].concat()),
        ("endless", stream(&[huge])),
        ("unknown flags", flags),
        ("no magic", good.get(1..).unwrap().to_vec()),
        ("inside content", cut(good.len() - 11)),
        ("without an end", cut(good.len() - 9)),
        ("nothing", Vec::new()),
    ];
    for (name, bytes) in lies {
        let home = tempfile::tempdir().unwrap();
        let layer = home.path().join("layer");
        std::fs::create_dir(&layer).unwrap();
        std::fs::create_dir(home.path().join("other")).unwrap();
        assert!(read(&bytes, &layer).await.is_err(), "{name} was taken");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2, "{name} wrote outside");
        assert_eq!(std::fs::read_dir(home.path().join("other")).unwrap().count(), 0, "{name} wrote outside");
        assert!(!Path::new("/tmp/bailey-outside").exists(), "{name} wrote outside");
    }
}
