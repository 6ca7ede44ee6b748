//! Large files, many files, many versions, many writers: in short by default, and at full size with
//!
//! ```console
//! $ BAILEY_LONG=1 cargo test --release -p bailey-tree --test it long
//! ```
//!
//! There they take turns. What is about memory has a process to itself.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Instant;

use bailey_protocol::change::{Header, MAGIC};
use bailey_protocol::id::VersionId;
use bailey_tree::{Merge, PushLimits, Thoroughness, TreeError};

use super::pushed::{BLOB, COMMIT, TREE, commit, deflated, framed, header, hex, id_of, item};
use super::{Bench, git_output, meta};

fn long() -> bool {
    std::env::var_os("BAILEY_LONG").is_some()
}

/// At full size, one at a time: they are measured, and take what the machine has.
fn turn() -> Option<std::sync::MutexGuard<'static, ()>> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    long().then(|| TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Does `body` in a process that has nothing else to do: this program again, asked for the one test `name`.
fn alone(name: &str, body: impl FnOnce()) {
    const MARK: &str = "BAILEY_ALONE";
    if std::env::var_os(MARK).is_some_and(|asked| asked == name) {
        return body();
    }
    let _turn = turn();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let ended = command.args(["--exact", name, "--nocapture"]).env(MARK, name).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    eprintln!("{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// The most that was resident since the last [`forget_most`].
fn most_resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

fn forget_most() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// A pack of `versions` versions of one branch, each with a file, a folder and a commit of its own; and the last one.
fn chain(versions: u32) -> (Vec<u8>, VersionId) {
    let (mut body, mut parents) = (Vec::new(), Vec::new());
    for n in 0..versions {
        let blob = n.to_string().into_bytes();
        let tree = item("100644", b"f", &id_of(BLOB, &blob));
        let made = commit(&id_of(TREE, &tree), &parents);
        parents = vec![id_of(COMMIT, &made)];
        for (kind, bytes) in [(BLOB, &blob), (TREE, &tree), (COMMIT, &made)] {
            body.extend(header(kind, bytes.len() as u64));
            body.extend(deflated(bytes));
        }
    }
    (framed(versions * 3, &body), hex(&parents[0]).parse().unwrap())
}

const LIMITS: PushLimits = PushLimits { file_bytes: 1 << 20, total_bytes: 1 << 30, objects: 1_000_000 };

/// Says what was measured, for whoever reads a long run.
fn told(what: &str, since: Instant) {
    eprintln!("{what}: {:.3} s", since.elapsed().as_secs_f64());
}

/// `size` bytes that do not repeat, made as they are read.
struct Noise {
    at: u64,
    size: u64,
}

impl std::io::Read for Noise {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = usize::try_from(self.size - self.at).unwrap_or(usize::MAX).min(out.len());
        for byte in &mut out[..count] {
            *byte = noise(self.at);
            self.at += 1;
        }
        Ok(count)
    }
}

fn noise(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[test]
fn a_large_file_passes_in_flat_memory_both_ways() {
    alone("long::a_large_file_passes_in_flat_memory_both_ways", large_file);
}

fn large_file() {
    let size = if long() { 5 << 30 } else { 96 << 20 };
    let bench = Bench::new();
    forget_most();
    let before = resident();
    let start = Instant::now();
    let version = bench.store.write_file(None, "big", &mut Noise { at: 0, size }, u64::MAX, false, &meta()).unwrap();
    told("written", start);
    let start = Instant::now();
    let mut blob = bench.store.read(&version, "big").unwrap();
    assert_eq!(blob.len(), size);
    let (mut buffer, mut at) = (vec![0; 1 << 16], 0);
    loop {
        let count = blob.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        assert_eq!((buffer[0], buffer[count - 1]), (noise(at), noise(at + count as u64 - 1)));
        at += count as u64;
        if at % (8 << 20) < 1 << 16 {}
    }
    told("read", start);
    assert_eq!(at, size);
    blob.seek(SeekFrom::Start(size - 10)).unwrap();
    let mut last = Vec::new();
    blob.read_to_end(&mut last).unwrap();
    assert_eq!(last, (size - 10..size).map(noise).collect::<Vec<_>>());
    // A checksum of four bytes for each block of the file, and buffers.
    let grown = most_resident().saturating_sub(before);
    eprintln!("{} MiB more for {} MiB", grown >> 20, size >> 20);
    let most = if long() { 64 << 20 } else { 32 << 20 };
    assert!(grown < most, "{grown} bytes more");
}

#[test]
fn a_push_of_many_small_objects_takes_little_memory_for_each() {
    alone("long::a_push_of_many_small_objects_takes_little_memory_for_each", many_objects);
}

fn many_objects() {
    let versions = if long() { 100_000 } else { 10_000 };
    let (pack, tip) = chain(versions);
    let bench = Bench::new();
    bench.write(None, "there", b"before");
    forget_most();
    let before = resident();
    let start = Instant::now();
    let pushed = bench.store.take_in(&mut &*pack, std::slice::from_ref(&tip), &LIMITS).unwrap();
    assert_eq!(pushed.objects(), versions as usize * 3);
    pushed.publish().unwrap();
    told("taken in and published", start);
    let grown = most_resident().saturating_sub(before);
    let each = grown / u64::from(versions * 3);
    eprintln!("{} MiB more for {} objects, {each} bytes each", grown >> 20, versions * 3);
    assert!(grown < (16 << 20) + u64::from(versions * 3) * 600, "{grown} bytes more");
    assert_eq!(bench.read(&tip, "f"), (versions - 1).to_string().as_bytes());
}

#[test]
fn many_files_are_taken_in_listed_forked_and_sliced() {
    let _turn = turn();
    let (folders, files) = if long() { (1000, 1000) } else { (40, 250) };
    let bench = Bench::new();
    let mut stream = MAGIC.to_vec();
    for folder in 0..folders {
        for file in 0..files {
            let (path, content) = (format!("d{folder:04}/f{file:04}"), format!("{folder}/{file}"));
            let size = content.len() as u64;
            Header::File { path: path.as_bytes(), executable: false, size }.encode(&mut stream).unwrap();
            stream.extend_from_slice(content.as_bytes());
        }
    }
    Header::End { records: folders * files }.encode(&mut stream).unwrap();
    let start = Instant::now();
    let version = bench.store.apply_changes(None, "", &mut &*stream, &meta()).unwrap().version.unwrap();
    told("taken in", start);
    let start = Instant::now();
    let mut listed = 0;
    for folder in bench.store.list(Some(&version), "").unwrap() {
        listed += bench.store.list(Some(&version), &folder.name).unwrap().len() as u64;
    }
    told("listed", start);
    assert_eq!(listed, folders * files);
    // A fork is a name for a version, and a slice a tree id: neither looks at the files.
    let start = Instant::now();
    let slice = bench.store.subtree(Some(&version), "d0007").unwrap().unwrap();
    let next = bench.write(Some(&version), "d0007/f0003", b"changed");
    told("sliced, and one file committed", start);
    assert_ne!(bench.store.subtree(Some(&next), "d0007").unwrap().unwrap(), slice);
    let start = Instant::now();
    let out = bench.dir.path().join("out");
    bench.store.checkout(&slice, &out).unwrap();
    told("one folder checked out", start);
    assert_eq!(std::fs::read_dir(out).unwrap().count() as u64, files);
    let start = Instant::now();
    let heads = || Ok::<_, TreeError>(vec![next.clone()]);
    let report = bench.store.awake().collect_garbage(heads, Thoroughness::Usual).unwrap();
    told("marked", start);
    assert!(report.live >= folders * files);
    let fresh = bailey_tree::Trees::open(&bench.dir.path().join("trees")).unwrap();
    let (start, before) = (Instant::now(), resident());
    let store = fresh.store(bench.store.id()).unwrap();
    assert_eq!(store.entry(Some(&next), "d0007/f0003").unwrap().unwrap().size, Some(7));
    told("opened anew", start);
    assert!(resident().saturating_sub(before) < 64 << 20, "the index stays on disk");
}

#[test]
fn many_versions_stay_quick_to_add_to_to_look_back_on_and_to_open() {
    let _turn = turn();
    // Most of a long history comes at once: what is slow or not is one version more.
    let (before, versions) = if long() { (98_800_u32, 1200_u64) } else { (300, 1200) };
    let mut bench = Bench::new();
    let start = Instant::now();
    let (pack, tip) = chain(before);
    bench.store.take_in(&mut &*pack, std::slice::from_ref(&tip), &LIMITS).unwrap().publish().unwrap();
    told("versions before", start);
    bench.store = bench.store.resting(None);
    let mut head = Some(tip);
    let start = Instant::now();
    for n in 0..versions {
        let store = bench.store.awake();
        let path = format!("d{}/f{}", n % 17, n % 101);
        let content = n.to_string();
        head = Some(store.write_file(head.as_ref(), &path, &mut content.as_bytes(), u64::MAX, false, &meta()).unwrap());
        drop(store);
        if n % 200 == 199 {
            let none = || Ok::<_, TreeError>(Vec::new());
            bench.store.awake().collect_garbage(none, Thoroughness::Merge).unwrap();
        }
    }
    told("all versions", start);
    let head = head.unwrap();
    assert!(bench.store.packs() <= 260, "{}", bench.store.packs());
    let start = Instant::now();
    let last = bench.store.awake().write_file(Some(&head), "one", &mut &b"more"[..], 99, false, &meta()).unwrap();
    told("one more", start);
    let start = Instant::now();
    let (page, next) = bench.store.history(&last, "", 1000, None).unwrap();
    told("a page of history", start);
    assert_eq!((page.len(), next.is_some()), (1000, true));
    bench.reopen();
    let start = Instant::now();
    let last_write = (0..versions).rev().find(|n| n % 17 == 3 && n % 101 == 3);
    if let Some(n) = last_write {
        assert_eq!(bench.read(&last, "d3/f3"), n.to_string().as_bytes());
    }
    assert_eq!(bench.read(&last, "one"), b"more");
    told("opened anew, and read", start);
    bench.store.publish_refs(&[("main".parse().unwrap(), last)]).unwrap();
    let count = git_output(bench.store.folder(), &["rev-list", "--count", "main"]);
    assert_eq!(count.trim(), (u64::from(before) + versions + 1).to_string());
}

#[test]
fn sixty_four_writers_on_one_branch_all_get_their_turn() {
    let _turn = turn();
    let rounds = if long() { 50 } else { 4 };
    let bench = std::sync::Arc::new(Bench::new());
    let first = bench.write(None, "start", b"0");
    let head = std::sync::Arc::new(std::sync::Mutex::new(first));
    let start = Instant::now();
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let (bench, head) = (std::sync::Arc::clone(&bench), std::sync::Arc::clone(&head));
            std::thread::spawn(move || {
                for round in 0..rounds {
                    let base = head.lock().unwrap().clone();
                    let made = bench.write(Some(&base), &format!("w{writer}/{round}"), b"x");
                    let mut now = head.lock().unwrap();
                    match bench.store.merge(Some(&now), &made, &meta()).unwrap() {
                        Merge::Merged(merged) => *now = merged,
                        Merge::Conflict(paths) => panic!("{paths:?}"),
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    told("all writers", start);
    let head = head.lock().unwrap().clone();
    for writer in 0..64 {
        assert_eq!(bench.store.list(Some(&head), &format!("w{writer}")).unwrap().len(), rounds);
    }
    bench.fsck(&head);
}
