//! The golden posture of every process of a launch, read from outside: users, capabilities, seccomp, namespaces, limits,
//! descriptors, folders. One checked-in table; `BAILEY_BLESS=1` rewrites it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bailey_protocol::jail::{CAGE_UID_BASE, SERVER_UID};

use crate::host::{self, NAMESPACES, Process};
use crate::run::Order;
use crate::server::{Server, beside_others, shared};

const GOLDEN: &str = "tests/hostile/golden/posture.txt";

/// What one process is. `None` when it ended meanwhile.
fn portrait(process: Process) -> Option<BTreeMap<&'static str, String>> {
    let text = |below: &str| std::fs::read_to_string(process.path(below)).ok();
    let status = |field: &str| process.status(field);
    let mut found = BTreeMap::new();
    found.insert("uid", ids(&status("Uid")?));
    found.insert("gid", ids(&status("Gid")?));
    found.insert("groups", ids(&status("Groups")?));
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        found.insert(set, capabilities(&status(set)?));
    }
    found.insert("no_new_privs", status("NoNewPrivs")?);
    found.insert("seccomp", format!("mode {}, filters {}", status("Seccomp")?, status("Seccomp_filters")?));
    found.insert("umask", status("Umask")?);
    let foreign =
        |kind: &&str| Some(process.namespace(kind)? != Process(std::process::id().cast_signed()).namespace(kind)?);
    let mut apart = Vec::new();
    for kind in &NAMESPACES {
        if foreign(kind)? {
            apart.push(*kind);
        }
    }
    found.insert("namespaces of its own", apart.join(" "));
    let is_place = |below: &str, of: &str| {
        let inode = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
        Some(inode(&process.path(below))? == inode(Path::new(of))?)
    };
    found.insert("root", if is_place("root/.", "/")? { "the host's" } else { "its own" }.to_owned());
    found.insert("folder", std::fs::read_link(process.path("cwd")).ok()?.to_string_lossy().into_owned());
    // `/proc` files of a process that cannot be dumped belong to the uid 0 of its user namespace.
    let owner = std::fs::metadata(process.path("fd")).ok()?.uid();
    let dumpable = match process.uid() {
        Some(0) => "not to be seen",
        uid if uid == Some(owner) => "by its user",
        _ => "no",
    };
    found.insert("dumpable", dumpable.to_owned());
    // Below 0 is a preference that not every root may state.
    let score: i32 = text("oom_score_adj")?.trim().parse().ok()?;
    found.insert("oom_score_adj", if score <= 0 { "at most 0".to_owned() } else { score.to_string() });
    found.insert("limits", limits(&text("limits")?, process.uid() == Some(0))?);
    let session = |process: Process| process.status("NSsid");
    let own = session(Process(std::process::id().cast_signed()));
    let kind = match session(process)? {
        id if Some(&id) == own.as_ref() => "of whoever started it",
        id if id.split_whitespace().last() == Some("0") => "another's",
        _ => "within its namespace",
    };
    found.insert("session", kind.to_owned());
    found.insert("descriptors", descriptors(process));
    // Whatever was read above belongs to one process.
    process.alive().then_some(found)
}

fn ids(line: &str) -> String {
    let name = |id: u32| match id {
        0 => "root".to_owned(),
        SERVER_UID => "server".to_owned(),
        id if id >= CAGE_UID_BASE => format!("cage+{}", id % host::RANGE),
        other => other.to_string(),
    };
    let all: Vec<String> = line.split_whitespace().map(|id| id.parse().map_or_else(|_| id.to_owned(), name)).collect();
    let distinct: BTreeSet<&String> = all.iter().collect();
    if distinct.len() == 1 { all[0].clone() } else { all.join(" ") }
}

fn capabilities(set: &str) -> String {
    let all = Process(std::process::id().cast_signed()).status("CapBnd").unwrap();
    match set {
        set if set == all => "all".to_owned(),
        set => set.trim_start_matches('0').to_owned(),
    }
}

/// Soft and hard limits; a large one that is this host's is not ours to say.
fn limits(text: &str, is_jail: bool) -> Option<String> {
    let own = std::fs::read_to_string("/proc/self/limits").ok()?;
    let rows = [
        ("core", "Max core file size"),
        ("files", "Max open files"),
        ("memlock", "Max locked memory"),
        ("sigpending", "Max pending signals"),
        ("msgqueue", "Max msgqueue size"),
        ("nice", "Max nice priority"),
        ("rtprio", "Max realtime priority"),
    ];
    let row = |text: &str, start: &str| -> Option<Vec<String>> {
        let line = text.lines().find_map(|line| line.strip_prefix(start))?;
        Some(line.split_whitespace().take(2).map(str::to_owned).collect())
    };
    let mut said = Vec::new();
    for (name, start) in rows {
        let host = row(&own, start)?.pop()?;
        let is_small = |value: &str| {
            name == "msgqueue"
                || value.parse::<u64>().is_ok_and(|value| value <= 65_536 && name != "files" || value <= 1024)
        };
        if is_jail && name == "core" {
            // It cannot be dumped at all.
            continue;
        }
        let parts = row(text, start)?;
        let parts = parts.iter().map(|part| if *part == host && !is_small(part) { "the host's" } else { part });
        said.push(format!("{name} {}", parts.collect::<Vec<_>>().join("/")));
    }
    Some(said.join(", "))
}

/// Kinds of descriptors, which differ from moment to moment for all but the code.
fn kinds(process: Process) -> BTreeSet<String> {
    let kind = |link: &str| -> &'static str {
        let known = [
            ("socket:", "socket"),
            ("pipe:", "pipe"),
            ("anon_inode:[eventfd]", "eventfd"),
            ("anon_inode:[eventpoll]", "epoll"),
            ("anon_inode:[pidfd]", "pidfd"),
            ("anon_inode:[signalfd]", "signalfd"),
            ("anon_inode:inotify", "inotify"),
            ("mnt:", "mount namespace"),
            ("user:", "user namespace"),
            ("time:", "time namespace"),
            ("/dev/null", "null device"),
            ("/cgroup/", "cgroup"),
            ("/exec-", "cgroup below its own"),
            ("/run/bailey", "below /run/bailey"),
            ("/memfd:", "memfd"),
            ("/proc/", "below /proc"),
        ];
        let found = known.iter().find(|(start, _)| link.starts_with(start)).map(|(_, name)| *name);
        match link {
            _ if found.is_some() => found.unwrap(),
            _ if link.contains("/hostile-") => "data folder or log on the host",
            "/" => "root of a detached mount",
            _ if link.starts_with("/data") => "below /data",
            _ if link.starts_with('/') => "file or folder of a cage's disk",
            _ => "something else",
        }
    };
    process.descriptors().values().map(|link| kind(link).to_owned()).collect()
}

fn descriptors(process: Process) -> String {
    let is_code = process.uid_inside() == Some(1000) || process.status("CapEff").as_deref() == Some("00000000000004eb");
    if is_code {
        let one = |(number, link): (u32, String)| format!("{number} {}", link.split([':', '[']).next().unwrap());
        return process.descriptors().into_iter().map(one).collect::<Vec<_>>().join(", ");
    }
    kinds(process).into_iter().collect::<Vec<_>>().join(", ")
}

/// Looks for a process that lives for a moment only.
fn catch(
    work: impl Fn(),
    found: impl Fn() -> Option<BTreeMap<&'static str, String>> + Sync,
) -> BTreeMap<&'static str, String> {
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let seeker = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(60);
            let caught = loop {
                if let Some(caught) = found() {
                    break caught;
                }
                assert!(Instant::now() < deadline, "it was never seen");
            };
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            caught
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) && !seeker.is_finished() {
            work();
        }
        seeker.join().unwrap()
    })
}

/// Stock git in a cage, while it sends a clone.
fn git_of_a_clone(server: &Server) -> BTreeMap<&'static str, String> {
    let pat = server.user("portrait", "pat");
    let mut noise = vec![0; 4 << 20];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
    server.put(&pat, "big", &noise);
    let folder = tempfile::tempdir().unwrap();
    let clone = || {
        let mut git = std::process::Command::new("git");
        git.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", folder.path());
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
        git.args(["-c", &format!("http.extraHeader=Authorization: Bearer {}", pat.token), "clone", "--bare", "-q"]);
        git.arg(format!("http://{}/git/portrait.git", server.address)).arg(folder.path().join("copy"));
        let output = git.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::remove_dir_all(folder.path().join("copy")).unwrap();
    };
    // From when it is at work: it begins elsewhere.
    let is_git = |process: &Process| {
        process.uid_inside() == Some(1000)
            && process.command_line().split('\0').any(|word| word == "upload-pack")
            && std::fs::read_link(process.path("cwd")).is_ok_and(|folder| folder == Path::new("/repo"))
    };
    catch(clone, || {
        let process = server.jail().family().into_iter().find(is_git)?;
        let mut found = portrait(process)?;
        // Git's own pipes and packs come and go.
        found.insert("descriptors", kinds(process).into_iter().collect::<Vec<_>>().join(", "));
        process.alive().then_some(found)
    })
}

#[test]
fn every_process_of_a_launch_is_as_the_golden_table_says() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let mut table = BTreeMap::new();
    let mut note = |name: &'static str, process: Process| {
        table.insert(name, portrait(process).unwrap_or_else(|| panic!("{name} has ended")));
    };
    note("jail", server.jail());
    note("server", server.serve());
    let live = server.hold(&ana, &Order::shell("echo ready; exec sleep 60"));
    note("PID 1", live.init());
    note("code", *live.code().first().unwrap());
    live.end();
    let live = server.hold(&ana, &Order::shell("exec sudo sh -c 'echo ready; exec sleep 60'").root());
    let of_root =
        |root: bool| live.code().into_iter().find(|process| (process.uid_inside() == Some(0)) == root).unwrap();
    note("code by sudo", of_root(true));
    note("sudo itself", of_root(false));
    live.end();
    let jail = server.jail();
    let children = || {
        let list = std::fs::read_to_string(jail.path(&format!("task/{}/children", jail.0))).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Process).collect::<Vec<_>>()
    };
    let collector = catch(
        || {
            let fill = "cd /data; mkdir -p x; cd x; for i in $(seq 4000); do echo $i >$i; done";
            server.run(&ana, &Order::shell(fill).data(&ana, "portrait")).succeeded();
        },
        || {
            let is_one = |process: &Process| process.command_line() == "bailey-guest\0collect\0";
            children().into_iter().find(is_one).and_then(portrait)
        },
    );
    table.insert("collector", collector);
    table.insert("git", git_of_a_clone(server));
    let mut text = String::new();
    for (name, rows) in &table {
        for (row, value) in rows {
            writeln!(text, "{name} | {row}: {value}").unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("BAILEY_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    compare(&std::fs::read_to_string(&path).unwrap(), &text);
}

/// Every row must be there as it is; of kinds of descriptors that come and go, none may be new.
fn compare(golden: &str, found: &str) {
    let rows = |text: &str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.map(|(row, value)| (row.to_owned(), value.to_owned())).collect()
    };
    let (golden, found) = (rows(golden), rows(found));
    let mut wrong = Vec::new();
    for row in golden.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let (Some(wanted), Some(got)) = (golden.get(row), found.get(row)) else {
            wrong.push(format!("{row}: golden {:?}, found {:?}", golden.get(row), found.get(row)));
            continue;
        };
        let may_vary = row.ends_with("descriptors") && !row.contains("code") && !row.contains("sudo");
        let known: BTreeSet<&str> = wanted.split(", ").collect();
        if if may_vary { got.split(", ").any(|kind| !known.contains(kind)) } else { wanted != got } {
            wrong.push(format!("{row}: golden `{wanted}`, found `{got}`"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
