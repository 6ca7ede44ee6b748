//! What a tenant may have, under load.

use std::sync::Arc;

use bailey_protocol::path::RepoId;
use bailey_protocol::quota::TenantQuota;
use bailey_tree::archive::{ExtractLimits, Format};
use bailey_tree::{Patch, PushLimits, Source, TreeError, TreeErrorKind};

use super::{Bench, file, meta, stream, tenant};

#[test]
fn f23_parallel_writers_at_the_edge_never_exceed_the_quota() {
    let bench = Bench::new();
    let acme = "acme".parse().unwrap();
    let base = bench.write(None, "f", &[1; 5000]);
    let used = bench.trees.usage(&acme).unwrap().bytes;
    let one = {
        bench.write(Some(&base), "probe", b"0123456789");
        bench.trees.usage(&acme).unwrap().bytes - used
    };
    // Room for ten more such writes, less one byte.
    let limit = used + one + 11 * one - 1;
    bench.trees.set_quota(&acme, Some(TenantQuota { bytes: limit, ..TenantQuota::UNLIMITED }));
    let bench = Arc::new(bench);
    let threads: Vec<_> = (0..64)
        .map(|n| {
            let (bench, base) = (Arc::clone(&bench), base.clone());
            std::thread::spawn(move || {
                let user = (n % 2 == 0).then(|| "ana".parse().unwrap());
                let store = bench.trees.store(&RepoId { tenant: "acme".parse().unwrap(), user }).unwrap();
                let base = (n % 2 == 1).then_some(&base);
                let content = format!("01234567{n:02}");
                let wrote = store.write_file(base, "probe", &mut content.as_bytes(), 99, false, &meta());
                assert!(bench.trees.usage(&"acme".parse().unwrap()).unwrap().bytes <= limit);
                match wrote {
                    Ok(_) => true,
                    Err(error) => {
                        assert!(matches!(error, TreeError::QuotaExceeded { limit: told, .. } if told == limit));
                        assert_eq!(error.kind(), TreeErrorKind::QuotaExceeded);
                        false
                    }
                }
            })
        })
        .collect();
    let won = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count();
    assert!(won > 0 && won < 64, "{won}");
    let counted = bench.trees.usage(&acme).unwrap();
    assert!(counted.bytes <= limit);
    let again = bailey_tree::Trees::open(&bench.dir.path().join("trees")).unwrap();
    assert_eq!(again.usage(&acme).unwrap(), counted, "a killed process loses no count");
}

#[test]
fn every_way_to_a_new_pack_passes_the_quota() {
    let bench = Bench::new();
    let acme = "acme".parse().unwrap();
    let base = bench.write(None, "f", b"1");
    let side = bench.write(Some(&base), "g", b"2");
    let head = bench.write(Some(&base), "h", b"3");
    let other = bench.trees.store(&tenant("other")).unwrap();
    let foreign = other.write_file(None, "d/y", &mut &b"foreign"[..], 9, false, &meta()).unwrap();
    let mut tar = Vec::new();
    other.archive(&foreign, "d", Format::Tar, &mut tar).unwrap();
    let (pack, pushed) = super::pushed::one_folder(b"", &[]);
    let full = TenantQuota { bytes: bench.trees.usage(&acme).unwrap().bytes, ..TenantQuota::UNLIMITED };
    bench.trees.set_quota(&acme, Some(full));
    let store = &bench.store;
    let refused =
        |way: &str, error: TreeError| assert_eq!(error.kind(), TreeErrorKind::QuotaExceeded, "{way}: {error}");
    refused("write", store.write_file(Some(&base), "x", &mut &b"x"[..], 9, false, &meta()).unwrap_err());
    refused("large", store.write_file(Some(&base), "x", &mut &*vec![1; 2 << 20], 9 << 20, false, &meta()).unwrap_err());
    let records = stream(&[file(b"x", b"x")]);
    refused("run", store.apply_changes(Some(&base), "", &mut &*records, &meta()).unwrap_err());
    refused("merge", store.merge(Some(&head), &side, &meta()).unwrap_err());
    refused("promotion", store.bring(Some(&head), &side, &meta()).unwrap_err());
    let limits = ExtractLimits { members: 9, file_bytes: 99, bytes: 9999 };
    refused("archive", store.extract(Some(&head), "in", Format::Tar, &mut &*tar, &limits, &meta()).unwrap_err());
    let source = Source { store, version: &head, inner: "h" };
    refused("copy", store.copy(Some(&head), source, "copy", &meta()).unwrap_err());
    let source = Source { store: &other, version: &foreign, inner: "d" };
    refused("copy from elsewhere", store.copy(Some(&head), source, "d", &meta()).unwrap_err());
    refused("move", store.rename(&head, "h", "moved", &meta()).unwrap_err());
    refused("folder", store.make_folder(Some(&head), "folder", &meta()).unwrap_err());
    let patch = Patch::Text { old: b"3".to_vec(), new: b"4".to_vec() };
    refused("edit", store.patch_file(&head, "h", &[patch], None, 9, &meta()).unwrap_err());
    refused("restore", store.restore(Some(&head), "g", &side, &meta()).unwrap_err());
    refused("revert", store.revert(&head, "", &head, &meta()).unwrap_err());
    refused("baseline", store.import(&other, &foreign, &meta()).unwrap_err());
    let push = PushLimits { file_bytes: 99, total_bytes: 9999, objects: 99 };
    refused("push", store.take_in(&mut &*pack, &[pushed], &push).unwrap_err());
    assert_eq!(bench.trees.usage(&acme).unwrap().bytes, full.bytes);
    // What is there already costs nothing, and more room is room at once.
    assert_eq!(store.write_file(Some(&head), "h", &mut &b"3"[..], 9, false, &meta()).unwrap(), head);
    bench.trees.set_quota(&acme, None);
    store.write_file(Some(&base), "x", &mut &b"x"[..], 9, false, &meta()).unwrap();
}

#[test]
fn a_full_tenant_deletes_and_purges() {
    let bench = Bench::new();
    let acme = "acme".parse().unwrap();
    let base = bench.write(None, "f", b"1");
    let head = bench.write(Some(&base), "secret", b"2");
    let full = TenantQuota { bytes: bench.trees.usage(&acme).unwrap().bytes, ..TenantQuota::UNLIMITED };
    bench.trees.set_quota(&acme, Some(full));
    let without = bench.store.delete(Some(&head), "f", &meta()).unwrap().unwrap();
    assert!(bench.trees.usage(&acme).unwrap().bytes > full.bytes, "deletions are counted");
    let refused = bench.store.write_file(Some(&without), "x", &mut &b"x"[..], 9, false, &meta()).unwrap_err();
    assert_eq!(refused.kind(), TreeErrorKind::QuotaExceeded);
    let purge = bench.store.prepare_purge("secret", std::slice::from_ref(&without)).unwrap();
    let clean = purge.now(&without);
    bench.store.seal_purge(purge).unwrap();
    assert!(bench.store.read(&clean, "secret").is_err() && bench.store.read(&without, "secret").is_err());
}

#[test]
fn number_and_size_of_files_are_limited_too() {
    let bench = Bench::new();
    let acme = "acme".parse().unwrap();
    let quota = TenantQuota { files: 6, file_bytes: 1000, ..TenantQuota::UNLIMITED };
    bench.trees.set_usual_quota(quota);
    let first = bench.write(None, "a", b"1");
    let told = |error: TreeError| error.to_string();
    let large = bench.store.write_file(Some(&first), "b", &mut &[1; 1001][..], 9999, false, &meta());
    assert_eq!(told(large.unwrap_err()), "the quota `file_bytes` is exceeded: 1001 to come, 1 over the 1000 allowed");
    let huge = bench.store.write_file(Some(&first), "b", &mut &*vec![1; 3 << 20], u64::MAX, false, &meta());
    assert!(told(huge.unwrap_err()).contains("file_bytes"));
    let second = bench.write(Some(&first), "b", &[1; 1000]);
    assert_eq!(bench.trees.usage(&acme).unwrap().files, 6);
    let third = bench.store.write_file(Some(&second), "c", &mut &b"3"[..], 9999, false, &meta());
    assert_eq!(told(third.unwrap_err()), "the quota `files` is exceeded: 6 used and 1 to come, 1 over the 6 allowed");
}

#[test]
fn a_store_that_is_removed_is_gone_once_nobody_has_it_and_counts_no_more() {
    let bench = Bench::new();
    let acme = "acme".parse().unwrap();
    let ana = RepoId { tenant: "acme".parse().unwrap(), user: Some("ana".parse().unwrap()) };
    let kept = bench.write(None, "f", b"1");
    let before = bench.trees.usage(&acme).unwrap();
    let store = bench.trees.store(&ana).unwrap();
    let version = store.write_file(None, "x", &mut &b"content"[..], 99, false, &meta()).unwrap();
    let folder = store.folder().to_owned();
    assert!(bench.trees.usage(&acme).unwrap().bytes > before.bytes && folder.is_dir());
    assert!(!bench.trees.remove(&ana).unwrap(), "somebody has it");
    assert!(store.contains(&version).unwrap());
    drop(store);
    assert!(bench.trees.remove(&ana).unwrap());
    assert!(!folder.exists() && !folder.with_extension("gone").exists());
    assert_eq!(bench.trees.usage(&acme).unwrap(), before);
    // Again is no error; what a crash left half done goes with it.
    std::fs::create_dir_all(folder.with_extension("gone").join("objects")).unwrap();
    assert!(bench.trees.remove(&ana).unwrap());
    assert!(!folder.with_extension("gone").exists());
    // Others keep what is theirs, and the next of that name begins anew.
    assert!(bench.store.contains(&kept).unwrap());
    let anew = bench.trees.store(&ana).unwrap();
    assert!(!anew.contains(&version).unwrap());
    anew.write_file(None, "x", &mut &b"content"[..], 99, false, &meta()).unwrap();
    assert!(bench.trees.usage(&acme).unwrap().bytes > before.bytes);
    assert_eq!(
        bailey_tree::Trees::open(&bench.dir.path().join("trees")).unwrap().usage(&acme).unwrap(),
        bench.trees.usage(&acme).unwrap()
    );
}
