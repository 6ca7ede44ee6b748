//! What every [`BlobStore`] must do. `run` takes an empty store.

use gix_hash::ObjectId;

use super::{BlobName, BlobStore, Part};

fn name(seed: u8, part: Part) -> BlobName {
    BlobName { pack: ObjectId::from_bytes_or_panic(&[seed; 20]), part }
}

fn put(store: &dyn BlobStore, files: &[(BlobName, &[u8])]) {
    let files = files.iter().map(|(name, bytes)| {
        let mut scratch = store.scratch().unwrap();
        scratch.append(bytes).unwrap();
        (*name, scratch)
    });
    store.put(files.collect()).unwrap();
}

fn get(store: &dyn BlobStore, name: &BlobName) -> Option<Vec<u8>> {
    let file = store.open(name).unwrap()?;
    let mut bytes = vec![0; usize::try_from(file.length()).unwrap()];
    file.read_exact_at(0, &mut bytes).unwrap();
    Some(bytes)
}

fn listed(store: &dyn BlobStore) -> Vec<BlobName> {
    let mut names = store.list().unwrap();
    names.sort_unstable();
    names
}

pub(crate) fn run(store: &dyn BlobStore) {
    store.sweep().unwrap();
    assert_eq!(listed(store), []);
    let (pack, index) = (name(1, Part::Pack), name(1, Part::Index));
    assert!(store.open(&pack).unwrap().is_none());
    store.remove(&pack).unwrap();

    put(store, &[(pack, b"content"), (index, b"")]);
    assert_eq!(listed(store), [pack, index]);
    assert_eq!(get(store, &pack).as_deref(), Some(&b"content"[..]));
    assert_eq!(get(store, &index).as_deref(), Some(&b""[..]));

    ranges(store, &pack);
    scratch_files(store, &pack);

    // The same content under the same name, as two writers may put it.
    put(store, &[(pack, b"content"), (index, b"")]);
    assert_eq!(listed(store), [pack, index]);
    assert_eq!(get(store, &pack).as_deref(), Some(&b"content"[..]));

    // What is whole survives a sweep; a pack without an index does not.
    put(store, &[(name(2, Part::Sums), b"s"), (name(2, Part::Pack), b"p")]);
    store.sweep().unwrap();
    assert_eq!(listed(store), [pack, index]);

    // An open file stays readable after its removal.
    let open = store.open(&pack).unwrap().unwrap();
    store.remove(&pack).unwrap();
    store.remove(&pack).unwrap();
    let mut bytes = [0; 7];
    open.read_exact_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"content");
    assert!(store.open(&pack).unwrap().is_none());
}

fn ranges(store: &dyn BlobStore, pack: &BlobName) {
    let file = store.open(pack).unwrap().unwrap();
    let mut four = [0; 4];
    file.read_exact_at(3, &mut four).unwrap();
    assert_eq!(&four, b"tent");
    file.read_exact_at(7, &mut []).unwrap();
    for beyond in [4, 7, 100, u64::MAX >> 1] {
        assert!(file.read_exact_at(beyond, &mut four).is_err(), "at {beyond}");
    }
}

fn scratch_files(store: &dyn BlobStore, pack: &BlobName) {
    let before = listed(store);
    let mut scratch = store.scratch().unwrap();
    scratch.append(b"12345").unwrap();
    scratch.patch(1, b"xx").unwrap();
    scratch.truncate(4).unwrap();
    scratch.append(b"!").unwrap();
    let mut back = Vec::new();
    scratch.read_back(|piece| back.extend_from_slice(piece)).unwrap();
    assert_eq!(back, b"1xx4!");
    let mut again = Vec::new();
    std::io::Read::read_to_end(&mut scratch.reader().unwrap(), &mut again).unwrap();
    assert_eq!(again, b"1xx4!");
    drop(scratch);
    assert_eq!(listed(store), before);
    assert!(store.open(pack).unwrap().is_some());
}
