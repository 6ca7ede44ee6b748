//! `bailey run`.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use rustix::process::{Pid, Signal};

use crate::server::{Server, bailey, eventually, runs, text};

#[test]
fn output_passes_byte_for_byte_and_the_code_is_the_programs() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let program =
        "import os; os.write(1, bytes(range(256)) * 400); os.write(2, bytes(range(255, -1, -1))); os._exit(7)";
    let output = ana.output(&["run", "--", "python3", "-c", program]);
    assert_eq!(output.status.code(), Some(7));
    assert!(output.stdout == (0..=255_u8).cycle().take(256 * 400).collect::<Vec<_>>(), "{} bytes", output.stdout.len());
    assert!(output.stderr == (0..=255_u8).rev().collect::<Vec<_>>(), "{}", text(&output.stderr));
    for (command, code) in [("exit 0", 0), ("exit 255", 255), ("kill -TERM $$", 128 + 15), ("kill -KILL $$", 128 + 9)] {
        assert_eq!(ana.output(&["run", "--", "sh", "-c", command]).status.code(), Some(code), "{command}");
    }
}

#[test]
fn a_mounted_folder_is_read_and_what_changed_is_a_new_version() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/in/x", "content\n");
    let mount = ["run", "--mount", "/tenants/acme/in:/data", "--", "sh", "-c"];
    let output = ana.output(&[&mount[..], &["cat /data/x; echo new > /data/y"]].concat());
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "content\n".to_owned()));
    let version = ana.ok(&["log", "-n", "1", "/tenants/acme/in"]);
    let said = text(&output.stderr);
    assert!(said.starts_with("version ") && said.contains(version.split(' ').next().unwrap()), "{said} {version}");
    assert_eq!(ana.ok(&["cat", "/tenants/acme/in/y"]), "new\n");
    // Nothing changed: no version, nothing said.
    let output = ana.output(&[&mount[..], &["true"]].concat());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    // Read-only: the program is told, and nothing changes.
    let read_only = ["run", "--mount", "/tenants/acme/in:/data:ro", "--", "sh", "-c", "echo no > /data/x"];
    assert_ne!(ana.output(&read_only).status.code(), Some(0));
    assert_eq!(ana.ok(&["cat", "/tenants/acme/in/x"]), "content\n");
}

#[test]
fn input_environment_folder_and_root_reach_the_program() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let arguments = ["run", "-i", "-e", "NAME=a=b", "--cwd", "/tmp", "--", "sh", "-c", "cat; echo $NAME; pwd; id -u"];
    let mut child = ana.command(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all("größe\n".as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "größe\na=b\n/tmp\n1000\n");
    assert_eq!(ana.ok(&["run", "--root", "--", "sudo", "id", "-u"]), "0\n");
    assert_ne!(ana.output(&["run", "--", "sudo", "id", "-u"]).status.code(), Some(0));
}

#[test]
fn limits_end_a_run_with_their_own_codes() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let mark = "600.0125";
    let said = ana
        .fails(124, &["run", "--timeout", "700ms", "--", "sh", "-c", &format!("setsid sleep {mark} & sleep {mark}")]);
    assert!(said.contains("time limit"), "{said}");
    assert!(!runs(mark), "the timeout left a process");
    let greedy = ["run", "--memory", "64M", "--disk", "16M", "--", "python3", "-c", "x = b'x' * (200 << 20)"];
    assert_eq!(ana.output(&greedy).status.code(), Some(137));
    let said = ana.fails(125, &["run", "--output", "64K", "--", "sh", "-c", "yes"]);
    assert!(said.contains("output limit"), "{said}");
    let said = ana.fails(125, &["run", "--memory", "1K", "--", "true"]);
    assert!(said.contains("memory_bytes"), "{said}");
    let said = ana.fails(125, &["run", "--", "no-such-program"]);
    assert!(said.contains("no-such-program"), "{said}");
}

#[test]
fn ctrl_c_kills_the_whole_tree_and_waits_for_its_end() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let mark = "600.0625";
    let script = format!("setsid sleep {mark} & trap '' INT TERM; echo there; sleep {mark}");
    let mut child = ana.start(&["run", "--timeout", "10m", "--", "sh", "-c", &script]);
    eventually("the sleeper runs", || runs(mark));
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(!runs(mark), "Ctrl-C left a process");
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("cancelled"), "{said}");
    assert!(ana.ok(&["runs"]).contains("cancelled"));
}

#[test]
fn a_server_that_never_answers_does_not_hold_ctrl_c() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = bailey();
    command.env("BAILEY_URL", format!("http://{}", silent.local_addr().unwrap())).env("BAILEY_TOKEN", "x");
    let mut child = command.args(["run", "--", "true"]).stderr(Stdio::piped()).spawn().unwrap();
    // It listens for signals before it asks.
    let (_connection, _) = silent.accept().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        rustix::process::kill_process(Pid::from_child(&child), signal).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_second_ctrl_c_does_not_wait() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let mark = "600.001953125";
    let script = format!("echo there; sleep {mark}");
    let mut child = ana.start(&["run", "--timeout", "10m", "--", "sh", "-c", &script]);
    // A supervisor that does nothing keeps the run from ending, as a lost connection would.
    rustix::process::kill_process(server.jail_pid(), Signal::STOP).unwrap();
    for _ in 0..2 {
        rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        // Two of the same signal that wait together count as one.
        let mut patience = 0;
        eventually("the signal is taken", || {
            patience += 1;
            patience > 3 || child.try_wait().unwrap().is_some()
        });
    }
    let status = child.wait().unwrap();
    rustix::process::kill_process(server.jail_pid(), Signal::CONT).unwrap();
    assert_eq!(status.code(), Some(130));
    eventually("the run is over", || !runs(mark));
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let mark = "600.03125";
    let script = format!("echo there; sleep {mark} & while echo more; do sleep 0.05; done");
    let mut child = ana.start(&["run", "--timeout", "10m", "--", "sh", "-c", &script]);
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(141));
    eventually("the run is over", || !runs(mark));
}

#[test]
fn a_detached_run_is_followed_and_cancelled_by_its_id() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let run = ana.ok(&["run", "--detach", "--", "sh", "-c", "echo one; exit 3"]);
    let run = run.trim();
    let followed = ana.output(&["runs", run, "--follow"]);
    assert_eq!((followed.status.code(), text(&followed.stdout)), (Some(3), "one\n".to_owned()));
    assert!(ana.ok(&["runs"]).contains("exited 3"));
    assert_eq!(ana.json(&["runs", run])["ending"]["code"], 3);
    let run = ana.ok(&["run", "--detach", "--timeout", "10m", "--", "sleep", "600"]);
    ana.ok(&["runs", run.trim(), "--cancel"]);
    assert_eq!(ana.output(&["runs", run.trim(), "--follow"]).status.code(), Some(130));
    // An id of another tenant is answered like one that never was.
    let gil = server.user("globex", "gil");
    let (foreign, unknown) =
        (gil.fails(1, &["runs", run.trim()]), gil.fails(1, &["runs", &run.trim().replace("run_0", "run_1")]));
    let first = |said: &str| said.lines().next().unwrap().to_owned();
    assert_eq!(first(&foreign), first(&unknown));
}

#[test]
fn events_are_json_lines_and_the_last_is_the_ending() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    let output = ana.output(&["--json", "run", "--", "sh", "-c", "echo out; exit 4"]);
    assert_eq!(output.status.code(), Some(4));
    let events: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "stdout", "ended"]);
    assert_eq!(events[0]["wall"], "container");
    assert!(events[0]["fences"].as_array().unwrap().len() > 10);
    assert_eq!((&events[1]["text"], &events[2]["ending"]["code"]), (&"out\n".into(), &4.into()));
}
