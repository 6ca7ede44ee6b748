//! Seeds that are bytes: plain ones, and those that mean harm (F01, F10, F11, F15). `UPDATE_SEEDS=1` writes them.

#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test fails by panicking")]

use std::io::Write as _;

use bailey_protocol::change::{Header, MAGIC, NoticeReason};
use gix_hash::ObjectId;

use crate::object::{self, Kind, Mode, TreeItem};
use crate::pushed::fuzz::{MARK, closed, entry};

type Seeds = Vec<(&'static str, Vec<u8>)>;

pub(super) fn changes() -> Seeds {
    let stream = |records: &[(Header<'_>, &[u8])]| {
        let mut bytes = MAGIC.to_vec();
        for (header, content) in records {
            header.encode(&mut bytes).unwrap();
            bytes.extend_from_slice(content);
        }
        Header::End { records: records.len() as u64 }.encode(&mut bytes).unwrap();
        bytes
    };
    let file = |path, size| Header::File { path, executable: true, size };
    let plain = stream(&[
        (Header::Delete { path: b"old" }, b""),
        (Header::Directory { path: b"d" }, b""),
        (file(b"d/f", 2), b"hi"),
        (Header::Symlink { path: b"l", target: b"../../etc/passwd" }, b""),
        (Header::Notice { path: b"p", reason: NoticeReason::Fifo }, b""),
    ]);
    let failed = [MAGIC.as_slice(), b"Z\0\x05\x1b[2Jx"].concat();
    let link = Header::Symlink { path: b"d", target: b"/etc" };
    vec![
        ("plain", plain.clone()),
        ("nothing", stream(&[])),
        ("cut", plain[..plain.len() - 1].to_vec()),
        ("failed", failed),
        ("traversal", stream(&[(file(b"../keep", 1), b"x")])),
        ("absolute", stream(&[(Header::Delete { path: b"/keep" }, b"")])),
        ("through-a-link", stream(&[(link, b""), (file(b"d/passwd", 1), b"x")])),
        ("below-a-file", stream(&[(file(b"f", 1), b"x"), (file(b"f/g", 1), b"x")])),
        ("git", stream(&[(file(b".git/config", 1), b"x"), (file(b"a/.GIT", 0), b""), (file(b"bailey=x", 0), b"")])),
        ("git-files", stream(&[(Header::Directory { path: b".gitmodules" }, b""), (file(b".gitattributes", 0), b"")])),
        ("exabytes", stream(&[(file(b"f", u64::MAX), b"x")])),
        ("twice", stream(&[(file(b"f", 1), b"x"), (Header::Directory { path: b"f" }, b""), (file(b"f/g", 1), b"y")])),
    ]
}

fn tar_header(name: &[u8], flag: u8, size: u64, link: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0004755\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = flag;
    block[157..157 + link.len()].copy_from_slice(link);
    block[257..265].copy_from_slice(b"ustar\x0000");
    block
}

/// Name, kind, what a link is to, content.
type TarMember<'a> = (&'a [u8], u8, &'a [u8], &'a [u8]);

fn tar(members: &[TarMember<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, flag, link, content) in members {
        bytes.extend(tar_header(name, *flag, content.len() as u64, link));
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend([0; 1024]);
    super::archives::with_sums(&bytes)
}

/// Name in the directory, name in its own header, content, mode.
type ZipMember<'a> = (&'a [u8], &'a [u8], &'a [u8], u32);

/// Members as they are, stored.
fn zip(members: &[ZipMember<'_>], flags: u16) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, own_name, content, mode) in members {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let size = u32::try_from(content.len()).unwrap();
        let sizes = [crc.sum(), size, size].map(u32::to_le_bytes).concat();
        let (length, own_length) = (name.len() as u16, own_name.len() as u16);
        let offset = u32::try_from(bytes.len()).unwrap();
        directory.extend(b"PK\x01\x02\x14\x03\x14\0");
        directory.extend([flags, 0, 0, 0].map(u16::to_le_bytes).concat());
        directory.extend(&sizes);
        directory.extend([length, 0, 0, 0, 0].map(u16::to_le_bytes).concat());
        directory.extend([mode << 16, offset].map(u32::to_le_bytes).concat());
        directory.extend_from_slice(name);
        bytes.extend(b"PK\x03\x04\x14\0");
        bytes.extend([flags, 0, 0, 0].map(u16::to_le_bytes).concat());
        bytes.extend(&sizes);
        bytes.extend([own_length, 0].map(u16::to_le_bytes).concat());
        bytes.extend_from_slice(own_name);
        bytes.extend_from_slice(content);
    }
    let count = u16::try_from(members.len()).unwrap();
    let place = [directory.len() as u32, bytes.len() as u32].map(u32::to_le_bytes).concat();
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &[count, count].map(u16::to_le_bytes).concat(), &place, &[0, 0]].concat();
    [bytes, directory, end].concat()
}

pub(super) fn archives() -> Seeds {
    let file = |name| tar(&[(name, b'0', b"", b"x")]);
    let plain = tar(&[(b"d/", b'5', b"", b""), (b"d/f", b'0', b"", b"hello"), (b"l", b'2', b"../x", b"")]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&plain).unwrap();
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&tar(&[(b"zeros", b'0', b"", &[0; 1 << 20])])).unwrap();
    let mut negative = file(b"f");
    negative[124..136].fill(0xff);
    let one = |name, own_name, mode| zip(&[(name, own_name, b"x", mode)], 0);
    vec![
        ("tar", plain),
        ("tar-gz", gzip.finish().unwrap()),
        ("tar-bomb", bomb.finish().unwrap()),
        ("tar-traversal", file(b"../../x")),
        ("tar-absolute", file(b"/abs")),
        ("tar-through-a-link", tar(&[(b"d", b'2', b"/tmp", b""), (b"d/x", b'0', b"", b"x")])),
        ("tar-hardlinks", tar(&[(b"f", b'0', b"", b"x"), (b"g", b'1', b"f", b""), (b"h", b'1', b"../../x", b"")])),
        ("tar-devices", tar(&[(b"n", b'3', b"", b""), (b"p", b'6', b"", b"")])),
        ("tar-long-name", tar(&[(b"././@LongLink", b'L', b"", b"a/../../long\0"), (b"f", b'0', b"", b"x")])),
        ("tar-pax", tar(&[(b"pax", b'x', b"", b"15 path=../../x\n14 size=9999999\n"), (b"f", b'0', b"", b"x")])),
        (
            "tar-pax-xattr",
            tar(&[(b"p", b'x', b"", b"38 SCHILY.xattr.security.capability=x\n"), (b"f", b'0', b"", b"x")]),
        ),
        ("tar-twice", tar(&[(b"d/", b'5', b"", b""), (b"d", b'2', b"/", b"")])),
        ("tar-negative", super::archives::with_sums(&negative)),
        ("zip", zip(&[(b"d/", b"d/", b"", 0o40_755), (b"d/f", b"d/f", b"hello", 0o100_755)], 0)),
        ("zip-traversal", one(b"../../x", b"../../x", 0o100_644)),
        ("zip-two-names", one(b"f", b"../f", 0o100_644)),
        ("zip-link", zip(&[(b"d", b"d", b"/tmp", 0o120_777), (b"d/x", b"d/x", b"x", 0o100_644)], 0)),
        ("zip-encrypted", zip(&[(b"f", b"f", b"x", 0o100_644)], 1)),
    ]
}

fn folder(items: &[(&[u8], Mode, [u8; 20])]) -> Vec<u8> {
    let item = |(name, mode, id): &(&[u8], Mode, [u8; 20])| TreeItem {
        mode: (*mode).into(),
        filename: (*name).into(),
        oid: ObjectId::from(*id),
    };
    object::encode_tree(items.iter().map(item).collect()).unwrap().1
}

fn commit(tree: &str, parents: &str) -> Vec<u8> {
    let who = "ana <ana@x> 1700000000 +0000";
    format!("tree {tree}\n{parents}author {who}\ncommitter {who}\n\nwhy\n").into_bytes()
}

/// The id of the object of that number, in a folder.
fn mark(number: u8) -> [u8; 20] {
    let mut id = [number; 20];
    id[..19].copy_from_slice(&MARK);
    id
}

fn hex(number: u8) -> String {
    format!("{}{number:02}", "ee".repeat(MARK.len()))
}

pub(super) fn objects() -> Seeds {
    let input = |objects: &[(u8, Vec<u8>)]| {
        let object = |(kind, bytes): &(u8, Vec<u8>)| {
            let length = u16::try_from(bytes.len()).unwrap();
            [&[*kind][..], &length.to_be_bytes(), bytes].concat()
        };
        objects.iter().flat_map(object).collect::<Vec<u8>>()
    };
    let version = |name: &[u8], mode| {
        input(&[(b'b', b"x".to_vec()), (b't', folder(&[(name, mode, mark(0))])), (b'c', commit(&hex(1), ""))])
    };
    let inner = folder(&[(b"f", Mode::Blob, mark(0))]);
    let fan = |below: u8| {
        let names: Vec<[u8; 2]> = (b'a'..=b'p').map(|name| [b'd', name]).collect();
        (b't', folder(&names.iter().map(|name| (&name[..], Mode::Tree, mark(below))).collect::<Vec<_>>()))
    };
    let mut twice = folder(&[(b"f", Mode::Blob, mark(0))]);
    twice.extend(twice.clone());
    vec![
        ("plain", version(b"f", Mode::BlobExecutable)),
        ("link", version(b"l", Mode::Link)),
        ("traversal", version(b"..", Mode::Blob)),
        ("slash", version(b"a/b", Mode::Blob)),
        ("git", version(b".git", Mode::Blob)),
        ("git-short-name", version(b"git~1", Mode::Blob)),
        ("escape", version(b"bailey=.git", Mode::Blob)),
        ("users", version(b"users", Mode::Blob)),
        ("a-file-as-a-folder", version(b"d", Mode::Tree)),
        ("submodule", version(b"s", Mode::Commit)),
        ("a-file-that-is-a-folders-bytes", {
            input(&[
                (b'b', b"x".to_vec()),
                (b'b', inner.clone()),
                (b't', folder(&[(b"d", Mode::Tree, mark(1))])),
                (b'c', commit(&hex(2), "")),
            ])
        }),
        ("history", {
            let parent = format!("parent {}\n", hex(2));
            input(&[
                (b'b', b"x".to_vec()),
                (b't', inner),
                (b'c', commit(&hex(1), "")),
                (b't', folder(&[(b"d", Mode::Tree, mark(1))])),
                (b'c', commit(&hex(3), &parent)),
            ])
        }),
        ("many-from-few", {
            let mut all = vec![(b'b', b"x".to_vec()), (b't', folder(&[(b"f", Mode::Blob, mark(0))]))];
            all.extend((1..9).map(fan));
            all.push((b'c', commit(&hex(9), "")));
            input(&all)
        }),
        ("twice", input(&[(b'b', b"x".to_vec()), (b't', twice), (b'c', commit(&hex(1), ""))])),
        ("tag", input(&[(b'g', b"object x\n".to_vec())])),
        ("unneeded", input(&[(b'b', b"x".to_vec())])),
    ]
}

pub(super) fn packs() -> Seeds {
    let id = |kind, bytes: &[u8]| object::hash(kind, bytes).unwrap();
    let blob = id(Kind::Blob, b"hello");
    let tree = folder(&[(b"f", Mode::Blob, blob.as_slice().try_into().unwrap())]);
    let commit = commit(&id(Kind::Tree, &tree).to_string(), "");
    let tip = id(Kind::Commit, &commit).as_slice().to_vec();
    let parts = [(Kind::Blob, b"hello".to_vec()), (Kind::Tree, tree), (Kind::Commit, commit)];
    let entries: Vec<Vec<u8>> = parts.iter().map(|(kind, bytes)| entry(*kind, bytes)).collect();
    let pack = |count: u32, entries: &[u8]| [&tip[..], b"PACK\0\0\0\x02", &count.to_be_bytes(), entries].concat();
    let whole = entries.concat();
    let mut delta = entries.concat();
    delta[0] = (delta[0] & 0x8f) | 0x60;
    let mut endless = vec![0xff; 9];
    endless.push(0x7f);
    vec![
        ("plain", pack(3, &whole)),
        ("cut", pack(3, &whole[..whole.len() - 3])),
        ("more-than-it-says", pack(2, &whole)),
        ("millions", pack(u32::MAX, &whole)),
        ("delta", pack(3, &delta)),
        ("exabytes", pack(1, &endless)),
        ("a-sum-of-its-own", [&tip[..], &closed(pack(3, &whole)[20..].to_vec())].concat()),
        ("no-pack", [&tip[..], b"PACK\0\0\0\x03\0\0\0\0"].concat()),
    ]
}
