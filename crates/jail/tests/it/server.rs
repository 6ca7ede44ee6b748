//! The supervised server: a Python script in the place of `bailey serve`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bailey_protocol::jail::{SERVER_UID, ServerLaunch};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::harness::{Jail, config, fixture};

/// What every script begins with.
const PRELUDE: &str = r#"
import array, json, os, signal, socket, sys, time
jail = socket.socket(fileno=3)
def call(op, fds=()):
    request = json.dumps({"id": 1, "op": op}).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    jail.sendmsg([request], rights)
    reply, control, flags, _ = jail.recvmsg(65536, socket.CMSG_SPACE(16))
    got = array.array("i")
    for level, kind, data in control:
        got.frombytes(data[:len(data) - len(data) % 4])
    return json.loads(reply)["result"], list(got)
def sandbox(n):
    return "sbx" + str(n).rjust(26, "0")
def park(n):
    result, fds = call({"park": {"sandbox": sandbox(n), "template": TEMPLATE, "limits": LIMITS}})
    assert "Ok" in result, result
    return fds
def tell(name, value):
    with open("/data/" + name + ".new", "w") as out:
        out.write(value)
    os.rename("/data/" + name + ".new", "/data/" + name)
lives = len(open("/data/lives").read()) if os.path.exists("/data/lives") else 0
tell("lives", "x" * (lives + 1))
"#;

fn launch(data: &Path, script: &str, drain_ms: u64) -> Jail {
    launch_at(data, script, drain_ms, "127.0.0.1:0".parse().unwrap())
}

fn launch_at(data: &Path, script: &str, drain_ms: u64, listen: std::net::SocketAddr) -> Jail {
    let limits = serde_json::to_string(&bailey_protocol::limits::Limits::default()).unwrap();
    let text = format!("TEMPLATE = '{}'\nLIMITS = json.loads('{limits}')\n", fixture().digest);
    let script = format!("{}\n{text}\n{script}", PRELUDE);
    let mut config = config(data);
    config.server = Some(ServerLaunch {
        policies: None,
        listen,
        binary: std::fs::canonicalize("/usr/bin/python3").unwrap(),
        args: vec!["-c".to_owned(), script],
        env: vec![("GREETING".to_owned(), "hello".to_owned())],
        config: serde_json::json!({ "mine": [1, 2, 3] }),
        drain_ms,
    });
    Jail::start_with(&config, "export SECRET=canary; exec 9</etc/shadow;")
}

fn wait_for(path: &PathBuf) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{} does not appear", path.display());
}

#[test]
fn the_server_sees_its_own_root_and_holds_no_rights() {
    let data = TempDir::new().unwrap();
    let script = r#"
s = socket.socket(fileno=os.dup(4))
facts = {
    "status": open("/proc/self/status").read(),
    "root": sorted(os.listdir("/")),
    "env": dict(os.environ),
    "config": json.load(os.fdopen(os.dup(5))),
    "fds": {n: os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + n)},
    "address": s.getsockname(),
    "listening": s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN),
    "cgroup": open("/proc/self/cgroup").read(),
    "writable": [p for p in ["/", "/usr", "/etc", "/bailey", "/dev", "/tmp", "/data", "/proc/sys/kernel/core_pattern"] if os.access(p, os.W_OK)],
    "pids": [p for p in os.listdir("/proc") if p.isdigit()],
}
tell("facts", json.dumps(facts))
"#;
    let mut jail = launch(data.path(), script, 1000);
    assert_eq!(jail.wait(), Some(0));
    let serve = data.path().join("serve");
    let facts: serde_json::Value = serde_json::from_str(&wait_for(&serve.join("facts"))).unwrap();
    let status = facts["status"].as_str().unwrap();
    for line in [
        format!("Uid:\t{SERVER_UID}\t{SERVER_UID}\t{SERVER_UID}\t{SERVER_UID}"),
        format!("Gid:\t{SERVER_UID}\t{SERVER_UID}\t{SERVER_UID}\t{SERVER_UID}"),
        "Groups:\t ".to_owned(),
        "CapPrm:\t0000000000000000".to_owned(),
        "CapBnd:\t0000000000000000".to_owned(),
        "CapAmb:\t0000000000000000".to_owned(),
        "NoNewPrivs:\t1".to_owned(),
        "Seccomp:\t2".to_owned(),
    ] {
        assert!(status.lines().any(|found| found == line), "{line} in {status}");
    }
    let root: Vec<&str> = facts["root"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in ["root", "home", "srv", "var", "opt", "mnt", "sys", "boot"] {
        assert!(!root.contains(&name), "{root:?}");
    }
    let environment = facts["env"].as_object().unwrap();
    assert_eq!(environment["GREETING"], "hello");
    assert!(!environment.contains_key("SECRET"));
    assert_eq!(facts["config"], serde_json::json!({ "mine": [1, 2, 3] }));
    assert_eq!(facts["address"][0], "127.0.0.1");
    assert_eq!(facts["listening"], 1);
    assert_eq!(facts["writable"], serde_json::json!(["/tmp", "/data"]));
    assert_eq!(facts["pids"], serde_json::json!(["1"]));
    assert!(!facts["cgroup"].as_str().unwrap().contains("bailey"), "{}", facts["cgroup"]);
    // 0 to 5, what the script opened, and nothing that the jail or its caller had.
    for (number, target) in facts["fds"].as_object().unwrap() {
        let target = target.as_str().unwrap();
        assert!(!target.contains("shadow") && !target.contains("cgroup"), "{number} is {target}");
    }
    let meta = std::fs::metadata(&serve).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (SERVER_UID, 0o700));
    assert_eq!(std::fs::metadata(data.path().join("jail")).unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn a_server_that_dies_is_started_again_without_its_cages() {
    let data = TempDir::new().unwrap();
    let script = r#"
if lives == 0:
    park(1); park(2)
    time.sleep(0.05)
    os.kill(1, signal.SIGKILL) if os.getpid() != 1 else None
    import ctypes; ctypes.string_at(0)
result, fds = call({"stop": {"sandbox": sandbox(1)}})
assert "no sbx" in result["Err"]["message"], result
park(1)
os.mkdir("/data/checkout")
open("/data/checkout/file", "w").write("slice\n")
lower = os.open("/data/checkout", os.O_PATH)
result, _ = call({"claim": {"sandbox": sandbox(1), "share": "0" * 32, "limits": LIMITS, "mounts": [{"at": "/data", "writable": True}]}}, [lower])
assert result == {"Ok": {"claimed": {}}}, result
foreign = os.open("/usr", os.O_PATH)
park(3)
result, _ = call({"claim": {"sandbox": sandbox(3), "share": "0" * 32, "limits": LIMITS, "mounts": [{"at": "/data", "writable": True}]}}, [foreign])
assert result["Err"]["kind"] == "invalid", result
tell("done", "well")
"#;
    let mut jail = launch(data.path(), script, 1000);
    assert_eq!(jail.wait(), Some(0));
    assert_eq!(wait_for(&data.path().join("serve/done")), "well");
    assert_eq!(wait_for(&data.path().join("serve/lives")), "xx");
}

#[test]
fn a_signal_drains_the_server_and_a_stubborn_one_is_killed() {
    let data = TempDir::new().unwrap();
    let script = r#"
def finish(*_):
    tell("drained", "yes")
    sys.exit(0)
signal.signal(signal.SIGTERM, finish)
park(1)
tell("ready", "yes")
while True: time.sleep(1)
"#;
    let mut jail = launch(data.path(), script, 10_000);
    wait_for(&data.path().join("serve/ready"));
    jail.signal(Signal::TERM);
    assert_eq!(jail.wait(), Some(0));
    wait_for(&data.path().join("serve/drained"));

    let data = TempDir::new().unwrap();
    let script = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntell('ready', 'yes')\nwhile True: time.sleep(1)\n";
    let mut jail = launch(data.path(), script, 200);
    wait_for(&data.path().join("serve/ready"));
    let start = Instant::now();
    jail.signal(Signal::INT);
    assert_eq!(jail.wait(), Some(1));
    assert!(start.elapsed() >= Duration::from_millis(190));
}

#[test]
fn an_address_in_use_is_refused_and_leaves_nothing() {
    let data = TempDir::new().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut jail = launch_at(data.path(), "pass", 1000, taken.local_addr().unwrap());
    assert_eq!(jail.wait(), Some(1));
    assert!(!data.path().join("serve/lives").exists());
    assert!(crate::residue::groups(&crate::residue::ledger(data.path())).is_empty());
}

#[test]
fn a_server_that_fails_at_once_is_not_tried_again() {
    let data = TempDir::new().unwrap();
    let mut jail = launch(data.path(), "sys.exit(7)", 1000);
    assert_eq!(jail.wait(), Some(7));
    assert_eq!(wait_for(&data.path().join("serve/lives")), "x");
}
