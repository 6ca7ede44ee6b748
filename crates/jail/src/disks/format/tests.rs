use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use super::*;

const MIB: u64 = 1024 * 1024;
const SIZES: [(u64, u64); 6] = [
    (MIB, 256),
    (49 * MIB + 5000, 300),
    (126 * MIB, 32_000),
    (200 * MIB, 51_200),
    (1 << 30, 65_664),
    (9 << 30, 1 << 20),
];

#[test]
fn there_is_as_much_room_as_was_asked_for_and_more_takes_no_smaller_image() {
    for (bytes, inodes) in SIZES {
        let format = Format::of(bytes, inodes);
        let sum = |free: fn(&Format, u64) -> (u64, u64)| -> u64 {
            (0..format.groups).map(|group| free(&format, group)).map(|(start, end)| end - start).sum()
        };
        let kept = (format.all_blocks() / 50).min(4096);
        assert_eq!(sum(Format::free_blocks), bytes / BLOCK + kept, "{format:?}");
        assert_eq!(sum(Format::free_inodes), inodes, "{format:?}");
        for (more, others) in SIZES.into_iter().filter(|(more, others)| *more >= bytes && *others >= inodes) {
            assert!(Format::of(more, others).bytes() >= format.bytes());
        }
        // What docs/storage.md says.
        assert!(format.bytes() < bytes + inodes * INODE + bytes / 8192 + 150 * MIB, "{format:?}");
    }
}

#[test]
fn bits_are_set_but_for_the_free_ones() {
    let count = |free| bitmap(free).iter().map(|byte| byte.count_zeros()).sum::<u32>();
    assert_eq!(
        [count((0, 0)), count((3, 3)), count((3, 4)), count((5, 21)), count((0, PER_GROUP))],
        [0, 0, 1, 16, 32_768]
    );
    assert_eq!(bitmap((5, 21)).get(..4).unwrap(), [0x1F, 0x00, 0xE0, 0xFF]);
}

/// Nothing but what is meant: no `lost+found`, and used blocks and inodes that belong to nobody.
#[test]
fn e2fsck_finds_what_is_meant_and_nothing_else() {
    let checker = "/usr/sbin/e2fsck";
    if !std::path::Path::new(checker).exists() {
        assert!(std::env::var_os("CI").is_none(), "CI has e2fsck (Debian: e2fsprogs)");
        println!("skipped: no {checker}");
        return;
    }
    for (bytes, inodes) in SIZES {
        let image = tempfile::NamedTempFile::new().unwrap();
        let format = Format::of(bytes, inodes);
        let file = File::options().write(true).open(image.path()).unwrap();
        file.set_len(format.bytes()).unwrap();
        for (number, content) in format.written() {
            file.write_all_at(&content, number * BLOCK).unwrap();
        }
        let output = Command::new(checker).args(["-f", "-n"]).arg(image.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let place = format!("{}: ", image.path().display());
        for line in said.lines().filter(|line| !line.is_empty()) {
            let meant = [
                "Pass ",
                "/lost+found not found.",
                "Block bitmap differences:",
                "Inode bitmap differences:",
                "Fix? no",
                place.as_str(),
            ];
            assert!(meant.iter().any(|meant| line.starts_with(meant)), "{bytes} {inodes}: {line}\n{said}");
        }
        assert!(said.contains("Pass 5"), "{said}");
    }
}
