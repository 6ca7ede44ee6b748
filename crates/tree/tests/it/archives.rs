//! Archives out and in again, and tars that try to do harm (F10).

use std::io::{Read as _, Write as _};

use bailey_protocol::change::{Header, NoticeReason};
use bailey_protocol::id::VersionId;
use bailey_tree::archive::{ExtractLimits, Extracted, Format};
use bailey_tree::{ListAsk, TreeError, TreeErrorKind};
use proptest::prelude::*;

use super::{Bench, file, meta, stream};

pub(super) const LIMITS: ExtractLimits = ExtractLimits { members: 1000, file_bytes: 1 << 30, bytes: 1 << 30 };

pub(super) fn extract(
    bench: &Bench,
    base: Option<&VersionId>,
    format: Format,
    bytes: &[u8],
) -> Result<Extracted, TreeError> {
    bench.store.extract(base, "in", format, &mut &*bytes, &LIMITS, &meta())
}

pub(super) fn paths(bench: &Bench, version: &VersionId) -> Vec<String> {
    let ask = ListAsk { recursive: true, limit: 1000, ..ListAsk::default() };
    let page = bench.store.list_page(Some(version), "", &ask, &mut |_| true).unwrap();
    page.entries.into_iter().map(|entry| entry.name).collect()
}

pub(super) fn pack(bench: &Bench, version: &VersionId, inner: &str, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    bench.store.archive(version, inner, format, &mut bytes).unwrap();
    bytes
}

/// A header written by hand, so that a test may lie in any field.
fn raw(name: &[u8], flag: u8, size: u64, link: &[u8]) -> Vec<u8> {
    with(name, flag, size, link, |_| {})
}

fn with(name: &[u8], flag: u8, size: u64, link: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = flag;
    block[157..157 + link.len()].copy_from_slice(link);
    block[257..265].copy_from_slice(b"ustar\x0000");
    change(&mut block);
    block[148..156].copy_from_slice(b"        ");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn content(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(512), 0);
    padded
}

fn plain(name: &[u8], bytes: &[u8]) -> Vec<u8> {
    [raw(name, b'0', bytes.len() as u64, b""), content(bytes)].concat()
}

fn pax(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length = (rest + 1..).find(|length| length.to_string().len() + rest == *length).unwrap();
        body.extend([length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat());
    }
    [raw(b"pax", b'x', body.len() as u64, b""), content(&body)].concat()
}

fn long(flag: u8, text: &[u8]) -> Vec<u8> {
    [raw(b"././@LongLink", flag, text.len() as u64, b""), content(text)].concat()
}

fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    let mut all = members.concat();
    all.extend([0; 1024]);
    all
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn f10_a_tar_is_one_plain_reading_or_refused() {
    let bench = Bench::new();
    let base = bench.write(None, "in/keep", b"k");
    let records = [(Header::Symlink { path: b"old", target: b"/" }, &b""[..])];
    let base = bench.store.apply_changes(Some(&base), "in", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let f = || plain(b"f", b"x");
    let sparse = |block: &mut [u8]| block[257..265].copy_from_slice(b"ustar  \0");
    let negative = |block: &mut [u8]| block[124..136].fill(0xff);
    let huge = |block: &mut [u8]| block[124..136].copy_from_slice(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff");
    let no_sum = {
        let mut block = f();
        block[0] = b'g';
        block
    };
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("dot dot", vec![plain(b"../../x", b"x")]),
        ("dot dot within", vec![plain(b"a/../../x", b"x")]),
        ("absolute", vec![plain(b"/abs", b"x")]),
        ("empty name", vec![plain(b"", b"x")]),
        ("dot as a file", vec![plain(b".", b"x")]),
        ("empty name within", vec![plain(b"a//b", b"x")]),
        ("through its link", vec![raw(b"d", b'2', 0, b"/tmp"), plain(b"d/x", b"x")]),
        ("through a link of the tree", vec![plain(b"old/x", b"x")]),
        ("a folder over a link of the tree", vec![raw(b"old/", b'5', 0, b"")]),
        ("below its file", vec![f(), plain(b"f/x", b"x")]),
        ("folder, then link", vec![raw(b"d/", b'5', 0, b""), raw(b"d", b'2', 0, b"/tmp")]),
        ("folder with a file, then link", vec![plain(b"d/x", b"x"), raw(b"d", b'2', 0, b"/")]),
        ("link, then folder", vec![raw(b"d", b'2', 0, b"/tmp"), raw(b"d/", b'5', 0, b"")]),
        ("the same twice", vec![f(), plain(b"f", b"y")]),
        ("the same in two spellings", vec![f(), plain(b"./f", b"y")]),
        ("second name outside", vec![raw(b"h", b'1', 0, b"../../etc/passwd")]),
        ("second name absolute", vec![raw(b"h", b'1', 0, b"/etc/passwd")]),
        ("second name of what comes later", vec![raw(b"h", b'1', 0, b"f"), f()]),
        ("second name of the tree's", vec![raw(b"h", b'1', 0, b"keep")]),
        ("second name of a link", vec![raw(b"l", b'2', 0, b"/etc/passwd"), raw(b"h", b'1', 0, b"l")]),
        ("second name with content", vec![f(), raw(b"h", b'1', 1, b"f"), content(b"x")]),
        ("link with content", vec![raw(b"l", b'2', 1, b"f"), content(b"x")]),
        ("folder with content", vec![raw(b"d/", b'5', 1, b""), content(b"x")]),
        ("link to nothing", vec![raw(b"l", b'2', 0, b"")]),
        ("sparse", vec![with(b"s", b'S', 0, b"", sparse)]),
        ("sparse by PAX", vec![pax(&[(b"GNU.sparse.major", b"1")]), f()]),
        ("sparse name by PAX", vec![pax(&[(b"GNU.sparse.name", b"../x")]), f()]),
        ("negative size", vec![with(b"f", b'0', 0, b"", negative)]),
        ("huge size", vec![with(b"f", b'0', 0, b"", huge)]),
        ("PAX path outside", vec![pax(&[(b"path", b"../x")]), f()]),
        ("PAX path with NUL", vec![pax(&[(b"path", b"a\0b")]), f()]),
        ("PAX path twice", vec![pax(&[(b"path", b"a"), (b"path", b"b")]), f()]),
        ("PAX empty path", vec![pax(&[(b"path", b"")]), f()]),
        ("PAX size", vec![pax(&[(b"size", b"1024")]), f(), content(b"x")]),
        ("PAX size smaller", vec![pax(&[(b"size", b"0")]), f()]),
        ("PAX size signed", vec![pax(&[(b"size", b"+1")]), f()]),
        ("PAX unknown", vec![pax(&[(b"VENDOR.thing", b"1")]), f()]),
        ("PAX twice", vec![pax(&[(b"mtime", b"1")]), pax(&[(b"mtime", b"1")]), f()]),
        ("PAX broken", vec![[raw(b"pax", b'x', 9, b""), content(b"99 path=a")].concat(), f()]),
        ("PAX huge", vec![raw(b"pax", b'x', 2 << 20, b""), vec![0; 2 << 20], f()]),
        ("PAX global path", vec![[raw(b"g", b'g', 10, b""), content(b"10 path=a\n")].concat(), f()]),
        ("long name outside", vec![long(b'L', b"../../x\0"), f()]),
        ("long name with NUL", vec![long(b'L', b"a\0b\0"), f()]),
        ("two long names", vec![long(b'L', b"a\0"), long(b'L', b"b\0"), f()]),
        ("long name and PAX name", vec![long(b'L', b"a\0"), pax(&[(b"path", b"b")]), f()]),
        ("long name huge", vec![raw(b"x", b'L', 1 << 20, b""), vec![b'a'; 1 << 20], f()]),
        ("a name of 256 bytes", vec![long(b'L', &[b'n'; 256]), f()]),
        ("a path of 4100 bytes", vec![long(b'L', &[&b"n/".repeat(2050)[..], b"f"].concat()), f()]),
        ("300 names", vec![long(b'L', &[&b"n/".repeat(300)[..], b"f"].concat()), f()]),
        ("a long name for nothing", vec![f(), long(b'L', b"a\0")]),
        ("unknown kind", vec![raw(b"v", b'V', 0, b"")]),
        ("multi-volume", vec![raw(b"v", b'M', 0, b"")]),
        ("a checksum that is wrong", vec![no_sum]),
        ("more after the end", vec![f(), vec![0; 1024], plain(b"g", b"y")]),
        ("one block of zeros, then more", vec![f(), vec![0; 512], plain(b"g", b"y")]),
    ];
    for (what, members) in cases {
        let bytes = tar(&members);
        for bytes in [bytes.clone(), gzip(&bytes)] {
            let error = extract(&bench, Some(&base), Format::Tar, &bytes).expect_err(what);
            assert!(
                matches!(error.kind(), TreeErrorKind::Archive | TreeErrorKind::TooLarge),
                "{what}: {error} ({:?})",
                error.kind()
            );
        }
    }
    assert_eq!(paths(&bench, &base), ["in", "in/keep", "in/old"]);
    let fine = extract(&bench, Some(&base), Format::Tar, &tar(&[f()])).unwrap();
    assert_eq!(paths(&bench, &fine.version.unwrap()), ["in", "in/f", "in/keep", "in/old"]);
}

#[test]
fn f10_every_truncation_is_refused() {
    let bench = Bench::new();
    let whole = tar(&[plain(b"a", &[b'x'; 700]), long(b'L', &[b'n'; 150]), plain(b"x", b"y")]);
    for cut in (0..whole.len() - 512).step_by(100) {
        let error = extract(&bench, None, Format::Tar, &whole[..cut]).unwrap_err();
        assert_eq!(error.kind(), TreeErrorKind::Archive, "{cut}: {error}");
    }
    let packed = gzip(&whole);
    for cut in 0..packed.len() {
        extract(&bench, None, Format::Tar, &packed[..cut]).unwrap_err();
    }
    for garbage in [&b"x"[..], b"\x1f\x8b", b"PK"] {
        let error = extract(&bench, None, Format::Tar, &[&packed, garbage].concat()).unwrap_err();
        assert_eq!(error.kind(), TreeErrorKind::Archive, "{error}");
    }
}

#[test]
fn f10_what_a_tree_cannot_hold_is_a_notice() {
    let bench = Bench::new();
    let special = |block: &mut [u8]| block[100..108].copy_from_slice(b"0007755\0");
    let members = [
        raw(b"dev", b'3', 0, b""),
        raw(b"disk", b'4', 0, b""),
        raw(b"pipe", b'6', 0, b""),
        [with(b"suid", b'0', 1, b"", special), content(b"x")].concat(),
        with(b"sticky/", b'5', 0, b"", special),
        pax(&[(b"SCHILY.xattr.security.capability", b"\x01\0\0\x02"), (b"mtime", b"1.5")]),
        plain(b"cap", b"x"),
        pax(&[(b"LIBARCHIVE.xattr.trusted.overlay.opaque", b"eQ==")]),
        raw(b"opaque/", b'5', 0, b""),
        plain(b"f", b"x"),
        raw(b"h", b'1', 0, b"./f"),
        raw(b"./", b'5', 0, b""),
        raw(b"l", b'2', 0, b"../../../etc/passwd"),
        plain(b".wh.x", b""),
    ];
    let done = extract(&bench, None, Format::Tar, &tar(&members)).unwrap();
    let version = done.version.unwrap();
    let notices: Vec<_> = done.notices.iter().map(|(path, why)| (str::from_utf8(path).unwrap(), *why)).collect();
    let expected = [
        ("dev", NoticeReason::Device),
        ("disk", NoticeReason::Device),
        ("pipe", NoticeReason::Fifo),
        ("suid", NoticeReason::SpecialBits),
        ("sticky", NoticeReason::SpecialBits),
        ("cap", NoticeReason::Xattr),
        ("opaque", NoticeReason::Xattr),
        ("h", NoticeReason::HardLink),
    ];
    assert_eq!(notices, expected);
    assert_eq!(
        paths(&bench, &version),
        ["in", "in/.wh.x", "in/cap", "in/f", "in/h", "in/l", "in/opaque", "in/sticky", "in/suid"]
    );
    assert_eq!(bench.read(&version, "in/l"), b"../../../etc/passwd");
    bench.fsck(&version);
}

#[test]
fn f10_bombs_end_early() {
    let bench = Bench::new();
    let small = ExtractLimits { members: 3, file_bytes: 10, bytes: 15 };
    let try_in = |bytes: &[u8], limits| {
        bench.store.extract(None, "", Format::Tar, &mut &*bytes, limits, &meta()).unwrap_err().kind()
    };
    assert_eq!(try_in(&tar(&[plain(b"f", &[1; 11])]), &small), TreeErrorKind::TooLarge);
    assert_eq!(try_in(&tar(&[plain(b"f", &[1; 10]), plain(b"g", &[1; 10])]), &small), TreeErrorKind::TooLarge);
    let many: Vec<_> = (0..4).map(|n| raw(format!("d{n}/").as_bytes(), b'5', 0, b"")).collect();
    assert_eq!(try_in(&tar(&many), &small), TreeErrorKind::TooLarge);
    // 200 MB of zeros in 200 KB, as one file, as a tail, and in a member that is passed over.
    let zeros = vec![0; 200 << 20];
    let file = [raw(b"f", b'0', zeros.len() as u64, b""), zeros.clone(), vec![0; 1024]].concat();
    assert_eq!(try_in(&gzip(&file), &LIMITS), TreeErrorKind::Archive);
    assert_eq!(try_in(&gzip(&zeros), &LIMITS), TreeErrorKind::Archive);
    assert_eq!(try_in(&zeros, &LIMITS), TreeErrorKind::Archive);
}

#[test]
fn f10_users_of_a_tenant_are_not_in_its_archives() {
    let bench = Bench::new();
    let at = |inner: &str| {
        bench.store.extract(None, inner, Format::Tar, &mut &*tar(&[plain(b"users/eve/x", b"x")]), &LIMITS, &meta())
    };
    assert_eq!(at("").unwrap_err().kind(), TreeErrorKind::Archive);
    at("below").unwrap();
    assert_eq!(at("users/eve").unwrap_err().kind(), TreeErrorKind::Invalid);
}

#[test]
fn a_broken_connection_is_not_the_archives_fault() {
    struct Broken<'a>(&'a [u8]);
    impl std::io::Read for Broken<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(out)? {
                0 => Err(std::io::ErrorKind::ConnectionAborted.into()),
                count => Ok(count),
            }
        }
    }
    let bench = Bench::new();
    let bytes = tar(&[plain(b"f", b"x")]);
    for (format, cut) in [(Format::Tar, 300), (Format::Tar, 600), (Format::Zip, 300)] {
        let error = bench.store.extract(None, "", format, &mut Broken(&bytes[..cut]), &LIMITS, &meta()).unwrap_err();
        assert_eq!(error.kind(), TreeErrorKind::Input, "{cut}");
    }
}

#[test]
fn tars_of_other_tools_come_in() {
    let bench = Bench::new();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o100_755);
    let long = format!("{}/f", "long".repeat(40));
    builder.append_data(&mut header, &long, &b"abc"[..]).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(1);
    header.set_mode(0o644);
    header.set_path(format!("{}/{}", "p".repeat(90), "n".repeat(90))).unwrap();
    header.set_cksum();
    builder.append(&header, &b"x"[..]).unwrap();
    let bytes = builder.into_inner().unwrap();
    let version = extract(&bench, None, Format::Tar, &bytes).unwrap().version.unwrap();
    assert_eq!(bench.read(&version, &format!("in/{long}")), b"abc");
    assert_eq!(bench.read(&version, &format!("in/{}/{}", "p".repeat(90), "n".repeat(90))), b"x");
    let old = with(b"dir/", 0, 0, b"", |block| block[257..265].fill(0));
    let version = extract(&bench, None, Format::Tar, &tar(&[old])).unwrap().version.unwrap();
    assert_eq!(paths(&bench, &version), ["in", "in/dir"]);
}

#[test]
fn gits_own_archive_comes_in() {
    let bench = Bench::new();
    let version = bench.write(None, "d/f", b"text");
    bench.fsck(&version);
    let out = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "archive", "--format=tar", version.as_str()])
        .current_dir(bench.store.folder())
        .output()
        .unwrap();
    assert!(out.status.success());
    let made = extract(&bench, None, Format::Tar, &out.stdout).unwrap().version.unwrap();
    assert_eq!(bench.read(&made, "in/d/f"), b"text");
}

#[test]
fn what_goes_out_is_what_other_tools_read() {
    let bench = Bench::new();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    let target = "t".repeat(300);
    let records = [
        file(long.as_bytes(), b"long"),
        (Header::File { path: b"x", executable: true, size: 1 }, b"x"),
        (Header::Symlink { path: b"l", target: target.as_bytes() }, b""),
        (Header::Directory { path: b"empty" }, b""),
    ];
    let version = bench.store.apply_changes(None, "m", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let bytes = pack(&bench, &version, "m", Format::Tar);
    assert_eq!(bytes, pack(&bench, &version, "m", Format::Tar), "the same version, the same bytes");
    let mut seen = Vec::new();
    for entry in tar::Archive::new(&*bytes).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let link = entry.link_name().unwrap().map(|link| link.display().to_string());
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 1_700_000_000));
        seen.push((entry.path().unwrap().display().to_string(), header.mode().unwrap(), text, link));
    }
    let folder = format!("{}/", "d".repeat(120));
    let expected = [
        (folder.as_str(), 0o755, "", None),
        (long.as_str(), 0o644, "long", None),
        ("empty/", 0o755, "", None),
        ("l", 0o777, "", Some(target.as_str())),
        ("x", 0o755, "x", None),
    ];
    let expected =
        expected.map(|(path, mode, text, link)| (path.to_owned(), mode, text.to_owned(), link.map(String::from)));
    assert_eq!(seen, expected);
    let one = pack(&bench, &version, "m/x", Format::Tar);
    assert_eq!(tar::Archive::new(&*one).entries().unwrap().count(), 1);
}

#[derive(Debug, Clone)]
enum Node {
    File(Vec<u8>, bool),
    Link(Vec<u8>),
    Folder,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![
            &b".git"[..],
            b"a",
            b"A",
            b"bailey=x",
            b" ",
            b"\xff\x01",
            b"u\xcc\x88",
            b"\xc3\xbc",
            b"a\nb",
            b"..x",
            b"c\\d"
        ])
        .prop_map(<[u8]>::to_vec),
        proptest::collection::vec(1_u8.., 1..130)
            .prop_filter("a name", |name| !name.contains(&b'/') && name != b"." && name != b".."),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    prop_oneof![
        (proptest::collection::vec(any::<u8>(), 0..1500), any::<bool>())
            .prop_map(|(bytes, bit)| Node::File(bytes, bit)),
        proptest::collection::vec(1_u8.., 1..300).prop_map(Node::Link),
        Just(Node::Folder),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_tree_comes_back_from_its_archive_byte_for_byte(
        entries in proptest::collection::vec((proptest::collection::vec(name(), 1..4), node()), 0..12),
    ) {
        let bench = Bench::new();
        let mut version = None;
        for (path, node) in &entries {
            let path = path.join(&b'/');
            let record = match node {
                Node::File(bytes, bit) => (Header::File { path: &path, executable: *bit, size: bytes.len() as u64 }, bytes.as_slice()),
                Node::Link(target) => (Header::Symlink { path: &path, target }, &b""[..]),
                Node::Folder => (Header::Directory { path: &path }, &b""[..]),
            };
            // What does not fit onto what is there is left out.
            if let Ok(done) = bench.store.apply_changes(version.as_ref(), "in", &mut &*stream(&[record]), &meta()) {
                version = done.version.or(version);
            }
        }
        let Some(version) = version else { return Ok(()) };
        let before = bench.store.subtree(Some(&version), "in").unwrap();
        for format in [Format::Tar, Format::Zip] {
            let bytes = pack(&bench, &version, "in", format);
            let done = extract(&bench, None, format, &bytes).unwrap();
            prop_assert_eq!(done.notices, vec![]);
            prop_assert_eq!(&bench.store.subtree(done.version.as_ref(), "in").unwrap(), &before, "{:?}", format);
        }
    }

    #[test]
    fn f10_hostile_bytes_are_errors_not_panics(
        at in proptest::collection::vec((0_usize..4000, any::<u8>()), 1..6), noise in proptest::collection::vec(any::<u8>(), 0..600), zip: bool,
    ) {
        let bench = Bench::new();
        let version = bench.write(None, "in/a", &[b'x'; 600]);
        let format = if zip { Format::Zip } else { Format::Tar };
        let mut bytes = pack(&bench, &version, "in", format);
        let length = bytes.len();
        for (place, byte) in at {
            bytes[place % length] = byte;
        }
        drop(extract(&bench, None, format, &bytes));
        drop(extract(&bench, None, format, &noise));
        drop(extract(&bench, None, format, &[&bytes[..length / 2], &noise].concat()));
    }
}
