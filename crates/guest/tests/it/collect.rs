//! The collector on real overlay mounts: what the code did to `merged`, and what the stream says of it.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use bailey_protocol::change::{MAGIC, NoticeReason, tag};
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::guest::{binary, required};

/// One record, in words: kind, path, and what else there is to say.
pub(crate) type Record = (char, String, String);

/// An overlay over a tmpfs, taken down when dropped.
struct Overlay {
    root: tempfile::TempDir,
}

impl Overlay {
    fn new(prepare: impl FnOnce(&Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let base = root.path();
        rustix::mount::mount("tmpfs", base, "tmpfs", MountFlags::empty(), Some(c"size=64m")).unwrap();
        for name in ["lower", "upper", "work", "merged"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        prepare(&base.join("lower"));
        let options = format!("lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work", base.display());
        let options = CString::new(options).unwrap();
        rustix::mount::mount("overlay", base.join("merged"), "overlay", MountFlags::empty(), &*options).unwrap();
        Self { root }
    }

    fn merged(&self) -> std::path::PathBuf {
        self.root.path().join("merged")
    }

    fn sh(&self, script: &str) {
        let status = Command::new("bash").args(["-ec", script]).current_dir(self.merged()).status().unwrap();
        assert!(status.success(), "{script}");
    }

    fn raw(&self) -> Vec<u8> {
        let open = |name: &str| OwnedFd::from(fs::File::open(self.root.path().join(name)).unwrap());
        let mut child = Command::new("bash")
            .args(["-c", "exec 3>&1 4<&0 5<merged 6<lower 0</dev/null 1>/dev/null; exec \"$0\" collect"])
            .arg(binary())
            .current_dir(self.root.path())
            .stdin(Stdio::from(open("upper")))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut bytes = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() || bytes.contains(&tag::FAILED), "{status}");
        bytes
    }

    fn records(&self) -> Vec<Record> {
        let first = self.raw();
        assert_eq!(first, self.raw(), "the stream is not the same twice");
        decode(&first)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _gone = rustix::mount::unmount(self.merged(), UnmountFlags::DETACH);
        let _gone = rustix::mount::unmount(self.root.path(), UnmountFlags::DETACH);
    }
}

/// The records of a whole stream.
pub(crate) fn decode(bytes: &[u8]) -> Vec<Record> {
    let mut rest = bytes.strip_prefix(MAGIC).unwrap();
    let mut records = Vec::new();
    loop {
        let kind = take(&mut rest, 1)[0];
        if kind == tag::END {
            let count = u64::from_be_bytes(take(&mut rest, 8).try_into().unwrap());
            assert_eq!(count, records.len() as u64);
            assert!(rest.is_empty());
            return records;
        }
        let path = field(&mut rest);
        let detail = match kind {
            tag::FILE => {
                let executable = take(&mut rest, 1)[0];
                let size = u64::from_be_bytes(take(&mut rest, 8).try_into().unwrap());
                let content = take(&mut rest, usize::try_from(size).unwrap());
                format!("{executable}:{}", String::from_utf8_lossy(&content[..content.len().min(40)]))
            }
            tag::SYMLINK => field(&mut rest),
            tag::NOTICE => format!("{:?}", NoticeReason::from_byte(take(&mut rest, 1)[0]).unwrap()),
            tag::DIRECTORY | tag::DELETE => String::new(),
            tag::FAILED => panic!("failed: {path}"),
            other => panic!("tag {other}"),
        };
        records.push((char::from(kind), path, detail));
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (head, tail) = rest.split_at(length);
    *rest = tail;
    head
}

fn field(rest: &mut &[u8]) -> String {
    let length = u16::from_be_bytes(take(rest, 2).try_into().unwrap());
    String::from_utf8_lossy(take(rest, length.into())).into_owned()
}

fn tree(lower: &Path) {
    fs::create_dir_all(lower.join("d/sub")).unwrap();
    for (name, text) in [("a", "one"), ("b", "two"), ("d/f", "three"), ("d/g", "four"), ("d/sub/h", "five")] {
        fs::write(lower.join(name), text).unwrap();
    }
    symlink("a", lower.join("l")).unwrap();
}

/// Applies a script to the standard tree and compares, in short form: `kind path detail`.
fn check(script: &str, wanted: &[&str]) {
    let overlay = Overlay::new(tree);
    overlay.sh(script);
    let got: Vec<String> =
        overlay.records().into_iter().map(|(k, p, d)| format!("{k} {p} {d}").trim_end().to_owned()).collect();
    assert_eq!(got, wanted, "{script}");
}

#[test]
fn a_table_of_changes() {
    required();
    check("true", &[]);
    check("echo -n new > n", &["F n 0:new"]);
    check("echo -n ONE > a", &["F a 0:ONE"]);
    check("touch a; chmod 600 b; chown 5:5 d/f", &[]);
    check("chmod 755 a", &["F a 1:one"]);
    check("rm a", &["X a"]);
    check("rm -r d", &["X d"]);
    check("rm d/f", &["D d", "X d/f"]);
    check("rm d/sub/h", &["D d", "D d/sub", "X d/sub/h"]);
    check("mkdir e e/x; echo -n 1 > e/x/y", &["D e", "D e/x", "F e/x/y 0:1"]);
    check("touch d/sub/h", &[]);
    check("ln -sf b l", &["L l b"]);
    check("rm l; ln -s a l", &[]);
}

#[test]
fn a_folder_deleted_and_made_again_has_none_of_its_old_files() {
    required();
    check("rm -r d; mkdir d; echo -n x > d/new", &["D d", "X d/f", "X d/g", "X d/sub", "F d/new 0:x"]);
    check("rm -r d; mkdir d", &["D d", "X d/f", "X d/g", "X d/sub"]);
    check("rm -r d; mkdir d; echo -n three > d/f", &["D d", "X d/g", "X d/sub"]);
    check(
        "rm -r d; mkdir -p d/sub; echo -n k > d/sub/k",
        &["D d", "X d/f", "X d/g", "D d/sub", "X d/sub/h", "F d/sub/k 0:k"],
    );
}

#[test]
fn things_that_become_other_things() {
    required();
    check("rm a; mkdir a; echo -n i > a/i", &["X a", "D a", "F a/i 0:i"]);
    check("rm -r d; echo -n i > d", &["X d", "F d 0:i"]);
    check("rm a; ln -s b a", &["X a", "L a b"]);
    check("rm -r d; ln -s b d", &["X d", "L d b"]);
    check("rm l; echo -n i > l", &["X l", "F l 0:i"]);
    check(
        "mv d e 2>/dev/null || { cp -r d e; rm -r d; }",
        &["X d", "D e", "F e/f 0:three", "F e/g 0:four", "D e/sub", "F e/sub/h 0:five"],
    );
    check("mv a z", &["X a", "F z 0:one"]);
}

#[test]
fn f13_what_a_tree_cannot_hold_is_dropped_with_a_notice() {
    required();
    check("mkfifo p", &["N p Fifo"]);
    check("rm a; mkfifo a", &["X a", "N a Fifo"]);
    check("mknod z c 1 3", &["N z Device"]);
    check("echo -n x > s; chmod 4755 s", &["F s 1:x", "N s SpecialBits"]);
    check("echo -n x > x; ln x y", &["F x 0:x", "F y 0:x", "N y HardLink"]);
    check("truncate -s 8E big 2>/dev/null || truncate -s 1P big", &["N big TooLarge"]);
    check("truncate -s 1P a", &["X a", "N a TooLarge"]);
    check("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'", &["N s Socket"]);
    check("touch .wh.a; mkdir .wh..wh..opq", &["D .wh..wh..opq", "F .wh.a 0:"]);
    check("rm a; touch '.wh.a'", &["F .wh.a 0:", "X a"]);
}

#[test]
fn r08_holes_and_second_names_cost_no_more_than_the_disk_that_was_granted() {
    required();
    check("truncate -s 65M hole", &["N hole TooLarge"]);
    let overlay = Overlay::new(tree);
    overlay.sh("head -c 30M /dev/zero > w; ln w x; ln w y; ln w z; echo -n 1 > zz");
    let kinds: Vec<String> = overlay.records().iter().map(|(kind, path, _)| format!("{kind} {path}")).collect();
    assert_eq!(kinds, ["F w", "F x", "N x", "N y", "N z", "F zz"]);
}

#[test]
fn names_of_any_bytes_and_unreadable_modes() {
    required();
    check("echo -n x > $'a\\nb\\xff'; mkdir -m 000 locked", &["F a\nb\u{fffd} 0:x", "D locked"]);
    check("mkdir m; echo -n x > m/f; chmod 000 m/f m", &["D m", "F m/f 0:x"]);
}

#[test]
fn deep_trees_and_long_paths_end_in_notices_and_not_in_errors() {
    required();
    let overlay = Overlay::new(|_| {});
    overlay.sh("python3 - <<'E'\nimport os\nfor i in range(400):\n os.mkdir('n'); os.chdir('n')\nopen('f','w')\nE");
    let records = overlay.records();
    assert_eq!(records.len(), 257);
    assert_eq!(records.last().unwrap().2, "PathTooLong");
    let overlay = Overlay::new(|_| {});
    overlay.sh("python3 - <<'E'\nimport os\nfor i in range(30):\n os.mkdir('x'*200); os.chdir('x'*200)\nE");
    let records = overlay.records();
    assert_eq!(records.len(), 21);
    assert_eq!(records.last().unwrap().2, "PathTooLong");
}

#[test]
fn a_folder_of_many_files_costs_what_changed() {
    required();
    let overlay = Overlay::new(|lower| {
        for i in 0..5000 {
            fs::write(lower.join(format!("f{i}")), "x").unwrap();
        }
    });
    overlay.sh("echo -n y > f77; rm f78");
    let records = overlay.records();
    assert_eq!(records, [('F', "f77".into(), "0:y".into()), ('X', "f78".into(), String::new())]);
}

#[test]
fn a_link_in_the_upper_layer_leads_nowhere() {
    required();
    // Not something an overlay would make: the collector must not follow it either way.
    let overlay = Overlay::new(tree);
    let upper = overlay.root.path().join("upper");
    symlink("/etc", upper.join("etc")).unwrap();
    rustix::fs::mknodat(CWD, upper.join("odd"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    assert!(fs::symlink_metadata(upper.join("odd")).unwrap().file_type().is_char_device());
    let records = overlay.records();
    assert!(records.iter().all(|(_, path, _)| !path.contains('/')), "{records:?}");
    fs::set_permissions(overlay.merged(), fs::Permissions::from_mode(0o755)).unwrap();
}
