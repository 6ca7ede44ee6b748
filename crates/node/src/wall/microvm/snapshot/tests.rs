use std::os::fd::AsRawFd;

use tempfile::TempDir;

use super::*;
use crate::wall::microvm::memory::PAGE;

const BYTES: u64 = 64 * PAGE as u64;

fn made() -> Made {
    Made {
        template: "a".repeat(64),
        image: "b".repeat(64),
        kernel: "kernel".to_owned(),
        vmm: "monitor".to_owned(),
        processor: "a processor".to_owned(),
        khz: 2_100_000,
        accelerator: "tcg".to_owned(),
        memory_bytes: BYTES,
        warm: vec![vec!["true".to_owned()]],
    }
}

/// A machine with something in its memory, and its state.
fn taken() -> Taken {
    let (memory, state) = (memory::fresh(BYTES).unwrap(), memory::fresh(0).unwrap());
    let file = File::from(memory.try_clone().unwrap());
    file.write_all_at(&[7; 3 * PAGE], 5 * PAGE as u64).unwrap();
    file.write_all_at(b"the last", BYTES - 8).unwrap();
    File::from(state.try_clone().unwrap()).write_all_at(b"devices", 0).unwrap();
    Taken { memory, state }
}

fn content(file: &OwnedFd) -> Vec<u8> {
    fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

struct Kept {
    folder: TempDir,
    key: Key,
}

impl Kept {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let key = Key::ensure(folder.path()).unwrap();
        store(folder.path(), &key, &made(), taken(), &[b"absent".to_vec()]).unwrap();
        Self { folder, key }
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.folder.path().join(NAME)).unwrap()
    }

    fn load(&self) -> Result<Saved, SnapshotError> {
        load(self.folder.path(), &self.key, &made())
    }

    /// What becomes of a file with these bytes.
    fn load_as(&self, bytes: &[u8]) -> Result<Saved, SnapshotError> {
        fs::write(self.folder.path().join(NAME), bytes).unwrap();
        self.load()
    }
}

#[test]
fn what_is_kept_is_what_was_taken_and_nobodys_to_change() {
    let kept = Kept::new();
    let (saved, taken) = (kept.load().unwrap(), taken());
    assert_eq!(content(&saved.memory().unwrap()), content(&taken.memory));
    for _ in 0..2 {
        let mut state = Vec::new();
        File::from(saved.state().unwrap()).read_to_end(&mut state).unwrap();
        assert_eq!(state, b"devices");
    }
    let memory = File::from(saved.memory().unwrap());
    assert_eq!(memory.write_all_at(b"poison", 0).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    for name in [KEY_NAME, NAME] {
        let mode = fs::metadata(kept.folder.path().join(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // The zeros take no room.
    assert!(kept.bytes().len() < 5 * PAGE, "{}", kept.bytes().len());
}

#[test]
fn m06_any_bit_that_is_not_as_it_was_written_is_a_refusal() {
    let kept = Kept::new();
    let good = kept.bytes();
    // Every bit of the head and of the sum, one in each stretch of the rest.
    let places = (0..400).chain((400..good.len() - 64).step_by(61)).chain(good.len() - 64..good.len());
    for at in places {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let told = kept.load_as(&bad);
        let refused = matches!(
            told,
            Err(SnapshotError::Forged
                | SnapshotError::Malformed(_)
                | SnapshotError::Version { .. }
                | SnapshotError::Truncated)
        );
        assert!(refused, "{at}: {told:?}");
    }
    kept.load_as(&good).unwrap();
}

#[test]
fn m06_what_is_cut_off_or_goes_on_is_a_refusal() {
    let kept = Kept::new();
    let good = kept.bytes();
    for length in (0..good.len()).step_by(97).chain([good.len() - 1]) {
        let told = kept.load_as(&good[..length]);
        assert!(matches!(told, Err(SnapshotError::Truncated)), "{length}: {told:?}");
    }
    let more = [&good[..], b"x"].concat();
    assert!(matches!(kept.load_as(&more), Err(SnapshotError::Forged)));
    fs::remove_file(kept.folder.path().join(NAME)).unwrap();
    assert!(matches!(kept.load(), Err(SnapshotError::Missing)));
}

#[test]
fn m06_another_nodes_is_a_refusal_and_so_is_another_version() {
    let (kept, other) = (Kept::new(), Kept::new());
    assert!(matches!(kept.load_as(&other.bytes()), Err(SnapshotError::Forged)));
    let bytes = other.bytes();
    let line = format!("{MAGIC}{FORMAT}\n");
    for version in [0, FORMAT + 1] {
        let old = [format!("{MAGIC}{version}\n").as_bytes(), &bytes[line.len()..]].concat();
        let told = kept.load_as(&old);
        assert!(matches!(told, Err(SnapshotError::Version { found, .. }) if found == version), "{told:?}");
    }
}

#[test]
fn m06_what_was_made_from_something_else_is_a_refusal_that_names_it() {
    let kept = Kept::new();
    let other = || "other".to_owned();
    for (wanted, what) in [
        (Made { template: other(), ..made() }, "template"),
        (Made { kernel: other(), ..made() }, "kernel"),
        (Made { vmm: other(), ..made() }, "monitor"),
        (Made { image: other(), ..made() }, "image"),
        (Made { processor: other(), ..made() }, "processor"),
        (Made { khz: 2_200_000, ..made() }, "processor"),
        (Made { accelerator: other(), ..made() }, "accelerator"),
        (Made { memory_bytes: 2 * BYTES, ..made() }, "size"),
        (Made { warm: Vec::new(), ..made() }, "warm-up"),
    ] {
        let told = load(kept.folder.path(), &kept.key, &wanted);
        assert!(matches!(told, Err(SnapshotError::Another(found)) if found == what), "{what}: {told:?}");
    }
    load(kept.folder.path(), &kept.key, &Made { khz: 2_100_500, ..made() }).unwrap();
}

#[test]
fn nothing_secret_gets_to_the_disk() {
    let folder = TempDir::new().unwrap();
    let key = Key::ensure(folder.path()).unwrap();
    let known = store(folder.path(), &key, &made(), taken(), &[b"absent".to_vec(), b"the last".to_vec()]);
    assert!(matches!(known, Err(SnapshotError::Secret(1))), "{known:?}");
    let with_key = taken();
    File::from(with_key.memory.try_clone().unwrap()).write_all_at(&key.bytes, 999).unwrap();
    let known = store(folder.path(), &key, &made(), with_key, &[]);
    assert!(matches!(known, Err(SnapshotError::Secret(0))), "{known:?}");
    assert!(matches!(load(folder.path(), &key, &made()), Err(SnapshotError::Missing)));
}

#[test]
fn a_key_that_others_can_read_is_none() {
    let folder = TempDir::new().unwrap();
    let bytes = Key::ensure(folder.path()).unwrap().bytes;
    assert_eq!(Key::ensure(folder.path()).unwrap().bytes, bytes);
    fs::set_permissions(folder.path().join(KEY_NAME), Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Key::ensure(folder.path()), Err(SnapshotError::Exposed(_))));
}
