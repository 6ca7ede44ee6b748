use bailey_protocol::change::Header;
use proptest::prelude::*;

use super::*;

fn parse(bytes: &[u8]) -> Result<Vec<(Record, Vec<u8>)>, TreeError> {
    let mut source = bytes;
    let mut reader = ChangeReader::new(&mut source);
    let mut records = Vec::new();
    loop {
        let record = reader.next()?;
        let mut content = Vec::new();
        match record {
            Record::End => return Ok(records),
            Record::File { size, .. } => {
                let read = reader.content().take(size).read_to_end(&mut content).unwrap();
                assert!(read as u64 <= size);
            }
            _ => {}
        }
        records.push((record, content));
    }
}

fn framed(body: &[u8], records: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(body);
    bytes.push(b'E');
    bytes.extend_from_slice(&records.to_be_bytes());
    bytes
}

fn path_field(path: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(path.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(path);
    bytes
}

#[test]
fn version_1_is_frozen() {
    let bytes = b"BLYCHG\0\x01X\0\x03oldD\0\x01dF\0\x03d/f\x01\0\0\0\0\0\0\0\x02hiL\0\x01l\0\x03d/fN\0\x01p\x03E\0\0\0\0\0\0\0\x05";
    let records: Vec<Record> = parse(bytes).unwrap().into_iter().map(|(record, _)| record).collect();
    let expected = [
        Record::Delete { path: b"old".to_vec() },
        Record::Directory { path: b"d".to_vec() },
        Record::File { path: b"d/f".to_vec(), executable: true, size: 2 },
        Record::Symlink { path: b"l".to_vec(), target: b"d/f".to_vec() },
        Record::Notice { path: b"p".to_vec(), reason: NoticeReason::Fifo },
    ];
    assert_eq!(records, expected);
}

#[test]
fn f01_paths_that_no_tree_can_hold_are_refused() {
    let long_name = vec![b'n'; 256];
    let deep = b"d/".repeat(256).iter().chain(b"d").copied().collect::<Vec<_>>();
    let bad: [&[u8]; 14] = [
        b"", b"/", b"/abs", b"a/", b"a//b", b".", b"..", b"../x", b"a/../b", b"a/.", b"a\0b", b"./a", &long_name, &deep,
    ];
    for path in bad {
        for tag in *b"DXLF" {
            let body: Vec<u8> = [vec![tag], path_field(path), vec![0; 9]].concat();
            let error = parse(&framed(&body, 1)).unwrap_err();
            assert!(matches!(error, TreeError::InvalidStream { .. }), "{path:?}: {error}");
        }
    }
    for good in [&b"a"[..], b"...", b"..a", b"a\nb", b"\xff\xfe", b"a\\..\\b", b".git", &[b'n'; 255]] {
        parse(&framed(&[vec![b'D'], path_field(good)].concat(), 1)).unwrap();
    }
}

#[test]
fn hostile_streams_are_refused() {
    let huge = [&b"F\0\x01f\0"[..], &u64::MAX.to_be_bytes()].concat();
    let over = [&b"F\0\x01f\0"[..], &MAX_CHANGE_STREAM.to_be_bytes()].concat();
    for body in [huge, over] {
        assert!(matches!(parse(&framed(&body, 1)).unwrap_err(), TreeError::TooLarge { .. }));
    }
    let table: [(&str, Vec<u8>); 14] = [
        ("nothing", vec![]),
        ("another version", [&b"BLYCHG\0\x02E"[..], &[0; 8]].concat()),
        ("no magic", b"E\0\0\0\0\0\0\0\0".to_vec()),
        ("unknown tag", framed(b"Q", 0)),
        ("wrong count", framed(b"D\0\x01d", 2)),
        ("count without records", framed(b"", 1)),
        ("unknown flags", framed(b"F\0\x01f\x02\0\0\0\0\0\0\0\0", 1)),
        ("unknown reason", framed(b"N\0\x01p\0", 1)),
        ("reason out of range", framed(b"N\0\x01p\xff", 1)),
        ("empty target", framed(b"L\0\x01l\0\0", 1)),
        ("NUL in target", framed(b"L\0\x01l\0\x01\0", 1)),
        ("target that no kernel takes", framed(&[b"L\0\x01l".to_vec(), path_field(&[b't'; 4096])].concat(), 1)),
        ("field over the limit", framed(&[b"X".to_vec(), path_field(&[b'a'; 4097])].concat(), 1)),
        ("only the magic", MAGIC.to_vec()),
    ];
    for (what, bytes) in table {
        let error = parse(&bytes).unwrap_err();
        assert!(matches!(error, TreeError::InvalidStream { .. }), "{what}: {error}");
    }
    let mut failed = MAGIC.to_vec();
    Header::Failed { message: "no\nspace" }.encode(&mut failed).unwrap();
    let error = parse(&failed).unwrap_err();
    assert!(matches!(&error, TreeError::CollectFailed { message } if message == "no\\nspace"), "{error}");
}

#[test]
fn a_source_that_fails_is_the_sources_fault() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _out: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let mut source = MAGIC.chain(Broken);
    let mut reader = ChangeReader::new(&mut source);
    assert!(matches!(reader.next().unwrap_err(), TreeError::Input { .. }));
}

fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let record = (0..5_u8, "[a-c]{1,2}(/[a-c]{1,2}){0,2}", proptest::collection::vec(any::<u8>(), 0..20));
    proptest::collection::vec(record, 0..8).prop_map(|records| {
        let mut bytes = MAGIC.to_vec();
        for (kind, path, content) in &records {
            let path = path.as_bytes();
            let header = match kind {
                0 => Header::Directory { path },
                1 => Header::File { path, executable: content.len() % 2 == 0, size: content.len() as u64 },
                2 => Header::Symlink { path, target: b"target" },
                3 => Header::Delete { path },
                _ => Header::Notice { path, reason: NoticeReason::Xattr },
            };
            header.encode(&mut bytes).unwrap();
            if *kind == 1 {
                bytes.extend_from_slice(content);
            }
        }
        Header::End { records: records.len() as u64 }.encode(&mut bytes).unwrap();
        bytes
    })
}

proptest! {
    #[test]
    fn whole_streams_parse_and_cut_ones_never_do(bytes in any_stream(), cut in any::<prop::sample::Index>()) {
        prop_assert!(parse(&bytes).is_ok());
        prop_assert!(parse(bytes.get(..cut.index(bytes.len())).unwrap()).is_err());
    }

    #[test]
    fn flipped_bits_and_noise_never_panic(bytes in any_stream(), bit in any::<prop::sample::Index>(), noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut flipped = bytes.clone();
        let bit = bit.index(bytes.len() * 8);
        *flipped.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
        drop(parse(&flipped));
        drop(parse(&[MAGIC.as_slice(), &noise].concat()));
        drop(parse(&noise));
    }
}
