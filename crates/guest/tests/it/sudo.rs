//! `sudo`: what it gives, what it refuses, and what hostile programs get from its socket.

use std::time::Duration;

use serde_json::json;

use crate::exec::wait_until;
use crate::guest::{Guest, required};

#[tokio::test]
async fn root_has_exactly_what_installing_takes() {
    required();
    let guest = Guest::start(true).await;
    let script = "grep -E '^(Cap|NoNewPrivs|Seccomp|Uid)' /proc/self/status";
    for outcome in [guest.shell(&format!("/run/bin/sudo {script}")).await, guest.shell_as(script, "root").await] {
        let text = outcome.text();
        // CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, NET_BIND_SERVICE.
        let bits = 1_u64 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10;
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert!(text.contains(&format!("{set}:\t{bits:016x}")), "{set} in {text} {outcome:?}");
        }
        for line in [
            "CapInh:\t0000000000000000",
            "CapAmb:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp_filters:\t3",
            "Uid:\t0\t0\t0\t0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
    let outcome = guest.shell_as("mount -t tmpfs x /tmp; unshare -m true; chroot / true; mknod /tmp/x c 1 1; cat /proc/1/environ; kill -9 1; echo $?", "root").await;
    assert_eq!(outcome.text(), "0\n", "PID 1 ignores what its namespace sends: {outcome:?}");
    let change = "python3 -c 'import os; os.setgroups([]); os.setresgid(1000,1000,1000); os.setresuid(1000,1000,1000); os.system(\"id -u; grep CapEff /proc/self/status\")'; touch /home/user/r; stat -c %u /home/user/r";
    let outcome = guest.shell_as(change, "root").await;
    assert_eq!(outcome.text(), "1000\nCapEff:\t0000000000000000\n0\n", "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[tokio::test]
async fn a_command_under_sudo_has_its_descriptors_folder_and_end() {
    required();
    let guest = Guest::start(true).await;
    let outcome = guest
        .shell(
            "cd /tmp; echo in | /run/bin/sudo -n A=1 sh -c 'cat; pwd; id -u; echo $A$B; echo err >&2; exit 9'; echo $?",
        )
        .await;
    assert_eq!(outcome.text(), "in\n/tmp\n0\n1\n9\n", "{outcome:?}");
    assert_eq!(outcome.stderr, b"err\n");
    let outcome = guest.shell("export B=2; /run/bin/sudo -E sh -c 'echo $B'; /run/bin/sudo -u user id -u; /run/bin/sudo -i 'echo' '$HOME'; /run/bin/sudo kill -9 $$").await;
    assert_eq!(outcome.text(), "2\n1000\n/root\n", "{outcome:?}");
    assert_eq!(outcome.end["signal"], 9);
    let outcome = guest.shell("/run/bin/sudo no-such-thing; echo $?; /run/bin/sudo sh -c 'kill -TERM $$'; echo $?; /run/bin/sudo; echo $?").await;
    assert_eq!(outcome.text(), "1\n143\n1\n", "{outcome:?}");
    let outcome = guest.shell("/run/bin/sudo sh -c 'trap \"echo got; exit 4\" TERM; echo up; while :; do sleep 0.05; done' & sleep 0.7; kill -TERM $!; wait $!; echo $?").await;
    assert_eq!(outcome.text(), "up\ngot\n4\n", "{outcome:?}");
}

#[tokio::test]
async fn without_root_sudo_says_so() {
    required();
    let guest = Guest::start(false).await;
    let outcome = guest.shell("/run/bin/sudo id; echo $?").await;
    assert_eq!(outcome.text(), "1\n");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("no root user"), "{outcome:?}");
}

#[tokio::test]
async fn the_deadline_reaches_what_sudo_started() {
    required();
    let guest = Guest::start(true).await;
    let script = "/run/bin/sudo sh -c 'setsid sleep 600 & sleep 600' & /run/bin/sudo setsid sleep 601 & echo hi; wait";
    let start = json!({ "process": { "cmd": "/bin/bash", "args": ["-c", script] } });
    let outcome = guest.start_exec(&start, &[("connect-timeout-ms", "1200")]).await.outcome().await;
    assert_eq!(outcome.error["code"], "deadline_exceeded");
    wait_until(|| guest.groups() <= 1, "the groups are gone").await;
    assert_eq!(guest.shell("pgrep -c sleep").await.text(), "0\n");
}

#[tokio::test]
async fn hostile_talk_to_the_socket_hurts_nobody() {
    required();
    let guest = Guest::start(true).await;
    let script = r#"
import socket, os, array, struct, random, errno, time
P = "/run/bailey/sudo.sock"
def talk(data, fds=()):
    s = socket.socket(socket.AF_UNIX); s.connect(P)
    # A user has only so many descriptors in flight: wait until PID 1 has taken some.
    while True:
        try:
            if fds: s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            else: s.send(data)
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                time.sleep(0.01)
                continue
        return s
good = b"\x01" + struct.pack(">I", 1) + b"id\0"
frame = lambda b: struct.pack(">I", len(b)) + b
random.seed(1)
for n in (0, 1, 3, 5, 8, 100): talk(frame(good)[:4], [0] * n if n else ())
for length in (0, 1, 5, 307200, 307201, 0xffffffff): talk(struct.pack(">I", length), [0, 1, 2, os.open(".", os.O_RDONLY)])
for i in range(200):
    body = bytes(random.randrange(256) for _ in range(random.randrange(60)))
    s = talk(struct.pack(">I", len(body)), [0, 1, 2, 0])
    try: s.send(body)
    except OSError: pass
# A file as working folder, a folder as output.
s = talk(struct.pack(">I", len(good)), [0, 1, 2, os.open("/etc/passwd", os.O_RDONLY)]); s.send(good)
print(s.recv(600)[:1])
many = [b"A"] * 9000
body = b"\x01" + struct.pack(">I", 9000) + b"\0".join(many) + b"\0"
s = talk(struct.pack(">I", len(body)), [0, 1, 2, os.open("/", os.O_RDONLY)])
try: s.send(body)
except OSError: pass
try: print(len(s.recv(10)))
except OSError: print(0)
idle = [talk(b"\0") for _ in range(200)]
print("done")
"#;
    let start = json!({ "process": { "cmd": "python3", "args": ["-c", script] }, "stdin": false });
    let outcome = guest.start_exec(&start, &[("connect-timeout-ms", "30000")]).await.outcome().await;
    assert_eq!(outcome.text(), "b'R'\n0\ndone\n", "{outcome:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(guest.shell("/run/bin/sudo id -u").await.text(), "0\n");
    let script = "for i in 0 1 2 3 4 5 6 7 8 9; do readlink /proc/1/fd/$i; ls /proc/1/fd/$i/; done; cat /proc/1/environ /proc/1/mem; readlink /proc/1/exe";
    let inside = guest.shell_as(script, "root").await;
    assert_eq!(inside.text(), "", "root must not see into PID 1");
}
