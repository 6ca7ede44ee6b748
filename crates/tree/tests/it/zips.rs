//! Zips that try to do harm (F11), and those of other tools.

use std::io::{Cursor, Read as _, Write as _};

use bailey_protocol::change::{Header, NoticeReason};
use bailey_tree::TreeErrorKind;
use bailey_tree::archive::Format;
use zip::write::SimpleFileOptions;

use super::archives::{extract, pack, paths};
use super::{Bench, file, meta, stream};

/// A member as it is written, each field of which may lie.
#[derive(Clone)]
struct Lie {
    name: Vec<u8>,
    local_name: Vec<u8>,
    content: Vec<u8>,
    method: u16,
    flags: u16,
    local_flags: u16,
    crc: u32,
    packed: u32,
    size: u32,
    local_sizes: [u32; 2],
    extra: Vec<u8>,
    local_extra: Vec<u8>,
    behind: Vec<u8>,
    offset: Option<u32>,
    made_by: u16,
    mode: u32,
}

fn member(name: &[u8], content: &[u8]) -> Lie {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let size = content.len() as u32;
    Lie {
        name: name.to_vec(),
        local_name: name.to_vec(),
        content: content.to_vec(),
        method: 0,
        flags: 0,
        local_flags: 0,
        crc: crc.sum(),
        packed: size,
        size,
        local_sizes: [size, size],
        extra: Vec::new(),
        local_extra: Vec::new(),
        behind: Vec::new(),
        offset: None,
        made_by: 3 << 8,
        mode: 0o100_644,
    }
}

fn changed(name: &[u8], content: &[u8], change: impl FnOnce(&mut Lie)) -> Lie {
    let mut lie = member(name, content);
    change(&mut lie);
    lie
}

fn zip(members: &[Lie]) -> Vec<u8> {
    zip_with(members, b"", b"", members.len() as u16)
}

fn two(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn four(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn zip_with(members: &[Lie], before: &[u8], after: &[u8], count: u16) -> Vec<u8> {
    let mut all = before.to_vec();
    let mut directory = Vec::new();
    for lie in members {
        let offset = lie.offset.unwrap_or(all.len() as u32);
        all.extend(b"PK\x03\x04");
        all.extend(two(&[20, lie.local_flags, lie.method, 0, 0]));
        all.extend(four(&[lie.crc * u32::from(lie.local_flags & 8 == 0), lie.local_sizes[0], lie.local_sizes[1]]));
        all.extend(two(&[lie.local_name.len() as u16, lie.local_extra.len() as u16]));
        all.extend([&lie.local_name[..], &lie.local_extra, &lie.content, &lie.behind].concat());
        directory.extend(b"PK\x01\x02");
        directory.extend(two(&[lie.made_by, 20, lie.flags, lie.method, 0, 0]));
        directory.extend(four(&[lie.crc, lie.packed, lie.size]));
        directory.extend(two(&[lie.name.len() as u16, lie.extra.len() as u16, 0, 0, 0]));
        directory.extend(four(&[lie.mode << 16, offset]));
        directory.extend([&lie.name[..], &lie.extra].concat());
    }
    let start = all.len() as u32;
    all.extend(&directory);
    all.extend(after);
    all.extend(b"PK\x05\x06\0\0\0\0");
    all.extend(two(&[count, count]));
    all.extend(four(&[directory.len() as u32, start]));
    all.extend([0, 0]);
    all
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn f11_a_zip_is_one_plain_reading_or_refused() {
    let bench = Bench::new();
    let base = bench.write(None, "in/keep", b"k");
    let f = || member(b"f", b"x");
    let link = |name: &[u8], target: &[u8]| changed(name, target, |lie| lie.mode = 0o120_777);
    let unicode = [&two(&[0x7075, 5 + 4])[..], &[1, 0, 0, 0, 0], b"evil"].concat();
    let later = |behind: Vec<u8>| {
        changed(b"f", b"x", |lie| {
            (lie.flags, lie.local_flags, lie.local_sizes, lie.behind) = (8, 8, [0, 0], behind);
        })
    };
    let wide = |values: &[u64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        [&two(&[1, bytes.len() as u16])[..], &bytes].concat()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("dot dot", zip(&[member(b"../../x", b"x")])),
        ("absolute", zip(&[member(b"/abs", b"x")])),
        ("empty name", zip(&[member(b"", b"x")])),
        ("a NUL", zip(&[member(b"a\0b", b"x")])),
        ("dot", zip(&[member(b".", b"x")])),
        ("through its link", zip(&[link(b"d", b"/tmp"), member(b"d/x", b"x")])),
        ("folder, then link", zip(&[changed(b"d/", b"", |lie| lie.mode = 0o040_755), link(b"d", b"/")])),
        ("the same twice", zip(&[f(), f()])),
        ("link to nothing", zip(&[link(b"l", b"")])),
        ("link with NUL", zip(&[link(b"l", b"a\0b")])),
        ("link of 5000 bytes", zip(&[link(b"l", &[b'a'; 5000])])),
        ("device", zip(&[changed(b"dev", b"", |lie| lie.mode = 0o020_644)])),
        ("a folder by mode, a file by name", zip(&[changed(b"d", b"", |lie| lie.mode = 0o040_755)])),
        ("a link by mode, a folder by name", zip(&[changed(b"d/", b"", |lie| lie.mode = 0o120_755)])),
        ("a folder with content", zip(&[changed(b"d/", b"x", |lie| lie.mode = 0o040_755)])),
        ("another name before the content", zip(&[changed(b"f", b"x", |lie| lie.local_name = b"../g".to_vec())])),
        ("another case", zip(&[changed(b"f", b"x", |lie| lie.local_name = b"F".to_vec())])),
        ("a name beside the name", zip(&[changed(b"f", b"x", |lie| lie.extra.clone_from(&unicode))])),
        ("the same before the content", zip(&[changed(b"f", b"x", |lie| lie.local_extra.clone_from(&unicode))])),
        ("other sizes before the content", zip(&[changed(b"f", b"x", |lie| lie.local_sizes = [1, 2])])),
        ("other flags", zip(&[changed(b"f", b"x", |lie| lie.local_flags = 1 << 11)])),
        ("two sizes", zip(&[changed(b"f", b"x", |lie| (lie.size, lie.local_sizes) = (2, [1, 2]))])),
        ("a wrong checksum", zip(&[changed(b"f", b"x", |lie| lie.crc = 7)])),
        ("another method", zip(&[changed(b"f", b"x", |lie| lie.method = 12)])),
        ("deflate that is none", zip(&[changed(b"f", b"\xff\xff", |lie| lie.method = 8)])),
        ("encrypted", zip(&[changed(b"f", b"x", |lie| (lie.flags, lie.local_flags) = (1, 1))])),
        ("strongly encrypted", zip(&[changed(b"f", b"x", |lie| (lie.flags, lie.local_flags) = (64, 64))])),
        ("encrypted in the directory only", zip(&[changed(b"f", b"x", |lie| lie.flags = 1)])),
        ("unknown flags", zip(&[changed(b"f", b"x", |lie| (lie.flags, lie.local_flags) = (32, 32))])),
        ("overlapping", zip(&[f(), changed(b"g", b"x", |lie| lie.offset = Some(0))])),
        (
            "overlapping within",
            zip(&[member(b"f", &zip(&[member(b"g", b"y")])), changed(b"g", b"y", |lie| lie.offset = Some(31))]),
        ),
        ("a gap", zip(&[f(), changed(b"g", b"x", |lie| lie.behind = b"gap".to_vec())])),
        ("something before", zip_with(&[changed(b"f", b"x", |lie| lie.offset = Some(4))], b"#!sh", b"", 1)),
        ("something after the directory", zip_with(&[f()], b"", b"more", 1)),
        ("something at the end", [zip(&[f()]), b"more".to_vec()].concat()),
        ("one member told of two", zip_with(&[f(), member(b"g", b"y")], b"", b"", 1)),
        ("two told of one", zip_with(&[f()], b"", b"", 2)),
        ("65,535 told of one", zip_with(&[f()], b"", b"", 0xffff)),
        ("64 bits that nobody asked for", zip(&[changed(b"f", b"x", |lie| lie.extra = wide(&[1]))])),
        ("64 bits that are missing", zip(&[changed(b"f", b"x", |lie| lie.size = u32::MAX)])),
        (
            "64 bits too few",
            zip(&[changed(b"f", b"x", |lie| (lie.size, lie.packed, lie.extra) = (u32::MAX, u32::MAX, wide(&[1])))]),
        ),
        (
            "64 bits twice",
            zip(&[changed(b"f", b"x", |lie| (lie.size, lie.extra) = (u32::MAX, [wide(&[1]), wide(&[2])].concat()))]),
        ),
        ("64 bits of a lie", zip(&[changed(b"f", b"x", |lie| (lie.size, lie.extra) = (u32::MAX, wide(&[u64::MAX])))])),
        (
            "an offset of 64 bits beyond",
            zip(&[changed(b"f", b"x", |lie| (lie.offset, lie.extra) = (Some(u32::MAX), wide(&[u64::MAX - 1])))]),
        ),
        ("a broken extra", zip(&[changed(b"f", b"x", |lie| lie.extra = vec![1, 0, 9, 0])])),
        ("no descriptor", zip(&[later(Vec::new())])),
        ("a descriptor that lies", zip(&[later([&b"PK\x07\x08"[..], &four(&[7, 1, 1])].concat())])),
        ("nothing", Vec::new()),
        ("a tar", vec![0; 1024]),
    ];
    for (what, bytes) in cases {
        let error = extract(&bench, Some(&base), Format::Zip, &bytes).expect_err(what);
        assert!(matches!(error.kind(), TreeErrorKind::Archive | TreeErrorKind::TooLarge), "{what}: {error}");
    }
    let good = [&b"PK\x07\x08"[..], &four(&[member(b"f", b"x").crc, 1, 1])].concat();
    for bytes in [zip(&[f()]), zip(&[later(good.clone())]), zip(&[later(good[4..].to_vec())])] {
        let done = extract(&bench, Some(&base), Format::Zip, &bytes).unwrap();
        assert_eq!(paths(&bench, &done.version.unwrap()), ["in", "in/f", "in/keep"]);
    }
    let suid = extract(&bench, None, Format::Zip, &zip(&[changed(b"f", b"x", |lie| lie.mode = 0o104_755)])).unwrap();
    assert_eq!(suid.notices, [(b"f".to_vec(), NoticeReason::SpecialBits)]);
}

#[test]
fn f11_every_truncation_and_bomb_is_refused() {
    let bench = Bench::new();
    let whole = zip(&[member(b"f", b"x"), member(b"g", b"y")]);
    for cut in 0..whole.len() {
        extract(&bench, None, Format::Zip, &whole[..cut]).unwrap_err();
    }
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("bomb", SimpleFileOptions::default().compression_level(Some(9))).unwrap();
    writer.write_all(&vec![0; 200 << 20]).unwrap();
    let bomb = writer.finish().unwrap().into_inner();
    assert!(bomb.len() < 1 << 20);
    let error = extract(&bench, None, Format::Zip, &bomb).unwrap_err();
    assert_eq!(error.kind(), TreeErrorKind::Archive, "{error}");
    // A size that the content exceeds: not one byte more is unpacked.
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![0; 1 << 20]).unwrap();
    let deflated = encoder.finish().unwrap();
    let lie = changed(b"f", &deflated, |lie| (lie.method, lie.size, lie.local_sizes) = (8, 9, [lie.packed, 9]));
    assert_eq!(extract(&bench, None, Format::Zip, &zip(&[lie])).unwrap_err().kind(), TreeErrorKind::Archive);
}

#[test]
fn zips_of_other_tools_come_in_and_ours_are_read_by_them() {
    let bench = Bench::new();
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.add_directory("d", SimpleFileOptions::default()).unwrap();
    writer.start_file("d/x", SimpleFileOptions::default().unix_permissions(0o755)).unwrap();
    writer.write_all(b"abc").unwrap();
    writer.start_file("large", SimpleFileOptions::default().large_file(true)).unwrap();
    writer.write_all(b"wide").unwrap();
    writer.add_symlink("l", "d/x", SimpleFileOptions::default()).unwrap();
    let bytes = writer.finish().unwrap().into_inner();
    let version = extract(&bench, None, Format::Zip, &bytes).unwrap().version.unwrap();
    assert_eq!(paths(&bench, &version), ["in", "in/d", "in/d/x", "in/l", "in/large"]);
    assert_eq!((bench.read(&version, "in/l"), bench.read(&version, "in/large")), (b"d/x".to_vec(), b"wide".to_vec()));

    let records = [file(b"ours/\xc3\xbc", b"text"), (Header::Symlink { path: b"l", target: b"../x" }, b"")];
    let ours = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let packed = pack(&bench, &ours, "", Format::Zip);
    assert_eq!(packed, pack(&bench, &ours, "", Format::Zip), "the same version, the same bytes");
    let mut archive = zip::ZipArchive::new(Cursor::new(packed)).unwrap();
    let mut text = String::new();
    archive.by_name("ours/ü").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    assert!(archive.by_name("l").unwrap().is_symlink());
}

#[test]
fn python_reads_ours_and_we_read_pythons() {
    let bench = Bench::new();
    let records = [file(b"a/b", b"text"), file(b"big", &[b'x'; 70_000])];
    let version = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("o.zip"), pack(&bench, &version, "", Format::Zip)).unwrap();
    std::fs::write(dir.path().join("o.tar"), pack(&bench, &version, "", Format::Tar)).unwrap();
    let script = r#"
import zipfile, tarfile, io, sys
z = zipfile.ZipFile("o.zip"); assert z.testzip() is None; assert z.read("a/b") == b"text"
t = tarfile.open("o.tar"); assert t.extractfile("a/b").read() == b"text"
with zipfile.ZipFile("p.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("n/m", "text"); z.writestr("n/e/", "")
class Out(io.RawIOBase):
    def __init__(self): self.b = b""
    def writable(self): return True
    def write(self, d): self.b += bytes(d); return len(d)
o = Out()
with zipfile.ZipFile(o, "w", zipfile.ZIP_DEFLATED) as z:
    with z.open("s/t", "w", force_zip64=True) as f: f.write(b"text")
    z.writestr("s/u", "text")
open("s.zip", "wb").write(o.b)
for name, form in (("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT)):
    with tarfile.open(name + ".tgz", "w:gz", format=form) as t:
        i = tarfile.TarInfo("n/" + "long" * 50); i.size = 4; t.addfile(i, io.BytesIO(b"text"))
        i = tarfile.TarInfo("n/\u00fc"); i.size = 0; t.addfile(i)
"#;
    let out = std::process::Command::new("python3").args(["-c", script]).current_dir(&dir).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for (name, format, expected) in [
        ("p.zip", Format::Zip, "in/n/m".to_owned()),
        ("s.zip", Format::Zip, "in/s/t".to_owned()),
        ("pax.tgz", Format::Tar, format!("in/n/{}", "long".repeat(50))),
        ("gnu.tgz", Format::Tar, format!("in/n/{}", "long".repeat(50))),
    ] {
        let bytes = std::fs::read(dir.path().join(name)).unwrap();
        let done = extract(&bench, None, format, &bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(bench.read(&done.version.unwrap(), &expected), b"text", "{name}");
    }
}
