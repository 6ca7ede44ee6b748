//! Group L and the empty room: nothing of the host, of the server or of anyone else can be read inside, and nothing
//! secret reaches a log or an answer.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::attack;
use crate::bare::Bare;
use crate::http::{self, Request};
use crate::oracle::Canary;
use crate::run::Order;
use crate::server::{BRISK, Server, beside_others, scratch, shared};

/// Names that may be in the environment of code.
const ENVIRONMENT: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TERM",
    "TMPDIR",
    "TZ",
    "PWD",
    "SHLVL",
    "_",
    "E2B_SANDBOX",
];

#[test]
fn o1_the_room_is_empty() {
    let _guard = beside_others();
    // The arm: a stand-in for a process that serves an API, whose own child is the same hunter.
    let own: Vec<Canary> = (0..4).map(|_| Canary::fresh()).collect();
    let hunter = attack::text("empty_room");
    let args: Vec<&str> = own.iter().map(Canary::text).chain([hunter.as_str()]).collect();
    let arm = Bare::start_with(&["--pid", "--fork", "--ipc"], "stand_in", &args, &[]).output();
    for (canary, place) in own.iter().zip(["memory", "environment", "file", "shared memory"]) {
        assert!(
            canary.find(&arm).is_some(),
            "the arm did not find the nonce in {place}: {}",
            String::from_utf8_lossy(&arm)
        );
    }

    let environment = Canary::fresh();
    let folder = scratch().join("empty-room");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), BRISK).unwrap();
    let server = Server::start_in(&folder, &[("BAILEY_HOSTILE_SECRET", environment.text())]);
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));

    let file = Canary::fresh();
    let path = folder.join("root-only");
    fs::write(&path, file.text()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let shm = Canary::fresh();
    fs::write("/dev/shm/bailey-hostile", shm.text()).unwrap();
    let key = Canary::fresh();
    fs::create_dir_all(server.data().join("serve/keys")).unwrap();
    fs::write(server.data().join("serve/keys/stored"), key.text()).unwrap();
    let tree = Canary::fresh();
    server.put(&gus, "secrets/plan", tree.text().as_bytes());
    // What the server has in memory: a header, a body that it refuses, and a run's environment of another tenant.
    let memory = Canary::fresh();
    server.request(&gus, "GET", &format!("/v1/tree{}?ref={}", gus.path("secrets/plan"), memory.text()), b"");
    let before = Canary::fresh();
    server.run(&ana, &Order::attack("leavings", &[before.text()])).succeeded();
    let neighbour = Canary::fresh();
    let live =
        server.hold(&gus, &Order::attack("neighbour", &["keep", neighbour.text()]).env("SECRET", neighbour.text()));

    let serve = server.serve();
    let heap = fs::read(serve.path("environ")).unwrap();
    if environment.find(&heap).is_none() {
        eprintln!("o1: the server was not given the variable, so that it is empty of it shows nothing more");
    }
    let told = [
        path.to_string_lossy().into_owned(),
        server.data().to_string_lossy().into_owned(),
        "/dev/shm".to_owned(),
        "/etc/shadow".to_owned(),
    ];
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let mut seen = Vec::new();
    for order in [Order::attack("empty_room", &told), Order::attack("empty_room", &told).root()] {
        let outcome = server.run(&ana, &order.limit("output_bytes", 8 << 20).data(&ana, "hunt")).succeeded();
        assert!(outcome.text().contains("hunted"), "{}", outcome.summary());
        seen.extend(outcome.everything());
        seen.extend(server.get(&ana, "hunt").raw);
    }
    let shadow = fs::read_to_string("/etc/shadow").unwrap();
    let canaries = [
        ("environment", &environment),
        ("root-only file", &file),
        ("host's shared memory", &shm),
        ("stored key", &key),
        ("other tenant's tree", &tree),
        ("server's memory", &memory),
        ("run before", &before),
        ("neighbour", &neighbour),
    ];
    for (place, canary) in canaries {
        assert_eq!(canary.find(&seen), None, "the nonce of the {place} came out");
    }
    for hash in shadow.lines().filter_map(|line| line.split(':').nth(1)).filter(|hash| hash.len() > 10) {
        assert!(!String::from_utf8_lossy(&seen).contains(hash), "the host's /etc/shadow came out");
    }
    let log = server.log();
    for (place, canary) in canaries {
        assert_eq!(canary.find(&log), None, "the nonce of the {place} is in the log");
    }
    live.end();
    fs::remove_file("/dev/shm/bailey-hostile").unwrap();
}

#[test]
fn l01_the_environment_is_an_allow_list() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let live = server.hold(&ana, &Order::attack("holder", &[]).env("ASKED_FOR", "yes"));
    let init = live.init();
    assert_eq!(fs::read(init.path("environ")).unwrap(), b"", "PID 1 has an environment");
    assert_eq!(init.command_line(), "bailey-guest\0init\0");
    for process in live.code() {
        let text = String::from_utf8(fs::read(process.path("environ")).unwrap()).unwrap();
        let names: Vec<&str> = text.split('\0').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name).collect();
        assert!(names.contains(&"ASKED_FOR"), "{names:?}");
        let strange =
            names.iter().find(|name| **name != "ASKED_FOR" && !ENVIRONMENT.contains(name) && !name.starts_with("E2B_"));
        assert_eq!(strange, None);
    }
    live.end();
}

/// Host paths and names that must not show in what a sandbox reads about itself.
fn host_traces(server: &Server, text: &str) -> Vec<String> {
    let data = server.data();
    let traces = [
        data.to_string_lossy().into_owned(),
        scratch().to_string_lossy().into_owned(),
        "/var/cache".to_owned(),
        env!("CARGO_MANIFEST_DIR").to_owned(),
        "target/".to_owned(),
        ".erofs".to_owned(),
        "sqlite".to_owned(),
        "/serve/".to_owned(),
        "tenant.git".to_owned(),
        "panicked".to_owned(),
        "RUST_BACKTRACE".to_owned(),
        ".rs:".to_owned(),
        "os error".to_owned(),
    ];
    traces.into_iter().filter(|trace| text.contains(trace.as_str())).collect()
}

#[test]
fn l03_mountinfo_and_kin_name_nothing_of_the_host() {
    let _guard = beside_others();
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    server.put(&ana, "l03/file", b"x");
    let other = server.hold(&gus, &Order::attack("holder", &[]));
    let order = Order::shell(
        "cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats /proc/1/mountinfo /proc/self/cgroup /proc/1/cgroup \
         /proc/self/maps /proc/1/maps /proc/1/cmdline /proc/net/unix /proc/swaps /proc/partitions; ls -la / /run /run/bailey /proc/1; \
         readlink /proc/1/exe /proc/1/root /proc/1/cwd; hostname; uname -a; cat /proc/self/status",
    );
    let outcome = server.run(&ana, &order.data(&ana, "l03"));
    let text = outcome.text() + &String::from_utf8_lossy(&outcome.stderr);
    assert!(text.contains(" /data "), "the mount does not even show, so this shows nothing: {text}");
    assert_eq!(host_traces(server, &text), Vec::<String>::new(), "{text}");
    for foreign in [other.so_far().sandbox.as_str(), other.so_far().run.as_str(), "globex", "acme"] {
        assert!(!text.contains(foreign), "`{foreign}` shows inside");
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = server.run(&ana, &Order::shell("hostname; cat /etc/hostname /proc/sys/kernel/hostname")).text();
    assert!(!name.lines().any(|line| line == host.trim()), "the host's name shows inside: {name}");
    other.end();
}

#[test]
fn l03_code_counts_the_processors_and_the_memory_that_it_was_granted() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let count =
        "import os\nprint(os.cpu_count(), len(os.sched_getaffinity(0)), open('/proc/meminfo').readline().split()[1])";
    let outcome = server.run(&ana, &Order::command(&["python3", "-c", count])).succeeded();
    assert_eq!(outcome.text().trim(), format!("1 1 {}", 512 * 1024));
}

#[test]
fn l05_memory_and_disk_are_clean_for_the_next_run() {
    let _guard = beside_others();
    let server = shared();
    let (ana, gus) = (server.user("acme", "ana"), server.user("globex", "gus"));
    let fill = "import os,sys\nn=sys.argv[1].encode()\nb=[bytearray(n*16000) for _ in range(150)]\n\
                f=open('/tmp/fill','wb')\nfor _ in range(60): f.write(n*16000)\nf.close()\nif os.path.exists('/tmp/leak'): pass\nprint('filled')";
    // The arm: the hunter does see what is in its own memory and on its own disk.
    let own = Canary::fresh();
    let looks = server.run(&ana, &Order::attack("empty_room", &[]).env("OWN", own.text())).succeeded();
    assert!(own.find(&looks.everything()).is_some(), "the hunter is blind");
    for _ in 0..3 {
        let canary = Canary::fresh();
        let outcome = server.run(&ana, &Order::command(&["python3", "-c", fill, canary.text()])).succeeded();
        assert_eq!(outcome.text().trim(), "filled");
        let hunt = server.run(&gus, &Order::attack("empty_room", &[])).succeeded();
        assert_eq!(canary.find(&hunt.everything()), None, "what another tenant's run left can be read");
    }
}

/// Requests that fail in as many ways as the API has, one a line: method, target, body. The caller is of `acme`.
fn errors() -> Vec<(String, String, String)> {
    let text = include_str!("attacks/errors.txt");
    let fill = |word: &str| {
        let word = word.replace("{long}", &"n".repeat(300)).replace("{deep}", &"d/".repeat(300));
        word.replace("{huge}", &"x".repeat(200_000))
    };
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ').map(fill);
        let mut next = || words.next().unwrap_or_default();
        (next(), next(), next())
    };
    text.lines().map(line).collect()
}

#[test]
fn l06_two_hundred_errors_tell_nothing_of_the_host() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    let list = errors();
    assert!(list.len() >= 200, "{}", list.len());
    for (method, target, body) in &list {
        let reply = server.request(&ana, method, target, body.as_bytes());
        let text = String::from_utf8_lossy(&reply.raw);
        let what = format!("{method} {} -> {text}", &target[..target.len().min(200)]);
        assert!(reply.status >= 400 || text.contains("\"failed\""), "accepted: {what}");
        assert!(reply.status < 500, "an error of the server: {what}");
        assert_eq!(host_traces(server, &text), Vec::<String>::new(), "{what}");
        for word in ["SELECT", "INSERT", "constraint", "stack backtrace", "src/", "thread '"] {
            assert!(!text.contains(word), "`{word}`: {what}");
        }
    }
    assert!(server.healthy());
    let log = String::from_utf8_lossy(&server.log()).into_owned();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn l08_secrets_in_requests_reach_no_log() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    // Arguments and idempotency keys are the tenant's own data, which the database keeps; the log must not.
    let (canary, kept) = (Canary::fresh(), Canary::fresh());
    let secret = canary.text();
    let bearer = format!("Bearer {}", ana.token);
    let garbage = format!("Bearer {secret}");
    let basic = format!("Basic {}", {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("user:{secret}"))
    });
    let target = format!("/v1/tree{}?ref={secret}&token={secret}", ana.path("x"));
    let body = json!({ "command": ["sh", "-c", "exit 3"], "env": { "API_KEY": secret }, "stdin": secret }).to_string();
    let unknown = json!({ "command": ["true"], "api_key": secret }).to_string();
    let bad_env = json!({ "command": ["true"], "env": { "A=B": secret } }).to_string();
    let argument = json!({ "command": ["/no/such/program", kept.text()] }).to_string();
    let crash = json!({ "command": ["sh", "-c", "kill -SEGV $$"], "env": { "K": secret } }).to_string();
    let tries: [(&str, &str, &str, &[u8]); 10] = [
        ("GET", "/v1/runs", &garbage, b""),
        ("GET", "/v1/runs", &basic, b""),
        ("GET", &target, &bearer, b""),
        ("POST", "/v1/runs", &bearer, body.as_bytes()),
        ("POST", "/v1/runs", &bearer, unknown.as_bytes()),
        ("POST", "/v1/runs", &bearer, bad_env.as_bytes()),
        ("POST", "/v1/runs", &bearer, argument.as_bytes()),
        ("POST", "/v1/runs", &bearer, crash.as_bytes()),
        ("POST", "/v1/runs", &bearer, secret.as_bytes()),
        ("PUT", &target, &bearer, secret.as_bytes()),
    ];
    for (method, target, authorization, body) in tries {
        let headers = [
            ("Authorization", authorization),
            ("Cookie", secret),
            ("X-Api-Key", secret),
            ("Idempotency-Key", kept.text()),
            ("If-Match", secret),
            ("User-Agent", secret),
            ("Content-Type", "application/json"),
            ("Connection", "close"),
        ];
        http::send(server.address, Request { method, target, headers: &headers, body }).unwrap();
    }
    let token = ana.token.split('.').next_back().unwrap();
    let log = server.log();
    assert_eq!(canary.find(&log).or(kept.find(&log)), None, "a secret is in the log");
    assert!(!String::from_utf8_lossy(&log).contains(token), "a token's signature is in the log");
    // The oracle's teeth: the same search finds the nonce where it must be.
    let stored = server.run(&ana, &Order::shell("cat").with("stdin", json!(secret))).succeeded();
    assert!(canary.find(&stored.everything()).is_some());
    for name in ["bailey.db", "bailey.db-wal"] {
        let stored = fs::read(server.data().join("serve").join(name)).unwrap_or_default();
        assert_eq!(canary.find(&stored), None, "a secret is in {name}");
    }
}
