//! Bit rot, lost files, and processes that died half-way.

use std::fs;
use std::path::PathBuf;

use bailey_protocol::id::VersionId;
use bailey_tree::TreeErrorKind;

use super::{Bench, file, meta, stream};

/// Everything that a version says, or the kind of the first error.
fn everything(bench: &Bench, version: &VersionId) -> Result<Vec<(String, Vec<u8>)>, TreeErrorKind> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in bench.store.list(Some(version), &folder).map_err(|error| error.kind())? {
            let path = if folder.is_empty() { entry.name.clone() } else { format!("{folder}/{}", entry.name) };
            if entry.size.is_none() {
                folders.push(path);
                continue;
            }
            let mut content = Vec::new();
            let mut blob = bench.store.read(version, &path).map_err(|error| error.kind())?;
            let read = std::io::Read::read_to_end(&mut blob, &mut content);
            read.map_err(|error| {
                assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
                TreeErrorKind::Corrupt
            })?;
            assert_eq!(entry.size, Some(content.len() as u64));
            found.push((path, content));
        }
    }
    let (history, _) = bench.store.history(version, "", 10, None).map_err(|error| error.kind())?;
    found.extend(history.into_iter().map(|info| (format!("{info:?}"), Vec::new())));
    Ok(found)
}

fn pack_files(bench: &Bench) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(bench.store.folder().join("objects/pack")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn extension(path: &std::path::Path) -> &str {
    path.extension().and_then(|text| text.to_str()).unwrap_or("")
}

#[test]
fn d06_every_flipped_bit_is_noticed() {
    let mut bench = Bench::new();
    let records = [file(b"d/text", b"hello hello hello"), file(b"d/bin", &[0, 255, 3]), file(b"e", b"")];
    let version = bench.store.apply_changes(None, "", &mut &*stream(&records), &meta()).unwrap().version.unwrap();
    let truth = everything(&bench, &version).unwrap();
    for path in pack_files(&bench) {
        let sound = fs::read(&path).unwrap();
        for bit in 0..sound.len() * 8 {
            let mut rotten = sound.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            // In the index, one bit in eight does: its checksum sees all alike.
            if extension(&path) == "idx" && bit % 8 != (bit / 8) % 8 {
                continue;
            }
            fs::write(&path, &rotten).unwrap();
            bench.reopen();
            assert_eq!(everything(&bench, &version), Err(TreeErrorKind::Corrupt), "{} bit {bit}", path.display());
        }
        fs::write(&path, &sound).unwrap();
    }
    bench.reopen();
    assert_eq!(everything(&bench, &version), Ok(truth));
}

#[test]
fn d06_flips_in_a_large_file_are_noticed_before_its_bytes_are_served() {
    let mut bench = Bench::new();
    let content: Vec<u8> = (0..400_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let version = bench.write(None, "big", &content);
    let truth = everything(&bench, &version).unwrap();
    for path in pack_files(&bench) {
        let sound = fs::read(&path).unwrap();
        let frame = (0..24).chain(sound.len().saturating_sub(30)..sound.len());
        let blocks = (0..sound.len()).step_by(sound.len() / 16 + 1).chain([65_553, 65_554, 131_090]);
        for byte in frame.chain(blocks).filter(|byte| *byte < sound.len()) {
            let mut rotten = sound.clone();
            rotten[byte] ^= 1 << (byte % 8);
            fs::write(&path, &rotten).unwrap();
            bench.reopen();
            let found = everything(&bench, &version);
            if extension(&path) == "sums" {
                assert_eq!(found.as_ref(), Ok(&truth), "the table is made again");
            } else {
                assert_eq!(found, Err(TreeErrorKind::Corrupt), "{} byte {byte}", path.display());
            }
        }
        fs::write(&path, &sound).unwrap();
    }
    let sums = pack_files(&bench).into_iter().find(|path| extension(path) == "sums").unwrap();
    fs::remove_file(sums).unwrap();
    bench.reopen();
    assert_eq!(everything(&bench, &version), Ok(truth));
    bench.fsck(&version);
}

#[test]
fn a_truncated_or_missing_pack_is_damage_not_absence() {
    let mut bench = Bench::new();
    let version = bench.write(None, "f", b"content");
    for path in pack_files(&bench) {
        let sound = fs::read(&path).unwrap();
        for length in [0, 11, sound.len() / 2, sound.len() - 1] {
            fs::write(&path, &sound[..length]).unwrap();
            bench.reopen();
            assert_eq!(everything(&bench, &version), Err(TreeErrorKind::Corrupt), "{} {length}", path.display());
        }
        fs::write(&path, &sound).unwrap();
    }
    fs::remove_file(pack_files(&bench).into_iter().find(|path| extension(path) == "pack").unwrap()).unwrap();
    bench.reopen();
    assert_eq!(everything(&bench, &version), Err(TreeErrorKind::Corrupt));
}

#[test]
fn a_damaged_pack_does_not_stop_others_nor_new_writes() {
    let mut bench = Bench::new();
    let first = bench.write(None, "a", b"1");
    let index = pack_files(&bench).into_iter().find(|path| extension(path) == "idx").unwrap();
    let other = bench.write(None, "b", b"2");
    fs::write(index, b"rotten").unwrap();
    bench.reopen();
    assert_eq!(bench.read(&other, "b"), b"2");
    assert_eq!(bench.store.read(&first, "a").unwrap_err().kind(), TreeErrorKind::Corrupt);
    let third = bench.write(Some(&other), "c", b"3");
    assert_eq!(bench.read(&third, "c"), b"3");
}

#[test]
fn d01_a_write_that_was_killed_at_any_step_leaves_no_trace() {
    let mut bench = Bench::new();
    let first = bench.write(None, "f", b"1");
    let before = pack_files(&bench);
    let second = bench.write(Some(&first), "big", &vec![1; 2 << 20]);
    let added: Vec<_> = pack_files(&bench).into_iter().filter(|path| !before.contains(path)).collect();
    let order = ["sums", "pack", "idx"];
    let kept: Vec<(PathBuf, Vec<u8>)> = order
        .iter()
        .map(|part| added.iter().find(|path| extension(path) == *part).unwrap())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let folder = bench.store.folder().join("objects/pack");
    for named in 0..=kept.len() {
        for cut in [0, 1, 2] {
            for (place, (path, bytes)) in kept.iter().enumerate() {
                drop(fs::remove_file(path));
                let temporary = folder.join(format!("tmp_99999_{place}"));
                if place < named {
                    fs::write(path, bytes).unwrap();
                } else {
                    fs::write(temporary, &bytes[..bytes.len() * cut / 2]).unwrap();
                }
            }
            fs::write(bench.store.folder().join("tmp_99999_9"), b"half of packed-refs").unwrap();
            bench.reopen();
            assert_eq!(bench.read(&first, "f"), b"1");
            assert_eq!(bench.store.contains(&second).unwrap(), named == kept.len());
            let expected = before.len() + if named == kept.len() { 3 } else { 0 };
            assert_eq!(pack_files(&bench).len(), expected, "{named} named, cut {cut}");
            assert!(!bench.store.folder().join("tmp_99999_9").exists());
            bench.fsck(&first);
        }
    }
}
