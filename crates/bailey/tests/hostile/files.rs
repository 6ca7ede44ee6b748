//! Group F: hostile paths at the API, hostile files from a sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bailey_protocol::change::NoticeReason;
use serde_json::{Value, json};

use crate::oracle::Canary;
use crate::run::Order;
use crate::server::{Server, User, beside_others, shared};

/// Files outside the server's data folder that traversal would hit, with what they are now.
fn host_manifest() -> BTreeMap<PathBuf, Option<[String; 3]>> {
    let paths =
        ["/etc/passwd", "/etc/shadow", "/tmp/x", "/tmp/pwned", "/root/.bashrc", "/etc/cron.d/x", "/x", "/data/x"];
    let state = |path: &str| {
        let meta = fs::metadata(path).ok()?;
        Some([meta.ino().to_string(), meta.mtime().to_string(), meta.len().to_string()])
    };
    paths.iter().map(|path| (PathBuf::from(path), state(path))).collect()
}

/// Everything below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn f01_no_spelling_of_a_path_leaves_the_tenant() {
    const SPELLINGS: [&str; 30] = [
        "../../etc/passwd",
        "a/../../b",
        "../initech/plan",
        "..%2finitech%2fplan",
        "%2e%2e/initech/plan",
        "%2e%2e%2finitech%2fplan",
        "%252e%252e/initech/plan",
        "..\\initech\\plan",
        "..%5cinitech%5cplan",
        "....//initech/plan",
        "．．/initech/plan",
        "%c0%ae%c0%ae/initech/plan",
        "%ef%bc%8e%ef%bc%8e/initech/plan",
        "a%00/../../initech/plan",
        "./../initech/plan",
        ".",
        "..",
        "...",
        "a/.",
        "a/..",
        "/../initech/plan",
        "//initech/plan",
        "a;/../initech/plan",
        "a%0d%0aX:%20y",
        "a?/../../initech/plan",
        "%2e",
        "%2e%2e",
        "a/%2e%2e/%2e%2e/initech/plan",
        "trailing.",
        "trailing%20",
    ];
    let _guard = beside_others();
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("initech", "gus"));
    let canary = Canary::fresh();
    server.put(&gus, "plan", canary.text().as_bytes());
    assert!(canary.find(&server.get(&gus, "plan").raw).is_some(), "the owner cannot read it, so this shows nothing");
    let head =
        |user: &User| server.request(user, "GET", &format!("/v1/tree-history/tenants/{}", user.tenant), b"").body;
    let (host, theirs) = (host_manifest(), head(&gus));
    let mut received = Vec::new();
    let starts = [
        "/v1/tree/tenants/acme/",
        "/v1/tree/tenants/",
        "/v1/tree/",
        "/v1/tree-history/tenants/acme/",
        "/v1/tree-diff/tenants/acme/",
    ];
    for spelling in SPELLINGS {
        for start in starts {
            for method in ["GET", "PUT", "DELETE"] {
                let reply = server.request(
                    &ana,
                    method,
                    &format!("{start}{spelling}"),
                    if method == "PUT" { b"hostile" } else { b"" },
                );
                assert!(reply.status < 500, "{method} {start}{spelling}: {}", String::from_utf8_lossy(&reply.raw));
                received.extend(reply.raw);
            }
        }
        // The same as mounts of a run.
        for path in [format!("/tenants/acme/{spelling}"), format!("/tenants/{spelling}")] {
            let order = Order::shell("cat /data/* /data/plan").with("mounts", json!([{ "path": path, "at": "/data" }]));
            let mut answer = server.post_run(&ana, &order).unwrap();
            std::io::Read::read_to_end(&mut answer.body, &mut received).unwrap();
        }
    }
    assert_eq!(canary.find(&received), None, "another tenant's file came out");
    assert!(!String::from_utf8_lossy(&received).contains("root:x:0:0"), "a file of a system came out");
    assert_eq!(host_manifest(), host);
    assert_eq!(head(&gus), theirs, "the other tenant's tree has changed");
    // What parsed as an ordinary name must have stayed one, inside the tenant's tree.
    for name in ["tenant.git", "users"] {
        assert!(!server.data().join("serve").join(name).exists());
    }
}

#[test]
fn f01_a_mount_point_cannot_be_a_place_that_matters() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    server.put(&ana, "at/passwd", b"hostile\n");
    let places = [
        "/",
        "/proc",
        "/proc/self",
        "/proc/1/root",
        "/dev",
        "/dev/shm",
        "/dev/pts",
        "/sys",
        "/run/bailey",
        "/run/bailey/agent",
        "/run",
        "/etc",
        "/usr",
        "/usr/bin",
        "/bin",
        "/lib64",
        "/home/user/../../etc",
        "/data/..",
        "relative",
        "",
        "/data/",
        "//data",
        "/da\u{0}ta",
    ];
    for at in places {
        let order = Order::shell("true")
            .with("mounts", json!([{ "path": ana.path("at"), "at": at }]))
            .limit("timeout_ms", 10_000);
        let mut answer = server.post_run(&ana, &order).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut answer.body, &mut text).unwrap();
        assert!(answer.status < 500, "`{at}`: {text}");
        // Where it is allowed, only the run's own view may change; PID 1 must stay in charge of it.
        let ended = text.contains("\"exited\"") || text.contains("\"failed\"") || answer.status >= 400;
        assert!(ended, "`{at}`: {text}");
        for never in ["/proc", "/dev", "/sys", "/run/bailey", "/"] {
            if at == never || at.starts_with("/proc/") || at.starts_with("/run/bailey/") {
                assert!(!text.contains("\"exited\""), "`{at}` was mounted over");
            }
        }
    }
    // A mount point through a link of the slice mounted before it.
    let setup = "import os; os.symlink('/etc', '/data/to-etc'); os.symlink('/run/bailey', '/data/to-bailey')";
    server.run(&ana, &Order::python(setup).data(&ana, "links")).succeeded();
    for at in ["/data/to-etc/x", "/data/to-etc", "/data/to-bailey"] {
        let mounts = json!([{ "path": ana.path("links"), "at": "/data" }, { "path": ana.path("at"), "at": at }]);
        let mut answer = server
            .post_run(&ana, &Order::shell("cat /etc/passwd | head -1; ls /etc/x").with("mounts", mounts))
            .unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut answer.body, &mut text).unwrap();
        assert!(!text.contains("hostile"), "`{at}` led out of the mount: {text}");
    }
    server.run(&ana, &Order::shell("true")).succeeded();
}

fn hostile_run(server: &Server, user: &User, folder: &str, root: bool) -> crate::run::Outcome {
    for (name, content) in [
        ("was-folder/inner", "old"),
        ("was-file", "old"),
        ("again/old", "old"),
        ("moved-from/inner", "moved"),
        ("again/deeper/old", "old"),
    ] {
        server.put(user, &format!("{folder}/{name}"), content.as_bytes());
    }
    let order = Order::attack("files", if root { &["root"] } else { &[""] }).data(user, folder);
    server.run(user, &if root { order.root() } else { order }).succeeded()
}

/// What may lie in a folder of the server: files and folders without special bits, and links, whatever they say.
fn assert_harmless(folder: &Path) {
    for path in walk(folder) {
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            // Other cases use the same server: what it has taken away since is not left behind.
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        let kind = meta.file_type();
        let special = kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device();
        assert!(!special, "{}", path.display());
        assert!(kind.is_symlink() || meta.mode() & 0o7000 == 0, "{} has mode {:o}", path.display(), meta.mode());
        assert!(!kind.is_file() || meta.len() < 1 << 33, "{} has {} bytes", path.display(), meta.len());
        assert_eq!(meta.uid(), bailey_protocol::jail::SERVER_UID, "{}", path.display());
    }
}

#[test]
fn f10_what_a_run_leaves_behind_is_data() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let host = host_manifest();
    for root in [false, true] {
        let folder = if root { "f10-root" } else { "f10" };
        let outcome = hostile_run(server, &ana, folder, root);
        let result = outcome.result();
        let version = result.versions.first().unwrap_or_else(|| panic!("nothing was committed: {}", outcome.summary()));
        let reasons: BTreeSet<String> = result.notices.iter().map(|notice| format!("{:?}", notice.reason)).collect();
        for reason in [
            NoticeReason::Fifo,
            NoticeReason::Socket,
            NoticeReason::SpecialBits,
            NoticeReason::HardLink,
            NoticeReason::TooLarge,
            NoticeReason::PathTooLong,
        ] {
            assert!(reasons.contains(&format!("{reason:?}")), "no notice of {reason:?}: {reasons:?}");
        }
        assert_harmless(&server.data().join("serve"));
        let store = server.data().join("serve/trees/acme/tenant.git");
        let fsck = Command::new("git")
            .args(["-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null"])
            // What a run writes into `.gitmodules` is its own matter: nothing here reads it, and git refuses to follow it.
            .args(["-c", "fsck.gitmodulesUrl=ignore", "--git-dir"])
            .arg(&store)
            .args(["fsck", "--full", "--strict", "--no-dangling"])
            .output()
            .unwrap();
        assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stderr));
        assert!(fsck.stderr.is_empty(), "{}", String::from_utf8_lossy(&fsck.stderr));
        let names = |below: &str| -> BTreeSet<String> {
            let listing: Value = server.get(&ana, &format!("{folder}{below}")).json();
            listing["entries"]
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| entry["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let top = names("");
        for name in ["fifo", "socket", "memory", "disk", "whiteout", "sparse"] {
            assert!(!top.contains(name), "`{name}` is in version {}", version.version);
        }
        for name in [".wh.plain", ".wh..wh..opq", "new\nline", "-rf", "plain", ".git", "to-root", "trailing."] {
            assert!(top.contains(name), "`{name}` is missing: {top:?}");
        }
        assert_eq!(names("/again"), BTreeSet::new(), "a folder made again came back with its old content");
        // Nor does it keep anyone from mounting the folders above it.
        server.run(&ana, &Order::shell("true").data(&ana, folder)).succeeded();
        let whole = json!([{ "path": "/tenants/acme", "at": "/data", "read_only": true }]);
        server.run(&ana, &Order::shell("ls /data").with("mounts", whole)).succeeded();
        // A reader with a checkout of it sees links as links, and nothing is followed or run.
        let order = Order::shell(
            "cat /data/plain; readlink /data/to-etc; ls -A /data/again; stat -c %F /data/was-folder; cat /data/was-file/now; \
            cat /data/.git/config; test -e /tmp/hook-ran && echo RAN",
        );
        let seen = server.run(&ana, &order.data(&ana, folder)).text();
        assert_eq!(
            seen.lines().take(4).collect::<Vec<_>>(),
            ["plain", "/etc/passwd", "symbolic link", "now"],
            "{seen}"
        );
        assert!(!seen.contains("RAN"), "a hook ran");
        assert_harmless(&server.data().join("serve"));
        assert!(!Path::new("/tmp/hook-ran").exists(), "a hook ran on the host");
    }
    assert_eq!(host_manifest(), host);
}

#[test]
fn f13_whiteouts_and_overlay_marks_hide_nothing_of_others() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    server.put(&ana, "f13/keep/file", b"kept\n");
    server.put(&ana, "f13/plain", b"plain\n");
    let code = "import os,stat\n\
        open('/data/.wh.plain','w').write('x'); open('/data/keep/.wh..wh..opq','w').write('x'); open('/data/keep/.wh.file','w').write('x')\n\
        for f in ('/data','/data/keep'):\n\
        \x20for n in ('user','trusted'):\n\
        \x20 for k in ('opaque','redirect','whiteout','metacopy','origin'):\n\
        \x20  try: os.setxattr(f, f'{n}.overlay.{k}', b'y')\n\
        \x20  except OSError: pass\n\
        try: os.mknod('/data/keep/zero', stat.S_IFCHR, 0)\n\
        except OSError: pass\n\
        print('ok')";
    for order in [Order::python(code), Order::command(&["sudo", "python3", "-c", code]).root()] {
        server.run(&ana, &order.data(&ana, "f13")).succeeded();
        for (name, content) in [("plain", "plain\n"), ("keep/file", "kept\n")] {
            let reply = server.get(&ana, &format!("f13/{name}"));
            assert_eq!((reply.status, reply.body.as_slice()), (200, content.as_bytes()), "{name}");
        }
        let seen = server
            .run(&ana, &Order::shell("cat /data/plain /data/keep/file /data/.wh.plain").data(&ana, "f13"))
            .succeeded();
        assert_eq!(seen.text(), "plain\nkept\nx");
    }
}

#[test]
fn f03_writes_through_links_stay_inside() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let setup = "import os; os.symlink('/', '/data/d'); os.symlink('/etc/passwd', '/data/l'); os.symlink('/proc/self/root', '/data/p'); os.symlink('..', '/data/u')";
    server.run(&ana, &Order::python(setup).data(&ana, "f03")).succeeded();
    let host = host_manifest();
    let mut received = Vec::new();
    for below in ["d/tmp/x", "d/etc/passwd", "p/etc/passwd", "u/u/u/etc/passwd", "d", "l", "l/x", "d/../plain"] {
        for method in ["GET", "PUT", "DELETE"] {
            if method == "DELETE" && !below.contains('/') {
                continue;
            }
            let body: &[u8] = if method == "PUT" { b"hostile" } else { b"" };
            let reply = server.request(&ana, method, &format!("/v1/tree{}", ana.path(&format!("f03/{below}"))), body);
            let through = below.contains('/');
            assert!(
                reply.status < 500 && (!through || reply.status >= 400),
                "{method} {below}: {}",
                String::from_utf8_lossy(&reply.raw)
            );
            received.extend(reply.raw);
        }
    }
    assert!(!String::from_utf8_lossy(&received).contains("root:x:0:0"), "a link was followed");
    assert_eq!(host_manifest(), host);
}

#[test]
fn f05_magic_links_are_ordinary_names() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    for below in
        ["proc/self/root/etc/passwd", "proc/self/fd/3/..", "proc/self/exe", "proc/self/cwd", "dev/fd/0", "dev/stdin"]
    {
        let reply = server.get(&ana, below);
        assert!((400..500).contains(&reply.status), "{below}: {}", String::from_utf8_lossy(&reply.raw));
        assert!(!String::from_utf8_lossy(&reply.raw).contains("root:x:0:0"));
    }
}

#[test]
fn f08_odd_targets_answer_at_once_and_leave_the_connection_usable() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    server.put(&ana, "f08/folder/file", b"x");
    let make = "import os,socket; os.mkfifo('/data/fifo'); socket.socket(socket.AF_UNIX).bind('/data/sock'); os.symlink('fifo','/data/link'); os.symlink('gone','/data/gone')";
    server.run(&ana, &Order::python(make).data(&ana, "f08")).succeeded();
    let stream = std::net::TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let bearer = format!("Bearer {}", ana.token);
    for (method, below) in [
        ("GET", "fifo"),
        ("GET", "sock"),
        ("GET", "link"),
        ("GET", "gone"),
        ("PUT", "folder"),
        ("PUT", "folder/file/x"),
        ("GET", "folder/file/x"),
        ("GET", "folder"),
    ] {
        let start = Instant::now();
        let target = format!("/v1/tree{}", ana.path(&format!("f08/{below}")));
        let headers = [("Authorization", bearer.as_str())];
        let request = crate::http::Request { method, target: &target, headers: &headers, body: b"" };
        let mut answer = crate::http::answer(stream.try_clone().unwrap(), request).unwrap();
        let mut body = Vec::new();
        std::io::Read::read_to_end(&mut answer.body, &mut body).unwrap();
        assert!(answer.status < 500, "{method} {below}: {}", String::from_utf8_lossy(&body));
        assert!(start.elapsed() < Duration::from_secs(2), "{method} {below} took {:?}", start.elapsed());
    }
}

#[test]
fn f16_a_content_address_opens_nothing_of_another_tenant() {
    let _guard = beside_others();
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    let canary = Canary::fresh();
    server.put(&gus, "f16/plan", canary.text().as_bytes());
    let listing = server.get(&gus, "f16").json();
    let version = listing["version"].as_str().unwrap().to_owned();
    let object = listing["entries"][0]["id"].as_str().unwrap().to_owned();
    server.put(&ana, "f16/own", b"own");
    let mut received = Vec::new();
    for id in [&version, &object] {
        for target in [
            format!("/v1/tree{}?ref={id}", ana.path("f16/plan")),
            format!("/v1/tree{}?ref={id}", ana.path("f16")),
            format!("/v1/tree{}?ref={id}", ana.path("")),
            format!("/v1/tree-history{}?ref={id}", ana.path("f16")),
            format!("/v1/tree-diff{}?to={id}", ana.path("f16")),
            format!("/v1/tree-diff{}?from={id}&to={id}", ana.path("f16")),
            format!("/v1/tree-history{}?after={id}", ana.path("f16")),
        ] {
            let target = target.replace("/?", "?");
            let theirs = server.request(&ana, "GET", &target, b"");
            let never = server.request(
                &ana,
                "GET",
                &target.replace(id.as_str(), "1234567890123456789012345678901234567890"),
                b"",
            );
            assert_eq!(theirs.status, never.status, "another tenant's id is told apart from none: {target}");
            assert_ne!(theirs.status, 200, "{target}");
            received.extend(theirs.raw);
        }
        let order = Order::shell("cat /data/*")
            .with("mounts", json!([{ "path": ana.path("f16"), "at": "/data", "branch": id }]));
        let mut answer = server.post_run(&ana, &order).unwrap();
        std::io::Read::read_to_end(&mut answer.body, &mut received).unwrap();
    }
    assert_eq!(canary.find(&received), None);
    // Equal content of two tenants is stored twice: neither notices that the other has it.
    server.put(&ana, "f16/same", canary.text().as_bytes());
    server.request(&gus, "DELETE", &format!("/v1/tree{}", gus.path("f16/plan")), b"");
    assert!(canary.find(&server.get(&ana, "f16/same").raw).is_some());
}
