//! Execs: their events, their end, their powers.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::guest::{Guest, init_request, required};

#[tokio::test]
async fn nothing_but_health_answers_before_init_and_init_answers_once() {
    required();
    let guest = Guest::park();
    let health = http::Request::get("/health").body(http_body_util::Empty::new()).unwrap();
    assert_eq!(guest.send(health).await.status(), 204);
    let (status, answer) = guest.call("/process.Process/List", &json!({})).await;
    assert_eq!((status, answer["code"].as_str()), (400, Some("failed_precondition")));
    let mut other = init_request(false);
    other["generation"] = json!(99);
    assert_eq!(guest.call("/init", &other).await.0, 400);
    let (status, answer) = guest.call("/init", &init_request(false)).await;
    assert_eq!(status, 200, "{answer}");
    let fences: Vec<&str> = answer["fences"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert!(fences.iter().any(|f| f.starts_with("landlock:")), "{fences:?}");
    assert!(fences.iter().any(|f| f.starts_with("seccomp:") && f.len() == 16), "{fences:?}");
    assert_eq!(guest.call("/init", &init_request(true)).await.0, 409);
}

#[tokio::test]
async fn a_command_has_its_output_then_its_end() {
    required();
    let guest = Guest::start(false).await;
    let outcome = guest.shell("echo out; echo err >&2; exit 3").await;
    assert_eq!((outcome.text().as_str(), outcome.stderr.as_slice(), outcome.code()), ("out\n", &b"err\n"[..], 3));
    assert_eq!(outcome.end["status"], "exit status 3");
    let outcome = guest.shell("kill -9 $$").await;
    assert_eq!((outcome.end["status"].as_str(), outcome.end["signal"].as_i64()), (Some("signal: killed"), Some(9)));
}

/// Byte-exact output of every value, cut anywhere (rivals 11).
#[tokio::test]
async fn output_is_exact_whatever_the_bytes() {
    required();
    let guest = Guest::start(false).await;
    let script =
        "python3 -c 'import os\nfor i in range(700): os.write(1, bytes(range(256)) + \"\u{e4}\u{20ac}\".encode())'";
    let outcome = guest.shell(script).await;
    let one: Vec<u8> = (0..=255).chain("\u{e4}\u{20ac}".bytes()).collect();
    assert_eq!(outcome.stdout, one.repeat(700), "{}", String::from_utf8_lossy(&outcome.stderr));
}

/// A command that prints and ends at once has both output and end, every time (rivals 8).
#[tokio::test]
async fn output_is_never_lost_at_the_end() {
    required();
    let guest = Guest::start(false).await;
    let start = json!({ "process": { "cmd": "/bin/sh", "args": ["-c", "echo out; echo err >&2; exit 7"] } });
    for _ in 0..300 {
        let outcome = guest.start_exec(&start, &[]).await.outcome().await;
        assert_eq!((outcome.text().as_str(), outcome.stderr.as_slice(), outcome.code()), ("out\n", &b"err\n"[..], 7));
    }
    wait_until(|| guest.groups() <= 1, "groups are removed").await;
}

/// The deadline ends everything that the command started, wherever it went (rivals 1, R10).
#[tokio::test]
async fn a_timeout_kills_the_whole_tree() {
    required();
    let guest = Guest::start(false).await;
    let script = "trap '' TERM HUP INT; sleep 600 & setsid sleep 600 & (setsid sh -c 'sleep 600 & sleep 600' &) ; \
                  python3 -c 'import socket,time; s=socket.socket(); s.bind((\"127.0.0.1\", 4567)); s.listen(); time.sleep(600)' & \
                  sh -c 'kill -STOP $$' & echo hi; wait; sleep 600";
    let start = json!({ "process": { "cmd": "/bin/bash", "args": ["-c", script] } });
    let began = Instant::now();
    let outcome = guest.start_exec(&start, &[("connect-timeout-ms", "1500")]).await.outcome().await;
    let took = began.elapsed();
    assert_eq!((outcome.text().as_str(), outcome.error["code"].as_str()), ("hi\n", Some("deadline_exceeded")));
    assert!(took >= Duration::from_millis(1500) && took < Duration::from_millis(3500), "{took:?}");
    wait_until(|| guest.groups() <= 1, "the tree is gone").await;
    let left = guest.shell("ls -d /proc/[0-9]*/ | wc -l; exec 3<>/dev/tcp/127.0.0.1/4567").await;
    // PID 1, this shell, ls, wc; nobody listens any more.
    assert!(left.text().trim().parse::<u32>().unwrap() <= 4, "{}", left.text());
    assert_ne!(left.code(), 0);
}

/// Orphans are reaped, however many (rivals 13, K23).
#[tokio::test]
async fn k23_orphans_are_reaped() {
    required();
    let guest = Guest::start(false).await;
    let script = "import os\nfor i in range(2000):\n p=os.fork()\n if p==0:\n  if os.fork()==0: os._exit(0)\n  os._exit(0)\n os.waitpid(p,0)\nprint(\"done\")";
    let outcome = guest.shell(&format!("python3 -c '{script}'")).await;
    assert_eq!(outcome.text(), "done\n", "{outcome:?}");
    let zombies = guest.shell("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l").await;
    assert_eq!(zombies.text().trim(), "0");
}

/// What the leader leaves in the background neither delays the end nor loses its pipe.
#[tokio::test]
async fn the_background_outlives_the_end_and_keeps_its_pipe() {
    required();
    let guest = Guest::start(false).await;
    let began = Instant::now();
    let script = "(sleep 0.5; echo late; echo alive > /tmp/alive; sleep 600) & echo now";
    let outcome = guest.shell(script).await;
    assert_eq!((outcome.text().as_str(), outcome.code()), ("now\n", 0));
    assert!(began.elapsed() < Duration::from_secs(4));
    for _ in 0..100 {
        if guest.shell("cat /tmp/alive 2>/dev/null").await.text() == "alive\n" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the background process died of its pipe");
}

/// Nobody reading does not make PID 1 hold the output; a vanished reader does not stop the program (R11, rivals 3).
#[tokio::test]
async fn r11_a_reader_that_stalls_or_leaves_costs_no_memory() {
    required();
    let guest = Guest::start(false).await;
    let flood = json!({ "process": { "cmd": "/bin/sh", "args": ["-c", "head -c 100000000 /dev/zero; echo end > /tmp/end"] }, "stdin": false });
    let mut stalled = guest.start_exec(&flood, &[]).await;
    let pid = stalled.pid().await;
    // Others are served meanwhile, and PID 1 stays small.
    for _ in 0..20 {
        assert_eq!(guest.shell("true").await.code(), 0);
    }
    let memory = guest.shell("grep VmRSS /proc/1/status").await.text();
    let kib: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 64 * 1024, "{memory}");
    assert_eq!(guest.shell("test -e /tmp/end").await.code(), 1, "nothing stopped the program");
    drop(stalled);
    let connected = guest.call_stream("/process.Process/Connect", &json!({ "process": { "pid": pid } }), &[]).await;
    let outcome = connected.outcome().await;
    assert_eq!(outcome.code(), 0, "{outcome:?}");
    assert_eq!(guest.shell("cat /tmp/end").await.text(), "end\n");
}

#[tokio::test]
async fn input_is_passed_on_in_order_and_closed() {
    required();
    let guest = Guest::start(false).await;
    let mut events = guest.start_exec(&json!({ "process": { "cmd": "cat" }, "tag": "t" }), &[]).await;
    let pid = events.pid().await;
    let chunk = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![b'x'; 300_000]);
    let input = json!({ "process": { "pid": pid }, "input": { "stdin": chunk } });
    let by_tag = json!({ "process": { "tag": "t" } });
    let send = async {
        for _ in 0..3 {
            assert_eq!(guest.call("/process.Process/SendInput", &input).await.0, 200);
        }
        assert_eq!(guest.call("/process.Process/CloseStdin", &by_tag).await.0, 200);
        let (status, answer) = guest.call("/process.Process/SendInput", &input).await;
        assert!(status == 400 || status == 404, "{answer}");
    };
    let mut outcome = crate::guest::Outcome::default();
    tokio::join!(send, events.rest(&mut outcome));
    assert_eq!((outcome.stdout.len(), outcome.code()), (900_000, 0));
    let (status, answer) = guest.call("/process.Process/CloseStdin", &by_tag).await;
    assert_eq!((status, answer["code"].as_str()), (404, Some("not_found")));
    // An end is kept for those who come a little late.
    let late = guest.call_stream("/process.Process/Connect", &json!({ "process": { "pid": pid } }), &[]).await;
    assert_eq!(late.outcome().await.code(), 0);
}

#[tokio::test]
async fn a_listeners_deadline_ends_its_listening_only() {
    required();
    let guest = Guest::start(false).await;
    let mut events = guest.start_exec(&json!({ "process": { "cmd": "cat" }, "tag": "x" }), &[]).await;
    let by_tag = json!({ "process": { "tag": "x" } });
    let _pid = events.pid().await;
    // A time that no clock can hold is no reason to fall over.
    let most = u64::MAX.to_string();
    let headers = [("connect-timeout-ms", most.as_str()), ("keepalive-ping-interval", most.as_str())];
    let mut patient = guest.call_stream("/process.Process/Connect", &by_tag, &headers).await;
    let _pid = patient.pid().await;
    let headers = [("connect-timeout-ms", "200")];
    let heard = guest.call_stream("/process.Process/Connect", &by_tag, &headers).await.outcome().await;
    assert_eq!(heard.error["code"], "deadline_exceeded");
    let (_, list) = guest.call("/process.Process/List", &json!({})).await;
    assert_eq!((&list["processes"][0]["tag"], &list["processes"][0]["config"]["cmd"]), (&json!("x"), &json!("cat")));
    let kill = json!({ "process": { "tag": "x" }, "signal": "SIGNAL_SIGKILL" });
    assert_eq!(guest.call("/process.Process/SendSignal", &kill).await.0, 200);
    let mut outcome = crate::guest::Outcome::default();
    events.rest(&mut outcome).await;
    assert_eq!(outcome.end["status"], "signal: killed");
    assert_eq!(guest.call("/process.Process/SendSignal", &kill).await.0, 404);
}

#[tokio::test]
async fn a_terminal_has_a_size_and_a_keyboard() {
    required();
    let guest = Guest::start(false).await;
    let start =
        json!({ "process": { "cmd": "/bin/bash", "args": ["--norc"] }, "pty": { "size": { "cols": 91, "rows": 33 } } });
    let mut events = guest.start_exec(&start, &[]).await;
    let pid = events.pid().await;
    let resize = json!({ "process": { "pid": pid }, "pty": { "size": { "cols": 120, "rows": 40 } } });
    let keys = |text: &str| {
        let keys = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        json!({ "process": { "pid": pid }, "input": { "pty": keys } })
    };
    let drive = async {
        assert_eq!(guest.call("/process.Process/SendInput", &keys("stty size; tty; id -u\n")).await.0, 200);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(guest.call("/process.Process/Update", &resize).await.0, 200);
        assert_eq!(guest.call("/process.Process/SendInput", &keys("stty size; exit 5\n")).await.0, 200);
    };
    let mut outcome = crate::guest::Outcome::default();
    tokio::join!(drive, events.rest(&mut outcome));
    let text = outcome.text();
    assert!(text.contains("33 91") && text.contains("40 120") && text.contains("/dev/pts/"), "{text}");
    assert_eq!(outcome.code(), 5);
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    required();
    let guest = Guest::start(false).await;
    let long = "x".repeat(300_000);
    for (process, code, word) in [
        (json!({ "cmd": "no-such-program" }), "not_found", "no-such-program"),
        (json!({ "cmd": "/etc" }), "permission_denied", "/etc"),
        (json!({ "cmd": "" }), "invalid_argument", "empty"),
        (json!({ "cmd": "true", "cwd": "/nowhere" }), "invalid_argument", "/nowhere"),
        (json!({ "cmd": "true", "args": ["a\u{0}b"] }), "invalid_argument", "NUL"),
        (json!({ "cmd": "true", "args": [long] }), "invalid_argument", "bytes"),
        (json!({ "cmd": "true", "envs": { "A=B": "1" } }), "invalid_argument", "A=B"),
    ] {
        let outcome = guest.start_exec(&json!({ "process": process }), &[]).await.outcome().await;
        assert_eq!(outcome.error["code"], code, "{process}: {outcome:?}");
        assert!(outcome.error["message"].as_str().unwrap().contains(word), "{outcome:?}");
    }
    let outcome = guest.shell_as("true", "root").await;
    assert_eq!(outcome.error["code"], "permission_denied");
    wait_until(|| guest.groups() <= 1, "groups of failed starts are removed").await;
}

/// L01, K01 and what stands beside them: the powers of an exec as it sees them.
#[tokio::test]
async fn k01_an_exec_has_no_power_and_nothing_inherited() {
    required();
    let guest = Guest::start(false).await;
    let outcome = guest
        .shell(
            "grep -E '^(Cap|NoNewPrivs|Seccomp|Groups|Uid|SigIgn|SigBlk)' /proc/self/status; ls /proc/self/fd; umask",
        )
        .await;
    let text = outcome.text();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "SigBlk", "SigIgn"] {
        assert!(text.contains(&format!("{set}:\t0000000000000000")), "{set} in {text}");
    }
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "Seccomp_filters:\t3", "Uid:\t1000\t1000\t1000\t1000", "0022"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    // Standard descriptors, and the one that `ls` itself opens.
    assert!(text.contains("\n0\n1\n2\n3\n") && !text.contains("\n4\n"), "{text}");
    let env = guest.shell("env -0 | cut -z -d= -f1 | sort -z | tr '\\0' ' '").await.text();
    let mut names: Vec<&str> =
        env.split(' ').filter(|n| !n.is_empty() && !["_", "SHLVL", "PWD", "OLDPWD"].contains(n)).collect();
    names.sort_unstable();
    assert_eq!(names, ["FROM_INIT", "HOME", "LANG", "LOGNAME", "PATH", "USER"]);
    let denied = "cat /proc/1/environ; ls /proc/1/fd; cat /proc/1/mem; kill -9 1; unshare -Ur true; mount -t tmpfs x /tmp; \
                  python3 -c 'import ctypes;print(ctypes.CDLL(None).unshare(0x10000000))'";
    let outcome = guest.shell(denied).await;
    assert_eq!(outcome.text(), "-1\n", "{}", String::from_utf8_lossy(&outcome.stderr));
    let limits = guest.shell("ulimit -n; ulimit -q; ulimit -r; ulimit -l; ulimit -i").await.text();
    assert_eq!(limits, "512\n0\n0\n1024\n1024\n");
    // The core limit cannot even be asked for by the call that sets it.
    let core = guest.shell("set -- $(grep 'Max core' /proc/self/limits); echo $5 $6").await.text();
    assert_eq!(core, "1 1\n");
}

/// Rightful programs work under the filters.
#[tokio::test]
async fn k36_runtimes_and_tools_work_behind_the_fences() {
    required();
    let guest = Guest::start(false).await;
    for (script, wanted) in [
        (
            "python3 -c 'import threading,subprocess,asyncio,ssl,sqlite3,multiprocessing; t=threading.Thread(target=lambda:print(1)); t.start(); t.join(); print(subprocess.check_output([\"echo\",\"2\"]).decode(),end=\"\"); asyncio.run(asyncio.sleep(0)); print(multiprocessing.Pool(2).map(abs,[-3]))'",
            "1\n2\n[3]\n",
        ),
        (
            "/usr/bin/node -e 'const w=require(\"worker_threads\");console.log([1,2].map(x=>x*2).join());require(\"child_process\").execSync(\"true\");require(\"fs\").writeFileSync(\"/tmp/n\",\"x\");setTimeout(()=>console.log(\"t\"),1)'",
            "2,4\nt\n",
        ),
        (
            "cd /tmp && mkdir g && cd g && git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --format=%s",
            "x\n",
        ),
        ("cd /tmp && python3 -m venv --without-pip v && v/bin/python -c 'print(4)'", "4\n"),
        ("mkfifo /tmp/p; (echo through > /tmp/p &); cat /tmp/p; rm /tmp/p", "through\n"),
        (
            "for i in 1 2 3; do echo $i; done | sort -r | head -n 1; timeout 5 true && echo ok; nice -n 5 echo n",
            "3\nok\nn\n",
        ),
        (
            "echo 'int main(){return 0;}' > /tmp/a.c && gcc -o /tmp/a /tmp/a.c && /tmp/a && tar cf - /tmp/a 2>/dev/null | tar tf - && rm /tmp/a",
            "tmp/a\n",
        ),
        ("exec 3<>/dev/tcp/127.0.0.1/1; echo $?", "1\n"),
    ] {
        let outcome = guest.shell(script).await;
        assert_eq!(outcome.text(), wanted, "{script}: {}", String::from_utf8_lossy(&outcome.stderr));
    }
}

#[tokio::test]
async fn a_port_is_reached_with_half_close() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    required();
    let guest = Guest::start(false).await;
    let server = "import socket\ns=socket.socket(); s.bind((\"127.0.0.1\",8765)); s.listen(); print(\"up\",flush=True)\nc,_=s.accept(); d=b\"\"\nwhile True:\n b=c.recv(65536)\n if not b: break\n d+=b\nc.sendall(str(len(d)).encode())";
    let start = json!({ "process": { "cmd": "python3", "args": ["-c", server] }, "stdin": false });
    let mut events = guest.start_exec(&start, &[]).await;
    let _pid = events.pid().await;
    let (_, up) = events.next().await.unwrap();
    assert!(up["event"]["data"].get("stdout").is_some(), "{up}");
    let mut stream = guest.stream("tcp:8765\n").await;
    stream.write_all(&vec![b'x'; 1_000_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "1000000");
    // Nobody listens there: the stream ends.
    let mut closed = guest.stream("tcp:9\n").await;
    assert_eq!(closed.read(&mut [0; 1]).await.unwrap_or(0), 0);
    for odd in ["tcp:0\n", "agent2\n", "egress\n", "a header that is longer than any header may be\n"] {
        let mut refused = guest.stream(odd).await;
        assert_eq!(refused.read(&mut [0; 1]).await.unwrap_or(0), 0, "{odd}");
    }
}

pub(crate) async fn wait_until(mut condition: impl FnMut() -> bool, what: &str) {
    for _ in 0..200 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not reached: {what}");
}

/// A budget, not a benchmark: a broken fast path costs far more. `--nocapture` shows the numbers.
#[tokio::test]
async fn an_exec_round_trip_is_quick() {
    required();
    let guest = Guest::start(false).await;
    let start = json!({ "process": { "cmd": "/bin/true" }, "stdin": false });
    let mut times = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        let outcome = guest.start_exec(&start, &[]).await.outcome().await;
        times.push(began.elapsed());
        assert_eq!(outcome.code(), 0);
    }
    times.sort();
    eprintln!("exec round trip: least {:?} p50 {:?} p90 {:?}", times[0], times[100], times[180]);
    assert!(times[0] < Duration::from_millis(20), "{times:?}");
}

/// Where PID 1's own filter hides `clone3`, children move into their group themselves, and are killed with it.
#[tokio::test]
async fn execs_have_their_group_without_clone3_too() {
    required();
    let guest = Guest::park_without_clone3();
    assert_eq!(guest.call("/init", &init_request(false)).await.0, 200);
    let script = "setsid sleep 600 & grep -c exec- /proc/self/cgroup; wait; sleep 600";
    let start = json!({ "process": { "cmd": "/bin/bash", "args": ["-c", script] } });
    let outcome = guest.start_exec(&start, &[("connect-timeout-ms", "700")]).await.outcome().await;
    assert_eq!((outcome.text().as_str(), outcome.error["code"].as_str()), ("1\n", Some("deadline_exceeded")));
    wait_until(|| guest.groups() <= 1, "the tree is gone").await;
}

/// After `/init` nothing new can appear in `/`, not even for root, while all that builds need works elsewhere.
#[tokio::test]
async fn landlock_fences_execs_and_the_agent_itself() {
    required();
    let guest = Guest::start(true).await;
    let script = "mkdir /bailey-test-new 2>/dev/null; echo $?; rmdir /bailey-test-new 2>/dev/null; \
                  ls / >/dev/null && mkdir /tmp/a /tmp/b && echo x > /tmp/a/f && mv /tmp/a/f /tmp/b/f && ln /tmp/b/f /tmp/a/g && \
                  truncate -s 0 /tmp/a/g && ls /tmp/a && echo > /dev/null && python3 -c 'import os; print(os.openpty() is not None)'";
    let outcome = guest.shell_as(script, "root").await;
    assert_eq!(outcome.text(), "1\ng\nTrue\n", "{outcome:?}");
    let body = json!({ "path": "/bailey-test-new" });
    let (status, answer) = guest.call("/filesystem.Filesystem/MakeDir", &body).await;
    assert_eq!((status, answer["code"].as_str()), (403, Some("permission_denied")), "{answer}");
}
