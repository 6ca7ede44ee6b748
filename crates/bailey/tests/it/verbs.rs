//! The verbs that change a tree, whole folders and archives, from the command line.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::server::{Server, User};

fn names(user: &User, path: &str) -> Vec<String> {
    let listing = user.json(&["ls", "-r", path]);
    listing["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

/// Every path below a folder with its mode and content, links as links.
fn manifest(folder: &Path) -> Vec<(Vec<u8>, u32, Vec<u8>)> {
    let (mut found, mut rest) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(at) = rest.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let facts = std::fs::symlink_metadata(&path).unwrap();
            let content = if facts.is_symlink() {
                std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else if facts.is_dir() {
                rest.push(path.clone());
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            let mode = if facts.is_file() { facts.permissions().mode() & 0o111 } else { 0 };
            found.push((path.strip_prefix(folder).unwrap().as_os_str().as_bytes().to_vec(), mode, content));
        }
    }
    found.sort();
    found
}

#[test]
fn a_folder_goes_up_and_comes_down_as_it_was() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::create_dir_all(from.join("a/.git")).unwrap();
    std::fs::create_dir_all(from.join("empty/deep")).unwrap();
    std::fs::write(from.join("a/.git/config"), "[core]\n").unwrap();
    std::fs::write(from.join("tool"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(from.join("tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in [&b"Case"[..], b"case", b"\xff\xfe", b"u\xcc\x88", b"\xc3\xbc", b"line\nend", b"q\"uote", b" "] {
        std::fs::write(from.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
    let local = from.to_str().unwrap();
    let said = ana.ok(&["put", local, "/tenants/acme/d"]);
    assert!(said.starts_with("version ") && said.contains("entries"), "{said}");
    let to = dir.path().join("to");
    ana.ok(&["get", "/tenants/acme/d", to.to_str().unwrap()]);
    assert_eq!(manifest(&from), manifest(&to));
    let part = |range: &str| ana.ok(&["cat", "--range", range, "/tenants/acme/d/tool"]);
    assert_eq!((part("2:6"), part("8"), part("8:99")), ("/bin/s".to_owned(), "h\n".to_owned(), "h\n".to_owned()));
    ana.fails(1, &["cat", "--range", "10:1", "/tenants/acme/d/tool"]);
    let refused = ana.fails(1, &["get", "/tenants/acme/d", to.to_str().unwrap()]);
    assert!(refused.contains("not an empty folder"), "{refused}");
    for (name, format) in [("d.tar", "tar"), ("d.zip", "zip")] {
        let file = dir.path().join(name);
        ana.ok(&["archive", "/tenants/acme/d", file.to_str().unwrap()]);
        ana.ok(&["extract", file.to_str().unwrap(), &format!("/tenants/acme/{format}")]);
        let back = dir.path().join(format);
        ana.ok(&["get", &format!("/tenants/acme/{format}"), back.to_str().unwrap()]);
        assert_eq!(manifest(&from), manifest(&back), "{format}");
    }
    let one = dir.path().join("one");
    ana.ok(&["get", "/tenants/acme/d/tool", one.to_str().unwrap()]);
    assert_eq!(std::fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o755);
    // The same version gives the same bytes.
    let version = ana.json(&["log", "/tenants/acme/d"])["versions"][0]["version"].as_str().unwrap().to_owned();
    let piped = ["archive", "--ref", &version, "--format", "tar", "/tenants/acme/d", "-"];
    assert!(ana.output(&piped).stdout == ana.output(&piped).stdout);
    // Stock git reads the same tree, and finds nothing wrong with it.
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "safe.directory=*", "-c", "core.quotePath=false"])
            .args(arguments)
            .current_dir(server.data().join("serve/trees/acme/tenant.git"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(git(&["fsck", "--full", "--strict", "--no-dangling"]), "");
    assert!(git(&["ls-tree", "-r", "--name-only", "main", "d/"]).contains("d/Case"));
}

#[test]
fn files_are_edited_copied_moved_restored_and_reverted() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/d/f", "one\ntwo\n");
    let first = ana.json(&["log", "/tenants/acme/d"])["versions"][0]["version"].as_str().unwrap().to_owned();
    ana.ok(&["edit", "/tenants/acme/d/f", "--old", "two", "--new", "2"]);
    ana.ok(&["edit", "/tenants/acme/d/f", "--at", "0:3", "--new", "1"]);
    ana.ok(&["edit", "/tenants/acme/d/f", "--executable", "true"]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/d/f"]), "1\n2\n");
    assert!(ana.fails(1, &["edit", "/tenants/acme/d/f", "--old", "3", "--new", ""]).contains("edit_does_not_fit"));
    ana.fails(2, &["edit", "/tenants/acme/d/f", "--old", "3"]);
    let blame = ana.ok(&["blame", "/tenants/acme/d/f"]);
    assert!(blame.lines().count() == 2 && blame.contains("ana") && blame.ends_with("2\n"), "{blame}");
    ana.ok(&["mkdir", "/tenants/acme/e/empty"]);
    ana.ok(&["cp", "/tenants/acme/d", "/tenants/acme/e/d"]);
    ana.ok(&["cp", "--from-ref", &first, "/tenants/acme/d/f", "/tenants/acme/users/ana/f"]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/users/ana/f"]), "one\ntwo\n");
    ana.ok(&["mv", "/tenants/acme/e", "/tenants/acme/g"]);
    assert_eq!(names(&ana, "/tenants/acme"), ["d", "d/f", "g", "g/d", "g/d/f", "g/empty"]);
    assert_eq!(ana.ok(&["ls", "--glob", "**/f", "/tenants/acme"]).lines().count(), 2);
    assert!(ana.fails(1, &["ls", "/tenants/acme/d/f"]).contains("is a file"));
    ana.ok(&["restore", "/tenants/acme/d", &first]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/d/f"]), "one\ntwo\n");
    ana.put("/tenants/acme/d/f", "bad\n");
    let bad = ana.json(&["log", "/tenants/acme/d/f"])["versions"][0]["version"].as_str().unwrap().to_owned();
    ana.ok(&["revert", "/tenants/acme", &bad]);
    assert_eq!(ana.ok(&["cat", "/tenants/acme/d/f"]), "one\ntwo\n");
    assert_eq!(ana.ok(&["history", "/tenants/acme/d/f"]), ana.ok(&["log", "/tenants/acme/d/f"]));
    for arguments in [
        &["edit", "/tenants/acme/d/f", "--old", "one", "--new", "1"][..],
        &["cp", "/tenants/acme/d", "/tenants/acme/h"],
        &["mv", "/tenants/acme/h", "/tenants/acme/i"],
        &["mkdir", "/tenants/acme/j"],
        &["restore", "/tenants/acme/d", &first],
        &["revert", "/tenants/acme/d", &bad],
    ] {
        assert_eq!(ana.json(arguments)["branch"], "main", "{arguments:?}");
    }
    assert!(ana.json(&["blame", "/tenants/acme/d/f"])["spans"].is_array());
}

/// Bytes of no pattern, made as they are read.
struct Noise {
    state: u64,
    left: u64,
}

impl std::io::Read for Noise {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = usize::try_from(self.left.min(out.len() as u64)).unwrap();
        for eight in out[..count].chunks_mut(8) {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            eight.copy_from_slice(&self.state.to_be_bytes()[..eight.len()]);
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Highest resident memory so far, in KiB.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// `BAILEY_TEST_LARGE` is the size in MiB: 5120 for the form that is promised.
#[test]
fn a_file_of_any_size_goes_up_and_down_in_flat_memory() {
    let mib: u64 = std::env::var_os("BAILEY_TEST_LARGE").map_or(192, |text| text.to_str().unwrap().parse().unwrap());
    let size = mib << 20;
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let pid = server.pid().as_raw_nonzero().get();
    let before = peak(pid);
    let mut child = ana.command(&["put", "-", "/tenants/acme/large"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::copy(&mut Noise { state: 1, left: size }, &mut input).unwrap();
    let client = peak(i32::try_from(child.id()).unwrap());
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(client < 128 << 10, "the command line took {client} KiB");
    let mut child = ana.command(&["cat", "/tenants/acme/large"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut expected = Noise { state: 1, left: size };
    let (mut piece, mut wanted) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    while expected.left > 0 {
        // The size is a multiple of a mebibyte.
        output.read_exact(&mut piece).unwrap();
        expected.read_exact(&mut wanted).unwrap();
        assert!(piece == wanted, "{} bytes before the end", expected.left);
    }
    assert_eq!(output.read(&mut piece).unwrap(), 0);
    assert!(child.wait().unwrap().success());
    let grown = peak(pid) - before;
    println!("{mib} MiB up and down: the server grew by {grown} KiB");
    assert!(grown < 96 << 10, "the server grew by {grown} KiB");
}
